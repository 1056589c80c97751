//! Sort keys: the order of rows by table and key, mostly without reading the key.
//!
//! Sorting and merging compare each row many times. Keys are scattered over hundreds of megabytes,
//! so reading one misses the processor's caches; that used to be two thirds of the time of a
//! checkpoint. So a number with the beginning of the key is stored beside each entry.

use std::cmp::Ordering;

/// Bytes of a key in its [`beginning`].
const BESIDE: usize = 16;

/// Returns the beginning of `key`, padded with zeros, as a number with the same order.
pub(super) fn beginning(key: &[u8]) -> u128 {
    let mut beginning = [0; BESIDE];
    let beside = key.len().min(BESIDE);
    beginning[..beside].copy_from_slice(&key[..beside]);
    u128::from_be_bytes(beginning)
}

/// Table and beginning of the key of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) table: u32,
    pub(super) beginning: u128,
    pub(super) key_bytes: u16,
}

impl Row {
    /// Returns the row of `table` with `key`, which has at most 65,535 bytes.
    pub(super) fn new(table: u32, key: &[u8]) -> Row {
        Row {
            table,
            beginning: beginning(key),
            key_bytes: u16::try_from(key.len()).expect("keys are at most MAX_KEY_BYTES long"),
        }
    }

    /// Compares by table and key. `keys` returns both keys; it is called only if neither key is
    /// entirely in its beginning. If the beginnings are equal, the shorter key is a prefix of the
    /// longer one, which has zeros where the shorter was padded.
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
                let found =
                    Row::new(table, key).order(&Row::new(other_table, other), || (key, other));
                let expected = (table, key).cmp(&(other_table, other));
                assert_eq!(found, expected, "{table} {key:?}, {other_table} {other:?}");
            }
        }
    }
}
