//! Checks of a database in use: no finding in whole ones beside writers, and damage is found.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use foxton::device::MemoryDevice;
use foxton::{Database, Index, Options, Table};
use foxton_log::device::Device;

use crate::common::paged::tiny_pages;
use crate::common::random::Random;

const RESIDENT: Table<u64, [u8]> = Table::new("resident").resident();
const PAGED: Table<u64, [u8]> = Table::new("paged").paged();
const TABLES: [Table<u64, [u8]>; 2] = [RESIDENT, PAGED];
const BY_LENGTH: Index<u64, u64, [u8]> = Index::new("by length", &RESIDENT, |_, value, keys| {
    keys.add(&(value.len() as u64));
});
const BY_FIRST: Index<u8, u64, [u8]> = Index::new("by first", &PAGED, |_, value, keys| {
    if let Some(first) = value.first() {
        keys.add(first);
    }
});

fn options() -> Options {
    let mut options = tiny_pages(Options::tiny(), 64);
    options.lock_wait = Duration::from_millis(500);
    options
}

fn filled(device: &Arc<MemoryDevice>) -> Database {
    let db = Database::open_on(device.clone(), options()).unwrap();
    db.create_index(&BY_LENGTH).unwrap();
    db.create_index(&BY_FIRST).unwrap();
    for table in &TABLES {
        db.run(|tx| (0..400).try_for_each(|key| tx.put(table, &key, &[7; 100])))
            .unwrap();
        // Longer than a page.
        db.run(|tx| (400..410).try_for_each(|key| tx.put(table, &key, &[8; 5_000])))
            .unwrap();
    }
    db
}

fn change(db: &Database, random: &mut Random) {
    let mut tx = db.begin().unwrap();
    let changed = (0..20).try_for_each(|_| {
        let table = &TABLES[random.below(2) as usize];
        let key = random.below(500);
        let bytes = match random.below(30) {
            0 => 3_000,
            _ => random.below(150),
        };
        match random.below(3) {
            0 => tx.delete(table, &key).map(drop),
            _ => tx.put(table, &key, &vec![key as u8; bytes as usize]),
        }
    });
    match (changed, random.below(4)) {
        (Err(error), _) => assert!(error.is_retryable(), "{error}"),
        (Ok(()), 0) => tx.rollback(),
        (Ok(()), _) => tx.commit().unwrap(),
    }
}

#[test]
fn a_whole_database_has_no_findings_and_its_rows_are_counted() {
    let db = filled(&Arc::new(MemoryDevice::new()));
    let mut steps = Vec::new();
    let report = db.check_integrity_with(&mut |done, total| steps.push((done, total)));
    let report = report.unwrap();
    assert_eq!(report.findings, []);
    let tables = [("resident".to_owned(), 410), ("paged".to_owned(), 410)];
    assert_eq!(report.tables, tables);
    let pages = db.stats().pages.unwrap();
    assert_eq!(report.pages, pages.file_pages);
    assert!(steps.is_sorted() && steps.iter().all(|(done, total)| done <= total));
    assert!(
        steps
            .last()
            .is_some_and(|(done, total)| done * 10 >= total * 9),
        "{steps:?}"
    );
}

#[test]
fn nothing_is_found_while_transactions_go_on() {
    let db = filled(&Arc::new(MemoryDevice::new()));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (db, is_over) = (&db, &is_over);
        let writers: Vec<_> = (0..2)
            .map(|seed| {
                scope.spawn(move || {
                    let mut random = Random(seed);
                    while !is_over.load(Ordering::Relaxed) {
                        change(db, &mut random);
                    }
                })
            })
            .collect();
        for round in 0..6 {
            let report = db.check_integrity().unwrap();
            assert_eq!(report.findings, [], "round {round}");
            if round % 2 == 1 {
                db.checkpoint().unwrap();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
    });
    db.verify();
}

/// Bytes of the page file are damaged behind the back of the database.
#[test]
fn damaged_pages_are_found_and_named() {
    let device = Arc::new(MemoryDevice::new());
    drop(filled(&device));
    let db = Database::open_on(device.clone(), options()).unwrap();
    db.create_index(&BY_LENGTH).unwrap();
    db.create_index(&BY_FIRST).unwrap();
    let file = device.open("rows").unwrap();
    let (mut found, mut damaged) = (0, 0);
    for page in (3..db.stats().pages.unwrap().file_pages).step_by(7) {
        let at = page * 1024 + 500;
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 1], at).unwrap();
        let report = db.check_integrity();
        file.write_at(&byte, at).unwrap();
        damaged += 1;
        // A comparison of the index of a paged table fails where it meets the page.
        let Ok(report) = report else { continue };
        let is_named = |finding: &foxton::check::Finding| {
            finding.place == "rows" && finding.offset == Some(page * 1024)
        };
        assert!(
            report.findings.iter().any(is_named),
            "page {page}: {report:?}"
        );
        found += 1;
    }
    assert!(found > 10 && damaged > 10, "{found} of {damaged}");
    assert_eq!(db.check_integrity().unwrap().findings, []);
}

/// An index of a table in memory is compared while a transaction has changed the table and not
/// ended, and what is wrong with it is found.
#[test]
fn indexes_are_compared_beside_open_transactions() {
    static ADDED: AtomicU64 = AtomicU64::new(0);
    const NUMBERS: Table<u64, u64> = Table::new("numbers");
    const BY_SUM: Index<u64, u64, u64> = Index::new("by sum", &NUMBERS, |_, value, keys| {
        keys.add(&(value + ADDED.load(Ordering::Relaxed)));
    });
    let db = Database::in_memory(options()).unwrap();
    db.create_index(&BY_SUM).unwrap();
    db.run(|tx| (0..1_000).try_for_each(|key| tx.put(&NUMBERS, &key, &(10 * key))))
        .unwrap();
    let mut open = db.begin().unwrap();
    open.put(&NUMBERS, &1, &5).unwrap();
    open.put(&NUMBERS, &2_000, &5).unwrap();
    open.delete(&NUMBERS, &2).unwrap();
    assert_eq!(db.check_indexes().unwrap(), []);
    assert_eq!(
        db.check_integrity().unwrap().tables,
        [("numbers".to_owned(), 1_000)]
    );
    open.commit().unwrap();
    assert_eq!(db.check_indexes().unwrap(), []);
    assert!(db.snapshots().is_empty());

    // The index is now as if it had been made from other rows.
    ADDED.store(1, Ordering::Relaxed);
    let findings = db.check_indexes().unwrap();
    assert_eq!(findings.len(), 101, "a hundred, and how many more");
    assert!(
        findings[0].what.contains("it is not in the index"),
        "{findings:?}"
    );
    assert!(
        findings[100].what.contains("1900 more"),
        "{:?}",
        findings[100]
    );
}
