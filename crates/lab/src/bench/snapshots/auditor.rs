//! Updates of two rows a transaction, while an auditor adds up all counters without a pause.
//!
//! * *beside an auditor ÷ without*: transactions for each second of processor time that the others
//!   had, which is that of the process less the auditor's. On few cores the auditor takes time from
//!   them in any case.
//!
//! Each transaction adds one to two counters, so every sum at a snapshot must be even, and none is
//! less than the one before.

use std::{
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use foxton::{Database, Isolation, SnapshotMethod};
use foxton_sync::shim::{AtomicBool, AtomicU64, Ordering::Relaxed};
use rustix::time::{ClockId, clock_gettime};

use super::{Settings, client::Mixture, levels::name_of, place::LoadedRows};
use crate::{
    bench::{
        error::BenchError,
        measured::{Measured, RATIO},
        observed::Observed,
        rows::{KINDS, ROWS},
    },
    measure::usage::Usage,
    progress::{Audience, Progress},
    system::System,
};

const MIXTURE: Mixture = Mixture {
    level: Isolation::Serializable,
    reads: 1,
    updates: 100,
    writes: 2,
    drawn: 0,
    is_labelled: false,
};

/// Counters of a run: processor time of the process and of the auditor, in microseconds.
const PROCESS: usize = 0;
const AUDITOR: usize = 1;

pub(super) fn run(settings: &Settings, audience: Audience) -> Result<Measured, BenchError> {
    let mut measured = Measured::new(
        "snapshot-auditor",
        "Updates beside an auditor without a pause",
        "What does a reader of all rows cost those who update, beyond the processor that it uses?",
        &settings.command,
    );
    let systems = settings.systems();
    let runs = 2 * settings.passes * systems.len() as u32;
    let progress = audience.clock("measuring", settings.times().whole() * runs);
    for pass in 0..settings.passes {
        for (system, &method) in systems.iter().zip(&settings.methods) {
            let name = name_of(method);
            progress.now(&format!("{name}, pass {} of {}", pass + 1, settings.passes));
            let point = Point {
                settings,
                system,
                method,
                progress: &progress,
            };
            // Each begins half of the passes.
            let order = [pass % 2 == 0, pass % 2 != 0];
            let mut rates = [0.0; 2];
            for has_auditor in order {
                rates[usize::from(has_auditor)] = point.one(has_auditor, &mut measured)?;
            }
            let unit = "transactions/s";
            measured.add(
                &name,
                "by processor time, without an auditor",
                unit,
                rates[0],
            );
            measured.add(
                &name,
                "by processor time, beside an auditor",
                unit,
                rates[1],
            );
            let series = "beside an auditor ÷ without";
            measured.add(&name, series, RATIO, rates[1] / rates[0].max(1e-9));
        }
    }
    drop(progress);
    measured.notes.push(format!(
        "{} clients updated two of {} rows of {} bytes a transaction, {} s after {} s. Every sum was \
         even and none less than the one before; afterwards no update was missing.",
        settings.most_clients(),
        settings.rows,
        settings.row_bytes,
        settings.window.as_secs_f64(),
        settings.ramp.as_secs_f64()
    ));
    Ok(measured)
}

struct Point<'p> {
    settings: &'p Settings,
    system: &'p System,
    method: SnapshotMethod,
    progress: &'p Progress,
}

impl Point<'_> {
    /// Returns transactions for each second of processor time of all but the auditor.
    fn one(&self, has_auditor: bool, measured: &mut Measured) -> Result<f64, BenchError> {
        let settings = self.settings;
        let rows = LoadedRows::again(settings, self.system, settings.rows)?;
        let mixture = Mixture {
            drawn: settings.rows,
            ..MIXTURE
        };
        let clients = rows.clients(settings.most_clients(), mixture);
        let auditor = Auditor::default();
        let counters = || {
            let process = Usage::now().map_or(Duration::ZERO, |usage| usage.user + usage.kernel);
            vec![process.as_micros() as u64, auditor.busy.load(Relaxed)]
        };
        let observed = thread::scope(|scope| {
            let running = has_auditor.then(|| scope.spawn(|| auditor.run(rows.db(), &rows)));
            let times = settings.times();
            let observed = times.observe(KINDS, clients, &counters, self.progress);
            auditor.is_over.store(true, Relaxed);
            running.map_or(Ok(()), ended)?;
            observed
        })?;
        if has_auditor {
            let name = name_of(self.method);
            let audits =
                auditor.audits.load(Relaxed) as f64 / settings.times().whole().as_secs_f64();
            measured.add(&name, "audits", "1/s", audits);
        }
        rows.check()?;
        Ok(by_processor_time(&observed))
    }
}

fn by_processor_time(observed: &Observed) -> f64 {
    let busy = observed.rate(PROCESS) - observed.rate(AUDITOR);
    observed.run.tps() / (busy / 1e6).max(1e-9)
}

fn ended(running: ScopedJoinHandle<'_, Result<(), BenchError>>) -> Result<(), BenchError> {
    let panicked = |_| Err(BenchError::Failed("the auditor panicked".to_owned()));
    running.join().unwrap_or_else(panicked)
}

/// Adds up all counters at one snapshot after the other.
#[derive(Default)]
struct Auditor {
    is_over: AtomicBool,
    /// Its processor time in microseconds.
    busy: AtomicU64,
    audits: AtomicU64,
}

impl Auditor {
    fn run(&self, db: &Database, loaded: &LoadedRows) -> Result<(), BenchError> {
        let mut before = 0;
        while !self.is_over.load(Relaxed) {
            let sum = self.sum(db, loaded)?;
            if sum % 2 != 0 || sum < before {
                let wrong = format!("the sum of all counters was {sum}, after {before}");
                return Err(BenchError::Failed(wrong));
            }
            before = sum;
            self.audits.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    fn sum(&self, db: &Database, loaded: &LoadedRows) -> Result<u64, BenchError> {
        let snapshot = db.snapshot().map_err(BenchError::engine("auditing"))?;
        let (mut sum, mut key, mut is_right) = (0, 0, true);
        let read = snapshot.range(&ROWS, ..).and_then(|range| {
            range.for_each_bytes(|_, row| {
                let counter = loaded.rows.counter(key, row);
                is_right &= counter.is_some();
                sum += counter.unwrap_or_default();
                key += 1;
                if key % 1_000 == 0 {
                    self.busy.store(own_time().as_micros() as u64, Relaxed);
                }
            })
        });
        read.map_err(BenchError::engine("auditing"))?;
        match is_right && key == loaded.rows.count {
            true => Ok(sum),
            false => Err(BenchError::Failed(format!(
                "{key} rows were audited, and some are not as they were written"
            ))),
        }
    }
}

/// Processor time of the calling thread.
fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
