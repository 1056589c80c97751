//! Who waits for the log is woken, and who read what is not durable is not answered before it is.
//!
//! A database is two numbers here: a row, with the end of the commit that wrote it, behind a mutex that
//! is its lock; and what the disk has.
#![cfg(loom)]

use foxton_log::{Lsn, model::DurableModel};
use foxton_sync::shim::{Arc, AtomicU64, Mutex, Ordering::Relaxed, lock, thread};
use foxton_sync::worker::Workers;

/// Threads are interrupted at most twice in each history: their workers take part in much else.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

#[test]
fn i1_who_waits_is_woken() {
    check(|| {
        let workers = Workers::new();
        let durable = Arc::new(DurableModel::default());
        let flusher = {
            let (durable, worker) = (durable.clone(), workers.worker());
            thread::spawn(move || durable.complete(&worker, Lsn::new(1)))
        };
        // A wake-up that is lost is a deadlock, which the checker finds.
        durable.wait(&workers.worker(), Lsn::new(1));
        flusher.join().unwrap();
    });
}

/// Where the record of the only commit ends.
const END: u64 = 5;

#[derive(Default)]
struct Scene {
    durable: DurableModel,
    /// The lock on the row, and the row.
    row: Mutex<u64>,
    /// The row's anchor.
    anchor: AtomicU64,
    /// Where the log ends, in memory.
    log: Mutex<u64>,
    disk: Mutex<u64>,
}

impl Scene {
    /// A commit up to where its locks are gone.
    fn write(&self) {
        let mut row = lock(&self.row);
        *row = 7;
        *lock(&self.log) = END;
        self.anchor.store(END, Relaxed); // Relaxed: ordered by the lock.
    }

    fn flush(&self, workers: &Workers) {
        let end = *lock(&self.log);
        *lock(&self.disk) = end;
        self.durable.complete(&workers.worker(), Lsn::new(end));
    }

    /// A transaction that only reads. `waits`: whether it waits for what it has seen.
    fn read(&self, workers: &Workers, waits: bool) {
        let (row, newest) = {
            let row = lock(&self.row);
            (*row, self.anchor.load(Relaxed)) // Relaxed: ordered by the lock.
        };
        if waits {
            self.durable.wait(&workers.worker(), Lsn::new(newest));
        }
        // It is answered. The power goes.
        let kept = *lock(&self.disk) >= END;
        assert!(
            row == 0 || kept,
            "it was answered, and what it read is lost"
        );
    }
}

fn play(waits: bool) {
    check(move || {
        let workers = Workers::new();
        let scene = Arc::new(Scene::default());
        let writer = {
            let (scene, workers) = (scene.clone(), workers.clone());
            thread::spawn(move || {
                scene.write();
                scene.flush(&workers);
            })
        };
        scene.read(&workers, waits);
        writer.join().unwrap();
    });
}

#[test]
fn d1_who_reads_what_is_not_durable_is_answered_when_it_is() {
    play(true);
}

#[test]
#[should_panic(expected = "what it read is lost")]
fn without_waiting_it_would_be_answered_before() {
    play(false);
}
