//! A peak of open transactions leaves little memory behind, and so do rows that were deleted.
//!
//! Allocated bytes are counted before the peak and after it, until the background thread has
//! dropped what the peak needed, for every lock manager. Resident bytes are more than that, because
//! an allocator keeps what is freed, and a small object keeps its page. Without the mend the bytes
//! stay, and the test ends at its time limit.

use std::alloc::{GlobalAlloc, Layout, System};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
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
/// Bytes that may stay resident beyond those that were before. Of 24,000 transactions over
/// `direct`, one small object in each bucket of the lock table would keep more.
const RESIDENT_SLACK: usize = 18 << 20;
/// Bytes that may stay of each of them: those of 100,000 are less than 64 MiB.
const KEPT_BYTES: usize = (64 << 20) / 100_000;
/// Bytes that may stay whatever the number: contexts for the next transactions, the requests of
/// `staged` for 512 threads, and the log of the test's own transactions.
const SLACK: usize = 12 << 20;
const LIMIT: Duration = Duration::from_secs(120);

/// One test at a time, because they count for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

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
fn peak_of_tasks(db: &Database, count: u64) {
    let mut context = Context::from_waker(Waker::noop());
    let mut all: Vec<_> = (0..count).map(|_| db.begin_async().unwrap()).collect();
    for (key, tx) in (0..).zip(&mut all) {
        let put = pin!(tx.put(&ROWS, &key, &1));
        assert!(put.poll(&mut context).is_ready());
    }
    for tx in all {
        assert!(pin!(tx.commit()).poll(&mut context).is_ready());
    }
    (0..count).step_by(1_000).for_each(|from| {
        let mut keys = from..from + 1_000;
        db.run(|tx| keys.try_for_each(|key| tx.delete(&ROWS, &key).map(|_| ())))
            .unwrap();
    });
}

/// Panics unless a peak leaves little behind soon.
fn assert_little_is_left(db: &Database, name: &str) {
    update_often(db);
    db.checkpoint().unwrap(); // The log in memory is cut.
    let before = OUT.load(Ordering::Relaxed);
    peak_of_tasks(db, PEAK);
    db.checkpoint().unwrap();
    let at_end = OUT.load(Ordering::Relaxed).saturating_sub(before);
    let allowed = PEAK as usize * KEPT_BYTES + SLACK;
    let began = Instant::now();
    let left = loop {
        db.run(|tx| tx.put(&ROWS, &1, &1)).unwrap();
        let left = OUT.load(Ordering::Relaxed).saturating_sub(before);
        if left <= allowed || began.elapsed() > LIMIT {
            break left;
        }
        thread::sleep(Duration::from_millis(50));
    };
    println!("{name}: {at_end} bytes after the peak, {left} later, {allowed} allowed");
    assert!(left <= allowed, "{name}: {left} bytes are left");
}

#[test]
fn little_memory_is_left_of_many_transactions() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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
        assert_little_is_left(&db, &name);
        assert_eq!(db.run(|tx| tx.get(&ROWS, &PEAK)).unwrap(), None);
        db.verify();
    }
}

#[cfg(target_os = "linux")]
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident = pages.split_whitespace().nth(1).unwrap();
    resident.parse::<usize>().unwrap() * 4096
}

/// Panics unless little memory is resident soon beyond `before`.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn assert_little_is_resident(name: &str, before: usize) {
    let at_end = resident().saturating_sub(before);
    let began = Instant::now();
    let left = loop {
        let left = resident().saturating_sub(before);
        if left <= RESIDENT_SLACK || began.elapsed() > LIMIT {
            break left;
        }
        thread::sleep(Duration::from_millis(50));
    };
    println!("{name}: {at_end} resident bytes at the end, {left} later, {RESIDENT_SLACK} allowed");
    assert!(left <= RESIDENT_SLACK, "{name}: {left} bytes are resident");
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn little_memory_stays_resident_after_a_peak() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for manager in ["direct", "sharded", "staged"] {
        let db = open(manager, LockInheritance::Off);
        update_often(&db);
        let before = resident();
        peak_of_tasks(&db, 3 * PEAK);
        assert_little_is_resident(manager, before);
    }
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn little_memory_stays_resident_after_all_rows_are_gone() {
    const WIDE: Table<u64, [u8; 200]> = Table::new("wide");
    const COUNT: u64 = 400_000;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let db = open("direct", LockInheritance::Off);
    update_often(&db);
    let before = resident();
    let write = |db: &Database, keys: std::ops::Range<u64>| {
        let mut tx = db.begin().unwrap();
        for key in keys {
            tx.put(&WIDE, &key, &[1; 200]).unwrap();
        }
        tx
    };
    let batches = || (0..COUNT).step_by(1_000).map(|from| from..from + 1_000);
    batches().for_each(|keys| write(&db, keys).commit().unwrap());
    // Among them, so that the memory of the others does not end the heap.
    update_often(&db);
    assert!(
        resident() > before + 3 * RESIDENT_SLACK,
        "the rows are there"
    );
    batches().for_each(|mut keys| {
        db.run(|tx| keys.try_for_each(|key| tx.delete(&WIDE, &key).map(|_| ())))
            .unwrap();
    });
    assert_little_is_resident("deleted rows", before);
    // A transaction that is rolled back leaves as little.
    write(&db, 0..COUNT).rollback();
    assert_little_is_resident("rolled back rows", before);
}
