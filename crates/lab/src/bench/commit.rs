//! Cost of a commit, and commits for each sync of the device.
//!
//! A transaction adds one to a counter in a row of 100 bytes. Either each client has a row of its
//! own, so that clients share only the log, or all have the same row. Then each client waits until
//! the one before releases its lock: if locks are held until a commit is durable, each sync carries
//! one commit.

use std::fmt;

use foxton::{Database, Durability, Table as Rows, inspect::LogStats};
use foxton_sync::shim::{Arc, AtomicU64, Ordering::Relaxed};
use serde_json::json;

use super::{
    error::BenchError,
    runs::Runs,
    scratch::Scratch,
    sweep::{Subject, Sweep},
};
use crate::{
    driver::Client,
    measure::{
        curve::Curve,
        machine::Machine,
        outcome::{Ended, Outcome},
    },
    progress::Audience,
    random::Random,
    report::{
        findings::{Block, Findings},
        number::grouped,
        table::Table,
    },
    workload::attempt::{Failure, until_committed},
};

/// Settings of the measurement. Only the first system is used; durability comes from
/// [`Settings::compared`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// The variants of commits to compare.
    pub compared: Vec<Variant>,
    /// The runs.
    pub runs: Runs,
}

/// One variant of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// The durability.
    pub durability: Durability,
    /// True if all clients update one row.
    pub one_row: bool,
    /// True if locks are released before the commit is durable.
    pub early_release: bool,
}

impl Variant {
    /// The default variants: each durability with a row for each client, and *sync* with one row,
    /// with locks released early and with locks held.
    pub fn usual(durabilities: &[Durability]) -> Vec<Variant> {
        let own = durabilities.iter().map(|&durability| Variant {
            durability,
            one_row: false,
            early_release: true,
        });
        let mut all: Vec<Variant> = own.collect();
        if durabilities.contains(&Durability::Sync) {
            all.extend([true, false].map(|early_release| Variant {
                durability: Durability::Sync,
                one_row: true,
                early_release,
            }));
        }
        all
    }

    fn note(self) -> String {
        let rows = if self.one_row { "one row" } else { "own rows" };
        match self.early_release {
            true => rows.to_owned(),
            false => format!("{rows}, locks held"),
        }
    }
}

const COUNTERS: Rows<u64, [u8]> = Rows::new("counters");
const ROW_BYTES: usize = 100;
const KINDS: &[&str] = &["commit"];

/// Measures commits.
///
/// # Errors
///
/// If the settings contradict each other, or the databases cannot be made.
pub fn run(settings: &Settings, audience: Audience) -> Result<Findings, BenchError> {
    let runs = settings.runs.tidied(0, 0)?;
    let counters = |&variant| Counters::new(variant, &runs);
    let mut subjects: Vec<Counters> = settings
        .compared
        .iter()
        .map(counters)
        .collect::<Result<_, _>>()?;
    let sweep = Sweep {
        mpls: runs.mpls.clone(),
        reps: runs.reps,
        plan: runs.plan(),
        split: runs.split,
    };
    let mut curves = sweep.run(&mut subjects, audience);
    for (curve, subject) in curves.iter_mut().zip(&subjects) {
        let of = |mpl| subject.spent(mpl).commits_per_sync();
        let per_sync: Vec<_> = curve.points.iter().map(|point| of(point.mpl)).collect();
        curve.facts = vec![("commits_per_sync", json!(per_sync))];
    }
    let mut listed = vec![("row_bytes", json!(ROW_BYTES))];
    listed.extend(
        runs.listed()
            .into_iter()
            .filter(|(name, _)| *name != "durability"),
    );
    Ok(Findings {
        workload: "commit".to_owned(),
        variant: String::new(),
            title: "Commits".to_owned(),
        description:
            "A transaction adds one to a counter in a row of 100 bytes. Either each client has a row of \
             its own, or all have the same."
                .to_owned(),
        checked: "after each run the counters add up to the acknowledged commits.".to_owned(),
        command: runs.command.clone(),
        settings: listed,
        machine: Machine::here(),
        blocks: vec![shares(&curves, &subjects)],
        curves,
        timelines: Vec::new(),
        event: None,
        blocks_have_points: true,
    })
}

