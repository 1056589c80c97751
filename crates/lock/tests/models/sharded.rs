//! The signal from new waiters to the detector's thread, in every interleaving of the two with few
//! preemptions. No signal is lost if the thread ends the deadlocks, and a manager that is dropped
//! ends its thread.

use foxton_lock::{
    any::{AnyManager, ManagerKind, Options},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::Owner,
    request::{Outcome, RefusalReason, Reply, WaitMode},
};
use foxton_sync::worker::{Worker, Workers};

const A: Name = Name::table(1);
const B: Name = Name::table(2);

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(1);
    builder.check(body);
}

fn manager(kind: ManagerKind) -> (AnyManager, Worker) {
    let mut options = Options::tiny();
    (options.kind, options.bucket_count) = (kind, 1);
    options.own_threads = true;
    (AnyManager::new(&options), Workers::with_seed(1).worker())
}

fn holds(locks: &AnyManager, worker: &Worker, name: Name) -> Owner {
    let mut owner = locks.owner();
    assert!(locks.try_lock(worker, &mut owner, name, Mode::X).is_held());
    owner
}

fn waits(locks: &AnyManager, worker: &Worker, owner: &mut Owner, name: Name) {
    let reply = locks.request(worker, owner, name, Mode::X, WaitMode::Wait);
    assert!(matches!(reply, Reply::Waiting));
}

/// The waiter sleeps until the detector has ended its wait: for ever, if the signal were lost.
#[test]
fn a_signal_is_never_lost() {
    model(|| {
        let (locks, worker) = manager(ManagerKind::ShardedGlobalLatch);
        let (mut one, mut two) = (holds(&locks, &worker, A), holds(&locks, &worker, B));
        waits(&locks, &worker, &mut two, A);
        waits(&locks, &worker, &mut one, B);
        // With equal work the one that began later is the victim.
        let outcome = locks.wait(&worker, &mut two, None);
        let Outcome::Refused(refusal) = outcome else {
            panic!("the holder of A waits");
        };
        assert_eq!(refusal.reason, RefusalReason::Deadlock);
        locks.release_all(&worker, &mut two);
        assert!(locks.wait(&worker, &mut one, None).is_held());
        locks.release_all(&worker, &mut one);
        assert!(locks.inspect(&worker).queues.is_empty());
    });
}

/// The manager is dropped while its detector starts, checks, or sleeps.
#[test]
fn dropping_a_manager_ends_its_thread() {
    for kind in [ManagerKind::Sharded, ManagerKind::ShardedGlobalLatch] {
        model(move || {
            let (locks, worker) = manager(kind);
            let (mut one, mut two) = (holds(&locks, &worker, A), holds(&locks, &worker, B));
            waits(&locks, &worker, &mut two, A);
            waits(&locks, &worker, &mut one, B);
            drop(locks);
        });
    }
}
