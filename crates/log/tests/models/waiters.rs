//! Models of the waiters: a waiting thread is woken, and a reader of an undurable row is answered
//! only once the row is durable.
//!
//! Here a database is two numbers: a row, with the end of the commit that wrote it, behind a mutex
//! that is its lock; and what the disk has.

use foxton_log::{Lsn, model::DurableModel};
use foxton_sync::shim::{Arc, AtomicU64, Mutex, Ordering::Relaxed, lock, thread};
use foxton_sync::worker::Workers;

/// Each history has at most two preemptions, because workers take part in much else.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

#[test]
fn i1_a_waiting_thread_is_woken() {
    check(|| {
        let workers = Workers::new();
        let durable = Arc::new(DurableModel::default());
        let flusher = {
            let (durable, worker) = (durable.clone(), workers.worker());
            thread::spawn(move || durable.complete(&worker, Lsn::new(1)))
        };
        // A lost wake-up is a deadlock, which loom finds.
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
    /// A commit until its locks are released.
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

    /// A transaction that only reads. `waits`: whether it waits until what it has read is durable.
    fn read(&self, workers: &Workers, waits: bool) {
        let (row, newest) = {
            let row = lock(&self.row);
            (*row, self.anchor.load(Relaxed)) // Relaxed: ordered by the lock.
        };
        if waits {
            self.durable.wait(&workers.worker(), Lsn::new(newest));
        }
        // The reader is answered, and then the power fails.
        let kept = *lock(&self.disk) >= END;
        assert!(
            row == 0 || kept,
            "the reader was answered, and what it read is lost"
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
fn d1_a_reader_of_an_undurable_row_is_answered_when_it_is_durable() {
    play(true);
}

#[test]
#[should_panic(expected = "what it read is lost")]
fn without_waiting_the_reader_would_be_answered_before() {
    play(false);
}
