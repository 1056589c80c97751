//! Random transactions of many threads get the answers they would get one after the other.
//!
//! Few keys make conflicts; many keys make gaps, and leaves that split and disappear. Every lock
//! manager is tested with a few threads, and some with 512. A failure prints the transaction, the
//! step, and the right answer. The long form, with any number of threads and transactions, is an
//! example: `cargo run --release -p foxton-sim --example histories -- --threads 512`.

use foxton::device::MemoryDevice;
use foxton::{Database, Durability, LockInheritance, LockManagerKind, Options, TableComponent};
use foxton_sim::clients::{Levels, Plan, declare, run};
use foxton_sim::graph;
use foxton_sim::replay::replay;
use foxton_sim::victim::set_small_pages;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn try_all(first: u64, keys: u64, count: u64, steps: u64) {
    try_with(first, keys, count, steps, |_| ());
}

fn try_with(first: u64, keys: u64, count: u64, steps: u64, change: fn(&mut Options)) {
    for (manager, seed) in LockManagerKind::ALL.into_iter().zip(first..) {
        let mut options = Options::tiny();
        (options.lock_manager, options.lock_threads) = (manager, true);
        options.lock_inheritance = LockInheritance::ALL[(seed % 3) as usize];
        options.durability = Durability::None;
        // However slow the machine is, a wait as long as this is one that never ends.
        options.lock_wait = Duration::from_secs(120);
        change(&mut options);
        let indexed = seed % 4 < 2;
        if indexed {
            declare(&mut options);
        }
        let db = Database::open_on(Arc::new(MemoryDevice::new()), options.clone()).unwrap();
        let mut plan = Plan {
            seed,
            clients: 8,
            count: count / 2,
            keys,
            steps,
            width: keys / 8,
            yields: seed % 2 * 8,
            indexed,
            is_split: false,
            levels: Levels::One,
        };
        // The second half begins where the first ended, with other clients.
        let mut start = BTreeMap::new();
        for part in 0..2 {
            let ran = run(&db, plan, start, part << 32).unwrap();
            let is_bounded = options.lock_escalation < 100;
            let locks = db.stats().locks;
            assert!(
                !is_bounded || locks.escalations > 0 && locks.traded > 0,
                "{manager}"
            );
            assert_eq!(ran.history.counts().0, u64::from(plan.clients) * plan.count);
            assert_eq!(ran.stalled, 0, "{manager}, {plan:?}");
            let end = replay(&ran.history)
                .unwrap_or_else(|anomaly| panic!("{manager}, {plan:?}\n{anomaly}"));
            assert_eq!(ran.end, end, "{manager}, {plan:?}");
            (start, plan.clients) = (end, 12);
            plan.count = plan.count * 8 / 12;
        }
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

/// Pages of 1 KiB in sixteen frames, so that most operations wait for pages.
fn in_pages(options: &mut Options) {
    options.component = TableComponent::Paged;
    set_small_pages(options, 16);
}

#[test]
fn on_eight_keys_in_pages() {
    try_with(1, 8, 1_000, 4, in_pages);
}

#[test]
fn on_a_hundred_keys_in_pages() {
    try_with(1, 100, 2_000, 6, in_pages);
}

#[test]
fn on_two_thousand_keys_in_pages() {
    try_with(1, 2_000, 500, 8, in_pages);
}

#[test]
#[ignore = "takes minutes: cargo test --release -p foxton-sim --test it serializable:: -- --ignored"]
fn on_two_thousand_keys_in_pages_for_longer() {
    try_with(1, 2_000, 15_000, 8, in_pages);
}

/// Short histories, of which many are over soon after the first write has made the table.
#[test]
fn on_a_table_that_does_not_exist_at_first() {
    for first in 1..=20 {
        try_all(100 * first, 6, 6, 4);
        try_with(100 * first, 6, 6, 4, in_pages);
    }
}

/// Keys are exchanged for table locks all the time, by a transaction alone, or because all together
/// hold too many.
#[test]
fn where_there_is_room_for_few_locks() {
    let few = |options: &mut Options| {
        options.lock_escalation = 5;
        options.transaction_lock_bytes = 12 * 96;
        options.lock_bytes = 60 * 96;
    };
    try_with(5, 60, 600, 8, few);
}

/// Far more threads than processors, with a database of default options, and with the managers that
/// differ most from the default.
#[test]
fn of_five_hundred_and_twelve_threads() {
    let usual = Options::default().lock_manager;
    let managers = [usual, LockManagerKind::Staged, LockManagerKind::Sharded];
    for (manager, seed) in managers.into_iter().zip(1..) {
        for keys in [20, 500] {
            let mut options = Options::default();
            options.lock_manager = manager;
            options.durability = Durability::None;
            options.lock_wait = Duration::from_secs(600);
            declare(&mut options);
            let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
            let plan = Plan {
                seed,
                clients: 512,
                count: 4,
                keys,
                steps: 5,
                width: 8,
                yields: 8,
                indexed: true,
                is_split: false,
                levels: Levels::One,
            };
            let ran = run(&db, plan, BTreeMap::new(), 0).unwrap();
            let what = format!("{manager}, {plan:?}");
            assert_eq!(ran.history.counts().0, 512 * plan.count, "{what}");
            assert_eq!(ran.stalled, 0, "{what}");
            let waits = db.stats().locks.waits;
            assert!(waits >= 512, "{waits} waits show little: {what}");
            let end = replay(&ran.history).unwrap_or_else(|anomaly| panic!("{what}\n{anomaly}"));
            assert_eq!(ran.end, end, "{what}");
            let found = graph::check(&ran.history);
            assert!(found.anomalies.is_empty(), "{what}: {:?}", found.anomalies);
            println!(
                "{manager}, {keys} keys: {} transactions, {waits} waits, {} deadlocks, {} dependencies",
                ran.history.counts().0,
                ran.deadlocks,
                found.dependencies
            );
        }
    }
}
