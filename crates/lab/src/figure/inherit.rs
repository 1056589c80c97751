//! Locks that a transaction could leave to the next: figure 14 of document 002.

use std::time::Duration;

use foxton::inspect::LockStats;
use serde_json::{Value, json};

use super::{
    beside,
    request::Request,
    split,
    workload_figure::{ByForm, sweep},
};
use crate::{
    bench::{
        error::BenchError,
        runs::Runs,
        sweep::Subject,
        workload::{Prepared, suited},
    },
    driver,
    measure::{
        machine::Machine,
        memory::{self, Guard},
        spread::Spread,
    },
    progress::{Audience, Progress},
    report::{
        findings::Block,
        number::grouped,
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
    system::System,
};

const WANTED: [&str; 5] = [
    "bucket+inherit",
    "global+inherit",
    "staged+inherit",
    "sharded+inherit",
    "direct+inherit",
];
/// The document has as many clients as its machine has hardware contexts.
const CLIENTS: ByForm<&[u32]> = [&[2, 64], &[2, 32, 200], &[1, 2, 4, 8, 16, 32, 64]];
const MILLISECONDS: ByForm<u64> = [250, 500, 10_000];

/// Shares of the locks considered, by workload and number of clients.
pub(super) fn figure_14(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let mut chosen = request.chosen_of(&WANTED, false);
    chosen.systems.retain(System::is_locking);
    let mut runs = sweep(request, chosen.systems.clone(), CLIENTS, MILLISECONDS);
    // Growth of banks and warehouses does not matter to locks on their tables.
    runs.keep = true;
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
        title: "Locks that could be inherited".to_owned(),
        source: format!("{}, Figure 14 and section 8.4", beside::SCALING),
        expect: "Most locks on tables are cold: two processors seldom request one at the same time. With \
                 more clients on more processors, more locks are hot and kept, and the next transaction \
                 uses most of those. Updates of the same tables revoke few, because IS and IX are \
                 compatible."
            .to_owned(),
        shape,
        notes: chosen.notes(),
        beside,
        pictures: Vec::new(),
        panels: Vec::new(),
        settings: listed(request, &runs),
        machine: Machine::here(),
        command: request.command.clone(),
    })
}

