//! The same transactions at the levels serializable and snapshot, in turn.
//!
//! * *÷ serializable*: throughput at snapshots ÷ that of serializable reads, which lock.
//! * *÷ peak*: throughput with so many clients ÷ the most with any number, in the same pass.
//! * *lock waits of readers*: requests that waited, of transactions that only read.
//!
//! Transactions that update are serializable in all variants.

use std::time::Duration;

use foxton::{Isolation, SnapshotMethod};

use super::{Settings, client::Mixture, place::LoadedRows};
use crate::{
    bench::{
        error::BenchError,
        measured::{Measured, RATIO},
        rows::{KINDS, READ},
    },
    progress::{Audience, Progress},
};

/// Transactions that are compared.
#[derive(Debug)]
pub(super) struct Comparison {
    id: &'static str,
    title: &'static str,
    question: &'static str,
    reads: u64,
    writes: usize,
    /// Percentages of transactions that update.
    updates: &'static [u32],
    /// Share of the rows that is drawn, as a divisor.
    hot: u64,
    /// Only the largest number of clients is run, and waits are counted.
    counts_waits: bool,
}

/// Begin, one read, end.
pub(super) const SHORT: Comparison = Comparison {
    id: "snapshot-short",
    title: "Begin, one read and end",
    question: "What does a short transaction at a snapshot cost, and does it scale?",
    reads: 1,
    writes: 1,
    updates: &[0, 20],
    hot: 1,
    counts_waits: false,
};

/// Ten reads a transaction.
pub(super) const READS: Comparison = Comparison {
    id: "snapshot-reads",
    title: "Ten rows a transaction",
    question: "Are reads at a snapshot faster than reads that lock?",
    reads: 10,
    writes: 2,
    updates: &[0],
    hot: 1,
    counts_waits: false,
};

/// Ten reads in a hot spot, where others write.
pub(super) const HOTSPOT: Comparison = Comparison {
    id: "snapshot-hotspot",
    title: "Ten rows a transaction in a hot spot, 20 % update two",
    question: "How much do readers of hot rows gain that wait for no writer?",
    reads: 10,
    writes: 2,
    updates: &[20],
    hot: 20,
    counts_waits: true,
};

/// One of the variants that take turns.
struct Variant<'p> {
    name: String,
    level: Isolation,
    rows: &'p LoadedRows,
}

pub(super) fn run(
    comparison: &Comparison,
    settings: &Settings,
    audience: Audience,
) -> Result<Measured, BenchError> {
    let Comparison {
        id,
        title,
        question,
        ..
    } = *comparison;
    let mut measured = Measured::new(id, title, question, &settings.command);
    let systems = settings.systems();
    let open = |system| LoadedRows::new(settings, system, settings.rows, audience);
    let places = systems.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let variants = variants(settings, &places);
    let mpls = match comparison.counts_waits {
        true => vec![settings.most_clients()],
        false => settings.mpls.clone(),
    };
    let runs = mpls.len() * comparison.updates.len() * variants.len();
    let whole = settings.times().whole() * runs as u32 * settings.passes;
    let progress = audience.clock("measuring", whole);
    for pass in 0..settings.passes {
        for &updates in comparison.updates {
            let mut rates = vec![Vec::new(); variants.len()];
            for &mpl in &mpls {
                progress.now(&format!(
                    "{mpl} clients, {updates} % updating, pass {} of {}",
                    pass + 1,
                    settings.passes
                ));
                let point = Point {
                    comparison,
                    settings,
                    updates,
                    mpl,
                    progress: &progress,
                };
                let all = point.all(&variants, pass, &mut measured)?;
                for (of_variant, rate) in rates.iter_mut().zip(all) {
                    of_variant.push((mpl, rate));
                }
            }
            of_peak(&variants, &rates, updates, &mut measured);
        }
    }
    drop(progress);
    for place in &places {
        place.check()?;
    }
    measured.notes.push(format!(
        "{} rows of {} bytes; {} s after {} s; durability {}. Transactions that update {} of them are \
         serializable. Afterwards every row was read and no update was missing.",
        settings.rows,
        settings.row_bytes,
        settings.window.as_secs_f64(),
        settings.ramp.as_secs_f64(),
        settings.durability,
        comparison.writes,
    ));
    Ok(measured)
}

