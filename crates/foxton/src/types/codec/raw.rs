//! Encoded keys and values of any type, for tools.

use super::{Key, TypeName, Undecodable, Value};

/// The stored bytes of a key or a value of any type.
///
/// `Table<Encoded, Encoded>` opens a table of any types. The database does not check that bytes
/// written this way are an encoding of the table's types. If they are not, a typed read later fails
/// with [`Undecodable`]. A table created this way stores plain bytes.
///
/// ```
/// use foxton::{Database, Options, Table, codec::{Encoded, Key}};
///
/// const AGES: Table<str, u32> = Table::new("ages");
/// const ANY: Table<Encoded, Encoded> = Table::new("ages");
///
/// let db = Database::in_memory(Options::default())?;
/// db.run(|tx| tx.put(&AGES, "ada", &36))?;
/// let rows = db.run(|tx| tx.range(&ANY, ..).collect())?;
/// assert_eq!(rows[0].0, Encoded(b"ada".to_vec()));
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Encoded(pub Vec<u8>);

/// Matches every type when a table is opened; never stored.
const ANY: TypeName = TypeName::new("any");

impl TypeName {
    /// True if a table with the stored type hash `stored` may be used with this type.
    pub(crate) fn fits(&self, stored: u64) -> bool {
        self.hash() == stored || *self == ANY
    }

    /// Returns the type name for a new table: plain bytes, if this type matches every type.
    pub(crate) fn for_new_table(&self) -> TypeName {
        if *self == ANY {
            <[u8] as Key>::TYPE
        } else {
            *self
        }
    }
}

impl Key for Encoded {
    type Owned = Encoded;
    const TYPE: TypeName = ANY;

    fn encode(&self, out: &mut Vec<u8>) {
        Key::encode(&self.0[..], out);
    }

    fn encode_part(&self, out: &mut Vec<u8>) {
        Key::encode_part(&self.0[..], out);
    }

    fn decode(bytes: &[u8]) -> Result<Encoded, Undecodable> {
        Ok(Encoded(bytes.to_vec()))
    }

    fn decode_part(bytes: &mut &[u8]) -> Result<Encoded, Undecodable> {
        <[u8] as Key>::decode_part(bytes).map(Encoded)
    }
}

impl Value for Encoded {
    type Owned = Encoded;
    const TYPE: TypeName = ANY;

    fn encode(&self, out: &mut Vec<u8>) {
        Value::encode(&self.0[..], out);
    }

    fn encode_part(&self, out: &mut Vec<u8>) {
        Value::encode_part(&self.0[..], out);
    }

    fn decode(bytes: &[u8]) -> Result<Encoded, Undecodable> {
        Ok(Encoded(bytes.to_vec()))
    }

    fn decode_part(bytes: &mut &[u8]) -> Result<Encoded, Undecodable> {
        <[u8] as Value>::decode_part(bytes).map(Encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_fits_every_table_and_no_other_name_does() {
        let (u32s, strs) = (<u32 as Key>::TYPE, <str as Key>::TYPE);
        assert!(ANY.fits(u32s.hash()) && ANY.fits(strs.hash()));
        assert!(u32s.fits(u32s.hash()) && !u32s.fits(strs.hash()));
        assert_eq!(ANY.for_new_table(), <[u8] as Key>::TYPE);
        assert_eq!(u32s.for_new_table(), u32s);
    }
}
