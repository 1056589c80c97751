//! The checkers find what they are for: each fault that can be injected into the engine is found,
//! and a database without one is clean under the same load.
//!
//! For each fault the test prints which checker found it, after how many transactions and how long,
//! and the graph's name for it.
//! `cargo test --release -p foxton-sim --features planted --test it planted:: -- --nocapture`

use foxton::device::MemoryDevice;
use foxton::{Database, Durability, LockManagerKind, Options, injected_fault};
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

/// An anomaly, and after how many transactions it was found.
struct Found {
    by: Vec<String>,
    transactions: u64,
}

/// Runs round after round, each with another lock manager, until a checker finds something.
fn look(fault: Option<Failpoint>, rounds: u64) -> Option<Found> {
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
        let indexed = round % 2 == 1;
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
    for fault in injected_fault::ALL {
        let start = Instant::now();
        let Some(found) = look(Some(fault), 400) else {
            missed.push(fault);
            println!(
                "{fault:20} {:>7} {:>8.2}  none",
                "",
                start.elapsed().as_secs_f64()
            );
            continue;
        };
        println!(
            "{fault:20} {:>7} {:>8.2}  {}",
            found.transactions,
            start.elapsed().as_secs_f64(),
            found.by.join(", "),
        );
    }
    assert!(missed.is_empty(), "no checker found {missed:?}");
}

#[test]
fn without_a_fault_nothing_is_found() {
    if let Some(found) = look(None, 20) {
        panic!("{:?}", found.by);
    }
}
