//! Locked reads at `Snapshot` that find their rows by a range or by an index.

use foxton::{
    Database, Durability, Error, Index, Isolation, Lock, Options, Result, Table, TableComponent,
    Transaction,
};

use crate::common::paged::tiny_pages;

type Row = (u64, String);

const ROWS: Table<u64, Row> = Table::new("rows");
const NAMES: Index<u64, u64, Row> =
    Index::unique("rows_by_name", &ROWS, |_, row, keys| keys.add(&row.0));
const KINDS: Index<u64, u64, Row> =
    Index::new("rows_by_kind", &ROWS, |_, row, keys| keys.add(&(row.0 % 3)));

fn row(key: u64) -> Row {
    (100 + key, format!("row {key}"))
}

/// Runs a test on ten rows in memory, and on as many on pages.
fn over_components(test: impl Fn(&Database)) {
    for component in TableComponent::ALL {
        println!("{component}");
        let mut options = tiny_pages(Options::default(), 32);
        options.durability = Durability::None;
        options.component = component;
        options.indexes.add(&NAMES).add(&KINDS);
        let db = Database::in_memory(options).unwrap();
        db.run(|tx| (0..10).try_for_each(|key| tx.put(&ROWS, &key, &row(key))))
            .unwrap();
        test(&db);
    }
}

/// Returns a transaction at `Snapshot` that has read.
fn at_snapshot(db: &Database) -> Transaction {
    let mut tx = db.begin().unwrap();
    tx.set_isolation(Isolation::Snapshot).unwrap();
    assert_eq!(tx.get(&ROWS, &0).unwrap(), Some(row(0)));
    tx
}

/// Returns the keys of the rows that it has locked.
type LockedRead = fn(&mut Transaction) -> Result<Vec<u64>>;

