//! Secondary indexes, one transaction after another: reads, refused writes, and declarations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::scratch::Directory;
use foxton::codec::{Encoded, TypeName};
use foxton::device::MemoryDevice;
use foxton::progress::{OpenPhase, ProgressCall};
use foxton::{Database, Durability, Error, Index, Key, Options, Table, TableComponent};

/// An optional name, and a group.
type Row = (Vec<u8>, u8);

const ROWS: Table<[u8], Row> = Table::new("rows");
/// Contains rows that have a name.
const BY_NAME: Index<[u8], [u8], Row> =
    Index::unique("rows_by_name", &ROWS, |_, (name, _), keys| {
        if !name.is_empty() {
            keys.add(name);
        }
    });
/// Each row by its group; rows of every third group also by the last group.
const BY_GROUP: Index<u8, [u8], Row> = Index::new("rows_by_group", &ROWS, |_, (_, group), keys| {
    groups(*group).iter().for_each(|group| keys.add(group));
});

fn groups(group: u8) -> Vec<u8> {
    match group % 3 {
        0 => vec![group, u8::MAX, group],
        _ => vec![group],
    }
}

fn row(name: &str, group: u8) -> Row {
    (name.as_bytes().to_vec(), group)
}

fn options(component: TableComponent) -> Options {
    let mut options = Options::tiny();
    options.durability = Durability::Buffered;
    options.component = component;
    options
}

fn with_both(component: TableComponent) -> Options {
    let mut options = options(component);
    options.indexes.add(&BY_NAME).add(&BY_GROUP);
    options
}

/// Calls `test` for tables in memory and for paged ones.
fn over_both(test: impl Fn(TableComponent)) {
    for component in TableComponent::ALL {
        println!("{component}");
        test(component);
    }
}

/// Returns the number of entries of each index, by name. In memory, ghosts count.
fn entries(db: &Database, component: TableComponent) -> Vec<u64> {
    match component {
        TableComponent::Resident => db.indexes().iter().map(|index| index.entries).collect(),
        _ => db
            .run(|tx| {
                let by_group = tx.range_by(&BY_GROUP, ..).count()?;
                Ok(vec![by_group, tx.range_by(&BY_NAME, ..).count()?])
            })
            .unwrap(),
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> &'static str {
    result.unwrap_err().code()
}

#[test]
fn a_row_is_found_by_each_of_its_keys_as_it_changes() {
    over_both(|component| {
        let db = Database::in_memory(with_both(component)).unwrap();
        let mut tx = db.begin().unwrap();
        let by_name = |tx: &mut foxton::Transaction, name: &[u8]| {
            tx.get_by(&BY_NAME, name).unwrap().map(|(key, _)| key)
        };
        let by_group = |tx: &mut foxton::Transaction, group: u8| {
            let rows = tx.all_by(&BY_GROUP, &group).collect().unwrap();
            rows.into_iter().map(|(_, key, _)| key).collect::<Vec<_>>()
        };
        tx.put(&ROWS, b"1", &row("ada", 1)).unwrap();
        tx.put(&ROWS, b"2", &row("", 1)).unwrap();
        tx.put(&ROWS, b"3", &row("bob", 3)).unwrap();
        assert_eq!(by_name(&mut tx, b"ada"), Some(b"1".to_vec()));
        assert_eq!(by_name(&mut tx, b""), None);
        assert_eq!(by_group(&mut tx, 1), [b"1", b"2"]);
        assert_eq!(by_group(&mut tx, 255), [b"3"]);
        // The name moves from one row to the other, and the group does not change.
        tx.put(&ROWS, b"1", &row("eve", 1)).unwrap();
        tx.put(&ROWS, b"2", &row("ada", 1)).unwrap();
        assert_eq!(by_name(&mut tx, b"ada"), Some(b"2".to_vec()));
        assert_eq!(by_name(&mut tx, b"eve"), Some(b"1".to_vec()));
        tx.delete(&ROWS, b"1").unwrap();
        assert_eq!(by_name(&mut tx, b"eve"), None);
        assert_eq!(by_group(&mut tx, 1), [b"2"]);
        tx.commit().unwrap();
        assert!(db.check_indexes().unwrap().is_empty());
        db.verify();
    });
}

#[test]
fn a_key_that_is_taken_is_refused_and_the_statement_leaves_nothing() {
    over_both(|component| {
        let db = Database::in_memory(with_both(component)).unwrap();
        db.run(|tx| tx.put(&ROWS, b"1", &row("ada", 1))).unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&ROWS, b"2", &row("bob", 2)).unwrap();
        for refused in [
            tx.insert(&ROWS, b"9", &row("ada", 7)),
            tx.put(&ROWS, b"9", &row("ada", 7)),
            tx.put(&ROWS, b"2", &row("ada", 7)),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.code(), "index_key_exists");
            assert!(!error.is_retryable());
            let text = error.to_string();
            assert!(
                text.contains("rows_by_name") && text.contains("\"ada\"") && text.contains("\"1\"")
            );
            let taken = error.key_taken().unwrap();
            assert_eq!(taken.key_as::<[u8]>().unwrap(), b"ada");
            assert_eq!(taken.row_as::<[u8]>().unwrap(), b"1");
            assert!([&b"9"[..], b"2"].contains(&&taken.refused[..]));
        }
        assert_eq!(tx.get(&ROWS, b"9").unwrap(), None);
        assert_eq!(tx.get(&ROWS, b"2").unwrap(), Some(row("bob", 2)));
        assert_eq!(tx.all_by(&BY_GROUP, &7).count().unwrap(), 0);
        // The name is free once its row is deleted, in the same transaction.
        tx.delete(&ROWS, b"1").unwrap();
        tx.put(&ROWS, b"2", &row("ada", 7)).unwrap();
        tx.commit().unwrap();
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.get_by(&BY_NAME, b"ada").unwrap().unwrap().0, b"2");
        drop(tx);
        assert!(db.check_indexes().unwrap().is_empty());
        assert_eq!(entries(&db, component), [1, 1], "no ghost is left");
        assert_eq!(db.stats().ghosts_left, 0);
    });
}

