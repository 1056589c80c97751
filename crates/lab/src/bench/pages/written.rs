//! Bytes that updates write to the device, and the cost of the doublewrite buffer.
//!
//! All clients update rows, first chosen evenly and then by Zipf's law, with a doublewrite buffer
//! and without, in turn. Bytes are those of the calls of the window, so changes that are still in
//! memory count when their pages are written; the bound of dirty pages makes that steady.
//!
//! *Bytes changed* are those of the updated rows. Without a doublewrite buffer a power cut may tear
//! pages beyond repair, so no option of the engine leaves it out; the device of this measurement
//! drops its writes.

use super::{Settings, bare::forget, metered::FileKind, place::Place};
use crate::{
    bench::{
        error::BenchError,
        measured::{Measured, RATIO},
        rows::{KINDS, Skew, UPDATE},
    },
    progress::{Audience, Progress},
    random::zipfian::Scrambled,
};

pub(super) fn run(settings: &Settings, audience: Audience) -> Result<Measured, BenchError> {
    let mut measured = Measured::new(
        "paged-bytes-written",
        "Bytes written by updates, and the doublewrite buffer",
        "How many bytes does an update write, and how much does the doublewrite buffer cost?",
        &settings.command,
    );
    let place = Place::new(settings, audience, &mut measured)?;
    let progress = audience.clock("measuring", settings.times().whole() * 4 * settings.passes);
    for pass in 0..settings.passes {
        for skew in [Skew::Uniform, Skew::Zipf(Scrambled::default())] {
            // Each begins half of the passes.
            let order = [pass % 2 == 0, pass % 2 > 0];
            let mut rates = [0.0; 2];
            for has_doublewrite in order {
                let point = WrittenPoint {
                    place: &place,
                    skew,
                    has_doublewrite,
                };
                progress.now(&format!("{}, pass {}", point.name(), pass + 1));
                rates[usize::from(has_doublewrite)] = point.run(&mut measured, &progress)?;
            }
            let series = "throughput with doublewrite ÷ without";
            measured.add(skew.name(), series, RATIO, rates[1] / rates[0].max(1e-9));
        }
    }
    drop(progress);
    place.check(audience, &mut measured)?;
    Ok(measured)
}

struct WrittenPoint<'p> {
    place: &'p Place<'p>,
    skew: Skew,
    has_doublewrite: bool,
}

impl WrittenPoint<'_> {
    fn name(&self) -> String {
        let with = if self.has_doublewrite {
            ""
        } else {
            ", no doublewrite"
        };
        format!("{}{with}", self.skew.name())
    }

    /// Returns the updates a second.
    fn run(&self, measured: &mut Measured, progress: &Progress) -> Result<f64, BenchError> {
        let (place, settings) = (self.place, self.place.settings);
        let open = place.open(self.has_doublewrite)?;
        forget(&place.page_file())?;
        let clients = place.clients(&open, settings.most_clients(), 100, self.skew);
        let counters = || {
            let written = FileKind::ALL.map(|kind| open.meter.written(kind));
            let updates = place.commits(UPDATE);
            written.into_iter().chain([updates]).collect()
        };
        let observed = settings
            .times()
            .observe(KINDS, clients, &counters, progress)?;
        place.close(open)?;
        let updates = observed.growth(FileKind::ALL.len());
        let changed = (updates * place.rows.row_bytes as u64).max(1) as f64;
        let (row, mut whole) = (self.name(), 0);
        for kind in FileKind::ALL {
            let written = observed.growth(kind as usize);
            whole += written;
            let series = format!("bytes of {} ÷ bytes changed", kind.name());
            measured.add(&row, &series, RATIO, written as f64 / changed);
        }
        measured.add(
            &row,
            "all bytes ÷ bytes changed",
            RATIO,
            whole as f64 / changed,
        );
        let rate = observed.rate(FileKind::ALL.len());
        measured.add(&row, "updates", "1/s", rate);
        Ok(rate)
    }
}
