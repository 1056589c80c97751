//! Scans through secondary indexes: figure 16 of document 002.

use super::{
    beside::{self, Says, says},
    judge,
    request::Request,
    workload_figure::{WorkloadFigure, by_form, peak_ratio, sweep},
};
use crate::{
    bench::{error::BenchError, workload},
    progress::Audience,
    report::{
        findings::{Block, Findings},
        number::grouped,
        shape::{Claim, Shape as Claims},
        sheet::Sheet,
        table::Table,
    },
    workload::secondary::{Secondary, Shape},
};

const WANTED: [&str; 4] = ["bucket", "bucket+inherit", "staged", "direct"];
const BRIEF_WANTED: [&str; 3] = ["bucket", "bucket+inherit", "direct"];
/// Rows of a scan.
const SIZES: [u32; 3] = [10, 100, 10_000];
const SUBSCRIBERS: [u32; 3] = [20_000, 50_000, 640_000];

const FIGURE_16: [Says; 4] = [
    says("Shore-MT", "the baseline of the others", "bucket"),
    says("SLI", "shape: at or above Shore-MT", "bucket+inherit"),
    says(
        "PLP, in partition order",
        "46, 14 and 1 % more than Shore-MT for 10, 100 and 10,000 rows",
        "",
    ),
    says(
        "PLP, out of partition order",
        "11 % more, 3 and 38 % less",
        "",
    ),
];

/// 10, 100 and 10,000 rows a scan, in table order and out of it.
pub(super) fn figure_16(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = match request.brief {
        true => request.chosen_of(&BRIEF_WANTED, false),
        false => request.chosen_of(&WANTED, false),
    };
    let clients: [&[u32]; 3] = [&[1, 2], &[1, 2, 4, 8], &[1, 2, 4, 8, 16, 32, 64]];
    let runs = sweep(request, chosen.systems.clone(), clients, [200, 400, 10_000]);
    let subscribers = request
        .rows
        .unwrap_or_else(|| by_form(request, SUBSCRIBERS));
    let mut panels = Vec::new();
    for size in SIZES {
        for scattered in [false, true] {
            let scans = Secondary::new(Shape {
                subscribers,
                size: size.min(subscribers),
                scattered,
                seed: 1,
            });
            panels.push(workload::run(&scans, &runs, audience)?);
        }
    }
    let beside = along(&panels).map(|panel| {
        beside::curves(
            &format!("The document beside ours: {}", panel.title),
            "PLP divides tables and indexes among threads; no design here does, so it has no counterpart.",
            &FIGURE_16,
            panel,
            beside::peak_and_rest,
        )
    });
    let mut beside: Vec<Block> = beside.collect();
    beside.push(across(&panels));
    let figure = WorkloadFigure {
        id: "002-fig16",
        title: "Scans through a secondary index: 10, 100 and 10,000 rows, in table order and out of it",
        source: format!("{}, Figure 16 and section 8.6", beside::SCALING),
        expect: "The longer the scan, the smaller the share of a transaction's beginning and end, and so of \
                 the locks on tables that inheritance saves. Out of table order each row costs more, \
                 because neighbours in the index are far apart in memory; no other thread has to be asked.",
        shape: claims(&panels),
        notes: chosen.notes(),
        beside,
        panels,
    };
    Ok(figure.sheet(request, &runs))
}

/// The panels of scans in table order; those out of it are between them.
fn along(panels: &[Findings]) -> impl Iterator<Item = &Findings> {
    panels.iter().step_by(2)
}

/// Throughput out of table order beside that in table order.
fn across(panels: &[Findings]) -> Block {
    let mut table = Table::new([
        "rows a scan",
        "locks",
        "in order, peak",
        "out of order, peak",
        "out of order ÷ in order",
    ]);
    for (pair, size) in panels.chunks_exact(2).zip(SIZES) {
        for (one, other) in pair[0].curves.iter().zip(&pair[1].curves) {
            let peak = |panel: &crate::measure::curve::Curve| {
                grouped(panel.peak().map_or(0.0, |point| point.tps().median()))
            };
            table.row([
                grouped(f64::from(size)),
                one.label(),
                peak(one),
                peak(other),
                format!("{:.2}", peak_ratio(other, one)),
            ]);
        }
    }
    Block {
        title: "In table order and out of it".to_owned(),
        note: "Scans per second, medians at the best number of clients. Each order has a database of its \
               own, so the two did not take turns."
            .to_owned(),
        table,
    }
}

fn claims(panels: &[Findings]) -> Claims {
    let gain = |panel: &Findings| {
        let (plain, inherits) = (
            judge::curve_of(panel, "bucket")?,
            judge::curve_of(panel, "bucket+inherit")?,
        );
        Some(peak_ratio(inherits, plain))
    };
    let mut aligned = along(panels);
    let (first, last) = (aligned.next(), aligned.last());
    let mut claims = Vec::new();
    if let Some((short, long)) = first.and_then(gain).zip(last.and_then(gain)) {
        let claim = Claim::new(
            "the gain of a better design shrinks as scans grow longer",
            format!(
                "inheriting locks does {short:.2} times as much with {} rows a scan and {long:.2} times \
                 with {}",
                SIZES[0],
                grouped(f64::from(SIZES[2]))
            ),
            "less gain in the longer scans",
            short > long,
        );
        let cores = first.map_or(0, |panel| panel.machine.cores);
        claims.push(judge::where_cores_count(claim, cores));
    }
    claims.push(Claim::not_measured(
        "where data are divided, scans out of partition order do 38 % less with 10,000 rows",
        "no design here divides the data",
    ));
    Claims(claims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    /// In table order and out of it in turn, of each size; inheriting does this many times as much
    /// in order.
    fn panels(gains: [f64; 3]) -> Vec<Findings> {
        let mut panels = Vec::new();
        for gain in gains {
            let along: [synthetic::Made<'_>; 2] = [
                ("bucket", "", &[(1, 100.0)]),
                ("bucket+inherit", "", &[(1, 100.0 * gain)]),
            ];
            let across: [synthetic::Made<'_>; 2] = [
                ("bucket", "", &[(1, 50.0)]),
                ("bucket+inherit", "", &[(1, 25.0)]),
            ];
            panels.extend([along, across].map(|curves| synthetic::panel("secondary", 64, &curves)));
        }
        panels
    }

    #[test]
    fn a_gain_in_table_order_shrinks_or_does_not() {
        let holds = |gains| {
            let Claims(claims) = claims(&panels(gains));
            claims.iter().map(|claim| claim.holds).collect::<Vec<_>>()
        };
        assert_eq!(holds([1.5, 1.2, 1.0]), [Some(true), None]);
        // The first is compared with the last, whatever is between.
        assert_eq!(holds([1.2, 1.0, 1.5]), [Some(false), None]);
        assert_eq!(holds([1.2, 1.5, 1.0]), [Some(true), None]);
    }

    #[test]
    fn each_size_has_scans_out_of_table_order_beside_those_in_order() {
        let table = across(&panels([1.0, 1.0, 1.0])).table;
        let shown: Vec<[&str; 3]> = table
            .rows()
            .iter()
            .map(|row| [&row[0], &row[1], &row[4]].map(String::as_str))
            .collect();
        let each = ["10", "100", "10,000"]
            .map(|size| [[size, "bucket", "0.50"], [size, "bucket+inherit", "0.25"]]);
        assert_eq!(shown, each.concat());
    }
}
