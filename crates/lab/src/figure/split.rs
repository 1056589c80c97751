//! Where the time goes: figure 13 of document 000 and figure 13 of document 002.
//!
//! Each point is measured without sampling and then with it, so that the cost of sampling is shown
//! beside its result.

use std::time::Duration;

use super::{beside, judge, request::Request};
use crate::{
    bench::{
        critical_sections::design::{DEFAULT, Design},
        error::BenchError,
        txbench, workload,
    },
    measure::{curve::Curve, machine::Machine, profile::Part, time::Times},
    progress::Audience,
    report::{
        findings::{Block, Findings},
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
    workload::{
        contract::Workload,
        tatp::{self, Tatp},
        tpcb::{self, Tpcb},
        tpcc::{self, Tpcc, client::Manner},
    },
};

/// At most as many clients as processors, and far more.
const QUICK_MPLS: [u32; 3] = [1, 2, 200];
const FULL_MPLS: [u32; 4] = [1, 2, 200, 500];
/// In a shorter window samples are too few.
const LEAST_WINDOW: Duration = Duration::from_millis(700);
/// The designs of document 002 that exist here.
pub(super) const DESIGNS: [&str; 5] =
    ["baseline", "inheritance", "consolidated", "direct", DEFAULT];

/// Idle, kernel, and the parts of the engine: every lock manager, reading.
pub(super) fn figure_13(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen();
    let mut runs = request.sweep(chosen.systems.clone(), 4);
    if request.mpls.is_empty() {
        runs.mpls = match request.full {
            true => FULL_MPLS.to_vec(),
            false => QUICK_MPLS.to_vec(),
        };
    }
    sampled(request, &mut runs);
    let shapes = [request.shape(10, 0), request.shape(100, 0)];
    let panels = txbench::variants(&shapes, false, &runs, audience)?;
    Ok(Sheet {
        id: "000-fig13",
        title: "Where the time goes: idle, kernel, engine, latches".to_owned(),
        source: format!("{}, Figure 13 and section 5.2.2", beside::STAGED),
        expect: "global spends time on its latch, and idle or in the kernel to sleep and wake, as soon as \
                 there are as many clients as processors; staged and direct spend none. On two cores \
                 the shares are far from the document's half."
            .to_owned(),
        notes: chosen.notes(),
        beside: vec![document(&DOCUMENT_000)],
        shape: mutexes(&panels),
        pictures: Vec::new(),
        settings: request.listed(&runs),
        machine: Machine::here(),
        command: request.command.clone(),
        panels,
    })
}

/// The same for the designs of document 002, with its benchmarks, under full load.
pub(super) fn scaling_figure_13(
    request: &Request,
    audience: Audience,
) -> Result<Sheet, BenchError> {
    let designs: Vec<Design> = Design::all()
        .into_iter()
        .filter(|design| DESIGNS.contains(&design.name))
        .collect();
    let systems = designs.iter().map(|design| design.system.clone()).collect();
    let mut runs = request.sweep(systems, 3);
    if request.mpls.is_empty() {
        // Almost fully utilised, as the document has it.
        runs.mpls = vec![4];
    }
    sampled(request, &mut runs);
    let panels = benchmarks(request)
        .iter()
        .map(|one| workload::run(one.as_ref(), &runs, audience))
        .collect::<Result<Vec<Findings>, BenchError>>()?;
    Ok(Sheet {
        id: "002-fig13",
        title: "Where the time goes: TATP, TPC-B and TPC-C over the designs".to_owned(),
        source: format!("{}, Figure 13 and section 8.3", beside::SCALING),
        expect: "Inherited locks take time from the lock manager where transactions use the same tables \
                 often, in TATP. Combined log inserts change the log's part only. On few cores there is \
                 little contention: the rest is the work of locking and logging, not waiting."
            .to_owned(),
        notes: vec![called(&designs)],
        beside: vec![document(&DOCUMENT_002)],
        shape: steps(&panels),
        pictures: Vec::new(),
        settings: request.listed(&runs),
        machine: Machine::here(),
        command: request.command.clone(),
        panels,
    })
}

/// Plans one repetition without sampling and one with it, long enough for a result.
pub(super) fn sampled(request: &Request, runs: &mut crate::bench::runs::Runs) {
    if request.window.is_none() {
        runs.window = runs.window.max(LEAST_WINDOW);
    }
    runs.reps = request.reps.unwrap_or(1);
    runs.split = true;
}

/// The document's three benchmarks. TPC-C is NewOrder and Payment alone there too, as in its figure
/// 11.
pub(super) fn benchmarks(request: &Request) -> [Box<dyn Workload>; 3] {
    let rows = request
        .rows
        .unwrap_or(if request.full { 100_000 } else { 20_000 });
    let tatp = Tatp::new(tatp::Shape {
        subscribers: rows,
        ..tatp::Shape::usual()
    });
    let scale = tpcb::Scale {
        branches: 10,
        accounts_a_branch: (rows / 10).max(1),
    };
    let tpcc = Tpcc {
        scale: tpcc::Scale {
            warehouses: 2,
            districts: 10,
            customers: (rows / 100).clamp(10, 3_000),
            items: (rows / 10).clamp(100, 100_000),
        },
        manner: Manner::usual(tpcc::client::Mix::NewOrderPayment),
        seed: 1,
    };
    [
        Box::new(tatp),
        Box::new(Tpcb {
            scale,
            choice: tpcb::Choice::Remote,
            seed: 1,
        }),
        Box::new(tpcc),
    ]
}

/// The names of the designs, for places that show a lock manager and a note only.
pub(super) fn called(designs: &[Design]) -> String {
    let one = |design: &Design| {
        let (name, is) = (design.name, design.is);
        format!("{name} ({}): {is}", design.system)
    };
    let all: Vec<String> = designs.iter().map(one).collect();
    format!("The designs: {}.", all.join("; "))
}

/// Times of each curve at the largest number of clients.
pub(super) fn times(panel: &Findings) -> impl Iterator<Item = (&Curve, &Times)> {
    panel.curves.iter().filter_map(|curve| {
        let times = curve.points.last()?.times.as_ref()?.as_ref().ok()?;
        (times.profile.samples() > 0).then_some((curve, times))
    })
}

/// Share of these parts, in the program and in the kernel, in all time of the process.
pub(super) fn share(times: &Times, parts: &[Part]) -> f64 {
    let all = times.split.user + times.split.kernel;
    let these = parts
        .iter()
        .map(|&part| times.program(part) + times.kernel(part));
    these.sum::<f64>() / all.max(1e-9)
}

pub(super) const LATCHES: [Part; 2] = [Part::Latch, Part::Waiting];

const STAGED_SAYS: &str = "with the staged manager there is virtually no mutex time";
const GLOBAL_SAYS: &str = "with one mutex more than half of the time is spent spinning";
pub(super) const TOO_FEW_SAMPLES: &str = "where the time goes, because there were too few samples";

/// Judges the time in latches at the most clients.
pub(super) fn mutexes(panels: &[Findings]) -> Shape {
    let claims = panels.iter().flat_map(|panel| {
        let of = |name: &str| {
            let found = times(panel).find(|(curve, _)| curve.lock_manager == name);
            found.map(|(_, times)| share(times, &LATCHES))
        };
        let (cores, title) = (panel.machine.cores, &panel.title);
        [
            latches("staged", of("staged"), (cores, title)),
            latches("global", of("global"), (cores, title)),
        ]
    });
    Shape(claims.collect())
}

fn latches(manager: &str, share: Option<f64>, (cores, title): (usize, &str)) -> Claim {
    let (says, staged) = match manager {
        "staged" => (STAGED_SAYS, true),
        _ => (GLOBAL_SAYS, false),
    };
    let Some(share) = share else {
        return Claim::not_measured(says, TOO_FEW_SAMPLES);
    };
    let found = format!(
        "{:.0} % of the time is in {manager}'s latches ({title})",
        share * 100.0
    );
    match staged {
        true => Claim::new(says, found, "below 5 %", share < 0.05),
        false => {
            let claim = Claim::new(says, found, "more than 50 %", share > 0.5);
            judge::where_cores_count(claim, cores)
        }
    }
}

/// Smaller differences, as shares of all time, are chance.
const CHANCE: f64 = 0.03;

/// Judges the time in the lock manager and in the log, design by design.
fn steps(panels: &[Findings]) -> Shape {
    let claims = panels.iter().flat_map(|panel| {
        let of = |parts: &[Part]| -> Vec<f64> {
            times(panel).map(|(_, times)| share(times, parts)).collect()
        };
        let locks = of(&[Part::Lock, Part::Latch, Part::Waiting]);
        let (workload, cores) = (&panel.workload, panel.machine.cores);
        [
            falls(
                format!("inheriting locks takes time from locking in {workload}"),
                &locks,
                (0, 1),
                cores,
            ),
            falls(
                format!("combined log inserts take time from the log in {workload}"),
                &of(&[Part::Log]),
                (1, 2),
                cores,
            ),
        ]
    });
    Shape(claims.collect())
}

/// The claim that a share falls from one design to another; without contention it need not.
fn falls(says: String, shares: &[f64], (from, to): (usize, usize), cores: usize) -> Claim {
    let Some((from, to)) = shares.get(from).zip(shares.get(to)) else {
        return Claim::not_measured(says, TOO_FEW_SAMPLES);
    };
    let found = format!(
        "{says}: {:.0} % before and {:.0} % after",
        from * 100.0,
        to * 100.0
    );
    let claim = Claim::new(says, found, "more than 3 points less", from - to > CHANCE);
    judge::where_cores_count(claim, cores)
}

const DOCUMENT_000: [[&str; 3]; 4] = [
    ["Our System, staged", "virtually no mutex time", "staged"],
    [
        "MySQL, one mutex",
        "more than 50 % of the time spinning on mutexes; idle time as well at 32 cores",
        "global",
    ],
    [
        "Shore-MT, MCS latches",
        "up to 98 % of the time in the spinning of the MCS latch",
        "bucket/queue",
    ],
    ["DBMS X", "much idle time in overload", "-"],
];

const DOCUMENT_002: [[&str; 3]; 5] = [
    [
        "Shore-MT as released",
        "locking 15 to 20 % of all time for one thread; contention beyond that",
        "baseline",
    ],
    [
        "with inherited locks",
        "little contention for locks in any workload; under 5 % more work; 30 to 50 % faster where locks limited it",
        "inheritance",
    ],
    [
        "with combined log inserts",
        "only the log's part falls: a bit over 10 % in TPC-B, little elsewhere",
        "consolidated",
    ],
    [
        "transactions divided among partitions (DORA)",
        "locking under 3 %",
        "-",
    ],
    [
        "trees divided as well (PLP)",
        "30 to 50 % of the remaining time are index probes",
        "default: tables",
    ],
];

pub(super) fn document(rows: &[[&str; 3]]) -> Block {
    let mut table = Table::new(["in the document", "its result", "here"]);
    rows.iter()
        .for_each(|row| table.row(row.map(str::to_owned)));
    Block {
        title: "What the document shows".to_owned(),
        note: "From the text; the bars have no numbers. The document's mutex is a latch here; its database \
               is log, tables, transaction and client here."
            .to_owned(),
        table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_judged_against_their_bounds() {
        let holds = |name, share, cores| latches(name, Some(share), (cores, "reads")).holds;
        assert_eq!(holds("staged", 0.01, 2), Some(true));
        assert_eq!(holds("staged", 0.1, 2), Some(false));
        assert_eq!(holds("global", 0.6, 2), Some(true));
        assert_eq!(
            [holds("global", 0.2, 2), holds("global", 0.2, 64)],
            [None, Some(false)]
        );
        assert_eq!(latches("global", None, (64, "reads")).holds, None);

        let holds = |shares: &[f64]| falls("it falls".to_owned(), shares, (0, 1), 64).holds;
        assert_eq!(holds(&[0.2, 0.1]), Some(true));
        assert_eq!([holds(&[0.2, 0.19]), holds(&[0.1, 0.2])], [Some(false); 2]);
        assert_eq!(holds(&[0.2]), None);
    }
}
