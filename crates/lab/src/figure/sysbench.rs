//! Eighteen statements on eight tables: the charts of document 004.

use foxton::Isolation;

use super::{
    beside::{self, Says, says},
    judge,
    request::Request,
    workload_figure::{WorkloadFigure, by_form, sweep},
};
use crate::{
    bench::{error::BenchError, workload},
    progress::Audience,
    report::{
        findings::Findings,
        shape::{Claim, Shape},
        sheet::Sheet,
    },
    workload::sysbench::{Sysbench, choice::Choice},
};

const WANTED: [&str; 4] = ["global", "sharded:fifo", "sharded", "direct"];
const BRIEF_WANTED: [&str; 3] = ["global", "sharded:fifo", "sharded"];
/// Rows of each table.
const ROWS: [u32; 3] = [2_000, 20_000, 10_000_000];

const CHARTS: [Says; 3] = [
    says(
        "unmodified, one mutex",
        "shape: falls beyond 128 clients",
        "global",
    ),
    says(
        "contention-aware order, one mutex",
        "shape: higher, because there is less congestion at the mutex",
        "",
    ),
    says(
        "the same with the mutex in shards",
        "shape: higher again, without the mutex, and a less dramatic fall; then another mutex limits it",
        "sharded",
    ),
];

/// Reads and writes, with a few frequent rows and with none.
pub(super) fn charts(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = match request.brief {
        true => request.chosen_of(&BRIEF_WANTED, false),
        false => request.chosen_of(&WANTED, false),
    };
    let clients: [&[u32]; 3] = [
        &[2, 128, 1_024],
        &[1, 2, 8, 128, 1_024],
        &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024],
    ];
    let mut systems = chosen.systems.clone();
    systems.extend(request.snapshots());
    let runs = sweep(request, systems, clients, [700, 1_500, 300_000]);
    let rows = request.rows.unwrap_or_else(|| by_form(request, ROWS));
    let panels = [Choice::Pareto, Choice::Uniform]
        .into_iter()
        .map(|choice| {
            let statements = Sysbench {
                rows,
                choice,
                isolation: Isolation::ReadUncommitted,
                log_k: false,
                seed: 1,
            };
            workload::run(&statements, &runs, audience)
        })
        .collect::<Result<Vec<Findings>, BenchError>>()?;
    let beside = panels.iter().map(|panel| {
        beside::curves(
            &format!("The document beside ours: {}", panel.title),
            "The document's bars and curves have no numbers; two sockets, 10,000,000 rows in each table.",
            &CHARTS,
            panel,
            beside::peak_and_rest,
        )
    });
    let figure = WorkloadFigure {
        id: "004-sysbench",
        title: "sysbench, reads and writes: one latch over all locks, and shards of it",
        source: beside::SHARDS.to_owned(),
        expect: "Reads lock nothing, as in the document, or are at snapshots, by two methods; a transaction locks four rows. With pareto a tenth \
                 of all draws is one row, so transactions wait for each other under any manager. One latch \
                 over all locks costs little on few cores.",
        shape: claims(&panels),
        notes: chosen.notes(),
        beside: beside.collect(),
        panels,
    };
    Ok(figure.sheet(request, &runs))
}

/// At the most clients of `panel`, throughput of one manager ÷ that of another, with words for it.
fn times(panel: &Findings, one: &str, other: &str) -> Option<(f64, String)> {
    let (one, other) = (judge::curve_of(panel, one)?, judge::curve_of(panel, other)?);
    let ratio = judge::last_tps(one) / judge::last_tps(other).max(1e-9);
    let mpl = one.points.last()?.mpl;
    let found = format!(
        "{} does {ratio:.2} times as much as {} with {mpl} clients ({})",
        one.label(),
        other.label(),
        panel.title
    );
    Some((ratio, found))
}

/// A ratio near 1 is not judged on few cores; a ratio far below 1 is not for want of cores.
fn or_near(claim: Claim, ratio: f64, cores: usize) -> Claim {
    const NEAR: f64 = 0.8;
    match ratio >= NEAR {
        true => judge::where_cores_count(claim, cores),
        false => claim,
    }
}

fn claims(panels: &[Findings]) -> Shape {
    let mut claims = Vec::new();
    for panel in panels {
        let cores = panel.machine.cores;
        if let Some((ratio, found)) = times(panel, "sharded", "global") {
            let says = "shards do more than one mutex";
            let claim = Claim::new(says, found, "more than 1 times", ratio > 1.0);
            claims.push(or_near(claim, ratio, cores));
        }
        let keeps =
            |manager| judge::curve_of(panel, manager).and_then(|curve| curve.no_collapse_ratio());
        if let Some((shards, mutex)) = keeps("sharded").zip(keeps("global")) {
            let claim = Claim::new(
                "with shards the fall beyond 128 clients is less dramatic",
                format!(
                    "sharded keeps {:.0} % of its peak and global {:.0} % ({})",
                    shards * 100.0,
                    mutex * 100.0,
                    panel.title
                ),
                "more with sharded",
                shards > mutex,
            );
            claims.push(or_near(claim, shards / mutex.max(1e-9), cores));
        }
    }
    if let Some((ratio, found)) = panels
        .first()
        .and_then(|pareto| times(pareto, "sharded", "sharded:fifo"))
    {
        claims.push(Claim::new(
            "granting first to the transaction that most others wait for does more with frequent rows",
            found,
            "more than 1 times",
            ratio > 1.0,
        ));
    }
    Shape(claims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    #[test]
    fn shards_are_compared_with_one_mutex_and_their_order_with_arrival_on_frequent_rows() {
        let panel = |[global, arrival, sharded]: [f64; 3]| {
            let points = [global, arrival, sharded].map(|last| [(2, 100.0), (1_024, last)]);
            let curves: [synthetic::Made<'_>; 3] = [
                ("global", "", &points[0]),
                ("sharded:fifo", "", &points[1]),
                ("sharded", "", &points[2]),
            ];
            synthetic::panel("sysbench", 64, &curves)
        };
        let holds = |pareto, uniform| -> Vec<bool> {
            let Shape(claims) = claims(&[panel(pareto), panel(uniform)]);
            claims.iter().filter_map(|claim| claim.holds).collect()
        };
        let better = [50.0, 60.0, 90.0];
        assert_eq!(holds(better, better), [true; 5]);
        assert_eq!(
            holds([90.0, 80.0, 50.0], better),
            [false, false, true, true, false]
        );
        // The order is compared on frequent rows only.
        assert_eq!(holds(better, [50.0, 95.0, 90.0]), [true; 5]);
    }

    #[test]
    fn a_ratio_far_below_one_is_not_for_want_of_cores() {
        let holds = |ratio, cores| {
            let claim = Claim::new("more", "", "more than 1 times", ratio > 1.0);
            or_near(claim, ratio, cores).holds
        };
        assert_eq!(holds(1.1, 2), Some(true));
        assert_eq!([holds(0.9, 2), holds(0.9, 64)], [None, Some(false)]);
        assert_eq!(holds(0.1, 2), Some(false));
    }
}
