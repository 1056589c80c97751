//! Each isolation level lets through what it says it does, and no more: over every lock manager, what the graph
//! finds in histories of many threads.
//!
//! That it finds all of it shows that the level is no stronger than it says, and that the graph sees.

use foxton::{Database, Durability, Isolation, LockManagerKind, Options};
use foxton_sim::clients::{Plan, run};
use foxton_sim::graph::{self, Name};
use foxton_sim::level::{admits, expected};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is found at `level` within so many rounds over each manager, or until all that is
/// expected has been.
fn look(level: Isolation, rounds: u64) -> BTreeSet<Name> {
    let mut found = BTreeSet::new();
    let mut wanted = expected(level);
    for round in 0..rounds {
        for manager in LockManagerKind::ALL {
            let mut options = Options::tiny();
            (options.lock_manager, options.lock_threads) = (manager, true);
            options.durability = Durability::None;
            options.isolation = level;
            let db = Database::in_memory(options).unwrap();
            let plan = Plan {
                seed: round,
                clients: 6,
                count: 100,
                keys: 16,
                steps: 6,
                width: 6,
                yields: 3,
            };
            let ran = run(&db, plan, BTreeMap::new(), 0).unwrap();
            let findings = graph::check(&ran.history);
            for (&name, (_, story)) in &findings.anomalies {
                assert!(admits(level, name), "{name} at {level}, {manager}: {story}");
                wanted.retain(|class| *class != name.class);
                found.insert(name);
            }
        }
        if round > 0 && wanted.is_empty() {
            break;
        }
    }
    assert!(wanted.is_empty(), "{wanted:?} is not seen at {level}");
    found
}

#[test]
fn each_level_admits_what_it_says_and_no_more() {
    for level in Isolation::ALL {
        let found = look(
            level,
            if level == Isolation::Serializable {
                2
            } else {
                40
            },
        );
        let found: Vec<String> = found.iter().map(Name::to_string).collect();
        println!("{level}: {}", found.join(", "));
    }
}
