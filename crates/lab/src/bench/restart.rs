//! Time of a restart, and cost of the checkpoints that keep it short.
//!
//! For each size of the table and each length of log, the table is filled, a checkpoint is made,
//! and rows are updated at random until the log after the checkpoint has this length. The database
//! is closed and opened several times. Opening loads the checkpoint and replays the log, and each
//! is timed: loading depends on the rows, replaying on the log. Then another checkpoint is made,
//! and the database is opened after it. Beside that, clients update without checkpoints and with
//! many, some seconds each in turn, and the longest time of any commit is shown.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use super::{directory::ScratchDirectory, error::BenchError};
use crate::{progress::Audience, random::Random, threads};
use foxton::{Checkpoint, Database, Durability, Options, RecoveryReport, Table};
use hdrhistogram::Histogram;

const ROWS: Table<u64, [u8]> = Table::new("rows");
const VALUE_BYTES: usize = 100;
/// Updates of a transaction.
const UPDATES: u64 = 4;
/// Keys loaded by one transaction.
const LOADED: u64 = 1_000;

/// Settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Lengths of log after the checkpoint, in bytes.
    pub logs: Vec<u64>,
    /// Rows of the table; clients update a table of the first of these sizes.
    pub rows: Vec<u64>,
    /// Number of times each database is opened; at least one.
    pub opens: u32,
    /// Threads that load and replay; 0 for as many as the machine has cores.
    pub threads: usize,
    /// Clients that update while checkpoints are made.
    pub clients: u32,
    /// Time of each measurement of the clients; 0 for none.
    pub window: Duration,
    /// Bytes of log between two checkpoints while they run.
    pub every: u64,
    /// Measurements of each kind.
    pub reps: u32,
    /// Seed of the keys.
    pub seed: u64,
}

/// One opening.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The work of loading and replaying, and the time of each.
    pub recovered: RecoveryReport,
    /// Time of the whole opening.
    pub took: Duration,
}

/// One size of table and one length of log.
#[derive(Debug, Clone)]
pub struct Restart {
    /// Openings with the log after the first checkpoint.
    pub behind: Vec<Opened>,
    /// The checkpoint made then.
    pub checkpoint: Checkpoint,
    /// Opening directly after a checkpoint.
    pub at_once: Opened,
}

/// A measurement of clients.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Number of checkpoints made meanwhile; `None` without checkpoints.
    pub checkpoints: Option<u64>,
    /// Transactions a second.
    pub rate: f64,
    /// 99.9th percentile of a transaction's time, in microseconds.
    pub p999_us: u64,
    /// The longest transaction, in microseconds.
    pub longest_us: u64,
}

/// Results of the measurement.
#[derive(Debug, Clone)]
pub struct Findings {
    /// Restarts, by size of table and then by length of log.
    pub restarts: Vec<Restart>,
    /// Without and with checkpoints, in turn.
    pub windows: Vec<Window>,
}

/// Measures in a directory inside `parent`; if `None`, in the system's directory for temporary
/// files.
///
/// # Errors
///
/// If the directory cannot be made or the engine refuses.
pub fn run(
    settings: &Settings,
    parent: Option<&Path>,
    audience: Audience,
) -> Result<Findings, BenchError> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    let scratch = || {
        ScratchDirectory::new(&parent).map_err(|cause| BenchError::File {
            path: parent.clone(),
            cause,
        })
    };
    let mut restarts = Vec::new();
    for &rows in &settings.rows {
        for &bytes in &settings.logs {
            audience.say(&format!("{rows} rows, a log of {} MiB", bytes >> 20));
            restarts.push(restart(settings, rows, bytes, &scratch()?)?);
        }
    }
    let mut windows = Vec::new();
    if !settings.window.is_zero() {
        audience.say("clients, without checkpoints and with");
        for _ in 0..settings.reps {
            for every in [u64::MAX, settings.every] {
                windows.push(window(settings, every, &scratch()?)?);
            }
        }
    }
    Ok(Findings { restarts, windows })
}

fn open(
    settings: &Settings,
    every: u64,
    directory: &ScratchDirectory,
) -> Result<Database, BenchError> {
    let mut options = Options::default();
    options.checkpoint_log_bytes = every;
    options.restart_threads = settings.threads;
    options.durability = Durability::Buffered;
    let opened = Database::open_with(directory.database(), options);
    opened.map_err(engine("opening the database"))
}

fn engine(doing: &str) -> impl Fn(foxton::Error) -> BenchError {
    move |cause| BenchError::Engine {
        doing: doing.to_owned(),
        cause,
    }
}

