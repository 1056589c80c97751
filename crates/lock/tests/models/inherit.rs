//! Leaving a lock to be inherited against a conflicting request, in every interleaving of two
//! threads.
//!
//! The model is the whole of inheritance over the whole of a manager with a parking latch (a mutex,
//! to the model). If a lock were left unseen, its waiter would sleep for ever, which the model
//! checker reports.

use foxton_lock::{
    any::{AnyManager, Inheritance, ManagerKind, Options},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::Owner,
};
use foxton_sync::{
    shim::{Arc, AtomicU64, Ordering::Relaxed},
    worker::{Worker, Workers},
};

const T: Name = Name::table(1);

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(body);
}

/// A manager, two workers, and the number of threads inside beside a writer.
struct World {
    locks: AnyManager,
    inside: AtomicU64,
}

fn world() -> (Arc<World>, Worker, Worker) {
    let mut options = Options::tiny();
    (options.kind, options.bucket_count) = (ManagerKind::Bucket, 1);
    options.inherit = Inheritance::Always;
    let workers = Workers::with_seed(1);
    let (locks, inside) = (AnyManager::new(&options), AtomicU64::new(0));
    let world = Arc::new(World { locks, inside });
    (world, workers.worker(), workers.worker())
}

impl World {
    /// Runs a transaction that waits for as long as it takes.
    fn transaction(&self, worker: &Worker, owner: &mut Owner, mode: Mode) {
        assert!(self.locks.lock(worker, owner, T, mode, None).is_held());
        let inside = self.inside.fetch_add(1, Relaxed);
        assert!(inside == 0, "L1: somebody beside a writer");
        self.inside.fetch_sub(1, Relaxed);
        self.locks.release_all(worker, owner);
    }
}

#[test]
fn an_inherited_lock_is_found_by_a_conflicting_request() {
    model(|| {
        let (world, worker, other) = world();
        let (mut reader, mut writer) = (world.locks.owner(), world.locks.owner());
        assert!(
            world
                .locks
                .try_lock(&worker, &mut reader, T, Mode::IS)
                .is_held()
        );
        let leaver = {
            let world = world.clone();
            loom::thread::spawn(move || world.locks.release_all(&other, &mut reader))
        };
        world.transaction(&worker, &mut writer, Mode::X);
        leaver.join().unwrap();
        world.locks.verify(&worker);
    });
}

#[test]
fn an_inherited_lock_is_either_used_or_revoked() {
    model(|| {
        let (world, worker, other) = world();
        let (mut reader, mut writer) = (world.locks.owner(), world.locks.owner());
        world.transaction(&worker, &mut reader, Mode::IS);
        let heir = {
            let world = world.clone();
            loom::thread::spawn(move || world.transaction(&other, &mut reader, Mode::IS))
        };
        world.transaction(&worker, &mut writer, Mode::X);
        heir.join().unwrap();
        world.locks.verify(&worker);
    });
}
