//! Lock managers whose latches are elided: figures 5.2 to 5.6.

use std::collections::BTreeMap;

use foxton::{Isolation, LatchKind, LockManagerKind};
use foxton_sync::htm::{self, Elisions};

use super::{ElisionFigure, claim_of_latches, document};
use crate::{
    bench::{
        error::BenchError,
        latches::{ABORTS_SAY, Tried, abort_row, abort_table, by_what, ratio},
        loaded::Loaded,
        sweep::{Subject, Sweep},
        txbench,
    },
    driver::Client,
    figure::request::Request,
    measure::curve::Curve,
    progress::{Audience, Progress},
    report::{
        findings::{Block, Findings},
        number::{duration_us, grouped},
        shape::Shape,
        sheet::Sheet,
        table::Table,
    },
    system::{Locks, System},
    workload::txbench as workload,
};

/// The document's five modifications, in the order of its section 4.2, and their counterparts here.
const MODIFIED: [(&str, &str); 5] = [
    (
        "low-level HLE: every latch, by prefixes",
        "elided:hle, elided:rtm",
    ),
    (
        "low-level retried: every latch, up to 100 times",
        "elided:retry100",
    ),
    (
        "glibc: every latch, with a cool-down",
        "elided:cooldown, elided:adaptive",
    ),
    (
        "lock-mutex: the latch of the lock table alone",
        "global over each elided latch; no other latch of the engine is ever elided",
    ),
    (
        "transaction latches alone",
        "nothing to elide: a transaction's list of locks is its own and has no latch",
    ),
];

/// The managers made for latches, each with the manager made for elision.
const QUEUED: [(LockManagerKind, LockManagerKind); 2] = [
    (LockManagerKind::Global, LockManagerKind::GlobalElidable),
    (LockManagerKind::Bucket, LockManagerKind::BucketElidable),
];
/// Every other manager with a configurable latch.
const OTHERS: [LockManagerKind; 3] = [
    LockManagerKind::Direct,
    LockManagerKind::Staged,
    LockManagerKind::Sharded,
];
/// The latches of those others, and of the first ones with inherited locks. Every transaction that
/// locks a table writes the head of the table's queue, so elided passes conflict there; with
/// inheritance they do not.
const FEW: [LatchKind; 2] = [LatchKind::TasT, LatchKind::ElidedRetry100];
/// The latches that elided ones are built on.
const UNDER: [LatchKind; 2] = [LatchKind::TasT, LatchKind::Parking];
/// Rows in every form but the full one, so that all databases fit into memory.
const ROWS: u32 = 20_000;
const MPLS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const QUICK: [u32; 4] = [1, 4, 32, 256];

/// Every manager; those whose queues are changed under latches over all latches, elided and not.
pub(in crate::figure) fn figure_2(
    request: &Request,
    audience: Audience,
) -> Result<Sheet, BenchError> {
    let all = compared();
    let elides = |system: &System| latch_of(system).is_none_or(|kind| kind.elides().is_ok());
    let systems: Vec<System> = match request.systems.as_slice() {
        [] => all
            .iter()
            .filter(|system| elides(system))
            .cloned()
            .collect(),
        some => some.to_vec(),
    };
    let mut runs = request.sweep(systems, 1);
    if request.mpls.is_empty() {
        runs.mpls = if request.full {
            MPLS.to_vec()
        } else {
            QUICK.to_vec()
        };
    }
    let usual = request.shape(100, 25);
    let shape = workload::Shape {
        isolation: Isolation::ReadCommitted,
        rows: match request.full {
            true => usual.rows,
            false => request.rows.unwrap_or(ROWS),
        },
        ..usual
    };
    let (loaded, runs) = txbench::load_all(&shape, &runs, audience)?;
    let mut subjects: Vec<Counted> = loaded.into_iter().map(Counted::new).collect();
    let sweep = Sweep {
        mpls: runs.mpls.clone(),
        reps: runs.reps,
        plan: runs.plan(),
        split: runs.split,
    };
    let curves = sweep.run(&mut subjects, audience);
    let settings = txbench::Settings::plain(shape, runs.clone());
    let machine = crate::measure::machine::Machine::here();
    let mut panel = txbench::findings(&settings, machine, curves);
    panel.blocks.extend(aborts(&subjects));
    let figure = ElisionFigure {
        id: "001-fig5.2",
        title: "Lock managers whose latches are elided: txbench, a quarter of it updates, read committed",
        place: "Figures 5.2 to 5.6, section 4.2",
        expect: "A request that is granted at once holds its latch for some fifty instructions and touches a \
                 line or two, so with a latch for each bucket there is hardly anything to gain. With one \
                 latch there is, as long as threads run side by side and none waits.",
        shape: claims(&panel),
        notes: vec![modified()],
        beside: vec![
            document(&[
                [
                    "unmodified",
                    "nearly linear to 16 clients, flat from 32 to 64; at 256 below that of 16",
                ],
                [
                    "latency of updates",
                    "twice as long with 64 clients as with 32, 12 times the first at 64",
                ],
                [
                    "every latch elided, three ways",
                    "none faster than unmodified",
                ],
                [
                    "the lock table's latch",
                    "collapses beyond 8 clients, 29 % of unmodified at 64",
                ],
                ["the transactions' latches", "as unmodified"],
                [
                    "share of cycles in transactions",
                    "5 % (HLE), over a third of them aborted; 1 % (lock table)",
                ],
            ]),
            against(&panel, &all),
            shape_alone(&panel),
        ],
        panels: vec![panel],
    };
    Ok(figure.sheet(request))
}

