//! Waits of readers at snapshots for commit LSNs, for each log buffer.
//!
//! A reader waits if it meets a version whose writer is taking its place in the log at that moment.
//! That is a few instructions, so a wait is long only if the writer is descheduled there. The
//! quantile is over all rows read, and most did not wait.

use foxton::Isolation;

use super::{Settings, client::Mixture, place::LoadedRows};
use crate::{
    bench::{
        error::BenchError,
        measured::Measured,
        rows::{KINDS, READ},
    },
    progress::Audience,
    system::System,
};

/// Share of the rows that all clients draw, as a divisor.
const HOT: u64 = 20;
const MIXTURE: Mixture = Mixture {
    level: Isolation::Snapshot,
    reads: 1,
    updates: 20,
    writes: 1,
    drawn: 0,
    is_labelled: false,
};

pub(super) fn run(settings: &Settings, audience: Audience) -> Result<Measured, BenchError> {
    let mut measured = Measured::new(
        "snapshot-waits",
        "Waits of readers for commit LSNs",
        "How long does a reader at a snapshot wait for commits that take their place in the log?",
        &settings.command,
    );
    let system = settings.systems().remove(0);
    let systems = System::with_log_buffers(vec![system], &settings.log_buffers);
    let runs = settings.passes * systems.len() as u32;
    let progress = audience.clock("measuring", settings.times().whole() * runs);
    for pass in 0..settings.passes {
        for (system, buffer) in systems.iter().zip(&settings.log_buffers) {
            progress.now(&format!(
                "{buffer}, pass {} of {}",
                pass + 1,
                settings.passes
            ));
            let rows = LoadedRows::again(settings, system, settings.rows)?;
            let mixture = Mixture {
                drawn: settings.rows / HOT,
                ..MIXTURE
            };
            let clients = rows.clients(settings.most_clients(), mixture);
            let (times, nothing) = (settings.times(), || Vec::new());
            let observed = times.observe(KINDS, clients, &nothing, &progress)?;
            let (waits, reads) = (rows.db().version_stats().lsn_waits, rows.commits(READ));
            let row = buffer.to_string();
            let mut add = |series: &str, unit, value: f64| measured.add(&row, series, unit, value);
            add("transactions", "1/s", observed.run.tps());
            let millions = reads.max(1) as f64 / 1e6;
            add("waits", "per million reads", waits.count as f64 / millions);
            let ms = |wait: std::time::Duration| wait.as_secs_f64() * 1e3;
            add(
                "p99.99 of the wait of a read",
                "ms",
                ms(waits.quantile(0.9999, reads)),
            );
            add("longest wait", "ms", ms(waits.longest));
            add("time waited", "s", waits.waited.as_secs_f64());
            rows.check()?;
        }
    }
    drop(progress);
    measured.notes.push(format!(
        "{} clients, of whose transactions 20 % update and 80 % read one of {} hot rows of {}; {} s \
         and the {} s before are counted. The quantile is a bound, at most twice the exact one.",
        settings.most_clients(),
        settings.rows / HOT,
        settings.rows,
        settings.window.as_secs_f64(),
        settings.ramp.as_secs_f64()
    ));
    Ok(measured)
}
