//! A queue of jobs in a table: many workers, each taking the first job that is not locked.
//!
//! In one transaction a worker claims the first job, does it, deletes it, records it as done and
//! adds a new one at the end. The claim is a read of the first row with an exclusive lock. With
//! *skip* it skips locked rows; without, the worker waits for the first row. A job is a sleep, like
//! the wait of a worker for another service; a job of no time measures the claims alone.
//!
//! # What is checked
//!
//! Job `k` of a queue that began with `n` is followed by job `k + n`. So at any moment each
//! remainder of `n` has one job in the queue, and those before it are done. A job that was lost,
//! done twice or done without being recorded breaks this. After each run every row is compared with
//! it.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use foxton::{Database, Durability, Lock, LockOptions, Snapshot, Table};

use super::{error::BenchError, scratch::Scratch};
use crate::{
    measure::spread::Spread,
    progress::Audience,
    system::{LOCK_WAIT, System},
    threads,
};

const JOBS: Table<u64, u64> = Table::new("jobs");
const DONE: Table<u64, u32> = Table::new("done");

/// Settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// Number of threads that take jobs.
    pub workers: u32,
    /// Jobs in the queue, more than there are workers.
    pub jobs: u64,
    /// Times of a job.
    pub work: Vec<Duration>,
    /// Time of each measurement.
    pub window: Duration,
    /// Number of times each point is measured, with and without skipping.
    pub reps: u32,
    /// Durability of commits.
    pub durability: Durability,
    /// Parent directory of the databases; if `None`, the system's directory for temporary files.
    pub directory: Option<PathBuf>,
}

impl Settings {
    /// Checks that they agree with each other.
    fn sound(&self) -> Result<(), String> {
        if self.workers == 0 {
            return Err("there are no workers; give 1 or more with --workers".to_owned());
        }
        if self.jobs <= self.workers.into() {
            let what =
                "with so few jobs some workers find none; give more jobs than workers with --jobs";
            return Err(what.to_owned());
        }
        if !self.systems.iter().all(System::is_locking) {
            return Err("--locks none cannot claim jobs; name lock managers".to_owned());
        }
        // The last worker waits for the jobs of all others.
        let longest = self.work.iter().max().copied().unwrap_or_default();
        match longest.saturating_mul(self.workers) < LOCK_WAIT {
            true => Ok(()),
            false => Err(format!(
                "the last of {} workers would wait for a job longer than the {} minutes after which a lock \
                 request times out; give fewer with --workers, or shorter jobs with --work",
                self.workers,
                LOCK_WAIT.as_secs() / 60
            )),
        }
    }
}

/// Results of one lock manager with jobs of one length.
#[derive(Debug, Clone)]
pub struct Found {
    /// The lock manager.
    pub system: String,
    /// The time of a job.
    pub work: Duration,
    /// Jobs a second, with locked jobs skipped.
    pub skipping: Spread,
    /// Jobs a second, with the first job waited for.
    pub waiting: Spread,
    /// The first divided by the second, pass by pass.
    pub ratio: Spread,
    /// Number of jobs that were checked.
    pub checked: u64,
}

/// Measures every system with jobs of every length, with and without skipping in turn.
///
/// # Errors
///
/// If the settings contradict each other, the engine refuses, or a job was lost or done twice.
pub fn run(settings: &Settings, audience: Audience) -> Result<Vec<Found>, BenchError> {
    settings.sound().map_err(BenchError::Settings)?;
    let mut found = Vec::new();
    for &work in &settings.work {
        for system in &settings.systems {
            audience.say(&format!("jobs of {work:?} over {system}"));
            found.push(point(settings, system, work)?);
        }
    }
    Ok(found)
}

fn point(settings: &Settings, system: &System, work: Duration) -> Result<Found, BenchError> {
    let (mut skipping, mut waiting, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut checked = 0;
    for rep in 0..settings.reps {
        let mut rate = |lock| {
            let one = once(settings, system, (work, lock), Beside::Nothing)?;
            checked += one.done;
            Ok::<f64, BenchError>(one.done as f64 / one.took.as_secs_f64())
        };
        let (skip, wait) = (Lock::Exclusive.skip_locked(), Lock::Exclusive.into());
        // In alternating order, so that a machine that gets slower favours neither.
        let (skipped, waited) = match rep % 2 {
            0 => (rate(skip)?, rate(wait)?),
            _ => {
                let waited = rate(wait)?;
                (rate(skip)?, waited)
            }
        };
        skipping.push(skipped);
        waiting.push(waited);
        ratios.push(skipped / waited.max(f64::MIN_POSITIVE));
    }
    Ok(Found {
        system: system.to_string(),
        work,
        skipping: Spread::new(skipping),
        waiting: Spread::new(waiting),
        ratio: Spread::new(ratios),
        checked,
    })
}

/// Load beside a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nothing.
    Nothing,
    /// A snapshot that is as old as the queue.
    Snapshot,
    /// The same, and deleted rows stay where they are.
    #[cfg(feature = "hooks")]
    SnapshotAndGhosts,
}

