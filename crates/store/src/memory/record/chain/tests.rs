//! Chains of versions against a plain history, and sums at snapshots beside writers.
#![cfg(test)]

use std::collections::BTreeMap;
use std::sync::Mutex;

use foxton_sync::shim::{AtomicBool, AtomicU64};
use foxton_sync::worker::{Worker, Workers};

use super::*;
use crate::memory::{NewRecord, Next, OwnSlot, Promise, RecordTable};

const KEY: &[u8] = b"row";

/// A table with one record, and a log that is a number.
struct TestRow {
    table: RecordTable,
    slots: CommitSlots,
    front: u64,
}

impl TestRow {
    fn new(worker: &Worker, value: Option<&[u8]>) -> TestRow {
        let table = RecordTable::new(worker.workers().domain());
        let guard = worker.pin();
        let record = NewRecord::new(KEY, value).unwrap();
        table.insert(&guard, record, Next::Any).expect("a new key");
        drop(guard);
        TestRow {
            table,
            slots: CommitSlots::new(),
            front: 10,
        }
    }

    fn with<R>(&self, worker: &Worker, call: impl FnOnce(&Record, &Guard<'_>) -> R) -> R {
        let guard = worker.pin();
        let record = self.table.get(&guard, KEY).expect("it is there");
        call(record, &guard)
    }

    fn read(&self, worker: &Worker, snapshot: u64) -> Option<Vec<u8>> {
        self.with(worker, |record, guard| {
            let mut reader = VersionReader::new(guard, &self.slots, None);
            match reader.read(record, Lsn::new(snapshot)) {
                SnapshotRead::Value(bytes, _) => Some(bytes.to_vec()),
                SnapshotRead::Absent(_) => None,
                SnapshotRead::Unresolved(_) => panic!("one thread waits for itself"),
            }
        })
    }

    /// Commits the changes that have `undo`. If `stays`, their replaced values stay in the chain.
    fn commit(&mut self, worker: &Worker, own: &mut OwnSlot, undo: Undo, stays: bool) -> u64 {
        self.slots.start_commit(own, Lsn::new(self.front));
        self.front += 10;
        let stamp = (Lsn::new(self.front), Promise::Written);
        self.slots.committed(own, stamp.0, stamp.1);
        if stays {
            self.with(worker, |record, guard| {
                for old in undo {
                    record.settle(old, &self.slots, own, stamp, guard);
                }
            });
            self.slots.end(own, worker.participant());
        } else {
            self.slots.end(own, worker.participant());
            let old = undo.into_iter().flatten();
            old.for_each(|old| old.retire(worker.participant()));
        }
        self.front
    }

    fn put(&self, worker: &Worker, own: &OwnSlot, value: Option<&[u8]>) -> Option<ValueBlock> {
        self.with(worker, |record, guard| {
            // The epochs pass, so that inline slots are used again.
            worker.participant().advance();
            let since = guard.participant().recent_stamp();
            let writer = Some(self.slots.writer(own));
            record.replace(value, guard, since, writer).unwrap()
        })
    }

    fn undo(&self, worker: &Worker, old: Option<ValueBlock>) {
        self.with(worker, |record, guard| {
            if let Some(new) = record.swap(old, guard) {
                new.retire(worker.participant());
            }
        });
    }
}

type Undo = Vec<Option<ValueBlock>>;

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }
}

