//! Far more threads than cores: every latch of every kind keeps its contract, and all threads
//! finish.
//!
//! Behind each latch are two plain counters. Each pass adds one to the first, gives the scheduler a
//! chance now and then, and adds one to the second: if two threads were inside at once, the
//! counters would differ.
//!
//! A program of its own, because its threads would leave no processor to tests beside it.
#![cfg(not(loom))]

use foxton_sync::latch::{Kind, Latched, ShardedLatched, SharedLatched, VersionLatch};
use foxton_sync::park::{Parker, Ticket, Verdict};
use foxton_sync::shim::{AtomicU64, Ordering::Relaxed};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::{Worker, Workers};
use std::sync::Barrier;
use std::thread;

static SITE: Site = Site::new(Component::Latch, Pattern::Unbounded, "stress");

const THREADS: usize = 512;
const PASSES: u64 = 200;

/// Runs `body` on all threads, which begin together, each with its number and a worker.
fn on_all_threads(body: impl Fn(usize, &Worker) + Sync) {
    on_threads(THREADS, body);
}

fn on_threads(threads: usize, body: impl Fn(usize, &Worker) + Sync) {
    let workers = Workers::with_seed(1);
    let begin = Barrier::new(threads);
    thread::scope(|scope| {
        for number in 0..threads {
            let worker = workers.worker();
            let (begin, body) = (&begin, &body);
            scope.spawn(move || {
                begin.wait();
                body(number, &worker);
            });
        }
    });
}

fn pass((first, second): &mut (u64, u64), worker: &Worker) {
    *first += 1;
    if worker.random_below(64) == 0 {
        thread::yield_now();
    }
    *second += 1;
    assert_eq!(first, second, "two threads inside");
}

fn all_pass_a_latch(kind: Kind) {
    threads_pass_a_latch(THREADS, kind);
}

fn threads_pass_a_latch(threads: usize, kind: Kind) {
    let latched = Latched::new(kind, &SITE, (0, 0));
    let tried = AtomicU64::new(0);
    on_threads(threads, |number, worker| {
        for round in 0..PASSES {
            if (round + number as u64).is_multiple_of(4) {
                let passed = latched.try_with(worker, |pair| pass(pair, worker));
                tried.fetch_add(u64::from(passed.is_none()), Relaxed);
            } else {
                latched.with(worker, |pair| pass(pair, worker));
            }
        }
    });
    let expected = threads as u64 * PASSES - tried.into_inner();
    assert_eq!(latched.into_inner(), (expected, expected));
}

#[test]
fn all_pass_a_tas_latch() {
    all_pass_a_latch(Kind::Tas);
}

#[test]
fn all_pass_a_tas_t_latch() {
    all_pass_a_latch(Kind::TasT);
}

#[test]
fn all_pass_a_queue_latch() {
    all_pass_a_latch(Kind::Queue);
}

#[test]
fn all_pass_a_parking_latch() {
    all_pass_a_latch(Kind::Parking);
}

/// Yielding aborts a transaction: with the hardware, elided passes and holders meet here. Without
/// it these are the latches that were tested above.
#[test]
fn all_pass_latches_that_elide() {
    let elided = Kind::ALL
        .into_iter()
        .filter(|kind| !Kind::PLAIN.contains(kind));
    elided.for_each(|kind| threads_pass_a_latch(THREADS / 16, kind));
}

#[test]
fn readers_and_writers_pass_a_shared_latch() {
    let pair = SharedLatched::new(&SITE, (0, 0));
    on_all_threads(|number, worker| {
        for round in 0..PASSES {
            if (round + number as u64).is_multiple_of(4) {
                pair.write(worker, |pair| pass(pair, worker));
            } else {
                pair.read(worker, |pair| {
                    assert_eq!(pair.0, pair.1, "a writer is inside")
                });
            }
        }
    });
    let expected = THREADS as u64 * PASSES / 4;
    assert_eq!(pair.into_inner(), (expected, expected));
}

#[test]
fn readers_and_rare_writers_pass_a_sharded_latch() {
    let pair = ShardedLatched::new(&SITE, (0, 0));
    on_all_threads(|number, worker| {
        for round in 0..PASSES {
            if (round + number as u64).is_multiple_of(16) {
                pair.write(worker, |pair| pass(pair, worker));
            } else {
                pair.read(worker, |pair| {
                    assert_eq!(pair.0, pair.1, "a writer is inside")
                });
            }
        }
    });
    let expected = THREADS as u64 * PASSES / 16;
    assert_eq!(pair.into_inner(), (expected, expected));
}

#[test]
fn version_readers_never_accept_a_torn_write() {
    let latch = VersionLatch::default();
    let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
    on_all_threads(|number, worker| {
        for round in 0..PASSES {
            if (round + number as u64).is_multiple_of(8) {
                latch.lock();
                first.store(first.load(Relaxed) + 1, Relaxed);
                if worker.random_below(64) == 0 {
                    thread::yield_now();
                }
                second.store(second.load(Relaxed) + 1, Relaxed);
                latch.unlock();
            } else {
                let seen = latch.await_version();
                let pair = (first.load(Relaxed), second.load(Relaxed));
                assert!(
                    !latch.unchanged_since(seen) || pair.0 == pair.1,
                    "half a write: {pair:?}"
                );
            }
        }
    });
    let expected = THREADS as u64 * PASSES / 8;
    assert_eq!(
        (first.into_inner(), second.into_inner()),
        (expected, expected)
    );
}

/// A ring of threads passes one token around; every step is a sleep and a wake. A lost wake-up
/// would hang the ring, and a verdict given twice would fail in its giver.
#[test]
fn a_token_goes_around_a_ring_of_sleeping_threads() {
    const ROUNDS: u64 = 20;
    let ring: Vec<Parker> = (0..THREADS).map(|_| Parker::new()).collect();
    let first_tickets: Vec<Ticket> = ring.iter().map(Parker::arm).collect();
    let hand_over = |place: usize, round: u64| {
        let next = (place + 1) % THREADS;
        let round = if next == 0 { round + 1 } else { round };
        if round < ROUNDS {
            let ticket = Ticket::from_sequence(first_tickets[next].sequence() + round);
            let verdict = Verdict::new(u32::try_from(round + 1).expect("few rounds"));
            let wake = ring[next]
                .resolve(ticket, verdict)
                .expect("the token is here only");
            wake.wake();
        }
    };
    thread::scope(|scope| {
        for place in 0..THREADS {
            let (ring, tickets, hand_over) = (&ring, &first_tickets, &hand_over);
            scope.spawn(move || {
                let mut ticket = tickets[place];
                for round in 0..ROUNDS {
                    let verdict = ring[place].wait(ticket, None).expect("no deadline");
                    assert_eq!(u64::from(verdict.code()), round + 1);
                    // Armed before the token moves on: it returns to an open wait.
                    if round + 1 < ROUNDS {
                        ticket = ring[place].arm();
                    }
                    hand_over(place, round);
                }
            });
        }
        let wake = ring[0]
            .resolve(first_tickets[0], Verdict::new(1))
            .expect("nobody has it yet");
        wake.wake();
    });
}
