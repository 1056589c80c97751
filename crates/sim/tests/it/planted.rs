//! The checkers find what they are for: each fault that can be injected into the engine is found,
//! and a database without one is clean under the same load.
//!
//! For each fault the test prints which checker found it, after how many transactions and how long,
//! and the graph's name for it.
//! `cargo test --release -p foxton-sim --features planted --test it planted:: -- --nocapture`

use foxton::device::MemoryDevice;
use foxton::{Database, Durability, LockManagerKind, Options, TableComponent, injected_fault};
use foxton_sim::clients::{Plan, declare, run};
use foxton_sim::{graph, replay::replay};
use foxton_sync::failpoint::Failpoint;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Faults that only the manager `direct` has.
const OF_DIRECT: [Failpoint; 7] = [
    injected_fault::GRANTED_TWICE,
    injected_fault::ANCHOR_IGNORED,
    injected_fault::QUEUE_IGNORED,
    injected_fault::CONVERTED_IGNORED,
    injected_fault::GRANT_UNCONFIRMED,
    injected_fault::BORN_FREE,
    injected_fault::ANCHOR_KEPT,
];

/// Faults that only paged tables have.
const OF_PAGES: [Failpoint; 1] = [injected_fault::PURGE_UNLOCKED];

/// Faults of operations that paged tables have too.
const OF_BOTH: [Failpoint; 13] = [
    injected_fault::GAPS_UNLOCKED,
    injected_fault::BOUND_UNLOCKED,
    injected_fault::MISS_UNLOCKED,
    injected_fault::SHARED_RELEASED,
    injected_fault::SHARED_IGNORED,
    injected_fault::UPDATE_IGNORED,
    injected_fault::UPGRADE_IGNORED,
    injected_fault::INTENTION_IGNORED,
    injected_fault::HALF_UNLOCKED,
    injected_fault::LOOKUP_NOT_REPEATED,
    injected_fault::UNLOCK_BEFORE_UNDO,
    injected_fault::UNDO_IN_ORDER,
    injected_fault::UNDO_FORGOTTEN,
];

/// An anomaly, and after how many transactions it was found.
struct Found {
    by: Vec<String>,
    transactions: u64,
}

/// Runs round after round, each with another lock manager, until a checker finds something.
fn look(fault: Option<Failpoint>, component: TableComponent, rounds: u64) -> Option<Found> {
    let mut transactions = 0;
    for round in 0..rounds {
        let mut options = Options::tiny();
        let kinds = match fault {
            Some(fault) if OF_DIRECT.contains(&fault) => &[LockManagerKind::Direct][..],
            _ => &LockManagerKind::ALL,
        };
        options.lock_manager = kinds[round as usize % kinds.len()];
        options.durability = Durability::None;
        options.lock_threads = true;
        // A thread that is not woken wakes up when the wait would end anyway; a busy machine is not
        // that slow.
        options.lock_wait = match fault {
            Some(fault) if fault == injected_fault::WAKE_UP_LOST => Duration::from_millis(100),
            _ => Duration::from_secs(5),
        };
        // Pages of 1 KiB in a few more frames than the rows have pages.
        options.component = component;
        (options.page_bytes, options.page_memory) = (1 << 10, 32 * 1_300);
        // Paged tables have no indexes yet.
        let indexed = round % 2 == 1 && component == TableComponent::Resident;
        if indexed {
            declare(&mut options);
        }
        let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
        if let Some(fault) = fault {
            db.failpoints().arm(&fault);
        }
        let plan = Plan {
            seed: round,
            clients: 6,
            count: 150,
            keys: if round % 2 == 0 { 8 } else { 24 },
            steps: 6,
            width: 6,
            yields: 3,
            indexed,
            mixed: false,
        };
        let ran = match run(&db, plan, BTreeMap::new(), 0) {
            Ok(ran) => ran,
            Err(error) => {
                let by = vec![format!("a client: {error}")];
                transactions += u64::from(plan.clients) * plan.count;
                return Some(Found { by, transactions });
            }
        };
        transactions += ran.history.counts().0;
        let mut by = Vec::new();
        match replay(&ran.history) {
            Err(_) => by.push("replay".to_owned()),
            Ok(end) if end != ran.end => by.push("rows at the end".to_owned()),
            Ok(_) => {}
        }
        if ran.stalled > 0 {
            by.push(format!("{} stalled", ran.stalled));
        }
        by.extend(graph::check(&ran.history).names());
        if !by.is_empty() {
            return Some(Found { by, transactions });
        }
    }
    None
}

#[test]
fn every_planted_fault_is_found() {
    println!("{:20} {:>7} {:>8}  found by", "fault", "commits", "seconds");
    let mut missed = Vec::new();
    let resident = injected_fault::ALL
        .into_iter()
        .filter(|fault| !OF_PAGES.contains(fault))
        .map(|fault| (fault, TableComponent::Resident));
    let paged = OF_PAGES.into_iter().chain(OF_BOTH);
    let paged = paged.map(|fault| (fault, TableComponent::Paged));
    for (fault, component) in resident.chain(paged) {
        let start = Instant::now();
        let Some(found) = look(Some(fault), component, 400) else {
            missed.push((fault, component));
            println!(
                "{component} {fault:20} {:>7} {:>8.2}  none",
                "",
                start.elapsed().as_secs_f64()
            );
            continue;
        };
        println!(
            "{component} {fault:20} {:>7} {:>8.2}  {}",
            found.transactions,
            start.elapsed().as_secs_f64(),
            found.by.join(", "),
        );
    }
    assert!(missed.is_empty(), "no checker found {missed:?}");
}

#[test]
fn without_a_fault_nothing_is_found() {
    for component in TableComponent::ALL {
        if let Some(found) = look(None, component, 20) {
            panic!("{component}: {:?}", found.by);
        }
    }
}
