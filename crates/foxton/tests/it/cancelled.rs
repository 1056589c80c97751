//! Cancelled transactions: during a wait, between operations, in a range, before and after their
//! commit; of threads, tasks and sessions, over every lock manager. Without cancellation these
//! waits would never end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::common::*;
use foxton::error::{Conflict, ConflictReason};
use foxton::{
    AsyncTransaction, CancelToken, Database, Error, Lock, LockManagerKind, LockOptions, Options,
    Result,
};

/// No lock wait has a time limit.
fn patient(mut options: Options) -> Database {
    options.lock_wait = Duration::MAX;
    database(options, TWO)
}

/// A session holds the first row.
fn held(options: Options) -> (Database, Session) {
    let db = patient(options);
    let mut holder = Session::new(&db, "holder");
    assert_eq!(holder.put(1, 11), Done);
    (db, holder)
}

/// A session with a cancel token.
fn watched(db: &Database, cancel_token: &CancelToken) -> Session {
    let mut session = Session::new(db, "waits");
    session.transaction().set_cancel_token(cancel_token);
    session
}

fn nothing_is_left(db: &Database) {
    assert!(db.locks().is_empty(), "{:?}", db.locks());
    db.verify();
}

fn cancelled<T>(asked: Result<T>) -> Conflict {
    let Err(refused) = asked else {
        panic!("it was not refused");
    };
    assert_eq!(refused.code(), "cancelled");
    assert!(!refused.is_retryable());
    match refused {
        Error::Conflict(conflict) => conflict,
        other => panic!("{other}"),
    }
}

fn until_a_request_waits(db: &Database, count: usize) {
    while db.waits().len() < count {
        thread::yield_now();
    }
}

#[test]
fn a_thread_that_waits_is_rolled_back_at_once_and_not_run_again() {
    over_all_managers(|options| {
        let (db, mut holder) = held(options);
        let cancel_token = CancelToken::new();
        let mut attempts = 0;
        let refused = thread::scope(|scope| {
            let waits = scope.spawn(|| {
                db.run(|tx| {
                    attempts += 1;
                    tx.set_cancel_token(&cancel_token);
                    tx.put(&TABLE, &2, &21)?;
                    tx.get(&TABLE, &1)
                })
            });
            until_a_request_waits(&db, 1);
            assert!(!cancel_token.is_cancelled());
            cancel_token.cancel();
            cancelled(waits.join().unwrap())
        });
        let refusal = refused.refusal().unwrap();
        assert_eq!(refused.reason(), ConflictReason::Cancelled);
        assert_eq!(refusal.blockers.len(), 1);
        assert_eq!(&*refusal.blockers[0].label, "holder");
        assert!(refused.to_string().contains("holder"), "{refused}");
        assert!(db.locks().iter().all(|lock| lock.label == "holder"));
        assert_eq!(attempts, 1);
        assert_eq!(holder.commit(), Done);
        assert_eq!(rows(&db), [(1, 11), (2, 20)]);
        let stats = db.stats();
        assert_eq!((stats.cancelled, stats.rollbacks), (1, 1));
        assert_eq!(db.status().locks.cancelled, 1);
        nothing_is_left(&db);
    });
}

#[test]
fn a_task_that_waits_is_woken_and_rolled_back() {
    over_all_managers(|options| {
        let (db, mut holder) = held(options);
        let cancel_token = CancelToken::new();
        let mut waits = watched(&db, &cancel_token);
        assert_eq!(waits.put(2, 21), Done);
        assert_eq!(waits.scan(..), Waits);
        // Behind both: rolled back locks go to the next waiters.
        let mut next = Session::new(&db, "next");
        assert_eq!(next.get(2), Waits);
        cancel_token.cancel();
        assert_eq!(waits.resume(), Refused("cancelled"));
        assert_eq!(next.resume(), Value(Some(20)));
        assert_eq!(waits.put(2, 22), Refused("cancelled"));
        assert_eq!(waits.commit(), Refused("cancelled"));
        assert_eq!(holder.commit(), Done);
        assert_eq!(next.commit(), Done);
        assert_eq!(rows(&db), [(1, 11), (2, 20)]);
        nothing_is_left(&db);
    });
}

