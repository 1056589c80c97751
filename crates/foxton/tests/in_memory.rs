//! Databases in memory keep rows and nothing else: neither a log nor checkpoints.
//!
//! A program of its own, because it counts all memory that is allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use foxton::{Database, Durability, Isolation, Options, Table};

const ROWS: Table<u64, u64> = Table::new("rows");

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: the system's allocator does all the work with the same arguments; the count does not
// touch allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller of this function promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller of this function promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocated() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}

fn options(durability: Durability) -> Options {
    let mut options = Options::default();
    options.durability = durability;
    options
}

/// One test, because another one beside it would allocate, too.
#[test]
fn a_database_in_memory_keeps_rows_and_nothing_else() {
    updates_of_one_row_take_no_memory();
    a_new_database_is_small();
    transactions_are_what_they_are_elsewhere();
}

fn updates_of_one_row_take_no_memory() {
    for durability in Durability::ALL {
        let db = Database::in_memory(options(durability)).unwrap();
        let update = |times: u64| {
            for value in 0..times {
                db.run(|tx| tx.put(&ROWS, &1, &value)).unwrap();
            }
        };
        update(10_000);
        let before = allocated();
        update(100_000);
        let grown = allocated().saturating_sub(before);
        assert!(grown < 1 << 20, "{grown} bytes for one row, {durability}");
        db.sync().unwrap();
        let made = db.checkpoint().unwrap();
        assert_eq!((made.layers, made.bytes, db.checkpoints().made), (0, 0, 0));
        let log = db.stats().log;
        assert_eq!(
            (log.records, log.bytes, log.writes, log.syncs),
            (0, 0, 0, 0)
        );
        let refused = db.backup_to(std::env::temp_dir().join("foxton-no-such-backup"));
        assert_eq!(refused.unwrap_err().code(), "in_memory");
        assert_eq!(db.run(|tx| tx.get(&ROWS, &1)).unwrap(), Some(99_999));
    }
}

fn a_new_database_is_small() {
    let before = allocated();
    let db = Database::in_memory(Options::default()).unwrap();
    let each = allocated() - before;
    // The buffer of a log alone has 4 MiB.
    assert!(each < 3 << 20, "{each} bytes for an empty database");
    drop(db);
}

fn transactions_are_what_they_are_elsewhere() {
    let db = Database::in_memory(options(Durability::Sync)).unwrap();
    db.run(|tx| (0..10).try_for_each(|key| tx.put(&ROWS, &key, &0).map(drop)))
        .unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&ROWS, &1, &7).unwrap();
    let savepoint = tx.savepoint().unwrap();
    tx.delete(&ROWS, &1).unwrap();
    tx.put(&ROWS, &20, &7).unwrap();
    tx.rollback_to(&savepoint).unwrap();
    assert_eq!(tx.get(&ROWS, &1).unwrap(), Some(7));
    assert_eq!(tx.get(&ROWS, &20).unwrap(), None);
    tx.rollback();
    assert_eq!(db.run(|tx| tx.get(&ROWS, &1)).unwrap(), Some(0));
    // Commits have their positions in the order in which they see each other.
    let ends = thread::scope(|scope| {
        let writing = (0..4).map(|_| {
            scope.spawn(|| {
                let mut ends = Vec::new();
                while ends.len() < 500 {
                    let mut tx = db.begin().unwrap();
                    let seen = tx.get_for_update(&ROWS, &1).unwrap().unwrap();
                    tx.put(&ROWS, &1, &(seen + 1)).unwrap();
                    ends.push((tx.commit_at().unwrap(), seen));
                }
                ends
            })
        });
        let writing: Vec<_> = writing.collect();
        let ends = writing
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        ends.collect::<std::collections::BTreeMap<_, _>>()
    });
    assert_eq!(
        ends.values().copied().collect::<Vec<_>>(),
        (0..2_000).collect::<Vec<_>>()
    );
    let mut reader = db.begin().unwrap();
    reader.set_isolation(Isolation::Serializable).unwrap();
    assert_eq!(reader.get(&ROWS, &1).unwrap(), Some(2_000));
    assert_eq!(Some(&reader.commit_at().unwrap()), ends.keys().last());
}
