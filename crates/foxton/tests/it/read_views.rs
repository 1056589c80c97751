//! Read views, the baseline of snapshots: what their reads return, and what is kept for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use foxton::device::MemoryDevice;
use foxton::{Database, Durability, Isolation, Options, Snapshot, SnapshotMethod, Table};

use crate::common::random::Random;
use crate::snapshots::{assert_nothing_is_kept, write};

const ROWS: Table<u64, [u8]> = Table::new("rows");
const ACCOUNTS: Table<u64, i64> = Table::new("accounts");

fn options() -> Options {
    let mut options = Options::default();
    options.durability = Durability::None;
    options.snapshots = SnapshotMethod::ReadViews;
    options
}

fn in_memory() -> Database {
    Database::in_memory(options()).unwrap()
}

fn amounts(snapshot: &Snapshot) -> Vec<(u64, i64)> {
    let rows = snapshot.range(&ACCOUNTS, ..).unwrap().into_iter();
    let rows: Vec<_> = rows.map(Result::unwrap).collect();
    for &(key, amount) in &rows {
        assert_eq!(snapshot.get(&ACCOUNTS, &key).unwrap(), Some(amount));
    }
    rows
}

#[test]
fn a_view_reads_what_was_committed_before_it() {
    let db = in_memory();
    db.run(|tx| (1..=3).try_for_each(|key| tx.put(&ACCOUNTS, &key, &0)))
        .unwrap();
    let mut open = db.begin().unwrap();
    open.put(&ACCOUNTS, &1, &1).unwrap();
    let mut undone = db.begin().unwrap();
    undone.put(&ACCOUNTS, &3, &9).unwrap();
    let first = db.snapshot().unwrap();
    undone.rollback();
    db.run(|tx| {
        tx.put(&ACCOUNTS, &4, &4)?;
        tx.delete(&ACCOUNTS, &2).map(drop)
    })
    .unwrap();
    let second = db.snapshot().unwrap();
    open.commit().unwrap();
    let third = db.snapshot().unwrap();
    for _ in 0..2 {
        assert_eq!(amounts(&first), [(1, 0), (2, 0), (3, 0)]);
        assert_eq!(amounts(&second), [(1, 0), (3, 0), (4, 4)]);
        assert_eq!(amounts(&third), [(1, 1), (3, 0), (4, 4)]);
        // From here on versions are in between that no view sees.
        for amount in 10..20 {
            db.run(|tx| (1..=4).try_for_each(|key| tx.put(&ACCOUNTS, &key, &amount)))
                .unwrap();
        }
    }
    assert_eq!(db.snapshots().len(), 3);
    for snapshot in [first, second, third] {
        snapshot.end().unwrap();
    }
    assert_nothing_is_kept(&db);
}

/// Numbers are taken at the first write, so those of one row need not be in its order.
#[test]
fn a_row_may_be_written_by_numbers_that_descend() {
    let db = in_memory();
    db.run(|tx| (1..=2).try_for_each(|key| tx.put(&ACCOUNTS, &key, &0)))
        .unwrap();
    let before = db.snapshot().unwrap();
    let mut older = db.begin().unwrap();
    older.put(&ACCOUNTS, &1, &1).unwrap();
    db.run(|tx| tx.put(&ACCOUNTS, &2, &2)).unwrap();
    let between = db.snapshot().unwrap();
    older.put(&ACCOUNTS, &2, &3).unwrap();
    assert_eq!(amounts(&between), [(1, 0), (2, 2)]);
    older.commit().unwrap();
    let after = db.snapshot().unwrap();
    assert_eq!(amounts(&before), [(1, 0), (2, 0)]);
    assert_eq!(amounts(&between), [(1, 0), (2, 2)]);
    assert_eq!(amounts(&after), [(1, 1), (2, 3)]);
}

#[test]
fn a_deleted_row_is_read_after_its_record_is_gone_and_its_key_is_taken_again() {
    let db = in_memory();
    let all = |change: &dyn Fn(&mut foxton::Transaction, u64) -> foxton::Result<()>| {
        db.run(|tx| (0..50).try_for_each(|key| change(tx, key)))
            .unwrap();
        db.snapshot().unwrap()
    };
    let first = all(&|tx, key| tx.put(&ACCOUNTS, &key, &1));
    let second = all(&|tx, key| tx.delete(&ACCOUNTS, &key).map(drop));
    let third = all(&|tx, key| tx.insert(&ACCOUNTS, &key, &3));
    let fourth = all(&|tx, key| tx.delete(&ACCOUNTS, &key).map(drop));
    let expected = |amount: i64| (0..50).map(|key| (key, amount)).collect::<Vec<_>>();
    assert_eq!(amounts(&first), expected(1));
    assert_eq!(amounts(&second), []);
    assert_eq!(amounts(&third), expected(3));
    assert_eq!(amounts(&fourth), []);
}