#[test]
fn random_transactions_are_read_at_every_snapshot() {
    for seed in 0..300 {
        let mut random = Random(seed * 2 + 1);
        let workers = Workers::new();
        let (writer, reader) = (workers.worker(), workers.worker());
        let first = (random.below(2) == 0).then_some(&b"loaded"[..]);
        let mut row = TestRow::new(&writer, first);
        let mut own = row.slots.acquire();
        let mut history = BTreeMap::from([(0, first.map(<[u8]>::to_vec))]);
        let mut snapshots = Vec::new();
        for number in 0..60_u32 {
            // While no snapshot is active, commits keep nothing.
            let mut undo: Undo = Vec::new();
            let mut values = vec![history.last_key_value().unwrap().1.clone()];
            for write in 0..random.below(4) {
                let bytes = format!("{number}.{write}{}", "x".repeat(random.below(6) as usize));
                let value = (random.below(4) > 0).then_some(bytes.as_bytes());
                if value.is_none() && values.last().unwrap().is_none() {
                    continue;
                }
                undo.push(row.put(&writer, &own, value));
                values.push(value.map(<[u8]>::to_vec));
                if random.below(4) == 0 {
                    row.undo(&writer, undo.pop().unwrap());
                    values.pop();
                }
                check(&row, &reader, &history, &snapshots);
            }
            if random.below(3) == 0 {
                while let Some(old) = undo.pop() {
                    row.undo(&writer, old);
                }
                row.slots.end(&mut own, writer.participant());
            } else {
                let stays = !snapshots.is_empty();
                let end = row.commit(&writer, &mut own, undo, stays);
                history.insert(end, values.pop().unwrap());
            }
            check(&row, &reader, &history, &snapshots);
            match random.below(5) {
                0 => snapshots.push(row.front),
                1 if !snapshots.is_empty() => {
                    snapshots.swap_remove(random.below(snapshots.len() as u64) as usize);
                    let result = row.with(&writer, |record, guard| {
                        let needed = |begin: Lsn, end: Lsn| {
                            let held = begin.bytes()..end.bytes();
                            snapshots.iter().any(|snapshot| held.contains(snapshot))
                        };
                        record.prune(guard, &row.slots, &needed)
                    });
                    assert!(!result.is_busy && (result.is_rest <= !snapshots.is_empty()));
                }
                _ => {}
            }
            check(&row, &reader, &history, &snapshots);
        }
        row.slots.release(own);
    }
}

fn check(
    row: &TestRow,
    reader: &Worker,
    history: &BTreeMap<u64, Option<Vec<u8>>>,
    snapshots: &[u64],
) {
    for &snapshot in snapshots.iter().chain([&row.front]) {
        let (_, expected) = history.range(..=snapshot).next_back().expect("the first");
        assert_eq!(&row.read(reader, snapshot), expected, "at {snapshot}");
    }
}

#[test]
fn a_stalled_snapshot_keeps_one_version() {
    let workers = Workers::new();
    let worker = workers.worker();
    let mut row = TestRow::new(&worker, Some(b"first"));
    let mut own = row.slots.acquire();
    let snapshot = row.front;
    let (mut kept, mut pruned) = (0, 0);
    for number in 0..1000_u32 {
        let old = row.put(&worker, &own, Some(&number.to_le_bytes()));
        row.commit(&worker, &mut own, vec![old], true);
        kept += 1;
        let needed = |begin: Lsn, end: Lsn| (begin.bytes()..end.bytes()).contains(&snapshot);
        let result = row.with(&worker, |record, guard| {
            record.prune(guard, &row.slots, &needed)
        });
        pruned += result.versions;
        assert!(result.is_rest);
        assert_eq!(row.read(&worker, snapshot).as_deref(), Some(&b"first"[..]));
    }
    assert_eq!(kept - pruned, 1);
    let result = row.with(&worker, |record, guard| {
        record.prune(guard, &row.slots, &|_, _| false)
    });
    assert_eq!((result.versions, result.is_rest), (1, false));
    worker.participant().collect();
    assert_eq!(workers.domain().retired(), 0);
    row.slots.release(own);
}

#[test]
fn the_inline_slot_is_used_again_once_its_version_is_unlinked() {
    let workers = Workers::new();
    let worker = workers.worker();
    let mut row = TestRow::new(&worker, Some(b"12345678"));
    let mut own = row.slots.acquire();
    for stays in [false, true] {
        let mut was_inline = 0;
        for number in 0..60_u64 {
            let old = row.put(&worker, &own, Some(&number.to_le_bytes()));
            was_inline += usize::from(old.as_ref().is_some_and(|old| old.bytes().is_none()));
            row.commit(&worker, &mut own, vec![old], stays);
            if stays {
                let prune = |record: &Record, guard: &Guard<'_>| {
                    record.prune(guard, &row.slots, &|_, _| false)
                };
                assert_eq!(row.with(&worker, prune).versions, 1);
            }
            (0..3).for_each(|_| worker.participant().advance());
        }
        assert!(was_inline >= 15, "{was_inline} of 60 values were inline");
    }
    row.slots.release(own);
}

