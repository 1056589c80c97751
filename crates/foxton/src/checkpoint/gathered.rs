//! What the log says since the last checkpoint, in the order of a layer.
//!
//! Committed changes are put aside as they stand in the log, and sorted at the end: the last change
//! of a row counts, since records that change one row stand in the log in the order of the changes
//! (`redo`, I1).

use crate::codec::Undecodable;
use crate::redo::{Change, next_change};

/// Committed changes.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// As they stand in the log, one after the other.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// Where in the bytes a change lies.
#[derive(Debug, Clone, Copy)]
struct Entry {
    table: u32,
    key_bytes: u16,
    has_value: bool,
    key: usize,
    /// Where the change ends, and its value.
    end: usize,
}

impl Gathered {
    /// Takes in the changes of a record.
    pub(crate) fn add(&mut self, changes: &[u8]) -> Result<(), Undecodable> {
        let base = self.bytes.len();
        self.bytes.extend_from_slice(changes);
        let mut rest = changes;
        while !rest.is_empty() {
            let begin = base + changes.len() - rest.len();
            let change = next_change(&mut rest)?;
            self.entries.push(Entry {
                table: change.table,
                key_bytes: u16::try_from(change.key.len()).expect("it was read from a u16"),
                has_value: change.value.is_some(),
                // Behind the number of the table and the length of the key.
                key: begin + 6,
                end: base + changes.len() - rest.len(),
            });
        }
        Ok(())
    }

    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> u64 {
        (self.bytes.len() + self.entries.len() * size_of::<Entry>()) as u64
    }

    /// Puts the rows in order and forgets all changes of each but the last.
    pub(crate) fn sort(&mut self) {
        let Gathered { bytes, entries } = self;
        let key = |entry: &Entry| {
            let end = entry.key + usize::from(entry.key_bytes);
            (entry.table, &bytes[entry.key..end])
        };
        // Stable: of two changes of one row the later one comes behind.
        entries.sort_by(|a, b| key(a).cmp(&key(b)));
        // Keeps the first of equal ones, from the back.
        entries.reverse();
        entries.dedup_by(|later, earlier| key(later) == key(earlier));
        entries.reverse();
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The change number `index`.
    pub(crate) fn get(&self, index: usize) -> Option<Change<'_>> {
        let entry = self.entries.get(index)?;
        let key_end = entry.key + usize::from(entry.key_bytes);
        Some(Change {
            table: entry.table,
            key: &self.bytes[entry.key..key_end],
            // Behind the mark of a put and the length of the value.
            value: entry.has_value.then(|| &self.bytes[key_end + 5..entry.end]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_of_each_row_is_left_in_order() {
        let change = |table, key, value| Change { table, key, value };
        let script = [
            change(1, &b"b"[..], Some(&b"1"[..])),
            change(0, b"z", Some(b"2")),
            change(1, b"a", Some(b"3")),
            change(1, b"b", None),
            change(1, b"a", Some(b"")),
            change(0, b"", None),
            change(1, b"b", Some(b"4")),
        ];
        let mut gathered = Gathered::default();
        for changes in script.chunks(2) {
            let mut bytes = Vec::new();
            changes.iter().for_each(|change| change.encode(&mut bytes));
            gathered.add(&bytes).unwrap();
        }
        gathered.sort();
        let found: Vec<_> = (0..gathered.len())
            .filter_map(|at| gathered.get(at))
            .collect();
        let expected = [
            change(0, b"", None),
            change(0, b"z", Some(b"2")),
            change(1, b"a", Some(b"")),
            change(1, b"b", Some(b"4")),
        ];
        assert_eq!(found, expected);
        assert!(gathered.add(&[1, 2, 3]).is_err());
    }
}