/// The transaction has only a refused statement: it logs nothing, and its ghosts are removed.
#[test]
fn a_transaction_with_only_a_refused_statement_changes_nothing() {
    over_both(|component| {
        let db = Database::open_on(Arc::new(MemoryDevice::new()), with_both(component)).unwrap();
        db.run(|tx| tx.put(&ROWS, b"1", &row("zoe", 1))).unwrap();
        let before = db.stats().log.bytes;
        for ends_well in [true, false] {
            let mut tx = db.begin().unwrap();
            assert_eq!(
                code(tx.put(&ROWS, b"2", &(b"zoe".to_vec(), 9))),
                "index_key_exists"
            );
            match ends_well {
                true => tx.commit().unwrap(),
                false => tx.rollback(),
            }
            assert_eq!(entries(&db, component), [1, 1]);
        }
        assert_eq!(db.stats().log.bytes, before);
    });
}

#[test]
fn keys_that_are_too_long_for_an_index_are_refused() {
    over_both(|component| {
        let db = Database::in_memory(with_both(component)).unwrap();
        let mut tx = db.begin().unwrap();
        let long = vec![7; foxton::MAX_KEY_BYTES];
        assert_eq!(
            code(tx.put(&ROWS, &long, &row("a", 1))),
            "index_key_too_long"
        );
        assert_eq!(
            code(tx.put(&ROWS, b"1", &([&long[..], b"1"].concat(), 1))),
            "index_key_too_long"
        );
        tx.put(&ROWS, b"1", &(long.clone(), 1)).unwrap();
        assert_eq!(tx.get_by(&BY_NAME, &long).unwrap().unwrap().0, b"1");
        assert_eq!(tx.get(&ROWS, &long).unwrap(), None);
        assert_eq!(
            code(tx.get_by(&BY_NAME, &[&long[..], b"1"].concat())),
            "key_too_long"
        );
    });
}

