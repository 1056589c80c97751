//! A hundred thousand locks for an instruction counter:
//!
//! ```text
//! cargo build --release -p foxton-lock --example instructions
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*measured*' \
//!     target/release/examples/instructions bucket parking
//! ```
//!
//! The measured part is ten thousand transactions of IS on a table and S on ten keys; names are
//! made before. A third argument chooses the keys:
//!
//! * `points`, the default: anywhere among a million;
//! * `neighbours`: one anywhere, and nine behind it, one by one;
//! * `scan`: the same, requested by a scan, gaps included; `down`: by a descending scan;
//! * `long`: as `scan`, with keys of twelve bytes;
//! * `skip`: as `points`, exclusively, with keys that are all held by another owner and are
//!   skipped;
//! * `real`: as `points`, after another owner had an exclusive lock near every key;
//! * `found`: as `points`, with the anchor of each key;
//! * `anchored`: as `real`, with the anchor of each key; `written`: the same, exclusively;
//! * `scanned`: as `scan`, after another owner had an exclusive lock near every key, with the
//!   anchor of each key.
//!
//! A fourth argument is the number of keys of a transaction, 10 or 20; the default is ten. The
//! printed count divides callgrind's total into instructions for each lock and its release, with a
//! share of the transaction's beginning. To get the instructions of one more key, divide the
//! difference of the totals for ten and twenty keys by ten times the number of transactions.

use foxton_lock::{
    any::{AnyManager, Options},
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::{Owner, Scan},
    request::{Reply, WaitMode},
};
use foxton_sync::{
    anchor::Anchors,
    worker::{Worker, Workers},
};
use std::time::Duration;

const TRANSACTIONS: usize = 10_000;
const BELOW: u64 = 1_000_000;
/// More than there are granules, sixty-four keys apart.
const STRANGERS: u64 = 50_000;

#[inline(never)]
fn measured<const KEYS: usize>(
    locks: &AnyManager,
    worker: &Worker,
    owner: &mut Owner,
    names: &[Name],
) {
    for names in names.chunks_exact(KEYS) {
        owner.begin();
        ask(locks, worker, owner, Name::table(1), Mode::IS);
        for &name in names {
            ask(locks, worker, owner, name, Mode::S);
        }
        locks.release_all(worker, owner);
    }
}

/// As the engine does.
#[inline(always)]
fn ask(locks: &AnyManager, worker: &Worker, owner: &mut Owner, name: Name, mode: Mode) {
    let reply = locks.request(worker, owner, name, mode, WaitMode::Wait);
    assert!(matches!(reply, Reply::Granted));
}

#[inline(never)]
fn measured_scans<const KEYS: usize>(
    locks: &AnyManager,
    worker: &Worker,
    owner: &mut Owner,
    (names, anchors): (&[Name], Option<&Anchors>),
) {
    let mode = Mode::key(KeyPart::S, GapPart::S);
    for (chunk, names) in names.chunks_exact(KEYS).enumerate() {
        owner.begin();
        let mut scan = Scan::new();
        ask(locks, worker, owner, Name::table(1), Mode::IS);
        for (at, &name) in names.iter().enumerate() {
            let patience = WaitMode::Wait;
            let target = (name, anchors.map(|anchors| &anchors[chunk * KEYS + at]));
            let reply = locks.request_in_scan(worker, owner, &mut scan, target, mode, patience);
            assert!(matches!(reply, Reply::Granted));
        }
        locks.release_all(worker, owner);
    }
}

#[inline(never)]
fn measured_anchored<const KEYS: usize>(
    locks: &AnyManager,
    worker: &Worker,
    owner: &mut Owner,
    (names, anchors): (&[Name], &Anchors),
    (of_table, mode): (Mode, Mode),
) {
    let transactions = names.chunks_exact(KEYS).zip(anchors.chunks_exact(KEYS));
    for (names, anchors) in transactions {
        owner.begin();
        ask(locks, worker, owner, Name::table(1), of_table);
        for (&name, anchor) in names.iter().zip(anchors) {
            let target = (name, anchor);
            let reply = locks.request_anchored(worker, owner, target, mode, WaitMode::Wait);
            assert!(matches!(reply, Reply::Granted));
        }
        locks.release_all(worker, owner);
    }
}