fn listed(request: &Request, runs: &Runs) -> Vec<(&'static str, Value)> {
    let mut listed = vec![("form", json!(request.form())), runs.kept()];
    listed.extend(runs.listed());
    listed
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
                "released to test",
                "kept",
                "used of kept",
                "discarded",
                "revoked",
                "used of all",
                "min",
                "max",
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
        let workloads = split::benchmarks(request);
        let plan = runs.plan();
        let points = (runs.systems.len() * runs.mpls.len() * workloads.len()) as u32;
        let whole = (plan.ramp + plan.window) * points * runs.reps;
        let words = format!("measuring, about {} s", whole.as_secs() + 1);
        let (progress, mut past) = (audience.clock(&words, whole), Duration::ZERO);
        for workload in &workloads {
            let (name, runs) = (workload.about().name, &suited(workload.as_ref(), runs)?);
            let prepared =
                |system| Prepared::new(workload.as_ref(), system, runs, Audience::Nobody);
            progress.now(&format!("loading {name}"));
            let mut subjects = runs
                .systems
                .iter()
                .map(prepared)
                .collect::<Result<Vec<_>, _>>()?;
            let points = subjects.len() * runs.mpls.len();
            let mut found: Vec<Vec<Counts>> = vec![Vec::new(); points];
            // The systems take turns, so that each repetition has the same conditions.
            for _ in 0..runs.reps {
                let mut each = found.iter_mut();
                for &mpl in &runs.mpls {
                    for subject in &mut subjects {
                        let counts = self.point(name, subject, mpl, runs, (&progress, &mut past));
                        let point = each.next().expect("one for each point");
                        point.extend(counts);
                    }
                }
            }
            for subject in &mut subjects {
                subject.check().map_err(|what| BenchError::Wrong {
                    doing: format!("{name}, {}", subject.names().0),
                    what,
                })?;
            }
            let mut each = found.iter();
            for &mpl in &runs.mpls {
                for (subject, found) in subjects.iter().zip(each.by_ref()) {
                    let (manager, latch) = subject.names();
                    self.add_row(
                        [
                            name.to_owned(),
                            format!("{manager}/{latch}"),
                            mpl.to_string(),
                        ],
                        found,
                    );
                }
            }
        }
        Ok(())
    }

    /// Measures one run; `None` if it was cut short.
    fn point(
        &mut self,
        workload: &str,
        subject: &mut Prepared<'_>,
        mpl: u32,
        runs: &Runs,
        (progress, past): (&Progress, &mut Duration),
    ) -> Option<Counts> {
        let (manager, latch) = subject.names();
        progress.now(&format!("{workload}, {manager}/{latch}, MPL {mpl}"));
        let plan = runs.plan();
        let db = subject.database().clone();
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
            return None;
        }
        let after = db.stats();
        let commits = (after.commits + after.read_only_commits)
            .saturating_sub(before.commits + before.read_only_commits);
        let [considered, shares @ ..] = shares(&before.locks, &after.locks);
        Some(Counts {
            considered,
            each: considered / (commits as f64).max(1.0),
            shares,
        })
    }

    /// Adds a row: medians of the repetitions, and for used locks both extremes.
    fn add_row(&mut self, names: [String; 3], found: &[Counts]) {
        if found.is_empty() {
            return;
        }
        let median = |of: &dyn Fn(&Counts) -> f64| Spread::new(found.iter().map(of)).median();
        let used = Spread::new(found.iter().map(Counts::used));
        self.sums[0] += found.iter().map(|one| one.considered).sum::<f64>();
        self.sums[1] += found
            .iter()
            .map(|one| one.considered * one.used())
            .sum::<f64>();
        let cells = [
            grouped(median(&|one| one.considered)),
            format!("{:.2}", median(&|one| one.each)),
        ];
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let shares = (0..SHARES).map(|at| percent(median(&|one| one.shares[at])));
        let used = [used.median(), used.min(), used.max()].map(percent);
        let row = names.into_iter().chain(cells).chain(shares).chain(used);
        self.table.row(row);
    }

    fn claims(&self) -> Shape {
        let [considered, used] = self.sums;
        let says = "only a small part of the locks that could be inherited is used";
        Shape(vec![match considered > 0.0 {
            true => {
                let share = used / considered * 100.0;
                let found = format!("{share:.1} % of the locks considered were kept and used");
                Claim::new(says, found, "below 25 %", share < 25.0)
            }
            false => Claim::not_measured(says, "no lock was considered"),
        }])
    }

    fn block(self) -> Block {
        let mut note = "Locks on tables that could be left to the next transaction of the same worker. \
                        Used, discarded and revoked are shares of the locks kept; used of all is the \
                        share kept and used of those considered. Medians of the repetitions, and both \
                        extremes of the last. Counts include the ramp."
            .to_owned();
        if let Some(what) = self.trouble {
            note += &format!(" Not measured: {what}.");
        }
        Block {
            title: "Ours".to_owned(),
            note,
            table: self.table,
        }
    }
}

/// Counts of one run.
#[derive(Debug, Clone)]
struct Counts {
    considered: f64,
    /// Locks considered by each transaction.
    each: f64,
    shares: [f64; SHARES],
}

impl Counts {
    /// The share of the locks considered that were kept and used.
    fn used(&self) -> f64 {
        let [_, _, _, kept, used, ..] = self.shares;
        kept * used
    }
}

const SHARES: usize = 7;

/// Returns the number of locks considered; then shares of them: cold, wanted, renewed, kept; then
/// shares of those kept: used, discarded, revoked.
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
    let mut table = Table::new(["in the document", "its result"]);
    for row in [
        [
            "TATP, TPC-B, TPC-C",
            "shape: only a small part of the locks that could be inherited is used",
        ],
        [
            "contention in the lock manager",
            "nearly gone all the same: few locks are hot at any moment, and those are inherited",
        ],
        [
            "unbounded critical sections",
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
    fn shares_add_up_to_the_locks_considered() {
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
