//! Indexes of paged tables: their entries are stored, and a crash at any moment leaves them as the
//! committed rows want them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use foxton::device::MemoryDevice;
use foxton::progress::ProgressCall;
use foxton::{Database, Index, Options, Result, Table};
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::FaultDevice;

use crate::common::paged::tiny_pages;

const ROWS: Table<u64, u64> = Table::new("rows").paged();
/// Each row by its value.
const BY_VALUE: Index<u64, u64, u64> = Index::new("by_value", &ROWS, |_, value, keys| {
    keys.add(value);
});
/// Each row by its value, which no other row has.
const BY_OWN_VALUE: Index<u64, u64, u64> =
    Index::unique("by_own_value", &ROWS, |_, value, keys| {
        keys.add(value);
    });

fn options() -> Options {
    tiny_pages(Options::tiny(), 16)
}

fn with_both() -> Options {
    let mut options = options();
    options.indexes.add(&BY_VALUE).add(&BY_OWN_VALUE);
    options
}

fn damages() -> Vec<Damage> {
    let all = Damage::ALL.into_iter();
    all.filter(|damage| !damage.harms_durable()).collect()
}

/// Checks that the rows are `expected`, as the table and each index has them.
fn check(db: &Database, expected: &[(u64, u64)]) {
    assert_eq!(db.check_indexes().unwrap(), []);
    db.run(|tx| {
        assert_eq!(tx.range(&ROWS, ..).collect()?, expected);
        let mut by_value: Vec<_> = expected.iter().map(|&(key, value)| (value, key)).collect();
        by_value.sort_unstable();
        for index in [&BY_VALUE, &BY_OWN_VALUE] {
            let found = tx.range_by(index, ..).collect()?.into_iter();
            let found: Vec<_> = found.map(|(value, key, _)| (value, key)).collect();
            assert_eq!(found, by_value);
        }
        Ok(())
    })
    .unwrap();
    db.verify();
}

/// Opening does not look at the rows: the function of the index is not called.
#[test]
fn entries_are_stored_and_not_made_anew() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    const COUNTED: Index<u64, u64, u64> = Index::new("counted", &ROWS, |_, value, keys| {
        CALLS.fetch_add(1, Ordering::Relaxed);
        keys.add(value);
    });
    let device = FaultDevice::new();
    let mut options = options();
    options.indexes.add(&COUNTED);
    let db = Database::open_on(Arc::new(device.clone()), options.clone()).unwrap();
    for first in (0..300).step_by(30) {
        db.run(|tx| (first..first + 30).try_for_each(|key| tx.put(&ROWS, &key, &(key / 2))))
            .unwrap();
    }
    assert_eq!(CALLS.load(Ordering::Relaxed), 300);
    // The power fails once, and once the database is closed.
    let image = device.crash(Damage::ALL[0], 1);
    drop(db);
    for image in [image, device.crash(Damage::ALL[0], 2)] {
        CALLS.store(0, Ordering::Relaxed);
        let db = Database::open_on(Arc::new(image), options.clone()).unwrap();
        let rows = db.run(|tx| tx.all_by(&COUNTED, &77).collect()).unwrap();
        assert_eq!(rows, [(77, 154, 77), (77, 155, 77)]);
        assert_eq!(db.run(|tx| tx.range_by(&COUNTED, ..).count()).unwrap(), 300);
        assert_eq!(CALLS.load(Ordering::Relaxed), 0);
        assert_eq!(db.check_indexes().unwrap(), []);
    }
}

/// A restart undoes the entries of a transaction that did not commit: those that came, those that
/// went, and those that got their value back before.
#[test]
fn entries_of_an_open_transaction_are_undone_by_a_restart() {
    for damage in damages() {
        let device = FaultDevice::new();
        let db = Database::open_on(Arc::new(device.clone()), with_both()).unwrap();
        let rows: Vec<_> = (0..60).map(|key| (key, 1000 + key)).collect();
        db.run(|tx| {
            rows.iter()
                .try_for_each(|(key, value)| tx.put(&ROWS, key, value))
        })
        .unwrap();
        let mut tx = db.begin().unwrap();
        for key in (0..60).step_by(3) {
            tx.put(&ROWS, &key, &(2000 + key)).unwrap();
            tx.delete(&ROWS, &(key + 1)).unwrap();
        }
        tx.put(&ROWS, &100, &1001).unwrap();
        tx.put(&ROWS, &3, &1003).unwrap();
        let savepoint = tx.savepoint().unwrap();
        tx.put(&ROWS, &6, &3000).unwrap();
        tx.rollback_to(&savepoint).unwrap();
        // So that pages and log records of the open transaction are durable.
        db.checkpoint().unwrap();
        db.run(|tx| tx.put(&Table::<u64, u64>::new("other"), &1, &1))
            .unwrap();
        let image = device.crash(damage, 7);
        drop((tx, db));
        let db = Database::open_on(Arc::new(image), with_both()).unwrap();
        check(&db, &rows);
        // Values that are free again, and some of ghosts that the restart left.
        db.run(|tx| (0..60).try_for_each(|key| tx.put(&ROWS, &key, &(2000 + key))))
            .unwrap();
        let rows: Vec<_> = (0..60).map(|key| (key, 2000 + key)).collect();
        check(&db, &rows);
    }
}

