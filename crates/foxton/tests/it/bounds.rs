//! Bounds: options at the ends of their ranges, times that no clock reaches, and directories that
//! disappear. Each case ends in an answer, and committed rows are there.

use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::common::scratch::Directory;
use foxton::{Admission, Database, Durability, Error, Lock, LockManagerKind, Options, Table};

const NUMBERS: Table<u64, u64> = Table::new("numbers");
const ROWS: u64 = 200;

/// Runs transactions that wait for each other, two at a time, one of them a task; then checks the
/// rows.
fn used(db: &Database) -> Result<(), Error> {
    db.run(|tx| (0..ROWS).try_for_each(|key| tx.put(&NUMBERS, &key, &key)))?;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20 {
                    db.run(|tx| {
                        let count = tx.get_for_update(&NUMBERS, &1)?.unwrap_or(0);
                        tx.put(&NUMBERS, &1, &(count + 1))
                    })
                    .expect("it is run again until it commits");
                }
            });
        }
    });
    let mut tx = db.begin()?;
    tx.put(&NUMBERS, &2, &0)?;
    let mut other = db.begin_async()?;
    {
        let mut waits = pin!(other.get(&NUMBERS, &2));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        tx.commit()?;
        let answer = loop {
            if let Poll::Ready(answer) = waits.as_mut().poll(&mut context) {
                break answer;
            }
            thread::yield_now();
        };
        assert_eq!(answer?, Some(0));
    }
    drop(other);
    db.verify();
    Ok(())
}

fn is_there(db: &Database) {
    let rows = db.run(|tx| tx.range(&NUMBERS, ..).collect()).unwrap();
    assert_eq!(rows.len() as u64, ROWS);
    assert_eq!(rows[1..3], [(1, 41), (2, 0)]);
}

/// Uses a database with these options, closes it, and opens it again.
fn lives_with(name: &str, change: impl Fn(&mut Options)) {
    let options = || {
        let mut options = Options::default();
        options.durability = Durability::Buffered;
        change(&mut options);
        options
    };
    println!("{name}");
    let directory = Directory::new(&format!("bounds-{name}"));
    let db = Database::open_with(&directory.0, options()).unwrap();
    used(&db).unwrap();
    db.checkpoint().unwrap();
    drop(db);
    is_there(&Database::open_with(&directory.0, options()).unwrap());
}

#[test]
fn times_may_be_longer_than_any_clock_and_as_short_as_nothing() {
    lives_with("lock_wait", |options| options.lock_wait = Duration::MAX);
    lives_with("sync_interval", |options| {
        options.sync_interval = Duration::MAX
    });
    lives_with("no sync_interval", |options| {
        options.sync_interval = Duration::ZERO
    });
    lives_with("idle_timeout", |options| {
        options.idle_timeout = Some(Duration::MAX)
    });
    lives_with("dump_waits_after", |options| {
        options.dump_waits_after = Some(Duration::MAX);
    });
    lives_with("dump_waits_every", |options| {
        options.dump_waits_after = Some(Duration::from_secs(3_600));
        options.dump_waits_every = Duration::MAX;
    });
}

#[test]
fn counts_and_sizes_may_be_the_least_and_the_most() {
    lives_with("restart_threads", |options| {
        options.restart_threads = usize::MAX
    });
    lives_with("checkpoint_log_bytes", |options| {
        options.checkpoint_log_bytes = u64::MAX
    });
    lives_with("checkpoint_rate", |options| {
        options.checkpoint_rate = Some(u64::MAX)
    });
    lives_with("redo_part_bytes", |options| {
        options.redo_part_bytes = 128 << 20
    });
    lives_with("least redo_part_bytes", |options| {
        options.redo_part_bytes = 256
    });
    lives_with("log_buffer_bytes", |options| {
        options.log_buffer_bytes = 64 << 10
    });
    lives_with("run_attempts", |options| options.run_attempts = u32::MAX);
    lives_with("one seat", |options| {
        options.admission = Admission::Fixed(NonZeroU32::MIN);
    });
    lives_with("all seats", |options| {
        options.admission = Admission::Fixed(NonZeroU32::MAX);
    });
}

#[test]
fn locks_may_have_one_bucket_and_be_traded_at_once_or_never() {
    for kind in LockManagerKind::ALL {
        lives_with(&format!("{kind}, one bucket"), |options| {
            (options.lock_manager, options.lock_buckets) = (kind, 1);
            options.lock_escalation = 1;
        });
    }
    lives_with("never", |options| {
        options.lock_escalation = u32::MAX;
        (options.transaction_lock_bytes, options.lock_bytes) = (usize::MAX, usize::MAX);
    });
}

/// A single wait without a time limit, by a thread and by a session.
#[test]
fn a_lock_may_be_waited_for_longer_than_any_clock_reaches() {
    let db = Database::in_memory(Options::default()).unwrap();
    db.run(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    let mut holder = db.begin().unwrap();
    holder.put(&NUMBERS, &1, &2).unwrap();
    holder.lock_advisory(7, Lock::Exclusive).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            db.run(|tx| tx.get_locked(&NUMBERS, &1, Lock::Shared.timeout(Duration::MAX)))
        });
        let session = scope.spawn(|| {
            let mut session = db.session().unwrap();
            session.lock_advisory(7, Lock::Shared.timeout(Duration::MAX))
        });
        while db.waits().len() < 2 {
            thread::yield_now();
        }
        holder.commit().unwrap();
        assert!(waits.join().unwrap().unwrap().is_some());
        assert!(session.join().unwrap().unwrap());
    });
}

/// The directory of an open database is removed. Requests are still answered, and no file of the
/// database appears in a new directory of the same name.
#[test]
fn a_removed_directory_hangs_no_request() {
    for durability in [Durability::Sync, Durability::Buffered, Durability::None] {
        let directory = Directory::new("removed");
        let mut options = Options::tiny();
        options.durability = durability;
        let db = Database::open_with(&directory.0, options).unwrap();
        db.run(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
        std::fs::remove_dir_all(&directory.0).unwrap();
        // Enough log for new segments.
        for turn in 0..2_000_u64 {
            let put = db.run(|tx| (0..20).try_for_each(|key| tx.put(&NUMBERS, &key, &turn)));
            if let Err(error) = put {
                println!("{durability}, {turn}: {error}");
                break;
            }
        }
        if let Err(error) = db.checkpoint() {
            println!("{durability}: {error}");
        }
        drop(db);
        let fresh = Database::open(&directory.0).unwrap();
        assert_eq!(fresh.run(|tx| tx.get(&NUMBERS, &1)).unwrap(), None);
    }
}
