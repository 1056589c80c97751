//! Versions of one row after another, without pages.

use foxton_sync::epoch::Domain;

use super::*;
use crate::memory::{OwnSlot, Promise};

const KEY: VersionedKey<'static> = VersionedKey {
    tree: 3,
    key: b"key",
    hash: 77,
};

struct Writer {
    own: OwnSlot,
    owned: OwnedVersions,
}

struct VersionedRows {
    versions: RowVersions,
    slots: CommitSlots,
}

fn value(value: u8) -> Option<(RowFlags, Vec<u8>)> {
    Some((RowFlags::NONE, vec![value]))
}

fn at(lsn: u64) -> Begin {
    Begin::at(Lsn::new(lsn), Promise::Written)
}

impl VersionedRows {
    fn new() -> VersionedRows {
        VersionedRows {
            versions: RowVersions::new(),
            slots: CommitSlots::new(),
        }
    }

    fn writer(&self) -> Writer {
        Writer {
            own: self.slots.acquire(),
            owned: OwnedVersions::default(),
        }
    }

    fn replace(
        &self,
        writer: &mut Writer,
        row: &VersionedKey<'_>,
        before: Option<(RowFlags, Vec<u8>)>,
    ) {
        let own = self.slots.begin(&writer.own);
        self.versions
            .replace(&mut writer.owned, row, before, (own, 5));
    }

    /// Returns what the commit has left.
    fn commit(&self, writer: &mut Writer, stamp: Option<Begin>) -> Vec<(Vec<u8>, Lsn)> {
        let (own, mut left) = (self.slots.begin(&writer.own), Vec::new());
        let owned = &mut writer.owned;
        self.versions
            .commit(owned, own, stamp, |table, key, (begin, bytes)| {
                assert!(table == 5 && bytes >= STATE_BYTES);
                left.push((key.to_vec(), begin));
            });
        self.slots
            .end(&mut writer.own, &Domain::new().participant());
        left
    }

    fn read(&self, snapshot: u64) -> (VersionLookup, Vec<u8>) {
        let mut value = Vec::new();
        let snapshot = Lsn::new(snapshot);
        let found = self
            .versions
            .read(&KEY, &self.slots, None, snapshot, &mut value);
        (found, value)
    }
}

fn older(begin: Begin) -> VersionLookup {
    VersionLookup::Older(RowFlags::NONE, begin)
}

#[test]
fn each_snapshot_finds_the_state_that_was_committed_then() {
    let rows = VersionedRows::new();
    let (mut first, mut second) = (rows.writer(), rows.writer());
    rows.replace(&mut first, &KEY, None);
    // A further change adds nothing.
    rows.replace(&mut first, &KEY, value(1));
    assert_eq!(
        rows.read(10),
        (VersionLookup::Absent(Begin::ALWAYS), vec![])
    );
    let left = rows.commit(&mut first, Some(at(20)));
    assert_eq!(left, [(b"key".to_vec(), Lsn::ZERO)]);
    rows.replace(&mut second, &KEY, value(2));
    let own = rows.slots.begin(&second.own);
    let mut copied = Vec::new();
    let read_own = |copied: &mut Vec<u8>| {
        let slots = &rows.slots;
        rows.versions
            .read(&KEY, slots, Some(own), Lsn::new(30), copied)
    };
    assert_eq!(
        read_own(&mut copied),
        VersionLookup::Newest(Some(Begin::ALWAYS))
    );
    assert_eq!(rows.versions.newest_commit(&KEY), Some(Lsn::new(20)));
    let left = rows.commit(&mut second, Some(at(40)));
    assert_eq!(left, [(b"key".to_vec(), Lsn::new(20))]);

    assert_eq!(rows.read(19).0, VersionLookup::Absent(Begin::ALWAYS));
    assert_eq!(rows.read(20), (older(at(20)), vec![2]));
    assert_eq!(rows.read(39), (older(at(20)), vec![2]));
    assert_eq!(rows.read(40).0, VersionLookup::Newest(Some(at(40))));
    assert_eq!(rows.versions.newest_commit(&KEY), Some(Lsn::new(40)));
    let mut intervals = Vec::new();
    rows.versions
        .visit_rows(&KEY, |begin, end| intervals.push((begin, end)));
    assert_eq!(intervals, [(Lsn::new(20), Lsn::new(40))]);

    // A snapshot at 30 needs one of both.
    let needed = |begin: Lsn, end: Lsn| begin <= Lsn::new(30) && Lsn::new(30) < end;
    assert_eq!(rows.versions.prune(&KEY, &needed), 1);
    assert_eq!(rows.read(30), (older(at(20)), vec![2]));
    assert_eq!(rows.versions.prune(&KEY, &|_, _| false), 1);
    assert_eq!(rows.read(40).0, VersionLookup::Newest(None));
}

