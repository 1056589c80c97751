//! Tables that do not exist: reading one makes nothing, and the transaction that makes it is
//! ordered behind those that read it as empty.
//!
//! Operations are polled by hand, so an operation that waits is one that returned `Pending`.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use foxton::device::MemoryDevice;
use foxton::{
    AsyncTransaction, Database, Durability, Error, Isolation, Lock, LockManagerKind, LockWait,
    Locking, Options, Result, Table, TableLock,
};

const ABSENT: Table<u64, u64> = Table::new("absent");
const OTHER: Table<u64, u64> = Table::new("other");

fn options(lock_manager: LockManagerKind) -> Options {
    let mut options = Options::tiny();
    options.lock_manager = lock_manager;
    options.durability = Durability::None;
    options.lock_wait = Duration::from_secs(3600);
    options
}

fn each_manager(test: impl Fn(Database)) {
    for kind in LockManagerKind::ALL {
        println!("{kind}");
        test(Database::open_on(Arc::new(MemoryDevice::new()), options(kind)).unwrap());
    }
}

fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Runs an operation that must not wait.
fn now<T>(operation: impl Future<Output = Result<T>>) -> Result<T> {
    let mut operation = pin!(operation);
    (0..100)
        .find_map(|_| poll(operation.as_mut()))
        .expect("it does not wait")
}

fn code<T>(result: Result<T>) -> &'static str {
    match result {
        Ok(_) => "done",
        Err(error) => error.code(),
    }
}

/// Names of the tables, and the end of the log.
fn made(db: &Database) -> (Vec<String>, u64) {
    let names = db.stats().tables.into_iter().map(|table| table.name);
    let end = db.begin().unwrap().commit_at().unwrap();
    (names.collect(), end.bytes())
}

#[test]
fn every_read_of_an_absent_table_finds_nothing_and_makes_nothing() -> Result<()> {
    for locking in [Locking::On, Locking::Off] {
        for isolation in Isolation::ALL {
            let mut options = options(LockManagerKind::default());
            (options.locking, options.isolation) = (locking, isolation);
            let db = Database::open_on(Arc::new(MemoryDevice::new()), options)?;
            let before = made(&db);
            let mut tx = db.begin()?;
            assert_eq!(tx.get(&ABSENT, &1)?, None);
            assert_eq!(tx.get_for_update(&ABSENT, &1)?, None);
            for lock in [Lock::Shared, Lock::Update, Lock::Exclusive] {
                assert_eq!(tx.get_locked(&ABSENT, &1, lock)?, None);
                assert_eq!(tx.get_locked(&ABSENT, &1, lock.skip_locked())?, None);
                assert_eq!(tx.get_many_locked(&ABSENT, &[1, 2], lock)?, [None, None]);
                assert_eq!(tx.range(&ABSENT, ..).locked(lock).count()?, 0);
                assert_eq!(tx.range(&ABSENT, ..).locked(lock.nowait()).count()?, 0);
            }
            assert_eq!(tx.get_with(&ABSENT, &1, <[u8]>::len)?, None);
            let mut seen = Vec::new();
            tx.get_many_with(&ABSENT, &[4, 5], |at, bytes| {
                seen.push((at, bytes.is_some()))
            })?;
            assert_eq!(seen, [(0, false), (1, false)]);
            assert_eq!(tx.range(&ABSENT, 3..=9).reversed().collect()?, []);
            assert_eq!(tx.range(&ABSENT, 3..).limit(0).first()?, None);
            assert_eq!(tx.range(&ABSENT, ..9).into_iter().count(), 0);
            tx.range(&ABSENT, ..)
                .for_each_bytes(|_, _| unreachable!())?;
            assert!(!tx.delete(&ABSENT, &1)?);
            assert!(tx.lock_table(&ABSENT, TableLock::IntentShared, LockWait::Default)?);
            assert!(tx.lock_table(&ABSENT, TableLock::Shared, LockWait::Skip)?);
            tx.commit()?;
            let mut tx = db.begin_async()?;
            assert_eq!(now(tx.get(&ABSENT, &1))?, None);
            assert_eq!(now(tx.get_many(&ABSENT, &[1, 2]))?, [None, None]);
            assert_eq!(now(tx.range(&ABSENT, ..).count())?, 0);
            let never = |_: &[u8], _: &[u8]| ControlFlow::Break(());
            now(tx.range(&ABSENT, ..).try_for_each_bytes(never))?;
            assert!(!now(tx.delete(&ABSENT, &1))?);
            now(tx.commit())?;
            assert_eq!(made(&db), before, "{locking:?} {isolation}");
            db.verify();
        }
    }
    Ok(())
}

