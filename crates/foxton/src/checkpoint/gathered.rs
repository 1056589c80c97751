//! What the log says since the last checkpoint, in the order of a layer.
//!
//! Committed changes are put aside as they stand in the log, and sorted at the end. Records that change
//! one row stand in the log in the order of the changes (`redo`, I1), so what counts of a row is its last
//! change; and if that is a patch, all patches since the last change that is none, made one with it.

use std::mem;

use foxton_log::Lsn;

use super::fold::Fold;
use super::trouble::Trouble;
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
    /// The record in the log.
    lsn: Lsn,
    /// Where it begins.
    begin: usize,
    table: u32,
    key_bytes: u16,
    is_patch: bool,
}

impl Entry {
    fn key<'b>(&self, bytes: &'b [u8]) -> (u32, &'b [u8]) {
        // Behind the number of the table and the length of the key.
        let key = self.begin + 6;
        (self.table, &bytes[key..key + usize::from(self.key_bytes)])
    }

    fn change<'b>(&self, bytes: &'b [u8]) -> Change<'b> {
        next_change(&mut &bytes[self.begin..]).expect("it was read before it was put aside")
    }
}

impl Gathered {
    /// Takes in the changes of the record at `lsn`.
    pub(crate) fn add(&mut self, lsn: Lsn, changes: &[u8]) -> Result<(), Undecodable> {
        let base = self.bytes.len();
        self.bytes.extend_from_slice(changes);
        let mut rest = changes;
        while !rest.is_empty() {
            let begin = base + changes.len() - rest.len();
            let change = next_change(&mut rest)?;
            self.entries.push(Entry {
                lsn,
                begin,
                table: change.table,
                key_bytes: u16::try_from(change.key.len()).expect("it was read from a u16"),
                is_patch: change.effect.is_patch(),
            });
        }
        Ok(())
    }

    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> u64 {
        (self.bytes.len() + self.entries.len() * size_of::<Entry>()) as u64
    }

    /// Puts the rows in order and leaves one change of each.
    pub(crate) fn sort(&mut self) -> Result<(), Trouble> {
        let bytes = &self.bytes;
        // Stable: of two changes of one row the later one comes behind.
        self.entries.sort_by(|a, b| a.key(bytes).cmp(&b.key(bytes)));
        let mut fold = Fold::default();
        let mut kept = 0;
        let mut from = 0;
        while from < self.entries.len() {
            let key = self.entries[from].key(&self.bytes);
            let same = self.entries[from..].iter();
            let count = same
                .take_while(|entry| entry.key(&self.bytes) == key)
                .count();
            self.entries[kept] = self.one_of(from..from + count, &mut fold)?;
            kept += 1;
            from += count;
        }
        self.entries.truncate(kept);
        Ok(())
    }

    /// One change that does what all of them do, which are of one row.
    fn one_of(&mut self, all: std::ops::Range<usize>, fold: &mut Fold) -> Result<Entry, Trouble> {
        let all = &self.entries[all];
        let last = all[all.len() - 1];
        let base = all.iter().rposition(|entry| !entry.is_patch).unwrap_or(0);
        if base == all.len() - 1 {
            return Ok(last);
        }
        fold.begin(all[base].change(&self.bytes).effect);
        for entry in &all[base + 1..] {
            let folded = fold.add(entry.change(&self.bytes).effect);
            folded.map_err(|error| Trouble::Senseless(entry.lsn, error.into()))?;
        }
        let begin = self.bytes.len();
        let mut bytes = mem::take(&mut self.bytes);
        let (table, key) = last.key(&bytes);
        let (key, effect) = (key.to_vec(), fold.effect());
        let is_patch = effect.is_patch();
        let key = &key[..];
        Change { table, key, effect }.encode(&mut bytes);
        self.bytes = bytes;
        Ok(Entry {
            begin,
            is_patch,
            ..last
        })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The change number `index`.
    pub(crate) fn get(&self, index: usize) -> Option<Change<'_>> {
        let entry = self.entries.get(index)?;
        Some(entry.change(&self.bytes))
    }

    /// Which record of the log the change number `index` comes from, the last if from several.
    pub(crate) fn lsn(&self, index: usize) -> Lsn {
        self.entries[index].lsn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redo::Effect;

    fn gather<'c>(script: impl IntoIterator<Item = Change<'c>>) -> Gathered {
        let mut gathered = Gathered::default();
        for (at, change) in script.into_iter().enumerate() {
            let mut bytes = Vec::new();
            change.encode(&mut bytes);
            gathered.add(Lsn::new(8 * at as u64), &bytes).unwrap();
        }
        gathered
    }

    fn left(gathered: &Gathered) -> Vec<Change<'_>> {
        (0..gathered.len())
            .filter_map(|at| gathered.get(at))
            .collect()
    }

    #[test]
    fn the_last_change_of_each_row_is_left_in_order() {
        let change = |table, key, effect| Change { table, key, effect };
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
        let mut gathered = gather(script);
        gathered.sort().unwrap();
        let expected = [
            change(0, b"", Effect::Delete),
            change(0, b"z", put(b"2")),
            change(1, b"a", put(b"")),
            change(1, b"b", put(b"4")),
        ];
        assert_eq!(left(&gathered), expected);
        assert!(gathered.add(Lsn::ZERO, &[1, 2, 3]).is_err());
    }

    #[test]
    fn patches_of_a_row_become_one_or_go_into_its_value() {
        let (one, mut two) = (vec![1; 100], vec![1; 100]);
        two[50] = 2;
        let mut three = two.clone();
        three[60] = 3;
        let patch = |old: &[u8], new: &[u8]| {
            let mut patch = Vec::new();
            assert!(crate::patch::diff(old, new, &mut patch));
            patch
        };
        let (first, second) = (patch(&one, &two), patch(&two, &three));
        let change = |key, effect| Change {
            table: 0,
            key,
            effect,
        };
        let mut gathered = gather([
            change(&b"based"[..], Effect::Put(&one)),
            change(b"loose", Effect::Patch(&first)),
            change(b"based", Effect::Patch(&first)),
            change(b"loose", Effect::Patch(&second)),
            change(b"based", Effect::Patch(&second)),
            change(b"single", Effect::Patch(&first)),
        ]);
        gathered.sort().unwrap();
        let mut both = Vec::new();
        crate::patch::join(&first, &second, &mut both).unwrap();
        let expected = [
            change(b"based", Effect::Put(&three)),
            change(b"loose", Effect::Patch(&both)),
            change(b"single", Effect::Patch(&first)),
        ];
        assert_eq!(left(&gathered), expected);

        // A patch of a row that is gone, or that was made for another value, names its record.
        for effect in [Effect::Delete, Effect::Put(&three), Effect::Put(b"short")] {
            let mut gathered = gather([
                change(&b"key"[..], effect),
                change(b"key", Effect::Patch(&first)),
            ]);
            let refused = gathered.sort().unwrap_err();
            assert!(
                matches!(refused, Trouble::Senseless(lsn, _) if lsn == Lsn::new(8)),
                "{effect:?}: {refused}"
            );
        }
    }
}
