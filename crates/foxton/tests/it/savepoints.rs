//! Savepoints: rolling back undoes later changes, in memory and in the log; locks stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::random::Random;
use crate::common::*;
use foxton::{Database, Options, Savepoint, Table, Transaction};
use foxton_log::device::memory::MemoryDevice;

type Model = BTreeMap<u64, i64>;

fn all(tx: &mut Transaction) -> Vec<(u64, i64)> {
    tx.range(&TABLE, ..).collect().unwrap()
}

#[test]
fn they_nest_and_can_be_gone_back_to_again() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let mut tx = db.begin().unwrap();
        tx.put(&TABLE, &1, &11).unwrap();
        let outer = tx.savepoint().unwrap();
        for _ in 0..3 {
            tx.delete(&TABLE, &1).unwrap();
            tx.insert(&TABLE, &3, &30).unwrap();
            let inner = tx.savepoint().unwrap();
            for _ in 0..3 {
                tx.put(&TABLE, &3, &31).unwrap();
                tx.put(&TABLE, &2, &22).unwrap();
                assert_eq!(all(&mut tx), [(2, 22), (3, 31)]);
                tx.rollback_to(&inner).unwrap();
                assert_eq!(all(&mut tx), [(2, 20), (3, 30)]);
            }
            tx.rollback_to(&outer).unwrap();
            assert_eq!(all(&mut tx), [(1, 11), (2, 20)]);
            let gone = tx.rollback_to(&inner).unwrap_err();
            assert_eq!(gone.code(), "no_such_savepoint");
        }
        tx.insert(&TABLE, &4, &40).unwrap();
        tx.commit().unwrap();
        assert_eq!(rows(&db), [(1, 11), (2, 20), (4, 40)]);
        assert!(db.locks().is_empty());
        db.verify();
    });
}

#[test]
fn a_released_savepoint_is_gone_with_later_ones_and_changes_stay() {
    let db = database(Options::tiny(), TWO);
    let mut tx = db.begin().unwrap();
    let first = tx.savepoint().unwrap();
    let second = tx.savepoint().unwrap();
    tx.put(&TABLE, &1, &11).unwrap();
    let third = tx.savepoint().unwrap();
    tx.release_savepoint(&second).unwrap();
    for gone in [&second, &third] {
        assert_eq!(
            tx.rollback_to(gone).unwrap_err().code(),
            "no_such_savepoint"
        );
        let released = tx.release_savepoint(gone).unwrap_err();
        assert_eq!(released.code(), "no_such_savepoint");
    }
    assert_eq!(tx.get(&TABLE, &1).unwrap(), Some(11));
    tx.rollback_to(&first).unwrap();
    assert_eq!(tx.get(&TABLE, &1).unwrap(), Some(10));
}

#[test]
fn savepoints_of_other_transactions_are_refused() {
    let db = database(Options::tiny(), TWO);
    let elsewhere = database(Options::tiny(), TWO);
    let mut before = db.begin().unwrap();
    let stale = before.savepoint().unwrap();
    drop(before);
    let mut strange = elsewhere.begin().unwrap();
    let mut tx = db.begin().unwrap();
    let mut other = db.begin().unwrap();
    tx.put(&TABLE, &1, &11).unwrap();
    let own = tx.savepoint().unwrap();
    tx.put(&TABLE, &1, &12).unwrap();
    for foreign in [
        stale,
        strange.savepoint().unwrap(),
        other.savepoint().unwrap(),
    ] {
        let refused = tx.rollback_to(&foreign).unwrap_err();
        assert_eq!(refused.code(), "no_such_savepoint");
        assert!(refused.to_string().contains("savepoint"), "{refused}");
    }
    assert_eq!(tx.get(&TABLE, &1).unwrap(), Some(12));
    tx.rollback_to(&own).unwrap();
    tx.commit().unwrap();
    assert_eq!(rows(&db), [(1, 11), (2, 20)]);
}