/// The power fails while an index is filled, with all of its pages and records durable. No index is
/// there afterwards, and it can be created.
#[test]
fn an_index_that_was_not_finished_is_not_there() {
    let device = FaultDevice::new();
    let mut large = options();
    large.page_memory = 1 << 20;
    let db = Database::open_on(Arc::new(device.clone()), large.clone()).unwrap();
    let rows: Vec<_> = (0..20_000).map(|key| (key, 50_000 - key)).collect();
    for rows in rows.chunks(2_000) {
        db.run(|tx| {
            rows.iter()
                .try_for_each(|(key, value)| tx.put(&ROWS, key, value))
        })
        .unwrap();
    }
    let images = Arc::new(Mutex::new(Vec::new()));
    let call = {
        let (images, device) = (images.clone(), device.clone());
        let db = db.clone();
        ProgressCall::new(move |progress| {
            if progress.done > 0 && images.lock().unwrap().is_empty() {
                db.checkpoint().unwrap();
                *images.lock().unwrap() = damages()
                    .into_iter()
                    .map(|damage| device.crash(damage, 3))
                    .collect();
            }
        })
    };
    db.create_index_with(&BY_VALUE, &call).unwrap();
    db.create_index(&BY_OWN_VALUE).unwrap();
    check(&db, &rows);
    drop(call);
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(!images.is_empty(), "the power failed while it was filled");
    for image in images {
        let db = Database::open_on(Arc::new(image), large.clone()).unwrap();
        assert!(db.indexes().is_empty());
        db.create_index(&BY_VALUE).unwrap();
        db.create_index(&BY_OWN_VALUE).unwrap();
        check(&db, &rows);
    }
}

/// An index that is created again under its old name has a tree of its own. Names and trees stay
/// apart through restarts.
#[test]
fn an_index_of_the_same_name_begins_anew() {
    let mut image = MemoryDevice::new();
    let mut rows: Vec<(u64, u64)> = Vec::new();
    for opening in 0..4 {
        let device = FaultDevice::holding(&image);
        let db = Database::open_on(Arc::new(device.clone()), with_both()).unwrap();
        check(&db, &rows);
        // Not in the next index, because it does not exist meanwhile.
        assert!(db.drop_index("by_value").unwrap());
        let change = |tx: &mut foxton::Transaction| -> Result<()> {
            rows.iter()
                .try_for_each(|(key, _)| tx.delete(&ROWS, key).map(drop))?;
            (0..20).try_for_each(|key| tx.put(&ROWS, &(opening * 100 + key), &(key * opening)))
        };
        let outcome = db.run(change);
        // The values of the first opening are equal.
        match opening {
            0 => assert_eq!(outcome.unwrap_err().code(), "index_key_exists"),
            _ => {
                outcome.unwrap();
                rows = (0..20)
                    .map(|key| (opening * 100 + key, key * opening))
                    .collect();
            }
        }
        db.create_index(&BY_VALUE).unwrap();
        check(&db, &rows);
        if opening % 3 == 2 {
            // The next opening makes it, and must not find the entries of this one.
            assert!(db.drop_index("by_value").unwrap());
            let (key, value) = rows.pop().unwrap();
            db.run(|tx| tx.delete(&ROWS, &key)).unwrap();
            rows.push((key + 1, value));
            db.run(|tx| tx.put(&ROWS, &(key + 1), &value)).unwrap();
        }
        // The database is closed, or the power fails while it is open.
        let open = (opening % 2 == 1).then(|| db.clone());
        drop(db);
        image = device.crash(Damage::ALL[0], opening);
        drop(open);
    }
}

