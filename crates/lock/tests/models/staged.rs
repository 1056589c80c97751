//! Each ordering named under `managers/staged`, in the smallest history that needs it; and the
//! guarantees of the protocol, in every interleaving of two threads.
//!
//! Under the checker a segment has four requests, a chain is cleaned at the first obsolete request
//! too many, and one latch is over all queues. At most two preemptions.

use crate::modelled::{
    A, B, Beside, beside, holds, manager, manager_for, model, model_within, nobody_is_left,
    released,
};
use foxton_lock::{
    any::{AnyManager, ManagerKind},
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::Owner,
};
use foxton_sync::{
    shim::{Arc, AtomicU64, Ordering, thread},
    worker::Worker,
};

#[allow(dead_code, unreachable_pub, reason = "a part of the crate, by itself")]
#[path = "../../src/managers/staged/free_flags.rs"]
mod free_flags;

const BOTH: [ManagerKind; 2] = [ManagerKind::Staged, ManagerKind::StagedPaper];

/// Data that locks protect. Read and written without any ordering: a thread that comes too early
/// finds the old value.
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

/// A thread that finds a request finds all of it: owner, name and mode.
#[test]
fn o1_a_request_is_found_whole() {
    for kind in BOTH {
        for is_empty in [true, false] {
            model(move || {
                let (locks, worker, other) = manager(kind);
                let (mut first, mut second) = (locks.owner(), locks.owner());
                if !is_empty {
                    holds(&locks, &worker, &mut first, A, Mode::IS);
                }
                let owners = [first.id(), second.id()];
                let comer = beside(&locks, other, move |locks, other| {
                    holds(locks, other, &mut second, A, Mode::IS);
                    second
                });
                for queue in locks.inspect(&worker).queues {
                    assert_eq!(queue.name, A);
                    for holder in queue.holders {
                        assert_eq!(holder.mode, Mode::IS);
                        assert!(owners.contains(&holder.owner));
                    }
                }
                let mut second = comer.join();
                locks.release_all(&worker, &mut second);
                locks.release_all(&worker, &mut first);
                nobody_is_left(&locks, &worker);
            });
        }
    }
}

/// Returns an owner that has requests already; the ways to a segment have models of their own.
fn provided(locks: &AnyManager, worker: &Worker) -> Owner {
    let mut owner = locks.owner();
    holds(locks, worker, &mut owner, B, Mode::S);
    locks.release_all(worker, &mut owner);
    owner
}

/// Two requests come at once for a lock that only one can have.
#[test]
fn o1_one_of_two_simultaneous_requests_is_refused() {
    for kind in BOTH {
        model(move || {
            let (locks, worker, other) = manager(kind);
            let (mut first, mut second) = (provided(&locks, &worker), provided(&locks, &worker));
            let comer = beside(&locks, other, move |locks, other| {
                let outcome = locks.try_lock(other, &mut second, A, Mode::X);
                (outcome.is_held(), second)
            });
            let mine = locks.try_lock(&worker, &mut first, A, Mode::X).is_held();
            let (theirs, mut second) = comer.join();
            assert!(!(mine && theirs), "both hold it");
            locks.release_all(&worker, &mut first);
            locks.release_all(&worker, &mut second);
            nobody_is_left(&locks, &worker);
        });
    }
}

/// All five schedules of the paper's Figure 7.
fn a_release_wakes_the_waiter(kind: ManagerKind) {
    model(move || {
        let (locks, worker, other) = manager(kind);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        holds(&locks, &worker, &mut first, A, Mode::X);
        let releaser = released(&locks, other, first);
        let outcome = locks.lock(&worker, &mut second, A, Mode::X, None);
        assert!(outcome.is_held());
        releaser.join();
        locks.release_all(&worker, &mut second);
        nobody_is_left(&locks, &worker);
    });
}

#[test]
fn o2_a_release_wakes_the_waiter() {
    a_release_wakes_the_waiter(ManagerKind::Staged);
}

