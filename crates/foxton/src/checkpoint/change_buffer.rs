//! Buffer of the changes in the log since the last checkpoint, sorted like a layer.
//!
//! The buffer collects committed changes as they are encoded in the log, and sorts them at the end.
//! Records that change one row are in the log in the order of the changes (`redo::record`, I1). So
//! only the last change of a row counts. If that is a patch, it is joined with all patches since
//! the last change that is no patch.
//!
//! Each entry has its row's sort key beside it (`sort_key`). In row order the encoded changes are
//! scattered, so each is prefetched some entries before it is read.

use std::cmp::Ordering;
use std::mem;

use foxton_log::Lsn;
use foxton_sync::cache_line::prefetch;

use super::compose::ComposedChange;
use super::error::CheckpointError;
use super::sort_key::{Row, beginning};
use crate::redo::record::{RowChange, next_change};
use crate::types::codec::Undecodable;

/// Committed changes.
#[derive(Debug, Default)]
pub(crate) struct ChangeBuffer {
    /// Encoded changes, one after the other.
    bytes: Vec<u8>,
    entries: Vec<BufferedChange>,
    /// For each record: offset of its first change in `bytes`, and its LSN. Ordered by the offset.
    records: Vec<(usize, Lsn)>,
    /// For each joined change: its offset in `bytes`, and that of the last change it joins. Ordered
    /// by the first.
    made: Vec<(usize, usize)>,
    /// Buffer for a joined change.
    folded: Vec<u8>,
    /// See [`left_bytes`](Self::left_bytes).
    left_bytes: u64,
}

/// Number of entries between prefetching one and reading it.
const AHEAD: usize = 8;

/// Position of a change in the bytes. (Not a [`Row`] and the rest: that would be half as large
/// again.)
#[derive(Debug, Clone, Copy)]
struct BufferedChange {
    /// See [`beginning`].
    beginning: u128,
    /// Offset of the change.
    begin: usize,
    table: u32,
    key_bytes: u16,
    is_patch: bool,
}

impl BufferedChange {
    fn new(begin: usize, change: &RowChange<'_>) -> BufferedChange {
        BufferedChange {
            beginning: beginning(change.key),
            begin,
            table: change.table,
            key_bytes: u16::try_from(change.key.len()).expect("it was read from a u16"),
            is_patch: change.effect.is_patch(),
        }
    }

    fn row(&self) -> Row {
        Row {
            table: self.table,
            beginning: self.beginning,
            key_bytes: self.key_bytes,
        }
    }

    #[inline]
    fn order(&self, other: &BufferedChange, bytes: &[u8]) -> Ordering {
        self.row()
            .order(&other.row(), || (self.key(bytes), other.key(bytes)))
    }

    fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        // After the number of the table and the length of the key.
        let key = self.begin + 6;
        &bytes[key..key + usize::from(self.key_bytes)]
    }

    fn change<'b>(&self, bytes: &'b [u8]) -> RowChange<'b> {
        next_change(&mut &bytes[self.begin..]).expect("it was read before it was put aside")
    }
}

