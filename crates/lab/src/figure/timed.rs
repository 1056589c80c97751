//! The operations of the wisconsin workload, timed over all systems in turn.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use foxton::{Database, Durability, Transaction};
use foxton_sync::site::{Component, Pattern};
use serde_json::{Value, json};

use super::request::Request;
use crate::{
    bench::{error::BenchError, scratch::Scratch},
    measure::spread::Spread,
    progress::Progress,
    system::System,
    workload::wisconsin::{
        self, ROWS,
        operation::{Operation, Session, Took},
    },
};

/// Times of one operation over one system.
#[derive(Debug, Clone, Default)]
pub(super) struct Timed {
    /// Seconds of the whole transaction, by repetition.
    pub(super) service: Spread,
    /// Seconds of it inside the operations on tables, locks included.
    pub(super) storage: Spread,
    /// Locks that it held in the end.
    pub(super) locks: f64,
    /// Unbounded critical sections of the lock manager that it passed, counted; `None` without
    /// the feature `account`. For `global` and `bucket` these are latches.
    pub(super) passed: Option<f64>,
}

/// Rows, time and repetitions of the measurements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    pub(super) rows: u32,
    pub(super) each: Duration,
    pub(super) reps: u32,
}

impl Effort {
    /// The effort of the request; by default each measurement takes these milliseconds in the
    /// brief form, the quick and the full one.
    pub(super) fn of(request: &Request, milliseconds: [u64; 3]) -> Effort {
        Effort {
            rows: request.rows.map_or(ROWS, |rows| rows.min(ROWS)),
            each: request.each(milliseconds),
            reps: request.reps.unwrap_or(if request.full { 15 } else { 5 }),
        }
    }

    /// The effort as settings for results.
    pub(super) fn listed(self, request: &Request) -> Vec<(&'static str, Value)> {
        let mut listed = vec![
            ("form", json!(request.form())),
            ("rows", json!(self.rows)),
            ("seconds", json!(self.each.as_secs_f64())),
            ("reps", json!(self.reps)),
        ];
        listed.extend(request.listed_tables());
        listed
    }
}

struct Opened {
    scratch: Scratch,
    session: Session,
    /// Holds a key exclusively that no operation needs, so that no lock near it is remembered.
    _writer: Option<Transaction>,
}

/// Measures each operation for each system. The systems take turns at each operation.
pub(super) fn time(
    systems: &[System],
    operations: &[Operation],
    effort: Effort,
    directory: Option<&Path>,
    progress: &Progress,
) -> Result<Vec<Vec<Timed>>, BenchError> {
    let alone = systems.iter().map(|system| (system, false));
    let alone: Vec<_> = alone.collect();
    time_beside(&alone, operations, effort, directory, progress)
}

/// As [`time`]. If the flag of a system is set, another transaction holds a key of each table
/// exclusively.
pub(super) fn time_beside(
    systems: &[(&System, bool)],
    operations: &[Operation],
    effort: Effort,
    directory: Option<&Path>,
    progress: &Progress,
) -> Result<Vec<Vec<Timed>>, BenchError> {
    let open = |&(system, has_writer): &(&System, bool)| -> Result<Opened, BenchError> {
        let scratch = Scratch::new(system.clone(), Durability::Buffered, directory, None)?;
        let loading = BenchError::engine("loading wisconsin");
        wisconsin::load(&scratch.db, effort.rows, 1).map_err(&loading)?;
        let writer = has_writer.then(|| wisconsin::lock_absent_keys(&scratch.db));
        Ok(Opened {
            session: Session::new(scratch.db.clone(), effort.rows),
            _writer: writer.transpose().map_err(&loading)?,
            scratch,
        })
    };
    let mut opened: Vec<Opened> = systems.iter().map(open).collect::<Result<_, _>>()?;
    let mut found = vec![vec![Gathered::default(); operations.len()]; opened.len()];
    for _ in 0..effort.reps {
        for (at, &operation) in operations.iter().enumerate() {
            for (one, found) in opened.iter_mut().zip(&mut found) {
                let (took, counts) = one.time(operation, effort.each)?;
                found[at].service.push(took.service.as_secs_f64());
                found[at].storage.push(took.storage.as_secs_f64());
                found[at].counts = counts;
                progress.advance(1);
            }
        }
    }
    let timed = |gathered: Gathered| Timed {
        service: Spread::new(gathered.service),
        storage: Spread::new(gathered.storage),
        locks: gathered.counts.locks,
        passed: COUNTING.then_some(gathered.counts.passed),
    };
    let found = found
        .into_iter()
        .map(|by_operation| by_operation.into_iter().map(timed).collect());
    Ok(found.collect())
}

/// Times of the repetitions so far, in seconds.
#[derive(Debug, Clone, Default)]
struct Gathered {
    service: Vec<f64>,
    storage: Vec<f64>,
    counts: Counts,
}

/// Whether critical sections are counted.
pub(super) const COUNTING: bool = cfg!(feature = "account");

/// Locks taken, and unbounded critical sections of the lock manager passed.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    locks: f64,
    passed: f64,
}

impl Counts {
    fn now(db: &Database) -> Counts {
        let stats = db.stats();
        let passed = stats.account.count(Component::Lock, Pattern::Unbounded);
        Counts {
            locks: stats.locks.acquisitions as f64,
            passed: passed as f64,
        }
    }

    /// Returns the counts of each of `count` transactions between the second and the third of these
    /// readings. Reading the counters passes critical sections too: as many as between the first
    /// two.
    fn of_each([first, before, after]: [Counts; 3], count: f64) -> Counts {
        let reading = before.passed - first.passed;
        Counts {
            locks: (after.locks - before.locks) / count,
            passed: (after.passed - before.passed - reading) / count,
        }
    }
}

impl Opened {
    /// Returns means over as many transactions as fit into `each`, and the counts of each.
    fn time(&mut self, operation: Operation, each: Duration) -> Result<(Took, Counts), BenchError> {
        let doing = BenchError::engine(operation.name());
        let first = Counts::now(&self.scratch.db);
        let (before, began) = (Counts::now(&self.scratch.db), Instant::now());
        let (mut sum, mut count) = (Took::default(), 0u32);
        while began.elapsed() < each || count == 0 {
            let took = self.session.run(operation).map_err(&doing)?;
            sum.service += took.service;
            sum.storage += took.storage;
            count += 1;
        }
        let readings = [first, before, Counts::now(&self.scratch.db)];
        // The delete that undoes an insert takes as many.
        let halves = if operation == Operation::Insert { 2 } else { 1 };
        let counts = Counts::of_each(readings, f64::from(count * halves));
        self.session.settle().map_err(&doing)?;
        let took = Took {
            service: sum.service / count,
            storage: sum.storage / count,
        };
        Ok((took, counts))
    }
}
