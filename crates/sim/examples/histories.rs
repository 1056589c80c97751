//! Histories of any length, each checked twice:
//! `cargo run --release -p foxton-sim --example histories`.
//!
//! Random transactions of 1 to 64 threads, or of as many as `--threads` says, on few keys, on some
//! and on many, with every lock manager. Each history gets a replay of all that committed, and a
//! graph of dependencies. The level is serializable by default, and then nothing may be found, also
//! with readers at snapshots. At weaker levels nothing may be found that the level forbids; of all
//! levels side by side, nothing that breaks a promise. Half of the runs use a table with two
//! indexes. The rows are in memory, in pages of which few are in memory, or half of them in each.

mod common;

use common::{Arguments, Outcome, bar};
use foxton::device::MemoryDevice;
use foxton::{Database, Durability, Isolation, LockManagerKind, Options, TableComponent};
use foxton_sim::clients::{Levels, Plan, declare, run};
use foxton_sim::graph::{self, Name};
use foxton_sim::victim::set_small_pages;
use foxton_sim::{level::admits, replay::replay};
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HELP: &str = "\
Histories of random transactions, replayed and searched for circles.

  --transactions N  that commit, over all managers, threads and keys together [10000000]
  --seed N          what every choice is drawn from [1]
  --isolation NAME  the level of every transaction, or mixed, or readers: serializable ones, and
                    readers at snapshots [serializable]
  --indexed WHICH   yes, no or both: whether rows are found by indexes, too [both]
  --tables WHICH    memory, paged, or both: the rows with odd keys are in pages then, the others
                    in memory, and there are no indexes [memory]
  --manager NAME    only this lock manager
  --threads N       so many threads, up to 4000, and not 1, 2, 4, 8, 16, 32 and 64
  --round N         transactions judged at once, at most [50000]";

const THREADS: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Longest wait for a lock: far longer than any machine needs.
const LONGEST: Duration = Duration::from_secs(600);
const KEYS: [u64; 3] = [8, 200, 20_000];

/// Counts of one manager.
#[derive(Default)]
struct Sum {
    committed: u64,
    rolled_back: u64,
    deadlocks: u64,
    dependencies: u64,
    anomalies: BTreeMap<Name, u64>,
}

/// One level for all transactions, or each its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    All(Isolation),
    Readers,
    Mixed,
}

impl Level {
    fn drawn(self) -> Levels {
        match self {
            Level::All(_) => Levels::One,
            Level::Readers => Levels::Readers,
            Level::Mixed => Levels::Mixed,
        }
    }

    /// True if all answers are those of one order of the transactions.
    fn is_replayed(self) -> bool {
        match self {
            Level::All(level) => matches!(level, Isolation::Serializable | Isolation::Snapshot),
            Level::Readers | Level::Mixed => true,
        }
    }
}

impl FromStr for Level {
    type Err = <Isolation as FromStr>::Err;

    fn from_str(name: &str) -> Result<Level, Self::Err> {
        match name {
            "mixed" => Ok(Level::Mixed),
            "readers" => Ok(Level::Readers),
            name => name.parse().map(Level::All),
        }
    }
}

impl Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::All(level) => level.fmt(f),
            Level::Readers => f.write_str("serializable, with readers at snapshots"),
            Level::Mixed => f.write_str("mixed levels"),
        }
    }
}

/// Tables that have the rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tables {
    Memory,
    Paged,
    Both,
}

impl Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tables::Memory => "in memory",
            Tables::Paged => "in pages",
            Tables::Both => "in memory and in pages",
        })
    }
}

/// One manager with a number of threads and of keys.
struct Setting {
    level: Level,
    indexed: bool,
    tables: Tables,
    manager: LockManagerKind,
    threads: u16,
    keys: u64,
    seed: u64,
}

impl Setting {
    fn open(&self) -> foxton::Result<Database> {
        let mut options = Options::default();
        options.lock_manager = self.manager;
        // So that many collections come between the steps of a transaction.
        options.snapshot_linger = Duration::from_micros(200);
        if let Level::All(level) = self.level {
            options.isolation = level;
        }
        if self.indexed {
            declare(&mut options);
        }
        options.durability = Durability::None;
        if self.tables == Tables::Paged {
            options.component = TableComponent::Paged;
        }
        if self.tables != Tables::Memory {
            // A few hundred rows are in more pages than that.
            set_small_pages(&mut options, 32);
        }
        // A thread that waits this long has been forgotten; it was not only descheduled.
        options.lock_wait = LONGEST;
        Database::open_on(Arc::new(MemoryDevice::new()), options)
    }

    fn told(&self) -> String {
        let Setting {
            level,
            indexed,
            tables,
            manager,
            threads,
            keys,
            seed,
        } = self;
        let indexed = if *indexed { ", indexed" } else { "" };
        format!("{level}, {manager}, {threads} threads, {keys} keys {tables}{indexed}, seed {seed}")
    }

