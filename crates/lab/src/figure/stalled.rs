//! One transaction that never ends, over time: figure 16 of document 000, under both rules for
//! reclaiming released locks.

use std::time::Duration;

use super::{beside, request::Request};
use crate::{
    bench::{error::BenchError, txbench},
    progress::Audience,
    report::{
        findings::{Block, Findings},
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
};

/// Epochs, the rule of the oldest transaction, and the engine's default.
const WANTED: [&str; 3] = ["default", "staged", "staged:oldest"];
const MPL: u32 = 200;
/// "No noticeable change" in the document's curves: a change of 3 % cannot be seen in a curve, one
/// of 10 % can.
const UNCHANGED: f64 = 0.97;
/// Document 000 stalls the transaction at 100 s and draws 1,000 s; the quick form is a tenth of
/// that.
const FULL_WINDOW: Duration = Duration::from_secs(1_000);
const BRIEF_WINDOW: Duration = Duration::from_secs(15);
const QUICK_WINDOW: Duration = Duration::from_secs(100);

/// Throughput, processor time and memory over time.
pub(super) fn figure_16(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen_of(&WANTED, false);
    let mut runs = request.sweep(chosen.systems.clone(), 1);
    if request.mpls.is_empty() {
        runs.mpls = vec![MPL];
    }
    runs.reps = 1;
    runs.window = request.window.unwrap_or(match request.full {
        true => FULL_WINDOW,
        false if request.brief => BRIEF_WINDOW,
        false => QUICK_WINDOW,
    });
    let mut panels = Vec::new();
    // One database at a time, because the memory measured is that of the process.
    for system in chosen.systems.clone() {
        let settings = txbench::Settings {
            shape: request.shape(10, 0),
            stalled: true,
            stamp: false,
            runs: crate::bench::runs::Runs {
                systems: vec![system],
                ..runs.clone()
            },
            plant: false,
        };
        panels.push(txbench::run(&settings, audience)?);
    }
    let panel = joined(panels);
    Ok(Sheet {
        id: "000-fig16",
        title: "One transaction that never ends".to_owned(),
        source: format!("{}, Figure 16 and section 5.3.3", beside::STAGED),
        expect: "With epochs nothing changes: memory grows by at most 1 % after the stall, and throughput \
                 stays within 3 % of that without a stalled transaction. Under the rule of the oldest \
                 transaction no lock released after the stall is reclaimed: memory grows during the \
                 stall, and more time goes to the kernel."
            .to_owned(),
        shape: claims(&panel),
        notes: chosen.notes(),
        beside: vec![document()],
        pictures: Vec::new(),
        settings: request.listed(&runs),
        machine: panel.machine.clone(),
        command: request.command.clone(),
        panels: vec![panel],
    })
}

/// With epochs nothing changes; under the rule of the oldest transaction memory grows.
fn claims(panel: &Findings) -> Shape {
    let mut claims = Vec::new();
    for curve in &panel.curves {
        let fact = |name: &str| {
            let found = curve.facts.iter().find(|(other, _)| *other == name);
            found.and_then(|(_, value)| value.as_f64())
        };
        let (Some(growth), Some(ratio)) = (fact("memory_growth"), fact("stalled_ratio")) else {
            continue;
        };
        let found = format!(
            "{}: memory {:+.1} %, throughput {:.0} % of that without a stalled transaction",
            curve.label(),
            growth * 100.0,
            ratio * 100.0
        );
        claims.push(match curve.lock_manager.contains("oldest") {
            true => Claim::new(
                "under the rule of the oldest transaction memory grows",
                found,
                "memory more than +5 %",
                growth > 0.05,
            ),
            false => Claim::new(
                "with epochs a stalled transaction changes nothing",
                found,
                "memory at most +1 %, throughput at least 97 %",
                growth <= 0.01 && ratio >= UNCHANGED,
            ),
        });
    }
    Shape(claims)
}

/// Joins panels that were measured one after the other.
fn joined(panels: Vec<Findings>) -> Findings {
    let mut all = panels.into_iter();
    let mut first = all.next().expect("something is always compared");
    for other in all {
        first.curves.extend(other.curves);
        first.timelines.extend(other.timelines);
        let rows = other.blocks.iter().flat_map(|block| block.table.rows());
        for row in rows {
            first.blocks[0].table.row(row.iter().cloned());
        }
    }
    first
}

fn document() -> Block {
    let mut table = Table::new(["rule", "throughput", "processor time", "memory"]);
    for row in [
        [
            "epochs (Figure 16 a, c, e)",
            "no noticeable change",
            "no noticeable change",
            "no noticeable change",
        ],
        [
            "oldest transaction (b, d, f)",
            "falls once a transaction stalls; collapses at about 1,000 s",
            "more in the kernel, then idle",
            "grows to about 128 GiB at about 1,000 s, then thrashing",
        ],
    ] {
        table.row(row.map(str::to_owned));
    }
    Block {
        title: "What the document shows: 32 cores, 200 clients, stalled at 100 s of 1,000"
            .to_owned(),
        note: "From the text of section 5.3.3; the curves have no numbers.".to_owned(),
        table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    #[test]
    fn a_change_that_the_document_s_curves_would_show_is_a_change() {
        let holds = |manager: &str, growth: f64, ratio: f64| {
            let curve: synthetic::Made<'_> = (manager, "", &[(200, 100.0)]);
            let mut panel = synthetic::panel("txbench", 64, &[curve]);
            panel.curves[0].facts = vec![
                ("memory_growth", growth.into()),
                ("stalled_ratio", ratio.into()),
            ];
            claims(&panel).0.pop().and_then(|claim| claim.holds)
        };
        assert_eq!(holds("staged", 0.0, 0.98), Some(true));
        assert_eq!(holds("staged", 0.0, 0.93), Some(false));
        assert_eq!(holds("staged", 0.03, 1.0), Some(false));
        assert_eq!(holds("staged:oldest", 0.5, 0.6), Some(true));
        assert_eq!(holds("staged:oldest", 0.0, 1.0), Some(false));
    }
}
