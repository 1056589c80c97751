//! Jobs of a queue, claimed by skipping locked rows, while one snapshot does not end.
//!
//! Each job deletes the first row of the queue. The snapshot needs the first of them for ever, and
//! the workers must not visit them. At the end the snapshot must read the queue as it was loaded.
//! With the feature `hooks`, rows that were deleted stay in the table in a third run, where the
//! workers visit them all.

use super::{Settings, levels::name_of};
use crate::{
    bench::{
        error::BenchError,
        measured::{Measured, RATIO},
        queue::{self, Beside},
    },
    progress::Audience,
    system::System,
};

/// The runs that take turns, and their names in results.
const BESIDE: &[(Beside, &str)] = &[
    (Beside::Nothing, "without a snapshot"),
    (Beside::Snapshot, "beside a snapshot"),
    #[cfg(feature = "hooks")]
    (
        Beside::SnapshotAndGhosts,
        "beside a snapshot, with deleted rows in place",
    ),
];

/// Jobs in the queue for each worker.
const JOBS_A_WORKER: u64 = 4;

pub(super) fn run(settings: &Settings, audience: Audience) -> Result<Measured, BenchError> {
    let mut measured = Measured::new(
        "snapshot-queue",
        "A queue beside a snapshot that does not end",
        "Do the deleted rows that a snapshot needs slow down a queue?",
        &settings.command,
    );
    let systems = settings.systems();
    let runs = BESIDE.len() as u32 * settings.passes * systems.len() as u32;
    let progress = audience.clock("measuring", settings.window * runs);
    for pass in 0..settings.passes {
        for (system, &method) in systems.iter().zip(&settings.methods) {
            let name = name_of(method);
            progress.now(&format!("{name}, pass {} of {}", pass + 1, settings.passes));
            let mut rates = vec![0.0; BESIDE.len()];
            for turn in 0..BESIDE.len() {
                // Each begins in its turn.
                let at = (turn + pass as usize) % BESIDE.len();
                rates[at] = queue::jobs_a_second(&of(settings, system), system, BESIDE[at].0)?;
                progress.advance(settings.window.as_millis() as u64);
            }
            for ((_, series), &rate) in BESIDE.iter().zip(&rates) {
                measured.add(&name, &format!("jobs {series}"), "1/s", rate);
            }
            for ((_, series), rate) in BESIDE.iter().zip(&rates).skip(1) {
                let series = format!("{series} ÷ without");
                measured.add(&name, &series, RATIO, rate / rates[0].max(1e-9));
            }
        }
    }
    drop(progress);
    measured.notes.push(format!(
        "{} workers, {} jobs in the queue, {} s. Afterwards no job was lost or done twice, and the \
         snapshot read the queue as it was loaded.",
        settings.most_clients(),
        JOBS_A_WORKER * u64::from(settings.most_clients()),
        settings.window.as_secs_f64()
    ));
    Ok(measured)
}

fn of(settings: &Settings, system: &System) -> queue::Settings {
    queue::Settings {
        systems: vec![system.clone()],
        workers: settings.most_clients(),
        jobs: JOBS_A_WORKER * u64::from(settings.most_clients()),
        work: Vec::new(),
        window: settings.window,
        reps: 1,
        durability: settings.durability,
        directory: settings.directory.clone(),
    }
}
