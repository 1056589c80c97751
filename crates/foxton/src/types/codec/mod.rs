//! Typed keys and values: how Rust values become the bytes that tables store.
//!
//! A table is an ordered map of bytes. A [`Key`](crate::Key) is encoded so that the order of the
//! bytes is the order of the values. A [`Value`](crate::Value) only has to be decoded to what was
//! encoded. Both have a type name ([`TypeName`](crate::types::codec::TypeName)). The database
//! stores the name with the table and compares it whenever the table is used.
//!
//! `[u8]` is for raw tables: the bytes themselves. `str`, `String`, `[u8]` and `Vec<u8>` that stand
//! alone are stored unchanged, so a raw table can read what a typed table wrote.

/// Encodings shared by keys and values.
mod common;

/// Key encodings, which keep the order.
pub mod key;

/// Value encodings.
pub mod value;

/// Keys and values in their stored form.
mod raw;

use std::fmt;

pub use key::Key;
pub use raw::Encoded;
pub use value::Value;

/// Maximum length of a stored type name, in bytes. A longer name is truncated, and its hash still
/// distinguishes it.
const NAME_BYTES: usize = 104;

/// The name of a key or value type, built at compile time.
///
/// ```
/// use foxton::codec::{Key, TypeName};
/// assert_eq!(<u64 as Key>::TYPE.to_string(), "u64");
/// assert_eq!(<(u32, String) as Key>::TYPE.to_string(), "(u32,str)");
/// assert_ne!(TypeName::new("point"), TypeName::new("pixel"));
/// ```
#[derive(Clone, Copy)]
pub struct TypeName {
    hash: u64,
    length: u8,
    text: [u8; NAME_BYTES],
}

impl TypeName {
    /// Returns the name of a type of your own. Names are compared as text, so include the crate and
    /// a version: `"billing::Invoice.2"`.
    pub const fn new(name: &str) -> TypeName {
        TypeName::EMPTY.with(name.as_bytes())
    }

    /// Returns a name as it was stored with a table: the possibly truncated text, and the hash of
    /// the whole name.
    ///
    /// ```
    /// use foxton::codec::{Key, TypeName};
    /// let known = <(u32, String) as Key>::TYPE;
    /// assert_eq!(TypeName::stored(known.as_str(), known.hash()), known);
    /// ```
    pub const fn stored(text: &str, hash: u64) -> TypeName {
        let mut name = TypeName::new(text);
        name.hash = hash;
        name
    }

    /// Returns `open`, the parts separated by commas, and `close`. Tuples, arrays and options are
    /// named so.
    pub const fn composed(open: &str, parts: &[TypeName], close: &str) -> TypeName {
        let mut name = TypeName::EMPTY.with(open.as_bytes());
        let mut index = 0;
        while index < parts.len() {
            if index > 0 {
                name = name.with(b",");
            }
            name = name.with_name(&parts[index]);
            index += 1;
        }
        name.with(close.as_bytes())
    }

    /// Returns the name of an array of `count` parts.
    pub(crate) const fn array(part: TypeName, count: usize) -> TypeName {
        let mut digits = [0u8; 20];
        let mut start = digits.len();
        let mut rest = count;
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let mut name = TypeName::EMPTY.with(b"[").with_name(&part).with(b";");
        while start < digits.len() {
            name = name.with(&[digits[start]]);
            start += 1;
        }
        name.with(b"]")
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        // A name is truncated at a byte; this drops the rest of a truncated character.
        let bytes = &self.text[..usize::from(self.length)];
        match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or(""),
        }
    }

    /// Returns the FNV-1a hash (64 bits) of the whole name. It is stored with the table.
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    const EMPTY: TypeName = TypeName {
        hash: 0xcbf2_9ce4_8422_2325,
        length: 0,
        text: [0; NAME_BYTES],
    };

    const fn with(mut self, bytes: &[u8]) -> TypeName {
        let mut index = 0;
        while index < bytes.len() {
            self.hash = (self.hash ^ bytes[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            if (self.length as usize) < NAME_BYTES {
                self.text[self.length as usize] = bytes[index];
                self.length += 1;
            }
            index += 1;
        }
        self
    }

    const fn with_name(mut self, part: &TypeName) -> TypeName {
        let mut index = 0;
        while index < part.length as usize {
            self = self.with(&[part.text[index]]);
            index += 1;
        }
        if part.length as usize == NAME_BYTES {
            // A truncated name: the truncated part still counts, through its hash.
            self.hash = (self.hash ^ part.hash).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self
    }
}

impl PartialEq for TypeName {
    fn eq(&self, other: &TypeName) -> bool {
        self.hash == other.hash
    }
}

impl Eq for TypeName {}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Error: the bytes are not an encoding of the expected type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undecodable {
    /// The expected encoding, as a noun: `"8 bytes of u64"`, `"UTF-8 text"`.
    pub expected: &'static str,
}

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stored bytes are not {}", self.expected)
    }
}

impl std::error::Error for Undecodable {}

/// Removes `count` bytes from the front and returns them.
pub(crate) fn take<'a>(
    bytes: &mut &'a [u8],
    count: usize,
    expected: &'static str,
) -> Result<&'a [u8], Undecodable> {
    match bytes.split_at_checked(count) {
        Some((front, rest)) => {
            *bytes = rest;
            Ok(front)
        }
        None => Err(Undecodable { expected }),
    }
}

/// Returns an error if bytes are left over.
pub(crate) fn all_taken(bytes: &[u8], expected: &'static str) -> Result<(), Undecodable> {
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(Undecodable { expected })
    }
}

pub(crate) fn text(bytes: Vec<u8>) -> Result<String, Undecodable> {
    String::from_utf8(bytes).map_err(|_| Undecodable {
        expected: "UTF-8 text",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_composed_types_read_like_rust() {
        assert_eq!(
            <(u32, (String, i8)) as Key>::TYPE.to_string(),
            "(u32,(str,i8))"
        );
        assert_eq!(<[u8; 16] as Key>::TYPE.to_string(), "[u8;16]");
        assert_eq!(
            <Option<Vec<u8>> as Value>::TYPE.to_string(),
            "option(bytes)"
        );
        assert_eq!(<() as Key>::TYPE.to_string(), "()");
    }

    #[test]
    fn a_long_name_is_truncated_and_still_distinguished() {
        let long = "x".repeat(300);
        let longer = "x".repeat(301);
        assert_ne!(TypeName::new(&long), TypeName::new(&longer));
        assert_eq!(TypeName::new(&long).as_str().len(), NAME_BYTES);
    }
}