/// The systems to compare unless the request has some.
fn compared() -> Vec<System> {
    let queued = QUEUED.map(|(plain, elidable)| [plain, elidable]).concat();
    let latches: Vec<LatchKind> = LatchKind::ALL
        .into_iter()
        .filter(|kind| UNDER.contains(&kind.plain()))
        .collect();
    let queued_over_all = queued.iter().copied().map(Locks::Manager);
    let mut all = System::all(&queued_over_all.collect::<Vec<_>>(), &latches);
    let others = OTHERS.map(Locks::Manager).into_iter();
    let others = others.chain(queued.iter().copied().map(Locks::Inheriting));
    all.extend(System::all(&others.collect::<Vec<_>>(), &FEW));
    all
}

fn modified() -> String {
    let all = MODIFIED.map(|(theirs, ours)| format!("{theirs}: here {ours}"));
    format!(
        "The document's five modifications and ours. {}.",
        all.join("; ")
    )
}

fn latch_of(system: &System) -> Option<LatchKind> {
    system.latch_name().parse().ok()
}

/// Throughput and latency beside those of the same manager over the latch that is not elided.
fn against(panel: &Findings, all: &[System]) -> Block {
    let mut table = Table::new([
        "locks",
        "clients",
        "tps",
        "min",
        "max",
        "÷ not elided",
        "p50",
        "p99",
    ]);
    let of = |manager: &str, latch: LatchKind| {
        let latch = latch.to_string();
        let mut curves = panel.curves.iter();
        curves.find(|curve| curve.lock_manager == manager && curve.latch == latch)
    };
    for curve in &panel.curves {
        let plain = curve
            .latch
            .parse::<LatchKind>()
            .ok()
            .filter(|kind| kind.plain() != *kind);
        let plain: Option<&Curve> = plain.and_then(|kind| of(&curve.lock_manager, kind.plain()));
        for point in &curve.points {
            let to = plain.and_then(|curve| curve.points.iter().find(|to| to.mpl == point.mpl));
            let (tps, latency) = (point.tps(), point.latency());
            table.row([
                label(curve),
                point.mpl.to_string(),
                grouped(tps.median()),
                grouped(tps.min()),
                grouped(tps.max()),
                to.map_or("-".to_owned(), |to| {
                    ratio(point, to).words(|times| format!("{times:.2}"))
                }),
                duration_us(latency.quantile_us(0.5)),
                duration_us(latency.quantile_us(0.99)),
            ]);
        }
    }
    for system in all {
        if let Some(Err(why)) = latch_of(system).map(LatchKind::elides) {
            table.row([system.to_string(), "-".to_owned(), why.to_string()]);
        }
    }
    Block {
        title: "Elided and not (5.2 to 5.4)".to_owned(),
        note: "Ratios by repetition; the systems take turns in each.".to_owned(),
        table,
    }
}

/// The name of a curve; if its latch elides nothing here, it says that the latch was taken.
fn label(curve: &Curve) -> String {
    match curve.latch.parse().map(LatchKind::elides) {
        Ok(Err(_)) => format!("{}, taken", curve.label()),
        _ => curve.label(),
    }
}

/// The lock tables made for elision beside those made for latches, latch by latch. Over a latch
/// that is taken this is the effect of their shape alone.
fn shape_alone(panel: &Findings) -> Block {
    let mut table = Table::new(["elidable", "made for latches", "latch", "clients", "÷"]);
    let of = |manager: &str, latch: &str| {
        let mut curves = panel.curves.iter();
        curves.find(|curve| curve.lock_manager == manager && curve.latch == latch)
    };
    let forms = |(plain, elidable): (LockManagerKind, LockManagerKind)| {
        [Locks::Manager, Locks::Inheriting].map(|form| {
            let name = |kind| System::new(form(kind), None).manager_name();
            (name(elidable), name(plain))
        })
    };
    for (elidable, plain) in QUEUED.into_iter().flat_map(forms) {
        let curves = panel.curves.iter();
        for curve in curves.filter(|curve| curve.lock_manager == elidable) {
            let Some(to) = of(&plain, &curve.latch) else {
                continue;
            };
            for (point, to) in curve.points.iter().zip(&to.points) {
                let times = ratio(point, to).words(|times| format!("{times:.2}"));
                let (name, latch) = (elidable.clone(), curve.latch.clone());
                table.row([name, plain.clone(), latch, point.mpl.to_string(), times]);
            }
        }
    }
    if table.is_empty() {
        table.row(["no two of them have the same latch".to_owned()]);
    }
    Block {
        title: "Effect of the lock table's shape alone".to_owned(),
        note: "Throughput of a lock table made for elision, divided by that of the one made for latches, over \
               the same latch; by repetition. Without elision these latches are taken."
            .to_owned(),
        table,
    }
}

