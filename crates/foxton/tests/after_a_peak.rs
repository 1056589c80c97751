//! A peak of open transactions leaves little memory behind, for every lock manager.
//!
//! Allocated bytes are counted before the peak and after it, until the background thread has
//! dropped what the peak needed. Without that the bytes stay, and the test ends at its time limit.

use std::alloc::{GlobalAlloc, Layout, System};
use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use foxton::{Admission, Database, Durability, LockInheritance, Options, Table};

/// The system's allocator, with a count of allocated bytes.
struct Counting;

static OUT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all the work with the same arguments; the count does not
// touch allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        OUT.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract is the one that the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        OUT.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above; the memory was allocated there.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ROWS: Table<u64, u64> = Table::new("rows");

/// Transactions that are open at once.
const PEAK: u64 = 8_000;
const THREADS: u64 = 600;
/// Bytes that may stay of each of them: those of 100,000 are less than 64 MiB.
const KEPT_BYTES: usize = (64 << 20) / 100_000;
/// Bytes that may stay whatever the number: contexts for the next transactions, the requests of
/// `staged` for 512 threads, and the log of the test's own transactions.
const SLACK: usize = 12 << 20;
const LIMIT: Duration = Duration::from_secs(120);

fn open(manager: &str, inheritance: LockInheritance) -> Database {
    let mut options = Options::default();
    options.durability = Durability::None;
    options.lock_manager = manager.parse().unwrap();
    options.lock_inheritance = inheritance;
    options.admission = Admission::Unlimited; // So that no operation waits.
    Database::in_memory(options).unwrap()
}

fn update_often(db: &Database) {
    for key in 0..2_000 {
        db.run(|tx| tx.put(&ROWS, &(key % 100), &key)).unwrap();
    }
}

/// Opens many transactions, as tasks, each with an update of its own, and commits them.
fn peak_of_tasks(db: &Database) {
    let mut context = Context::from_waker(Waker::noop());
    let mut all: Vec<_> = (0..PEAK).map(|_| db.begin_async().unwrap()).collect();
    for (key, tx) in (0..).zip(&mut all) {
        let put = pin!(tx.put(&ROWS, &key, &1));
        assert!(put.poll(&mut context).is_ready());
    }
    for tx in all {
        assert!(pin!(tx.commit()).poll(&mut context).is_ready());
    }
    (0..PEAK).step_by(1_000).for_each(|from| {
        let mut keys = from..from + 1_000;
        db.run(|tx| keys.try_for_each(|key| tx.delete(&ROWS, &key).map(|_| ())))
            .unwrap();
    });
}

fn peak_of_threads(db: &Database) {
    let all_open = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for key in 0..THREADS {
            let all_open = &all_open;
            scope.spawn(move || {
                let mut tx = db.begin().unwrap();
                tx.put(&ROWS, &key, &1).unwrap();
                all_open.wait();
                tx.commit().unwrap();
            });
        }
    });
}

/// Panics unless a peak leaves little behind soon.
fn assert_little_is_left(db: &Database, name: &str, count: u64, peak: impl FnOnce(&Database)) {
    update_often(db);
    db.checkpoint().unwrap(); // The log in memory is cut.
    let before = OUT.load(Ordering::Relaxed);
    peak(db);
    db.checkpoint().unwrap();
    let at_end = OUT.load(Ordering::Relaxed).saturating_sub(before);
    let allowed = count as usize * KEPT_BYTES + SLACK;
    let began = Instant::now();
    let left = loop {
        db.run(|tx| tx.put(&ROWS, &1, &1)).unwrap();
        let left = OUT.load(Ordering::Relaxed).saturating_sub(before);
        if left <= allowed || began.elapsed() > LIMIT {
            break left;
        }
        thread::sleep(Duration::from_millis(50));
    };
    println!("{name}: {at_end} bytes after the peak of {count}, {left} later, {allowed} allowed");
    assert!(left <= allowed, "{name}: {left} bytes are left");
}

#[test]
fn little_memory_is_left_of_many_transactions() {
    let all = [
        "direct",
        "bucket",
        "global",
        "sharded",
        "staged",
        "staged:paper",
    ];
    let all = all.map(|manager| (manager, LockInheritance::Off));
    let inheriting = ["bucket", "staged"].map(|manager| (manager, LockInheritance::Always));
    for (manager, inheritance) in all.into_iter().chain(inheriting) {
        let db = open(manager, inheritance);
        let name = format!("{manager}, inheritance {inheritance}");
        assert_little_is_left(&db, &name, PEAK, peak_of_tasks);
        assert_eq!(db.run(|tx| tx.get(&ROWS, &PEAK)).unwrap(), None);
        db.verify();
    }
    let db = open("direct", LockInheritance::Off);
    assert_little_is_left(&db, "threads", THREADS, peak_of_threads);
    db.verify();
}
