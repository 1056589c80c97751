//! A peak of open transactions that is long gone: does it cost anything later?
//!
//! There are two databases of the same kind. In both, many rows are written and deleted, one after
//! the other. In one of them as many transactions are then open at once, a few times, each with a
//! row of its own; the other is the control. Then one thread updates, and
//! after that reads, a few rows in both by turns. Each short window of the first is divided by the
//! window of the second right after or before it, so changes in the machine's speed do not distort
//! the ratios. The memory that stays and the time to close are measured, too.

use std::{
    path::PathBuf,
    pin::pin,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use foxton::{AsyncTransaction, Database, Durability, Table};

use super::{error::BenchError, scratch::Scratch};
use crate::{
    measure::{spread::Spread, usage::Usage},
    progress::Audience,
    system::System,
};

const ROWS: Table<u64, u64> = Table::new("rows");
/// Rows that are updated and read.
const FEW: u64 = 1_000;
/// Peaks, one after the other.
const PEAKS: u32 = 3;

/// Settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// Numbers of transactions that are open at once.
    pub open: Vec<u64>,
    /// Time after the peak until the measurement.
    pub rest: Duration,
    /// Time of each window.
    pub window: Duration,
    /// Number of pairs of windows, of updates and of reads.
    pub reps: u32,
    /// Parent directory of the databases; if `None`, the system's directory for temporary files.
    pub directory: Option<PathBuf>,
}

/// Results of one lock manager after one peak.
#[derive(Debug, Clone)]
pub struct Found {
    /// The lock manager.
    pub system: String,
    /// Number of transactions that were open at once.
    pub open: u64,
    /// Updates a second of the database that had the peak.
    pub updates: Spread,
    /// The same divided by those of the control, pair by pair.
    pub update_ratio: Spread,
    /// Reads likewise.
    pub read_ratio: Spread,
    /// Growth of the process's memory from before the peak to after the rest, in bytes.
    pub kept_bytes: u64,
    /// Time to close the database that had the peak.
    pub closing: Duration,
    /// Time to close the control.
    pub closing_control: Duration,
}

/// Measures every system after every peak.
///
/// # Errors
///
/// If the engine refuses.
pub fn run(settings: &Settings, audience: Audience) -> Result<Vec<Found>, BenchError> {
    let mut found = Vec::new();
    for &open in &settings.open {
        for system in &settings.systems {
            audience.say(&format!("{open} open at once over {system}"));
            found.push(point(settings, system, open)?);
        }
    }
    Ok(found)
}

fn point(settings: &Settings, system: &System, open: u64) -> Result<Found, BenchError> {
    let scratch = || {
        let directory = settings.directory.as_deref();
        let scratch = Scratch::new(system.clone(), Durability::None, directory, None)?;
        let loaded = (scratch.db).run(|tx| (0..FEW).try_for_each(|key| tx.put(&ROWS, &key, &key)));
        loaded.map_err(BenchError::engine("loading the rows"))?;
        Ok::<Scratch, BenchError>(scratch)
    };
    let (control, subject) = (scratch()?, scratch()?);
    for scratch in [&control, &subject] {
        // The rows of the peaks, in the log and in the table, are not the question.
        for _ in 0..PEAKS {
            one_by_one(&scratch.db, open).map_err(BenchError::engine("writing one row each"))?;
        }
        rate(&scratch.db, settings.window, update)?;
    }
    // Memory of those rows goes back meanwhile.
    thread::sleep(settings.rest);
    let before = resident();
    for _ in 0..PEAKS {
        peak(&subject.db, open).map_err(BenchError::engine("a peak of open transactions"))?;
    }
    thread::sleep(settings.rest);
    let kept_bytes = resident().saturating_sub(before);
    let (updates, update_ratio) = by_turns(settings, &subject.db, &control.db, update)?;
    let (_, read_ratio) = by_turns(settings, &subject.db, &control.db, read)?;
    Ok(Found {
        system: system.to_string(),
        open,
        updates,
        update_ratio,
        read_ratio,
        kept_bytes,
        closing: closing(subject),
        closing_control: closing(control),
    })
}

