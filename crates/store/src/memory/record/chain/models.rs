//! Models of a reader beside a writer, a rollback and a collector, on real records.
#![cfg(test)]

use foxton_sync::epoch::{Domain, Participant};
use foxton_sync::shim::{Arc, AtomicU64, thread};

use super::*;
use crate::memory::{NewRecord, Next, OwnSlot, Promise, RecordTable};

struct Shared {
    table: RecordTable,
    slots: CommitSlots,
    front: AtomicU64,
}

const END: u64 = 20;

fn put(shared: &Shared, here: &Participant, own: &OwnSlot) -> Option<ValueBlock> {
    let guard = here.pin();
    let record = shared.table.get(&guard, b"k").expect("it is there");
    let since = here.recent_stamp();
    let writer = Some(shared.slots.writer(own));
    record
        .replace(Some(b"new"), &guard, since, writer)
        .expect("short")
}

fn commit(shared: &Shared, here: &Participant, own: &mut OwnSlot, old: Option<ValueBlock>) {
    let front = shared.front.load(Ordering::Acquire);
    shared.slots.start_commit(own, Lsn::new(front));
    let end = Lsn::new(shared.front.fetch_add(10, Ordering::AcqRel) + 10);
    shared.slots.committed(own, end, Promise::Nothing);
    let guard = here.pin();
    let record = shared.table.get(&guard, b"k").expect("it is there");
    record.settle(old, &shared.slots, own, (end, Promise::Nothing), &guard);
    shared.slots.end(own, here);
}

fn read(shared: &Shared, here: &Participant) {
    let snapshot = shared.front.load(Ordering::Acquire);
    let guard = here.pin();
    let record = shared.table.get(&guard, b"k").expect("it is there");
    let mut reader = VersionReader::new(&guard, &shared.slots, None);
    let expected: &[u8] = if snapshot < END { b"old" } else { b"new" };
    match reader.read(record, Lsn::new(snapshot)) {
        SnapshotRead::Value(found, _) => assert_eq!(found, expected, "at {snapshot}"),
        SnapshotRead::Absent(_) => panic!("it is there at {snapshot}"),
        SnapshotRead::Unresolved(_) => assert!(snapshot >= END),
    }
}

/// Runs `theirs` with a participant in another thread, and a reader here.
fn beside_a_reader(
    value_is_outside: bool,
    theirs: impl Fn(&Shared, &Participant, OwnSlot) + Send + Sync + Copy + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let domain = Domain::new();
        let (here, there) = (domain.participant(), domain.participant());
        let table = RecordTable::new(&domain);
        let value = (!value_is_outside).then_some(&b"old"[..]);
        {
            let guard = here.pin();
            let record = NewRecord::new(b"k", value).expect("short");
            let record = table.insert(&guard, record, Next::Any).expect("new");
            if value_is_outside {
                record
                    .put(b"old", &guard, here.recent_stamp())
                    .expect("short");
            }
        }
        let slots = CommitSlots::new();
        let own = slots.acquire();
        let shared = Arc::new(Shared {
            table,
            slots,
            front: AtomicU64::new(10),
        });
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                theirs(&shared, &there, own);
                // Not dropped here: leaving the domain synchronizes, and would hide a flaw.
                there
            })
        };
        // In a thread of its own: a bounded search would always let this one read first.
        let reader = thread::spawn(move || {
            read(&shared, &here);
            here
        });
        drop((other.join().unwrap(), reader.join().unwrap()));
    });
}

#[test]
fn a_reader_beside_a_commit() {
    beside_a_reader(true, |shared, there, mut own| {
        let old = put(shared, there, &own);
        commit(shared, there, &mut own, old);
    });
}

#[test]
fn a_reader_beside_a_commit_over_the_inline_slot() {
    beside_a_reader(false, |shared, there, mut own| {
        let old = put(shared, there, &own);
        commit(shared, there, &mut own, old);
    });
}