/// An index that is not declared has its entries until the first write, and is built anew when it
/// is declared again. Meanwhile nobody reads by it. The power fails at each step.
#[test]
fn a_write_makes_an_undeclared_index_stale_until_it_is_declared() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    const COUNTED: Index<u64, u64, u64> = Index::new("counted", &ROWS, |_, value, keys| {
        CALLS.fetch_add(1, Ordering::Relaxed);
        keys.add(value);
    });
    let with_index = || {
        let mut with = options();
        with.indexes.add(&COUNTED);
        with
    };
    let entries = |db: &Database| {
        let found = db.run(|tx| tx.range_by(&COUNTED, ..).collect()).unwrap();
        assert_eq!(db.check_indexes().unwrap(), []);
        let mut found: Vec<_> = found
            .into_iter()
            .map(|(value, key, _)| (key, value))
            .collect();
        found.sort_unstable();
        found
    };
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), with_index()).unwrap();
    let mut rows: Vec<_> = (0..400).map(|key| (key, 1000 - key)).collect();
    db.run(|tx| {
        rows.iter()
            .try_for_each(|(key, value)| tx.put(&ROWS, key, value))
    })
    .unwrap();
    drop(db);
    let is_stale = |db: &Database| db.indexes()[0].is_stale;
    // Reads leave it as it is, and so does a write that is refused for another reason.
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    assert_eq!(db.run(|tx| tx.range(&ROWS, ..).count()).unwrap(), 400);
    assert!(!is_stale(&db));
    drop(db);
    CALLS.store(0, Ordering::Relaxed);
    let db = Database::open_on(Arc::new(device.clone()), with_index()).unwrap();
    assert_eq!(db.run(|tx| tx.range_by(&COUNTED, ..).count()).unwrap(), 400);
    assert_eq!(CALLS.load(Ordering::Relaxed), 0, "it has its entries");
    drop(db);
    // The first write makes it stale, whether it commits or not; eight threads are the first.
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&ROWS, &7, &1).unwrap();
    assert!(is_stale(&db));
    tx.rollback();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let db = &db;
            scope.spawn(move || {
                for key in (thread..400).step_by(8) {
                    db.run(|tx| tx.put(&ROWS, &key, &(2000 + key))).unwrap();
                }
            });
        }
    });
    rows = (0..400).map(|key| (key, 2000 + key)).collect();
    let read = db.run(|tx| tx.range_by(&COUNTED, ..).count());
    assert_eq!(read.unwrap_err().code(), "index_not_open");
    db.sync().unwrap();
    let images: Vec<_> = damages()
        .into_iter()
        .map(|damage| device.crash(damage, 5))
        .collect();
    for image in images {
        // Not declared after the kill either.
        let between = FaultDevice::holding(&image);
        let db = Database::open_on(Arc::new(between.clone()), options()).unwrap();
        assert!(is_stale(&db));
        db.run(|tx| tx.put(&ROWS, &0, &2000)).unwrap();
        drop(db);
        let db = Database::open_on(Arc::new(between), with_index()).unwrap();
        assert_eq!(entries(&db), rows);
        db.verify();
    }
    // Declared without another opening, by the database that has made it stale.
    db.create_index(&COUNTED).unwrap();
    assert_eq!(entries(&db), rows);
    db.run(|tx| tx.put(&ROWS, &3, &1)).unwrap();
    rows[3].1 = 1;
    assert_eq!(entries(&db), rows);
    db.verify();
}

/// All pages of a tree are free again after its index was dropped, became stale, or was not
/// finished.
#[test]
fn trees_of_no_index_are_gone() {
    let used = |db: &Database| {
        let pages = db.stats().pages.unwrap();
        pages.file_pages - pages.free_pages
    };
    let until_used = |db: &Database, expected: u64| {
        let begun = std::time::Instant::now();
        while used(db) > expected {
            let waited = begun.elapsed();
            assert!(waited.as_secs() < 20, "{} pages, not {expected}", used(db));
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(used(db), expected);
        db.verify();
    };
    let mut large = options();
    large.page_memory = 1 << 20;
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), large.clone()).unwrap();
    db.run(|tx| (0..3_000).try_for_each(|key| tx.put(&ROWS, &key, &(key % 1_500))))
        .unwrap();
    let without = used(&db);
    db.create_index(&BY_VALUE).unwrap();
    assert!(used(&db) > without + 20);
    assert!(db.drop_index("by_value").unwrap());
    assert_eq!(used(&db), without, "the call has freed them");
    db.verify();
    let refused = db.create_index(&BY_OWN_VALUE).unwrap_err();
    assert_eq!(refused.code(), "index_key_exists");
    assert!(refused.to_string().contains("by_own_value"), "{refused}");
    until_used(&db, without);
    drop(db);
    // A kill while an index is made in several lots, and the next opening.
    large.page_memory = 128 << 10;
    let db = Database::open_on(Arc::new(device.clone()), large.clone()).unwrap();
    let images = Arc::new(Mutex::new(Vec::new()));
    let call = {
        let (images, device, db) = (images.clone(), device.clone(), db.clone());
        ProgressCall::new(move |progress| {
            if progress.done == 3_000 && images.lock().unwrap().is_empty() {
                db.checkpoint().unwrap();
                images.lock().unwrap().push(device.crash(Damage::ALL[0], 3));
            }
        })
    };
    db.create_index_with(&BY_VALUE, &call).unwrap();
    drop((db, call));
    let image = images.lock().unwrap().pop().unwrap();
    let db = Database::open_on(Arc::new(image), large.clone()).unwrap();
    assert!(db.indexes().is_empty());
    until_used(&db, without);
    drop(db);
    // One becomes stale.
    let db = Database::open_on(Arc::new(device.clone()), large).unwrap();
    assert!(used(&db) > without + 20);
    db.run(|tx| tx.put(&ROWS, &0, &0)).unwrap();
    until_used(&db, without);
    db.create_index(&BY_VALUE).unwrap();
    assert_eq!(db.check_indexes().unwrap(), []);
}
