//! Log records of transactions: their changes, whole or in parts, and the tables they create.
//!
//! ```text
//! record      kind  content
//! TABLE       1     id u32 · name · key type, its hash u64 · value type, its hash u64
//!                   (a name or a type: length u32, bytes)
//!                   · 1, if the table is paged
//! COMMIT      2     changes                                   a whole transaction
//! PART        3     first part u64 · changes                  of one that may yet commit
//! LAST        4     first part u64 · changes                  the parts before are committed too
//! ABANDONED   5     first part u64                            the parts before never happened
//!
//! change      table u32 · key length u16, its bytes · 1, value length u32, its bytes   put
//!             table u32 · key length u16, its bytes · 2, patch length u32, its bytes   patch
//!             table u32 · key length u16, its bytes · 0                                delete
//! ```
//!
//! Numbers are little-endian. In a transaction's first part the field `first part` is 0; its later
//! parts have the LSN at which the record of the first part ends. So transactions need no counter
//! as a name, and no two share a name.
//!
//! A transaction that has changed pages too ends with a COMMIT of pages (36), whose tail is that of
//! a LAST. Without parts before, its `first part` is 0.
//!
//! # Invariants
//!
//! * I1  Records that change one key are in the log in the order in which the changes happened. A
//!   transaction still holds its locks when it appends its last record, and restart applies its
//!   parts only when it reads that record.
//! * I2  A patch was made for the value that the changes before it left in the row: earlier changes
//!   of this transaction, and transactions whose records precede its own. The transaction held the
//!   row exclusively from before it read the value until its record had its position in the log. So
//!   a reader that has applied all of those changes finds that value; another value means damage.

use crate::redo::patch;
use crate::types::codec::{Undecodable, Value, take};
use crate::types::component::TableComponent;

/// Kinds of log records.
pub(crate) const TABLE: u8 = 1;
pub(crate) const COMMIT: u8 = 2;
pub(crate) const PART: u8 = 3;
pub(crate) const LAST: u8 = 4;
pub(crate) const ABANDONED: u8 = 5;

const DELETE: u8 = 0;
const PUT: u8 = 1;
const PATCH: u8 = 2;

/// Returns what replay reads of a record that commits changes of pages: first part and changes, as
/// in LAST. `None` if it has none of either.
pub(crate) fn page_commit_tail(mut payload: &[u8]) -> Result<Option<(u64, &[u8])>, Undecodable> {
    for _link in 0..2 {
        u64::decode_part(&mut payload)?;
    }
    match payload.is_empty() {
        true => Ok(None),
        false => Ok(Some((u64::decode_part(&mut payload)?, payload))),
    }
}

/// Form in which a transaction collects redo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedoForm {
    /// Nothing, because the database has no log.
    Nothing,
    /// Keys and new values.
    Values,
    /// Keys and new values, or for an update the bytes that differ.
    Patches,
}

/// The effect of a change on its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect<'a> {
    /// Deletes it.
    Delete,
    /// Sets its value.
    Put(&'a [u8]),
    /// Applies this [`patch`](crate::redo::patch) to its existing value.
    Patch(&'a [u8]),
}

impl<'a> Effect<'a> {
    pub(crate) fn is_patch(&self) -> bool {
        matches!(self, Effect::Patch(_))
    }

    /// Returns the mark, and the bytes after it.
    fn parts(&self) -> (u8, Option<&'a [u8]>) {
        match self {
            Effect::Delete => (DELETE, None),
            Effect::Put(bytes) => (PUT, Some(bytes)),
            Effect::Patch(bytes) => (PATCH, Some(bytes)),
        }
    }
}

/// One change in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowChange<'a> {
    pub(crate) table: u32,
    pub(crate) key: &'a [u8],
    pub(crate) effect: Effect<'a>,
}

