//! The checkers find what they are for: each fault that can be injected into the engine is found,
//! and a database without one is clean under the same load.
//!
//! For each fault the test prints which checker found it, after how many transactions and how long,
//! and the graph's name for it.
//! `cargo test --release -p foxton-sim --features planted --test it planted:: -- --nocapture`

use foxton::device::MemoryDevice;
use foxton::{
    Database, Durability, LockManagerKind, Options, Table, TableComponent, injected_fault,
};
use foxton_log::device::Device;
use foxton_sim::clients::{Levels, Plan, declare, run};
use foxton_sim::components::Setting;
use foxton_sim::components::cuts::{Damages, Tally};
use foxton_sim::components::load::Run;
use foxton_sim::crash::record_on;
use foxton_sim::history::{End, History, Kept, Record, Step, Version, Written};
use foxton_sim::victim::{self, Honesty};
use foxton_sim::{graph, replay::replay};
use foxton_sync::failpoint::{Failpoint, Failpoints};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
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
const OF_PAGES: [Failpoint; 3] = [
    injected_fault::PURGE_UNLOCKED,
    injected_fault::PURGE_GAP_UNLOCKED,
    injected_fault::NEW_ENTRY_UNLOCKED,
];

/// Faults of operations that paged tables have too.
const OF_BOTH: [Failpoint; 17] = [
    injected_fault::GAPS_UNLOCKED,
    injected_fault::BOUND_UNLOCKED,
    injected_fault::MISS_UNLOCKED,
    injected_fault::SHARED_RELEASED,
    injected_fault::SHARED_IGNORED,
    injected_fault::UPDATE_IGNORED,
    injected_fault::ENTRY_GAP_UNLOCKED,
    injected_fault::NAME_MISS_UNLOCKED,
    injected_fault::OLD_ENTRY_UNLOCKED,
    injected_fault::ENTRY_KEPT,
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

const ROWS: Table<u64, u64> = Table::new("rows");

/// A reader holds a key and reads it again, and a writer comes in between. The database was just
/// opened, so the manager `direct` only remembers the lock of the reader, and the writer converts
/// it. Threads seldom meet so: once a lock was converted, others are remembered only after a while.
fn write_beside_a_remembered_lock(fault: Option<Failpoint>) -> foxton::Result<History> {
    let mut options = Options::tiny();
    options.lock_manager = LockManagerKind::Direct;
    options.durability = Durability::None;
    let device = Arc::new(MemoryDevice::new());
    let [mut loader, mut reader, mut writer] = [0, 1, 2].map(|client| Record::new(client, 0));
    let wrote = |record: &mut Record| {
        let version = record.version();
        record.note(Step::Put(1, version, Written::Done));
        version.value()
    };
    loader.begin(0);
    let loaded = wrote(&mut loader);
    let db = Database::open_on(device.clone(), options.clone())?;
    let mut tx = db.begin()?;
    tx.put(&ROWS, &1, &loaded)?;
    loader.end(End::Committed(tx.commit_at()?.bytes()), 1);
    db.close()?;

    let db = Database::open_on(device, options)?;
    if let Some(fault) = fault {
        db.failpoints().arm(&fault);
    }
    let read = |tx: &mut foxton::Transaction, record: &mut Record| -> foxton::Result<()> {
        let saw = tx.get(&ROWS, &1)?.map(Version::from_value);
        record.note(Step::Get(1, saw, Kept::Range));
        Ok(())
    };
    reader.begin(2);
    writer.begin(2);
    let mut tx = db.begin()?;
    read(&mut tx, &mut reader)?;
    let written = wrote(&mut writer);
    let mut write = pin!(async {
        let mut tx = db.begin_async()?;
        tx.put(&ROWS, &1, &written).await?;
        tx.commit_at().await
    });
    let mut context = Context::from_waker(Waker::noop());
    let mut end = write.as_mut().poll(&mut context);
    read(&mut tx, &mut reader)?;
    reader.end(End::Committed(tx.commit_at()?.bytes()), 3);
    while end.is_pending() {
        end = write.as_mut().poll(&mut context);
    }
    let Poll::Ready(end) = end else {
        unreachable!("it was polled until it was ready")
    };
    writer.end(End::Committed(end?.bytes()), 4);
    let records = vec![loader, reader, writer];
    Ok(History {
        records,
        ..History::default()
    })
}

/// Returns what the checkers say of a history.
fn judge(history: &History) -> Vec<String> {
    let replayed = replay(history).err().map(|_| "replay".to_owned());
    let names = graph::check(history).names();
    replayed.into_iter().chain(names).collect()
}

/// Runs a schedule that is seldom by chance, for the faults that need one.
fn look_at_schedules(fault: Option<Failpoint>) -> Option<Found> {
    if fault.is_some_and(|fault| fault != injected_fault::CONVERTED_IGNORED) {
        return None;
    }
    let history = write_beside_a_remembered_lock(fault).expect("no error");
    let (by, (transactions, _)) = (judge(&history), history.counts());
    (!by.is_empty()).then_some(Found { by, transactions })
}

/// Runs round after round, each with another lock manager, until a checker finds something.
fn look(fault: Option<Failpoint>, component: TableComponent, rounds: u64) -> Option<Found> {
    if let Some(found) = look_at_schedules(fault) {
        return Some(found);
    }
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
        victim::set_small_pages(&mut options, 32);
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
            is_split: false,
            levels: Levels::One,
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

/// Power cuts find the faults of pages. Some show earlier, while the database runs.
#[test]
fn every_fault_of_pages_is_found_by_power_cuts() {
    let mut missed = Vec::new();
    for fault in injected_fault::PAGE_FAULTS {
        let start = Instant::now();
        let mut tally = Tally::default();
        // Runs differ more than the cuts of one do.
        let found = (0..340).find_map(|seed| {
            let setting = Setting {
                seed,
                steps: 300,
                fault: Some(fault),
                is_failing: false,
            };
            let run = match Run::record(setting) {
                Ok(run) => run,
                Err(trouble) => return Some(format!("{setting}: {trouble}")),
            };
            let cut = run.cut_everywhere(17, Damages::One, &mut tally, &|_| {});
            cut.err().map(|failure| failure.to_string())
        });
        let found = found.unwrap_or_else(|| {
            missed.push(fault);
            "none".to_owned()
        });
        let (images, seconds) = (tally.all(), start.elapsed().as_secs_f64());
        println!("{fault:30} {images:>6} {seconds:>6.2}  {found}");
    }
    assert!(missed.is_empty(), "power cuts did not find {missed:?}");
}

/// A reader is acknowledged although the commit that it saw is lost. Clients of the ledger read
/// what others wrote, and cuts show whether it stays.
#[test]
fn a_forgotten_stamp_of_a_paged_row_is_found_by_power_cuts() {
    let find = |fault: Option<Failpoint>, seeds: u64| {
        (0..seeds).find_map(|seed| {
            let mut options = victim::options(seed);
            options.component = TableComponent::Paged;
            options.early_release = true;
            let failpoints = Failpoints::default();
            fault.inspect(|fault| failpoints.arm(fault));
            // So that others read it before it is durable, also on a busy machine.
            failpoints.set(&foxton_log::failpoint::WRITE, |_| {
                std::thread::sleep(Duration::from_millis(1));
                Ok(())
            });
            options.failpoints = Some(failpoints);
            let before = |device| -> Arc<dyn Device> { Arc::new(device) };
            let run = record_on(before, options, seed, 4, 9, Honesty::Honest);
            let run = run.unwrap_or_else(|error| panic!("seed {seed}, {fault:?}: {error}"));
            let cut = run.cut_everywhere(2, seed);
            cut.err().map(|failure| failure.to_string())
        })
    };
    let found = find(Some(injected_fault::STAMP_FORGOTTEN), 40);
    println!("{found:?}");
    assert!(found.is_some(), "nobody noticed");
    assert_eq!(find(None, 4), None, "without the fault");
}

#[test]
fn without_a_fault_nothing_is_found() {
    for component in TableComponent::ALL {
        if let Some(found) = look(None, component, 20) {
            panic!("{component}: {:?}", found.by);
        }
    }
}
