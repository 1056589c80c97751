//! Uniform point reads of data beyond memory.
//!
//! * *Page reads ÷ bare reads.* Pages read from the file each second, divided by those that as many
//!   threads read from the same file without an engine.
//! * *Reads per row ÷ share not in memory.* A uniform reader misses as often as its leaf is not in
//!   the pool, whatever the replacement. More reads than that are a page read twice, or a branch.
//! * *Throughput at most clients ÷ at fewest.*
//! * *Resident memory − limit.* The process's resident set at its largest, sampled each second,
//!   less the memory for pages and the latencies of the clients. It has the program, and stacks.

use super::{
    Settings,
    bare::{BareFile, forget},
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

pub(super) fn run(settings: &Settings, audience: Audience) -> Result<Measured, BenchError> {
    let mut measured = Measured::new(
        "paged-beyond-memory",
        "Point reads of paged tables beyond memory",
        "How close do reads of data that do not fit memory come to the device?",
        &settings.command,
    );
    let place = Place::new(settings, audience, &mut measured)?;
    let open = place.open(true)?;
    let runs = 2 * settings.passes * settings.mpls.len() as u32;
    let progress = audience.clock("measuring", settings.times().whole() * runs);
    for pass in 0..settings.passes {
        let mut rates = Vec::new();
        for &mpl in &settings.mpls {
            progress.now(&format!(
                "{mpl} clients, pass {} of {}",
                pass + 1,
                settings.passes
            ));
            let point = BeyondPoint {
                place: &place,
                open: &open,
                mpl,
                progress: &progress,
            };
            // Each begins half of the passes.
            let (rows, bare) = if pass % 2 == 0 {
                let bare = point.bare()?;
                (point.rows(&mut measured)?, bare)
            } else {
                let rows = point.rows(&mut measured)?;
                (rows, point.bare()?)
            };
            let row = clients(mpl);
            measured.add(&row, "bare page reads", "1/s", bare);
            measured.add(
                &row,
                "page reads ÷ bare page reads",
                RATIO,
                rows.page_reads / bare,
            );
            rates.push((mpl, rows.rate));
        }
        rates.sort_unstable_by_key(|&(mpl, _)| mpl);
        if let [(few, at_few), .., (most, at_most)] = rates[..] {
            let row = format!("{most} clients ÷ {few}");
            measured.add(&row, "rows", RATIO, at_most / at_few);
        }
    }
    drop(progress);
    place.close(open)?;
    place.check(audience, &mut measured)?;
    Ok(measured)
}

fn clients(mpl: u32) -> String {
    match mpl {
        1 => "1 client".to_owned(),
        more => format!("{more} clients"),
    }
}

struct BeyondPoint<'p> {
    place: &'p Place<'p>,
    open: &'p OpenPlace,
    mpl: u32,
    progress: &'p Progress,
}

struct RowRates {
    /// Rows read a second.
    rate: f64,
    /// Pages read a second.
    page_reads: f64,
}

impl BeyondPoint<'_> {
    fn bare(&self) -> Result<f64, BenchError> {
        let (place, settings) = (self.place, self.place.settings);
        let path = place.page_file();
        forget(&path)?;
        let page_bytes = self.pages()?.page_bytes;
        let file = BareFile::open(&path, page_bytes, !settings.is_cached)?;
        let readers = (0..self.mpl).map(|_| file.client(place.random()));
        let times = settings.times();
        let nothing = || Vec::new();
        let observed = times.observe(&["read"], readers.collect(), &nothing, self.progress)?;
        Ok(observed.run.tps())
    }

    fn rows(&self, measured: &mut Measured) -> Result<RowRates, BenchError> {
        let (place, settings) = (self.place, self.place.settings);
        forget(&place.page_file())?;
        let readers = place.clients(self.open, self.mpl, 0, Skew::Uniform);
        let counters = || vec![self.open.db.stats().pages.map_or(0, |pages| pages.reads)];
        let times = settings.times();
        let observed = times.observe(KINDS, readers, &counters, self.progress)?;
        let (rate, page_reads) = (observed.run.tps(), observed.rate(0));
        let pages = self.pages()?;
        let used = (pages.file_pages - pages.free_pages) as f64;
        let held = (pages.frames - pages.free) as f64;
        let missing = (1.0 - held / used).max(0.0);
        let row = clients(self.mpl);
        measured.add(&row, "rows", "1/s", rate);
        measured.add(&row, "page reads", "1/s", page_reads);
        if missing > 0.0 && rate > 0.0 {
            let series = "reads per row ÷ share of pages not in memory";
            measured.add(&row, series, RATIO, page_reads / rate / missing);
        }
        let beyond = observed.engine_bytes() as f64 - settings.page_memory() as f64;
        let mib = beyond / f64::from(1 << 20);
        measured.add(&row, "resident memory − limit", "MiB", mib);
        Ok(RowRates { rate, page_reads })
    }

    fn pages(&self) -> Result<foxton::inspect::PageStats, BenchError> {
        let pages = self.open.db.stats().pages;
        pages.ok_or_else(|| BenchError::Failed("the table is not paged".to_owned()))
    }
}