#[test]
fn a_reader_beside_a_rollback() {
    beside_a_reader(true, |shared, there, mut own| {
        let old = put(shared, there, &own);
        let guard = there.pin();
        let record = shared.table.get(&guard, b"k").expect("it is there");
        if let Some(new) = record.swap(old, &guard) {
            new.retire(there);
        }
        shared.slots.end(&mut own, there);
        there.collect();
    });
}

#[test]
fn a_reader_beside_a_collector() {
    beside_a_reader(true, |shared, there, mut own| {
        let old = put(shared, there, &own);
        commit(shared, there, &mut own, old);
        let guard = there.pin();
        let record = shared.table.get(&guard, b"k").expect("it is there");
        // The reader may be at a snapshot below the commit, so the version stays for its answer.
        record.prune(&guard, &shared.slots, &|_, end| end.bytes() > 10);
        drop(guard);
        there.collect();
    });
}

/// The writer stamps nothing, as while no snapshot is active, and writes again once two epochs have
/// passed. A reader that has found its first transaction running reads the value behind the key,
/// or this reader would see what is written over it.
#[test]
fn a_kept_slot_is_claimed_after_its_readers() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let domain = Domain::new();
        let (here, there) = (domain.participant(), domain.participant());
        let table = RecordTable::new(&domain);
        {
            let guard = here.pin();
            let record = NewRecord::new(b"k", Some(b"old")).expect("short");
            table.insert(&guard, record, Next::Any).expect("new");
        }
        let slots = CommitSlots::new();
        let mut own = slots.acquire();
        let shared = Arc::new(Shared {
            table,
            slots,
            front: AtomicU64::new(10),
        });
        let old = put(&shared, &here, &own);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    shared.slots.end(&mut own, &there);
                    there.advance();
                }
                old.into_iter().for_each(|old| old.retire(&there));
                let third = shared.slots.writer(&own);
                let guard = there.pin();
                let record = shared.table.get(&guard, b"k").expect("it is there");
                let since = there.recent_stamp();
                let old = record.replace(Some(b"3rd"), &guard, since, Some(third));
                let old = old.expect("short");
                drop(guard);
                (there, old)
            })
        };
        let reader = thread::spawn(move || {
            let guard = here.pin();
            let record = shared.table.get(&guard, b"k").expect("it is there");
            let mut reader = VersionReader::new(&guard, &shared.slots, None);
            match reader.read(record, Lsn::new(10)) {
                SnapshotRead::Value(found, _) => assert_ne!(found, b"3rd"),
                found => panic!("{found:?}"),
            }
            drop(reader);
            drop(guard);
            here
        });
        let ((there, old), _here) = (other.join().unwrap(), reader.join().unwrap());
        old.into_iter().for_each(|old| old.retire(&there));
    });
}

/// A reader whose snapshot was ended may find no version; it touches no freed memory.
#[test]
fn a_version_is_freed_after_its_readers_whatever_the_snapshot() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let domain = Domain::new();
        let (here, there) = (domain.participant(), domain.participant());
        let table = RecordTable::new(&domain);
        {
            let guard = here.pin();
            let record = NewRecord::new(b"k", None).expect("short");
            let record = table.insert(&guard, record, Next::Any).expect("new");
            record
                .put(b"old", &guard, here.recent_stamp())
                .expect("short");
        }
        let slots = CommitSlots::new();
        let mut own = slots.acquire();
        let shared = Arc::new(Shared {
            table,
            slots,
            front: AtomicU64::new(10),
        });
        let old = put(&shared, &here, &own);
        commit(&shared, &here, &mut own, old);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let guard = there.pin();
                let record = shared.table.get(&guard, b"k").expect("it is there");
                record.prune(&guard, &shared.slots, &|_, _| false);
                drop(guard);
                there.collect();
                there
            })
        };
        let guard = here.pin();
        let record = shared.table.get(&guard, b"k").expect("it is there");
        let mut reader = VersionReader::new(&guard, &shared.slots, None);
        match reader.read(record, Lsn::new(15)) {
            SnapshotRead::Value(found, _) => assert_eq!(found, b"old"),
            found => assert_eq!(found, SnapshotRead::Absent(Begin::ALWAYS)),
        }
        drop(reader);
        drop(guard);
        drop(other.join().unwrap());
    });
}
