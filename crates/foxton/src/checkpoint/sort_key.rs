//! Where a row stands among all, by its table and key, without looking at the key.
//!
//! Sorting and merging compare rows many times each. Keys lie anywhere in hundreds of megabytes, so that each look at one
//! misses the processor's caches, which was two thirds of what a checkpoint took. So the beginning of a key is kept beside
//! whatever stands for its row, as a number.

use std::cmp::Ordering;

/// So many bytes of a key are in its [`beginning`].
const BESIDE: usize = 16;

/// The beginning of `key`, filled up with zeros, as a number that is ordered like it.
pub(super) fn beginning(key: &[u8]) -> u128 {
    let mut beginning = [0; BESIDE];
    let beside = key.len().min(BESIDE);
    beginning[..beside].copy_from_slice(&key[..beside]);
    u128::from_be_bytes(beginning)
}

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) table: u32,
    pub(super) beginning: u128,
    pub(super) key_bytes: u16,
}

impl Row {
    /// The row of `table` with `key`, which has at most 65,535 bytes.
    pub(super) fn new(table: u32, key: &[u8]) -> Row {
        Row {
            table,
            beginning: beginning(key),
            key_bytes: u16::try_from(key.len()).expect("keys are at most MAX_KEY_BYTES long"),
        }
    }

    /// By table and key. `keys` are those of both, and only looked at where neither is all in its beginning. Of keys
    /// that begin alike, the shorter is the beginning of the longer, which has zeros where the other was filled up.
    #[inline]
    pub(super) fn order<'k>(
        &self,
        other: &Row,
        keys: impl FnOnce() -> (&'k [u8], &'k [u8]),
    ) -> Ordering {
        (self.table, self.beginning)
            .cmp(&(other.table, other.beginning))
            .then_with(|| match usize::from(self.key_bytes.min(other.key_bytes)) {
                0..=BESIDE => self.key_bytes.cmp(&other.key_bytes),
                _ => {
                    let (key, other) = keys();
                    key[BESIDE..].cmp(&other[BESIDE..])
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_tables_and_keys() {
        let ends = [
            &b""[..],
            b"\0",
            b"\0\0",
            b"\0\x01",
            b"\x01",
            b"\xff",
            b"\xff\0",
        ];
        let mut keys = Vec::new();
        for same in [0, 1, BESIDE - 2, BESIDE - 1, BESIDE, BESIDE + 1] {
            for fill in [0, 7, 255] {
                keys.extend(ends.map(|end| [&vec![fill; same][..], end].concat()));
            }
        }
        let rows = (0..2).flat_map(|table| keys.iter().map(move |key| (table, &key[..])));
        for (table, key) in rows.clone() {
            for (other_table, other) in rows.clone() {
                let told =
                    Row::new(table, key).order(&Row::new(other_table, other), || (key, other));
                let expected = (table, key).cmp(&(other_table, other));
                assert_eq!(told, expected, "{table} {key:?}, {other_table} {other:?}");
            }
        }
    }
}
