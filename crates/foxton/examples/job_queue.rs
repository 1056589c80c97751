//! A job queue: producers add jobs, and each worker takes the first job that no other worker has.
//!
//! A worker reads the queue with `skip_locked`, so it skips jobs that others are working on instead
//! of waiting for them. A job stays in the queue, locked, until its worker commits. If the worker
//! fails, or its process dies, the job is available again. Some workers here fail on purpose.
//!
//! `cargo run --release -p foxton --example job_queue`

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foxton::{Database, Durability, Error, Lock, Options, Result, Table};

/// By priority, then number: the smallest comes first.
const QUEUE: Table<(u8, u64), str> = Table::new("queue");
/// Finished jobs by number: the worker, and the number of earlier attempts.
const DONE: Table<u64, (u64, String)> = Table::new("done");

const PRODUCERS: u64 = 2;
const JOBS_EACH: u64 = 250;
const WORKERS: u64 = 6;

fn main() -> Result<()> {
    let mut options = Options::default();
    options.durability = Durability::None;
    let db = Database::in_memory(options)?;
    let (failures, idle) = (AtomicU64::new(0), AtomicU64::new(0));

    let begun = Instant::now();
    thread::scope(|scope| {
        let producers = (0..PRODUCERS).map(|producer| {
            let db = &db;
            scope.spawn(move || produce(db, producer))
        });
        let workers = (0..WORKERS).map(|worker| {
            let (db, failures, idle) = (&db, &failures, &idle);
            scope.spawn(move || work(db, worker, failures, idle))
        });
        let threads: Vec<_> = producers.chain(workers).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("nobody panics"))
    })?;
    let elapsed = begun.elapsed();

    let mut by_worker = [0; WORKERS as usize];
    let (left, done) = db.run(|tx| {
        by_worker = [0; WORKERS as usize];
        let left = tx.range(&QUEUE, ..).count()?;
        tx.range(&DONE, ..)
            .for_each(|_, (worker, _)| by_worker[worker as usize] += 1)?;
        Ok((left, tx.range(&DONE, ..).count()?))
    })?;
    println!("{done} jobs done in {elapsed:.1?}, {left} left in the queue");
    println!("by worker: {by_worker:?}");
    println!(
        "{} attempts failed and their jobs were done by somebody",
        failures.into_inner()
    );
    println!("{} looks found nothing free", idle.into_inner());
    let stats = db.stats();
    println!(
        "{} locks skipped or refused, {} waits, {} deadlocks",
        stats.locks.busy, stats.locks.waits, stats.deadlocks
    );
    assert_eq!(
        (left, done),
        (0, PRODUCERS * JOBS_EACH),
        "each job was done exactly once"
    );
    Ok(())
}

fn produce(db: &Database, producer: u64) -> Result<()> {
    for index in 0..JOBS_EACH {
        let number = producer * JOBS_EACH + index;
        let priority = (number % 3) as u8;
        db.run(|tx| tx.insert(&QUEUE, &(priority, number), &format!("job {number}")))?;
        if index % 25 == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

fn work(db: &Database, worker: u64, failures: &AtomicU64, idle: &AtomicU64) -> Result<()> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let worked = db.run(|tx| {
            tx.set_label(format!("worker {worker}"));
            let free = tx.range(&QUEUE, ..).locked(Lock::Exclusive.skip_locked());
            let Some(((priority, number), job)) = free.first()? else {
                return Ok(false);
            };
            // The work itself. Meanwhile other workers can take the next job.
            thread::sleep(Duration::from_micros(50));
            if attempts % 17 == 0 {
                return Err(Error::other("the tool broke"));
            }
            tx.delete(&QUEUE, &(priority, number))?;
            tx.insert(&DONE, &number, &(worker, job))?;
            Ok(true)
        });
        match worked {
            Ok(true) => {}
            Ok(false) => {
                idle.fetch_add(1, Ordering::Relaxed);
                let done = db.run(|tx| tx.range(&DONE, ..).count())?;
                if done == PRODUCERS * JOBS_EACH {
                    return Ok(());
                }
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) if error.code() == "other" => {
                failures.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => return Err(error),
        }
    }
}