#[test]
fn any_number_of_names_can_be_read_and_the_limit_is_left_for_tables_that_are_written() -> Result<()>
{
    let db = Database::open_on(
        Arc::new(MemoryDevice::new()),
        options(LockManagerKind::default()),
    )?;
    db.run(|tx| {
        for number in 0..10_000 {
            let name = Box::leak(format!("typo-{number}").into_boxed_str());
            assert_eq!(tx.get(&Table::<u64, u64>::new(name), &1)?, None);
        }
        Ok(())
    })?;
    assert_eq!(made(&db).0, [""; 0]);
    db.run(|tx| tx.put(&ABSENT, &1, &1))?;
    assert_eq!(made(&db).0, ["absent"]);
    assert_eq!(db.run(|tx| tx.get(&ABSENT, &1))?, Some(1));
    Ok(())
}

#[test]
fn a_refused_request_makes_no_table() -> Result<()> {
    const NAMED: Table<str, str> = Table::new("named");
    const NAMELESS: Table<str, str> = Table::new("");
    let db = Database::open_on(
        Arc::new(MemoryDevice::new()),
        options(LockManagerKind::default()),
    )?;
    let before = made(&db);
    let mut tx = db.begin()?;
    let long = "k".repeat(2000);
    assert_eq!(code(tx.put(&NAMED, &long, "")), "key_too_long");
    assert_eq!(code(tx.get(&NAMED, &long)), "key_too_long");
    assert_eq!(code(tx.get(&NAMELESS, "")), "table_name");
    assert_eq!(code(tx.put(&NAMELESS, "", "")), "table_name");
    tx.commit()?;
    assert_eq!(made(&db), before);
    Ok(())
}

#[test]
fn types_are_compared_once_the_table_exists() -> Result<()> {
    const WRONG: Table<u64, str> = Table::new("absent");
    each_manager(|db| {
        let check = || -> Result<()> {
            let mut reader = db.begin_async()?;
            reader.set_isolation(Isolation::ReadCommitted).unwrap();
            assert_eq!(now(reader.get(&WRONG, &1))?, None);
            let mut writer = db.begin_async()?;
            now(writer.put(&ABSENT, &1, &1))?;
            assert_eq!(code(now(reader.get(&WRONG, &1))), "table_types");
            assert_eq!(code(now(reader.range(&WRONG, ..).count())), "table_types");
            now(writer.commit())?;
            // It waited for the transaction that made the table, with other types.
            Ok(())
        };
        check().unwrap();
    });
    Ok(())
}

#[test]
fn a_table_that_was_read_as_absent_is_made_by_another_only_afterwards() {
    type Read = fn(&mut AsyncTransaction) -> Result<()>;
    let reads: [Read; 7] = [
        |tx| now(tx.get(&ABSENT, &1)).map(drop),
        |tx| now(tx.get_for_update(&ABSENT, &1)).map(drop),
        |tx| now(tx.get_many(&ABSENT, &[1, 2])).map(drop),
        |tx| now(tx.range(&ABSENT, ..).count()).map(drop),
        |tx| now(tx.range(&ABSENT, 3..=9).reversed().collect()).map(drop),
        |tx| now(tx.delete(&ABSENT, &1)).map(drop),
        |tx| now(tx.lock_table(&ABSENT, TableLock::Shared, LockWait::Default)).map(drop),
    ];
    each_manager(|db| {
        for (number, read) in reads.into_iter().enumerate() {
            let db = match number {
                0 => db.clone(),
                _ => {
                    Database::open_on(Arc::new(MemoryDevice::new()), db.options().clone()).unwrap()
                }
            };
            let mut reader = db.begin_async().unwrap();
            read(&mut reader).unwrap();
            // Reads do not wait for each other.
            let mut other = db.begin_async().unwrap();
            if number != 1 {
                assert_eq!(now(other.get(&ABSENT, &5)).unwrap(), None);
            }
            now(other.commit()).unwrap();
            let mut writer = db.begin_async().unwrap();
            {
                let mut put = pin!(writer.put(&ABSENT, &7, &7));
                assert!(poll(put.as_mut()).is_none(), "read {number}");
                assert_eq!(made(&db).0, [""; 0]);
                read(&mut reader).unwrap();
                now(reader.commit()).unwrap();
                poll(put.as_mut()).expect("granted").unwrap();
            }
            now(writer.commit()).unwrap();
            assert_eq!(db.run(|tx| tx.get(&ABSENT, &7)).unwrap(), Some(7));
            assert!(db.locks().is_empty());
            db.verify();
        }
    });
}