/// Returns the jobs of no time that workers do in a second, skipping locked jobs.
///
/// # Errors
///
/// If the settings contradict each other, the engine refuses, a job was lost or done twice, or the
/// snapshot has other jobs than were loaded.
pub(super) fn jobs_a_second(
    settings: &Settings,
    system: &System,
    beside: Beside,
) -> Result<f64, BenchError> {
    settings.sound().map_err(BenchError::Settings)?;
    let how = (Duration::ZERO, Lock::Exclusive.skip_locked());
    let one = once(settings, system, how, beside)?;
    Ok(one.done as f64 / one.took.as_secs_f64())
}

/// One run.
struct Once {
    done: u64,
    took: Duration,
}

fn once(
    settings: &Settings,
    system: &System,
    (work, lock): (Duration, LockOptions),
    beside: Beside,
) -> Result<Once, BenchError> {
    let directory = settings.directory.as_deref();
    let scratch = Scratch::new(system.clone(), settings.durability, directory, None)?;
    let db = &scratch.db;
    #[cfg(feature = "hooks")]
    if beside == Beside::SnapshotAndGhosts {
        db.failpoints().arm(&foxton::injected_fault::GHOSTS_LEFT);
    }
    load(db, settings.jobs)?;
    let snapshot = (beside != Beside::Nothing).then(|| db.snapshot());
    let snapshot = snapshot.transpose();
    let snapshot = snapshot.map_err(BenchError::engine("taking a snapshot of the queue"))?;
    let begun = Instant::now();
    let end = begun + settings.window;
    let work = |number: u32| {
        move || {
            let mut done = 0;
            while done == 0 || Instant::now() < end {
                done += u64::from(job(db, settings.jobs, number, work, lock)?);
            }
            Ok::<u64, foxton::Error>(done)
        }
    };
    let workers = (0..settings.workers).map(work).collect();
    let (counts, ()) = threads::together(workers, || ())?;
    let counts: foxton::Result<Vec<u64>> = counts.into_iter().collect();
    let took = begun.elapsed();
    let counts = counts.map_err(BenchError::engine("a job of the queue"))?;
    let done = counts.iter().sum();
    check(db, settings.jobs, &counts)?;
    snapshot.map_or(Ok(()), |snapshot| check_snapshot(&snapshot, settings.jobs))?;
    Ok(Once { done, took })
}

fn load(db: &Database, jobs: u64) -> Result<(), BenchError> {
    let loaded = db.run(|tx| (0..jobs).try_for_each(|job| tx.put(&JOBS, &job, &job)));
    loaded.map_err(BenchError::engine("loading the queue"))
}

/// Takes one job and does it; true if there was one.
fn job(
    db: &Database,
    jobs: u64,
    worker: u32,
    work: Duration,
    lock: LockOptions,
) -> foxton::Result<bool> {
    db.run(|tx| {
        let Some((job, _)) = tx.range(&JOBS, ..).locked(lock).first()? else {
            return Ok(false);
        };
        if !work.is_zero() {
            thread::sleep(work);
        }
        tx.delete(&JOBS, &job)?;
        tx.insert(&DONE, &job, &worker)?;
        tx.insert(&JOBS, &(job + jobs), &job)?;
        Ok(true)
    })
}

/// Checks that the rows are those that `counts` jobs of each worker leave.
fn check(db: &Database, jobs: u64, counts: &[u64]) -> Result<(), BenchError> {
    let read = db.run(|tx| {
        let queued = tx.range(&JOBS, ..).collect()?;
        Ok((queued, tx.range(&DONE, ..).collect()?))
    });
    let (queued, done) = read.map_err(BenchError::engine("reading the queue"))?;
    let queued: Vec<u64> = queued.into_iter().map(|(job, _)| job).collect();
    picture(&queued, &done, jobs, counts).map_err(BenchError::Failed)
}

