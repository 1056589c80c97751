//! Everything one experiment found, and what it was asked.

use serde_json::Value;

use super::table::Table;
use crate::measure::{curve::Curve, machine::Machine, timeline::Timeline};

/// One experiment: what was asked, on what, and what came out.
#[derive(Debug, Clone)]
pub struct Findings {
    /// The workload's name on the command line.
    pub workload: String,
    /// The variant of the workload, in one word or a few joined by dashes.
    pub variant: String,
    /// What was run, as a title.
    pub title: String,
    /// What one transaction does, in a sentence or two.
    pub description: String,
    /// What the checks compare, in a sentence.
    pub checked: String,
    /// The command that does it again.
    pub command: String,
    /// Every setting that matters, by name.
    pub settings: Vec<(&'static str, Value)>,
    /// The machine and the versions.
    pub machine: Machine,
    /// What was compared.
    pub curves: Vec<Curve>,
    /// Samples over time, for experiments that watch one.
    pub timelines: Vec<Timeline>,
    /// Something that happened at a second of the timelines.
    pub event: Option<(f64, String)>,
    /// Tables of their own, for experiments that are more than curves.
    pub blocks: Vec<Block>,
}

/// A table with a title and a sentence.
#[derive(Debug, Clone)]
pub struct Block {
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// The table.
    pub table: Table,
}

impl Findings {
    /// The first check that failed, if any: then the command fails.
    pub fn failure(&self) -> Option<String> {
        self.curves.iter().find_map(Curve::failure)
    }

    /// One sentence for each curve: its peak and what is left of it at the largest MPL.
    pub fn sentences(&self) -> Vec<String> {
        self.curves.iter().filter_map(sentence).collect()
    }
}

fn sentence(curve: &Curve) -> Option<String> {
    use super::number::grouped;
    let (peak, last) = (curve.peak()?, curve.points.last()?);
    let clients = |mpl: u32| {
        if mpl == 1 {
            "1 client".into()
        } else {
            format!("{mpl} clients")
        }
    };
    let mut text = format!(
        "{} peaks at {} transactions/s with {}",
        curve.label(),
        grouped(peak.tps().median()),
        clients(peak.mpl)
    );
    if let Some(ratio) = curve.no_collapse_ratio() {
        text += &match last.mpl == peak.mpl {
            true => ", its largest MPL: no collapse".to_owned(),
            false => format!(
                " and keeps {:.0} % of that, {}, with {}",
                ratio * 100.0,
                grouped(last.tps().median()),
                clients(last.mpl)
            ),
        };
    }
    Some(text + ".")
}
