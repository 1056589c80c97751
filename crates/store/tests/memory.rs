//! Memory is freed: of records removed from a table, and of a table when it is dropped.
//!
//! A program of its own with one test, because the memory of the process is measured. Without
//! `/proc` nothing is measured, and only the rest is tested.
//!
//! No timing decides. A thread that is descheduled while pinned holds up all reclamation for as
//! long as the machine keeps it waiting. So a thread that removes records stops at a bound of
//! retired objects that are not freed. If the number stays there, nothing is freed.

// A race detector has memory of its own.
#![cfg(not(any(loom, foxton_tsan)))]

use foxton_store::memory::{NewRecord, Next, RecordTable};
use foxton_sync::worker::{Worker, Workers};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 2000;

/// Memory beside the content of the table: retired objects that are not freed, and the allocator's
/// reserves.
const SLACK_BYTES: u64 = 48 << 20;

/// Retired objects that are not freed at which a thread stops removing: 8 MB of values.
const RETIRED_BOUND: usize = 4096;

/// Longer than any machine keeps a thread off its cores.
const PATIENCE: Duration = Duration::from_secs(60);

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

fn append(table: &RecordTable, worker: &Worker, number: u64) {
    let guard = worker.pin();
    let value = [number as u8; VALUE_BYTES];
    let record = NewRecord::new(&number.to_be_bytes(), Some(&value)).expect("short");
    table
        .insert(&guard, record, Next::Any)
        .expect("every number once");
}

/// Waits until few enough retired objects are not freed.
fn wait_for_memory(worker: &Worker) {
    let since = Instant::now();
    while worker.workers().domain().retired() > RETIRED_BOUND {
        assert!(since.elapsed() < PATIENCE, "nothing retired is freed");
        worker.collect();
        thread::yield_now();
    }
}

/// No thread is pinned: all memory is freed.
fn nothing_stays(worker: &Worker) {
    // Two epochs, and one more for objects of a participant that was dropped in between.
    (0..3).for_each(|_| worker.collect());
    assert_eq!(worker.workers().domain().retired(), 0, "not freed");
}

/// Removes the first record. Returns whether this thread did.
fn take(table: &RecordTable, worker: &Worker) -> bool {
    let guard = worker.pin();
    let Some(first) = table.forward(&guard, Bound::Unbounded).advance().record else {
        return false;
    };
    let value = first.swap(None, &guard);
    let _ = table.remove(&guard, first, Next::Any);
    // The first value is the record's own memory.
    value.is_some()
}

/// Two threads append at one end, two remove at the other.
fn queue(items: u64) {
    let workers = Workers::new();
    let table: RecordTable = RecordTable::new(workers.domain());
    let (taken, tail) = (AtomicU64::new(0), AtomicU64::new(0));
    let most = AtomicU64::new(0);
    let before = resident_bytes();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (table, taken, tail, most) = (&table, &taken, &tail, &most);
            let workers = &workers;
            scope.spawn(move || {
                let worker = workers.worker();
                while taken.load(SeqCst) < items {
                    if thread % 2 == 1 {
                        wait_for_memory(&worker);
                        taken.fetch_add(u64::from(take(table, &worker)), SeqCst);
                    } else if tail.load(SeqCst) < taken.load(SeqCst) + 1000 {
                        append(table, &worker, tail.fetch_add(1, SeqCst));
                    } else {
                        // Removers wait for the same bound: all of them give up, or none.
                        wait_for_memory(&worker);
                        thread::yield_now();
                    }
                    if worker.random_below(512) == 0 {
                        most.fetch_max(resident_bytes(), SeqCst);
                    }
                }
            });
        }
    });
    let worker = workers.worker();
    nothing_stays(&worker);
    let left = table.verify(&worker.pin());
    let grown = most.into_inner().saturating_sub(before);
    println!(
        "{items} items through a queue, {left} left: at most {} KiB",
        grown >> 10
    );
    assert!(
        grown < SLACK_BYTES,
        "{items} items grew memory by {} KiB",
        grown >> 10
    );
}

