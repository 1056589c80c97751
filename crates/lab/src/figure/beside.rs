//! The document's numbers beside ours: a table with a line for each thing the document shows and
//! its counterpart here, then a line for each curve that the document does not have.

use crate::{
    measure::curve::Curve,
    report::{
        findings::{Block, Findings},
        number::short,
        table::Table,
    },
};

/// Jung, Han, Fekete, Heiser and Yeom.
pub(super) const STAGED: &str = "document 000, \"A Scalable Lock Manager for Multicores\"";
/// Johnson, Pandis and Ailamaki.
pub(super) const SCALING: &str =
    "document 002, \"Eliminating unscalable communication in transaction processing\"";
/// Gottemukkala and Lehman.
pub(super) const MEMORY: &str =
    "document 003, \"Locking and Latching in a Memory-Resident Database System\"";

/// The developers of MySQL, in their blog.
pub(super) const SHARDS: &str = "document 004, \"InnoDB Data Locking - Part 5, Concurrent queues\"";

/// One thing that the document shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Says {
    /// The system that the document measured.
    pub(super) system: &'static str,
    /// The document's result; begins with "shape" if only a curve is drawn.
    pub(super) result: &'static str,
    /// The lock manager here that is built like it, or a word of its note; empty if there is none.
    pub(super) here: &'static str,
}

pub(super) const fn says(system: &'static str, result: &'static str, here: &'static str) -> Says {
    Says {
        system,
        result,
        here,
    }
}

/// The table for the curves of one panel; `describe` gives our result of a curve.
pub(super) fn curves(
    title: &str,
    note: &str,
    document: &[Says],
    panel: &Findings,
    describe: impl Fn(&Curve) -> String,
) -> Block {
    let mut table = Table::new(["system in the document", "its result", "here", "our result"]);
    for line in document {
        let counterparts: Vec<&Curve> = panel
            .curves
            .iter()
            .filter(|curve| is_like(curve, line))
            .collect();
        let theirs = || [line.system.to_owned(), line.result.to_owned()];
        match (line.here, counterparts.as_slice()) {
            ("", _) => table.row(with(theirs(), "-", "-".to_owned())),
            (here, []) => table.row(with(theirs(), here, "not measured".to_owned())),
            (_, some) => some
                .iter()
                .for_each(|curve| table.row(with(theirs(), &curve.label(), describe(curve)))),
        }
    }
    let ours = panel
        .curves
        .iter()
        .filter(|curve| document.iter().all(|line| !is_like(curve, line)));
    for curve in ours {
        let nothing = ["-".to_owned(), "-".to_owned()];
        table.row(with(nothing, &curve.label(), describe(curve)));
    }
    Block {
        title: title.to_owned(),
        note: note.to_owned(),
        table,
    }
}

fn is_like(curve: &Curve, line: &Says) -> bool {
    curve.lock_manager == line.here || curve.has_note(line.here)
}

fn with([system, result]: [String; 2], here: &str, ours: String) -> [String; 4] {
    [system, result, here.to_owned(), ours]
}

/// Formats the peak and the share of it at the largest number of clients.
pub(super) fn peak_and_rest(curve: &Curve) -> String {
    let Some(peak) = curve.peak() else {
        return "not measured".to_owned();
    };
    let tps = peak.tps();
    let mut text = format!(
        "peak {} at {} ({}..{})",
        mtpm(tps.median()),
        peak.mpl,
        short(tps.min() * 60.0),
        short(tps.max() * 60.0)
    );
    if let (Some(ratio), Some(last)) = (curve.no_collapse_ratio(), curve.points.last()) {
        let passes = curve.no_collapse_by_pass();
        text += &format!(
            "; {:.0} % of it at {} ({:.0}..{:.0})",
            ratio * 100.0,
            last.mpl,
            passes.min() * 100.0,
            passes.max() * 100.0
        );
    }
    text
}

/// Formats throughput per minute, the document's unit.
pub(super) fn mtpm(tps: f64) -> String {
    format!("{:.2} M/min", tps * 60.0 / 1e6)
}
