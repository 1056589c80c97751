//! One hot row: tasks, or threads, that all update the same row.
//!
//! A client reads the row for update, writes it and commits. Then it lets others go first, as a
//! client does that answers somebody. So all clients but a few wait in one queue, and each of them
//! joins it at the end. A queue that costs in proportion to its length shows as a throughput that
//! falls with the number of clients.
//!
//! # What is checked
//!
//! The row counts the commits. After each run it must be as large as the sum of all clients.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use foxton::{Database, Durability, Table};
use foxton_sync::shim::{Arc, AtomicBool, AtomicU64, Ordering::Relaxed};
use tokio::{runtime, task};

use super::{error::BenchError, scratch::Scratch};
use crate::{measure::spread::Spread, progress::Audience, system::System, threads};

const ROWS: Table<u64, u64> = Table::new("rows");
const HOT: u64 = 1;

/// Kind of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    /// Tasks of an executor that has a thread for each processor.
    Tasks,
    /// Threads.
    Threads,
}

impl std::fmt::Display for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Tasks => "tasks",
            Self::Threads => "threads",
        })
    }
}

/// Settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// Kinds and numbers of clients.
    pub clients: Vec<(Clients, u32)>,
    /// Time of each measurement, after as long a time without one.
    pub window: Duration,
    /// Number of times each point is measured.
    pub reps: u32,
    /// Durability of commits.
    pub durability: Durability,
    /// Parent directory of the databases; if `None`, the system's directory for temporary files.
    pub directory: Option<PathBuf>,
}

/// Results of one lock manager with one number of clients.
#[derive(Debug, Clone)]
pub struct Found {
    /// The lock manager.
    pub system: String,
    /// Kind and number of clients.
    pub clients: (Clients, u32),
    /// Commits a second.
    pub rate: Spread,
    /// The same divided by the most that clients of this kind committed in the same pass.
    pub share: Spread,
    /// Number of commits that were checked.
    pub checked: u64,
}

/// Measures every system with every number of clients, in turn.
///
/// # Errors
///
/// If the settings contradict each other, the engine refuses, or a commit was lost.
pub fn run(settings: &Settings, audience: Audience) -> Result<Vec<Found>, BenchError> {
    if settings.clients.iter().any(|&(_, count)| count == 0) {
        let what = "there are no clients; give 1 or more with --tasks and --threads";
        return Err(BenchError::Settings(what.to_owned()));
    }
    if !settings.systems.iter().all(System::is_locking) {
        let what = "--locks none has no queues; name lock managers";
        return Err(BenchError::Settings(what.to_owned()));
    }
    let mut found = Vec::new();
    for system in &settings.systems {
        audience.say(&format!("one hot row over {system}"));
        let passes: Result<Vec<Vec<f64>>, BenchError> =
            (0..settings.reps).map(|_| pass(settings, system)).collect();
        let passes = passes?;
        for (at, &clients) in settings.clients.iter().enumerate() {
            let most = |pass: &Vec<f64>| {
                let same = settings.clients.iter().zip(pass);
                let same = same.filter(|((kind, _), _)| *kind == clients.0);
                same.map(|(_, &rate)| rate)
                    .fold(f64::MIN_POSITIVE, f64::max)
            };
            let rates = passes.iter().map(|pass| pass[at]);
            found.push(Found {
                system: system.to_string(),
                clients,
                checked: (rates.clone().sum::<f64>() * settings.window.as_secs_f64()) as u64,
                rate: Spread::new(rates),
                share: Spread::new(passes.iter().map(|pass| pass[at] / most(pass))),
            });
        }
    }
    Ok(found)
}

/// Returns the commits a second of all points, measured one after the other.
fn pass(settings: &Settings, system: &System) -> Result<Vec<f64>, BenchError> {
    let points = settings.clients.iter();
    points
        .map(|&clients| point(settings, system, clients))
        .collect()
}

