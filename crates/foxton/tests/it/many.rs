//! Reading many keys at once returns the same as reading them one after the other.

use std::task::{Context, Waker};

use crate::common::random::Random;
use crate::common::*;
use foxton::codec::{Encoded, TypeName};
use foxton::{CancelToken, Database, Isolation, Lock, MAX_KEY_BYTES, Options, Table, Transaction};

const FIVE: &[(u64, i64)] = &[(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)];

#[test]
fn values_come_in_request_order_with_missing_and_repeated_keys() {
    over_all_managers(|options| {
        let db = database(options, FIVE);
        let mut tx = db.begin().unwrap();
        tx.put(&TABLE, &3, &33).unwrap();
        tx.delete(&TABLE, &4).unwrap();
        tx.insert(&TABLE, &9, &90).unwrap();
        let keys = [9, 4, 3, 7, 3, 1, 0, u64::MAX];
        let expected = [
            Some(90),
            None,
            Some(33),
            None,
            Some(33),
            Some(10),
            None,
            None,
        ];
        assert_eq!(tx.get_many(&TABLE, &keys).unwrap(), expected);
        assert_eq!(tx.get_many(&TABLE, []).unwrap(), []);
        let mut seen = Vec::new();
        let see = |place: usize, bytes: Option<&[u8]>| {
            seen.push((
                place,
                bytes.map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())),
            ));
        };
        tx.get_many_with(&TABLE, &keys, see).unwrap();
        assert!(seen.into_iter().eq(expected.into_iter().enumerate()));
        tx.commit().unwrap();
    });
}

/// As many as are prefetched at once, one fewer, one more, and many.
#[test]
fn however_many_there_are() {
    let db = database(Options::tiny(), &[]);
    db.run(|tx| (0..1000).try_for_each(|key| tx.put(&TABLE, &(2 * key), &(key as i64))))
        .unwrap();
    let mut random = Random(7);
    for count in [0, 1, 2, 15, 16, 17, 31, 32, 33, 100, 5000] {
        let keys: Vec<u64> = (0..count).map(|_| random.below(2100)).collect();
        let mut tx = db.begin().unwrap();
        let one_by_one: Vec<_> = keys
            .iter()
            .map(|key| tx.get(&TABLE, key).unwrap())
            .collect();
        drop(tx);
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.get_many(&TABLE, &keys).unwrap(), one_by_one);
        let locked = locked_keys(&db);
        drop(tx);
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(
            locked,
            distinct.len(),
            "each of {count} is locked, there or not"
        );
    }
}

#[test]
fn keys_of_any_length() {
    const NAMES: Table<str, str> = Table::new("names");
    let db = Database::in_memory(Options::tiny()).unwrap();
    let names: Vec<String> = (0..40).map(|length| "n".repeat(length * 25)).collect();
    let mut tx = db.begin().unwrap();
    for name in names.iter().step_by(2) {
        tx.put(&NAMES, name, name).unwrap();
    }
    let found = tx
        .get_many(&NAMES, names.iter().map(String::as_str))
        .unwrap();
    for (place, (name, value)) in names.iter().zip(found).enumerate() {
        assert_eq!(value.as_ref(), (place % 2 == 0).then_some(name));
    }
}

#[test]
fn a_key_that_is_too_long_is_refused_before_any_is_locked() {
    let db = database(Options::tiny(), FIVE);
    let mut tx = db.begin().unwrap();
    let table: Table<[u8], i64> = Table::new("bytes");
    tx.put(&table, b"a", &1).unwrap();
    let before = locked_keys(&db);
    let long = vec![0; MAX_KEY_BYTES + 1];
    let refused = tx.get_many(&table, [&b"b"[..], &long]).unwrap_err();
    assert_eq!(refused.code(), "key_too_long");
    assert_eq!(locked_keys(&db), before);
    let wrong: Table<str, i64> = Table::new("bytes");
    assert_eq!(
        tx.get_many(&wrong, ["a"]).unwrap_err().code(),
        "table_types"
    );
    assert_eq!(
        tx.get_many(&table, [&b"a"[..]]).unwrap(),
        [Some(1)],
        "it goes on"
    );
}