/// If latches elide: the document's claim that no manager is faster. If not, nothing is measured.
fn claims(panel: &Findings) -> Shape {
    let best = || {
        let ratios = panel.curves.iter().filter_map(|curve| {
            let kind = curve
                .latch
                .parse::<LatchKind>()
                .ok()
                .filter(|kind| kind.plain() != *kind)?;
            let plain = kind.plain().to_string();
            let mut others = panel.curves.iter();
            let plain = others
                .find(|other| other.lock_manager == curve.lock_manager && other.latch == plain)?;
            Some(curve.peak()?.tps().median() / plain.peak()?.tps().median().max(1e-9))
        });
        ratios.fold(0.0, f64::max)
    };
    Shape(vec![claim_of_latches(
        "no manager is faster with its latches elided",
        best,
        "below 1.05 times",
        |best| {
            (
                format!("elided, a manager does at best {best:.2} times its peak without elision"),
                *best < 1.05,
            )
        },
    )])
}

/// A database, and the counts of elision in it.
struct Counted {
    loaded: Loaded,
    mpl: u32,
    before: Vec<Elisions>,
    began: u64,
    /// By number of clients.
    tried: BTreeMap<u32, Tried>,
}

impl Counted {
    fn new(loaded: Loaded) -> Counted {
        Counted {
            loaded,
            mpl: 0,
            before: Vec::new(),
            began: 0,
            tried: BTreeMap::new(),
        }
    }

    fn now(&self) -> Vec<Elisions> {
        self.loaded.database().stats().elisions
    }
}

impl Subject for Counted {
    fn names(&self) -> (String, String) {
        self.loaded.names()
    }

    fn note(&self) -> String {
        self.loaded.note()
    }

    fn largest_mpl(&self) -> u32 {
        self.loaded.largest_mpl()
    }

    fn kinds(&self) -> &'static [&'static str] {
        self.loaded.kinds()
    }

    fn prepare(&mut self, progress: &Progress) -> Result<(), String> {
        self.before = self.now();
        self.loaded.prepare(progress)
    }

    fn clients(&mut self, mpl: u32) -> Vec<Box<dyn Client>> {
        self.mpl = mpl;
        self.began = htm::ticks();
        self.loaded.clients(mpl)
    }

    fn check(&mut self) -> Result<(), String> {
        let now = self.now();
        let since = |(at, now): (usize, &Elisions)| {
            self.before.get(at).map_or(*now, |before| now.since(before))
        };
        let new: Vec<Elisions> = now.iter().enumerate().map(since).collect();
        let tried = self.tried.entry(self.mpl).or_default();
        tried.add(&new, self.mpl, self.began);
        self.loaded.check()
    }

    fn diagnose(&self) -> String {
        self.loaded.diagnose()
    }
}

/// Why attempts aborted, if any were made (5.5, 5.6).
fn aborts(subjects: &[Counted]) -> Option<Block> {
    let mut table = abort_table("locks");
    for subject in subjects {
        let (manager, latch) = subject.names();
        for (mpl, tried) in &subject.tried {
            let row = abort_row(format!("{manager}/{latch}"), *mpl, tried);
            row.into_iter().for_each(|row| table.row(row));
        }
    }
    (!table.is_empty()).then(|| Block {
        title: format!("Why transactions aborted, {} (5.5, 5.6)", by_what()),
        note: ABORTS_SAY.to_owned(),
        table,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every manager is compared; those made for latches with every latch that elides or is below
    /// one that does.
    #[test]
    fn every_manager_is_compared_and_those_made_for_latches_over_every_latch() {
        let all = compared();
        let has = |kind: LockManagerKind, latch: LatchKind| {
            let system = System::new(Locks::Manager(kind), Some(latch)).to_string();
            all.iter().any(|one| one.to_string() == system)
        };
        for kind in LockManagerKind::ALL {
            let elidable = QUEUED.iter().any(|queued| queued.1 == kind);
            let another_form = kind.to_string().contains(':') && !elidable;
            let wanted = kind != LockManagerKind::Reference && !another_form;
            assert_eq!(has(kind, LatchKind::TasT), wanted, "{kind}");
        }
        for (plain, elidable) in QUEUED {
            for latch in LatchKind::ALL {
                let wanted = UNDER.contains(&latch.plain());
                assert_eq!(has(plain, latch), wanted, "{plain} over {latch}");
                assert_eq!(has(elidable, latch), wanted, "{elidable} over {latch}");
            }
            let inheriting = System::new(Locks::Inheriting(elidable), Some(LatchKind::TasT));
            assert!(all.contains(&inheriting), "{inheriting}");
        }
    }
}