#[test]
fn a_reader_waits_neither_for_a_maker_of_the_table_nor_at_levels_that_hold_nothing() {
    each_manager(|db| {
        let mut maker = db.begin_async().unwrap();
        now(maker.put(&ABSENT, &7, &7)).unwrap();
        // Another key, in a table that exists by now.
        let mut reader = db.begin_async().unwrap();
        assert_eq!(now(reader.get(&ABSENT, &1)).unwrap(), None);
        now(reader.commit()).unwrap();
        drop(maker);
        for level in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
            let mut reader = db.begin_async().unwrap();
            reader.set_isolation(level).unwrap();
            assert_eq!(now(reader.range(&OTHER, ..).count()).unwrap(), 0);
        }
        assert!(db.locks().is_empty());
        let mut reader = db.begin_async().unwrap();
        reader.set_isolation(Isolation::ReadCommitted).unwrap();
        assert_eq!(now(reader.get(&OTHER, &1)).unwrap(), None);
        let mut maker = db.begin_async().unwrap();
        now(maker.put(&OTHER, &1, &1)).unwrap();
        now(maker.commit()).unwrap();
        assert_eq!(now(reader.get(&OTHER, &1)).unwrap(), Some(1));
    });
}

/// From then on other transactions find the table and no longer look at its name.
#[test]
fn what_a_transaction_read_as_absent_stays_protected_when_it_makes_the_table_itself() {
    each_manager(|db| {
        let mut tx = db.begin_async().unwrap();
        assert_eq!(now(tx.range(&ABSENT, ..).count()).unwrap(), 0);
        now(tx.put(&ABSENT, &1, &1)).unwrap();
        let mut other = db.begin_async().unwrap();
        {
            let mut put = pin!(other.put(&ABSENT, &2, &2));
            assert!(poll(put.as_mut()).is_none());
            assert_eq!(now(tx.range(&ABSENT, ..).collect()).unwrap(), [(1, 1)]);
            now(tx.commit()).unwrap();
            poll(put.as_mut()).expect("granted").unwrap();
        }
        now(other.commit()).unwrap();
        // The lock for update that it was granted, too.
        let mut tx = db.begin_async().unwrap();
        assert_eq!(now(tx.get_for_update(&OTHER, &1)).unwrap(), None);
        now(tx.put(&OTHER, &2, &2)).unwrap();
        let mut other = db.begin_async().unwrap();
        {
            let mut get = pin!(other.get_for_update(&OTHER, &1));
            assert!(poll(get.as_mut()).is_none());
            now(tx.put(&OTHER, &1, &1)).unwrap();
            now(tx.commit()).unwrap();
            assert_eq!(poll(get.as_mut()).expect("granted").unwrap(), Some(1));
        }
        drop(other);
        assert!(db.locks().is_empty());
        db.verify();
    });
}

#[test]
fn locks_for_update_of_an_absent_table_exclude_each_other_and_cause_no_deadlock() {
    each_manager(|db| {
        let [mut one, mut two] = [db.begin_async().unwrap(), db.begin_async().unwrap()];
        assert_eq!(now(one.get_for_update(&ABSENT, &1)).unwrap(), None);
        {
            let mut get = pin!(two.get_for_update(&ABSENT, &1));
            assert!(poll(get.as_mut()).is_none());
            now(one.put(&ABSENT, &1, &10)).unwrap();
            now(one.commit()).unwrap();
            assert_eq!(poll(get.as_mut()).expect("granted").unwrap(), Some(10));
        }
        now(two.commit()).unwrap();
        assert_eq!(db.stats().deadlocks, 0);
    });
}

