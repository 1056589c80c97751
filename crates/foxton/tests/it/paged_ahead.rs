//! Scans and reads of many keys of a paged table that is not in memory: pages are read ahead.

use std::sync::Arc;

use foxton::device::MemoryDevice;
use foxton::{Database, Options, Table};

use crate::common::paged::tiny_pages;

const ROWS: Table<u64, [u8]> = Table::new("rows").paged();
const COUNT: u64 = 4_000;

fn value(key: u64) -> Vec<u8> {
    vec![key as u8; 90]
}

/// Returns a database with rows, none of which is in memory.
fn cold(frames: usize) -> Database {
    let device = Arc::new(MemoryDevice::new());
    let options = tiny_pages(Options::tiny(), 1_200);
    let db = Database::open_on(device.clone(), options).unwrap();
    for first in (0..COUNT).step_by(100) {
        db.run(|tx| {
            (first..first + 100).try_for_each(|key| tx.put(&ROWS, &key, &value(key)).map(drop))
        })
        .unwrap();
    }
    db.close().unwrap();
    Database::open_on(device, tiny_pages(Options::tiny(), frames)).unwrap()
}

/// Pages that were read, and those that were read ahead.
fn reads(db: &Database) -> (u64, u64) {
    let pages = db.stats().pages.expect("a paged table");
    (pages.reads, pages.reads_ahead)
}

#[test]
fn a_scan_reads_most_pages_ahead_and_none_twice() {
    for reversed in [false, true] {
        let db = cold(1_200);
        let before = reads(&db);
        let rows: Vec<(u64, Vec<u8>)> = db
            .run(|tx| {
                let range = tx.range(&ROWS, ..);
                if !reversed {
                    return range.collect();
                }
                let mut rows = range.reversed().collect()?;
                rows.reverse();
                Ok(rows)
            })
            .unwrap();
        assert!(rows.into_iter().eq((0..COUNT).map(|key| (key, value(key)))));
        let (read, ahead) = (reads(&db).0 - before.0, reads(&db).1 - before.1);
        let file = db.stats().pages.unwrap();
        println!(
            "{read} pages, {ahead} of them ahead, {} in the file",
            file.file_pages
        );
        assert!(read <= file.file_pages - file.free_pages);
        assert!(ahead * 4 > read * 3, "{ahead} of {read} pages");
        db.verify();
    }
}

#[test]
fn a_short_scan_reads_one_leaf() {
    let db = cold(1_200);
    db.run(|tx| tx.get(&ROWS, &0).map(drop)).unwrap();
    let before = reads(&db);
    let found = db.run(|tx| tx.range(&ROWS, 2_000..).limit(3).count());
    assert_eq!(found.unwrap(), 3);
    let read = reads(&db).0 - before.0;
    assert!(read <= 4, "{read} pages for three rows");
}

#[test]
fn a_read_of_many_keys_reads_its_leaves_together() {
    let db = cold(1_200);
    let keys: Vec<u64> = (0..200).map(|at| 100 + at * 19 % COUNT).collect();
    let before = reads(&db);
    let found = db.run(|tx| tx.get_many(&ROWS, &keys)).unwrap();
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found, Some(value(*key)));
    }
    let (read, ahead) = (reads(&db).0 - before.0, reads(&db).1 - before.1);
    println!("{read} pages, {ahead} of them ahead");
    assert!(ahead * 2 > read, "{ahead} of {read} pages");
    // A task does the same.
    let db = cold(1_200);
    let before = reads(&db).1;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let found = runtime.block_on(async {
        let mut tx = db.begin_async()?;
        tx.get_many(&ROWS, &keys).await
    });
    assert_eq!(found.unwrap().len(), keys.len());
    assert!((reads(&db).1 - before) * 2 > read);
    db.verify();
}