fn load(db: &Database, rows: u64) -> Result<(), BenchError> {
    for from in (0..rows).step_by(LOADED as usize) {
        let mut keys = from..rows.min(from + LOADED);
        let loaded = db.run(|tx| keys.try_for_each(|key| tx.put(&ROWS, &key, &[0; VALUE_BYTES])));
        loaded.map_err(engine("loading the rows"))?;
    }
    Ok(())
}

fn update(db: &Database, random: &mut Random, rows: u64) -> foxton::Result<()> {
    let keys: [u64; UPDATES as usize] = std::array::from_fn(|_| random.uniform(0, rows - 1));
    let value = [random.uniform(0, 255) as u8; VALUE_BYTES];
    db.run(|tx| keys.iter().try_for_each(|key| tx.put(&ROWS, key, &value)))
}

fn restart(
    settings: &Settings,
    rows: u64,
    bytes: u64,
    directory: &ScratchDirectory,
) -> Result<Restart, BenchError> {
    let db = open(settings, u64::MAX, directory)?;
    load(&db, rows)?;
    db.checkpoint().map_err(engine("making a checkpoint"))?;
    let mut random = Random::seeded(&[settings.seed]);
    let before = db.stats().log.bytes;
    while db.stats().log.bytes - before < bytes {
        for _ in 0..1_000 {
            update(&db, &mut random, rows).map_err(engine("updating"))?;
        }
    }
    drop(db);
    let timed = || {
        let begun = Instant::now();
        let db = open(settings, u64::MAX, directory)?;
        let (took, recovered) = (begun.elapsed(), db.recovered().clone());
        Ok::<_, BenchError>((db, Opened { recovered, took }))
    };
    let behind = (0..settings.opens.max(1)).map(|_| Ok(timed()?.1));
    let behind = behind.collect::<Result<Vec<_>, BenchError>>()?;
    let (db, _) = timed()?;
    let checkpoint = db.checkpoint().map_err(engine("making a checkpoint"))?;
    drop(db);
    let (_, at_once) = timed()?;
    Ok(Restart {
        behind,
        checkpoint,
        at_once,
    })
}

fn window(
    settings: &Settings,
    every: u64,
    directory: &ScratchDirectory,
) -> Result<Window, BenchError> {
    let db = open(settings, every, directory)?;
    let rows = settings.rows.first().copied().unwrap_or(1);
    load(&db, rows)?;
    let before = db.checkpoints().made;
    let begun = Instant::now();
    let client = |number: u32| {
        let mut times = Histogram::<u64>::new(3).expect("three digits are few enough");
        let mut random = Random::seeded(&[settings.seed, number.into()]);
        while begun.elapsed() < settings.window {
            let begun = Instant::now();
            update(&db, &mut random, rows)?;
            times.saturating_record(begun.elapsed().as_micros() as u64);
        }
        Ok(times)
    };
    let mut all = Histogram::<u64>::new(3).expect("three digits are few enough");
    let client = &client;
    let clients = (0..settings.clients).map(|number| move || client(number));
    let (times, ()) = threads::together(clients.collect(), || ())?;
    for times in times {
        let added = all.add(times.map_err(engine("updating"))?);
        added.expect("both histograms resize themselves");
    }
    let took = begun.elapsed().as_secs_f64();
    Ok(Window {
        checkpoints: (every < u64::MAX).then(|| db.checkpoints().made - before),
        rate: all.len() as f64 / took,
        p999_us: all.value_at_quantile(0.999),
        longest_us: all.max(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_checkpoint_there_is_nothing_to_replay_and_clients_run_beside_it() {
        let settings = Settings {
            logs: vec![1 << 20],
            rows: vec![500, 800],
            opens: 2,
            threads: 0,
            clients: 2,
            window: Duration::from_millis(100),
            every: 4 << 10,
            reps: 1,
            seed: 1,
        };
        let findings = run(&settings, None, Audience::Nobody).unwrap();
        for (restart, rows) in findings.restarts.iter().zip([500, 800]) {
            assert_eq!(restart.behind.len(), 2);
            for opened in &restart.behind {
                assert_eq!(opened.recovered.checkpoint_rows, rows);
                assert!(opened.recovered.log_bytes >= 1 << 20);
            }
            assert_eq!(restart.at_once.recovered.transactions, 0);
            assert_eq!(restart.at_once.recovered.checkpoint_rows, rows);
        }
        assert_eq!(findings.restarts.len(), 2);
        let [without, with] = findings.windows[..] else {
            panic!("{findings:?}");
        };
        assert!(without.checkpoints.is_none() && without.rate > 0.0);
        assert!(with.checkpoints.is_some() && with.rate > 0.0);
    }
}
