//! Models of the orderings of row versions: a writer and a reader of one row on one page.
#![cfg(test)]

use foxton_sync::epoch::Domain;
use foxton_sync::shim::{Arc, thread};

use super::*;
use crate::memory::{OwnSlot, Promise};

const COMMIT: u64 = 10;
const TREE: u64 = 3;

struct Shared {
    versions: RowVersions,
    slots: CommitSlots,
    /// The front of the log.
    front: AtomicU64,
    /// The value of the row, and the latch of its page.
    page: AtomicU64,
}

/// End of the writer's transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// A snapshot may be below the commit.
    Stamped,
    /// None is.
    Removed,
    RolledBack,
}

fn row() -> VersionedKey<'static> {
    VersionedKey::new(TREE, b"row")
}

fn write(shared: &Shared, own: &mut OwnSlot, ending: Ending) {
    let here = Domain::new().participant();
    let (begin, mut owned) = (shared.slots.begin(own), OwnedVersions::default());
    let before = Some((RowFlags::NONE, vec![0]));
    let versions = &shared.versions;
    versions.replace(&mut owned, &row(), before, (begin, 0));
    shared.page.store(1, Ordering::Release); // I1
    if ending == Ending::RolledBack {
        shared.page.store(0, Ordering::Release);
        versions.roll_back(&mut owned, begin);
        return shared.slots.end(own, &here);
    }
    let front = Lsn::new(shared.front.load(Ordering::Acquire));
    shared.slots.start_commit(own, front);
    let end = Lsn::new(shared.front.fetch_add(COMMIT, Ordering::AcqRel) + COMMIT);
    shared.slots.committed(own, end, Promise::Nothing);
    let stamp = (ending == Ending::Stamped).then(|| Begin::at(end, Promise::Nothing));
    versions.commit(&mut owned, begin, stamp, |_, _, _| {});
    shared.slots.end(own, &here);
}

/// Returns the value at the snapshot, or `None` if the reader has to wait.
fn read(shared: &Shared, snapshot: Lsn) -> Option<u64> {
    let mut value = Vec::new();
    loop {
        let rollbacks = shared.versions.rollbacks(TREE);
        let page = shared.page.load(Ordering::Acquire);
        let found = shared
            .versions
            .read(&row(), &shared.slots, None, snapshot, &mut value);
        match found {
            VersionLookup::Newest(_) if shared.versions.rollbacks(TREE) != rollbacks => {}
            VersionLookup::Newest(_) => return Some(page),
            VersionLookup::Older(..) => return Some(u64::from(value[0])),
            VersionLookup::Absent(_) => panic!("the row was always there"),
            VersionLookup::Unresolved(_) => return None,
        }
    }
}

fn model(ending: Ending) {
    loom::model(move || {
        let shared = Arc::new(Shared {
            versions: RowVersions::new(),
            slots: CommitSlots::new(),
            front: AtomicU64::new(0),
            page: AtomicU64::new(0),
        });
        // The checker does not see what their first use orders.
        shared.versions.make_buckets();
        let mut own = shared.slots.acquire();
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || write(&shared, &mut own, ending))
        };
        let snapshot = Lsn::new(shared.front.load(Ordering::Acquire)); // O1 of `version`
        let is_behind = snapshot.bytes() >= COMMIT;
        // While the entries are removed at once, no snapshot is below the commit.
        if is_behind || ending != Ending::Removed {
            let found = read(&shared, snapshot);
            assert!(found.is_some() || is_behind, "nothing to wait for");
            assert!(found.is_none_or(|found| found == u64::from(is_behind)));
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_reader_beside_a_commit_finds_the_state_at_its_snapshot() {
    model(Ending::Stamped);
}

#[test]
fn a_reader_above_a_commit_needs_no_entry() {
    model(Ending::Removed);
}

#[test]
fn a_reader_beside_a_rollback_finds_the_state_before() {
    model(Ending::RolledBack);
}