impl ChangeBuffer {
    /// Clears the buffer and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.records.clear();
        self.made.clear();
        self.left_bytes = 0;
    }

    /// Adds the changes of the record at `lsn`.
    pub(crate) fn add(&mut self, lsn: Lsn, changes: &[u8]) -> Result<(), Undecodable> {
        if changes.is_empty() {
            return Ok(());
        }
        let base = self.bytes.len();
        self.records.push((base, lsn));
        self.bytes.extend_from_slice(changes);
        let mut rest = changes;
        while !rest.is_empty() {
            let begin = base + changes.len() - rest.len();
            let change = next_change(&mut rest)?;
            self.entries.push(BufferedChange::new(begin, &change));
        }
        Ok(())
    }

    /// Returns the approximate memory in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let places = (self.records.len() + self.made.len()) * 2 * size_of::<usize>();
        (self.bytes.len() + self.entries.len() * size_of::<BufferedChange>() + places) as u64
    }

    /// Returns the memory in bytes, whether it is in use or not.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<BufferedChange>()
    }

    /// Returns the approximate bytes of the remaining changes after sorting, assuming that all
    /// changes have the same length.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Sorts the rows and keeps one change of each.
    pub(crate) fn sort(&mut self) -> Result<(), CheckpointError> {
        let (all_bytes, all) = (self.bytes.len() as u64, self.entries.len().max(1) as u64);
        let bytes = &self.bytes;
        // Stable: of two changes of one row the later one comes second.
        self.entries.sort_by(|a, b| a.order(b, bytes));
        let mut fold = ComposedChange::default();
        let mut kept = 0;
        let mut from = 0;
        while from < self.entries.len() {
            let first = self.entries[from];
            self.ask_for(from + AHEAD);
            let same = self.entries[from..].iter();
            let count = same
                .take_while(|entry| entry.order(&first, &self.bytes).is_eq())
                .count();
            self.entries[kept] = self.one_of(from..from + count, &mut fold)?;
            kept += 1;
            from += count;
        }
        self.entries.truncate(kept);
        self.left_bytes = all_bytes / all * kept as u64;
        Ok(())
    }

    /// Joins several changes of one row into one.
    fn one_of(
        &mut self,
        all: std::ops::Range<usize>,
        fold: &mut ComposedChange,
    ) -> Result<BufferedChange, CheckpointError> {
        let all = &self.entries[all];
        let last = all[all.len() - 1];
        let base = all.iter().rposition(|entry| !entry.is_patch).unwrap_or(0);
        if base == all.len() - 1 {
            return Ok(last);
        }
        fold.begin(all[base].change(&self.bytes).effect);
        for entry in &all[base + 1..] {
            let folded = fold.add(entry.change(&self.bytes).effect);
            folded.map_err(|error| {
                CheckpointError::InvalidRecord(self.lsn_at(entry.begin), error.into())
            })?;
        }
        let begin = self.bytes.len();
        let effect = fold.effect();
        let is_patch = effect.is_patch();
        let mut bytes = mem::take(&mut self.folded);
        bytes.clear();
        RowChange {
            effect,
            ..last.change(&self.bytes)
        }
        .encode(&mut bytes);
        self.bytes.extend_from_slice(&bytes);
        self.folded = bytes;
        self.made.push((begin, last.begin));
        Ok(BufferedChange {
            begin,
            is_patch,
            ..last
        })
    }

    /// Returns the LSN of the record that the change at `begin` comes from; for a joined change,
    /// the last record.
    fn lsn_at(&self, begin: usize) -> Lsn {
        let made = self.made.binary_search_by_key(&begin, |&(begin, _)| begin);
        let begin = made.map_or(begin, |made| self.made[made].1);
        let behind = self.records.partition_point(|&(at, _)| at <= begin);
        self.records[behind - 1].1
    }

    /// Returns the number of changes.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the row of the change number `index`.
    pub(super) fn row(&self, index: usize) -> Option<Row> {
        self.entries.get(index).map(BufferedChange::row)
    }

    /// Returns the change number `index`. Prefetches for callers that read all in order.
    pub(crate) fn get(&self, index: usize) -> Option<RowChange<'_>> {
        let entry = self.entries.get(index)?;
        self.ask_for(index + AHEAD);
        Some(entry.change(&self.bytes))
    }

    fn ask_for(&self, index: usize) {
        if let Some(ahead) = self.entries.get(index) {
            prefetch(self.bytes[ahead.begin..].as_ptr());
        }
    }

    /// Returns the LSN of the record that the change number `index` comes from; for a joined
    /// change, the last record.
    pub(crate) fn lsn(&self, index: usize) -> Lsn {
        self.lsn_at(self.entries[index].begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redo::record::Effect;

    fn gather<'c>(script: impl IntoIterator<Item = RowChange<'c>>) -> ChangeBuffer {
        let mut buffer = ChangeBuffer::default();
        for (at, change) in script.into_iter().enumerate() {
            let mut bytes = Vec::new();
            change.encode(&mut bytes);
            buffer.add(Lsn::new(8 * at as u64), &bytes).unwrap();
        }
        buffer
    }

    fn left(buffer: &ChangeBuffer) -> Vec<RowChange<'_>> {
        (0..buffer.len()).filter_map(|at| buffer.get(at)).collect()
    }

    #[test]
    fn the_last_change_of_each_row_is_left_in_order() {
        let change = |table, key, effect| RowChange { table, key, effect };
        let put = Effect::Put;
        let script = [
            change(1, &b"b"[..], put(b"1")),
            change(0, b"z", put(b"2")),
            change(1, b"a", put(b"3")),
            change(1, b"b", Effect::Delete),
            change(1, b"a", put(b"")),
            change(0, b"", Effect::Delete),
            change(1, b"b", put(b"4")),
        ];
        let mut buffer = gather(script);
        buffer.sort().unwrap();
        let expected = [
            change(0, b"", Effect::Delete),
            change(0, b"z", put(b"2")),
            change(1, b"a", put(b"")),
            change(1, b"b", put(b"4")),
        ];
        assert_eq!(left(&buffer), expected);
        assert!(buffer.add(Lsn::ZERO, &[1, 2, 3]).is_err());
    }

    #[test]
    fn patches_of_a_row_become_one_or_go_into_its_value() {
        let (one, mut two) = (vec![1; 100], vec![1; 100]);
        two[50] = 2;
        let mut three = two.clone();
        three[60] = 3;
        let patch = |old: &[u8], new: &[u8]| {
            let mut patch = Vec::new();
            assert!(crate::redo::patch::diff(old, new, &mut patch));
            patch
        };
        let (first, second) = (patch(&one, &two), patch(&two, &three));
        let change = |key, effect| RowChange {
            table: 0,
            key,
            effect,
        };
        let mut buffer = gather([
            change(&b"based"[..], Effect::Put(&one)),
            change(b"loose", Effect::Patch(&first)),
            change(b"based", Effect::Patch(&first)),
            change(b"loose", Effect::Patch(&second)),
            change(b"based", Effect::Patch(&second)),
            change(b"single", Effect::Patch(&first)),
        ]);
        buffer.sort().unwrap();
        let mut both = Vec::new();
        crate::redo::patch::join(&first, &second, &mut both).unwrap();
        let expected = [
            change(b"based", Effect::Put(&three)),
            change(b"loose", Effect::Patch(&both)),
            change(b"single", Effect::Patch(&first)),
        ];
        assert_eq!(left(&buffer), expected);

        // A patch of a deleted row, or one made for another value, names its record.
        for effect in [Effect::Delete, Effect::Put(&three), Effect::Put(b"short")] {
            let mut buffer = gather([
                change(&b"key"[..], effect),
                change(b"key", Effect::Patch(&first)),
            ]);
            let refused = buffer.sort().unwrap_err();
            assert!(
                matches!(refused, CheckpointError::InvalidRecord(lsn, _) if lsn == Lsn::new(8)),
                "{effect:?}: {refused}"
            );
        }
    }
}