/// Counts and stops the clients of one run.
#[derive(Debug, Default)]
struct Run {
    commits: AtomicU64,
    stopped: AtomicBool,
}

impl Run {
    /// Lets the clients run, and returns the commits a second in the second half of the time.
    fn observe(&self, window: Duration) -> f64 {
        thread::sleep(window);
        let (before, began) = (self.commits.load(Relaxed), Instant::now());
        thread::sleep(window);
        let commits = self.commits.load(Relaxed) - before;
        let rate = commits as f64 / began.elapsed().as_secs_f64();
        self.stopped.store(true, Relaxed);
        rate
    }
}

fn point(
    settings: &Settings,
    system: &System,
    (kind, count): (Clients, u32),
) -> Result<f64, BenchError> {
    let directory = settings.directory.as_deref();
    let scratch = Scratch::new(system.clone(), settings.durability, directory, None)?;
    let (db, run) = (&scratch.db, Arc::new(Run::default()));
    let failed = BenchError::engine("an update of the hot row");
    let loaded = db.run(|tx| tx.put(&ROWS, &HOT, &0));
    loaded.map_err(&failed)?;
    let rate = match kind {
        Clients::Threads => {
            let body = |_| || update_by_thread(db, &run);
            let bodies = (0..count).map(body).collect();
            let (ends, rate) = threads::together(bodies, || run.observe(settings.window))?;
            let ends: foxton::Result<()> = ends.into_iter().collect();
            ends.map_err(&failed)?;
            rate
        }
        Clients::Tasks => {
            let runtime = runtime::Builder::new_multi_thread().build();
            let runtime = runtime.map_err(|cause| BenchError::Wrong {
                doing: "starting the executor".to_owned(),
                what: cause.to_string(),
            })?;
            let spawn = |_| runtime.spawn(update_by_task(db.clone(), run.clone()));
            let tasks: Vec<_> = (0..count).map(spawn).collect();
            let rate = run.observe(settings.window);
            for task in tasks {
                let end = runtime.block_on(task).expect("a task does not panic");
                end.map_err(&failed)?;
            }
            rate
        }
    };
    let counted = db.run(|tx| tx.get(&ROWS, &HOT)).map_err(&failed)?;
    match counted == Some(run.commits.load(Relaxed)) {
        true => Ok(rate),
        false => Err(BenchError::Failed(format!(
            "the row counts {counted:?} commits, and the clients {}",
            run.commits.load(Relaxed)
        ))),
    }
}

fn update_by_thread(db: &Database, run: &Run) -> foxton::Result<()> {
    while !run.stopped.load(Relaxed) {
        db.run(|tx| {
            let count = tx.get_for_update(&ROWS, &HOT)?.unwrap_or_default();
            tx.put(&ROWS, &HOT, &(count + 1))
        })?;
        run.commits.fetch_add(1, Relaxed);
        thread::yield_now();
    }
    Ok(())
}

async fn update_by_task(db: Database, run: Arc<Run>) -> foxton::Result<()> {
    while !run.stopped.load(Relaxed) {
        let update = |mut tx: foxton::AsyncTransaction| async move {
            let count = tx.get_for_update(&ROWS, &HOT).await?.unwrap_or_default();
            tx.put(&ROWS, &HOT, &(count + 1)).await?;
            tx.commit().await
        };
        db.run_async(update).await?;
        run.commits.fetch_add(1, Relaxed);
        task::yield_now().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Locks;
    use foxton::LockManagerKind;

    #[test]
    fn no_commit_is_lost_over_any_manager() {
        let kinds = LockManagerKind::ALL.map(Locks::Manager);
        let settings = Settings {
            systems: System::all(&kinds, &[]),
            clients: vec![(Clients::Tasks, 20), (Clients::Threads, 4)],
            window: Duration::from_millis(10),
            reps: 1,
            durability: Durability::None,
            directory: None,
        };
        let found = run(&settings, Audience::Nobody).unwrap();
        assert_eq!(found.len(), 2 * kinds.len());
    }
}