/// Checks that the snapshot has the queue as it was loaded.
fn check_snapshot(snapshot: &Snapshot, jobs: u64) -> Result<(), BenchError> {
    let found = snapshot.range(&JOBS, ..).and_then(|range| range.collect());
    let found = found.map_err(BenchError::engine("reading the queue at a snapshot"))?;
    match found.into_iter().map(|(job, _)| job).eq(0..jobs) {
        true => Ok(()),
        false => Err(BenchError::Failed(
            "the snapshot has other jobs than were loaded".to_owned(),
        )),
    }
}

/// The check itself, on the rows read.
fn picture(queued: &[u64], done: &[(u64, u32)], jobs: u64, counts: &[u64]) -> Result<(), String> {
    let mut expected: Vec<u64> = Vec::new();
    let mut remainders: Vec<u64> = queued.iter().map(|job| job % jobs).collect();
    remainders.sort_unstable();
    if !remainders.into_iter().eq(0..jobs) {
        return Err("jobs are missing from the queue, or there are too many".to_owned());
    }
    for &job in queued {
        expected.extend((job % jobs..job).step_by(jobs as usize));
    }
    expected.sort_unstable();
    if !done
        .iter()
        .map(|&(job, _)| job)
        .eq(expected.iter().copied())
    {
        return Err(
            "a job left the queue without being done, or was done without leaving it".to_owned(),
        );
    }
    for (worker, &count) in (0..).zip(counts) {
        let noted = done.iter().filter(|(_, by)| *by == worker).count() as u64;
        if noted != count {
            return Err(format!(
                "worker {worker} did {count} jobs, but {noted} are recorded"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Locks;
    use foxton::LockManagerKind;

    #[test]
    fn no_job_is_lost_or_done_twice_over_any_manager() {
        let kinds = LockManagerKind::ALL.map(Locks::Manager);
        let settings = Settings {
            systems: System::all(&kinds, &[]),
            workers: 16,
            jobs: 20,
            work: vec![Duration::ZERO],
            window: Duration::from_millis(20),
            reps: 1,
            durability: Durability::None,
            directory: None,
        };
        let found = run(&settings, Audience::Nobody).unwrap();
        assert!(found.iter().all(|found| found.checked >= 2 * 16));
    }

    #[test]
    fn a_job_that_is_lost_done_twice_or_not_recorded_is_noticed() {
        let done = [(0, 7), (1, 7), (2, 8), (3, 7)];
        let counts = [0, 0, 0, 0, 0, 0, 0, 3, 1];
        assert_eq!(picture(&[4, 5, 6, 3 + 4], &done, 4, &counts), Ok(()));
        let wrong = |queued: &[u64], done: &[(u64, u32)], counts: &[u64]| {
            assert!(picture(queued, done, 4, counts).is_err());
        };
        wrong(&[4, 5, 6], &done, &counts);
        wrong(&[4, 5, 6, 7, 8], &done, &counts);
        wrong(&[4, 5, 6, 3], &done, &counts);
        wrong(&[4, 5, 6, 7], &done[1..], &counts);
        wrong(&[4, 5, 6, 7], &done, &[0, 0, 0, 0, 0, 0, 0, 3, 2]);
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused_with_the_option_to_change() {
        let sound = Settings {
            systems: System::all(&[Locks::Default], &[]),
            workers: 64,
            jobs: 65,
            work: vec![Duration::from_secs(50), Duration::ZERO],
            window: Duration::ZERO,
            reps: 1,
            durability: Durability::None,
            directory: None,
        };
        assert_eq!(sound.sound(), Ok(()));
        let refused = |settings: Settings, words: &str| {
            let refused = run(&settings, Audience::Nobody).unwrap_err();
            assert!(matches!(&refused, BenchError::Settings(what) if what.contains(words)));
        };
        let with = |change: &dyn Fn(&mut Settings)| {
            let mut settings = sound.clone();
            change(&mut settings);
            settings
        };
        refused(with(&|it| it.jobs = 64), "--jobs");
        refused(with(&|it| it.workers = 0), "--workers");
        refused(
            with(&|it| it.systems.push(System::without_locking())),
            "--locks none",
        );
        refused(with(&|it| it.work.push(Duration::from_secs(57))), "--work");
    }
}