impl RowChange<'_> {
    /// Appends the change to a record. The key and the value are within the tables' limits.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let key_size = u16::try_from(self.key.len()).expect("keys are at most MAX_KEY_BYTES long");
        out.extend_from_slice(&self.table.to_le_bytes());
        out.extend_from_slice(&key_size.to_le_bytes());
        out.extend_from_slice(self.key);
        let (mark, bytes) = self.effect.parts();
        out.push(mark);
        if let Some(bytes) = bytes {
            let size = u32::try_from(bytes.len()).expect("it was read from u32s or is a value");
            out.extend_from_slice(&size.to_le_bytes());
            out.extend_from_slice(bytes);
        }
    }

    /// Appends the change from `old` to `new`. Writes a patch if `patches` allows it and the patch
    /// is much shorter. The key is within the limits.
    pub(crate) fn encode_update(
        (table, key): (u32, &[u8]),
        (old, new): (Option<&[u8]>, &[u8]),
        patches: bool,
        out: &mut Vec<u8>,
    ) {
        let begin = out.len();
        if let Some(old) = old.filter(|_| patches) {
            let effect = Effect::Patch(&[]);
            RowChange { table, key, effect }.encode(out);
            let patch_at = out.len();
            if patch::diff(old, new, out) {
                let size = u32::try_from(out.len() - patch_at).expect("it is shorter than a value");
                out[patch_at - 4..patch_at].copy_from_slice(&size.to_le_bytes());
                return;
            }
            out.truncate(begin);
        }
        let effect = Effect::Put(new);
        RowChange { table, key, effect }.encode(out);
    }
}

/// Decodes one change and removes it from the front of a record's content.
pub(crate) fn next_change<'a>(bytes: &mut &'a [u8]) -> Result<RowChange<'a>, Undecodable> {
    const EXPECTED: &str = "the changes of a transaction";
    let table = u32::decode_part(bytes)?;
    let key_size = u16::decode_part(bytes)?;
    let key = take(bytes, usize::from(key_size), EXPECTED)?;
    let mark = u8::decode_part(bytes)?;
    let mut sized = || {
        let size = u32::decode_part(bytes)?;
        take(bytes, usize::try_from(size).unwrap_or(usize::MAX), EXPECTED)
    };
    let effect = match mark {
        DELETE => Effect::Delete,
        PUT => Effect::Put(sized()?),
        PATCH => Effect::Patch(sized()?),
        _ => return Err(Undecodable { expected: EXPECTED }),
    };
    Ok(RowChange { table, key, effect })
}

/// A table's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableRecord {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) key_type: (String, u64),
    pub(crate) value_type: (String, u64),
    pub(crate) component: TableComponent,
}

/// Mark of a paged table behind the other fields. Tables in memory have none, as before there were
/// others.
const PAGED: u8 = 1;

type Fields = (u32, String, (String, u64), (String, u64));

impl TableRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let TableRecord {
            id,
            name,
            key_type,
            value_type,
            component,
        } = self.clone();
        let fields: Fields = (id, name, key_type, value_type);
        fields.encode_part(&mut bytes);
        if component == TableComponent::Paged {
            bytes.push(PAGED);
        }
        bytes
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<TableRecord, Undecodable> {
        let (id, name, key_type, value_type) = Fields::decode_part(&mut bytes)?;
        let component = match bytes.split_first() {
            Some((&PAGED, rest)) => {
                bytes = rest;
                TableComponent::Paged
            }
            _ => TableComponent::Resident,
        };
        crate::types::codec::all_taken(bytes, "the record of a table")?;
        Ok(TableRecord {
            id,
            name,
            key_type,
            value_type,
            component,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_in_order_and_cut_ones_are_refused() {
        let changes = [
            RowChange {
                table: 1,
                key: b"",
                effect: Effect::Put(b""),
            },
            RowChange {
                table: u32::MAX,
                key: &[7; 1024],
                effect: Effect::Put(&[1; 3000]),
            },
            RowChange {
                table: 2,
                key: b"k",
                effect: Effect::Delete,
            },
            RowChange {
                table: 2,
                key: b"k",
                effect: Effect::Patch(&[5; 30]),
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
        for component in TableComponent::ALL {
            let table = TableRecord {
                id: 7,
                name: "accounts".into(),
                key_type: ("u64".into(), 1),
                value_type: ("i64".into(), 2),
                component,
            };
            let mut bytes = table.encode();
            assert_eq!(TableRecord::decode(&bytes), Ok(table));
            let fields = bytes.len() - usize::from(component == TableComponent::Paged);
            for cut in 0..fields {
                assert!(TableRecord::decode(&bytes[..cut]).is_err());
            }
            bytes.truncate(fields);
            bytes.push(2);
            assert!(TableRecord::decode(&bytes).is_err(), "a mark of later");
        }
    }
}
