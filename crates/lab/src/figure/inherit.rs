//! What becomes of the locks that a transaction could leave to the next: figure 14 of document 002.

use std::time::Duration;

use foxton::{Database, inspect::LockStats};

use super::{beside, request::Request};
use crate::{
    bench::{error::BenchError, runs::Runs, sweep::Subject, txbench, workload::Prepared},
    driver,
    measure::{
        machine::Machine,
        memory::{self, Guard},
    },
    progress::{Audience, Progress},
    report::{
        findings::Block,
        number::grouped,
        shape::{self, Claim},
        sheet::Sheet,
        table::Table,
    },
    workload::{
        tpcb::{Choice, Scale, Tpcb},
        txbench::Shape,
    },
};

const WANTED: [&str; 5] = [
    "bucket+inherit",
    "global+inherit",
    "staged+inherit",
    "sharded+inherit",
    "direct+inherit",
];
const QUICK_MPLS: [u32; 3] = [2, 32, 200];

/// Shares of the locks considered, by workload and number of clients.
pub(super) fn figure_14(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen_of(&WANTED, false);
    let mut runs = request.sweep(chosen.systems.clone(), 4);
    if request.mpls.is_empty() && !request.full {
        runs.mpls = QUICK_MPLS.to_vec();
    }
    // Counts of one run say what several would.
    runs.reps = 1;
    let mut outcomes = Outcomes::new();
    if !chosen.systems.is_empty() {
        outcomes.measure(request, &runs, audience)?;
    }
    let shape = outcomes.claims();
    let mut beside = vec![document()];
    if !outcomes.table.is_empty() {
        beside.push(outcomes.block());
    }
    Ok(Sheet {
        id: "002-fig14",
        title: "What becomes of locks that could be inherited".to_owned(),
        source: format!("{}, Figure 14 and section 8.4", beside::SCALING),
        expect: "Most locks on tables are cold: two processors seldom meet over one. With more clients \
                 on more processors more of them are hot and kept, and those kept are mostly used by \
                 the next transaction; updates of the same tables take few away, since IS and IX are \
                 compatible."
            .to_owned(),
        shape,
        notes: chosen.notes(),
        beside,
        pictures: Vec::new(),
        panels: Vec::new(),
        settings: request.listed(&runs),
        machine: Machine::here(),
        command: request.command.clone(),
    })
}

/// The rows of the table.
struct Outcomes {
    table: Table,
    trouble: Option<String>,
    /// Locks considered, and those of them that were kept and used.
    sums: [f64; 2],
}

impl Outcomes {
    fn new() -> Outcomes {
        Outcomes {
            table: Table::new([
                "workload",
                "locks",
                "clients",
                "considered",
                "a transaction",
                "cold",
                "wanted by others",
                "let go to see",
                "kept",
                "of these used",
                "discarded",
                "revoked",
            ]),
            trouble: None,
            sums: [0.0; 2],
        }
    }

    fn measure(
        &mut self,
        request: &Request,
        runs: &Runs,
        audience: Audience,
    ) -> Result<(), BenchError> {
        let uniform = request.shape(10, 20);
        let hotspot = Shape {
            hotspot: true,
            ..uniform.clone()
        };
        let shapes = [request.shape(10, 0), uniform, hotspot];
        let (mut subjects, runs) = txbench::load_all(&shapes[0], runs, audience)?;
        let plan = runs.plan();
        let points = (subjects.len() * runs.mpls.len()) as u32 * (shapes.len() as u32 + 1);
        let whole = (plan.ramp + plan.window) * points;
        let words = format!("measuring, about {} s", whole.as_secs() + 1);
        let (progress, mut past) = (audience.clock(&words, whole), Duration::ZERO);
        for shape in shapes {
            let name = format!("txbench, {}", shape.title());
            for subject in &mut subjects {
                subject.reshape(&shape);
                for &mpl in &runs.mpls {
                    let db = subject.database().clone();
                    self.point(&name, subject, &db, mpl, &runs, (&progress, &mut past));
                }
            }
        }
        let bank = Tpcb {
            scale: Scale {
                branches: 10,
                accounts_a_branch: request.rows.map_or(10_000, |rows| rows.min(10_000)),
            },
            choice: Choice::Remote,
            seed: 1,
        };
        for system in &runs.systems {
            let mut subject = Prepared::new(&bank, system, &runs, audience)?;
            for &mpl in &runs.mpls {
                let db = subject.database().clone();
                self.point(
                    "tpcb",
                    &mut subject,
                    &db,
                    mpl,
                    &runs,
                    (&progress, &mut past),
                );
            }
        }
        Ok(())
    }