    /// Commits `count` transactions in rounds of `most`, and checks each round.
    fn run(&self, count: u64, most: u64, sum: &mut Sum, bar: &ProgressBar) -> Outcome {
        let db = self.open()?;
        let mut start = BTreeMap::new();
        let (mut left, mut round) = (count, 0);
        while left > 0 {
            let threads = u64::from(self.threads);
            let each = left.min(most).div_ceil(threads);
            let plan = Plan {
                seed: self.seed,
                clients: self.threads,
                count: each,
                keys: self.keys,
                steps: 6,
                width: 8,
                yields: if round % 2 == 0 { 0 } else { 8 },
                indexed: self.indexed,
                is_split: self.tables == Tables::Both,
                levels: self.level.drawn(),
            };
            // Each round has numbers of its own: clients run less than 2^24 transactions in one.
            let ran = run(&db, plan, start, round << 24)?;
            let wrong = |what: &dyn std::fmt::Display| format!("{}\n{what}", self.told());
            if ran.stalled > 0 {
                return Err(wrong(&format!("{} transactions stalled", ran.stalled)).into());
            }
            if self.level.is_replayed() {
                let end = replay(&ran.history).map_err(|anomaly| wrong(&anomaly))?;
                if end != ran.end {
                    return Err(wrong(&"the rows at the end are wrong").into());
                }
            }
            let findings = match self.level {
                Level::All(_) | Level::Readers => graph::check(&ran.history),
                Level::Mixed => graph::check_promised(&ran.history),
            };
            for (name, (count, story)) in findings.anomalies {
                let is_admitted = match self.level {
                    Level::All(level) => admits(level, name),
                    Level::Readers | Level::Mixed => false,
                };
                if !is_admitted {
                    return Err(wrong(&format!("{name}: {story}")).into());
                }
                *sum.anomalies.entry(name).or_default() += count;
            }
            let (committed, rolled_back) = ran.history.counts();
            sum.committed += committed;
            sum.rolled_back += rolled_back;
            sum.deadlocks += ran.deadlocks;
            sum.dependencies += findings.dependencies as u64;
            bar.inc(committed);
            left = left.saturating_sub(committed);
            (start, round) = (ran.end, round + 1);
        }
        Ok(())
    }
}

fn main() -> Outcome {
    let known = [
        "transactions",
        "seed",
        "isolation",
        "manager",
        "threads",
        "round",
        "indexed",
        "tables",
    ];
    let arguments = Arguments::read(0, &known, HELP)?;
    let count: u64 = arguments.get("transactions", 10_000_000)?;
    let seed: u64 = arguments.get("seed", 1)?;
    let level = arguments.get("isolation", Level::All(Isolation::Serializable))?;
    let most: u64 = arguments.get("round", 50_000)?;
    let managers = match arguments.find("manager")? {
        Some(manager) => vec![manager],
        None => LockManagerKind::ALL.to_vec(),
    };
    let threads = match arguments.find("threads")? {
        Some(threads @ 1..=4000) => vec![threads],
        Some(other) => return Err(format!("--threads takes 1 to 4000, and not {other}").into()),
        None => THREADS.to_vec(),
    };
    let tables = match &*arguments.get("tables", "memory".to_owned())? {
        "memory" => Tables::Memory,
        "paged" => Tables::Paged,
        "both" => Tables::Both,
        other => {
            return Err(format!("--tables takes memory, paged or both, and not {other}").into());
        }
    };
    let both = if tables == Tables::Both { "no" } else { "both" };
    let indexed = match &*arguments.get("indexed", both.to_owned())? {
        "yes" | "both" if tables == Tables::Both => {
            return Err("--tables both takes --indexed no: indexes are of one table".into());
        }
        "yes" => vec![true],
        "no" => vec![false],
        "both" => vec![false, true],
        other => return Err(format!("--indexed takes yes, no or both, and not {other}").into()),
    };
    let settings = managers.len() * threads.len() * KEYS.len() * indexed.len();
    let each = count.div_ceil(settings as u64);
    let bar = bar(each * settings as u64, "transactions")?;
    let begun = Instant::now();
    println!(
        "{:16} {:>10} {:>11} {:>10} {:>12}  anomalies",
        "manager", "committed", "rolled back", "deadlocks", "dependencies"
    );
    let mut total = 0;
    for &manager in &managers {
        let mut sum = Sum::default();
        let sizes = threads.iter().flat_map(|&t| KEYS.map(|k| (t, k)));
        for ((threads, keys), &indexed) in sizes.flat_map(|s| indexed.iter().map(move |i| (s, i))) {
            let setting = Setting {
                level,
                indexed,
                tables,
                manager,
                threads,
                keys,
                seed: seed ^ u64::from(threads) << 32 ^ keys,
            };
            bar.set_message(format!("{manager}, {threads} threads, {keys} keys"));
            setting.run(each, most, &mut sum, &bar)?;
        }
        total += sum.committed;
        let anomalies: Vec<String> = sum.anomalies.keys().map(Name::to_string).collect();
        let anomalies = match anomalies.is_empty() {
            true => "0".to_owned(),
            false => anomalies.join(", "),
        };
        let Sum {
            committed,
            rolled_back,
            deadlocks,
            dependencies,
            ..
        } = sum;
        println!(
            "{manager:16} {committed:>10} {rolled_back:>11} {deadlocks:>10} {dependencies:>12}  {anomalies}"
        );
    }
    bar.finish_and_clear();
    println!(
        "{total} transactions at {level} {tables}, seed {seed}, took {:.0?}",
        begun.elapsed()
    );
    Ok(())
}
