//! Text form of a name.

use std::fmt;

use super::{Class, Name};

impl fmt::Display for Name {
    /// Writes `3` for a table, `3/ann` or `3/0x0007` for a key, `3/0x6162636465666768~00c0ffee` for
    /// a long key, `3/end` for the end, `#42` for an advisory name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &self.space())
    }
}

impl Name {
    /// Returns the displayed text, with `table` instead of the table's number.
    ///
    /// ```
    /// use foxton_lock::name::{KeyHasher, Name};
    ///
    /// let ann = Name::key(3, b"ann", &KeyHasher::new(7));
    /// assert_eq!(ann.to_string(), "3/ann");
    /// assert_eq!(ann.in_table("users"), "users/ann");
    /// ```
    pub fn in_table(&self, table: &str) -> String {
        let mut text = String::new();
        self.write(&mut text, &table)
            .expect("a string takes everything");
        text
    }

    fn write(&self, f: &mut dyn fmt::Write, table: &dyn fmt::Display) -> fmt::Result {
        match self.class() {
            Class::Table => return write!(f, "{table}"),
            Class::End => return write!(f, "{table}/end"),
            Class::Advisory => return write!(f, "#{}", self.head),
            Class::Key => write!(f, "{table}/")?,
        }
        let readable = self.length() > 0 && self.known_bytes().all(|byte| byte.is_ascii_graphic());
        if readable {
            self.known_bytes()
                .try_for_each(|byte| write!(f, "{}", byte as char))?;
        } else {
            write!(f, "0x")?;
            self.known_bytes()
                .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        if !self.is_exact() {
            write!(f, "~{:016x}", self.tail)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::super::KeyHasher;
    use super::*;

    #[test]
    fn names_print_for_people() {
        let key = |bytes: &[u8]| Name::key(1, bytes, &KeyHasher::new(1));
        let shown = |name: Name| name.to_string();
        assert_eq!(shown(Name::table(7)), "7");
        assert_eq!(shown(key(b"ann")), "1/ann");
        assert_eq!(shown(key(&7u64.to_be_bytes())), "1/0x0000000000000007");
        assert_eq!(shown(key(b"")), "1/0x");
        assert_eq!(shown(Name::end(7)), "7/end");
        assert_eq!(shown(Name::advisory(42)), "#42");
        assert!(shown(key(b"0123456789abcdefg")).starts_with("1/01234567~"));
    }
}
