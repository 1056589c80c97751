//! Clients that share nothing but the engine: figure 1 of document 002.

use super::{
    beside::{self, Says, says},
    cores::halvings,
    judge,
    request::Request,
    workload_figure::{WorkloadFigure, sweep},
};
use crate::{
    bench::{error::BenchError, workload},
    measure::{
        curve::{Curve, Point},
        machine::Machine,
        spread::Spread,
    },
    progress::Audience,
    report::{
        findings::Findings,
        shape::{Claim, Shape},
        sheet::Sheet,
    },
    workload::private_insert::PrivateInsert,
};

const WANTED: [&str; 4] = ["global", "bucket", "direct", "default"];
/// Rows of a table, and of a transaction at most.
const ROWS: u32 = 10_000;
const BATCH: u32 = 1_000;

const FIGURE_1: [Says; 3] = [
    says(
        "MySQL, BerkeleyDB, PostgreSQL",
        "shape: the more clients, the less each does",
        "global",
    ),
    says("SHORE", "shape: the same", "bucket"),
    says(
        "DBMS X, commercial",
        "shape: each client does less, but the loss is smaller",
        "",
    ),
];

/// Throughput of each client, over clients, with a processor for each.
pub(super) fn figure_1(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen_of(&WANTED, false);
    let cores = Machine::here().cores;
    let clients: Vec<u32> = halvings(cores).into_iter().map(|n| n as u32).collect();
    let runs = sweep(
        request,
        chosen.systems.clone(),
        [&clients; 3],
        [300, 800, 5_000],
    );
    let rows = request.rows.unwrap_or(ROWS);
    let inserts = PrivateInsert {
        rows,
        batch: BATCH.min(rows),
        seed: 1,
    };
    let panel = workload::run(&inserts, &runs, audience)?;
    let beside = beside::curves(
        "The document beside ours",
        "Throughput of one client as a share of its throughput alone. The document's curves are drawn \
         without numbers, on 32 cores. Median of the repetitions, and both extremes.",
        &FIGURE_1,
        &panel,
        shares,
    );
    let figure = WorkloadFigure {
        id: "002-fig1",
        title: "Throughput of one client among others that share nothing with it",
        source: format!("{}, Figure 1 and section 2.2", beside::SCALING),
        expect: "A level line: no client writes what another reads. All share the log, memory and, with one \
                 latch over all locks, that latch. The more clients, the more rows wait to be written to \
                 the log.",
        shape: claims(&panel),
        notes: chosen.notes(),
        beside: vec![beside],
        panels: vec![panel],
    };
    Ok(figure.sheet(request, &runs))
}

/// Throughput of one client at a point as a share of that at the first, by repetition.
fn share(curve: &Curve, point: &Point) -> Spread {
    let alone = curve.points.first().map_or(&[][..], |first| &first.runs);
    let pairs = point.runs.iter().zip(alone);
    let first = curve.points.first().map_or(1, |first| first.mpl);
    let times = f64::from(first) / f64::from(point.mpl);
    Spread::new(
        pairs
            .filter(|(_, alone)| alone.tps() > 0.0)
            .map(|(run, alone)| run.tps() / alone.tps() * times),
    )
}

fn shares(curve: &Curve) -> String {
    let point = |point: &Point| {
        let share = share(curve, point).words(|share| format!("{:.0} %", share * 100.0));
        format!("{share} with {}", point.mpl)
    };
    let points: Vec<String> = curve.points.iter().map(point).collect();
    points.join(", ")
}

/// As many clients as processors: what each does of what it does alone.
fn claims(panel: &Findings) -> Shape {
    let of = |manager: &str| {
        let curve = judge::curve_of(panel, manager)?;
        let last = curve.points.last().filter(|_| curve.points.len() > 1)?;
        let share = share(curve, last).median();
        let found = format!(
            "each of {} clients of {} does {:.0} % of what one does alone",
            last.mpl,
            curve.label(),
            share * 100.0
        );
        Some((share, found))
    };
    let mut claims = Vec::new();
    if let Some((share, found)) = of("global") {
        let claim = Claim::new(
            "with one mutex each client does less the more there are",
            found,
            judge::below(judge::KEEPS),
            share < judge::KEEPS,
        );
        claims.push(judge::where_cores_count(claim, panel.machine.cores));
    }
    if let Some((share, found)) = of("direct") {
        claims.push(Claim::new(
            "in a system that scales the line is level",
            found,
            judge::at_least(judge::KEEPS),
            share >= judge::KEEPS,
        ));
    }
    Shape(claims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    #[test]
    fn throughput_among_others_is_compared_with_throughput_alone() {
        let panel = |cores, direct_at_4| {
            let curves: [synthetic::Made<'_>; 2] = [
                ("global", "", &[(1, 100.0), (4, 200.0)]),
                ("direct", "", &[(1, 100.0), (4, direct_at_4)]),
            ];
            synthetic::panel("private-insert", cores, &curves)
        };
        let holds = |cores, direct_at_4| -> Vec<Option<bool>> {
            let Shape(claims) = claims(&panel(cores, direct_at_4));
            claims.iter().map(|claim| claim.holds).collect()
        };
        assert_eq!(holds(64, 396.0), [Some(true); 2]);
        assert_eq!(holds(64, 300.0), [Some(true), Some(false)]);
        let shown = shares(&panel(64, 396.0).curves[0]);
        assert!(
            shown.starts_with("100 %") && shown.contains("50 %"),
            "{shown}"
        );
        // A mutex without contention shows no fall, and on few cores that is not judged.
        let mut level = panel(64, 396.0);
        level.curves[0].points[1] = level.curves[1].points[1].clone();
        assert_eq!(claims(&level).0[0].holds, Some(false));
        level.machine.cores = 2;
        assert_eq!(claims(&level).0[0].holds, None);
    }
}