    fn point(
        &mut self,
        workload: &str,
        subject: &mut impl Subject,
        db: &Database,
        mpl: u32,
        runs: &Runs,
        (progress, past): (&Progress, &mut Duration),
    ) {
        let (manager, latch) = subject.names();
        progress.now(&format!("{workload}, {manager}/{latch}, MPL {mpl}"));
        let plan = runs.plan();
        let before = db.stats();
        let clients = subject.clients(mpl);
        let mut guard = Guard::new(memory::available_bytes);
        let watch = |elapsed: Duration| {
            progress.at(*past + elapsed);
            guard.look(elapsed)
        };
        let result = driver::run(&plan, subject.kinds(), clients, watch);
        *past += plan.ramp + plan.window;
        let trouble = match result {
            Ok(run) => run.cut.map(|shortage| shortage.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(what) = trouble {
            self.trouble
                .get_or_insert_with(|| format!("{workload}, MPL {mpl}: {what}"));
            return;
        }
        let after = db.stats();
        let commits = (after.commits + after.read_only_commits)
            .saturating_sub(before.commits + before.read_only_commits);
        let [considered, shares @ ..] = shares(&before.locks, &after.locks);
        let [kept, used] = [shares[3], shares[4]];
        self.sums[0] += considered;
        self.sums[1] += considered * kept * used;
        let cells = [
            workload.to_owned(),
            format!("{manager}/{latch}"),
            mpl.to_string(),
            grouped(considered),
            format!("{:.2}", considered / (commits as f64).max(1.0)),
        ];
        let shares = shares.map(|share| format!("{:.1} %", share * 100.0));
        self.table.row(cells.into_iter().chain(shares));
    }

    fn claims(&self) -> shape::Shape {
        let [considered, used] = self.sums;
        let says = "only a small part of the locks that could be inherited is really used";
        shape::Shape(vec![match considered > 0.0 {
            true => {
                let share = used / considered * 100.0;
                let found = format!("{share:.1} % of those considered were kept and used");
                Claim::new(says, found, share < 25.0)
            }
            false => Claim::unseen(says, "nothing was considered"),
        }])
    }

    fn block(self) -> Block {
        let mut note = "Locks on tables that could have been left to the next transaction at the same \
                        place, and what became of them; used, discarded and revoked are shares of those \
                        kept. The counts begin with the clients, the ramp included."
            .to_owned();
        if let Some(what) = self.trouble {
            note += &format!(" Not measured: {what}");
        }
        Block {
            title: "Ours".to_owned(),
            note,
            table: self.table,
        }
    }
}

/// How many were considered; then the shares of them: cold, wanted, renewed, kept; then of those kept:
/// used, discarded, revoked.
fn shares(before: &LockStats, after: &LockStats) -> [f64; 8] {
    let (before, after) = (&before.inheritance, &after.inheritance);
    let count = |before: u64, after: u64| after.saturating_sub(before) as f64;
    let [cold, wanted, renewed, kept] = [
        count(before.cold, after.cold),
        count(before.wanted, after.wanted),
        count(before.renewed, after.renewed),
        count(before.kept, after.kept),
    ];
    let [used, discarded, revoked] = [
        count(before.used, after.used),
        count(before.discarded, after.discarded),
        count(before.revoked, after.revoked),
    ];
    let considered = cold + wanted + renewed + kept;
    let of = |part: f64, whole: f64| part / whole.max(1.0);
    [
        considered,
        of(cold, considered),
        of(wanted, considered),
        of(renewed, considered),
        of(kept, considered),
        of(used, kept),
        of(discarded, kept),
        of(revoked, kept),
    ]
}

fn document() -> Block {
    let mut table = Table::new(["in the document", "it shows"]);
    for row in [
        [
            "TATP, TPC-B, TPC-C",
            "shape: only a small part of the locks that could be inherited is really used",
        ],
        [
            "contention in the lock manager",
            "nearly gone nevertheless: few locks are hot at any moment, and those are inherited",
        ],
        [
            "critical sections without bound",
            "more than 20 % fewer (section 8.2); throughput 30 to 50 % higher on TATP (8.3)",
        ],
    ] {
        table.row(row.map(str::to_owned));
    }
    Block {
        title: "What the document shows: 64 hardware contexts".to_owned(),
        note: "From the text; the bars of the figure have no numbers.".to_owned(),
        table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_what_was_considered() {
        let before = LockStats::default();
        let mut after = LockStats::default();
        after.inheritance.cold = 60;
        after.inheritance.kept = 40;
        after.inheritance.used = 30;
        after.inheritance.revoked = 10;
        let [
            considered,
            cold,
            wanted,
            renewed,
            kept,
            used,
            discarded,
            revoked,
        ] = shares(&before, &after);
        assert!((considered - 100.0).abs() < 1e-9);
        assert!((cold + wanted + renewed + kept - 1.0).abs() < 1e-9);
        assert!((used - 0.75).abs() < 1e-9 && discarded == 0.0 && (revoked - 0.25).abs() < 1e-9);
    }
}
