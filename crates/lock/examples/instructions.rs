//! A million locks for an instruction counter:
//!
//! ```text
//! cargo build --release -p foxton-lock --example instructions
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*measured*' \
//!     target/release/examples/instructions bucket parking
//! ```
//!
//! With `scan` as a third argument the ten keys are neighbours, asked for as a scan does.
//!
//! The count it prints divides callgrind's total into instructions for each lock and its release.
//! What is measured is a transaction of IS on a table and S on ten keys; names are made before.

use foxton_lock::{
    any::{Any, Options},
    manager::LockManager,
    mode::Mode,
    name::{KeyHasher, Name},
    owner::{Owner, Scan},
    request::{Patience, Reply},
};
use foxton_sync::worker::{Worker, Workers};

const KEYS: usize = 10;

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
    for names in names.chunks_exact(KEYS) {
        owner.begin();
        let mut scan = Scan::new();
        ask(locks, worker, owner, Name::table(1), Mode::IS);
        for &name in names {
            let patience = Patience::Wait;
            let reply = locks.request_in_scan(worker, owner, &mut scan, name, Mode::S, patience);
            assert!(matches!(reply, Reply::Granted));
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
    let scans = arguments.next().is_some_and(|argument| argument == "scan");
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    let locks = Any::new(&options);
    let mut owner = locks.owner();
    let hasher = KeyHasher::new(1);
    let names: Vec<Name> = (0..100_000)
        .scan(0, |key, at| {
            // The first of ten anywhere, the others behind it.
            let random = worker.random_below(1_000_000);
            *key = if scans && at % KEYS > 0 {
                *key + 1
            } else {
                random
            };
            Some(Name::key(1, &key.to_be_bytes(), &hasher))
        })
        .collect();
    match scans {
        false => measured(&locks, &worker, &mut owner, &names),
        true => measured_scans(&locks, &worker, &mut owner, &names),
    }
    println!("{} locks", names.len() + names.len() / KEYS);
}