/// Commits and the writes and syncs of the log, ramps included.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    commits: u64,
    writes: u64,
    syncs: u64,
}

impl Spent {
    /// `None` if there was no sync.
    fn commits_per_sync(self) -> Option<f64> {
        (self.syncs > 0).then(|| self.commits as f64 / self.syncs as f64)
    }
}

/// A database of counters.
struct Counters {
    scratch: Scratch,
    variant: Variant,
    acknowledged: Arc<AtomicU64>,
    /// Before the current run: its clients, the acknowledged commits, and the log's counts.
    running: u32,
    known: u64,
    before: LogStats,
    /// By number of clients.
    spent: Vec<(u32, Spent)>,
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters")
            .field("variant", &self.variant)
            .finish_non_exhaustive()
    }
}

impl Counters {
    fn new(variant: Variant, runs: &Runs) -> Result<Counters, BenchError> {
        let system = runs.systems.first().cloned();
        let system = system.ok_or_else(|| {
            BenchError::Settings("no system is named; name one with --locks".to_owned())
        })?;
        let watched = runs.watched(&system);
        let scratch = Scratch::opened(
            system,
            runs.directory.as_deref(),
            watched.as_deref(),
            |options| {
                options.durability = variant.durability;
                options.early_release = variant.early_release;
            },
        )?;
        let before = scratch.db.stats().log;
        Ok(Counters {
            scratch,
            variant,
            acknowledged: Arc::default(),
            running: 0,
            known: 0,
            before,
            spent: Vec::new(),
        })
    }

    fn spent(&self, mpl: u32) -> Spent {
        let of = |(of, _): &&(u32, Spent)| *of == mpl;
        self.spent
            .iter()
            .find(of)
            .map_or(Spent::default(), |(_, spent)| *spent)
    }

    fn note_spent(&mut self, mpl: u32, commits: u64) {
        let now = self.scratch.db.stats().log;
        let place = self.spent.iter().position(|(of, _)| *of == mpl);
        let place = place.unwrap_or_else(|| {
            self.spent.push((mpl, Spent::default()));
            self.spent.len() - 1
        });
        let spent = &mut self.spent[place].1;
        spent.commits += commits;
        spent.writes += now.writes - self.before.writes;
        spent.syncs += now.syncs - self.before.syncs;
    }
}

struct Counter {
    db: Database,
    row: u64,
    random: Random,
    acknowledged: Arc<AtomicU64>,
    committed: u64,
}

impl Client for Counter {
    fn transaction(&mut self) -> Ended {
        let row = self.row;
        let ended = until_committed(&self.db, (KINDS, 0), &mut self.random, |tx| {
            let found = tx.get_for_update(&COUNTERS, &row)?;
            let mut bytes = found.unwrap_or_else(|| vec![0; ROW_BYTES]);
            let count = count(&bytes).ok_or_else(|| Failure::Wrong("a short row".to_owned()))?;
            bytes[..8].copy_from_slice(&(count + 1).to_le_bytes());
            Ok(tx.put(&COUNTERS, &row, &bytes)?)
        });
        self.committed += u64::from(ended.outcome == Outcome::Ok);
        ended
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.acknowledged.fetch_add(self.committed, Relaxed);
    }
}

fn count(row: &[u8]) -> Option<u64> {
    row.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

impl Subject for Counters {
    fn names(&self) -> (String, String) {
        (self.variant.durability.to_string(), "-".to_owned())
    }

    fn note(&self) -> String {
        self.variant.note()
    }

    fn largest_mpl(&self) -> u32 {
        self.scratch.largest_mpl()
    }

    fn kinds(&self) -> &'static [&'static str] {
        KINDS
    }

    fn clients(&mut self, mpl: u32) -> Vec<Box<dyn Client>> {
        self.before = self.scratch.db.stats().log;
        self.known = self.acknowledged.load(Relaxed);
        self.running = mpl;
        let client = |number: u32| {
            let client = Counter {
                db: self.scratch.db.clone(),
                row: if self.variant.one_row {
                    0
                } else {
                    u64::from(number)
                },
                random: Random::seeded(&[u64::from(number)]),
                acknowledged: self.acknowledged.clone(),
                committed: 0,
            };
            Box::new(client) as Box<dyn Client>
        };
        (0..mpl).map(client).collect()
    }

    fn check(&mut self) -> Result<(), String> {
        let acknowledged = self.acknowledged.load(Relaxed);
        self.note_spent(self.running, acknowledged - self.known);
        let mut sum = 0;
        let read = self.scratch.db.run(|tx| {
            sum = 0;
            let rows = tx.range(&COUNTERS, ..);
            rows.for_each(|_, row| sum += count(&row).unwrap_or(0))
        });
        read.map_err(|error| error.to_string())?;
        match sum == acknowledged {
            true => Ok(()),
            false => Err(format!(
                "{acknowledged} commits were acknowledged, but the counters add up to {sum}"
            )),
        }
    }

    fn diagnose(&self) -> String {
        self.scratch.diagnose()
    }
}