#[test]
fn bytes_that_are_no_value_are_the_error_that_one_read_has() {
    let db = Database::in_memory(Options::tiny()).unwrap();
    let mut tx = db.begin().unwrap();
    tx.make_table("ages", &TypeName::new("str"), &TypeName::new("u32"))
        .unwrap();
    for (name, bytes) in [("ada", vec![36, 0, 0, 0]), ("bob", vec![1, 2, 3])] {
        let (key, value) = (Encoded(name.into()), Encoded(bytes));
        tx.put(&Table::new("ages"), &key, &value).unwrap();
    }
    let ages: Table<str, u32> = Table::new("ages");
    let one = tx.get(&ages, "bob").unwrap_err();
    let many = tx.get_many(&ages, ["ada", "bob"]).unwrap_err();
    assert_eq!(
        (many.code(), many.to_string()),
        (one.code(), one.to_string())
    );
    assert_eq!(tx.get_many(&ages, ["ada"]).unwrap(), [Some(36)]);
}

#[test]
fn a_wait_in_the_middle_continues_there_and_sees_the_new_values() {
    two(FIVE, |one, other| {
        assert_eq!(one.put(3, 33), Done);
        assert_eq!(other.get_many_as(&[1, 3, 5], Lock::Shared), Waits);
        assert_eq!(one.get(1), Value(Some(10)), "which is locked shared by now");
        assert_eq!(one.put(5, 55), Done, "which is not locked yet");
        assert_eq!(one.commit(), Done);
        assert_eq!(other.resume(), Rows(vec![(1, 10), (3, 33), (5, 55)]));
        assert_eq!(other.commit(), Done);
        vec![(1, 10), (2, 20), (3, 33), (4, 40), (5, 55)]
    });
}

