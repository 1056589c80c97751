//! Random transactions of many threads have the answers they would have had one after the other.
//!
//! Few keys make conflicts, many keys make gaps and leaves that split and go. Every lock manager
//! is tried; a failure prints the transaction, the step, and what it should have seen. The long form,
//! a million transactions: `cargo test --release -p foxton-sim --test serializable -- --ignored`.

use foxton::{Database, LockInheritance, LockManagerKind, Options};
use foxton_sim::history::{Plan, replay, rows, run};

fn try_all(first: u64, keys: u64, count: u64, steps: u64) {
    for (manager, seed) in LockManagerKind::ALL.into_iter().zip(first..) {
        let mut options = Options::tiny();
        (options.lock_manager, options.lock_threads) = (manager, true);
        options.lock_inheritance = LockInheritance::ALL[(seed % 3) as usize];
        options.durability = foxton::Durability::None;
        let db = Database::in_memory(options).unwrap();
        let plan = Plan {
            seed,
            clients: 8,
            count,
            keys,
            steps,
        };
        let history = run(&db, plan).unwrap();
        assert_eq!(history.len() as u64, 8 * count);
        let end =
            replay(&history).unwrap_or_else(|anomaly| panic!("{manager}, {plan:?}\n{anomaly}"));
        assert_eq!(rows(&db).unwrap(), end, "{manager}, {plan:?}");
    }
}

#[test]
fn on_eight_keys() {
    try_all(1, 8, 1_000, 4);
}

#[test]
fn on_a_hundred_keys() {
    try_all(1, 100, 2_000, 6);
}

#[test]
fn on_ten_thousand_keys() {
    try_all(1, 10_000, 1_500, 8);
}

#[test]
#[ignore = "takes minutes: cargo test --release -p foxton-sim --test serializable -- --ignored"]
fn a_million_transactions() {
    for seed in 1..=10 {
        try_all(seed * 10, 8, 1_000, 4);
        try_all(seed * 10, 100, 2_000, 6);
        try_all(seed * 10, 10_000, 1_500, 8);
    }
}
