//! Databases written by an earlier build open, and contain exactly the rows that were written.
//!
//! `tests/old_files/clean` was closed in order. `tests/old_files/killed` is a copy of the directory
//! of a running process: a checkpoint, log records after it, a transaction in parts that never
//! committed, and no mark of a clean end. Both have format 1 and are never rewritten: a test that
//! wrote its own sample would only compare a build with itself.

use std::fs;
use std::path::Path;

use crate::common::scratch::Directory;
use foxton::{Database, Durability, Index, Options, Table};

const ORDERS: Table<u64, (String, u32)> = Table::new("orders");
const NOTES: Table<str, [u8]> = Table::new("notes");
const BY_CUSTOMER: Index<str, u64, (String, u32)> =
    Index::new("orders_by_customer", &ORDERS, |_, (customer, _), keys| {
        keys.add(customer.as_str());
    });

/// Rows of `ORDERS` before any is changed.
const ORDER_COUNT: u64 = 400;

fn options() -> Options {
    let mut options = Options::tiny();
    options.durability = Durability::Sync;
    options.indexes.add(&BY_CUSTOMER);
    options
}

fn customer(order: u64) -> String {
    format!("customer {}", order % 17)
}

/// Returns the text of a note; every eleventh is longer than a block of the log.
fn note(number: u64) -> Vec<u8> {
    let bytes = if number.is_multiple_of(11) { 5_000 } else { 20 };
    (0..bytes).map(|at| (number + at) as u8).collect()
}

/// Writes the rows of the samples.
fn write(db: &Database) {
    for first in (0..ORDER_COUNT).step_by(50) {
        db.run(|tx| {
            (first..first + 50)
                .try_for_each(|order| tx.put(&ORDERS, &order, &(customer(order), order as u32)))
        })
        .unwrap();
    }
    db.run(|tx| (0..40).try_for_each(|n| tx.put(&NOTES, &format!("note {n}"), &note(n)[..])))
        .unwrap();
    db.checkpoint().unwrap();
    db.run(|tx| {
        (0..ORDER_COUNT)
            .step_by(3)
            .try_for_each(|order| tx.put(&ORDERS, &order, &(customer(order + 1), 7)))
    })
    .unwrap();
    db.run(|tx| {
        (0..ORDER_COUNT)
            .step_by(10)
            .try_for_each(|order| tx.delete(&ORDERS, &order).map(drop))
    })
    .unwrap();
}

/// Checks that `db` contains those rows and no others, by key and by index.
fn check(db: &Database) {
    let expected: Vec<(u64, (String, u32))> = (0..ORDER_COUNT)
        .filter(|order| !order.is_multiple_of(10))
        .map(|order| match order % 3 {
            0 => (order, (customer(order + 1), 7)),
            _ => (order, (customer(order), order as u32)),
        })
        .collect();
    let (orders, notes, of_customer_3) = db
        .run(|tx| {
            Ok((
                tx.range(&ORDERS, ..).collect()?,
                tx.range(&NOTES, ..).collect()?,
                tx.all_by(&BY_CUSTOMER, "customer 3").count()?,
            ))
        })
        .unwrap();
    let found = |orders: &[(u64, (String, u32))]| {
        let of_three = orders.iter().filter(|(_, (name, _))| name == "customer 3");
        of_three.count() as u64
    };
    assert_eq!(of_customer_3, found(&expected));
    assert_eq!(orders, expected);
    assert_eq!(notes.len(), 40);
    for (name, content) in notes {
        let number = name.strip_prefix("note ").unwrap().parse().unwrap();
        assert_eq!(content, note(number), "{name}");
    }
    db.verify();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn opens(sample: &str) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/old_files")
        .join(sample);
    let directory = Directory::new(&format!("old-{sample}"));
    copy(&from, &directory.0);
    for _ in 0..2 {
        let db = Database::open_with(&directory.0, options()).unwrap();
        check(&db);
    }
}

#[test]
fn a_database_that_was_closed_opens_with_its_rows() {
    opens("clean");
}

#[test]
fn a_database_of_a_killed_process_opens_with_its_committed_rows() {
    opens("killed");
}

#[test]
#[ignore = "writes new samples to a folder of its own: FOXTON_SAMPLES=DIR cargo test -p foxton --test it old_files:: -- --ignored"]
fn write_samples() {
    let to = std::env::var("FOXTON_SAMPLES").expect("FOXTON_SAMPLES names a folder");
    let to = Path::new(&to);
    let db = Database::open_with(to.join("clean"), options()).unwrap();
    write(&db);
    let mut open = db.begin().unwrap();
    for order in 0..30 {
        open.put(&ORDERS, &(9_000 + order), &(customer(order), 1))
            .unwrap();
    }
    db.sync().unwrap();
    copy(&to.join("clean"), &to.join("killed"));
    drop(open);
    drop(db);
}