#[test]
fn missing_keys_stay_missing_and_values_stay() {
    two(FIVE, |one, other| {
        let read = Rows(vec![(2, 20), (1, 10)]);
        assert_eq!(one.get_many_as(&[2, 7, 1], Lock::Shared), read);
        assert_eq!(other.insert(7, 70), Waits);
        assert_eq!(one.get_many_as(&[2, 7, 1], Lock::Shared), read);
        assert_eq!(one.commit(), Done);
        assert_eq!(other.resume(), Done);
        assert_eq!(other.commit(), Done);
        vec![(1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (7, 70)]
    });
}

#[test]
fn a_row_deleted_during_the_wait_is_absent() {
    two(FIVE, |one, other| {
        assert_eq!(one.delete(4), Done);
        assert_eq!(one.insert(6, 60), Done);
        assert_eq!(other.get_many_as(&[5, 4, 6], Lock::Update), Waits);
        assert_eq!(one.commit(), Done);
        let woken = other.resume();
        assert_eq!(woken, Rows(vec![(5, 50), (6, 60)]));
        assert_eq!(other.put(6, 66), Done);
        assert_eq!(other.commit(), Done);
        vec![(1, 10), (2, 20), (3, 30), (5, 50), (6, 66)]
    });
}

#[test]
fn locked_keys_are_skipped_or_refused_on_request() {
    two(FIVE, |one, other| {
        assert_eq!(one.put(2, 22), Done);
        let skip = Lock::Update.skip_locked();
        assert_eq!(
            other.get_many_as(&[1, 2, 3], skip),
            Rows(vec![(1, 10), (3, 30)])
        );
        assert_eq!(
            other.get_many_as(&[4, 2, 5], Lock::Update.nowait()),
            Refused("lock_busy")
        );
        assert_eq!(
            one.get_as(4, Lock::Update.nowait()),
            Refused("lock_busy"),
            "locked before the refusal"
        );
        assert_eq!(
            one.get_as(5, Lock::Update.nowait()),
            Value(Some(50)),
            "not asked for"
        );
        one.abort();
        assert_eq!(other.commit(), Done);
        FIVE.to_vec()
    });
}

#[test]
fn a_deadlock_ends_one_of_two() {
    two(FIVE, |one, other| {
        assert_eq!(one.put(1, 11), Done);
        assert_eq!(other.put(3, 33), Done);
        assert_eq!(one.get_many_as(&[2, 3], Lock::Shared), Waits);
        let saw = other.get_many_as(&[5, 1], Lock::Shared);
        let (one_gave_way, _) = one_is_the_victim(one, other, saw);
        match one_gave_way {
            true => {
                assert_eq!(other.commit(), Done);
                vec![(1, 10), (2, 20), (3, 33), (4, 40), (5, 50)]
            }
            false => {
                assert_eq!(one.commit(), Done);
                vec![(1, 11), (2, 20), (3, 30), (4, 40), (5, 50)]
            }
        }
    });
}

#[test]
fn a_future_that_is_dropped_while_it_waits_withdraws() {
    two(FIVE, |one, other| {
        assert_eq!(one.put(3, 33), Done);
        assert_eq!(other.get_many_as(&[1, 3, 5], Lock::Shared), Waits);
        other.give_up();
        assert_eq!(one.put(1, 11), Done, "nobody has it any more");
        assert_eq!(one.commit(), Done);
        vec![(1, 11), (2, 20), (3, 33), (4, 40), (5, 50)]
    });
}

#[test]
fn too_many_are_traded_for_their_table_as_one_by_one() {
    over_all_managers(|mut options| {
        options.lock_escalation = 8;
        let keys: Vec<u64> = (0..100).map(|number| number << 16).collect();
        let names = |many: bool| {
            let db = database(options.clone(), FIVE);
            let read = |tx: &mut Transaction| match many {
                true => tx.get_many(&TABLE, &keys).unwrap(),
                false => keys
                    .iter()
                    .map(|key| tx.get(&TABLE, key).unwrap())
                    .collect(),
            };
            let mut tx = db.begin().unwrap();
            assert_eq!(read(&mut tx), vec![None; keys.len()]);
            assert_eq!(db.stats().locks.escalations, 1);
            let names = db.locks().len();
            tx.commit().unwrap();
            assert!(db.locks().is_empty());
            names
        };
        assert_eq!(names(true), names(false));
    });
}

#[test]
fn a_canceller_ends_it_at_the_next_key() {
    let db = database(Options::tiny(), FIVE);
    let cancel_token = CancelToken::new();
    let mut tx = db.begin().unwrap();
    tx.set_cancel_token(&cancel_token);
    tx.put(&TABLE, &1, &11).unwrap();
    let mut seen = Vec::new();
    let read = tx.get_many_with(&TABLE, &[5, 4, 3, 2, 1], |place, _| {
        seen.push(place);
        if place == 2 {
            cancel_token.cancel();
        }
    });
    assert_eq!(read.unwrap_err().code(), "cancelled");
    assert_eq!(seen, [0, 1, 2]);
    assert!(db.locks().is_empty(), "it was rolled back");
    assert_eq!(rows(&db), FIVE);
    assert_eq!(tx.get_many(&TABLE, &[1]).unwrap_err().code(), "cancelled");
}

/// At levels that release locks after the read, no key stays locked, whether the read waited for it
/// or not. Keys locked before stay locked.
#[test]
fn at_weaker_levels_they_are_locked_as_one_by_one() {
    for level in Isolation::LOCKING {
        let db = database(Options::tiny(), FIVE);
        let mut one = Session::at(level, &db, "one");
        let mut other = Session::new(&db, "other");
        assert_eq!(one.get_for_update(2), Value(Some(20)));
        assert_eq!(other.put(3, 33), Done);
        let first = one.get_many_as(&[1, 2, 3, 7], Lock::Shared);
        let read = |third| Rows(vec![(1, 10), (2, 20), (3, third)]);
        match level {
            Isolation::ReadUncommitted => assert_eq!(first, read(33)),
            _ => assert_eq!(first, Waits),
        }
        assert_eq!(other.commit(), Done);
        if first == Waits {
            assert_eq!(one.resume(), read(33));
        }
        let many = locked_keys(&db);
        drop(one);
        let mut one = Session::at(level, &db, "one by one");
        assert_eq!(one.get_for_update(2), Value(Some(20)));
        for key in [1, 2, 3, 7] {
            one.get(key);
        }
        assert_eq!(many, locked_keys(&db), "{level}");
    }
}

/// A dropped read has recorded locks that it would have released. A later lock with the same name
/// is another lock.
#[test]
fn the_next_read_does_not_release_a_lock_of_a_dropped_one() {
    over_all_managers(|options| {
        let db = database(options, FIVE);
        let mut holder = Session::new(&db, "holder");
        assert_eq!(holder.put(3, 33), Done);
        let mut tx = db.begin_async().unwrap();
        tx.set_isolation(Isolation::ReadCommitted).unwrap();
        {
            let mut waits = Box::pin(tx.get_many(&TABLE, &[1, 3]));
            let mut context = Context::from_waker(Waker::noop());
            assert!(waits.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(holder.commit(), Done);
        now(tx.put(&TABLE, &3, &34)).unwrap();
        let read = now(tx.get_many(&TABLE, &[2, 4])).unwrap();
        assert_eq!(read, [Some(20), Some(40)]);
        let mut other = Session::new(&db, "other");
        let refused = other.get_as(3, Lock::Shared.nowait());
        assert_eq!(
            refused,
            Refused("lock_busy"),
            "it was written and is not committed"
        );
        now(tx.commit()).unwrap();
        db.verify();
    });
}

#[test]
fn random_transactions_read_what_one_by_one_they_would() {
    over_all_managers(|options| {
        let db = database(options, FIVE);
        let mut random = Random(3);
        for _ in 0..200 {
            let mut tx = db.begin().unwrap();
            for _ in 0..random.below(4) {
                let key = random.below(12);
                match random.below(2) {
                    0 => drop(tx.delete(&TABLE, &key).unwrap()),
                    _ => tx.put(&TABLE, &key, &(random.below(100) as i64)).unwrap(),
                }
            }
            let keys: Vec<u64> = (0..random.below(40)).map(|_| random.below(14)).collect();
            let lock = [Lock::Shared, Lock::Update, Lock::Exclusive][random.below(3) as usize];
            let many = tx.get_many_locked(&TABLE, &keys, lock).unwrap();
            let one_by_one: Vec<_> = keys
                .iter()
                .map(|key| tx.get(&TABLE, key).unwrap())
                .collect();
            assert_eq!(many, one_by_one);
            if random.below(3) > 0 {
                tx.commit().unwrap();
            }
        }
        db.verify();
    });
}

/// Threads move money between rows that they read together; the sum is always right.
#[test]
fn threads_that_read_many_see_one_moment() {
    let mut options = Options::tiny();
    options.lock_manager = foxton::LockManagerKind::Direct;
    let start: Vec<(u64, i64)> = (0..20).map(|key| (key, 100)).collect();
    let db = database(options, &start);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let db = &db;
            scope.spawn(move || {
                let mut random = Random(thread);
                let all: Vec<u64> = (0..20).collect();
                for _ in 0..300 {
                    if thread % 2 == 0 {
                        let sum = db.run(|tx| {
                            let all = tx.get_many(&TABLE, &all)?;
                            Ok(all.into_iter().flatten().sum::<i64>())
                        });
                        assert_eq!(sum.unwrap(), 2000);
                        continue;
                    }
                    let from = random.below(20);
                    let to = (from + 1 + random.below(19)) % 20;
                    let moved = db.run(|tx| {
                        let pair = tx.get_many_locked(&TABLE, &[from, to], Lock::Update)?;
                        tx.put(&TABLE, &from, &(pair[0].unwrap() - 1))?;
                        tx.put(&TABLE, &to, &(pair[1].unwrap() + 1))
                    });
                    moved.unwrap();
                }
            });
        }
    });
    db.verify();
}