#[test]
fn a_key_that_is_too_long_for_an_index_is_refused_with_its_row() {
    over_both(|component| {
        let too_long = vec![7; foxton::MAX_KEY_BYTES + 1];
        let says = |refused: Result<(), Error>, parts: &[&str]| {
            let text = refused.unwrap_err().to_string();
            parts
                .iter()
                .for_each(|part| assert!(text.contains(part), "{text}"));
            assert!(text.len() < 500, "{text}");
        };
        let db = Database::in_memory(with_both(component)).unwrap();
        let by_name = ["row \"ada\" of table \"rows\"", "index \"rows_by_name\""];
        let mut tx = db.begin().unwrap();
        says(tx.put(&ROWS, b"ada", &(too_long.clone(), 1)), &by_name);
        // A key that fills the entry itself, of which the text has only the beginning.
        let key = vec![b'k'; foxton::MAX_KEY_BYTES];
        let parts = ["kkk\" (and 960 bytes more)", "index \"rows_by_group\""];
        says(tx.put(&ROWS, &key, &row("a", 1)), &parts);
        let key = vec![0xff; 70];
        says(
            tx.put(&ROWS, &key, &(too_long.clone(), 1)),
            &["ffff (and 6 bytes more) of"],
        );
        drop((tx, db));
        // The same when the index is made on rows that exist.
        let db = Database::in_memory(options(component)).unwrap();
        db.run(|tx| {
            (0..50).try_for_each(|group| tx.put(&ROWS, &[group], &row("", group)))?;
            tx.put(&ROWS, b"ada", &(too_long.clone(), 1))
        })
        .unwrap();
        says(db.create_index(&BY_NAME), &by_name);
    });
}

#[test]
fn an_index_is_made_on_a_table_that_has_rows_with_progress() {
    over_both(|component| {
        let mut options = options(component);
        options.restart_threads = 4;
        let db = Database::in_memory(options).unwrap();
        const COUNT: u64 = 40_000;
        const NUMBERS: Table<u64, u64> = Table::new("numbers");
        const BY_REST: Index<u64, u64, u64> =
            Index::new("by_rest", &NUMBERS, |_, n, keys| keys.add(&(n % 100)));
        const BY_SQUARE: Index<u128, u64, u64> =
            Index::unique("by_square", &NUMBERS, |n, _, keys| {
                keys.add(&(u128::from(*n).pow(2)))
            });
        const BY_HALF: Index<u64, u64, u64> =
            Index::unique("by_half", &NUMBERS, |_, n, keys| keys.add(&(n / 2)));
        for start in (0..COUNT).step_by(1000) {
            db.run(|tx| (start..start + 1000).try_for_each(|n| tx.put(&NUMBERS, &n, &n)))
                .unwrap();
        }
        let heard = Arc::new(AtomicU64::new(0));
        let call = {
            let heard = heard.clone();
            ProgressCall::new(move |progress| {
                assert_eq!(progress.phase, OpenPhase::Index);
                assert!(progress.done <= progress.total);
                heard.fetch_add(1, Ordering::Relaxed);
            })
        };
        db.create_index_with(&BY_REST, &call).unwrap();
        assert!(
            heard.load(Ordering::Relaxed) >= 4,
            "it begins, goes on and ends"
        );
        db.create_index(&BY_SQUARE).unwrap();
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.all_by(&BY_REST, &7).count().unwrap(), COUNT / 100);
        assert_eq!(
            tx.get_by(&BY_SQUARE, &(777 * 777)).unwrap(),
            Some((777, 777))
        );
        drop(tx);
        // Every half occurs twice: the error names both rows, and the index is not created.
        let error = db.create_index(&BY_HALF).unwrap_err();
        let taken = error.key_taken().expect("two rows have one half");
        let rows = (
            taken.row_as::<u64>().unwrap(),
            taken.refused_as::<u64>().unwrap(),
        );
        assert_eq!((rows.0 / 2, rows.0 ^ 1), (rows.1 / 2, rows.1));
        assert_eq!(taken.key_as::<u64>().unwrap(), rows.0 / 2);
        assert_eq!(db.indexes().len(), 2);
        db.run(|tx| tx.put(&NUMBERS, &1, &0)).unwrap();
        assert!(db.check_indexes().unwrap().is_empty());
    });
}

