//! Throughput over clients: figures 12, 14 and 15 of document 000.

use foxton::VictimPolicy;

use super::{
    beside::{self, Says, peak_and_rest, says},
    judge,
    request::Request,
};
use crate::{
    bench::{error::BenchError, txbench},
    measure::{
        curve::{Curve, Point},
        machine::Machine,
        outcome::{Outcome, Tally},
        spread::Spread,
    },
    progress::Audience,
    report::{
        findings::{Block, Findings},
        number::grouped,
        shape::{self, Claim},
        sheet::Sheet,
        table::Table,
    },
    system::System,
    workload::txbench::Shape,
};

const FIGURE_12: [Says; 5] = [
    says(
        "MySQL, one mutex, serializable",
        "shape: declines at 4 cores, collapses at 16 and 32",
        "global",
    ),
    says(
        "MySQL, read views, repeatable read",
        "shape: falls with ten rows, because each view takes a mutex; less with a hundred",
        "read-views",
    ),
    says(
        "Our System, staged",
        "shape: never collapses, at worst a slight decline",
        "staged",
    ),
    says(
        "Shore-MT, MCS latches, inheritance",
        "peak 42 M/min (S = 10, 32 cores), then a collapse",
        "bucket+inherit",
    ),
    says(
        "DBMS X",
        "shape: collapses at 32 cores, a tenth of the others' throughput",
        "",
    ),
];

/// Read-only throughput over clients, 10 and 100 rows a read.
pub(super) fn figure_12(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen_and_default();
    let mut systems = chosen.systems.clone();
    systems.extend(request.snapshots());
    let runs = request.sweep(systems, 2);
    let shapes = [request.shape(10, 0), request.shape(100, 0)];
    let panels = txbench::variants(&shapes, false, &runs, audience)?;
    let beside = panels.iter().map(|panel| {
        beside::curves(
            &format!("The document beside ours: {}", panel.title),
            "The document's machine has 4 to 32 cores and one system in each graph; its curves are \
             drawn without numbers, but for those given here (section 5.2.1).",
            &FIGURE_12,
            panel,
            peak_and_rest,
        )
    });
    Ok(Sheet {
        id: "000-fig12",
        title: "Read-only throughput over clients, for each lock manager".to_owned(),
        source: format!("{}, Figure 12 and section 5.2.1", beside::STAGED),
        expect: "One latch over everything (global) falls as clients are added, less on few cores than on \
                 many. With ten rows a read, the others keep nine tenths of their peak or more at 500 \
                 clients. With a hundred rows, 500 clients hold more names than there are buckets with a \
                 line of their own: bucket and sharded lose a quarter of their peak and staged an eighth. \
                 direct and the default remember locks and keep their peak. Reads at snapshots lock \
                 nothing and keep it as well; with read views they fall, most with ten rows a read."
            .to_owned(),
        shape: claims_12(&panels),
        notes: chosen.notes(),
        beside: beside.collect(),
        pictures: Vec::new(),
        settings: request.listed(&runs),
        machine: Machine::here(),
        command: request.command.clone(),
        panels,
    })
}

fn claims_12(panels: &[Findings]) -> shape::Shape {
    let of = |panel: &Findings| {
        let snapshots = panel
            .curves
            .iter()
            .find(|curve| curve.has_note(SNAPSHOT_LEVEL) && !curve.has_note(READ_VIEWS));
        let keeps = "reads at snapshots keep their peak";
        let falls = "read views collapse";
        [
            judge::keeps(panel, "staged", "the staged manager never collapses"),
            judge::falls(panel, "global", "one mutex collapses"),
            snapshots.and_then(|curve| judge::curve_keeps(panel, curve, keeps)),
            judge::noted(panel, READ_VIEWS)
                .and_then(|curve| judge::curve_falls(panel, curve, falls)),
        ]
    };
    shape::Shape(panels.iter().flat_map(of).flatten().collect())
}

/// Words of the notes of systems whose reads are at snapshots, and of those with read views.
const SNAPSHOT_LEVEL: &str = "isolation snapshot";
const READ_VIEWS: &str = "read-views";

const FIGURE_14: [Says; 2] = [
    says(
        "MySQL, one mutex, 32 cores",
        "shape: collapses; 46 % of transactions aborted at top load",
        "global",
    ),
    says(
        "Our System, staged, 32 cores",
        "shape: falls under load because of conflicts, not of latches; at worst 7.2 % aborted",
        "staged",
    ),
];

