//! Transfer of a lock from one thread to another, in every interleaving of two.
//!
//! The model is the whole manager: the queue or the chain and its queue, the verdict under its
//! latch (parking: a mutex, to the model), the parker, the search.

use crate::modelled::{
    A, B, beside, cross, holds, manager, model, nobody_is_left, released, waits,
};
use foxton_lock::{any::ManagerKind, manager::LockManager, mode::Mode};
use foxton_sync::shim::{Arc, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const KINDS: [ManagerKind; 4] = [
    ManagerKind::Bucket,
    ManagerKind::Direct,
    ManagerKind::Staged,
    ManagerKind::StagedPaper,
];

#[test]
fn a_release_wakes_the_waiter() {
    model(|| {
        let (locks, worker, other) = manager(ManagerKind::Bucket);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        holds(&locks, &worker, &mut first, A, Mode::X);
        waits(&locks, &worker, &mut second, A);
        let releaser = released(&locks, other, first);
        assert!(locks.wait(&worker, &mut second, None).is_held());
        releaser.join();
        locks.release_all(&worker, &mut second);
        nobody_is_left(&locks, &worker);
    });
}

#[test]
fn a_grant_and_a_deadline_end_a_wait_once() {
    for kind in KINDS {
        model(move || {
            let (locks, worker, other) = manager(kind);
            let (mut first, mut second) = (locks.owner(), locks.owner());
            holds(&locks, &worker, &mut first, A, Mode::X);
            waits(&locks, &worker, &mut second, A);
            let releaser = released(&locks, other, first);
            let outcome = locks.wait(&worker, &mut second, Some(Instant::now()));
            assert_eq!(outcome.is_held(), second.lock_count() == 1);
            releaser.join();
            locks.release_all(&worker, &mut second);
            nobody_is_left(&locks, &worker);
        });
    }
}

#[test]
fn a_cancellation_before_or_after_the_grant_leaves_no_trace() {
    for kind in KINDS {
        model(move || {
            let (locks, worker, other) = manager(kind);
            let (mut first, mut second) = (locks.owner(), locks.owner());
            holds(&locks, &worker, &mut first, A, Mode::X);
            waits(&locks, &worker, &mut second, A);
            let releaser = released(&locks, other, first);
            locks.cancel(&worker, &mut second);
            assert_eq!(second.lock_count(), 0);
            releaser.join();
            nobody_is_left(&locks, &worker);
        });
    }
}

#[test]
fn two_who_close_a_cycle_at_once_lose_one_victim() {
    for kind in [
        ManagerKind::Bucket,
        ManagerKind::ShardedFifo,
        ManagerKind::Staged,
    ] {
        model(move || {
            let (locks, worker, other) = manager(kind);
            let (mut first, mut second) = (locks.owner(), locks.owner());
            holds(&locks, &worker, &mut first, A, Mode::X);
            holds(&locks, &worker, &mut second, B, Mode::X);
            let rival = beside(&locks, other, move |locks, worker| {
                cross(locks, worker, &mut first, B)
            });
            let lost = cross(&locks, &worker, &mut second, A);
            let lost = u32::from(lost) + u32::from(rival.join());
            assert!(lost <= 1, "one cycle, two victims");
            assert_eq!(locks.deadlocks().len(), lost as usize);
            nobody_is_left(&locks, &worker);
        });
    }
}

/// The lock is granted to an owner that sleeps, or is about to, or is awake already; meanwhile
/// another one requests it.
#[test]
fn a_revocable_grant_has_one_owner_at_a_time() {
    model(|| {
        let (locks, worker, other) = manager(ManagerKind::Direct);
        let count = Arc::new(AtomicU64::new(0));
        let (mut first, mut second) = (locks.owner(), locks.owner());
        holds(&locks, &worker, &mut first, A, Mode::X);
        waits(&locks, &worker, &mut second, A);
        let rival = {
            let count = count.clone();
            beside(&locks, other, move |locks, worker| {
                locks.release_all(worker, &mut first);
                first.begin();
                assert!(locks.lock(worker, &mut first, A, Mode::X, None).is_held());
                adds_one(&count);
                locks.release_all(worker, &mut first);
            })
        };
        assert!(locks.wait(&worker, &mut second, None).is_held());
        adds_one(&count);
        locks.release_all(&worker, &mut second);
        rival.join();
        assert_eq!(count.load(Relaxed), 2);
        nobody_is_left(&locks, &worker);
    });
}

/// Under the lock. Relaxed, because the lock makes each thread see the other's writes.
fn adds_one(count: &AtomicU64) {
    count.store(count.load(Relaxed) + 1, Relaxed);
}

#[test]
fn a_revocable_grant_and_a_deadline_end_a_wait_once() {
    model(|| {
        let (locks, worker, other) = manager(ManagerKind::Direct);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        holds(&locks, &worker, &mut first, A, Mode::X);
        waits(&locks, &worker, &mut second, A);
        let rival = beside(&locks, other, move |locks, worker| {
            locks.release_all(worker, &mut first);
            first.begin();
            assert!(locks.lock(worker, &mut first, A, Mode::X, None).is_held());
            locks.release_all(worker, &mut first);
        });
        let outcome = locks.wait(&worker, &mut second, Some(Instant::now()));
        assert_eq!(outcome.is_held(), second.lock_count() == 1);
        locks.release_all(&worker, &mut second);
        rival.join();
        nobody_is_left(&locks, &worker);
    });
}
