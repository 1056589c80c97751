//! Shared parts of the models of whole managers.
//!
//! A dropped worker gives back its slots, and each step of that is one more place where the checker
//! may switch threads. So a thread returns its worker when it is joined, and the workers are
//! dropped in one thread.

#![allow(dead_code, unreachable_pub, reason = "each model uses what it needs")]

use foxton_lock::{
    any::{AnyManager, ManagerKind, Options},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::Owner,
    request::{Outcome, RefusalReason, Reply, WaitMode},
};
use foxton_sync::{
    shim::{Arc, thread},
    worker::{Worker, Workers},
};

pub const A: Name = Name::table(1);
pub const B: Name = Name::table(2);

/// Runs every interleaving with two preemptions at most, as crossbeam does.
pub fn model(body: impl Fn() + Send + Sync + 'static) {
    model_within(2, body);
}

/// Runs every interleaving with `preemptions` at most.
pub fn model_within(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

/// Returns a manager of one chain or bucket, and two workers.
pub fn manager(kind: ManagerKind) -> (Arc<AnyManager>, Worker, Worker) {
    let (locks, workers) = manager_for(kind);
    (locks, workers.worker(), workers.worker())
}

/// The same for more than two workers.
pub fn manager_for(kind: ManagerKind) -> (Arc<AnyManager>, Workers) {
    let mut options = Options::tiny();
    (options.kind, options.bucket_count) = (kind, 1);
    (Arc::new(AnyManager::new(&options)), Workers::with_seed(1))
}

pub fn holds(locks: &AnyManager, worker: &Worker, owner: &mut Owner, name: Name, mode: Mode) {
    assert!(locks.try_lock(worker, owner, name, mode).is_held());
}

pub fn waits(locks: &AnyManager, worker: &Worker, owner: &mut Owner, name: Name) {
    let reply = locks.request(worker, owner, name, Mode::X, WaitMode::Wait);
    assert!(matches!(reply, Reply::Waiting));
}

pub fn nobody_is_left(locks: &AnyManager, worker: &Worker) {
    locks.verify(worker);
    assert!(locks.inspect(worker).queues.is_empty());
}

/// A thread with its worker.
pub struct Beside<T>(thread::JoinHandle<(T, Worker)>);

impl<T> Beside<T> {
    pub fn join(self) -> T {
        self.0.join().unwrap().0
    }
}

/// Runs `body` in a thread beside the caller.
pub fn beside<T: 'static>(
    locks: &Arc<AnyManager>,
    worker: Worker,
    body: impl FnOnce(&AnyManager, &Worker) -> T + 'static,
) -> Beside<T> {
    let locks = locks.clone();
    Beside(thread::spawn(move || (body(&locks, &worker), worker)))
}

/// Releases all that `owner` holds, beside the caller.
pub fn released(locks: &Arc<AnyManager>, worker: Worker, mut owner: Owner) -> Beside<Owner> {
    beside(locks, worker, move |locks, worker| {
        locks.release_all(worker, &mut owner);
        owner
    })
}

/// Requests what the other has, and returns true if it was the victim.
pub fn cross(locks: &AnyManager, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
    let outcome = locks.lock(worker, owner, name, Mode::X, None);
    let lost = match outcome {
        Outcome::Refused(refusal) => {
            assert_eq!(refusal.reason, RefusalReason::Deadlock);
            true
        }
        _ => false,
    };
    locks.release_all(worker, owner);
    lost
}
