//! Sessions driven step by step: no threads, no clocks, no sleeping.
//!
//! A session is one transaction whose operations are futures that the test polls. An operation that
//! must wait returns [`Saw::Waits`]. `resume` polls it again, but only if it was woken. So a lost
//! wake-up shows as a wait that never ends.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]

pub(crate) mod gate;
pub(crate) mod paged;
pub(crate) mod random;
pub(crate) mod scratch;

use std::ops::{Bound, ControlFlow};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use foxton::{
    AsyncTransaction, Database, Durability, Error, Index, Isolation, Lock, LockInheritance,
    LockOptions, LockWait, Options, Savepoint, Table, TableComponent, TableLock,
};

pub const TABLE: Table<u64, i64> = Table::new("test");

/// An index by value; several rows may have the same value.
pub const BY_VALUE: Index<i64, u64, i64> =
    Index::new("by_value", &TABLE, |_, value, keys| keys.add(value));
/// An index by value; each value belongs to one row.
pub const BY_OWN_VALUE: Index<i64, u64, i64> =
    Index::unique("by_own_value", &TABLE, |_, value, keys| keys.add(value));

/// Result of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saw {
    Waits,
    Done,
    Value(Option<i64>),
    Rows(Vec<(u64, i64)>),
    Refused(&'static str),
}

pub use Saw::{Done, Refused, Rows, Value, Waits};

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

type Running = Pin<Box<dyn Future<Output = (Option<AsyncTransaction>, Saw)> + Send>>;

/// One transaction, step by step.
pub struct Session {
    idle: Option<AsyncTransaction>,
    running: Option<Running>,
    woken: Arc<Flag>,
}

type Bounds = (Bound<u64>, Bound<u64>);

impl Session {
    pub fn new(db: &Database, label: &'static str) -> Session {
        Session::at(db.options().isolation, db, label)
    }

    pub fn at(level: Isolation, db: &Database, label: &'static str) -> Session {
        let mut tx = db.begin_async().unwrap();
        tx.set_isolation(level).unwrap();
        tx.set_label(label);
        Session::of(tx)
    }

    /// Wraps a transaction that was begun elsewhere.
    pub fn of(tx: AsyncTransaction) -> Session {
        Session {
            idle: Some(tx),
            running: None,
            woken: Arc::new(Flag(AtomicBool::new(false))),
        }
    }

    fn start<F>(&mut self, operation: impl FnOnce(AsyncTransaction) -> F) -> Saw
    where
        F: Future<Output = (Option<AsyncTransaction>, Saw)> + Send + 'static,
    {
        let tx = self.idle.take().expect("the session is idle");
        self.running = Some(Box::pin(operation(tx)));
        self.woken.0.store(true, Ordering::SeqCst);
        self.resume()
    }

