//! Numbers of rows that a person reads: counted to the last row, or called an estimate.

use crate::support::{foxton, said, shell};
use foxton::{Database, Durability, Options, Table};

const LARGE: Table<u64, u64> = Table::new("large");
const SMALL: Table<u64, u64> = Table::new("small");
const THINNED: Table<u64, u64> = Table::new("thinned");
const ROWS: u64 = 274_000;

/// The number of rows in the line of this table.
fn rows(text: &str, table: &str) -> String {
    let line = text
        .lines()
        .find(|line| line.split_whitespace().next() == Some(table))
        .unwrap_or_else(|| panic!("no {table} in\n{text}"));
    let words: Vec<&str> = line.split_whitespace().skip(4).collect();
    words.join(" ")
}

#[test]
fn rows_are_counted_or_called_an_estimate() {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path().join("db");
    let mut options = Options::default();
    options.durability = Durability::Buffered;
    let db = Database::open_with(&place, options).unwrap();
    for from in (0..ROWS).step_by(1_000) {
        let mut keys = from..from + 1_000;
        db.run(|tx| keys.try_for_each(|key| tx.put(&LARGE, &key, &key)))
            .unwrap();
    }
    db.run(|tx| (0..1_234).try_for_each(|key| tx.put(&SMALL, &key, &key)))
        .unwrap();
    db.run(|tx| (0..300).try_for_each(|key| tx.put(&THINNED, &key, &key)))
        .unwrap();
    db.run(|tx| (0..100).try_for_each(|key| tx.delete(&THINNED, &key).map(|_| ())))
        .unwrap();
    drop(db);

    let name = place.display().to_string();
    for _ in 0..3 {
        let text = said(&foxton(&["inspect", &name]));
        assert_eq!(rows(&text, "large"), "274,000");
        assert_eq!(rows(&text, "small"), "1,234");
        assert_eq!(rows(&text, "thinned"), "200");
    }

    // A transaction that has uncommitted rows and locks on others does not hold up the count.
    let script = "begin\ndelete small 1\nput thinned 1000 1\ntables\ntables exact\nrollback\n";
    let text = said(&shell(&place, script));
    let (quick, exact) = text.split_at(text.rfind("  table ").expect("there are two tables"));
    let estimate = rows(quick, "large");
    let near = [
        "about 260,000",
        "about 270,000",
        "about 280,000",
        "about 290,000",
    ];
    assert!(near.contains(&&*estimate), "{estimate}");
    assert_eq!(rows(exact, "large"), "274,000");
    for text in [quick, exact] {
        assert_eq!(rows(text, "small"), "1,233");
        assert_eq!(rows(text, "thinned"), "201");
    }
    let text = said(&shell(&place, "tables fast\n"));
    assert!(text.contains("the form is: tables [exact]"), "{text}");
}