/// Tables are filled, changed and dropped.
fn drops(rounds: u64) {
    let before = resident_bytes();
    for _ in 0..rounds {
        let workers = Workers::new();
        let table: RecordTable = RecordTable::new(workers.domain());
        let worker = workers.worker();
        for number in 0..4000 {
            append(&table, &worker, number);
            let guard = worker.pin();
            let record = table
                .get(&guard, &number.to_be_bytes())
                .expect("just inserted");
            let old = record.put(
                &[1; VALUE_BYTES],
                &guard,
                worker.participant().recent_stamp(),
            );
            old.expect("short")
                .expect("a value")
                .retire(guard.participant());
        }
        (0..2000).for_each(|_| assert!(take_retiring(&table, &worker)));
        nothing_stays(&worker);
    }
    let grown = resident_bytes().saturating_sub(before);
    println!("{rounds} tables dropped: {} KiB more", grown >> 10);
    assert!(
        grown < SLACK_BYTES,
        "{rounds} tables left {} KiB",
        grown >> 10
    );
}

fn take_retiring(table: &RecordTable, worker: &Worker) -> bool {
    let guard = worker.pin();
    let first = table
        .forward(&guard, Bound::Unbounded)
        .advance()
        .record
        .expect("not empty");
    first
        .swap(None, &guard)
        .expect("a value")
        .retire(guard.participant());
    table.remove(&guard, first, Next::Any).is_ok()
}

/// Replaces the value of the first record.
fn update(table: &RecordTable, worker: &Worker, byte: u8) {
    let guard = worker.pin();
    let record = table.get(&guard, &0u64.to_be_bytes()).expect("inserted");
    let old = record.put(
        &[byte; VALUE_BYTES],
        &guard,
        worker.participant().recent_stamp(),
    );
    old.expect("short")
        .expect("a value")
        .retire(guard.participant());
}

/// Values of one record are replaced again and again.
fn updates(count: u64) {
    let workers = Workers::new();
    let table: RecordTable = RecordTable::new(workers.domain());
    let worker = workers.worker();
    append(&table, &worker, 0);
    let before = resident_bytes();
    (0..count).for_each(|_| update(&table, &worker, 1));
    nothing_stays(&worker);
    let grown = resident_bytes().saturating_sub(before);
    println!("{count} updates: {} KiB more", grown >> 10);
    assert!(
        grown < SLACK_BYTES,
        "{count} updates left {} KiB",
        grown >> 10
    );
}

/// As [`updates`], while another thread is pinned all the time and reads one of the values.
fn updates_beside_a_sleeper(count: u64) {
    let workers = Workers::new();
    let table: RecordTable = RecordTable::new(workers.domain());
    let (worker, sleeper) = (workers.worker(), workers.worker());
    append(&table, &worker, 0);
    update(&table, &worker, 7);
    let guard = sleeper.pin();
    let record = table.get(&guard, &0u64.to_be_bytes()).expect("inserted");
    let mut hazard = guard.hazard();
    let value = record.value(&mut hazard).expect("a value");
    let mut most = 0;
    for number in 0..count {
        update(&table, &worker, number as u8);
        most = most.max(workers.domain().retired());
    }
    println!("{count} updates beside a sleeper: {most} values retired at most");
    assert!(
        most < RETIRED_BOUND,
        "{most} values were retired and not freed"
    );
    (0..3).for_each(|_| worker.collect());
    assert_eq!(
        workers.domain().retired(),
        1,
        "what is looked at, and nothing else"
    );
    assert_eq!(value, [7; VALUE_BYTES]);
    drop(hazard);
    drop(guard);
    nothing_stays(&worker);
}

#[test]
fn memory_comes_back() {
    // Each of these would take some 400 MB if nothing were freed.
    queue(200_000);
    updates(200_000);
    updates_beside_a_sleeper(200_000);
    drops(20);
}

#[test]
#[ignore = "takes a minute: cargo test --release -p foxton-store --test memory -- --ignored"]
fn ten_million_items_through_a_queue() {
    queue(10_000_000);
}