/// 100 rows a read, without updates and with.
pub(super) fn figure_14(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen_and_default();
    let runs = request.sweep(chosen.systems.clone(), 2);
    let shapes = [request.shape(100, 0), request.shape(100, 20)];
    let panels = txbench::variants(&shapes, false, &runs, audience)?;
    let note = "Aborts here are deadlocks ÷ attempts, like the document's share of aborted \
                transactions. The files have deadlocks ÷ commits too (section 5.3.1).";
    Ok(Sheet {
        id: "000-fig14",
        title: "Updates: 100 rows a read, none or 20 % of the transactions update".to_owned(),
        source: format!("{}, Figure 14 and section 5.3.1", beside::STAGED),
        expect: "With updates throughput falls under load, because transactions wait for each other. All \
                 managers but global fall about as much. Keys are updated in order, so a deadlock takes \
                 three transactions: there are far fewer aborts than in the document, whose statements \
                 draw keys in any order."
            .to_owned(),
        shape: claims_14(&panels),
        notes: chosen.notes(),
        beside: last_panel(&panels, &FIGURE_14, note, |curve| {
            format!("{}; aborts {}", peak_and_rest(curve), aborted(curve))
        }),
        pictures: Vec::new(),
        settings: request.listed(&runs),
        machine: Machine::here(),
        command: request.command.clone(),
        panels,
    })
}

/// Without updates, then with.
fn claims_14(panels: &[Findings]) -> shape::Shape {
    let [reads, updates, ..] = panels else {
        return shape::Shape::default();
    };
    let mut claims = Vec::new();
    if let (Some(read), Some(update)) = (
        judge::curve_of(reads, "staged"),
        judge::curve_of(updates, "staged"),
    ) {
        let ratio = |curve: &Curve| curve.no_collapse_ratio().unwrap_or(1.0) * 100.0;
        let (read, with) = (ratio(read), ratio(update));
        claims.push(Claim::new(
            "staged falls under load because of conflicts alone",
            format!(
                "staged keeps {read:.0} % of its peak without updates and {with:.0} % with them"
            ),
            "less with updates",
            with < read,
        ));
        let worst = worst_aborted(update);
        claims.push(Claim::new(
            "at most 7.2 % of staged's transactions are aborted",
            format!("at worst {worst:.2} % of staged's attempts are aborted"),
            "at most 7.2 %",
            worst <= 7.2,
        ));
    }
    claims.extend(judge::falls(updates, "global", "one mutex collapses"));
    shape::Shape(claims)
}

const FIGURE_15: [Says; 2] = [
    says(
        "MySQL, one mutex, 32 cores",
        "peak 1.5 M/min at 30 clients; 0.2 at 500 (43 % of uniform); aborts up to 46 % of commits",
        "global",
    ),
    says(
        "Our System, staged, 32 cores",
        "peak 6.8 M/min at 200 clients; 4.2 at 500 (63 % of uniform); aborts below 0.25 % of commits",
        "staged",
    ),
];

/// The managers whose victims the brief form compares.
const BRIEF_POLICIES: [&str; 3] = ["global", "bucket", "direct"];
/// The hot rows of the document: 5 % of the tables.
const HOT_ROWS: u32 = 5_000;

/// 20 % updates, uniform and in a hotspot; and the victims of deadlocks.
pub(super) fn figure_15(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen_and_default();
    let runs = request.sweep(chosen.systems.clone(), 3);
    let uniform = request.shape(10, 20);
    let hotspot = Shape {
        hotspot: true,
        ..uniform.clone()
    };
    let mut panels = txbench::variants(&[uniform, hotspot], false, &runs, audience)?;
    let note = "Aborts here are deadlocks ÷ commits, as in the document (section 5.3.2).";
    let largest = |curve: &Curve| {
        curve
            .points
            .last()
            .map_or(0.0, |point| point.tps().median())
    };
    let uniform: Vec<(String, f64)> = panels[0]
        .curves
        .iter()
        .map(|curve| (curve.label(), largest(curve)))
        .collect();
    let beside = last_panel(&panels, &FIGURE_15, note, |curve| {
        let (_, uniform) = uniform
            .iter()
            .find(|(label, _)| *label == curve.label())
            .expect("both panels have the same curves");
        format!(
            "{}; {:.0} % of uniform at the most clients; aborts {}",
            peak_and_rest(curve),
            largest(curve) / uniform.max(1e-9) * 100.0,
            deadlock_rate(curve.points.last())
        )
    });
    panels.push(policies(request, &chosen.managers(), audience)?);
    Ok(Sheet {
        id: "000-fig15",
        title: "Updates in a hotspot: 10 rows a read, 20 % of the transactions update".to_owned(),
        source: format!("{}, Figure 15 and section 5.3.2", beside::STAGED),
        expect: "Below its peak a hotspot changes little. Beyond it throughput falls, because clients wait \
                 for the same few rows. A good manager keeps three quarters of its peak and does several \
                 times as much as global. There is less than one deadlock per 100 commits."
            .to_owned(),
        shape: claims_15(&panels),
        notes: chosen.notes(),
        beside,
        pictures: Vec::new(),
        settings: request.listed(&runs),
        machine: Machine::here(),
        command: request.command.clone(),
        panels,
    })
}