#[test]
fn a_transaction_at_a_view_sees_its_own_writes_and_loses_no_update() {
    let db = in_memory();
    db.run(|tx| tx.put(&ACCOUNTS, &1, &100)).unwrap();
    let begin = || {
        let mut tx = db.begin().unwrap();
        tx.set_isolation(Isolation::Snapshot).unwrap();
        assert_eq!(tx.get(&ACCOUNTS, &1).unwrap(), Some(100));
        tx
    };
    let mut tx = begin();
    tx.put(&ACCOUNTS, &2, &7).unwrap();
    tx.put(&ACCOUNTS, &2, &8).unwrap();
    assert_eq!(tx.get(&ACCOUNTS, &2).unwrap(), Some(8));
    tx.commit().unwrap();
    assert_eq!(db.view(|now| now.get(&ACCOUNTS, &2)).unwrap(), Some(8));

    let (mut late, mut removed) = (begin(), begin());
    db.run(|tx| tx.put(&ACCOUNTS, &1, &90)).unwrap();
    db.run(|tx| tx.insert(&ACCOUNTS, &3, &3)).unwrap();
    db.run(|tx| tx.delete(&ACCOUNTS, &3).map(drop)).unwrap();
    assert_eq!(late.get(&ACCOUNTS, &1).unwrap(), Some(100));
    let refused = late.put(&ACCOUNTS, &1, &101).unwrap_err();
    assert_eq!(refused.code(), "overwritten");
    // That row came and went, and has left no record.
    let refused = removed.get_for_update(&ACCOUNTS, &3).unwrap_err();
    assert_eq!(refused.code(), "overwritten");
}

/// The oldest view keeps every version since, and a position in the log one of each row.
#[test]
fn a_stalled_view_keeps_all_versions() {
    const KEYS: u64 = 100;
    let retained = |method| {
        let mut options = options();
        options.snapshots = method;
        let db = Database::in_memory(options).unwrap();
        let all = |content: u8| {
            db.run(|tx| (0..KEYS).try_for_each(|key| tx.put(&ROWS, &key, &[content; 100])))
                .unwrap();
        };
        all(0);
        let snapshot = db.snapshot().unwrap();
        (1..=200).for_each(all);
        let found = (0..KEYS).all(|key| snapshot.get(&ROWS, &key).unwrap() == Some(vec![0; 100]));
        assert!(found, "{method}");
        let bytes = db.version_stats().bytes;
        drop(snapshot);
        assert_nothing_is_kept(&db);
        // The second view is younger than all that the first one kept.
        assert_eq!(
            db.view(|now| now.get(&ROWS, &7)).unwrap(),
            Some(vec![200; 100])
        );
        bytes
    };
    let (lsn, views) = (
        retained(SnapshotMethod::Lsn),
        retained(SnapshotMethod::ReadViews),
    );
    assert!(lsn > 0 && views > 20 * lsn, "{lsn} and {views} bytes");
}

#[test]
fn readers_beside_writers_see_one_sum() {
    const KEYS: u64 = 40;
    for persistent in [false, true] {
        let db = match persistent {
            false => in_memory(),
            true => Database::open_on(Arc::new(MemoryDevice::new()), options()).unwrap(),
        };
        db.run(|tx| (0..KEYS).try_for_each(|key| tx.put(&ACCOUNTS, &key, &100)))
            .unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (db, is_over) = (&db, &is_over);
            let writer = |seed| scope.spawn(move || write(db, seed, KEYS));
            let writers: Vec<_> = (0..4).map(writer).collect();
            for seed in 0..4 {
                scope.spawn(move || {
                    let (mut random, mut views) = (Random(100 + seed), 0);
                    while !is_over.load(Ordering::Relaxed) || views < 20 {
                        let view = db.snapshot().unwrap();
                        for _ in 0..random.below(4) + 1 {
                            let rows = view.range(&ACCOUNTS, ..).unwrap().into_iter();
                            let rows: BTreeMap<u64, i64> = rows.map(Result::unwrap).collect();
                            assert_eq!(rows.values().sum::<i64>(), KEYS as i64 * 100);
                            let key = random.below(2 * KEYS);
                            let got = view.get(&ACCOUNTS, &key).unwrap();
                            assert_eq!(got, rows.get(&key).copied(), "row {key}");
                        }
                        view.end().unwrap();
                        views += 1;
                    }
                });
            }
            writers
                .into_iter()
                .for_each(|writer| writer.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
        });
        assert_nothing_is_kept(&db);
    }
}

/// A view is opened while a commit has its place in the log. It does not wait, and stays without
/// that commit.
#[cfg(feature = "hooks")]
#[test]
fn a_view_beside_a_commit_that_has_its_place_never_sees_it() {
    let mut options = Options::tiny();
    options.snapshots = SnapshotMethod::ReadViews;
    let db = Database::in_memory(options).unwrap();
    db.run(|tx| tx.put(&ACCOUNTS, &1, &10)).unwrap();
    let stop = db.failpoints().stop(&foxton::failpoint::PLACED);
    let writer = {
        let db = db.clone();
        thread::spawn(move || db.run(|tx| tx.put(&ACCOUNTS, &1, &11)).unwrap())
    };
    stop.reached();
    let view = db.snapshot().unwrap();
    assert_eq!(amounts(&view), [(1, 10)]);
    stop.release();
    writer.join().unwrap();
    assert_eq!(amounts(&view), [(1, 10)]);
    assert_eq!(db.version_stats().lsn_waits.count, 0);
    assert_eq!(amounts(&db.snapshot().unwrap()), [(1, 11)]);
}
