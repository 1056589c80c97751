//! Statistics and snapshots of waits for people and monitors, on every manager: wait times by
//! table, by label and by name, and a limited snapshot that stays small however many locks are
//! held.

use foxton_lock::{
    any::{AnyManager, ManagerKind, Options},
    inspect::WaitUsage,
    manager::LockManager,
    mode::Mode,
    name::{KeyHasher, Name},
    owner::Owner,
    request::{Outcome, Reply, WaitMode},
};
use foxton_sync::worker::{Worker, Workers};
use std::{
    thread,
    time::{Duration, Instant},
};

const PAUSE: Duration = Duration::from_millis(5);

fn on_every_manager(test: impl Fn(&AnyManager, &Worker)) {
    for kind in ManagerKind::ALL {
        let mut options = Options::default();
        options.kind = kind;
        options.bucket_count = 64;
        test(&AnyManager::new(&options), &Workers::new().worker());
    }
}

fn key(number: u32) -> Name {
    Name::key(7, &number.to_be_bytes(), &KeyHasher::new(1))
}

fn labelled(locks: &AnyManager, label: &'static str) -> Owner {
    let mut owner = locks.owner();
    owner.set_label(label);
    owner
}

/// `later` waits for `name` until `earlier` releases it, `PAUSE` later.
fn hand_over(
    locks: &AnyManager,
    worker: &Worker,
    earlier: &mut Owner,
    later: &mut Owner,
    name: Name,
) {
    assert!(locks.try_lock(worker, earlier, name, Mode::X).is_held());
    let reply = locks.request(worker, later, name, Mode::X, WaitMode::Wait);
    assert!(matches!(reply, Reply::Waiting));
    thread::sleep(PAUSE);
    assert!(locks.release(worker, earlier, name));
    assert!(matches!(locks.wait(worker, later, None), Outcome::Granted));
}

#[test]
fn waits_are_counted_by_table_label_and_name_and_the_holds_that_follow_are_measured() {
    on_every_manager(|locks, worker| {
        let (mut one, mut other) = (labelled(locks, "one"), labelled(locks, "other"));
        hand_over(locks, worker, &mut one, &mut other, key(1));
        thread::sleep(PAUSE);
        locks.release_all(worker, &mut one);
        locks.release_all(worker, &mut other);
        let stats = locks.stats(worker);
        let complete = |usage: &WaitUsage| {
            assert_eq!((usage.waits, usage.holds), (1, 1), "{:?}", locks.kind());
            assert!(usage.waited >= PAUSE && usage.held >= PAUSE, "{usage:?}");
            assert_eq!(usage.waited, usage.longest_wait);
            assert_eq!(usage.held, usage.longest_hold);
        };
        let [(table, usage)] = &stats.tables[..] else {
            panic!("one table: {stats:?}");
        };
        assert_eq!(*table, Name::table(7));
        complete(usage);
        let [(label, usage)] = &stats.labels[..] else {
            panic!("nobody but the second waited: {stats:?}");
        };
        assert_eq!(label, "other");
        complete(usage);
        assert_eq!(stats.hot_names[0].name, key(1));
        assert_eq!(stats.hot_names[0].waits, 1);
    });
}

#[test]
fn a_hold_ends_with_the_release_and_not_with_the_transaction() {
    on_every_manager(|locks, worker| {
        let (mut one, mut other) = (labelled(locks, "one"), labelled(locks, "other"));
        let before = Instant::now();
        hand_over(locks, worker, &mut one, &mut other, key(1));
        assert!(locks.release(worker, &mut other, key(1)));
        let at_most = before.elapsed();
        thread::sleep(PAUSE);
        locks.release_all(worker, &mut other);
        let usage = locks.stats(worker).tables[0].1;
        assert_eq!(usage.holds, 1);
        assert!(usage.held <= at_most, "{:?}: {usage:?}", locks.kind());
    });
}

#[test]
fn a_hold_is_counted_under_the_label_at_its_release() {
    on_every_manager(|locks, worker| {
        let (mut one, mut session) = (labelled(locks, "one"), labelled(locks, "session"));
        hand_over(locks, worker, &mut one, &mut session, Name::advisory(1));
        let kept = session.retain();
        for label in ["first", "second"] {
            session.begin_retaining(kept);
            session.set_label(label);
            hand_over(locks, worker, &mut one, &mut session, key(1));
            locks.release_since(worker, &mut session, kept);
            // Between transactions it is a session again.
            session.set_label("session");
        }
        locks.release_all(worker, &mut session);
        let mut labels = locks.stats(worker).labels;
        labels.sort_by(|one, other| one.0.cmp(&other.0));
        let holds: Vec<(&str, u64)> = labels
            .iter()
            .map(|(label, usage)| (label.as_ref(), usage.holds))
            .collect();
        let once_each = [("first", 1), ("second", 1), ("session", 1)];
        assert_eq!(holds, once_each, "{:?}", locks.kind());
    });
}

#[test]
fn a_wait_that_was_refused_is_counted_with_its_reason_and_holds_nothing() {
    on_every_manager(|locks, worker| {
        let (mut one, mut other) = (labelled(locks, "one"), labelled(locks, "other"));
        assert!(locks.try_lock(worker, &mut one, key(1), Mode::X).is_held());
        let soon = Instant::now() + PAUSE;
        let outcome = locks.lock(worker, &mut other, key(1), Mode::S, Some(soon));
        assert!(!outcome.is_held());
        locks.release_all(worker, &mut one);
        locks.release_all(worker, &mut other);
        let usage = locks.stats(worker).tables[0].1;
        assert_eq!((usage.waits, usage.timeouts, usage.holds), (1, 1, 0));
    });
}

#[test]
fn a_limited_snapshot_is_small_and_begins_with_waiters() {
    on_every_manager(|locks, worker| {
        let (mut much, mut waiter) = (labelled(locks, "much"), labelled(locks, "waiter"));
        for number in 0..1_000 {
            assert!(
                locks
                    .try_lock(worker, &mut much, key(number), Mode::X)
                    .is_held()
            );
        }
        assert_eq!(locks.longest_wait(worker), None);
        let reply = locks.request(worker, &mut waiter, key(500), Mode::X, WaitMode::Wait);
        assert!(matches!(reply, Reply::Waiting));
        thread::sleep(PAUSE);
        assert!(locks.longest_wait(worker).expect("somebody waits") >= PAUSE);
        let few = locks.inspect_limited(worker, 20);
        assert!(few.truncated, "{:?}", locks.kind());
        assert!(
            few.queues.len() <= 20,
            "{:?}: {}",
            locks.kind(),
            few.queues.len()
        );
        let queue = few.queue(key(500)).expect("what is waited for comes first");
        assert_eq!(queue.waiters[0].label, "waiter");
        let all = locks.inspect_limited(worker, 10_000);
        assert!(!all.truncated);
        assert_eq!(all.queues.len(), 1_000);
        assert_eq!(all.edges().count(), 1);
        locks.cancel(worker, &mut waiter);
        locks.release_all(worker, &mut much);
    });
}
