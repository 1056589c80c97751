//! Large values of the current operation: how far they are read or stored.
//!
//! An attempt on a large value ends with a wait before it is done. So the context keeps this until
//! the next operation begins ([`large`](super::paged::large)).

use foxton_lock::name::{KeyHasher, Name};
use foxton_store::paged::values::LargeValue;

use crate::error::{Result, Storage};

/// Large values of the current operation.
#[derive(Debug, Default)]
pub(super) struct LargeState {
    pub(super) read: Option<LargeRead>,
    pub(super) new: Option<LargeWrite>,
    /// The value that the row has had, and whether it is marked.
    pub(super) before: Option<(u64, bool)>,
}

/// A value that is being read.
#[derive(Debug)]
pub(super) struct LargeRead {
    pub(super) value: LargeValue,
    pub(super) bytes: Vec<u8>,
    pub(super) parts: u32,
    /// True if a part was not there.
    pub(super) is_gone: bool,
}

/// A value that is being stored.
#[derive(Debug)]
pub(super) struct LargeWrite {
    pub(super) value: LargeValue,
    pub(super) is_marked: bool,
    pub(super) parts: u32,
    pub(super) is_stored: bool,
}

/// Returns the name that the transaction locks which may change whether a value is in use.
pub(super) fn value_name(table: u32, number: u64, hasher: &KeyHasher) -> Name {
    let mut key = *b"foxton:value\0\0\0\0\0\0\0\0";
    key[12..].copy_from_slice(&number.to_be_bytes());
    Name::key(table, &key, hasher)
}

/// Returns the damage that a large value has.
pub(super) fn damaged(value: LargeValue, what: &str) -> Storage {
    Storage::Damaged {
        place: "rows".to_owned(),
        what: format!("large value {}: {what}", value.number),
    }
}

impl LargeState {
    /// Returns the bytes of the value that a row has instead as `encoded`, if they were read.
    /// Otherwise they are read next.
    pub(super) fn bytes_of(&mut self, encoded: &[u8]) -> Result<Option<&[u8]>> {
        let Some(value) = LargeValue::decode(encoded) else {
            let (place, what) = ("rows".to_owned(), "a large value without number".to_owned());
            return Err(Storage::Damaged { place, what }.into());
        };
        let is_same = self.read.as_ref().is_some_and(|read| read.value == value);
        if !is_same {
            self.read = Some(LargeRead {
                value,
                bytes: Vec::new(),
                parts: 0,
                is_gone: false,
            });
            return Ok(None);
        }
        match &self.read {
            Some(read) if read.is_gone => Err(damaged(value, "a part is missing").into()),
            Some(read) if read.is_complete() => Ok(Some(&read.bytes)),
            _ => Ok(None),
        }
    }
}

impl LargeRead {
    pub(super) fn is_complete(&self) -> bool {
        self.bytes.len() as u64 >= u64::from(self.value.bytes)
    }
}