#[test]
fn two_that_read_it_as_absent_and_both_write_are_a_deadlock() {
    each_manager(|db| {
        let [mut one, mut two] = [db.begin_async().unwrap(), db.begin_async().unwrap()];
        assert_eq!(now(one.get(&ABSENT, &1)).unwrap(), None);
        assert_eq!(now(two.get(&ABSENT, &2)).unwrap(), None);
        let (one_put, two_put) = {
            let mut one_put = pin!(one.put(&ABSENT, &1, &1));
            assert!(poll(one_put.as_mut()).is_none());
            let mut two_put = pin!(two.put(&ABSENT, &2, &2));
            // Some managers find the cycle in a thread of their own.
            loop {
                match (poll(one_put.as_mut()), poll(two_put.as_mut())) {
                    (Some(one), Some(two)) => break (one, two),
                    (Some(one), None) => {
                        break (one, poll_until(two_put.as_mut()));
                    }
                    (None, Some(two)) => break (poll_until(one_put.as_mut()), two),
                    (None, None) => thread::yield_now(),
                }
            }
        };
        let codes = [code(one_put), code(two_put)];
        assert!(
            codes == ["done", "deadlock"] || codes == ["deadlock", "done"],
            "{codes:?}"
        );
    });
}

fn poll_until<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> T {
    loop {
        match poll(future.as_mut()) {
            Some(output) => return output,
            None => thread::yield_now(),
        }
    }
}

#[test]
fn a_refusal_names_the_table_and_a_dropped_write_makes_nothing() -> Result<()> {
    let db = Database::open_on(
        Arc::new(MemoryDevice::new()),
        options(LockManagerKind::default()),
    )?;
    let before = made(&db);
    let mut reader = db.begin()?;
    assert_eq!(reader.get(&ABSENT, &1)?, None);
    let mut writer = db.begin_async()?;
    assert!(poll(pin!(writer.put(&ABSENT, &1, &1))).is_none());
    let ix = TableLock::IntentExclusive;
    assert!(!now(writer.lock_table(&ABSENT, ix, LockWait::Skip))?);
    let refused = now(writer.lock_table(&ABSENT, ix, LockWait::Refuse)).unwrap_err();
    assert_eq!(refused.code(), "lock_busy");
    assert!(refused.to_string().contains("absent"), "{refused}");
    now(writer.commit())?;
    reader.commit()?;
    assert_eq!(made(&db), before);
    Ok(())
}

#[test]
fn a_table_that_was_only_read_is_not_there_after_a_restart() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("foxton-absent-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    for _ in 0..2 {
        let db = Database::open_with(&directory, options(LockManagerKind::default()))?;
        assert_eq!(db.run(|tx| tx.get(&ABSENT, &1))?, None);
        db.run(|tx| tx.put(&OTHER, &1, &1))?;
        db.checkpoint()?;
        assert_eq!(made(&db).0, ["other"]);
    }
    std::fs::remove_dir_all(directory).map_err(Error::other)
}

/// Write skew over two absent tables: each transaction writes to one if the other is empty.
#[test]
fn transactions_on_absent_tables_are_serializable() {
    for kind in LockManagerKind::ALL {
        for round in 0..20u64 {
            let db = Database::open_on(Arc::new(MemoryDevice::new()), options(kind)).unwrap();
            thread::scope(|scope| {
                for number in 0..4u64 {
                    let db = &db;
                    scope.spawn(move || {
                        let (own, other) = match number % 2 {
                            0 => (&ABSENT, &OTHER),
                            _ => (&OTHER, &ABSENT),
                        };
                        db.run(|tx| {
                            let is_empty = match (number + round) % 3 {
                                0 => tx.get(other, &1)?.is_none() && tx.get(other, &2)?.is_none(),
                                1 => tx.range(other, ..).count()? == 0,
                                _ => tx.get_many(other, &[1, 2])? == [None, None],
                            };
                            match is_empty {
                                true => tx.put(own, &(1 + number / 2), &number),
                                false => Ok(()),
                            }
                        })
                        .unwrap();
                    });
                }
            });
            let rows = |table| db.run(|tx| tx.range(table, ..).count()).unwrap();
            let counts = (rows(&ABSENT), rows(&OTHER));
            assert!(counts == (0, 2) || counts == (2, 0), "{kind} {counts:?}");
            db.verify();
        }
    }
}