/// Serializable reads, and reads at a snapshot by each of the methods.
fn variants<'p>(settings: &Settings, places: &'p [LoadedRows]) -> Vec<Variant<'p>> {
    let serializable = Variant {
        name: "serializable".to_owned(),
        level: Isolation::Serializable,
        rows: &places[0],
    };
    let snapshots = settings
        .methods
        .iter()
        .zip(places)
        .map(|(&method, rows)| Variant {
            name: name_of(method),
            level: Isolation::Snapshot,
            rows,
        });
    std::iter::once(serializable).chain(snapshots).collect()
}

/// The name of reads by this method in results.
pub(super) fn name_of(method: SnapshotMethod) -> String {
    match method {
        SnapshotMethod::Lsn => "snapshot".to_owned(),
        other => other.to_string(),
    }
}

/// Adds what each number of clients keeps of the peak.
fn of_peak(
    variants: &[Variant<'_>],
    rates: &[Vec<(u32, f64)>],
    updates: u32,
    measured: &mut Measured,
) {
    for (variant, rates) in variants.iter().zip(rates) {
        let peak = rates.iter().map(|&(_, rate)| rate).fold(0.0, f64::max);
        for &(mpl, rate) in rates.iter().filter(|_| rates.len() > 1) {
            let series = format!("{} ÷ peak", variant.name);
            measured.add(&row(mpl, updates), &series, RATIO, rate / peak.max(1e-9));
        }
    }
}

fn row(mpl: u32, updates: u32) -> String {
    let clients = match mpl {
        1 => "1 client".to_owned(),
        more => format!("{more} clients"),
    };
    format!("{clients}, {updates} % updating")
}

struct Point<'p> {
    comparison: &'p Comparison,
    settings: &'p Settings,
    updates: u32,
    mpl: u32,
    progress: &'p Progress,
}

impl Point<'_> {
    /// Runs the variants in turn. Returns the throughput of each.
    fn all(
        &self,
        variants: &[Variant<'_>],
        pass: u32,
        measured: &mut Measured,
    ) -> Result<Vec<f64>, BenchError> {
        let mut rates = vec![0.0; variants.len()];
        for turn in 0..variants.len() {
            // Each begins in its turn, so that a machine that gets slower favours none.
            let at = (turn + pass as usize) % variants.len();
            rates[at] = self.one(&variants[at], measured)?;
        }
        let row = row(self.mpl, self.updates);
        for (variant, &rate) in variants.iter().zip(&rates) {
            measured.add(&row, &variant.name, "transactions/s", rate);
        }
        for (variant, &rate) in variants.iter().zip(&rates).skip(1) {
            let series = format!("{} ÷ serializable", variant.name);
            measured.add(&row, &series, RATIO, rate / rates[0].max(1e-9));
        }
        Ok(rates)
    }

    fn one(&self, variant: &Variant<'_>, measured: &mut Measured) -> Result<f64, BenchError> {
        let rows = variant.rows;
        let mixture = Mixture {
            level: variant.level,
            reads: self.comparison.reads,
            updates: self.updates,
            writes: self.comparison.writes,
            drawn: rows.rows.count / self.comparison.hot,
            is_labelled: self.comparison.counts_waits,
        };
        let clients = rows.clients(self.mpl, mixture);
        let (nothing, waits) = (|| Vec::new(), || waits_of_readers(rows));
        let (before, times) = (waits(), self.settings.times());
        let observed = times.observe(KINDS, clients, &nothing, self.progress)?;
        if self.comparison.counts_waits {
            let row = row(self.mpl, self.updates);
            let mut add = |what: &str, unit, value: f64| {
                measured.add(&row, &format!("{}: {what}", variant.name), unit, value);
            };
            let waits = (waits().0 - before.0, waits().1 - before.1);
            add("lock waits of readers", "waits", waits.0 as f64);
            add("time waited by readers", "s", waits.1.as_secs_f64());
            let reads = &observed.run.latencies[READ];
            add("p99 of readers", "ms", reads.quantile_us(0.99) / 1e3);
        }
        Ok(observed.run.tps())
    }
}

/// Number and time of lock waits of transactions that only read.
fn waits_of_readers(rows: &LoadedRows) -> (u64, Duration) {
    let labels = rows.db().status().labels;
    let readers = labels.iter().find(|label| label.name == KINDS[READ]);
    readers.map_or((0, Duration::ZERO), |usage| (usage.waits, usage.waited))
}
