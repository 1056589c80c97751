//! Reads at a snapshot of rows that were updated many times since, beside reads at a new one.
//!
//! One thread reads random rows at both in turn, a thousand reads at a time.

use std::time::{Duration, Instant};

use foxton::Snapshot;

use super::{Settings, client::add_one, levels::name_of, place::LoadedRows};
use crate::{
    bench::{
        error::BenchError,
        measured::{Measured, RATIO},
        rows::ROWS,
    },
    progress::Audience,
    random::Random,
    system::System,
    workload::attempt::until_committed,
};

/// Updates of each row after the snapshot.
const UPDATES: u64 = 1_000;
/// Rows of a transaction that updates.
const STEP: u64 = 100;
/// Reads between two readings of the clock.
const READS: u32 = 1_000;
/// Of so many rows one is updated.
const SHARE: u64 = 100;

pub(super) fn run(settings: &Settings, audience: Audience) -> Result<Measured, BenchError> {
    let mut measured = Measured::new(
        "snapshot-old-versions",
        "Reads of rows that were updated a thousand times since the snapshot",
        "How long does a reader search for an old version?",
        &settings.command,
    );
    let systems = settings.systems();
    let count = (settings.rows / SHARE).max(1);
    let total = UPDATES * u64::from(settings.passes) * systems.len() as u64;
    let progress = audience.count("updating", total, "rounds");
    for pass in 0..settings.passes {
        for (system, &method) in systems.iter().zip(&settings.methods) {
            let rows = updated(settings, system, count, &mut || progress.advance(1))?;
            let mut random = Random::seeded(&[settings.seed, u64::from(pass)]);
            let (old, new) = rows.times(settings.window, &mut random)?;
            let name = name_of(method);
            measured.add(&name, "read at the old snapshot", "ns", old);
            measured.add(&name, "read at a new snapshot", "ns", new);
            measured.add(&name, "old ÷ new", RATIO, old / new.max(1e-9));
            rows.rows.check()?;
        }
    }
    drop(progress);
    measured.notes.push(format!(
        "{count} rows of {} bytes, each updated {UPDATES} times; one reader. Each read returned the \
         right counter.",
        settings.row_bytes
    ));
    Ok(measured)
}

struct UpdatedRows {
    rows: LoadedRows,
    old: Snapshot,
    new: Snapshot,
}

/// Loads rows, takes a snapshot, updates all rows, and takes another one.
fn updated(
    settings: &Settings,
    system: &System,
    count: u64,
    round: &mut dyn FnMut(),
) -> Result<UpdatedRows, BenchError> {
    let rows = LoadedRows::again(settings, system, count)?;
    let taking = BenchError::engine("taking a snapshot");
    let old = rows.db().snapshot().map_err(&taking)?;
    let (mut row, mut random) = (
        vec![0_u8; settings.row_bytes],
        Random::seeded(&[settings.seed]),
    );
    for _ in 0..UPDATES {
        for first in (0..count).step_by(STEP as usize) {
            let mut keys = first..count.min(first + STEP);
            let ended = until_committed(rows.db(), (&["update"], 0), &mut random, |tx| {
                let mut keys = keys.clone();
                keys.try_for_each(|key| add_one(tx, rows.rows, key, &mut row))
            });
            if let Some(failure) = ended.failure {
                return Err(BenchError::Failed(failure.into()));
            }
            rows.count_updates(keys.by_ref().count() as u64);
        }
        round();
    }
    let new = rows.db().snapshot().map_err(&taking)?;
    Ok(UpdatedRows { rows, old, new })
}

impl UpdatedRows {
    /// Returns the nanoseconds of a read at the old snapshot, and of one at the new one.
    fn times(&self, window: Duration, random: &mut Random) -> Result<(f64, f64), BenchError> {
        let mut spent = [Duration::ZERO; 2];
        let (began, mut rounds) = (Instant::now(), 0);
        while rounds == 0 || began.elapsed() < window {
            let of_both = [(&self.old, 0), (&self.new, UPDATES)];
            for ((snapshot, counter), spent) in of_both.into_iter().zip(&mut spent) {
                let now = Instant::now();
                self.reads(snapshot, counter, random)?;
                *spent += now.elapsed();
            }
            rounds += 1;
        }
        let reads = f64::from(rounds) * f64::from(READS);
        let [old, new] = spent.map(|spent| spent.as_secs_f64() * 1e9 / reads);
        Ok((old, new))
    }

    fn reads(
        &self,
        snapshot: &Snapshot,
        counter: u64,
        random: &mut Random,
    ) -> Result<(), BenchError> {
        let rows = self.rows.rows;
        for _ in 0..READS {
            let key = random.uniform(0, rows.count - 1);
            let found = snapshot.get_with(&ROWS, &key, |row| rows.counter(key, row));
            let found = found.map_err(BenchError::engine("reading at a snapshot"))?;
            if found != Some(Some(counter)) {
                return Err(BenchError::Failed(format!(
                    "row {key} has the counter {found:?} at the snapshot, not {counter}"
                )));
            }
        }
        Ok(())
    }
}