#[test]
fn a_different_declaration_is_refused() {
    over_both(|component| {
        const OTHER_TYPE: Index<u16, [u8], Row> =
            Index::unique("rows_by_name", &ROWS, |_, _, _| {});
        const OTHER_TABLE: Index<[u8], [u8], Row> =
            Index::unique("rows_by_name", &Table::new("others"), |_, _, _| {});
        const NOT_UNIQUE: Index<[u8], [u8], Row> = Index::new("rows_by_name", &ROWS, |_, _, _| {});
        const NEXT: Index<[u8], [u8], Row> = BY_NAME.version(2);
        let directory = Directory::new("indexes-differ");
        for opening in 0..2 {
            let db = Database::open_with(&directory.0, options(component)).unwrap();
            if opening == 0 {
                db.create_index(&BY_NAME).unwrap();
            }
            let error = db.create_index(&NOT_UNIQUE).unwrap_err();
            assert!(
                error.to_string().contains("drop_index(\"rows_by_name\")"),
                "{error}"
            );
            for refused in [
                Err(error),
                db.create_index(&OTHER_TYPE),
                db.create_index(&OTHER_TABLE),
                db.create_index(&NEXT),
                db.run(|tx| tx.get_by(&OTHER_TYPE, &1)).map(drop),
                db.run(|tx| tx.range_by(&NOT_UNIQUE, ..).count()).map(drop),
            ] {
                assert_eq!(code(refused), "index_differs");
            }
            db.create_index(&BY_NAME).unwrap();
            db.create_index(&BY_NAME).unwrap();
        }
        let mut other = options(component);
        other.indexes.add(&NEXT);
        assert_eq!(
            code(Database::open_with(&directory.0, other.clone())),
            "index_differs"
        );
        let db = Database::open_with(&directory.0, options(component)).unwrap();
        assert!(db.drop_index("rows_by_name").unwrap());
        assert!(!db.drop_index("rows_by_name").unwrap());
        drop(db);
        Database::open_with(&directory.0, other).unwrap();
    });
}

#[test]
fn undeclared_indexes_are_not_read_and_unique_ones_not_broken() {
    over_both(|component| {
        let directory = Directory::new("indexes-undeclared");
        let db = Database::open_with(&directory.0, with_both(component)).unwrap();
        db.run(|tx| tx.put(&ROWS, b"1", &row("ada", 1))).unwrap();
        drop(db);
        let db = Database::open_with(&directory.0, options(component)).unwrap();
        let is_open: Vec<bool> = db.indexes().iter().map(|index| index.is_open).collect();
        assert_eq!(is_open, [false, false]);
        assert_eq!(
            code(db.run(|tx| tx.get_by(&BY_NAME, b"ada"))),
            "index_not_open"
        );
        let error = db
            .run(|tx| tx.put(&ROWS, b"2", &row("ada", 1)))
            .unwrap_err();
        assert_eq!(error.code(), "index_undeclared");
        assert!(error.to_string().contains("rows_by_"), "{error}");
        assert_eq!(
            code(db.run(|tx| tx.delete(&ROWS, b"1"))),
            "index_undeclared"
        );
        assert_eq!(
            db.run(|tx| tx.get(&ROWS, b"1")).unwrap(),
            Some(row("ada", 1))
        );
        // Once it is declared, the table accepts writes again. The other index is filled when it is
        // declared; of a paged table it has its entries until the first write.
        db.create_index(&BY_NAME).unwrap();
        let is_stale = |db: &Database| {
            let mut others = db.indexes().into_iter().filter(|index| !index.is_open);
            others.next().map(|index| (index.name, index.is_stale))
        };
        let (name, is_paged) = (
            "rows_by_group".to_owned(),
            component != TableComponent::Resident,
        );
        assert_eq!(is_stale(&db), Some((name.clone(), !is_paged)));
        db.run(|tx| tx.put(&ROWS, b"2", &row("bob", 1))).unwrap();
        assert_eq!(is_stale(&db), Some((name, true)));
        assert_eq!(
            code(db.run(|tx| tx.range_by(&BY_GROUP, ..).count())),
            "index_not_open"
        );
        db.create_index(&BY_GROUP).unwrap();
        db.run(|tx| tx.put(&ROWS, b"2", &row("bob", 1))).unwrap();
        assert_eq!(db.run(|tx| tx.all_by(&BY_GROUP, &1).count()).unwrap(), 2);
        assert!(db.check_indexes().unwrap().is_empty());
    });
}

