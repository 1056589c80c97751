//! Each isolation level allows the anomalies that it names, and no more: by the graph of histories
//! of many threads, with every lock manager.
//!
//! If all of them are found, the level is no stronger than it says, and the graph sees them. Nearly
//! every run of a level that allows an anomaly shows it (the counts are printed), and up to 400
//! runs are made. The cases show the same in fixed schedules.

use foxton::device::MemoryDevice;
use foxton::{Database, Durability, Isolation, LockManagerKind, Options};
use foxton_sim::clients::{Levels, Plan, declare, run};
use foxton_sim::graph::{self, Name};
use foxton_sim::level::{admits, expected};
use foxton_sim::replay::replay;
use foxton_sim::victim::set_small_pages;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Time between two collections: so short that many come between the steps of a transaction.
const OFTEN: Duration = Duration::from_micros(200);

/// Returns every anomaly found at `level` within this many rounds with each manager, or until all
/// that are expected have been found. Also returns in how many runs each was found, and how many
/// runs there were.
fn look(level: Isolation, rounds: u64) -> (BTreeMap<Name, u64>, u64) {
    let (mut found, mut runs) = (BTreeMap::new(), 0);
    let mut wanted = expected(level);
    for round in 0..rounds {
        for manager in LockManagerKind::ALL {
            let mut options = Options::tiny();
            (options.lock_manager, options.lock_threads) = (manager, true);
            options.durability = Durability::None;
            options.isolation = level;
            let indexed = round % 2 == 1;
            if indexed {
                declare(&mut options);
            }
            let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
            let plan = Plan {
                seed: round,
                clients: 6,
                count: 100,
                keys: 16,
                steps: 6,
                width: 6,
                yields: 3,
                indexed,
                is_split: false,
                levels: Levels::One,
            };
            let ran = run(&db, plan, BTreeMap::new(), 0).unwrap();
            if level == Isolation::Snapshot {
                let end = replay(&ran.history).unwrap_or_else(|what| panic!("{manager}: {what}"));
                assert_eq!(end, ran.end, "{manager}");
            }
            let findings = graph::check(&ran.history);
            for (&name, (_, story)) in &findings.anomalies {
                assert!(admits(level, name), "{name} at {level}, {manager}: {story}");
                wanted.retain(|class| *class != name.class);
                *found.entry(name).or_default() += 1;
            }
            runs += 1;
        }
        if round > 0 && wanted.is_empty() {
            break;
        }
    }
    assert!(wanted.is_empty(), "{wanted:?} is not seen at {level}");
    (found, runs)
}

/// Readers at handles of snapshots are serializable among serializable transactions: the graph
/// finds no circle of any kind, also by the clock.
#[test]
fn readers_at_snapshots_are_serializable_among_serializable_transactions() {
    for (manager, seed) in LockManagerKind::ALL.into_iter().zip(1..) {
        let mut options = Options::tiny();
        (options.lock_manager, options.lock_threads) = (manager, true);
        options.durability = Durability::None;
        options.lock_wait = Duration::from_secs(120);
        options.snapshot_linger = OFTEN;
        declare(&mut options);
        let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
        let mut start = BTreeMap::new();
        for round in 0..4 {
            let plan = Plan {
                seed,
                clients: 6,
                count: 100,
                keys: [6, 40][seed as usize % 2],
                steps: 6,
                width: 6,
                yields: 3,
                indexed: true,
                is_split: false,
                levels: Levels::Readers,
            };
            let ran = run(&db, plan, start, round << 24).unwrap();
            let findings = graph::check(&ran.history);
            assert!(findings.anomalies.is_empty(), "{manager}: {findings}");
            let end = replay(&ran.history).unwrap_or_else(|what| panic!("{manager}: {what}"));
            assert_eq!((end, ran.stalled), (ran.end.clone(), 0), "{manager}");
            start = ran.end;
        }
        assert_eq!(db.version_stats().ended, 0);
    }
}

/// Each transaction has what its level promises, by the order of commits and by the graph, whatever
/// the levels of the others are.
#[test]
fn each_transaction_has_what_its_own_level_promises_among_all_levels() {
    judge_all_levels(false);
}

#[test]
fn each_transaction_over_both_components_has_what_its_own_level_promises() {
    judge_all_levels(true);
}

/// Runs transactions of all levels with each lock manager. If `is_split`, rows with odd keys are in
/// pages, of which few are in memory.
fn judge_all_levels(is_split: bool) {
    for (manager, seed) in LockManagerKind::ALL.into_iter().zip(1..) {
        let mut options = Options::tiny();
        (options.lock_manager, options.lock_threads) = (manager, true);
        options.durability = Durability::None;
        // However slow the machine is, a wait as long as this is one that never ends.
        options.lock_wait = Duration::from_secs(120);
        options.snapshot_linger = OFTEN;
        match is_split {
            true => set_small_pages(&mut options, 16),
            false => declare(&mut options),
        }
        let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
        let mut start = BTreeMap::new();
        for round in 0..4 {
            let plan = Plan {
                seed,
                clients: 6,
                count: 100,
                keys: if is_split { 1_000 } else { 12 },
                steps: 6,
                width: 6,
                yields: 3,
                indexed: !is_split,
                is_split,
                levels: Levels::Mixed,
            };
            let ran = run(&db, plan, start, round << 24).unwrap();
            let findings = graph::check_promised(&ran.history);
            assert!(findings.anomalies.is_empty(), "{manager}: {findings}");
            let end = replay(&ran.history).unwrap_or_else(|what| panic!("{manager}: {what}"));
            assert_eq!((end, ran.stalled), (ran.end.clone(), 0), "{manager}");
            start = ran.end;
        }
        let pages = db.stats().pages;
        let is_evicting = pages.is_some_and(|pages| pages.evictions > 0);
        assert_eq!(is_evicting, is_split, "{pages:?}");
    }
}

#[test]
fn each_level_admits_what_it_says_and_no_more() {
    for level in Isolation::LOCKING.into_iter().chain([Isolation::Snapshot]) {
        let (found, runs) = look(
            level,
            if level == Isolation::Serializable {
                2
            } else {
                40
            },
        );
        let told = |(name, of): (&Name, &u64)| format!("{name} in {of}");
        let found: Vec<String> = found.iter().map(told).collect();
        println!("{level}, {runs} runs: {}", found.join(", "));
    }
}
