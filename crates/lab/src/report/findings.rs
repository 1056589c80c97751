//! Everything that one experiment was asked for and found.

use serde_json::Value;

use super::{
    number::{bytes, grouped},
    table::Table,
};
use crate::measure::{
    curve::Curve,
    machine::Machine,
    timeline::{Sample, Timeline},
};

/// One experiment: its settings, its machine and its results.
#[derive(Debug, Clone)]
pub struct Findings {
    /// The workload's name on the command line.
    pub workload: String,
    /// The variant of the workload: a word, or a few joined by dashes.
    pub variant: String,
    /// Title: what was run.
    pub title: String,
    /// A transaction, in a sentence or two.
    pub description: String,
    /// The checks, in a sentence.
    pub checked: String,
    /// The command that repeats it.
    pub command: String,
    /// Every setting that matters, by name.
    pub settings: Vec<(&'static str, Value)>,
    /// The machine and the versions.
    pub machine: Machine,
    /// The curves that are compared.
    pub curves: Vec<Curve>,
    /// Samples over time, for experiments that watch one.
    pub timelines: Vec<Timeline>,
    /// An event at a second of the timelines.
    pub event: Option<(f64, String)>,
    /// Tables of the experiment's own, beside its curves.
    pub blocks: Vec<Block>,
    /// True if these tables have every point, so that a terminal need not show single points again.
    pub blocks_have_points: bool,
}

/// A table with a title and a sentence.
#[derive(Debug, Clone)]
pub struct Block {
    /// Title: what the table shows.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// The table.
    pub table: Table,
}

impl Findings {
    /// Returns the first check that failed, if any; the command then fails.
    pub fn failure(&self) -> Option<String> {
        self.curves.iter().find_map(Curve::failure)
    }

    /// Returns a warning if other programs kept the processors busy meanwhile.
    pub fn disturbance(&self) -> Option<String> {
        const TOLERABLE: f64 = 0.05;
        let cores = self.machine.cores;
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let others: Vec<f64> = points
            .filter_map(|point| Some(point.split(cores)?.others))
            .collect();
        let mean = others.iter().sum::<f64>() / others.len().max(1) as f64;
        (mean > TOLERABLE).then(|| {
            format!(
                "Other programs took {:.0} % of the processors during the measurement. Do not keep \
                 these numbers: they are too low and too scattered. Run it again on a quiet machine.",
                mean * 100.0
            )
        })
    }

    /// Returns one sentence for each curve: its peak and the rest at the largest MPL. With
    /// timelines, one for each of them: what the event changed.
    pub fn sentences(&self) -> Vec<String> {
        let at = self.event.as_ref().map(|(at, _)| *at);
        let timelines = self
            .timelines
            .iter()
            .filter_map(|timeline| before_and_after(timeline, at?));
        let curves = self.curves.iter().filter_map(sentence);
        match self.timelines.is_empty() {
            true => curves.collect(),
            false => timelines.collect(),
        }
    }
}

fn sentence(curve: &Curve) -> Option<String> {
    let (peak, last) = (curve.peak()?, curve.points.last()?);
    let (label, tps) = (curve.label(), grouped(peak.tps().median()));
    let clients = |mpl: u32| {
        if mpl == 1 {
            "1 client".into()
        } else {
            format!("{mpl} clients")
        }
    };
    let at_peak = clients(peak.mpl);
    Some(match curve.no_collapse_ratio() {
        None => format!("{label}: {tps} transactions/s with {at_peak}."),
        Some(_) if last.mpl == peak.mpl => format!(
            "{label} peaks at {tps} transactions/s with {at_peak}, the most measured: no collapse."
        ),
        Some(ratio) => format!(
            "{label} peaks at {tps} transactions/s with {at_peak} and keeps {:.0} % of its peak, \
             {} transactions/s, with {}.",
            ratio * 100.0,
            grouped(last.tps().median()),
            clients(last.mpl)
        ),
    })
}

fn before_and_after(timeline: &Timeline, at: f64) -> Option<String> {
    let samples = || timeline.samples.iter();
    let mean = |after: bool| {
        let tps = samples().filter(|sample| (sample.at.as_secs_f64() > at) == after);
        let tps: Vec<f64> = tps.map(|sample| sample.tps).collect();
        tps.iter().sum::<f64>() / tps.len().max(1) as f64
    };
    let stalled_at = |sample: &&Sample| sample.at.as_secs_f64() <= at;
    let (then, last) = (
        samples().take_while(stalled_at).last()?,
        samples().next_back()?,
    );
    Some(format!(
        "{}: {} transactions/s before the stall, {} after it; memory {} at the stall, {} at the end.",
        timeline.label,
        grouped(mean(false)),
        grouped(mean(true)),
        bytes(then.resident_bytes),
        bytes(last.resident_bytes)
    ))
}
