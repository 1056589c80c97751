//! Paged tables from outside: they are declared, closed, opened again, and refused.

use std::sync::Arc;

use foxton::device::MemoryDevice;
use foxton::{Database, Error, Options, Table, TableComponent};
use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};

use crate::common::paged::tiny_pages;
use crate::common::scratch::Directory;

const PAGED: Table<u64, str> = Table::new("paged").paged();
const RESIDENT: Table<u64, str> = Table::new("resident").resident();
const UNDECLARED: Table<u64, str> = Table::new("paged");

fn options() -> Options {
    tiny_pages(Options::tiny(), 16)
}

fn fill(db: &Database, from: u64) {
    for first in (from..from + 200).step_by(20) {
        db.run(|tx| {
            for key in first..first + 20 {
                tx.put(&PAGED, &key, &format!("row {key} in pages"))?;
                tx.put(&RESIDENT, &key, &format!("row {key} in memory"))?;
            }
            Ok(())
        })
        .unwrap();
    }
}

fn check(db: &Database, count: u64) {
    let rows = db.run(|tx| tx.range(&PAGED, ..).collect()).unwrap();
    assert_eq!(rows.len() as u64, count);
    for (at, (key, value)) in rows.into_iter().enumerate() {
        assert_eq!((key, value), (at as u64, format!("row {at} in pages")));
    }
    let rows = db.run(|tx| tx.range(&RESIDENT, ..).count()).unwrap();
    assert_eq!(rows, count);
}

fn refused<T>(result: Result<T, Error>) -> &'static str {
    result.map(drop).unwrap_err().code()
}

#[test]
fn rows_are_there_after_closing_and_opening_again() {
    let scratch = Directory::new("paged");
    std::fs::create_dir(&scratch.0).unwrap();
    let path = scratch.0.join("db");
    for opening in 0..3 {
        let db = Database::open_with(&path, options()).unwrap();
        check(&db, opening * 200);
        fill(&db, opening * 200);
        db.verify();
        db.close().unwrap();
        let mut to_read = options();
        to_read.read_only = true;
        let db = Database::open_with(&path, to_read).unwrap();
        check(&db, (opening + 1) * 200);
        let write = db.run(|tx| tx.put(&PAGED, &1, "changed"));
        assert_eq!(refused(write), "opened_read_only");
        drop(db);
    }
    // A program that may write and only reads leaves pages that can be opened to be read.
    let db = Database::open_with(&path, options()).unwrap();
    check(&db, 600);
    db.close().unwrap();
    let mut to_read = options();
    to_read.read_only = true;
    check(&Database::open_with(&path, to_read).unwrap(), 600);
}

/// True if this process has the file open for calls past the page cache.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn is_open_direct(path: &std::path::Path) -> bool {
    const O_DIRECT: u32 = 0o40000;
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let of_file = open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to == path));
    of_file
        .filter_map(|entry| {
            let info = std::path::Path::new("/proc/self/fdinfo").join(entry.file_name());
            let info = std::fs::read_to_string(info).ok()?;
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
            u32::from_str_radix(flags.trim(), 8).ok()
        })
        .any(|flags| flags & O_DIRECT != 0)
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn pages_go_past_the_page_cache_or_through_it() {
    let scratch = Directory::new("paged-cached");
    std::fs::create_dir(&scratch.0).unwrap();
    let path = scratch.0.join("db");
    for (opening, cached_pages) in (0..).zip([false, true, false]) {
        let mut options = Options::tiny();
        options.cached_pages = cached_pages;
        let db = Database::open_with(&path, options).unwrap();
        check(&db, opening * 200);
        fill(&db, opening * 200);
        let files = ["rows", "rows-double"].map(|name| path.canonicalize().unwrap().join(name));
        for file in &files {
            assert!(file.exists());
            assert_eq!(is_open_direct(file), !cached_pages, "{}", file.display());
        }
        db.close().unwrap();
    }
}

#[test]
fn pages_that_lack_changes_are_not_read_by_one_that_may_not_write() {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    fill(&db, 0);
    let mut to_read = options();
    to_read.read_only = true;
    // The process ends while it has unwritten pages, or the power fails.
    for damage in [Damage::KeepAll, Damage::DropAll] {
        let image = Arc::new(device.crash(damage, 1));
        let refused = Database::open_on(image.clone(), to_read.clone()).unwrap_err();
        assert_eq!(refused.code(), "not_closed", "{damage}");
        let message = refused.to_string();
        assert!(
            message.contains("rows") && message.contains("written"),
            "{message}"
        );
        check(&Database::open_on(image.clone(), options()).unwrap(), 200);
        check(&Database::open_on(image, to_read.clone()).unwrap(), 200);
    }
}

