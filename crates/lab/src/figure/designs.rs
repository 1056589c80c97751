//! Throughput of the benchmarks, design by design: figure 12 of document 002.

use super::{
    beside, judge,
    request::Request,
    split::{DESIGNS, benchmarks, called},
    workload_figure::{WorkloadFigure, peak_ratio, sweep},
};
use crate::{
    bench::{critical_sections::design::Design, error::BenchError, workload},
    measure::curve::Curve,
    progress::Audience,
    report::{
        findings::{Block, Findings},
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
};

/// The text of the document; its curves have no numbers.
const FIGURE_12: [[&str; 3]; 5] = [
    [
        "with inherited locks",
        "30 to 50 % more where the lock manager limits throughput, as in TATP; at worst 5 % more work",
        "inheritance",
    ],
    [
        "with combined log inserts as well",
        "a bit over 10 % more in TPC-B, little in the others",
        "consolidated",
    ],
    [
        "transactions divided among partitions (DORA)",
        "15 to 20 % more than that, 21 % in TATP",
        "-",
    ],
    [
        "trees divided as well (PLP)",
        "another 10 %, and more on a busier machine",
        "-",
    ],
    [
        "all in all",
        "the fewer points of unscalable communication, the higher the throughput",
        "default",
    ],
];

/// TATP, TPC-B and TPC-C over clients, for the designs that exist here.
pub(super) fn figure_12(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let designs: Vec<Design> = Design::all()
        .into_iter()
        .filter(|design| DESIGNS.contains(&design.name))
        .collect();
    let systems = designs.iter().map(|design| design.system.clone()).collect();
    let clients: [&[u32]; 3] = [&[1, 2, 8], &[1, 2, 4, 16], &[1, 2, 4, 8, 16, 32, 64]];
    let runs = sweep(request, systems, clients, [250, 500, 10_000]);
    let panels = benchmarks(request)
        .iter()
        .map(|one| workload::run(one.as_ref(), &runs, audience))
        .collect::<Result<Vec<Findings>, BenchError>>()?;
    let figure = WorkloadFigure {
        id: "002-fig12",
        title: "TATP, TPC-B and TPC-C over clients, design by design",
        source: format!("{}, Figure 12 and section 8.3", beside::SCALING),
        expect: "On a few cores threads contend little for intention locks or for the log. The designs gain \
                 where a thread that holds a latch is descheduled: with more clients than processors. TPC-C \
                 here is NewOrder and Payment, as in the document.",
        shape: claims(&panels),
        notes: vec![called(&designs)],
        beside: vec![document(), steps(&designs, &panels)],
        panels,
    };
    Ok(figure.sheet(request, &runs))
}

fn document() -> Block {
    let mut table = Table::new(["design in the document", "its result", "here"]);
    FIGURE_12
        .iter()
        .for_each(|row| table.row(row.map(str::to_owned)));
    Block {
        title: "What the document shows".to_owned(),
        note: "From the text; the curves have no numbers.".to_owned(),
        table,
    }
}

/// Peaks of each design, divided by those of the first.
fn steps(designs: &[Design], panels: &[Findings]) -> Block {
    let mut table = Table::new([
        "workload",
        "design",
        "÷ baseline, peaks",
        "÷ baseline, most clients",
    ]);
    for panel in panels {
        let Some(first) = panel.curves.first() else {
            continue;
        };
        for (design, curve) in designs.iter().zip(&panel.curves) {
            table.row([
                panel.workload.clone(),
                design.name.to_owned(),
                format!("{:.2}", peak_ratio(curve, first)),
                format!("{:.2}", last_ratio(curve, first)),
            ]);
        }
    }
    Block {
        title: "Design by design".to_owned(),
        note: "Ratios of medians; the designs took turns at each point.".to_owned(),
        table,
    }
}

/// Returns the throughput of one curve ÷ that of another, with the most clients.
fn last_ratio(one: &Curve, other: &Curve) -> f64 {
    judge::last_tps(one) / judge::last_tps(other).max(1e-9)
}

/// Judges the designs in their order: baseline, inheritance, consolidated, and the default last.
fn claims(panels: &[Findings]) -> Shape {
    let mut claims = Vec::new();
    for panel in panels {
        let cores = panel.machine.cores;
        let [baseline, inherits, combines, .., default] = &panel.curves[..] else {
            continue;
        };
        if panel.workload == "tatp" {
            let gain = last_ratio(inherits, baseline);
            let claim = Claim::new(
                "inheriting locks gains 30 to 50 % in TATP",
                format!("inheriting does {gain:.2} times as much as the baseline in TATP"),
                "at least 1.2 times",
                gain >= 1.2,
            );
            claims.push(judge::where_cores_count(claim, cores));
        }
        if panel.workload == "tpcb" {
            let gain = last_ratio(combines, inherits);
            let claim = Claim::new(
                "combining log inserts gains a bit over 10 % in TPC-B",
                format!("combining does {gain:.2} times as much as inheriting alone in TPC-B"),
                "at least 1.05 times",
                gain >= 1.05,
            );
            claims.push(judge::where_cores_count(claim, cores));
        }
        let gain = last_ratio(default, baseline);
        claims.push(Claim::new(
            "the last design does the most",
            format!(
                "the default does {gain:.2} times as much as the baseline in {}",
                panel.workload
            ),
            "more than 1 times",
            gain > 1.0,
        ));
    }
    claims.push(Claim::not_measured(
        "dividing data among threads gains 15 to 35 %",
        "no design here divides the data",
    ));
    Shape(claims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    /// Baseline, inheritance, consolidated, direct and default, each with its peak and its last
    /// point.
    fn panel(workload: &str, last: [f64; 5]) -> Findings {
        let points = last.map(|last| [(1, 100.0), (64, last)]);
        let curves: Vec<synthetic::Made<'_>> = points
            .iter()
            .map(|points| ("bucket", "", &points[..]))
            .collect();
        synthetic::panel(workload, 64, &curves)
    }

    #[test]
    fn each_step_is_compared_with_the_one_before_at_the_most_clients() {
        let holds = |panel: Findings| -> Vec<Option<bool>> {
            let Shape(mut claims) = claims(&[panel]);
            // No design here divides data.
            assert_eq!(claims.pop().and_then(|claim| claim.holds), None);
            claims.iter().map(|claim| claim.holds).collect()
        };
        let rises = [50.0, 70.0, 80.0, 80.0, 90.0];
        assert_eq!(holds(panel("tatp", rises)), [Some(true); 2]);
        assert_eq!(holds(panel("tpcb", rises)), [Some(true); 2]);
        assert_eq!(holds(panel("tpcc", rises)), [Some(true)]);
        let falls = [50.0, 51.0, 52.0, 53.0, 40.0];
        for workload in ["tatp", "tpcb"] {
            assert_eq!(holds(panel(workload, falls)), [Some(false); 2]);
        }
        // TATP shows inheriting, and TPC-B combining.
        let inherits = [50.0, 70.0, 71.0, 70.0, 90.0];
        assert_eq!(holds(panel("tatp", inherits)), [Some(true); 2]);
        assert_eq!(holds(panel("tpcb", inherits)), [Some(false), Some(true)]);
    }

    #[test]
    fn every_design_is_compared_with_the_first_by_its_peak_and_by_its_last_point() {
        let designs: Vec<Design> = Design::all()
            .into_iter()
            .filter(|design| DESIGNS.contains(&design.name))
            .collect();
        let panel = panel("tatp", [50.0, 75.0, 200.0, 50.0, 25.0]);
        let table = steps(&designs, &[panel]).table;
        let shown: Vec<[&str; 3]> = table
            .rows()
            .iter()
            .map(|row| [&row[1], &row[2], &row[3]].map(String::as_str))
            .collect();
        assert_eq!(
            shown,
            [
                ["baseline", "1.00", "1.00"],
                ["inheritance", "1.00", "1.50"],
                ["consolidated", "2.00", "4.00"],
                ["direct", "1.00", "1.00"],
                ["default", "1.00", "0.50"],
            ]
        );
    }
}
