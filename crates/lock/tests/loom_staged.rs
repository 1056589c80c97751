//! Each ordering named under `managers/staged`, in the smallest history that needs it; and what the
//! protocol promises, in every interleaving of two threads.
//!
//! Under the checker a segment has four requests, a chain is cleaned at the first obsolete request too
//! many, and one latch stands over all lines. Preemptions are bounded at two.
#![cfg(loom)]

use foxton_lock::{
    any::{Any, Kind, Options},
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::Owner,
    request::{Outcome, Patience, Reason, Reply},
};
use foxton_sync::{
    shim::{Arc, AtomicU64, Ordering, thread},
    worker::{Worker, Workers},
};
use std::time::Instant;

#[allow(dead_code, unreachable_pub, reason = "a part of the crate, by itself")]
#[path = "../src/managers/staged/flags.rs"]
mod flags;

const A: Name = Name::table(1);
const B: Name = Name::table(2);
const BOTH: [Kind; 2] = [Kind::Staged, Kind::StagedPaper];

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(body);
}

/// Two workers at a manager of one chain.
fn manager(kind: Kind) -> (Arc<Any>, Worker, Worker) {
    let mut options = Options::tiny();
    (options.kind, options.bucket_count) = (kind, 1);
    let workers = Workers::with_seed(1);
    (
        Arc::new(Any::new(&options)),
        workers.worker(),
        workers.worker(),
    )
}

fn holds(locks: &Any, worker: &Worker, owner: &mut Owner, name: Name, mode: Mode) {
    assert!(locks.try_lock(worker, owner, name, mode).is_held());
}

fn nobody_is_left(locks: &Any, worker: &Worker) {
    locks.verify(worker);
    assert!(locks.inspect(worker).queues.is_empty());
}

/// What locks protect. Read and written without any ordering: who comes too early finds the old value.
#[derive(Default)]
struct Cell(AtomicU64);

