//! Visible effects of inheritance: its counters, and the requests that wait.
//!
//! The contract, the scripts and the random histories check that it has no other effect; they all
//! run with and without it.

use foxton_lock::{
    any::{AnyManager, Inheritance, ManagerKind, Options},
    inspect::{self, DeadlockCycle, LockSnapshot, LockStats},
    manager::LockManager,
    managers::inherit::Inherit,
    mode::Mode,
    name::Name,
    owner::{LockSavepoint, Owner, WaitTicket},
    request::{RefusalReason, Reply, WaitMode},
};
use foxton_sync::worker::{Worker, Workers};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

const T: Name = Name::table(1);
const OTHER: Name = Name::table(2);

/// Runs `test` on every manager under inheritance.
fn on_all(inherit: Inheritance, test: impl Fn(&AnyManager, &Worker)) {
    for kind in ManagerKind::ALL {
        let mut options = Options::tiny();
        (options.kind, options.inherit) = (kind, inherit);
        println!("{kind}, inheritance {inherit}");
        let locks = AnyManager::new(&options);
        let worker = Workers::with_seed(1).worker();
        test(&locks, &worker);
        locks.verify(&worker);
    }
}

/// Runs one transaction that requests `name` in `mode`.
fn transaction(locks: &AnyManager, worker: &Worker, owner: &mut Owner, name: Name, mode: Mode) {
    owner.begin();
    assert!(locks.try_lock(worker, owner, name, mode).is_held());
    locks.release_all(worker, owner);
    locks.verify(worker);
}

fn counts(locks: &AnyManager, worker: &Worker) -> inspect::InheritanceStats {
    locks.stats(worker).inheritance
}

#[test]
fn an_inherited_lock_is_used_by_the_next_transaction() {
    on_all(Inheritance::Always, |locks, worker| {
        let mut owner = locks.owner();
        for _ in 0..10 {
            transaction(locks, worker, &mut owner, T, Mode::IS);
        }
        let counts = counts(locks, worker);
        assert_eq!((counts.kept, counts.used), (10, 9));
        assert_eq!((counts.discarded, counts.revoked), (0, 0));
        assert!(
            locks.inspect(worker).queues.is_empty(),
            "nobody holds what nobody has to wait for"
        );
    });
}

#[test]
fn no_request_waits_for_a_sleeping_worker() {
    on_all(Inheritance::Always, |locks, worker| {
        let (mut sleeper, mut writer) = (locks.owner(), locks.owner());
        transaction(locks, worker, &mut sleeper, T, Mode::IX);
        transaction(locks, worker, &mut writer, T, Mode::X);
        assert_eq!(counts(locks, worker).revoked, 1);
        // The sleeper requests it again as if nothing had happened.
        transaction(locks, worker, &mut sleeper, T, Mode::IX);
        assert_eq!(counts(locks, worker).used, 0);
    });
}

#[test]
fn an_unused_inherited_lock_is_revoked_from_a_running_transaction() {
    on_all(Inheritance::Always, |locks, worker| {
        let (mut runner, mut writer) = (locks.owner(), locks.owner());
        transaction(locks, worker, &mut runner, T, Mode::IS);
        runner.begin();
        assert!(
            locks
                .try_lock(worker, &mut runner, OTHER, Mode::IS)
                .is_held()
        );
        assert!(locks.try_lock(worker, &mut writer, T, Mode::X).is_held());
        let refused = locks.try_lock(worker, &mut runner, T, Mode::IS).refusal();
        assert_eq!(refused.map(|refusal| refusal.blockers.len()), Some(1));
        locks.release_all(worker, &mut writer);
        locks.release_all(worker, &mut runner);
    });
}

#[test]
fn no_lock_is_inherited_while_a_request_waits() {
    on_all(Inheritance::Always, |locks, worker| {
        let (mut reader, mut writer) = (locks.owner(), locks.owner());
        assert!(locks.try_lock(worker, &mut reader, T, Mode::IS).is_held());
        let reply = locks.request(worker, &mut writer, T, Mode::X, WaitMode::Wait);
        assert!(matches!(reply, Reply::Waiting));
        locks.release_all(worker, &mut reader);
        assert_eq!(counts(locks, worker).wanted, 1);
        assert!(
            locks
                .wait(worker, &mut writer, Some(Instant::now()))
                .is_held()
        );
        locks.release_all(worker, &mut writer);
        transaction(locks, worker, &mut reader, T, Mode::IS);
        assert_eq!(
            counts(locks, worker).kept,
            1,
            "again, now that nobody waits"
        );
    });
}

#[test]
fn an_unused_inherited_lock_is_released_in_the_end() {
    on_all(Inheritance::Always, |locks, worker| {
        let mut owner = locks.owner();
        transaction(locks, worker, &mut owner, T, Mode::S);
        for _ in 0..20 {
            transaction(locks, worker, &mut owner, OTHER, Mode::IX);
        }
        assert_eq!(counts(locks, worker).discarded, 1);
    });
}

#[test]
fn the_next_owner_with_an_index_inherits_too() {
    on_all(Inheritance::Always, |locks, worker| {
        transaction(locks, worker, &mut locks.owner(), T, Mode::IS);
        transaction(locks, worker, &mut locks.owner(), T, Mode::IS);
        assert_eq!(counts(locks, worker).used, 1);
    });
}

#[test]
fn uncontended_locks_are_not_inherited() {
    on_all(Inheritance::Hot, |locks, worker| {
        let mut owner = locks.owner();
        for _ in 0..10 {
            transaction(locks, worker, &mut owner, T, Mode::IS);
        }
        let counts = counts(locks, worker);
        assert_eq!((counts.cold, counts.kept), (10, 0));
    });
}