#[test]
fn locks_and_reads_stay() {
    two(TWO, |t1, t2| {
        let savepoint = t1.savepoint();
        assert_eq!(t1.put(1, 11), Done);
        assert_eq!(t1.insert(5, 50), Done);
        assert_eq!(t1.scan(3..=5), Rows(vec![(5, 50)]));
        t1.rollback_to(&savepoint);
        assert_eq!(t2.get(1), Waits);
        t2.give_up();
        assert_eq!(t1.scan(3..=5), Rows(vec![]));
        assert_eq!(t1.commit(), Done);
        TWO.to_vec()
    });
    // The gap that was read under the name of a key whose insert was undone.
    for key in [3, 4, 5] {
        two(TWO, |t1, t2| {
            let savepoint = t1.savepoint();
            assert_eq!(t1.insert(5, 50), Done);
            assert_eq!(t1.scan(3..=5), Rows(vec![(5, 50)]));
            t1.rollback_to(&savepoint);
            assert_eq!(t2.insert(key, 0), Waits, "of {key}");
            assert_eq!(t1.scan(3..=5), Rows(vec![]));
            assert_eq!(t1.commit(), Done);
            assert_eq!(t2.resume(), Done);
            assert_eq!(t2.commit(), Done);
            vec![(1, 10), (2, 20), (key, 0)]
        });
    }
}

#[test]
fn records_of_undone_inserts_are_gone_after_the_end() {
    over_all_managers(|options| {
        for commits in [false, true] {
            let db = database(options.clone(), TWO);
            let before = db.stats().ghosts_purged;
            let mut tx = db.begin().unwrap();
            let savepoint = tx.savepoint().unwrap();
            for key in 3..40 {
                tx.insert(&TABLE, &key, &0).unwrap();
            }
            tx.rollback_to(&savepoint).unwrap();
            tx.insert(&TABLE, &7, &70).unwrap();
            match commits {
                true => tx.commit().unwrap(),
                false => tx.rollback(),
            }
            let stats = db.stats();
            let expected = if commits { 36 } else { 37 };
            let purged = stats.ghosts_purged - before;
            assert_eq!((purged, stats.ghosts_left), (expected, 0));
        }
    });
}

#[test]
fn a_transaction_that_a_conflict_ended_has_none() {
    let db = database(Options::tiny(), TWO);
    let (mut t1, mut t2) = (Session::new(&db, "T1"), Session::new(&db, "T2"));
    assert_eq!(t1.put(1, 11), Done);
    assert_eq!(t2.put(2, 22), Done);
    let savepoints = [t1.savepoint(), t2.savepoint()];
    assert_eq!(t1.put(2, 21), Waits);
    let then = t2.put(1, 12);
    let (first_gave_way, _) = one_is_the_victim(&mut t1, &mut t2, then);
    let (ended, savepoint) = match first_gave_way {
        true => (&mut t1, &savepoints[0]),
        false => (&mut t2, &savepoints[1]),
    };
    let tx = ended.transaction();
    assert_eq!(
        now(tx.rollback_to(savepoint)).unwrap_err().code(),
        "ended_by_conflict"
    );
    assert_eq!(
        tx.release_savepoint(savepoint).unwrap_err().code(),
        "ended_by_conflict"
    );
    assert_eq!(tx.savepoint().unwrap_err().code(), "ended_by_conflict");
}

/// Random transactions with nested savepoints against a stack of maps, with parts of a few changes;
/// then the log alone.
#[test]
fn random_transactions_are_what_a_stack_of_maps_says_also_after_a_restart() {
    for seed in 0..40 {
        let device = Arc::new(MemoryDevice::default());
        let mut options = Options::tiny();
        options.redo_part_bytes = if seed % 4 == 0 { 1 << 20 } else { 256 };
        let mut model = Model::new();
        let mut random = Random(seed * 2 + 1);
        {
            let db = Database::open_on(device.clone(), options.clone()).unwrap();
            for _ in 0..12 {
                play(&db, &mut model, &mut random);
                assert_eq!(rows(&db), Vec::from_iter(model.clone()), "seed {seed}");
            }
        }
        let db = Database::open_on(device.clone(), options).unwrap();
        assert_eq!(
            rows(&db),
            Vec::from_iter(model),
            "seed {seed}, after a restart"
        );
    }
}

