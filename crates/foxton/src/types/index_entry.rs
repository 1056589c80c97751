//! Entries of secondary indexes: their format, and the bounds of ranges of them.
//!
//! ```text
//! index     key of the entry                                 its value
//! unique    index key, as a key that stands alone            primary key
//! shared    index key, as one that something follows ·       length of the index key u16
//!           primary key
//! ```
//!
//! A shared entry has the primary key in its own key. So several rows may have one index key, and
//! their entries are ordered by primary key. No index key in its inner encoding is a prefix of
//! another (I2 of `codec::key`). So the entries of one index key are exactly those that begin with
//! it, and they are adjacent.

use std::ops::Range;

use crate::types::limits::MAX_KEY_BYTES;

/// Format of an index's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EntryKind {
    /// At most one row per index key.
    Unique,
    /// Any number of rows per index key.
    Shared,
}

/// The index keys of one row.
#[derive(Debug, Default)]
pub(crate) struct ExtractedKeys {
    bytes: Vec<u8>,
    keys: Vec<Range<usize>>,
}

impl ExtractedKeys {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.keys.clear();
    }

    /// Adds the key that `encode` appends.
    pub(crate) fn add(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        encode(&mut self.bytes);
        self.keys.push(start..self.bytes.len());
    }

    /// Sorts the keys and removes duplicates.
    pub(crate) fn sort(&mut self) {
        let ExtractedKeys { bytes, keys } = self;
        keys.sort_by(|a, b| bytes[a.clone()].cmp(&bytes[b.clone()]));
        keys.dedup_by(|a, b| bytes[a.clone()] == bytes[b.clone()]);
    }

    /// Returns the keys; in order after [`sort`](Self::sort).
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| &self.bytes[key.clone()])
    }

    /// True if `key` is among the keys, which must be sorted.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let found = self
            .keys
            .binary_search_by(|at| self.bytes[at.clone()].cmp(key));
        found.is_ok()
    }

    /// Frees memory above `kept_bytes`, which an unusually large row needed.
    pub(crate) fn shrink(&mut self, kept_bytes: usize) {
        self.bytes.shrink_to(kept_bytes);
        self.keys.shrink_to(kept_bytes / size_of::<Range<usize>>());
    }
}

impl EntryKind {
    /// Appends the key of the entry that maps `index_key` to the row `primary`.
    pub(crate) fn write_key(self, index_key: &[u8], primary: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(index_key);
        if self == EntryKind::Shared {
            out.extend_from_slice(primary);
        }
    }

    /// Appends the value of that entry. Both keys are within the limits.
    pub(crate) fn write_value(self, index_bytes: usize, primary: &[u8], out: &mut Vec<u8>) {
        match self {
            EntryKind::Unique => out.extend_from_slice(primary),
            EntryKind::Shared => {
                let bytes = u16::try_from(index_bytes).expect("at most MAX_KEY_BYTES");
                out.extend_from_slice(&bytes.to_le_bytes());
            }
        }
    }

    /// Returns the index key and the primary key of an entry.
    pub(crate) fn read<'e>(self, key: &'e [u8], value: &'e [u8]) -> (&'e [u8], &'e [u8]) {
        match self {
            EntryKind::Unique => (key, value),
            EntryKind::Shared => {
                let bytes = value
                    .first_chunk()
                    .map_or(0, |&two| u16::from_le_bytes(two));
                key.split_at(usize::from(bytes).min(key.len()))
            }
        }
    }
}

/// Changes `prefix` to the smallest bytes above everything that begins with it. Returns false if
/// there are none.
pub(crate) fn raise_past(prefix: &mut Vec<u8>) -> bool {
    while prefix.last() == Some(&0xff) {
        prefix.pop();
    }
    match prefix.last_mut() {
        Some(last) => {
            *last += 1;
            true
        }
        None => false,
    }
}

/// Sets `key` to bytes above every key that a table accepts.
pub(crate) fn raise_past_all(key: &mut Vec<u8>) {
    key.clear();
    key.resize(MAX_KEY_BYTES + 1, 0xff);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_were_written() {
        for kind in [EntryKind::Unique, EntryKind::Shared] {
            for (index_key, primary) in [(&b"ab"[..], &b"7"[..]), (b"", b""), (b"x", b"")] {
                let (mut key, mut value) = (Vec::new(), Vec::new());
                kind.write_key(index_key, primary, &mut key);
                kind.write_value(index_key.len(), primary, &mut value);
                assert_eq!(kind.read(&key, &value), (index_key, primary), "{kind:?}");
            }
        }
    }

    #[test]
    fn the_bound_after_a_prefix_is_after_all_keys_with_it() {
        for (prefix, past) in [
            (&b"a"[..], Some(&b"b"[..])),
            (b"a\xff", Some(b"b")),
            (b"\x00\xff\xff", Some(b"\x01")),
            (b"\xff", None),
            (b"", None),
        ] {
            let mut raised = prefix.to_vec();
            let is_there = raise_past(&mut raised);
            assert_eq!(is_there.then_some(&raised[..]), past, "{prefix:?}");
        }
    }

    #[test]
    fn keys_given_twice_count_once() {
        let mut keys = ExtractedKeys::default();
        for key in [b"b", b"a", b"b"] {
            keys.add(|out| out.extend_from_slice(key));
        }
        keys.sort();
        assert_eq!(keys.iter().collect::<Vec<_>>(), [b"a", b"b"]);
        assert!(keys.contains(b"b") && !keys.contains(b"c"));
    }
}
