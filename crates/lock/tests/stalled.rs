//! One transaction that never ends: what it keeps from being used again.
//!
//! Counted, and in one thread, so that nothing depends on who runs when: a transaction has taken its locks
//! and does nothing more, while others, overlapping so that a name they share is always held, take and
//! release a million. Under epochs it keeps the requests it has and a few that came with them; under the
//! older rule nothing that was released after it began is used again, and memory grows.

use foxton_lock::{
    any::{Any, Kind, Options},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::Owner,
};
use foxton_sync::worker::{Worker, Workers};

const LOCKS: usize = 1_000_000;
const OTHERS: usize = 8;
/// Locks of a transaction: of the table, and of keys, the first of which the stalled one reads too.
const KEYS: u64 = 9;
const TABLE: Name = Name::table(1);

fn take(locks: &Any, worker: &Worker, owner: &mut Owner, first: u64) {
    assert!(locks.try_lock(worker, owner, TABLE, Mode::IS).is_held());
    for name in [0].into_iter().chain(first..first + KEYS - 1) {
        let name = Name::advisory(name);
        assert!(locks.try_lock(worker, owner, name, Mode::S).is_held());
    }
}

/// Bytes of the manager after a tenth of the locks, and after all.
fn grown(kind: Kind, stalls: bool) -> [usize; 2] {
    let mut options = Options::default();
    // In the document's form each chain keeps a few that are obsolete: few chains, soon all warm.
    (options.kind, options.bucket_count) = (kind, 1024);
    let locks = Any::new(&options);
    let workers = Workers::with_seed(1);
    let (mut sleeper, sleeping) = (locks.owner(), workers.worker());
    if stalls {
        take(&locks, &sleeping, &mut sleeper, 1);
    }
    let mut others = [(); OTHERS].map(|()| (workers.worker(), locks.owner()));
    let transactions = LOCKS / (1 + KEYS as usize);
    let mut bytes = [0; 2];
    for number in 0..transactions {
        let (worker, owner) = &mut others[number % OTHERS];
        // Of the one before the last turn. The others have theirs meanwhile.
        locks.release_all(worker, owner);
        owner.begin();
        take(&locks, worker, owner, 1 + number as u64 * 10 % 90_000);
        if number == transactions / 10 {
            bytes[0] = locks.stats(worker).memory_bytes;
        }
    }
    bytes[1] = locks.stats(&sleeping).memory_bytes;
    for (worker, owner) in &mut others {
        locks.release_all(worker, owner);
    }
    locks.release_all(&sleeping, &mut sleeper);
    locks.verify(&sleeping);
    assert!(locks.inspect(&sleeping).queues.is_empty());
    println!("{kind}, stalls {stalls}: {bytes:?}");
    bytes
}

#[test]
fn under_epochs_a_stalled_transaction_keeps_nothing_from_being_used_again() {
    for kind in [Kind::Staged, Kind::StagedPaper] {
        for stalls in [false, true] {
            let [early, late] = grown(kind, stalls);
            assert_eq!(early, late, "{kind}, stalls {stalls}");
            assert!(late < 4_000_000, "{kind}, stalls {stalls}: {late} bytes");
        }
    }
}

#[test]
fn under_the_older_rule_memory_grows_for_as_long_as_it_stalls() {
    let [early, late] = grown(Kind::StagedOldest, false);
    assert_eq!(early, late);
    let [early, late] = grown(Kind::StagedOldest, true);
    assert!(late > 4 * early, "{early} to {late}");
    assert!(late > 40 * LOCKS, "{late} bytes");
}