#[test]
fn contended_locks_become_hot() {
    for kind in ManagerKind::ALL {
        if matches!(kind, ManagerKind::StagedPaper | ManagerKind::StagedOldest) {
            continue; // Its requests exchange the tail once, and are never contended.
        }
        let mut options = Options::tiny();
        (options.kind, options.inherit) = (kind, Inheritance::Hot);
        let locks = AnyManager::new(&options);
        let workers = Workers::with_seed(1);
        let inherited = AtomicBool::new(false);
        let end = Instant::now() + Duration::from_secs(20);
        thread::scope(|scope| {
            for _ in 0..4 {
                let (locks, inherited, worker) = (&locks, &inherited, workers.worker());
                scope.spawn(move || {
                    let mut owner = locks.owner();
                    while !inherited.load(Relaxed) && Instant::now() < end {
                        for _ in 0..100 {
                            owner.begin();
                            assert!(locks.try_lock(&worker, &mut owner, T, Mode::IS).is_held());
                            locks.release_all(&worker, &mut owner);
                        }
                        let used = counts(locks, &worker).used > 0;
                        inherited.fetch_or(used, Relaxed);
                    }
                });
            }
        });
        assert!(inherited.load(Relaxed), "{kind}");
        locks.verify(&workers.worker());
    }
}

/// A manager that stops every operation on `T` alone until it is told to go on, or for a while.
#[derive(Debug)]
struct Stopped {
    locks: AnyManager,
    reached: Sender<()>,
    go_on: Mutex<Receiver<()>>,
    stops: AtomicBool,
}

impl Stopped {
    fn stop(&self, name: Name) {
        if name == T && self.stops.load(Relaxed) {
            self.reached.send(()).expect("somebody looks");
            let go_on = self.go_on.lock().unwrap();
            let _ = go_on.recv_timeout(Duration::from_millis(200));
        }
    }
}

impl LockManager for Stopped {
    fn owner(&self) -> Owner {
        self.locks.owner()
    }

    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        if mode == Mode::X {
            self.stop(name);
        }
        self.locks.request(worker, owner, name, mode, patience)
    }

    fn cancel(&self, worker: &Worker, owner: &mut Owner) {
        self.locks.cancel(worker, owner);
    }

    fn end_wait(&self, worker: &Worker, ticket: WaitTicket, reason: RefusalReason) -> bool {
        self.locks.end_wait(worker, ticket, reason)
    }

    fn release(&self, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
        self.stop(name);
        self.locks.release(worker, owner, name)
    }

    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: LockSavepoint) {
        self.locks.release_since(worker, owner, savepoint);
    }

    fn release_all(&self, worker: &Worker, owner: &mut Owner) {
        self.locks.release_all(worker, owner);
    }

    fn inspect(&self, worker: &Worker) -> LockSnapshot {
        self.locks.inspect(worker)
    }

    fn deadlocks(&self) -> Vec<DeadlockCycle> {
        self.locks.deadlocks()
    }

    fn stats(&self, worker: &Worker) -> LockStats {
        self.locks.stats(worker)
    }

    fn verify(&self, worker: &Worker) {
        self.locks.verify(worker);
    }
}

/// A lock on `T` is left while a writer has found none and does not wait yet. It is being revoked,
/// and still in the queue, when the next transaction with that owner index begins to wait for a
/// lock of the writer. That looks like a cycle.
#[test]
fn a_lock_that_is_being_revoked_closes_no_cycle() {
    for kind in ManagerKind::ALL {
        // Over these managers tables are remembered, but not under inheritance.
        if kind.to_string().starts_with("direct") {
            continue;
        }
        let mut options = Options::tiny();
        options.kind = kind;
        let (reached, is_reached) = channel();
        let (goes_on, go_on) = channel();
        let stopped = Stopped {
            locks: AnyManager::new(&options),
            reached,
            go_on: Mutex::new(go_on),
            stops: AtomicBool::new(true),
        };
        let locks = Inherit::new(stopped, true);
        let workers = Workers::with_seed(1);
        let worker = workers.worker();
        let (locks, mut writer) = (&locks, locks.owner());
        assert!(
            locks
                .try_lock(&worker, &mut writer, OTHER, Mode::X)
                .is_held()
        );
        thread::scope(|scope| {
            let other = workers.worker();
            let place = scope.spawn(move || {
                let mut place = locks.owner();
                is_reached.recv().expect("the writer asks");
                assert!(locks.try_lock(&other, &mut place, T, Mode::IS).is_held());
                locks.release_all(&other, &mut place);
                goes_on.send(()).expect("the writer waits");
                is_reached.recv().expect("it takes away what is left");
                place.begin();
                let waits = locks.request(&other, &mut place, OTHER, Mode::X, WaitMode::Wait);
                assert!(matches!(waits, Reply::Waiting), "{kind}");
                let _ = goes_on.send(());
                place
            });
            let waits = locks.request(&worker, &mut writer, T, Mode::X, WaitMode::Wait);
            assert!(matches!(waits, Reply::Waiting), "{kind}");
            let mut place = place.join().expect("it waits");
            locks.inner().stops.store(false, Relaxed);
            assert_eq!(locks.stats(&worker).inheritance.revoked, 1, "{kind}");
            assert!(
                locks.deadlocks().is_empty(),
                "{kind}: a circle that is none"
            );
            assert!(locks.wait(&worker, &mut writer, None).is_held(), "{kind}");
            locks.release_all(&worker, &mut writer);
            assert!(locks.wait(&worker, &mut place, None).is_held(), "{kind}");
            locks.release_all(&worker, &mut place);
        });
        locks.verify(&worker);
    }
}
