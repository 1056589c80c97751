//! An independent checker: histories of lists that are appended to, checked by `adya`, which knows
//! nothing of locks, of the log or of our own graph.
//!
//! A value is a list, and appending to it reads and writes it whole. So each read shows all appends
//! before it in order, and the checker derives the order of versions from that alone.

use adya::history::{Interner, Mop, Op, OpType, ReadValue, Scalar};
use adya::{History, Opts, Report, Valid, Workload, check};
use foxton::device::MemoryDevice;
use foxton::{Database, Durability, Error, Isolation, LockManagerKind, Options, Result, Table};
use foxton_sim::ledger::mix;
use std::sync::Arc;
use std::{collections::BTreeSet, thread, time::Duration, time::Instant};

const LISTS: Table<u64, [u8]> = Table::new("lists");
const CLIENTS: u64 = 6;

/// How an append reads the list that it writes.
#[derive(Clone, Copy)]
enum Appends {
    /// As its level reads, so that a weaker level loses appends.
    AsItsLevel,
    /// For update, so that no level loses any.
    ForUpdate,
}

/// A read or append, with the list that it saw.
enum Step {
    Read(u64, Vec<u64>),
    Append(u64, u64),
}

/// Begin, step or end of a transaction, with its time.
struct Event {
    at: Instant,
    client: u64,
    kind: OpType,
    steps: Vec<Step>,
}

fn list(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.chunks_exact(8);
    words
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect()
}

/// Runs `count` transactions of `client` that commit.
fn client(
    db: &Database,
    appends: Appends,
    client: u64,
    count: u64,
    seed: u64,
) -> Result<Vec<Event>> {
    let mut random = mix(seed ^ client << 40);
    let mut below = move |bound| {
        random = mix(random);
        random % bound
    };
    let (mut events, mut committed, mut next) = (Vec::new(), 0, client << 32);
    while committed < count {
        // The range of keys moves on, so that no list grows long.
        let first = committed / 25 * 4;
        let plan: Vec<Step> = (0..1 + below(4))
            .map(|_| match (first + below(4), below(2)) {
                (key, 0) => Step::Read(key, Vec::new()),
                (key, _) => {
                    next += 1;
                    Step::Append(key, next)
                }
            })
            .collect();
        let event = |kind, steps| Event {
            at: Instant::now(),
            client,
            kind,
            steps,
        };
        let asked = plan.iter().map(|step| match *step {
            Step::Read(key, _) => Step::Read(key, Vec::new()),
            Step::Append(key, element) => Step::Append(key, element),
        });
        events.push(event(OpType::Invoke, asked.collect()));
        let mut tx = db.begin()?;
        let run = plan.into_iter().map(|step| {
            if below(3) == 0 {
                thread::yield_now();
            }
            match step {
                Step::Read(key, _) => {
                    let found = tx.get(&LISTS, &key)?.unwrap_or_default();
                    Ok(Step::Read(key, list(&found)))
                }
                Step::Append(key, element) => {
                    let found = match appends {
                        Appends::AsItsLevel => tx.get(&LISTS, &key)?,
                        Appends::ForUpdate => tx.get_for_update(&LISTS, &key)?,
                    };
                    let mut found = found.unwrap_or_default();
                    found.extend_from_slice(&element.to_le_bytes());
                    tx.put(&LISTS, &key, &found)?;
                    Ok(Step::Append(key, element))
                }
            }
        });
        match run.collect::<Result<Vec<Step>>>() {
            Ok(steps) if below(10) > 0 => {
                tx.commit()?;
                events.push(event(OpType::Ok, steps));
                committed += 1;
            }
            Err(error @ (Error::Request(_) | Error::Storage(_))) => return Err(error),
            Ok(steps) => {
                tx.rollback();
                events.push(event(OpType::Fail, steps));
            }
            Err(_) => events.push(event(OpType::Fail, Vec::new())),
        }
    }
    Ok(events)
}