    /// Continues the operation if it was woken.
    pub fn resume(&mut self) -> Saw {
        if !self.woken.0.swap(false, Ordering::SeqCst) {
            return Waits;
        }
        let waker = Waker::from(self.woken.clone());
        let running = self.running.as_mut().expect("something runs");
        match running.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => Waits,
            Poll::Ready((tx, saw)) => {
                (self.idle, self.running) = (tx, None);
                saw
            }
        }
    }

    /// Drops the waiting operation, and with it the transaction.
    pub fn give_up(&mut self) {
        self.running = None;
        self.idle = None;
    }

    pub fn get(&mut self, key: u64) -> Saw {
        self.get_as(key, Lock::Shared)
    }

    pub fn get_for_update(&mut self, key: u64) -> Saw {
        self.get_as(key, Lock::Update)
    }

    pub fn get_as(&mut self, key: u64, lock: impl Into<LockOptions>) -> Saw {
        let lock = lock.into();
        self.start(move |mut tx| async move {
            let saw = tx
                .get_locked(&TABLE, &key, lock)
                .await
                .map_or_else(refused, Value);
            (Some(tx), saw)
        })
    }

    /// Reads those of `keys` that exist, in the order of `keys`.
    pub fn get_many_as(&mut self, keys: &[u64], lock: impl Into<LockOptions>) -> Saw {
        let (keys, lock) = (keys.to_vec(), lock.into());
        self.start(move |mut tx| async move {
            let found = tx.get_many_locked(&TABLE, &keys, lock).await;
            let saw = found.map_or_else(refused, |values| {
                assert_eq!(values.len(), keys.len());
                let pairs = keys.iter().zip(values);
                Rows(
                    pairs
                        .filter_map(|(&key, value)| Some((key, value?)))
                        .collect(),
                )
            });
            (Some(tx), saw)
        })
    }

    pub fn put(&mut self, key: u64, value: i64) -> Saw {
        self.start(move |mut tx| async move {
            let saw = tx
                .put(&TABLE, &key, &value)
                .await
                .map_or_else(refused, |()| Done);
            (Some(tx), saw)
        })
    }

    pub fn insert(&mut self, key: u64, value: i64) -> Saw {
        self.start(move |mut tx| async move {
            let saw = tx
                .insert(&TABLE, &key, &value)
                .await
                .map_or_else(refused, |()| Done);
            (Some(tx), saw)
        })
    }

    pub fn delete(&mut self, key: u64) -> Saw {
        self.start(move |mut tx| async move {
            let saw = tx.delete(&TABLE, &key).await.map_or_else(refused, |_| Done);
            (Some(tx), saw)
        })
    }

    pub fn scan(&mut self, range: impl std::ops::RangeBounds<u64>) -> Saw {
        self.scan_as(range, false, u64::MAX, Lock::Shared)
    }

    pub fn scan_as(
        &mut self,
        range: impl std::ops::RangeBounds<u64>,
        reversed: bool,
        limit: u64,
        lock: impl Into<LockOptions>,
    ) -> Saw {
        let lock = lock.into();
        let range: Bounds = (range.start_bound().cloned(), range.end_bound().cloned());
        self.start(move |mut tx| async move {
            let mut rows = Vec::new();
            let mut all = tx.range(&TABLE, range).limit(limit).locked(lock);
            if reversed {
                all = all.reversed();
            }
            let read = all.try_for_each_bytes(|key, value| {
                let key = u64::from_be_bytes(key.try_into().unwrap());
                rows.push((key, i64::from_le_bytes(value.try_into().unwrap())));
                ControlFlow::Continue(())
            });
            let saw = read.await.map_or_else(refused, |()| Rows(rows));
            (Some(tx), saw)
        })
    }

    pub fn lock_table(&mut self, lock: TableLock, wait: LockWait) -> Saw {
        self.start(move |mut tx| async move {
            let locked = tx.lock_table(&TABLE, lock, wait).await;
            (Some(tx), locked.map_or_else(refused, had))
        })
    }

    pub fn lock_advisory(&mut self, number: u64, lock: impl Into<LockOptions>) -> Saw {
        let lock = lock.into();
        self.start(move |mut tx| async move {
            let locked = tx.lock_advisory(number, lock).await;
            (Some(tx), locked.map_or_else(refused, had))
        })
    }

    /// Returns the transaction, between operations.
    pub fn transaction(&mut self) -> &mut AsyncTransaction {
        self.idle.as_mut().expect("the session is idle")
    }

    pub fn savepoint(&mut self) -> Savepoint {
        self.transaction().savepoint().unwrap()
    }

    pub fn rollback_to(&mut self, savepoint: &Savepoint) {
        now(self.transaction().rollback_to(savepoint)).unwrap();
    }

    /// Reads the row that has `value`, by the unique index.
    pub fn get_by(&mut self, value: i64) -> Saw {
        self.get_by_as(value, Lock::Shared)
    }

    pub fn get_by_as(&mut self, value: i64, lock: impl Into<LockOptions>) -> Saw {
        let lock = lock.into();
        self.start(move |mut tx| async move {
            let row = tx.get_by_locked(&BY_OWN_VALUE, &value, lock).await;
            let saw = row.map_or_else(refused, |row| Rows(row.into_iter().collect()));
            (Some(tx), saw)
        })
    }

    /// Reads the rows whose values are in `range`, ordered by value, through either index.
    pub fn scan_by(
        &mut self,
        index: Index<i64, u64, i64>,
        range: impl std::ops::RangeBounds<i64>,
        reversed: bool,
        limit: u64,
        lock: impl Into<LockOptions>,
    ) -> Saw {
        let lock = lock.into();
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        self.start(move |mut tx| async move {
            let mut all = tx.range_by(&index, range).limit(limit).locked(lock);
            if reversed {
                all = all.reversed();
            }
            let rows = all.collect().await;
            let saw = rows.map_or_else(refused, |rows| {
                Rows(
                    rows.into_iter()
                        .map(|(_, key, value)| (key, value))
                        .collect(),
                )
            });
            (Some(tx), saw)
        })
    }

    pub fn commit(&mut self) -> Saw {
        self.start(|tx| async { (None, tx.commit().await.map_or_else(refused, |()| Done)) })
    }

    pub fn abort(&mut self) {
        self.idle = None;
    }
}