/// Uniform, then in the hotspot.
fn claims_15(panels: &[Findings]) -> shape::Shape {
    let [uniform, hotspot, ..] = panels else {
        return shape::Shape::default();
    };
    let staged = |panel| judge::curve_of(panel, "staged");
    let mut claims = Vec::new();
    if let (Some(everywhere), Some(hot)) = (staged(uniform), staged(hotspot)) {
        let mpl = hot.points.last().map_or(0, |point| point.mpl);
        let share = judge::last_tps(hot) / judge::last_tps(everywhere).max(1e-9) * 100.0;
        claims.push(Claim::new(
            "at the most clients, staged does 63 % as much in the hotspot as without one",
            format!(
                "with {mpl} clients, staged does {share:.0} % as much in the hotspot as without"
            ),
            "40 to 95 %",
            (40.0..95.0).contains(&share),
        ));
        let deadlocks = hot.points.last().map(rates).unwrap_or_default().median();
        claims.push(Claim::new(
            "staged has fewer than 0.25 deadlocks per 100 commits",
            format!("with {mpl} clients, staged has {deadlocks:.3} deadlocks per 100 commits"),
            "below 0.25",
            deadlocks < 0.25,
        ));
        if let Some(global) = judge::curve_of(hotspot, "global") {
            let times = judge::last_tps(hot) / judge::last_tps(global).max(1e-9);
            claims.push(Claim::new(
                "at the most clients, staged does 20 times as much as one mutex",
                format!("with {mpl} clients, staged does {times:.1} times as much as global"),
                "at least 2 times",
                times >= 2.0,
            ));
        }
    }
    shape::Shape(claims)
}

/// Measures each manager under each victim policy, in the hotspot. Only the hot rows are loaded:
/// the accesses are the same, and three times as many databases fit into memory.
fn policies(
    request: &Request,
    systems: &[System],
    audience: Audience,
) -> Result<Findings, BenchError> {
    let few = |system: &&System| {
        !request.brief || BRIEF_POLICIES.contains(&system.manager_name().as_str())
    };
    let systems: Vec<System> = systems.iter().filter(few).cloned().collect();
    let systems = System::with_victims(systems, &VictimPolicy::ALL);
    let mut runs = request.sweep(systems, 2);
    if request.mpls.is_empty() && !request.full {
        runs.mpls = vec![32, 500];
    }
    let shape = Shape {
        rows: request.rows.map_or(HOT_ROWS, |rows| rows.min(HOT_ROWS)),
        unordered: true,
        ..request.shape(10, 20)
    };
    let mut panel = txbench::variants(&[shape], false, &runs, audience)?.remove(0);
    panel.title = "Victims of deadlocks: the hot rows alone, updated in any order".to_owned();
    panel.variant += "-victims";
    panel.blocks.push(policy_table(&panel));
    Ok(panel)
}

fn policy_table(panel: &Findings) -> Block {
    let mut table = Table::new([
        "locks",
        "clients",
        "tps",
        "min",
        "max",
        "deadlocks",
        "per 100 commits",
        "min",
        "max",
    ]);
    for curve in &panel.curves {
        for point in &curve.points {
            let (tps, rates) = (point.tps(), rates(point));
            table.row([
                curve.label(),
                point.mpl.to_string(),
                grouped(tps.median()),
                grouped(tps.min()),
                grouped(tps.max()),
                grouped(point.tally().of(Outcome::Deadlock) as f64),
                format!("{:.3}", rates.median()),
                format!("{:.3}", rates.min()),
                format!("{:.3}", rates.max()),
            ]);
        }
    }
    Block {
        title: "Deadlocks by manager and victim policy".to_owned(),
        note: "Rows are updated in the order drawn, so that two transactions can deadlock: in key order \
               there are too few deadlocks to compare policies. least-work is the default."
            .to_owned(),
        table,
    }
}

fn last_panel(
    panels: &[Findings],
    document: &[Says],
    note: &str,
    describe: impl Fn(&Curve) -> String,
) -> Vec<Block> {
    let panel = panels.iter().next_back();
    let block = panel.map(|panel| {
        let title = format!("The document beside ours: {}", panel.title);
        beside::curves(&title, note, document, panel, describe)
    });
    block.into_iter().collect()
}

/// Deadlocks per 100 commits, by repetition.
fn rates(point: &Point) -> Spread {
    let rate = |tally: &Tally| {
        tally.of(Outcome::Deadlock) as f64 / tally.committed().max(1) as f64 * 100.0
    };
    Spread::new(point.runs.iter().map(|run| rate(&run.tally)))
}

fn deadlock_rate(point: Option<&Point>) -> String {
    let rates = point.map(rates).unwrap_or_default();
    format!(
        "{:.3} % ({:.3}..{:.3})",
        rates.median(),
        rates.min(),
        rates.max()
    )
}

/// The highest share of deadlocks ÷ attempts, in percent.
fn aborted(curve: &Curve) -> String {
    format!("at worst {:.3} % of attempts", worst_aborted(curve))
}

fn worst_aborted(curve: &Curve) -> f64 {
    let share = |point: &Point| {
        let tally = point.tally();
        let aborts = tally.aborts() as f64;
        aborts / (tally.committed() as f64 + aborts).max(1.0) * 100.0
    };
    curve.points.iter().map(share).fold(0.0, f64::max)
}