/// Opens so many transactions at once, each with an update, and commits them.
fn peak(db: &Database, open: u64) -> foxton::Result<()> {
    let begun: foxton::Result<Vec<AsyncTransaction>> =
        (0..open).map(|_| db.begin_async()).collect();
    let mut all = begun?;
    for (key, tx) in (FEW..).zip(&mut all) {
        at_once(tx.put(&ROWS, &key, &1))?;
    }
    all.into_iter().try_for_each(|tx| at_once(tx.commit()))?;
    delete(db, open)
}

/// Writes what a peak writes, in one transaction after the other.
fn one_by_one(db: &Database, open: u64) -> foxton::Result<()> {
    (FEW..FEW + open).try_for_each(|key| db.run(|tx| tx.put(&ROWS, &key, &1)))?;
    delete(db, open)
}

fn delete(db: &Database, open: u64) -> foxton::Result<()> {
    let keys: Vec<u64> = (FEW..FEW + open).collect();
    keys.chunks(1_000).try_for_each(|keys| {
        db.run(|tx| {
            keys.iter()
                .try_for_each(|key| tx.delete(&ROWS, key).map(|_| ()))
        })
    })
}

/// Returns the result of an operation that waits for nothing.
fn at_once<R>(operation: impl Future<Output = R>) -> R {
    let mut context = Context::from_waker(Waker::noop());
    let mut operation = pin!(operation);
    loop {
        if let Poll::Ready(result) = operation.as_mut().poll(&mut context) {
            return result;
        }
        thread::yield_now();
    }
}

fn update(db: &Database, number: u64) -> foxton::Result<()> {
    db.run(|tx| tx.put(&ROWS, &(number * 7919 % FEW), &number))
}

fn read(db: &Database, number: u64) -> foxton::Result<()> {
    db.run(|tx| tx.get(&ROWS, &(number * 7919 % FEW)).map(|_| ()))
}

type Operation = fn(&Database, u64) -> foxton::Result<()>;

/// Returns the rates of `subject`, and those divided by the rates of `control`.
fn by_turns(
    settings: &Settings,
    subject: &Database,
    control: &Database,
    operation: Operation,
) -> Result<(Spread, Spread), BenchError> {
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for rep in 0..settings.reps {
        let of = |db: &Database| rate(db, settings.window, operation);
        // In alternating order, so that a machine that gets slower favours neither.
        let (after, without) = match rep % 2 {
            0 => (of(subject)?, of(control)?),
            _ => {
                let without = of(control)?;
                (of(subject)?, without)
            }
        };
        rates.push(after);
        ratios.push(after / without.max(f64::MIN_POSITIVE));
    }
    Ok((Spread::new(rates), Spread::new(ratios)))
}

/// Returns the operations a second of one thread.
fn rate(db: &Database, window: Duration, operation: Operation) -> Result<f64, BenchError> {
    let begun = Instant::now();
    let mut done = 0_u64;
    while begun.elapsed() < window {
        for _ in 0..1_000 {
            operation(db, done).map_err(BenchError::engine("an operation after the peak"))?;
            done += 1;
        }
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

fn resident() -> u64 {
    Usage::now().map_or(0, |usage| usage.resident_bytes)
}

/// Closes a database, and returns how long that took; its directory is removed after that.
fn closing(scratch: Scratch) -> Duration {
    let begun = Instant::now();
    drop(scratch.db);
    begun.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Locks;

    #[test]
    fn a_small_peak_is_measured_over_two_managers() {
        let settings = Settings {
            systems: System::all(
                &["direct", "staged"].map(|name| name.parse::<Locks>().unwrap()),
                &[],
            ),
            open: vec![200],
            rest: Duration::from_millis(1),
            window: Duration::from_millis(2),
            reps: 3,
            directory: None,
        };
        let found = run(&settings, Audience::here()).unwrap();
        assert_eq!(found.len(), 2);
        for found in found {
            assert!(found.update_ratio.min() > 0.0 && found.read_ratio.min() > 0.0);
        }
    }
}