fn had(locked: bool) -> Saw {
    if locked { Done } else { Refused("passed over") }
}

fn refused(error: Error) -> Saw {
    Refused(error.code())
}

/// Runs an operation that must not wait.
pub fn now<T>(operation: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match Box::pin(operation).as_mut().poll(&mut context) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}

/// Creates a database in memory with these rows.
pub fn database(mut options: Options, rows: &[(u64, i64)]) -> Database {
    options.durability = Durability::None;
    filled(Database::in_memory(options).unwrap(), rows)
}

/// Puts these rows into a new database.
pub fn filled(db: Database, rows: &[(u64, i64)]) -> Database {
    if db.options().component == TableComponent::Paged {
        // So that no session waits for the first page of the table.
        db.run(|tx| tx.put(&TABLE, &0, &0)).unwrap();
        db.run(|tx| tx.delete(&TABLE, &0)).unwrap();
    }
    db.run(|tx| {
        rows.iter()
            .try_for_each(|(key, value)| tx.put(&TABLE, key, value))
    })
    .unwrap();
    db
}

/// Returns the number of locked keys.
pub fn locked_keys(db: &Database) -> usize {
    let locks = db.locks();
    let keys = locks.iter().filter(|lock| lock.name.parent().is_some());
    keys.count()
}

/// Returns all rows of the table.
pub fn rows(db: &Database) -> Vec<(u64, i64)> {
    db.run(|tx| tx.range(&TABLE, ..).collect()).unwrap()
}

/// Both sessions waited for each other: exactly one was ended, and the other continues. Returns
/// whether `one` was ended, and the result of the surviving operation; `other_saw` is the result of
/// `other`.
pub fn one_is_the_victim(one: &mut Session, other: &mut Session, other_saw: Saw) -> (bool, Saw) {
    let other_saw = if other_saw == Waits {
        other.resume()
    } else {
        other_saw
    };
    let one_saw = one.resume();
    match (&one_saw, &other_saw) {
        (Refused("deadlock"), Waits) => (true, other.resume()),
        (Refused("deadlock"), saw) => (true, saw.clone()),
        (Waits, Refused("deadlock")) => (false, one.resume()),
        (saw, Refused("deadlock")) => (false, saw.clone()),
        both => panic!("nobody gave way: {both:?}"),
    }
}

/// Runs a test with every lock manager, with few and many buckets, without and with inheritance, on
/// tables in memory and on paged ones.
pub fn over_all_managers(test: impl Fn(Options)) {
    for component in TableComponent::ALL {
        over_all_managers_with(component, &test);
    }
}

fn over_all_managers_with(component: TableComponent, test: &impl Fn(Options)) {
    for kind in foxton::LockManagerKind::ALL {
        for (buckets, inherit) in [
            (1, LockInheritance::Off),
            (1024, LockInheritance::Off),
            (1024, LockInheritance::Always),
        ] {
            let mut options = Options::tiny();
            options.lock_manager = kind;
            options.lock_buckets = buckets;
            options.lock_inheritance = inherit;
            options.component = component;
            options.page_memory = 1 << 20;
            println!("{component}: {kind} with {buckets} buckets, inheritance {inherit}");
            test(options);
        }
    }
}

/// Initial rows of most schedules.
pub const TWO: &[(u64, i64)] = &[(1, 10), (2, 20)];

/// Runs a schedule of two sessions on a database with these rows, with every lock manager.
pub fn two(start: &[(u64, i64)], schedule: impl Fn(&mut Session, &mut Session) -> Vec<(u64, i64)>) {
    over_all_managers(|options| {
        let db = database(options, start);
        let (mut one, mut other) = (Session::new(&db, "T1"), Session::new(&db, "T2"));
        let expected = schedule(&mut one, &mut other);
        drop((one, other));
        assert_eq!(rows(&db), expected);
        assert!(db.locks().is_empty(), "{:?}", db.locks());
        db.verify();
    });
}
