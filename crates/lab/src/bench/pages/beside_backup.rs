//! Throughput of clients, half of whose transactions update, while backups run one after the other.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use foxton_sync::shim::{AtomicBool, Ordering::Relaxed};

use super::{
    Settings,
    bare::{file_error, forget},
    place::{OpenPlace, Place},
};
use crate::{
    bench::{
        error::BenchError,
        measured::{Measured, RATIO},
        rows::{KINDS, Skew},
    },
    progress::{Audience, Progress},
};

/// Transactions of a hundred that update.
const UPDATES: u32 = 50;

pub(super) fn run(settings: &Settings, audience: Audience) -> Result<Measured, BenchError> {
    let mut measured = Measured::new(
        "paged-beside-backup",
        "Throughput while a backup runs",
        "How much throughput does a backup take from clients?",
        &settings.command,
    );
    let place = Place::new(settings, audience, &mut measured)?;
    let progress = audience.clock("measuring", settings.times().whole() * 2 * settings.passes);
    for pass in 0..settings.passes {
        let mut rates = [0.0; 2];
        for with in [pass % 2 > 0, pass % 2 == 0] {
            let name = if with { "beside backups" } else { "alone" };
            progress.now(&format!("{name}, pass {} of {}", pass + 1, settings.passes));
            let open = place.open(true)?;
            forget(&place.page_file())?;
            rates[usize::from(with)] = match with {
                true => beside(&place, &open, &mut measured, &progress)?,
                false => clients(&place, &open, &progress)?,
            };
            place.close(open)?;
            measured.add(name, "transactions", "1/s", rates[usize::from(with)]);
        }
        let ratio = rates[1] / rates[0].max(1e-9);
        measured.add("beside backups ÷ alone", "transactions", RATIO, ratio);
    }
    drop(progress);
    place.check(audience, &mut measured)?;
    Ok(measured)
}

fn clients(place: &Place<'_>, open: &OpenPlace, progress: &Progress) -> Result<f64, BenchError> {
    let settings = place.settings;
    let clients = place.clients(open, settings.most_clients(), UPDATES, Skew::Uniform);
    let nothing = || Vec::new();
    let observed = settings
        .times()
        .observe(KINDS, clients, &nothing, progress)?;
    Ok(observed.run.tps())
}

/// Runs the clients while another thread makes backups, of which the last one may end after them.
fn beside(
    place: &Place<'_>,
    open: &OpenPlace,
    measured: &mut Measured,
    progress: &Progress,
) -> Result<f64, BenchError> {
    let ended = AtomicBool::new(false);
    let (rate, backups) = thread::scope(|scope| {
        let backups = scope.spawn(|| back_up(place, open, &ended));
        let rate = clients(place, open, progress);
        ended.store(true, Relaxed);
        (rate, backups.join().expect("a backup does not panic"))
    });
    for (bytes, took) in backups? {
        let rate = bytes as f64 / took.as_secs_f64() / 1e6;
        measured.add("backup", "bytes", "MB/s", rate);
    }
    rate
}

/// Returns the bytes and the time of each backup.
fn back_up(
    place: &Place<'_>,
    open: &OpenPlace,
    ended: &AtomicBool,
) -> Result<Vec<(u64, Duration)>, BenchError> {
    let mut made = Vec::new();
    while !ended.load(Relaxed) {
        let (path, began) = (place.beside("backup"), Instant::now());
        let backup = open.db.backup_to(&path);
        let backup = backup.map_err(BenchError::engine("making a backup"))?;
        made.push((backup.bytes, began.elapsed()));
        fs::remove_dir_all(&path).map_err(file_error(&path))?;
    }
    Ok(made)
}
