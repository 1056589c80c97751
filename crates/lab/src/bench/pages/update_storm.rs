//! Updates of random rows beyond memory, as fast as clients can, beside readers.
//!
//! Each update dirties another page, so the page cleaner bounds the throughput, and commits wait
//! for it.
//!
//! * *Worst second ÷ median* of the updates.
//! * *p99.9 of reads ÷ of the bare device.* The writes and syncs of the engine are recorded. Then
//!   they are repeated on a copy of its page file and on files for the others. Meanwhile as many
//!   threads as the engine had readers read random pages of the copy.

use std::fs;

use super::{
    Settings,
    bare::{BareFile, file_error, forget},
    metered::{FileKind, RecordedCall},
    place::Place,
    replay::Replay,
};
use crate::{
    bench::{
        error::BenchError,
        measured::{Measured, RATIO},
        rows::{KINDS, READ, Skew, UPDATE},
    },
    progress::{Audience, Progress},
};

pub(super) fn run(settings: &Settings, audience: Audience) -> Result<Measured, BenchError> {
    let mut measured = Measured::new(
        "paged-update-storm",
        "Updates at the bound of dirty pages",
        "How steady are updates that the page cleaner bounds, and reads beside them?",
        &settings.command,
    );
    if settings.readers == 0 {
        let what = "the latency of reads needs readers; give --readers 1 or more";
        return Err(BenchError::Settings(what.to_owned()));
    }
    let place = Place::new(settings, audience, &mut measured)?;
    let copy = place.beside("bare-pages");
    audience.say("copying the page file for the bare device");
    fs::copy(place.page_file(), &copy).map_err(file_error(&copy))?;
    let progress = audience.clock("measuring", settings.times().whole() * 2 * settings.passes);
    for pass in 0..settings.passes {
        progress.now(&format!("engine, pass {} of {}", pass + 1, settings.passes));
        let (calls, reads_us, page_bytes) = engine(&place, &mut measured, &progress)?;
        progress.now(&format!(
            "bare device, pass {} of {}",
            pass + 1,
            settings.passes
        ));
        let bare_us = bare(&place, &calls, page_bytes, &progress)?;
        measured.add("bare reads", "p99.9", "ms", bare_us / 1e3);
        let series = "p99.9 ÷ that of the bare device";
        measured.add("reads", series, RATIO, reads_us / bare_us.max(1e-3));
    }
    drop(progress);
    measured.notes.push(format!(
        "{} clients updated and {} read, each by an even choice of rows.",
        settings.most_clients(),
        settings.readers
    ));
    place.check(audience, &mut measured)?;
    Ok(measured)
}

/// Returns the recorded writes, the p99.9 of reads in microseconds, and the bytes of a page.
fn engine(
    place: &Place<'_>,
    measured: &mut Measured,
    progress: &Progress,
) -> Result<(Vec<RecordedCall>, f64, usize), BenchError> {
    let settings = place.settings;
    let open = place.open(true)?;
    forget(&place.page_file())?;
    let mut clients = place.clients(&open, settings.most_clients(), 100, Skew::Uniform);
    clients.extend(place.clients(&open, settings.readers, 0, Skew::Uniform));
    let counters = || {
        let pages = open.db.stats().pages;
        let waits = pages.map_or(0, |pages| pages.commit_stalls + pages.change_stalls);
        vec![place.commits(READ), place.commits(UPDATE), waits]
    };
    open.meter.begin_recording();
    let observed = settings
        .times()
        .observe(KINDS, clients, &counters, progress);
    let calls = open.meter.end_recording();
    let observed = observed?;
    let page_bytes = open
        .db
        .stats()
        .pages
        .map_or(8 << 10, |pages| pages.page_bytes);
    place.close(open)?;
    measured.add("updates", "throughput", "1/s", observed.rate(UPDATE));
    let worst = observed.worst_second(UPDATE);
    measured.add("updates", "worst second ÷ median", RATIO, worst);
    let waited = observed.growth(2) as f64 / observed.growth(UPDATE).max(1) as f64;
    measured.add(
        "updates",
        "share that waited for the cleaner",
        RATIO,
        waited,
    );
    measured.add("reads", "throughput", "1/s", observed.rate(READ));
    let reads_us = observed.run.latencies[READ].quantile_us(0.999);
    measured.add("reads", "p99.9", "ms", reads_us / 1e3);
    // The recording is the measurement's.
    let own = size_of_val(&calls[..]) + settings.page_memory();
    let beyond = observed.engine_bytes() as f64 - own as f64;
    measured.add(
        "process",
        "resident memory − limit",
        "MiB",
        beyond / f64::from(1 << 20),
    );
    Ok((calls, reads_us, page_bytes))
}

/// Returns the p99.9 of reads in microseconds.
fn bare(
    place: &Place<'_>,
    calls: &[RecordedCall],
    page_bytes: usize,
    progress: &Progress,
) -> Result<f64, BenchError> {
    let settings = place.settings;
    let path = |kind: FileKind| place.beside(&format!("bare-{}", kind.name()));
    let pages = path(FileKind::Pages);
    forget(&pages)?;
    let file = BareFile::open(&pages, page_bytes, !settings.is_cached)?;
    let readers = (0..settings.readers).map(|_| file.client(place.random()));
    let replay = Replay::begin(calls, path, !settings.is_cached);
    let nothing = || Vec::new();
    let times = settings.times();
    let observed = times.observe(&["read"], readers.collect(), &nothing, progress);
    replay.end()?;
    Ok(observed?.run.latency().quantile_us(0.999))
}