/// The grant comes first: the operation succeeds, and the next one is refused.
#[test]
fn a_granted_request_succeeds_and_the_next_operation_is_refused() {
    over_all_managers(|options| {
        let (db, mut holder) = held(options);
        let cancel_token = CancelToken::new();
        let mut waits = watched(&db, &cancel_token);
        assert_eq!(waits.put(1, 12), Waits);
        assert_eq!(holder.commit(), Done);
        cancel_token.cancel();
        assert_eq!(waits.resume(), Done);
        assert_eq!(waits.commit(), Refused("cancelled"));
        assert_eq!(rows(&db), [(1, 11), (2, 20)]);
        nothing_is_left(&db);
    });
}

/// It sleeps with a granted lock, which must not be revoked: it would wait again, and no second
/// cancellation would end that wait.
#[test]
fn a_sleeper_that_is_granted_and_cancelled_is_not_overtaken() {
    over_all_managers(|options| {
        let (db, mut holder) = held(options);
        let cancel_token = CancelToken::new();
        let mut waits = watched(&db, &cancel_token);
        assert_eq!(waits.put(1, 12), Waits);
        assert_eq!(holder.commit(), Done);
        cancel_token.cancel();
        let mut late = Session::new(&db, "late");
        assert_eq!(late.put(1, 13), Waits);
        assert_eq!(waits.resume(), Done);
        assert_eq!(waits.commit(), Refused("cancelled"));
        assert_eq!(late.resume(), Done);
        assert_eq!(late.commit(), Done);
        assert_eq!(rows(&db), [(1, 13), (2, 20)]);
        nothing_is_left(&db);
    });
}

/// The other order: after cancellation nothing can be granted to it.
#[test]
fn a_cancelled_request_is_not_granted_afterwards() {
    over_all_managers(|options| {
        let (db, mut holder) = held(options);
        let cancel_token = CancelToken::new();
        let (mut waits, mut next) = (watched(&db, &cancel_token), Session::new(&db, "next"));
        assert_eq!(waits.put(1, 12), Waits);
        assert_eq!(next.get(1), Waits);
        cancel_token.cancel();
        assert_eq!(holder.commit(), Done);
        assert_eq!(next.resume(), Value(Some(11)));
        assert_eq!(waits.resume(), Refused("cancelled"));
        assert_eq!(next.commit(), Done);
        nothing_is_left(&db);
    });
}

#[test]
fn a_cancel_token_ends_all_its_holders_and_no_others() {
    over_all_managers(|options| {
        let [(one, in_one), (other, in_other)] = [held(options.clone()), held(options)];
        let (databases, mut holders) = ([one, other], [in_one, in_other]);
        let cancel_token = CancelToken::new();
        let mut waiting = Vec::new();
        for db in [0, 1, 0, 1] {
            let mut waits = watched(&databases[db], &cancel_token.clone());
            assert_eq!(waits.get(1), Waits);
            let mut bystander = Session::new(&databases[db], "bystander");
            assert_eq!(bystander.get(1), Waits);
            waiting.push((waits, bystander));
        }
        cancel_token.cancel();
        cancel_token.cancel();
        for (waits, bystander) in &mut waiting {
            assert_eq!(waits.resume(), Refused("cancelled"));
            assert_eq!(bystander.resume(), Waits);
        }
        for holder in &mut holders {
            assert_eq!(holder.commit(), Done);
        }
        for (_, bystander) in &mut waiting {
            assert_eq!(bystander.resume(), Value(Some(11)));
            assert_eq!(bystander.commit(), Done);
        }
        databases.iter().for_each(nothing_is_left);
    });
}

#[test]
fn a_cancelled_token_ends_later_holders_and_can_be_replaced() {
    let db = patient(Options::tiny());
    let (cancelled_before, other) = (CancelToken::new(), CancelToken::new());
    cancelled_before.cancel();
    let mut tx = db.begin().unwrap();
    tx.put(&TABLE, &1, &11).unwrap();
    tx.set_cancel_token(&cancelled_before);
    tx.set_cancel_token(&other);
    tx.put(&TABLE, &1, &12).unwrap();
    tx.set_cancel_token(&cancelled_before);
    cancelled(tx.get(&TABLE, &1));
    // It has ended.
    tx.set_cancel_token(&other);
    cancelled(tx.get(&TABLE, &1));
    drop(tx);
    // The next transaction of the same worker has no token.
    let mut holder = Session::new(&db, "holder");
    assert_eq!(holder.put(1, 13), Done);
    let mut waiting: Vec<_> = (0..4).map(|_| Session::new(&db, "waits")).collect();
    for waits in &mut waiting {
        assert_eq!(waits.get(1), Waits);
    }
    assert_eq!(holder.commit(), Done);
    for waits in &mut waiting {
        assert_eq!(waits.resume(), Value(Some(13)));
    }
    drop(waiting);
    assert_eq!(rows(&db), [(1, 13), (2, 20)]);
}