#[test]
fn a_page_file_without_tables_is_made_anew() {
    let device = Arc::new(MemoryDevice::new());
    drop(Database::open_on(device.clone(), options()).unwrap());
    device
        .create("rows")
        .unwrap()
        .write_at(&[7; 99], 0)
        .unwrap();
    let db = Database::open_on(device.clone(), options()).unwrap();
    assert!(!device.list().unwrap().contains(&"rows".to_owned()));
    fill(&db, 0);
    db.close().unwrap();
    check(&Database::open_on(device, options()).unwrap(), 200);
}

#[test]
fn a_table_stays_what_it_is() {
    let device = Arc::new(MemoryDevice::new());
    let mut options = options();
    let db = Database::open_on(device.clone(), options.clone()).unwrap();
    fill(&db, 0);
    let [paged, resident] = [
        Table::new("resident").paged(),
        Table::new("paged").resident(),
    ];
    let component = "table_component";
    for _ in 0..2 {
        let mut tx = db.begin().unwrap();
        // The same name by another declaration, after it was used.
        let table: Table<u64, str> = UNDECLARED.resident();
        assert_eq!(refused(tx.get(&table, &1)), component);
        assert_eq!(refused(tx.get::<u64, str>(&paged, &1)), component);
        assert_eq!(refused(tx.put::<u64, str>(&resident, &1, "x")), component);
        assert_eq!(
            tx.get(&UNDECLARED, &1).unwrap().as_deref(),
            Some("row 1 in pages")
        );
    }
    let message = db
        .run(|tx| tx.get::<u64, str>(&paged, &1))
        .unwrap_err()
        .to_string();
    assert!(message.contains("\"resident\" is resident"), "{message}");
    db.close().unwrap();
    // Only new tables follow the option.
    options.component = TableComponent::Paged;
    let db = Database::open_on(device, options).unwrap();
    const NEW: Table<u64, u64> = Table::new("new");
    let either: Table<u64, str> = Table::new("resident");
    db.run(|tx| {
        tx.put(&NEW, &1, &1)?;
        tx.put(&either, &1, "row 1 in memory")
    })
    .unwrap();
    assert_eq!(db.run(|tx| tx.get(&NEW.paged(), &1)).unwrap(), Some(1));
    assert_eq!(refused(db.run(|tx| tx.get(&NEW.resident(), &1))), component);
    assert_eq!(
        refused(db.run(|tx| tx.get::<u64, str>(&paged, &1))),
        component
    );
    check(&db, 200);
}

#[test]
fn what_paged_tables_cannot_do_yet_is_refused() {
    let scratch = Directory::new("paged-refusals");
    std::fs::create_dir(&scratch.0).unwrap();
    let path = scratch.0.join("db");
    let mut options = options();
    options.component = TableComponent::Paged;
    let db = Database::open_with(&path, options).unwrap();
    fill(&db, 0);
    let mut tx = db.begin().unwrap();
    const LONG_KEYS: Table<str, str> = Table::new("long keys").paged();
    // A key has at most an eighth of a page, whether its value is large or not.
    for value in ["", &"x".repeat(2000)] {
        let refusal = refused(tx.put(&LONG_KEYS, &"k".repeat(129), value));
        assert_eq!(refusal, "row_too_long");
    }
    tx.put(&LONG_KEYS, &"k".repeat(126), "").unwrap();
    tx.commit().unwrap();
}

#[test]
fn options_out_of_range_are_refused() {
    let mut small = Options::default();
    small.page_memory = 335_000;
    assert_eq!(refused(Database::in_memory(small.clone())), "option");
    small.page_memory = 360_000;
    let db = Database::in_memory(small).unwrap();
    fill(&db, 0);
    check(&db, 200);
    // Enough for the pages of a new file, too little for those that are there.
    let device = Arc::new(MemoryDevice::new());
    let mut large = options();
    (large.page_bytes, large.page_memory) = (64 << 10, 4 << 20);
    let db = Database::open_on(device.clone(), large.clone()).unwrap();
    fill(&db, 0);
    db.close().unwrap();
    assert_eq!(
        refused(Database::open_on(device.clone(), options())),
        "option"
    );
    check(&Database::open_on(device, large).unwrap(), 200);
}

#[test]
fn a_page_file_that_cannot_be_made_leaves_a_database_that_goes_on() {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    db.run(|tx| tx.put(&RESIDENT, &1, "one")).unwrap();
    let full = std::io::ErrorKind::StorageFull;
    device.fail(Call::Create, 1, Times::Once, full);
    assert_eq!(
        refused(db.run(|tx| tx.put(&PAGED, &1, "one"))),
        "device_full"
    );
    db.run(|tx| tx.put(&RESIDENT, &2, "two")).unwrap();
    db.run(|tx| tx.put(&PAGED, &1, "one")).unwrap();
    db.close().unwrap();
    let db = Database::open_on(Arc::new(device), options()).unwrap();
    assert_eq!(
        db.run(|tx| tx.get(&PAGED, &1)).unwrap().as_deref(),
        Some("one")
    );
}
