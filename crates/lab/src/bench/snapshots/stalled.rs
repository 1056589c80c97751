//! Updates of random rows while one snapshot does not end.
//!
//! * *beside a snapshot ÷ without*: throughput, in the same pass.
//! * *retained*: bytes of the versions that are kept, at the end of the window.
//! * *retained at the end ÷ at half*: 1 if memory is level.
//!
//! Each run has a database of its own. At the end the snapshot must read every row as it was
//! loaded, unless the engine has ended it for its memory.

use foxton::{Isolation, Snapshot, error::ConflictReason};

use super::{Settings, client::Mixture, levels::name_of, place::LoadedRows};
use crate::{
    bench::{
        error::BenchError,
        measured::{Measured, RATIO},
        rows::{KINDS, ROWS},
    },
    progress::{Audience, Progress},
    system::System,
};

const UPDATES_ALONE: Mixture = Mixture {
    level: Isolation::Serializable,
    reads: 1,
    updates: 100,
    writes: 1,
    drawn: 0,
    is_labelled: false,
};

pub(super) fn run(settings: &Settings, audience: Audience) -> Result<Measured, BenchError> {
    let mut measured = Measured::new(
        "snapshot-stalled",
        "Updates beside a snapshot that does not end",
        "What does a forgotten snapshot cost those who update, and how much memory does it take?",
        &settings.command,
    );
    let systems = settings.systems();
    let runs = 2 * settings.passes * systems.len() as u32;
    let progress = audience.clock("measuring", settings.times().whole() * runs);
    for pass in 0..settings.passes {
        let mut retained = Vec::new();
        for (system, &method) in systems.iter().zip(&settings.methods) {
            let name = name_of(method);
            progress.now(&format!("{name}, pass {} of {}", pass + 1, settings.passes));
            let point = Point {
                settings,
                system,
                progress: &progress,
            };
            // Each begins half of the passes.
            let order = [pass % 2 == 0, pass % 2 != 0];
            let mut rates = [0.0; 2];
            for has_snapshot in order {
                let one = point.one(has_snapshot, &name, &mut measured)?;
                rates[usize::from(has_snapshot)] = one.rate;
                if has_snapshot {
                    retained.push(one.retained);
                }
            }
            measured.add(&name, "updates without a snapshot", "1/s", rates[0]);
            measured.add(&name, "updates beside a snapshot", "1/s", rates[1]);
            let series = "beside a snapshot ÷ without";
            measured.add(&name, series, RATIO, rates[1] / rates[0].max(1e-9));
        }
        for (&method, &bytes) in settings.methods.iter().zip(&retained).skip(1) {
            let row = format!("{} ÷ {}", name_of(method), name_of(settings.methods[0]));
            measured.add(&row, "retained", RATIO, bytes / retained[0].max(1.0));
        }
    }
    drop(progress);
    measured.notes.push(format!(
        "{} clients updated {} rows of {} bytes for {} s, after {} s with the snapshot. Afterwards it \
         read every row as it was loaded, and no update was missing.",
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
    progress: &'p Progress,
}

struct StalledRun {
    rate: f64,
    /// Bytes of versions at the end.
    retained: f64,
}

impl Point<'_> {
    fn one(
        &self,
        has_snapshot: bool,
        name: &str,
        measured: &mut Measured,
    ) -> Result<StalledRun, BenchError> {
        let settings = self.settings;
        let rows = LoadedRows::again(settings, self.system, settings.rows)?;
        let mixture = Mixture {
            drawn: settings.rows,
            ..UPDATES_ALONE
        };
        let doing = BenchError::engine("taking a snapshot");
        let snapshot = has_snapshot.then(|| rows.db().snapshot());
        let snapshot = snapshot.transpose().map_err(doing)?;
        let clients = rows.clients(settings.most_clients(), mixture);
        let counters = || vec![rows.db().version_stats().bytes];
        let times = settings.times();
        let observed = times.observe(KINDS, clients, &counters, self.progress)?;
        let retained = observed.last(0);
        if let Some(snapshot) = snapshot {
            let mib = |bytes: f64| bytes / f64::from(1 << 20);
            measured.add(name, "retained", "MiB", mib(retained as f64));
            let resident = observed.resident_bytes() as f64;
            measured.add(
                name,
                "resident memory beside a snapshot",
                "MiB",
                mib(resident),
            );
            let half = observed.middle(0);
            let series = "retained at the end ÷ at half";
            let level = retained as f64 / half.max(1) as f64;
            measured.add(name, series, RATIO, level);
            let is_whole = check_snapshot(&rows, &snapshot)?;
            measured.add(
                name,
                "snapshots ended for their memory",
                "snapshots",
                f64::from(!is_whole),
            );
        }
        rows.check()?;
        Ok(StalledRun {
            rate: observed.run.tps(),
            retained: retained as f64,
        })
    }
}

/// True if the snapshot has every row as it was loaded; false if the engine has ended it.
fn check_snapshot(rows: &LoadedRows, snapshot: &Snapshot) -> Result<bool, BenchError> {
    let (mut key, mut wrong) = (0, None);
    let read = snapshot.range(&ROWS, ..).and_then(|range| {
        range.for_each_bytes(|_, row| {
            if rows.rows.counter(key, row) != Some(0) {
                wrong.get_or_insert(key);
            }
            key += 1;
        })
    });
    match read {
        Err(foxton::Error::Conflict(conflict))
            if conflict.reason() == ConflictReason::SnapshotEnded =>
        {
            return Ok(false);
        }
        read => read.map_err(BenchError::engine("reading at the snapshot"))?,
    };
    match wrong {
        Some(key) => Err(BenchError::Failed(format!(
            "row {key} at the snapshot is not as it was loaded"
        ))),
        None if key != rows.rows.count => Err(BenchError::Failed(format!(
            "the snapshot has {key} rows instead of {}",
            rows.rows.count
        ))),
        None => Ok(true),
    }
}