#[test]
fn a_commit_is_an_operation_and_what_is_committed_stays() {
    let db = patient(Options::tiny());
    let cancel_token = CancelToken::new();
    let mut early = db.begin().unwrap();
    early.set_cancel_token(&cancel_token);
    early.put(&TABLE, &1, &11).unwrap();
    early.commit().unwrap();
    let [mut late, mut placed] = [2, 3].map(|key| {
        let mut tx = db.begin().unwrap();
        tx.set_cancel_token(&cancel_token);
        tx.put(&TABLE, &key, &99).unwrap();
        tx
    });
    late.set_label("late");
    placed.set_label("placed");
    let mut dropped = db.begin().unwrap();
    dropped.set_cancel_token(&cancel_token);
    dropped.put(&TABLE, &4, &99).unwrap();
    cancel_token.cancel();
    cancelled(late.commit());
    cancelled(placed.commit_at());
    drop(dropped);
    nothing_is_left(&db);
    assert_eq!(rows(&db), [(1, 11), (2, 20)]);
    assert_eq!(db.stats().cancelled, 2);
}

/// Rows 1 to 9, with both indexes.
fn nine() -> Database {
    let all: Vec<_> = (1..10).map(|key| (key, key as i64)).collect();
    let db = database(Options::tiny(), &all);
    db.create_index(&BY_VALUE).unwrap();
    db
}

#[test]
fn a_range_ends_at_its_next_row() {
    for way in 0..6 {
        let (db, cancel_token, mut seen) = (nine(), CancelToken::new(), 0);
        let mut see = || {
            seen += 1;
            if seen == 3 {
                cancel_token.cancel();
            }
        };
        let mut tx = db.begin().unwrap();
        tx.set_cancel_token(&cancel_token);
        let mut task = db.begin_async().unwrap();
        task.set_cancel_token(&cancel_token);
        cancelled(match way {
            0 => tx.range(&TABLE, ..).for_each(|_, _| see()),
            1 => tx.range_by(&BY_VALUE, ..).for_each(|_, _, _| see()),
            2 => now(task.range(&TABLE, ..).for_each(|_, _| see())),
            3 => now(task.range_by(&BY_VALUE, ..).for_each(|_, _, _| see())),
            4 => {
                let mut rows = tx.range(&TABLE, ..).into_iter();
                rows.try_for_each(|row| row.map(|_| see()))
            }
            _ => {
                let mut rows = tx.range_by(&BY_VALUE, ..).into_iter();
                rows.try_for_each(|row| row.map(|_| see()))
            }
        });
        assert_eq!(seen, 3, "{way}");
        assert!(db.locks().is_empty(), "{way}");
    }
}

#[test]
fn a_cancelled_transaction_is_refused_its_next_operation() {
    let mut options = Options::tiny();
    options.idle_timeout = Some(Duration::MAX);
    let db = database(options, TWO);
    let cancel_token = CancelToken::new();
    let mut tx = db.begin().unwrap();
    tx.set_cancel_token(&cancel_token);
    tx.put(&TABLE, &1, &11).unwrap();
    cancel_token.cancel();
    // It is not yet rolled back: only its program does that.
    assert!(!db.locks().is_empty());
    cancelled(tx.put(&TABLE, &2, &22));
    assert!(db.locks().is_empty());
    cancelled(tx.commit());
    assert_eq!(rows(&db), TWO);
}

#[test]
fn a_cancelled_wait_of_a_session_ends_and_it_keeps_its_locks() {
    over_all_managers(|options| {
        let db = patient(options);
        let mut holder = db.session().unwrap();
        holder.lock_advisory(1, Lock::Exclusive).unwrap();
        let cancel_token = CancelToken::new();
        let mut session = db.session().unwrap();
        session.set_cancel_token(&cancel_token).unwrap();
        session.lock_advisory(2, Lock::Exclusive).unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| session.lock_advisory(1, Lock::Shared));
            until_a_request_waits(&db, 1);
            cancel_token.cancel();
            let refused = cancelled(waits.join().unwrap());
            assert_eq!(refused.refusal().unwrap().blockers.len(), 1);
        });
        assert_eq!(db.locks().len(), 2);
        cancelled(session.lock_advisory(3, Lock::Shared));
        cancelled(now(session.lock_advisory_async(3, Lock::Shared)));
        cancelled(session.run(|tx| tx.put(&TABLE, &1, &11)));
        assert_eq!(db.locks().len(), 2);
        // Its transactions can have another token, and so can the session.
        let other = CancelToken::new();
        session
            .run(|tx| {
                tx.set_cancel_token(&other);
                tx.put(&TABLE, &1, &12)
            })
            .unwrap();
        session.set_cancel_token(&other).unwrap();
        session.lock_advisory(3, Lock::Shared).unwrap();
        assert!(session.unlock_advisory(2).unwrap());
        drop((session, holder));
        assert!(db.locks().is_empty());
        assert_eq!(rows(&db), [(1, 12), (2, 20)]);
        db.verify();
    });
}

