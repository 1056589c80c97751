//! The hand-over of a lock from one thread to another, in every interleaving of two.
//!
//! What is modelled is the whole manager over a parking latch (a mutex, to the model): the queue, the
//! verdict under its latch, the parker, the walk. Preemptions are bounded at two, as crossbeam does.
#![cfg(loom)]

use foxton_lock::{
    any::{Any, Kind, Options},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::Owner,
    request::{Outcome, Patience, Reason, Reply},
};
use foxton_sync::{
    shim::Arc,
    worker::{Worker, Workers},
};
use std::time::Instant;

const A: Name = Name::table(1);
const B: Name = Name::table(2);

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(body);
}

fn manager() -> (Arc<Any>, Worker, Worker) {
    let mut options = Options::tiny();
    (options.kind, options.bucket_count) = (Kind::Bucket, 1);
    let workers = Workers::with_seed(1);
    (
        Arc::new(Any::new(&options)),
        workers.worker(),
        workers.worker(),
    )
}

fn waits(locks: &Any, worker: &Worker, owner: &mut Owner, name: Name) {
    let reply = locks.request(worker, owner, name, Mode::X, Patience::Wait);
    assert!(matches!(reply, Reply::Waiting));
}

fn nobody_is_left(locks: &Any, worker: &Worker) {
    locks.verify(worker);
    assert!(locks.inspect(worker).queues.is_empty());
}

#[test]
fn a_release_wakes_the_waiter() {
    model(|| {
        let (locks, worker, other) = manager();
        let (mut first, mut second) = (locks.owner(), locks.owner());
        assert!(locks.try_lock(&worker, &mut first, A, Mode::X).is_held());
        waits(&locks, &worker, &mut second, A);
        let releaser = {
            let locks = locks.clone();
            loom::thread::spawn(move || locks.release_all(&other, &mut first))
        };
        assert!(locks.wait(&worker, &mut second, None).is_held());
        releaser.join().unwrap();
        locks.release_all(&worker, &mut second);
        nobody_is_left(&locks, &worker);
    });
}

#[test]
fn a_grant_and_a_deadline_end_a_wait_once() {
    model(|| {
        let (locks, worker, other) = manager();
        let (mut first, mut second) = (locks.owner(), locks.owner());
        assert!(locks.try_lock(&worker, &mut first, A, Mode::X).is_held());
        waits(&locks, &worker, &mut second, A);
        let releaser = {
            let locks = locks.clone();
            loom::thread::spawn(move || locks.release_all(&other, &mut first))
        };
        let outcome = locks.wait(&worker, &mut second, Some(Instant::now()));
        assert_eq!(outcome.is_held(), second.lock_count() == 1);
        releaser.join().unwrap();
        locks.release_all(&worker, &mut second);
        nobody_is_left(&locks, &worker);
    });
}

#[test]
fn a_cancellation_before_or_after_the_grant_leaves_no_trace() {
    model(|| {
        let (locks, worker, other) = manager();
        let (mut first, mut second) = (locks.owner(), locks.owner());
        assert!(locks.try_lock(&worker, &mut first, A, Mode::X).is_held());
        waits(&locks, &worker, &mut second, A);
        let releaser = {
            let locks = locks.clone();
            loom::thread::spawn(move || locks.release_all(&other, &mut first))
        };
        locks.cancel(&worker, &mut second);
        assert_eq!(second.lock_count(), 0);
        releaser.join().unwrap();
        nobody_is_left(&locks, &worker);
    });
}

#[test]
fn two_who_close_a_cycle_at_once_lose_one_victim() {
    model(|| {
        let (locks, worker, other) = manager();
        let (mut first, mut second) = (locks.owner(), locks.owner());
        assert!(locks.try_lock(&worker, &mut first, A, Mode::X).is_held());
        assert!(locks.try_lock(&worker, &mut second, B, Mode::X).is_held());
        let rival = {
            let locks = locks.clone();
            loom::thread::spawn(move || cross(&locks, &other, &mut first, B))
        };
        let lost = cross(&locks, &worker, &mut second, A);
        let lost = u32::from(lost) + u32::from(rival.join().unwrap());
        assert!(lost <= 1, "one cycle, two victims");
        assert_eq!(locks.deadlocks().len(), lost as usize);
        nobody_is_left(&locks, &worker);
    });
}

/// Asks for what the other has, and says whether it was the victim.
fn cross(locks: &Any, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
    let outcome = locks.lock(worker, owner, name, Mode::X, None);
    let lost = match outcome {
        Outcome::Refused(refusal) => {
            assert_eq!(refusal.reason, Reason::Deadlock);
            true
        }
        _ => false,
    };
    locks.release_all(worker, owner);
    lost
}