impl Cell {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn write(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Who finds a request finds all of it: whose it is, for what, in which mode.
#[test]
fn o1_who_finds_a_request_finds_what_it_says() {
    for kind in BOTH {
        for is_empty in [true, false] {
            model(move || {
                let (locks, worker, other) = manager(kind);
                let (mut first, mut second) = (locks.owner(), locks.owner());
                if !is_empty {
                    holds(&locks, &worker, &mut first, A, Mode::IS);
                }
                let owners = [first.id(), second.id()];
                let comer = {
                    let locks = locks.clone();
                    thread::spawn(move || {
                        holds(&locks, &other, &mut second, A, Mode::IS);
                        second
                    })
                };
                for queue in locks.inspect(&worker).queues {
                    assert_eq!(queue.name, A);
                    for holder in queue.holders {
                        assert_eq!(holder.mode, Mode::IS);
                        assert!(owners.contains(&holder.owner));
                    }
                }
                let mut second = comer.join().unwrap();
                locks.release_all(&worker, &mut second);
                locks.release_all(&worker, &mut first);
                nobody_is_left(&locks, &worker);
            });
        }
    }
}

/// Two who come at once for what only one can have.
#[test]
fn o1_of_two_who_come_at_once_one_is_refused() {
    for kind in BOTH {
        model(move || {
            let (locks, worker, other) = manager(kind);
            let (mut first, mut second) = (locks.owner(), locks.owner());
            let comer = {
                let locks = locks.clone();
                thread::spawn(move || {
                    let outcome = locks.try_lock(&other, &mut second, A, Mode::X);
                    (outcome.is_held(), second)
                })
            };
            let mine = locks.try_lock(&worker, &mut first, A, Mode::X).is_held();
            let (theirs, mut second) = comer.join().unwrap();
            assert!(!(mine && theirs), "both hold it");
            locks.release_all(&worker, &mut first);
            locks.release_all(&worker, &mut second);
            nobody_is_left(&locks, &worker);
        });
    }
}

/// All five schedules of the document's Figure 7.
fn a_release_wakes_the_waiter(kind: Kind) {
    model(move || {
        let (locks, worker, other) = manager(kind);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        holds(&locks, &worker, &mut first, A, Mode::X);
        let releaser = {
            let locks = locks.clone();
            thread::spawn(move || locks.release_all(&other, &mut first))
        };
        let outcome = locks.lock(&worker, &mut second, A, Mode::X, None);
        assert!(outcome.is_held());
        releaser.join().unwrap();
        locks.release_all(&worker, &mut second);
        nobody_is_left(&locks, &worker);
    });
}

#[test]
fn o2_a_release_wakes_the_waiter() {
    a_release_wakes_the_waiter(Kind::Staged);
}

#[test]
fn o4_a_release_wakes_the_waiter_of_a_tail() {
    a_release_wakes_the_waiter(Kind::StagedPaper);
}

#[test]
fn o2_who_empties_a_chain_finds_all_obsolete() {
    model(|| {
        let (locks, worker, other) = manager(Kind::Staged);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        holds(&locks, &worker, &mut first, A, Mode::S);
        holds(&locks, &worker, &mut second, A, Mode::S);
        let releaser = {
            let locks = locks.clone();
            thread::spawn(move || locks.release_all(&other, &mut first))
        };
        locks.release_all(&worker, &mut second);
        releaser.join().unwrap();
        nobody_is_left(&locks, &worker);
    });
}

#[test]
fn o2_who_puts_behind_a_request_comes_after_it_was_written() {
    model(|| {
        let (locks, worker, other) = manager(Kind::StagedPaper);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        let comer = {
            let locks = locks.clone();
            thread::spawn(move || {
                holds(&locks, &other, &mut second, A, Mode::S);
                second
            })
        };
        holds(&locks, &worker, &mut first, A, Mode::S);
        let mut second = comer.join().unwrap();
        locks.release_all(&worker, &mut first);
        locks.release_all(&worker, &mut second);
        nobody_is_left(&locks, &worker);
    });
}

#[test]
fn o3_who_is_granted_comes_after_who_released() {
    BOTH.into_iter()
        .for_each(who_is_granted_comes_after_who_released);
}

fn who_is_granted_comes_after_who_released(kind: Kind) {
    model(move || {
        let (locks, worker, other) = manager(kind);
        let cell = Cell::new();
        let (mut first, mut second) = (locks.owner(), locks.owner());
        holds(&locks, &worker, &mut first, A, Mode::X);
        let releaser = {
            let (locks, cell) = (locks.clone(), cell.clone());
            thread::spawn(move || {
                cell.write();
                locks.release_all(&other, &mut first);
            })
        };
        if locks.try_lock(&worker, &mut second, A, Mode::X).is_held() {
            assert_eq!(cell.read(), 1);
        }
        releaser.join().unwrap();
        locks.release_all(&worker, &mut second);
        nobody_is_left(&locks, &worker);
    });
}

/// Three readers, two of them gone: the second to go cleans, while the third goes or cleans, too.
fn unlinked_once(kind: Kind) {
    model(move || {
        let (locks, worker, other) = manager(kind);
        let mut owners = [(); 3].map(|()| locks.owner());
        for owner in &mut owners {
            holds(&locks, &worker, owner, A, Mode::S);
        }
        let [mut first, mut second, mut third] = owners;
        locks.release_all(&worker, &mut second);
        let cleaner = {
            let locks = locks.clone();
            thread::spawn(move || locks.release_all(&other, &mut third))
        };
        locks.release_all(&worker, &mut first);
        cleaner.join().unwrap();
        nobody_is_left(&locks, &worker);
    });
}

/// One releases, another cleans, the third does not meet what was unlinked. Three threads, under
/// `RUSTFLAGS="--cfg loom"`.
#[test]
#[ignore = "takes minutes: cargo test --release -p foxton-lock --test loom_staged -- --ignored"]
fn o5_who_does_not_meet_a_request_comes_after_its_release() {
    model(|| {
        let mut options = Options::tiny();
        (options.kind, options.bucket_count) = (Kind::Staged, 1);
        let workers = Workers::with_seed(1);
        let locks = Arc::new(Any::new(&options));
        let worker = workers.worker();
        let key = Name::key(1, b"a", &KeyHasher::new(1));
        let gap = Mode::key(KeyPart::None, GapPart::X);
        let cell = Cell::new();
        let mut owners = [(); 5].map(|()| locks.owner());
        for (at, owner) in owners.iter_mut().enumerate() {
            holds(
                &locks,
                &worker,
                owner,
                key,
                if at == 1 { gap } else { Mode::S },
            );
        }
        let [mut kept, mut writer, mut gone, mut also, mut cleaner] = owners;
        locks.release_all(&worker, &mut gone);
        locks.release_all(&worker, &mut also);
        let writer = {
            let (locks, cell, worker) = (locks.clone(), cell.clone(), workers.worker());
            thread::spawn(move || {
                cell.write();
                locks.release_all(&worker, &mut writer);
            })
        };
        let cleaner = {
            let (locks, worker) = (locks.clone(), workers.worker());
            thread::spawn(move || locks.release_all(&worker, &mut cleaner))
        };
        let comer = {
            let (locks, worker) = (locks.clone(), workers.worker());
            let mut comer = locks.owner();
            thread::spawn(move || {
                if locks.try_lock(&worker, &mut comer, key, gap).is_held() {
                    assert_eq!(cell.read(), 1);
                }
                locks.release_all(&worker, &mut comer);
            })
        };
        writer.join().unwrap();
        cleaner.join().unwrap();
        comer.join().unwrap();
        locks.release_all(&worker, &mut kept);
        nobody_is_left(&locks, &worker);
    });
}

#[test]
fn o5_who_is_granted_past_a_request_comes_after_its_release() {
    who_is_granted_comes_after_who_released(Kind::Staged);
}

#[test]
fn o4_what_was_unlinked_is_not_met_again() {
    unlinked_once(Kind::Staged);
}

#[test]
fn o5_what_was_unlinked_from_a_tail_is_not_met_again() {
    unlinked_once(Kind::StagedPaper);
}

#[test]
fn o1_the_last_to_clear_a_flag_comes_after_all_others() {
    for words in [[0, 0], [0, 1]] {
        model(move || {
            let flags = Arc::new(flags::Flags::new());
            flags.fill();
            let cells = [Cell::new(), Cell::new()];
            let bytes = if words[0] == words[1] { [0, 1] } else { [0, 0] };
            // The rest has been cleared before.
            for (word, byte) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                if (0..2).all(|at| (words[at], bytes[at]) != (word, byte)) {
                    assert!(!flags.flip(word, done(byte)));
                }
            }
            let work = move |at: usize, flags: &flags::Flags, cells: &[Arc<Cell>; 2]| {
                cells[at].write();
                let is_last = flags.flip(words[at], done(bytes[at]));
                if is_last {
                    assert_eq!((cells[0].read(), cells[1].read()), (1, 1));
                }
                is_last
            };
            let other = {
                let (flags, cells) = (flags.clone(), cells.clone());
                thread::spawn(move || work(1, &flags, &cells))
            };
            let mine = work(0, &flags, &cells);
            assert!(mine != other.join().unwrap(), "one is told");
        });
    }
}

fn done(byte: u32) -> flags::Done {
    let mut done = flags::Done::default();
    done.add(byte);
    done
}

#[test]
fn o1_who_takes_a_segment_finds_its_flags_set() {
    model(|| {
        let (locks, worker, other) = manager(Kind::Staged);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        let taker = {
            let locks = locks.clone();
            thread::spawn(move || holds(&locks, &other, &mut second, A, Mode::S))
        };
        holds(&locks, &worker, &mut first, A, Mode::S);
        taker.join().unwrap();
    });
}

#[test]
fn o3_who_takes_from_the_shared_segment_finds_its_flags_set() {
    model(|| {
        let (locks, worker, other) = manager(Kind::StagedPaper);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        let taker = {
            let locks = locks.clone();
            thread::spawn(move || holds(&locks, &other, &mut second, B, Mode::S))
        };
        holds(&locks, &worker, &mut first, A, Mode::S);
        taker.join().unwrap();
    });
}

#[test]
fn o2_who_finds_a_dead_segment_finds_it_clear() {
    model(|| {
        let (locks, worker, other) = manager(Kind::Staged);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        for number in 0..4 {
            holds(&locks, &worker, &mut first, Name::advisory(number), Mode::S);
        }
        let releaser = {
            let locks = locks.clone();
            thread::spawn(move || locks.release_all(&other, &mut first))
        };
        holds(&locks, &worker, &mut second, A, Mode::S);
        releaser.join().unwrap();
    });
}

#[test]
fn a_grant_and_a_deadline_end_a_wait_once() {
    for kind in BOTH {
        model(move || {
            let (locks, worker, other) = manager(kind);
            let (mut first, mut second) = (locks.owner(), locks.owner());
            holds(&locks, &worker, &mut first, A, Mode::X);
            let reply = locks.request(&worker, &mut second, A, Mode::X, Patience::Wait);
            assert!(matches!(reply, Reply::Waiting));
            let releaser = {
                let locks = locks.clone();
                thread::spawn(move || locks.release_all(&other, &mut first))
            };
            let outcome = locks.wait(&worker, &mut second, Some(Instant::now()));
            assert_eq!(outcome.is_held(), second.lock_count() == 1);
            releaser.join().unwrap();
            locks.release_all(&worker, &mut second);
            nobody_is_left(&locks, &worker);
        });
    }
}

#[test]
fn a_cancellation_before_or_after_the_grant_leaves_no_trace() {
    for kind in BOTH {
        model(move || {
            let (locks, worker, other) = manager(kind);
            let (mut first, mut second) = (locks.owner(), locks.owner());
            holds(&locks, &worker, &mut first, A, Mode::X);
            let reply = locks.request(&worker, &mut second, A, Mode::X, Patience::Wait);
            assert!(matches!(reply, Reply::Waiting));
            let releaser = {
                let locks = locks.clone();
                thread::spawn(move || locks.release_all(&other, &mut first))
            };
            locks.cancel(&worker, &mut second);
            assert_eq!(second.lock_count(), 0);
            releaser.join().unwrap();
            nobody_is_left(&locks, &worker);
        });
    }
}

#[test]
fn a_conversion_and_a_newcomer_at_once_are_not_both_granted() {
    for kind in BOTH {
        model(move || {
            let (locks, worker, other) = manager(kind);
            let (mut first, mut second) = (locks.owner(), locks.owner());
            holds(&locks, &worker, &mut first, A, Mode::IS);
            let comer = {
                let locks = locks.clone();
                thread::spawn(move || {
                    let outcome = locks.try_lock(&other, &mut second, A, Mode::S);
                    (outcome.is_held(), second)
                })
            };
            let mine = locks.try_lock(&worker, &mut first, A, Mode::IX).is_held();
            let (theirs, mut second) = comer.join().unwrap();
            assert!(!(mine && theirs), "IX beside S");
            locks.release_all(&worker, &mut first);
            locks.release_all(&worker, &mut second);
            nobody_is_left(&locks, &worker);
        });
    }
}

#[test]
fn two_who_close_a_cycle_at_once_lose_one_victim() {
    model(|| {
        let (locks, worker, other) = manager(Kind::Staged);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        holds(&locks, &worker, &mut first, A, Mode::X);
        holds(&locks, &worker, &mut second, B, Mode::X);
        let rival = {
            let locks = locks.clone();
            thread::spawn(move || cross(&locks, &other, &mut first, B))
        };
        let lost = cross(&locks, &worker, &mut second, A);
        let lost = u32::from(lost) + u32::from(rival.join().unwrap());
        assert!(lost <= 1, "one cycle, two victims");
        assert_eq!(locks.deadlocks().len(), lost as usize);
        nobody_is_left(&locks, &worker);
    });
}

/// Asks for what the other has, and says whether it was the victim.
fn cross(locks: &Any, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
    let outcome = locks.lock(worker, owner, name, Mode::X, None);
    let lost = match outcome {
        Outcome::Refused(refusal) => {
            assert_eq!(refusal.reason, Reason::Deadlock);
            true
        }
        _ => false,
    };
    locks.release_all(worker, owner);
    lost
}