/// Reads that lock rows 2 to 5 and maybe others, with their names.
fn locked_reads() -> [(&'static str, LockedRead); 5] {
    [
        ("upwards", |tx| {
            let rows = tx.range(&ROWS, 2..=5).locked(Lock::Update).collect()?;
            Ok(rows.into_iter().map(|(key, _)| key).collect())
        }),
        ("downwards", |tx| {
            let rows = tx.range(&ROWS, 2..=5).locked(Lock::Exclusive);
            let rows = rows.reversed().collect()?;
            Ok(rows.into_iter().map(|(key, _)| key).rev().collect())
        }),
        ("by name", |tx| {
            let rows = tx.range_by(&NAMES, 102..=105).locked(Lock::Update);
            Ok(rows.collect()?.into_iter().map(|(_, key, _)| key).collect())
        }),
        ("by kind", |tx| {
            let rows = tx.range_by(&KINDS, ..).locked(Lock::Update).collect()?;
            let mut keys: Vec<_> = rows.into_iter().map(|(_, key, _)| key).collect();
            keys.retain(|key| (2..=5).contains(key));
            keys.sort_unstable();
            Ok(keys)
        }),
        ("one by one", |tx| {
            let mut keys = Vec::new();
            for name in 102..=105 {
                let found = tx.get_by_locked(&NAMES, &name, Lock::Exclusive)?;
                keys.extend(found.map(|(key, _)| key));
            }
            Ok(keys)
        }),
    ]
}

#[test]
fn what_is_locked_is_what_the_snapshot_has_and_stays() {
    for (name, read) in locked_reads() {
        println!("{name}");
        over_components(|db| {
            let mut tx = at_snapshot(db);
            // A row that comes later is not in the snapshot.
            db.run(|tx| tx.put(&ROWS, &50, &(1, "new".into()))).unwrap();
            assert_eq!(read(&mut tx).unwrap(), [2, 3, 4, 5], "{name}");
            for key in 2..=5 {
                let mut other = db.begin().unwrap();
                let refused = other.get_locked(&ROWS, &key, Lock::Update.nowait());
                assert_eq!(refused.unwrap_err().code(), "lock_busy", "{name}: {key}");
            }
            tx.put(&ROWS, &3, &row(30)).unwrap();
            tx.commit().unwrap();
        });
    }
}

#[test]
fn what_has_changed_since_the_snapshot_is_refused() {
    let changes: [fn(&mut Transaction) -> Result<()>; 4] = [
        |tx| tx.put(&ROWS, &3, &(103, "changed".into())),
        |tx| tx.put(&ROWS, &3, &(300, "with another name".into())),
        |tx| tx.delete(&ROWS, &3).map(|_| ()),
        |tx| {
            tx.delete(&ROWS, &3)?;
            tx.put(&ROWS, &33, &(103, "with its name".into()))
        },
    ];
    for (name, read) in locked_reads() {
        for (number, change) in changes.iter().enumerate() {
            println!("{name}: change {number}");
            over_components(|db| {
                let mut tx = at_snapshot(db);
                db.run(change).unwrap();
                // A record that only the snapshot needs goes meanwhile.
                db.run(|tx| tx.put(&ROWS, &9, &row(9))).unwrap();
                let refused = read(&mut tx).unwrap_err();
                assert_eq!(refused.code(), "overwritten", "{name}: change {number}");
            });
        }
    }
}

#[test]
fn a_name_that_was_given_since_the_snapshot_is_refused() {
    over_components(|db| {
        let mut tx = at_snapshot(db);
        let absent = tx.get_by_locked(&NAMES, &7, Lock::Update).unwrap();
        assert_eq!(absent, None);
        let mut other = db.begin().unwrap();
        let options = Lock::Update.nowait();
        let refused = other.get_by_locked(&NAMES, &7, options).unwrap_err();
        assert_eq!(refused.code(), "lock_busy", "the absent name is locked");
        drop(other);
        db.run(|tx| tx.put(&ROWS, &20, &(8, "new".into()))).unwrap();
        let refused = tx.get_by_locked(&NAMES, &8, Lock::Update).unwrap_err();
        assert_eq!(refused.code(), "overwritten");
        let text = refused.to_string();
        assert!(
            text.ends_with("run it again (rows_by_name/0x0000000000000008)"),
            "{text}"
        );
        let Error::Conflict(conflict) = refused else {
            panic!("a conflict");
        };
        assert_eq!(conflict.table(), Some("rows_by_name"));
        assert!(conflict.refusal().is_none());
    });
}

#[test]
fn the_first_read_of_a_transaction_may_be_one_by_an_index() {
    over_components(|db| {
        for (name, read) in locked_reads() {
            // Each thread has a context that has opened no table.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut tx = db.begin().unwrap();
                    tx.set_isolation(Isolation::Snapshot).unwrap();
                    assert_eq!(read(&mut tx).unwrap(), [2, 3, 4, 5], "{name}");
                });
            });
        }
    });
}

#[test]
fn rows_of_others_are_skipped_and_own_ones_are_seen() {
    over_components(|db| {
        let mut other = db.begin().unwrap();
        other.get_locked(&ROWS, &3, Lock::Exclusive).unwrap();
        let mut tx = at_snapshot(db);
        tx.put(&ROWS, &2, &(1, "own".into())).unwrap();
        tx.delete(&ROWS, &4).unwrap();
        let skipping = Lock::Update.skip_locked();
        let rows = tx.range(&ROWS, 1..).locked(skipping).limit(4).collect();
        let keys: Vec<_> = rows.unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [1, 2, 5, 6]);
        let rows = tx.range_by(&NAMES, ..=105).locked(skipping).limit(4);
        let rows = rows.collect().unwrap().into_iter();
        let keys: Vec<_> = rows.map(|(_, key, _)| key).collect();
        assert_eq!(keys, [2, 0, 1, 5]);
        let found = tx.get_by_locked(&NAMES, &103, skipping).unwrap();
        assert_eq!(found, None);
        let refused = tx.range(&ROWS, ..).locked(Lock::Update.nowait()).collect();
        assert_eq!(refused.unwrap_err().code(), "lock_busy");
    });
}