#[test]
fn dropping_an_operation_ends_its_wait() {
    over_all_managers(|options| {
        let (db, mut holder) = held(options);
        let cancel_token = CancelToken::new();
        let mut tx = db.begin_async().unwrap();
        tx.set_cancel_token(&cancel_token);
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut waits = Box::pin(tx.get(&TABLE, &1));
            assert!(waits.as_mut().poll(&mut context).is_pending());
        }
        // Its next wait is a new one.
        let mut waits = Box::pin(tx.get_for_update(&TABLE, &1));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        cancel_token.cancel();
        match waits.as_mut().poll(&mut context) {
            Poll::Ready(refused) => drop(cancelled(refused)),
            Poll::Pending => panic!("it waits"),
        }
        drop(waits);
        assert_eq!(db.status().locks.cancelled, 1);
        assert_eq!(holder.commit(), Done);
        nothing_is_left(&db);
    });
}

/// State shared by the workers.
struct Race {
    db: Database,
    /// The current token of each worker, for the cancel_token.
    cancellers: Vec<Mutex<CancelToken>>,
    working: AtomicUsize,
}

const WORKERS: u64 = 6;
const ROUNDS: u64 = 40;
/// Number of rows that all workers change; the rows above are one counter per worker.
const SHARED: u64 = 3;

/// Returns rows in random order, so that there are deadlocks, with or without a time limit.
fn steps(random: &mut u64) -> [(u64, LockOptions); 2] {
    let mut draw = || {
        *random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        *random >> 33
    };
    let first = draw() % SHARED;
    let second = (first + 1 + draw() % (SHARED - 1)) % SHARED;
    [first, second].map(|key| match draw() % 4 {
        0 => (key, Lock::Exclusive.timeout(Duration::from_micros(200))),
        1 => (key, Lock::Shared.into()),
        _ => (key, Lock::Update.into()),
    })
}

impl Race {
    fn new(options: Options) -> Race {
        let all: Vec<_> = (0..SHARED + WORKERS).map(|key| (key, 0)).collect();
        Race {
            db: database(options, &all),
            cancellers: (0..WORKERS).map(|_| Mutex::default()).collect(),
            working: AtomicUsize::new(WORKERS as usize),
        }
    }

    /// Moves one unit from row to row, as a thread.
    fn by_thread(&self, own: u64, steps: [(u64, LockOptions); 2], by: &CancelToken) -> Result<()> {
        self.db.run(|tx| {
            tx.set_cancel_token(by);
            for ((key, lock), change) in steps.into_iter().zip([1, -1]) {
                let value = tx.get_locked(&TABLE, &key, lock)?.unwrap();
                tx.put(&TABLE, &key, &(value + change))?;
            }
            let count = tx.get(&TABLE, &own)?.unwrap();
            tx.put(&TABLE, &own, &(count + 1))
        })
    }

    /// The same as a task.
    async fn by_task(
        &self,
        own: u64,
        steps: [(u64, LockOptions); 2],
        by: &CancelToken,
    ) -> Result<()> {
        let body = |mut tx: AsyncTransaction| async move {
            tx.set_cancel_token(by);
            for ((key, lock), change) in steps.into_iter().zip([1, -1]) {
                let value = tx.get_locked(&TABLE, &key, lock).await?.unwrap();
                tx.put(&TABLE, &key, &(value + change)).await?;
            }
            let count = tx.get(&TABLE, &own).await?.unwrap();
            tx.put(&TABLE, &own, &(count + 1)).await?;
            tx.commit().await
        };
        self.db.run_async(body).await
    }

