//! A hundred thousand locks for an instruction counter:
//!
//! ```text
//! cargo build --release -p foxton-lock --example instructions
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*measured*' \
//!     target/release/examples/instructions bucket parking
//! ```
//!
//! What is measured is a transaction of IS on a table and S on ten keys; names are made before. A third
//! argument says which keys:
//!
//! * `points`, which is also what is measured if nothing is said: anywhere among a million;
//! * `neighbours`: one anywhere, and nine behind it, one by one;
//! * `scan`: the same, asked for as a scan does, gaps included; `down`: by a scan that goes down;
//! * `long`: as `scan`, with keys of twelve bytes;
//! * `skip`: as `points`, exclusively, with keys that all are somebody else's and are passed over;
//! * `real`: as `points`, after somebody else had an exclusive lock near every key.
//!
//! The count it prints divides callgrind's total into instructions for each lock and its release.

use foxton_lock::{
    any::{Any, Options},
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::{Owner, Scan},
    request::{Patience, Reply},
};
use foxton_sync::worker::{Worker, Workers};
use std::time::Duration;

const KEYS: usize = 10;
const BELOW: u64 = 1_000_000;
/// More than there are granules to be had, sixty-four keys apart.
const STRANGERS: u64 = 50_000;

#[inline(never)]
fn measured(locks: &Any, worker: &Worker, owner: &mut Owner, names: &[Name]) {
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
fn ask(locks: &Any, worker: &Worker, owner: &mut Owner, name: Name, mode: Mode) {
    let reply = locks.request(worker, owner, name, mode, Patience::Wait);
    assert!(matches!(reply, Reply::Granted));
}

#[inline(never)]
fn measured_scans(locks: &Any, worker: &Worker, owner: &mut Owner, names: &[Name]) {
    let mode = Mode::key(KeyPart::S, GapPart::S);
    for names in names.chunks_exact(KEYS) {
        owner.begin();
        let mut scan = Scan::new();
        ask(locks, worker, owner, Name::table(1), Mode::IS);
        for &name in names {
            let patience = Patience::Wait;
            let reply = locks.request_in_scan(worker, owner, &mut scan, name, mode, patience);
            assert!(matches!(reply, Reply::Granted));
        }
        locks.release_all(worker, owner);
    }
}

#[inline(never)]
fn measured_skips(locks: &Any, worker: &Worker, owner: &mut Owner, names: &[Name]) {
    for names in names.chunks_exact(KEYS) {
        owner.begin();
        ask(locks, worker, owner, Name::table(1), Mode::IX);
        for &name in names {
            let reply = locks.request(worker, owner, name, Mode::X, Patience::Skip);
            assert!(!matches!(reply, Reply::Granted | Reply::Held));
        }
        locks.release_all(worker, owner);
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut options = Options::default();
    if let Some(kind) = arguments.next() {
        options.kind = kind.parse().expect("a lock manager");
    }
    if let Some(latch) = arguments.next() {
        options.latch = latch.parse().expect("a latch");
    }
    let case = arguments.next().unwrap_or("points".to_owned());
    if case == "real" {
        options.hold_off = Duration::from_secs(10);
    }
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    let locks = Any::new(&options);
    let mut owner = locks.owner();
    let hasher = KeyHasher::new(1);
    let name = |number: u64| match case.as_str() {
        "long" => Name::key(1, &(u128::from(number) << 32).to_be_bytes()[..12], &hasher),
        _ => Name::key(1, &number.to_be_bytes(), &hasher),
    };
    let random = |_| worker.random_below(BELOW);
    let numbers: Vec<u64> = match case.as_str() {
        "points" | "real" | "skip" => (0..100_000).map(random).collect(),
        _ => {
            let firsts = (0..100_000 / KEYS as u64).map(random);
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
    if case == "real" {
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
    match case.as_str() {
        "skip" => measured_skips(&locks, &worker, &mut owner, &names),
        "points" | "real" | "neighbours" => measured(&locks, &worker, &mut owner, &names),
        "scan" | "down" | "long" => measured_scans(&locks, &worker, &mut owner, &names),
        other => panic!("points, neighbours, scan, down, long or real, and not {other}"),
    }
    println!("{} locks", names.len() + names.len() / KEYS);
}