fn shares(curves: &[Curve], subjects: &[Counters]) -> Block {
    let mut table = Table::new([
        "commits",
        "clients",
        "commits/s",
        "÷ fewest clients",
        "median",
        "99 %",
        "commits/sync",
        "commits/write",
    ]);
    for (curve, subject) in curves.iter().zip(subjects) {
        let one = curve.points.first().map(|point| point.tps().median());
        for point in &curve.points {
            let (tps, latency, spent) = (
                point.tps().median(),
                point.latency(),
                subject.spent(point.mpl),
            );
            let ratio = |over: u64| match over {
                0 => "-".to_owned(),
                over => format!("{:.1}", spent.commits as f64 / over as f64),
            };
            table.row([
                curve.label(),
                point.mpl.to_string(),
                grouped(tps),
                one.filter(|&one| one > 0.0)
                    .map_or("-".to_owned(), |one| format!("{:.1}", tps / one)),
                format!("{} us", grouped(latency.quantile_us(0.5))),
                format!("{} us", grouped(latency.quantile_us(0.99))),
                ratio(spent.syncs),
                ratio(spent.writes),
            ]);
        }
    }
    Block {
        title: "Commits for each sync".to_owned(),
        note: "Commits for each sync of the log and for each write to it, ramps included. `÷ fewest clients` \
               is throughput divided by that of the smallest number of clients."
            .to_owned(),
        table,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        system::{Locks, System},
        threads,
    };

    const CLIENTS: u32 = 16;
    const EACH: u32 = 20;

    fn counters(early_release: bool) -> Counters {
        let runs = Runs {
            systems: vec![System::new(Locks::Default, None)],
            mpls: vec![CLIENTS],
            reps: 1,
            ramp: Duration::ZERO,
            window: Duration::ZERO,
            durability: Durability::Sync,
            directory: None,
            observe: None,
            split: false,
            keep: true,
            command: String::new(),
        };
        let variant = Variant {
            durability: Durability::Sync,
            one_row: true,
            early_release,
        };
        Counters::new(variant, &runs).unwrap()
    }

    /// Every client commits this many times; returns the counts so far.
    fn round(counters: &mut Counters) -> Spent {
        let run = |mut client: Box<dyn Client>| {
            move || (0..EACH).for_each(|_| assert_eq!(client.transaction().outcome, Outcome::Ok))
        };
        let clients = counters.clients(CLIENTS).into_iter().map(run);
        threads::together(clients.collect(), || ()).unwrap();
        assert_eq!(counters.check(), Ok(()));
        counters.spent(CLIENTS)
    }

    #[test]
    fn commits_to_one_row_share_a_sync_only_if_locks_are_released_early() {
        // A client gets the row after the commit before is on the device, so each commit has a
        // sync. The last sync may be counted after its waiters have been woken.
        let held = round(&mut counters(false));
        assert_eq!(held.commits, u64::from(CLIENTS * EACH));
        assert!(held.syncs + 1 >= held.commits, "{held:?}");
        // With early release two commits share a sync sooner or later, on any machine.
        let mut early = counters(true);
        let share = (0..1_000).any(|_| {
            let spent = round(&mut early);
            spent.syncs + 1 < spent.commits
        });
        assert!(share, "{:?}", early.spent(CLIENTS));
    }
}