#[test]
fn a_rollback_leaves_what_was_there() {
    let rows = VersionedRows::new();
    let (mut first, mut second) = (rows.writer(), rows.writer());
    rows.replace(&mut first, &KEY, value(1));
    rows.commit(&mut first, Some(at(20)));
    rows.replace(&mut second, &KEY, value(2));
    let other = VersionedKey::new(3, b"other");
    rows.replace(&mut second, &other, value(3));
    let (own, before) = (rows.slots.begin(&second.own), rows.versions.rollbacks(3));
    // The state that an open transaction has replaced stays, whatever is needed.
    assert_eq!(rows.versions.prune(&other, &|_, _| false), 0);
    rows.versions.roll_back(&mut second.owned, own);
    rows.slots
        .end(&mut second.own, &Domain::new().participant());
    assert!(second.owned.is_empty());
    assert!(rows.versions.rollbacks(3) > before);
    assert_eq!(rows.read(10), (older(Begin::ALWAYS), vec![1]));
    assert_eq!(rows.read(20).0, VersionLookup::Newest(Some(at(20))));
    assert_eq!(rows.versions.newest_commit(&other), None);
}

#[test]
fn nothing_stays_of_a_commit_that_no_snapshot_is_below() {
    let rows = VersionedRows::new();
    let mut writer = rows.writer();
    for round in 0..100 {
        let keys: Vec<_> = (0..200_u32).map(|key| (key % 150).to_le_bytes()).collect();
        for key in &keys {
            let before = value(round);
            rows.replace(&mut writer, &VersionedKey::new(9, key), before);
        }
        assert_eq!(writer.owned.rows.len(), 150);
        assert_eq!(rows.commit(&mut writer, None), []);
    }
    let buckets = rows.versions.buckets.get().unwrap();
    let left = |bucket: &VersionBucket| bucket.count.load(Ordering::Relaxed);
    assert_eq!(buckets.iter().map(left).sum::<u32>(), 0);
    assert!(!writer.owned.spare.is_empty() && writer.owned.spare.len() <= SPARE);
}

#[test]
fn rows_with_one_hash_are_told_apart() {
    let rows = VersionedRows::new();
    let mut writer = rows.writer();
    let keys: [&[u8]; 3] = [b"key", b"kez", b""];
    for (number, key) in keys.into_iter().enumerate() {
        let row = VersionedKey { key, ..KEY };
        rows.replace(&mut writer, &row, value(number as u8));
    }
    let other = VersionedKey { tree: 4, ..KEY };
    rows.replace(&mut writer, &other, value(9));
    for (number, key) in keys.into_iter().enumerate() {
        let (row, mut found) = (VersionedKey { key, ..KEY }, Vec::new());
        let slots = &rows.slots;
        let _ = rows
            .versions
            .read(&row, slots, None, Lsn::new(1), &mut found);
        assert_eq!(found, [number as u8]);
    }
    assert_eq!(rows.commit(&mut writer, Some(at(10))).len(), 4);
    assert_eq!(rows.versions.prune(&other, &|_, _| false), 1);
    assert_eq!(rows.read(1), (older(Begin::ALWAYS), vec![0]));
}

#[test]
fn values_outside_their_leaves_are_named_once_their_states_are_gone() {
    let rows = VersionedRows::new();
    let mut writer = rows.writer();
    for (number, end) in [(1, 10), (2, 20)] {
        let before = Some((RowFlags::OVERFLOW, vec![number]));
        rows.replace(&mut writer, &KEY, before);
        rows.commit(&mut writer, Some(at(end)));
    }
    assert!(rows.versions.has_large(&KEY, |large| large == [1]));
    assert!(!rows.versions.has_large(&KEY, |large| large == [3]));
    assert!(rows.versions.take_large().is_empty());
    let needed = |begin: Lsn, _| begin == Lsn::ZERO;
    assert_eq!(rows.versions.prune(&KEY, &needed), 1);
    assert_eq!(rows.versions.take_large(), [Box::from([2])]);
    // A commit below all snapshots removes all, and names those of earlier writers.
    rows.replace(&mut writer, &KEY, Some((RowFlags::OVERFLOW, vec![3])));
    rows.commit(&mut writer, None);
    assert_eq!(rows.versions.take_large(), [Box::from([1])]);
    assert!(!rows.versions.has_large(&KEY, |_| true));
}