    /// Returns how many of a worker's transactions were committed.
    fn work(&self, worker: u64) -> i64 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let (mut random, mut committed) = (worker + 1, 0);
        for _ in 0..ROUNDS {
            let by = CancelToken::new();
            *self.cancellers[worker as usize].lock().unwrap() = by.clone();
            let (own, steps) = (SHARED + worker, steps(&mut random));
            let come = || match worker % 2 {
                0 => self.by_thread(own, steps, &by),
                _ => runtime.block_on(self.by_task(own, steps, &by)),
            };
            // A timeout is returned, and the transaction is run again.
            let came_to = loop {
                match come() {
                    Err(error) if error.code() == "lock_timeout" => {}
                    came_to => break came_to,
                }
            };
            match came_to {
                Ok(()) => committed += 1,
                refused => drop(cancelled(refused)),
            }
        }
        self.working.fetch_sub(1, Ordering::Relaxed);
        committed
    }

    /// Cancels workers in random order until all are done.
    fn disturb(&self) {
        let mut next = 0;
        while self.working.load(Ordering::Relaxed) > 0 {
            let cancel_token = self.cancellers[next].lock().unwrap().clone();
            cancel_token.cancel();
            next = (next + 1) % self.cancellers.len();
            thread::sleep(Duration::from_micros(300));
        }
    }
}

/// Grants, deadlines, deadlocks, commits and cancellations at the same time. Each transaction is
/// committed or not, as its answer said, and leaves nothing behind.
#[test]
fn in_any_race_each_transaction_ends_one_way() {
    for manager in LockManagerKind::ALL {
        let mut options = Options::tiny();
        options.lock_manager = manager;
        options.lock_wait = Duration::MAX;
        options.run_attempts = u32::MAX;
        let race = Race::new(options);
        let committed: Vec<i64> = thread::scope(|scope| {
            scope.spawn(|| race.disturb());
            let workers: Vec<_> = (0..WORKERS)
                .map(|worker| {
                    scope.spawn({
                        let race = &race;
                        move || race.work(worker)
                    })
                })
                .collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap())
                .collect()
        });
        let rows = rows(&race.db);
        let (shared, counts) = rows.split_at(SHARED as usize);
        assert_eq!(
            shared.iter().map(|(_, value)| value).sum::<i64>(),
            0,
            "{manager}"
        );
        let counts: Vec<i64> = counts.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, committed, "{manager}");
        let all = committed.iter().sum::<i64>() as u64;
        let stats = race.db.stats();
        assert_eq!(stats.cancelled, WORKERS * ROUNDS - all, "{manager}");
        println!("{manager}: {all} committed, {} cancelled", stats.cancelled);
        nothing_is_left(&race.db);
    }
}

/// Races at failpoints.
#[cfg(feature = "hooks")]
mod at_points {
    use std::sync::Arc;

    use super::*;
    use foxton::device::MemoryDevice;
    use foxton::failpoint;

    /// The request is in its queue, and is not yet recorded as waiting.
    #[test]
    fn a_request_cancelled_just_before_its_wait_does_not_wait() {
        over_all_managers(|options| {
            let (db, mut holder) = held(options);
            for is_task in [false, true] {
                let cancel_token = CancelToken::new();
                let by = cancel_token.clone();
                db.failpoints()
                    .once(&failpoint::WAIT_BEGIN, move || by.cancel());
                let came_to = if is_task {
                    let mut task = db.begin_async().unwrap();
                    task.set_cancel_token(&cancel_token);
                    now(task.get(&TABLE, &1))
                } else {
                    let mut tx = db.begin().unwrap();
                    tx.set_cancel_token(&cancel_token);
                    tx.get(&TABLE, &1)
                };
                assert_eq!(cancelled(came_to).refusal().unwrap().blockers.len(), 1);
            }
            assert_eq!(holder.commit(), Done);
            nothing_is_left(&db);
        });
    }

    /// Its record is in the log: too late to cancel.
    #[test]
    fn a_commit_that_is_logged_is_not_cancelled() {
        let db = Database::open_on(Arc::new(MemoryDevice::new()), Options::tiny());
        let db = filled(db.unwrap(), TWO);
        let cancel_token = CancelToken::new();
        let by = cancel_token.clone();
        let mut tx = db.begin().unwrap();
        tx.set_cancel_token(&cancel_token);
        tx.put(&TABLE, &1, &11).unwrap();
        db.failpoints()
            .once(&failpoint::LOGGED, move || by.cancel());
        tx.commit().unwrap();
        assert!(cancel_token.is_cancelled());
        assert_eq!(rows(&db), [(1, 11), (2, 20)]);
        assert_eq!(db.stats().cancelled, 0);
    }
}