#[inline(never)]
fn measured_skips<const KEYS: usize>(
    locks: &AnyManager,
    worker: &Worker,
    owner: &mut Owner,
    names: &[Name],
) {
    for names in names.chunks_exact(KEYS) {
        owner.begin();
        ask(locks, worker, owner, Name::table(1), Mode::IX);
        for &name in names {
            let reply = locks.request(worker, owner, name, Mode::X, WaitMode::Skip);
            assert!(!matches!(reply, Reply::Granted | Reply::Held));
        }
        locks.release_all(worker, owner);
    }
}

fn main() {
    // Constants for the compiler, so that the loop around the measured part takes little itself.
    match std::env::args().nth(4).as_deref() {
        None | Some("10") => measure::<10>(),
        Some("20") => measure::<20>(),
        Some(other) => panic!("10 or 20 keys, and not {other}"),
    }
}

fn measure<const KEYS: usize>() {
    let mut arguments = std::env::args().skip(1);
    let count = TRANSACTIONS * KEYS;
    let mut options = Options::default();
    if let Some(kind) = arguments.next() {
        options.kind = kind.parse().expect("a lock manager");
    }
    if let Some(latch) = arguments.next() {
        options.latch = latch.parse().expect("a latch");
    }
    let case = arguments.next().unwrap_or("points".to_owned());
    let is_real = matches!(case.as_str(), "real" | "anchored" | "written" | "scanned");
    if is_real {
        options.hold_off = Duration::from_secs(10);
    }
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    let locks = AnyManager::new(&options);
    let mut owner = locks.owner();
    let hasher = KeyHasher::new(1);
    let name = |number: u64| match case.as_str() {
        "long" => Name::key(1, &(u128::from(number) << 32).to_be_bytes()[..12], &hasher),
        _ => Name::key(1, &number.to_be_bytes(), &hasher),
    };
    let random = |_: usize| worker.random_below(BELOW);
    let numbers: Vec<u64> = match case.as_str() {
        "points" | "real" | "found" | "anchored" | "written" | "skip" => {
            (0..count).map(random).collect()
        }
        _ => {
            let firsts = (0..TRANSACTIONS).map(random);
            firsts
                .flat_map(|first| first..first + KEYS as u64)
                .collect()
        }
    };
    let mut names: Vec<Name> = numbers.into_iter().map(name).collect();
    if case == "down" {
        names.reverse();
    }
    let mut stranger = locks.owner();
    if is_real {
        for number in 0..STRANGERS {
            let name = name(BELOW + 64 * number);
            let outcome = locks.try_lock(&worker, &mut stranger, name, Mode::X);
            assert!(outcome.is_held());
        }
        locks.release_all(&worker, &mut stranger);
    }
    if case == "skip" {
        for &name in &names {
            let outcome = locks.try_lock(&worker, &mut stranger, name, Mode::X);
            assert!(outcome.is_held());
        }
    }
    let anchors = Anchors::free(names.len());
    let targets = (&names[..], &anchors);
    match case.as_str() {
        "found" | "anchored" => {
            measured_anchored::<KEYS>(&locks, &worker, &mut owner, targets, (Mode::IS, Mode::S));
        }
        "written" => {
            measured_anchored::<KEYS>(&locks, &worker, &mut owner, targets, (Mode::IX, Mode::X));
        }
        "skip" => measured_skips::<KEYS>(&locks, &worker, &mut owner, &names),
        "points" | "real" | "neighbours" => measured::<KEYS>(&locks, &worker, &mut owner, &names),
        "scan" | "down" | "long" => {
            measured_scans::<KEYS>(&locks, &worker, &mut owner, (&names, None));
        }
        "scanned" => measured_scans::<KEYS>(&locks, &worker, &mut owner, (&names, Some(&anchors))),
        other => panic!("one of the keys that the first page names, and not {other}"),
    }
    println!("{} locks", names.len() + TRANSACTIONS);
}
