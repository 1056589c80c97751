//! No memory of a database outlives it: a program that opens and closes databases does not grow.
//!
//! A program of its own, because its allocator counts for the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use foxton::{Admission, Database, Durability, Index, LockManagerKind, Options, Table};

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

const ROWS: Table<u64, Vec<u8>> = Table::new("rows");
const BY_VALUE: Index<[u8], u64, Vec<u8>> =
    Index::new("rows_by_value", &ROWS, |_, value, keys| keys.add(value));
const BY_LENGTH: Index<u64, u64, Vec<u8>> =
    Index::new("rows_by_length", &ROWS, |_, value, keys| {
        keys.add(&(value.len() as u64));
    });

/// Bytes of the rows alone.
const ROW_BYTES: usize = 512 << 10;
const THREADS: usize = 3_000;

/// Fills a database; reads, changes and deletes rows from several threads; rolls a transaction
/// back, drops an index, and closes the database.
fn one_day(change: impl Fn(&mut Options)) {
    let mut options = Options::tiny();
    options.durability = Durability::Buffered;
    options.indexes.add(&BY_VALUE).add(&BY_LENGTH);
    change(&mut options);
    let db = Database::in_memory(options).unwrap();
    thread::scope(|scope| {
        for part in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for key in (0..512).map(|key| key * 4 + part) {
                    let value = vec![u8::try_from(key % 251).unwrap(); 256];
                    db.run(|tx| tx.put(&ROWS, &key, &value)).unwrap();
                    db.run(|tx| tx.get(&ROWS, &key)).unwrap();
                    if key % 8 == part {
                        db.run(|tx| tx.delete(&ROWS, &key)).unwrap();
                    }
                }
            });
        }
    });
    let mut tx = db.begin().unwrap();
    tx.put(&ROWS, &1, &vec![9; 300]).unwrap();
    drop(tx);
    db.drop_index(BY_LENGTH.name()).unwrap();
    db.checkpoint().unwrap();
}

/// Returns by how much allocated memory grows over `days` repetitions. A first one allocates what a
/// process needs once.
fn grows_by(days: usize, change: impl Fn(&mut Options)) -> usize {
    one_day(&change);
    let before = OUT.load(Ordering::Relaxed);
    (0..days).for_each(|_| one_day(&change));
    OUT.load(Ordering::Relaxed).saturating_sub(before)
}

/// Returns by how much allocated memory grows when `threads` threads use one database one after the
/// other, and as many before that.
fn grows_by_threads(threads: usize) -> usize {
    let db = Database::in_memory(Options::tiny()).unwrap();
    let come_and_go = || {
        for _ in 0..threads {
            thread::scope(|scope| {
                let writes = || db.run(|tx| tx.put(&ROWS, &1, &vec![1]));
                scope.spawn(writes).join().unwrap().unwrap();
            });
        }
        db.checkpoint().unwrap();
        OUT.load(Ordering::Relaxed)
    };
    let before = come_and_go();
    come_and_go().saturating_sub(before)
}

/// A single test, because the count is for the whole process.
#[test]
fn memory_grows_neither_with_closed_databases_nor_with_ended_threads() {
    let grew = grows_by_threads(THREADS);
    // Their values wait to be freed, at most a mebibyte of them.
    assert!(
        grew < THREADS * 64,
        "{grew} bytes more after {THREADS} threads"
    );
    let managers = ["direct", "bucket", "global", "staged", "sharded"];
    for manager in managers.map(|name| name.parse::<LockManagerKind>().unwrap()) {
        for admission in [Admission::Unlimited, Admission::Adaptive] {
            let grew = grows_by(4, |options| {
                options.lock_manager = manager;
                options.admission = admission;
            });
            // Leftovers of ended threads may vary; a thousandth of a database may not be lost.
            assert!(
                grew < ROW_BYTES / 64,
                "{manager}, {admission}: {grew} bytes more after four databases of {ROW_BYTES} bytes"
            );
        }
    }
}