#[test]
fn a_dropped_index_is_gone_and_its_keys_are_free() {
    over_both(|component| {
        let db = Database::in_memory(with_both(component)).unwrap();
        db.run(|tx| tx.put(&ROWS, b"1", &row("ada", 1))).unwrap();
        assert!(db.drop_index("rows_by_name").unwrap());
        assert_eq!(
            code(db.run(|tx| tx.get_by(&BY_NAME, b"ada"))),
            "index_not_open"
        );
        db.run(|tx| tx.put(&ROWS, b"2", &row("ada", 2))).unwrap();
        assert_eq!(code(db.create_index(&BY_NAME)), "index_key_exists");
        db.run(|tx| tx.delete(&ROWS, b"1")).unwrap();
        db.create_index(&BY_NAME).unwrap();
        let found = db.run(|tx| tx.get_by(&BY_NAME, b"ada")).unwrap();
        assert_eq!(found, Some((b"2".to_vec(), row("ada", 2))));
    });
}

#[test]
fn the_table_of_indexes_is_not_for_others() {
    over_both(|component| {
        let db = Database::in_memory(with_both(component)).unwrap();
        let raw: Table<Encoded, Encoded> = Table::new("foxton:indexes");
        assert_eq!(
            code(db.run(|tx| tx.range(&raw, ..).count())),
            "reserved_table"
        );
        let text: Table<str, str> = Table::new("foxton:indexes");
        assert_eq!(code(db.run(|tx| tx.put(&text, "x", "y"))), "reserved_table");
        let tables = db.stats().tables;
        assert_eq!(
            tables.iter().map(|table| &*table.name).collect::<Vec<_>>(),
            ["rows"]
        );
    });
}

/// Rows written as raw bytes are in the indexes like others, and must be valid rows.
#[test]
fn raw_writes_are_kept_and_must_be_rows() {
    over_both(|component| {
        let db = Database::in_memory(with_both(component)).unwrap();
        let raw: Table<Encoded, Encoded> = Table::new("rows");
        let (key, mut value) = (Encoded(b"1".to_vec()), Vec::new());
        foxton::Value::encode(&row("ada", 1), &mut value);
        db.run(|tx| tx.put(&raw, &key, &Encoded(value.clone())))
            .unwrap();
        assert_eq!(
            db.run(|tx| tx.get_by(&BY_NAME, b"ada")).unwrap().unwrap().0,
            b"1"
        );
        let mut tx = db.begin().unwrap();
        assert_eq!(
            code(tx.put(&raw, &key, &Encoded(b"?".to_vec()))),
            "undecodable"
        );
        assert_eq!(tx.get(&ROWS, b"1").unwrap(), Some(row("ada", 1)));
    });
}

