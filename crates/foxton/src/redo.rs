//! What a transaction leaves in the log: its changes, whole or in parts, and the tables' names.
//!
//! ```text
//! record      kind  content
//! TABLE       1     id u32 · name · key type, its hash u64 · value type, its hash u64
//!                   (a name or a type: length u32, bytes)
//! COMMIT      2     changes                                   a whole transaction
//! PART        3     first part u64 · changes                  of one that may yet commit
//! LAST        4     first part u64 · changes                  the parts before are committed too
//! ABANDONED   5     first part u64                            the parts before never happened
//!
//! change      table u32 · key length u16, its bytes · 1, value length u32, its bytes   put
//!             table u32 · key length u16, its bytes · 0                                delete
//! ```
//!
//! Numbers are little-endian. A first part names itself 0, later ones name it by the LSN at which
//! its record ends. So no counter numbers transactions, and no two ever share a name.
//!
//! # Invariants
//!
//! * I1  Records that change one key stand in the log in the order in which the changes happened:
//!   a transaction still holds its locks when it hands over its last record, and restart applies
//!   parts only when it meets that.

use crate::codec::{Undecodable, Value, take};

/// Kinds of log records.
pub(crate) const TABLE: u8 = 1;
pub(crate) const COMMIT: u8 = 2;
pub(crate) const PART: u8 = 3;
pub(crate) const LAST: u8 = 4;
pub(crate) const ABANDONED: u8 = 5;

const DELETE: u8 = 0;
const PUT: u8 = 1;

/// One change, as it stands in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change<'a> {
    pub(crate) table: u32,
    pub(crate) key: &'a [u8],
    /// `None` deletes.
    pub(crate) value: Option<&'a [u8]>,
}

impl Change<'_> {
    /// Appends the change to a record. The key and the value are within the tables' limits.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let key_size = u16::try_from(self.key.len()).expect("keys are at most MAX_KEY_BYTES long");
        out.extend_from_slice(&self.table.to_le_bytes());
        out.extend_from_slice(&key_size.to_le_bytes());
        out.extend_from_slice(self.key);
        let Some(value) = self.value else {
            return out.push(DELETE);
        };
        let value_size = u32::try_from(value.len()).expect("at most MAX_VALUE_BYTES long");
        out.push(PUT);
        out.extend_from_slice(&value_size.to_le_bytes());
        out.extend_from_slice(value);
    }
}

/// Takes one change off the front of a record's content.
pub(crate) fn next_change<'a>(bytes: &mut &'a [u8]) -> Result<Change<'a>, Undecodable> {
    const EXPECTED: &str = "the changes of a transaction";
    let table = u32::decode_part(bytes)?;
    let key_size = u16::decode_part(bytes)?;
    let key = take(bytes, usize::from(key_size), EXPECTED)?;
    let value = match u8::decode_part(bytes)? {
        DELETE => None,
        PUT => {
            let value_size = u32::decode_part(bytes)?;
            Some(take(
                bytes,
                usize::try_from(value_size).unwrap_or(usize::MAX),
                EXPECTED,
            )?)
        }
        _ => return Err(Undecodable { expected: EXPECTED }),
    };
    Ok(Change { table, key, value })
}

/// A table, as it stands in a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableRecord {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) key_type: (String, u64),
    pub(crate) value_type: (String, u64),
}

type Fields = (u32, String, (String, u64), (String, u64));

impl TableRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let TableRecord {
            id,
            name,
            key_type,
            value_type,
        } = self.clone();
        let fields: Fields = (id, name, key_type, value_type);
        fields.encode_part(&mut bytes);
        bytes
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<TableRecord, Undecodable> {
        let (id, name, key_type, value_type) = Fields::decode_part(&mut bytes)?;
        crate::codec::all_taken(bytes, "the record of a table")?;
        Ok(TableRecord {
            id,
            name,
            key_type,
            value_type,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_in_order_and_cut_ones_are_refused() {
        let changes = [
            Change {
                table: 1,
                key: b"",
                value: Some(b""),
            },
            Change {
                table: u32::MAX,
                key: &[7; 1024],
                value: Some(&[1; 3000]),
            },
            Change {
                table: 2,
                key: b"k",
                value: None,
            },
        ];
        let mut bytes = Vec::new();
        changes.iter().for_each(|change| change.encode(&mut bytes));
        let rest = &mut &bytes[..];
        for change in changes {
            assert_eq!(next_change(rest), Ok(change));
        }
        assert!(rest.is_empty());
        for cut in 1..bytes.len() {
            let rest = &mut &bytes[..cut];
            while !rest.is_empty() && next_change(rest).is_ok() {}
        }
        assert!(next_change(&mut &[0, 0, 0, 0, 0, 0, 9][..]).is_err());
    }

    #[test]
    fn tables_come_back() {
        let table = TableRecord {
            id: 7,
            name: "accounts".into(),
            key_type: ("u64".into(), 1),
            value_type: ("i64".into(), 2),
        };
        let bytes = table.encode();
        assert_eq!(TableRecord::decode(&bytes), Ok(table));
        for cut in 0..bytes.len() {
            assert!(TableRecord::decode(&bytes[..cut]).is_err());
        }
    }
}