/// Returns the history in the order of the clock, as the checker takes it.
fn history(mut events: Vec<Event>) -> History {
    events.sort_by_key(|event| event.at);
    let mut interner = Interner::default();
    let mut id = |word: u64| interner.intern(Scalar::Int(word as i64));
    let ops = events.iter().zip(0..).map(|(event, index)| {
        let steps = event.steps.iter().map(|step| match step {
            Step::Append(key, element) => Mop::Append {
                key: id(*key),
                value: id(*element),
            },
            Step::Read(key, seen) => Mop::Read {
                key: id(*key),
                value: match event.kind {
                    OpType::Ok => {
                        ReadValue::List(seen.iter().map(|&element| id(element)).collect())
                    }
                    _ => ReadValue::Nil,
                },
            },
        });
        Op {
            index,
            kind: event.kind,
            process: Some(event.client as i64),
            value: steps.collect(),
            time: None,
        }
    });
    History::from_ops(ops.collect(), interner)
}

/// Returns the checker's result for `count` transactions of each client at `level`.
fn judge(
    manager: LockManagerKind,
    level: Isolation,
    appends: Appends,
    count: u64,
    seed: u64,
) -> Report {
    let mut options = Options::tiny();
    (options.lock_manager, options.lock_threads) = (manager, true);
    (options.isolation, options.durability) = (level, Durability::None);
    let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
    let events: Vec<Event> = thread::scope(|scope| {
        let db = &db;
        let run = |id| scope.spawn(move || client(db, appends, id, count, seed).unwrap());
        let clients: Vec<_> = (0..CLIENTS).map(run).collect();
        clients
            .into_iter()
            .flat_map(|client| client.join().expect("a client panicked"))
            .collect()
    });
    let opts = Opts {
        timeout: Duration::from_secs(10),
        ..Opts::default()
    };
    check(&history(events), Workload::ListAppend, &opts)
}

#[test]
fn lists_are_strictly_serializable_to_another_judge() {
    // Without reads of ranges, repeatable reads are all there is to it.
    for level in [Isolation::Serializable, Isolation::RepeatableRead] {
        for (manager, seed) in LockManagerKind::ALL.into_iter().zip(1..) {
            let report = judge(manager, level, Appends::AsItsLevel, 400, seed);
            let found = &report.anomaly_types;
            assert_eq!(report.valid, Valid::True, "{level}, {manager}: {found:?}");
        }
    }
}

/// Returns the anomalies that the checker finds in some histories at `level`.
fn found(level: Isolation, appends: Appends) -> BTreeSet<String> {
    let manager = LockManagerKind::default();
    let reports = (1..=20).map(|seed| judge(manager, level, appends, 100, seed));
    let types: BTreeSet<String> = reports.flat_map(|report| report.anomaly_types).collect();
    println!("{level}: {types:?}");
    types
}

#[test]
fn the_other_judge_sees_what_weaker_levels_let_through() {
    // Aborted (G1a) and intermediate (G1b) reads follow from the reads alone. Cycles follow from
    // the order of versions, and the checker puts an append that was never read after all others.
    // Where appends are lost, that is not the order in which they were written, and it sees cycles
    // that never were.
    let dirty = |types: &BTreeSet<String>| types.contains("G1a") || types.contains("G1b");
    let committed = found(Isolation::ReadCommitted, Appends::AsItsLevel);
    assert!(committed.contains("lost-update"), "{committed:?}");
    assert!(!dirty(&committed), "{committed:?}");
    let uncommitted = found(Isolation::ReadUncommitted, Appends::AsItsLevel);
    assert!(dirty(&uncommitted), "{uncommitted:?}");
}

#[test]
fn where_no_append_is_lost_committed_reads_close_no_cycle_of_writes_and_reads() {
    let types = found(Isolation::ReadCommitted, Appends::ForUpdate);
    // A transaction may read a list before the append that locks it. The checker takes the append
    // to be based on that first read, so it reports lost updates here too.
    let barred = |name: &String| {
        let names = ["G0", "G1", "dirty-update", "incompatible-order"];
        names.iter().any(|barred| name.starts_with(barred))
    };
    assert!(!types.iter().any(barred), "{types:?}");
}