/// Transfers between two rows beside readers at snapshots: the sum is the same in each.
#[test]
fn a_sum_is_the_same_at_every_snapshot() {
    const THREADS: usize = 8;
    let workers = Workers::new();
    let table = RecordTable::new(workers.domain());
    let worker = workers.worker();
    for key in [b"a", b"b"] {
        let record = NewRecord::new(key, Some(&500_u64.to_le_bytes())).unwrap();
        table
            .insert(&worker.pin(), record, Next::Any)
            .expect("a new key");
    }
    let slots = CommitSlots::new();
    let (front, locked, is_over) = (AtomicU64::new(10), Mutex::new(()), AtomicBool::new(false));
    // The snapshots that a collector must spare: one of each reader.
    let active: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    let value = |record: &Record, guard: &Guard<'_>| {
        let mut hazard = guard.hazard();
        u64::from_le_bytes(record.value(&mut hazard).unwrap().try_into().unwrap())
    };
    let write = || {
        let worker = workers.worker();
        let mut own = slots.acquire();
        for round in 0..3000_u64 {
            let guard = worker.pin();
            let rows = [b"a", b"b"].map(|key| table.get(&guard, key).expect("it is there"));
            let locked = locked.lock().unwrap();
            let since = guard.participant().recent_stamp();
            let amount = round % 7;
            let old: Vec<_> = rows
                .iter()
                .zip([amount.wrapping_neg(), amount])
                .map(|(row, amount)| {
                    let new = value(row, &guard).wrapping_add(amount).to_le_bytes();
                    let writer = Some(slots.writer(&own));
                    row.replace(Some(&new), &guard, since, writer).unwrap()
                })
                .collect();
            if round % 5 == 0 {
                for (row, old) in rows.iter().zip(old) {
                    row.swap(old, &guard)
                        .expect("a value")
                        .retire(guard.participant());
                }
            } else {
                slots.start_commit(&own, Lsn::new(front.load(Ordering::Acquire)));
                let end = Lsn::new(front.fetch_add(10, Ordering::AcqRel) + 10);
                slots.committed(&own, end, Promise::Nothing);
                for (row, old) in rows.iter().zip(old) {
                    row.settle(old, &slots, &own, (end, Promise::Nothing), &guard);
                }
            }
            slots.end(&mut own, guard.participant());
            // The collector takes the snapshots of readers under the lock that they take.
            let line = front.load(Ordering::Acquire);
            let held: Vec<u64> = active.iter().map(|at| at.load(Ordering::Acquire)).collect();
            let needed = |begin: Lsn, end: Lsn| {
                let is_held = |at: &u64| (begin.bytes()..end.bytes()).contains(at);
                end.bytes() > line || held.iter().any(is_held)
            };
            for row in rows {
                row.prune(&guard, &slots, &needed);
            }
            drop(locked);
        }
        is_over.store(true, Ordering::Release);
        slots.release(own);
    };
    let read = |number: usize| {
        let worker = workers.worker();
        let mut seen = 0_u64;
        while !is_over.load(Ordering::Acquire) || seen < 100 {
            let snapshot = {
                let _locked = locked.lock().unwrap();
                let snapshot = front.load(Ordering::Acquire);
                active[number].store(snapshot, Ordering::Release);
                snapshot
            };
            for _ in 0..20 {
                let mut sum = 0_u64;
                for key in [b"a", b"b"] {
                    loop {
                        let guard = worker.pin();
                        let row = table.get(&guard, key).expect("it is there");
                        let mut reader = VersionReader::new(&guard, &slots, None);
                        match reader.read(row, Lsn::new(snapshot)) {
                            SnapshotRead::Value(found, _) => {
                                let found = u64::from_le_bytes(found.try_into().unwrap());
                                sum = sum.wrapping_add(found);
                                break;
                            }
                            SnapshotRead::Absent(_) => panic!("it is there at {snapshot}"),
                            SnapshotRead::Unresolved(_) => std::thread::yield_now(),
                        }
                    }
                }
                assert_eq!(sum, 1000, "at {snapshot}");
            }
            active[number].store(0, Ordering::Release);
            seen += 1;
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(write);
        (0..THREADS).for_each(|number| drop(scope.spawn(move || read(number))));
    });
    drop(table);
}