#[test]
fn composite_keys_take_borrowed_parts() {
    over_both(|component| {
        const PEOPLE: Table<u64, (String, u32)> = Table::new("people");
        const BY_BOTH: Index<(&str, u32), u64, (String, u32)> =
            Index::new("by_both", &PEOPLE, |_, (name, age), keys| {
                keys.add(&(&name[..], *age))
            });
        let db = Database::in_memory(options(component)).unwrap();
        db.create_index(&BY_BOTH).unwrap();
        let mut tx = db.begin().unwrap();
        for (id, name, age) in [
            (1, "ann", 30),
            (2, "ann", 20),
            (3, "an", 99),
            (4, "ann\0", 1),
        ] {
            tx.put(&PEOPLE, &id, &(name.to_owned(), age)).unwrap();
        }
        let name = String::from("ann");
        let rows = tx
            .range_by(&BY_BOTH, (&name[..], 0)..=(&name[..], 29))
            .collect()
            .unwrap();
        assert_eq!(rows, [(("ann".to_owned(), 20), 2, ("ann".to_owned(), 20))]);
        let all = tx.range_by(&BY_BOTH, ..).collect().unwrap();
        assert_eq!(
            all.iter().map(|row| row.1).collect::<Vec<_>>(),
            [3, 2, 1, 4]
        );
        assert_eq!(tx.get_by(&BY_BOTH, &(&name, 30)).unwrap().unwrap().0, 1);
    });
}

#[test]
fn a_panic_in_the_function_leaves_the_transaction_as_it_was() {
    over_both(|component| {
        const ODD: Table<u64, u64> = Table::new("odd");
        const BY: Index<u64, u64, u64> = Index::new("by", &ODD, |_, value, keys| {
            assert!(value % 2 == 1, "it is even");
            keys.add(value);
        });
        let db = Database::in_memory(options(component)).unwrap();
        db.create_index(&BY).unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&ODD, &1, &1).unwrap();
        let put = std::panic::AssertUnwindSafe(|| tx.put(&ODD, &1, &2));
        assert!(std::panic::catch_unwind(put).is_err());
        assert_eq!(tx.range_by(&BY, ..).collect().unwrap(), [(1, 1, 1)]);
        tx.put(&ODD, &1, &3).unwrap();
        tx.commit().unwrap();
        assert!(db.check_indexes().unwrap().is_empty());
    });
}

/// A statement is refused by its second index after it has inserted an entry into the first.
#[test]
fn a_refused_statement_leaves_no_entries() {
    over_both(|component| {
        let mut options = options(component);
        options.indexes.add(&BY_GROUP).add(&BY_NAME);
        let db = Database::in_memory(options).unwrap();
        db.run(|tx| tx.put(&ROWS, b"1", &row("ada", 1))).unwrap();
        let mut tx = db.begin().unwrap();
        assert_eq!(
            code(tx.put(&ROWS, b"2", &row("ada", 5))),
            "index_key_exists"
        );
        assert_eq!(tx.all_by(&BY_GROUP, &5).count().unwrap(), 0);
        // The same entry again, now to stay.
        tx.put(&ROWS, b"2", &row("bob", 5)).unwrap();
        assert_eq!(tx.all_by(&BY_GROUP, &5).count().unwrap(), 1);
        tx.commit().unwrap();
        assert!(db.check_indexes().unwrap().is_empty());
        assert_eq!(entries(&db, component)[0], 2);
    });
}

#[test]
fn names_have_their_limits() {
    over_both(|component| {
        const NAMELESS: Index<u64, u64, u64> = Index::new("", &Table::new("t"), |_, _, _| {});
        let db = Database::in_memory(options(component)).unwrap();
        assert_eq!(code(db.create_index(&NAMELESS)), "index_name");
        // The first index creates the catalog's table. If a program could create it with other
        // types, indexes would be impossible.
        let mut tx = db.begin().unwrap();
        let keys = TypeName::new("foxton:index");
        let made = tx.make_table("foxton:indexes", &keys, &TypeName::new("u8"));
        assert_eq!(code(made), "reserved_table");
        tx.commit().unwrap();
        db.create_index(&BY_GROUP).unwrap();
        assert_eq!(<u64 as Key>::TYPE.to_string(), "u64");
    });
}