fn play(db: &Database, model: &mut Model, random: &mut Random) {
    let mut now = model.clone();
    let mut tx = db.begin().unwrap();
    let mut taken: Vec<(Savepoint, Model)> = Vec::new();
    for _ in 0..random.below(120) {
        let key = random.below(24);
        match random.below(10) {
            0..6 => {
                let value = random.below(1 << 40) as i64;
                tx.put(&TABLE, &key, &value).unwrap();
                now.insert(key, value);
            }
            6 | 7 => {
                let was_there = tx.delete(&TABLE, &key).unwrap();
                assert_eq!(was_there, now.remove(&key).is_some());
            }
            8 => taken.push((tx.savepoint().unwrap(), now.clone())),
            _ if taken.is_empty() => {}
            _ => {
                taken.truncate(1 + random.below(taken.len() as u64) as usize);
                let (savepoint, then) = taken.last().unwrap();
                tx.rollback_to(savepoint).unwrap();
                now.clone_from(then);
            }
        }
    }
    assert_eq!(all(&mut tx), Vec::from_iter(now.clone()));
    if random.below(4) > 0 {
        tx.commit().unwrap();
        *model = now;
    }
}

/// Undo is logged in parts, as changes are. A replaced value may be overwritten some time after the
/// last reader. But a value that its transaction may restore stays until the end, however long that
/// takes.
#[test]
fn values_are_kept_until_the_end_however_many_updates_others_make_meanwhile() {
    let db = database(Options::tiny(), TWO);
    let meanwhile = |turn: i64| {
        for _ in 0..3000 {
            let mut other = db.begin().unwrap();
            other.put(&TABLE, &2, &turn).unwrap();
            other.commit().unwrap();
        }
    };
    for last in 0..4 {
        // So that row 1 has versions in several blocks.
        meanwhile(last);
        let mut tx = db.begin().unwrap();
        tx.put(&TABLE, &1, &(100 + last)).unwrap();
        tx.commit().unwrap();
        meanwhile(last);

        let mut tx = db.begin().unwrap();
        let mut before = vec![(tx.savepoint().unwrap(), 100 + last)];
        for turn in 1..5 {
            tx.put(&TABLE, &1, &turn).unwrap();
            before.push((tx.savepoint().unwrap(), turn));
            meanwhile(turn);
        }
        for (savepoint, value) in before.iter().rev() {
            tx.rollback_to(savepoint).unwrap();
            assert_eq!(tx.get(&TABLE, &1).unwrap(), Some(*value));
            meanwhile(*value);
        }
        tx.put(&TABLE, &1, &-1).unwrap();
        meanwhile(-1);
        tx.put(&TABLE, &1, &-2).unwrap();
        meanwhile(-2);
        tx.rollback();
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.get(&TABLE, &1).unwrap(), Some(100 + last));
        tx.commit().unwrap();
    }
    db.verify();
}

#[test]
fn going_back_over_much_needs_no_more_memory_than_going_on() {
    const LARGE: Table<u64, [u8]> = Table::new("large");
    let device = Arc::new(MemoryDevice::default());
    let mut options = Options::tiny();
    options.redo_part_bytes = 4 << 10;
    let rows: Vec<u64> = (0..200).collect();
    let value = |key: u64, mark: u8| {
        let mut value = vec![key as u8; 3_000];
        value[1_500] = mark;
        value
    };
    {
        let db = Database::open_on(device.clone(), options.clone()).unwrap();
        db.run(|tx| {
            rows.iter()
                .try_for_each(|&key| tx.put(&LARGE, &key, &value(key, 1)))
        })
        .unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&LARGE, &0, &value(0, 2)).unwrap();
        let savepoint = tx.savepoint().unwrap();
        for &key in &rows {
            tx.put(&LARGE, &key, &value(key, 3)).unwrap();
        }
        let before = db.stats().log;
        tx.rollback_to(&savepoint).unwrap();
        // All but one part was written, and no record was large.
        let (gone, records) = (
            db.stats().log.bytes - before.bytes,
            db.stats().log.records - before.records,
        );
        assert!(
            gone > 190 * 3_000 && records > 90,
            "{gone} bytes in {records}"
        );
        tx.commit().unwrap();
    }
    let db = Database::open_on(device, options).unwrap();
    let mark = |key: u64| if key == 0 { 2 } else { 1 };
    let expected: Vec<_> = rows
        .iter()
        .map(|&key| (key, value(key, mark(key))))
        .collect();
    assert_eq!(
        db.run(|tx| tx.range(&LARGE, ..).collect()).unwrap(),
        expected
    );
}
