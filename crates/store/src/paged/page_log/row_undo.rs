//! Undo of a row's change, by table and key: the row may have moved since.
//!
//! ```text
//!   tag u8 · table u64 · bytes of the key u16 · key, then
//!
//!   1 inserted    nothing                 undone by setting the ghost flag
//!   2 replaced    the value before        undone by putting it back
//!   3 flagged     the flags before u16    undone by putting them back
//!   4 rewritten   both before             undone by putting them back
//! ```
//!
//! A delete only sets the ghost flag, and a value keeps the space that it had. So the undo of each
//! change fits where the row is: one page changes, none is split or allocated. The undo of an
//! insert leaves a ghost, because the key names a gap for locks.
//!
//! # Invariants
//!
//! * I1  For any bytes, decoding returns an undo or `None`, and encoding the undo gives the same
//!   bytes.
//! * I2  The operation that undoes has no more bytes than the undo.

use crate::paged::page::{PageOperation, RowFlags};

/// Bytes before the key.
const HEAD_BYTES: usize = 11;

/// State of a row before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowBefore<'a> {
    /// There was no row.
    Absent,
    /// It had this value.
    Value(&'a [u8]),
    /// It had these flags.
    Flags(RowFlags),
    /// It had these flags and this value.
    Row(RowFlags, &'a [u8]),
}

/// Undo of a change of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowUndo<'a> {
    /// Table of the row.
    pub table: u64,
    /// Its key.
    pub key: &'a [u8],
    /// Its state before the change.
    pub before: RowBefore<'a>,
}

impl<'a> RowUndo<'a> {
    /// Returns the encoded undo.
    ///
    /// # Panics
    ///
    /// If the key has 2^16 bytes or more.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode_to(&mut bytes);
        bytes
    }

    /// Appends the encoded undo to `bytes`.
    ///
    /// # Panics
    ///
    /// As [`encode`](Self::encode).
    pub fn encode_to(&self, bytes: &mut Vec<u8>) {
        let (tag, value_bytes) = match self.before {
            RowBefore::Absent => (1, 0),
            RowBefore::Value(value) => (2, value.len()),
            RowBefore::Flags(_) => (3, 2),
            RowBefore::Row(_, value) => (4, 2 + value.len()),
        };
        bytes.reserve(HEAD_BYTES + self.key.len() + value_bytes);
        bytes.push(tag);
        bytes.extend(self.table.to_le_bytes());
        let key_bytes = u16::try_from(self.key.len()).expect("a key has 16 bits of length");
        bytes.extend(key_bytes.to_le_bytes());
        bytes.extend(self.key);
        match self.before {
            RowBefore::Absent => {}
            RowBefore::Value(value) => bytes.extend(value),
            RowBefore::Flags(flags) => bytes.extend(flags.bits().to_le_bytes()),
            RowBefore::Row(flags, value) => {
                bytes.extend(flags.bits().to_le_bytes());
                bytes.extend(value);
            }
        }
    }

    /// Returns the undo that `bytes` encode; `None` if they encode none (I1).
    pub fn decode(bytes: &'a [u8]) -> Option<RowUndo<'a>> {
        let (tag, bytes) = bytes.split_first()?;
        let (table, bytes) = bytes.split_first_chunk()?;
        let (key_bytes, bytes) = bytes.split_first_chunk()?;
        let key_bytes = usize::from(u16::from_le_bytes(*key_bytes));
        let (key, rest) = bytes.split_at_checked(key_bytes)?;
        let before = match tag {
            1 => rest.is_empty().then_some(RowBefore::Absent)?,
            2 => RowBefore::Value(rest),
            3 => {
                let flags = u16::from_le_bytes(rest.try_into().ok()?);
                RowBefore::Flags(RowFlags::from_bits(flags)?)
            }
            4 => {
                let (flags, value) = rest.split_first_chunk()?;
                let flags = u16::from_le_bytes(*flags);
                RowBefore::Row(RowFlags::from_bits(flags)?, value)
            }
            _ => return None,
        };
        Some(RowUndo {
            table: u64::from_le_bytes(*table),
            key,
            before,
        })
    }

    /// Returns the operation that undoes the change of the row, which is in `slot` now.
    pub fn operation(&self, slot: u16) -> PageOperation<'a> {
        match self.before {
            RowBefore::Absent => PageOperation::SetFlags {
                slot,
                flags: RowFlags::GHOST,
            },
            RowBefore::Value(value) => PageOperation::Replace { slot, value },
            RowBefore::Flags(flags) => PageOperation::SetFlags { slot, flags },
            RowBefore::Row(flags, value) => PageOperation::Rewrite { slot, value, flags },
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_an_undo_or_none_and_its_operation_is_no_longer() {
        let undo = |before| RowUndo {
            table: 9,
            key: b"a key",
            before,
        };
        let samples = [
            undo(RowBefore::Absent),
            undo(RowBefore::Value(b"")),
            undo(RowBefore::Value(b"a value")),
            undo(RowBefore::Flags(RowFlags::GHOST)),
            undo(RowBefore::Row(RowFlags::OVERFLOW, b"a value")),
        ];
        let mut decoded = 0;
        for sample in samples {
            let bytes = sample.encode();
            assert_eq!(RowUndo::decode(&bytes), Some(sample));
            let mut operation = Vec::new();
            sample.operation(7).encode(&mut operation);
            assert!(operation.len() <= bytes.len(), "I2");
            for bit in 0..bytes.len() * 8 {
                let mut other = bytes.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                if let Some(undo) = RowUndo::decode(&other) {
                    decoded += 1;
                    assert_eq!(undo.encode(), other);
                }
            }
            for cut in 0..bytes.len() {
                let undo = RowUndo::decode(&bytes[..cut]);
                assert!(undo.is_none_or(|undo| undo.encode() == bytes[..cut]));
            }
        }
        assert!(decoded > 100, "{decoded}");
    }
}