#[test]
fn o4_a_release_wakes_the_waiter_of_a_tail() {
    a_release_wakes_the_waiter(ManagerKind::StagedPaper);
}

#[test]
fn o2_who_empties_a_chain_finds_all_obsolete() {
    model(|| {
        let (locks, worker, other) = manager(ManagerKind::Staged);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        holds(&locks, &worker, &mut first, A, Mode::S);
        holds(&locks, &worker, &mut second, A, Mode::S);
        let releaser = released(&locks, other, first);
        locks.release_all(&worker, &mut second);
        releaser.join();
        nobody_is_left(&locks, &worker);
    });
}

#[test]
fn o2_who_puts_behind_a_request_comes_after_it_was_written() {
    model(|| {
        let (locks, worker, other) = manager(ManagerKind::StagedPaper);
        let (mut first, mut second) = (provided(&locks, &worker), locks.owner());
        let comer = beside(&locks, other, move |locks, other| {
            holds(locks, other, &mut second, A, Mode::S);
            second
        });
        holds(&locks, &worker, &mut first, A, Mode::S);
        let mut second = comer.join();
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

fn who_is_granted_comes_after_who_released(kind: ManagerKind) {
    model(move || {
        let (locks, worker, other) = manager(kind);
        let cell = Cell::new();
        let (mut first, mut second) = (locks.owner(), locks.owner());
        holds(&locks, &worker, &mut first, A, Mode::X);
        let releaser = writes_and_releases(&locks, other, &cell, first);
        if locks.try_lock(&worker, &mut second, A, Mode::X).is_held() {
            assert_eq!(cell.read(), 1);
        }
        releaser.join();
        locks.release_all(&worker, &mut second);
        nobody_is_left(&locks, &worker);
    });
}

/// Three readers, two of them gone: the second to go cleans, while the third goes or cleans, too.
fn unlinked_once(kind: ManagerKind) {
    model(move || {
        let (locks, worker, other) = manager(kind);
        let [mut first, mut second, third] = readers(&locks, &worker);
        locks.release_all(&worker, &mut second);
        let cleaner = released(&locks, other, *third);
        locks.release_all(&worker, &mut first);
        cleaner.join();
        nobody_is_left(&locks, &worker);
    });
}

/// Returns owners that hold one name together, the last of them on top. They are in boxes, because
/// the stack of a model is small.
fn readers<const COUNT: usize>(locks: &AnyManager, worker: &Worker) -> [Box<Owner>; COUNT] {
    let mut owners = [(); COUNT].map(|()| Box::new(locks.owner()));
    for owner in &mut owners {
        holds(locks, worker, owner, A, Mode::S);
    }
    owners
}

/// Of five readers two are gone from the middle. A third one is released from there, and so the
/// middle is cleaned. Meanwhile the newest is taken out, or the oldest is released and may be the
/// last one counted.
fn cleaned_beside(is_newest: bool) {
    model(move || {
        let (locks, worker, other) = manager(ManagerKind::Staged);
        let [mut oldest, mut gone, mut also, cleaner, mut newest] = readers(&locks, &worker);
        locks.release_all(&worker, &mut gone);
        locks.release_all(&worker, &mut also);
        let cleaner = released(&locks, other, *cleaner);
        let [one, last] = if is_newest {
            [&mut newest, &mut oldest]
        } else {
            [&mut oldest, &mut newest]
        };
        locks.release_all(&worker, one);
        cleaner.join();
        locks.release_all(&worker, last);
        nobody_is_left(&locks, &worker);
    });
}

#[test]
fn o4_who_takes_out_the_newest_meets_no_cleaning() {
    cleaned_beside(true);
}

#[test]
fn o4_who_cleans_leaves_nothing_to_who_goes_last() {
    cleaned_beside(false);
}

/// Four of seven readers are gone from the middle, and so it is cleaned. Meanwhile the two oldest
/// are released, and so it has to be cleaned again. The second cleaning follows the links as the
/// first has left them. By the old ones it would find obsolete requests that lead to each other,
/// and take them out once more.
#[test]
fn o4_the_next_cleaning_follows_the_links_that_are_left() {
    model(|| {
        let (locks, worker, other) = manager(ManagerKind::Staged);
        let [mut oldest, mut older, one, two, three, mut four, mut newest] =
            readers(&locks, &worker);
        for mut gone in [one, two, three] {
            locks.release_all(&worker, &mut gone);
        }
        let cleaner = beside(&locks, other, move |locks, worker| {
            locks.release_all(worker, &mut oldest);
            locks.release_all(worker, &mut older);
        });
        locks.release_all(&worker, &mut four);
        cleaner.join();
        locks.release_all(&worker, &mut newest);
        nobody_is_left(&locks, &worker);
    });
}

fn writes_and_releases(
    locks: &Arc<AnyManager>,
    worker: Worker,
    cell: &Arc<Cell>,
    mut owner: Owner,
) -> Beside<()> {
    let cell = cell.clone();
    beside(locks, worker, move |locks, worker| {
        cell.write();
        locks.release_all(worker, &mut owner);
    })
}

/// Returns a key, and a mode of it that conflicts with itself and with no reader of the key.
fn gap() -> (Name, Mode) {
    let key = Name::key(1, b"a", &KeyHasher::new(1));
    (key, Mode::key(KeyPart::None, GapPart::X))
}

/// The newest is taken out with the obsolete requests below it. A thread that does not find those
/// any more comes after everything that their owner did, though the owner may not have changed the
/// word yet.
#[test]
fn o5_taking_out_obsolete_requests_comes_after_their_release() {
    model(|| {
        let (locks, worker, other) = manager(ManagerKind::Staged);
        let (key, gap) = gap();
        let cell = Cell::new();
        let owners = [(); 4].map(|()| Box::new(locks.owner()));
        let [mut kept, mut writer, mut newest, mut comer] = owners;
        holds(&locks, &worker, &mut kept, key, Mode::S);
        holds(&locks, &worker, &mut writer, key, gap);
        holds(&locks, &worker, &mut newest, key, Mode::S);
        let writer = writes_and_releases(&locks, other, &cell, *writer);
        locks.release_all(&worker, &mut newest);
        if locks.try_lock(&worker, &mut comer, key, gap).is_held() {
            assert_eq!(cell.read(), 1);
        }
        writer.join();
        locks.release_all(&worker, &mut comer);
        locks.release_all(&worker, &mut kept);
        nobody_is_left(&locks, &worker);
    });
}

/// One thread releases, another cleans, and the third does not find what was unlinked. Three
/// threads are needed: the releasing one has marked and not counted, and the cleaning one has
/// linked and not ended. Any further step of either on the word would order the third by itself.
#[test]
#[ignore = "takes minutes: RUSTFLAGS='--cfg loom' cargo test --target-dir target/loom --release -p foxton-lock --test models staged:: -- --ignored"]
fn o5_not_finding_a_request_comes_after_its_release() {
    model(|| {
        let (locks, workers) = manager_for(ManagerKind::Staged);
        let worker = workers.worker();
        let (key, gap) = gap();
        let cell = Cell::new();
        let mut owners = [(); 5].map(|()| Box::new(locks.owner()));
        for (at, owner) in owners.iter_mut().enumerate() {
            let mode = if at == 0 { gap } else { Mode::S };
            holds(&locks, &worker, owner, key, mode);
        }
        let [writer, mut gone, mut also, cleaner, mut kept] = owners;
        locks.release_all(&worker, &mut gone);
        locks.release_all(&worker, &mut also);
        let writer = writes_and_releases(&locks, workers.worker(), &cell, *writer);
        let cleaner = released(&locks, workers.worker(), *cleaner);
        let mut comer = locks.owner();
        if locks.try_lock(&worker, &mut comer, key, gap).is_held() {
            assert_eq!(cell.read(), 1);
        }
        locks.release_all(&worker, &mut comer);
        writer.join();
        cleaner.join();
        locks.release_all(&worker, &mut kept);
        nobody_is_left(&locks, &worker);
    });
}

#[test]
fn o5_who_is_granted_past_a_request_comes_after_its_release() {
    who_is_granted_comes_after_who_released(ManagerKind::Staged);
}

#[test]
fn o4_what_was_unlinked_is_not_met_again() {
    unlinked_once(ManagerKind::Staged);
}

#[test]
fn o5_what_was_unlinked_from_a_tail_is_not_met_again() {
    unlinked_once(ManagerKind::StagedPaper);
}

#[test]
fn o1_the_last_to_clear_a_flag_comes_after_all_others() {
    for words in [[0, 0], [0, 1]] {
        model(move || {
            let flags = Arc::new(free_flags::FreeFlags::new());
            flags.fill();
            let cells = [Cell::new(), Cell::new()];
            let bytes = if words[0] == words[1] { [0, 1] } else { [0, 0] };
            // The rest has been cleared before.
            for (word, byte) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                if (0..2).all(|at| (words[at], bytes[at]) != (word, byte)) {
                    assert!(!flags.clear(word, done(byte)));
                }
            }
            let work = move |at: usize, flags: &free_flags::FreeFlags, cells: &[Arc<Cell>; 2]| {
                cells[at].write();
                let is_last = flags.clear(words[at], done(bytes[at]));
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

fn done(byte: u32) -> free_flags::DoneFlags {
    let mut done = free_flags::DoneFlags::default();
    done.add(byte);
    done
}

#[test]
fn o1_who_takes_a_segment_finds_its_flags_set() {
    model(|| {
        let (locks, worker, other) = manager(ManagerKind::Staged);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        let taker = beside(&locks, other, move |locks, other| {
            holds(locks, other, &mut second, A, Mode::S);
            second
        });
        holds(&locks, &worker, &mut first, A, Mode::S);
        taker.join();
    });
}

#[test]
fn o3_who_takes_from_the_shared_segment_finds_its_flags_set() {
    // Two threads that fill the ring at once take many steps; one preemption is enough to come
    // between two of them.
    model_within(1, || {
        let (locks, worker, other) = manager(ManagerKind::StagedPaper);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        let taker = beside(&locks, other, move |locks, other| {
            holds(locks, other, &mut second, B, Mode::S);
            second
        });
        holds(&locks, &worker, &mut first, A, Mode::S);
        taker.join();
    });
}

#[test]
fn o2_who_finds_a_dead_segment_finds_it_clear() {
    model(|| {
        let (locks, worker, other) = manager(ManagerKind::Staged);
        let (mut first, mut second) = (locks.owner(), locks.owner());
        for number in 0..4 {
            holds(&locks, &worker, &mut first, Name::advisory(number), Mode::S);
        }
        let releaser = released(&locks, other, first);
        holds(&locks, &worker, &mut second, A, Mode::S);
        releaser.join();
    });
}

#[test]
fn a_conversion_and_a_new_request_at_once_are_not_both_granted() {
    for kind in BOTH {
        model(move || {
            let (locks, worker, other) = manager(kind);
            let (mut first, mut second) = (locks.owner(), locks.owner());
            holds(&locks, &worker, &mut first, A, Mode::IS);
            let comer = beside(&locks, other, move |locks, other| {
                let outcome = locks.try_lock(other, &mut second, A, Mode::S);
                (outcome.is_held(), second)
            });
            let mine = locks.try_lock(&worker, &mut first, A, Mode::IX).is_held();
            let (theirs, mut second) = comer.join();
            assert!(!(mine && theirs), "IX beside S");
            locks.release_all(&worker, &mut first);
            locks.release_all(&worker, &mut second);
            nobody_is_left(&locks, &worker);
        });
    }
}
