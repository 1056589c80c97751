//! Tests of epochs, one step at a time, and at full size with canaries. Interleavings of the steps
//! are in `models/epoch.rs`.

use foxton_sync::epoch::{Domain, Participant};
use foxton_sync::shim::{Arc, AtomicPtr, AtomicU64, Ordering};
use foxton_sync::worker::Workers;
use std::ptr;
use std::thread;

/// Counts how many of its kind were dropped.
struct Tracked(Arc<AtomicU64>);

impl Drop for Tracked {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn retire_one(participant: &Participant, freed: &Arc<AtomicU64>) {
    participant.retire(Box::new(Tracked(freed.clone())));
}

fn collect_often(participant: &Participant) {
    for _ in 0..4 {
        participant.collect();
    }
}

#[test]
fn a_retired_object_is_freed_two_epochs_later() {
    let domain = Domain::new();
    let participant = domain.participant();
    let freed = Arc::new(AtomicU64::new(0));
    retire_one(&participant, &freed);
    let before = domain.epoch();
    participant.collect();
    assert_eq!(
        (domain.epoch() - before, freed.load(Ordering::Relaxed)),
        (1, 0)
    );
    participant.collect();
    assert_eq!(
        (domain.epoch() - before, freed.load(Ordering::Relaxed)),
        (2, 1)
    );
    assert_eq!(participant.retired(), 0);
}

#[test]
fn a_pin_keeps_everything_retired_after_it() {
    let domain = Domain::new();
    let (reader, retirer) = (domain.participant(), domain.participant());
    let freed = Arc::new(AtomicU64::new(0));
    let guard = reader.pin();
    retire_one(&retirer, &freed);
    collect_often(&retirer);
    assert_eq!(freed.load(Ordering::Relaxed), 0);
    assert_eq!(domain.retired(), 1);
    drop(guard);
    collect_often(&retirer);
    assert_eq!(freed.load(Ordering::Relaxed), 1);
}

#[test]
fn the_domain_counts_objects_retired_and_not_freed() {
    let domain = Domain::new();
    let (reader, retirer, gone) = (
        domain.participant(),
        domain.participant(),
        domain.participant(),
    );
    let freed = Arc::new(AtomicU64::new(0));
    let guard = reader.pin();
    for _ in 0..3 {
        retire_one(&retirer, &freed);
    }
    retire_one(&gone, &freed);
    assert_eq!((retirer.retired(), domain.retired()), (3, 4));
    drop(gone);
    collect_often(&retirer);
    assert_eq!((retirer.retired(), domain.retired()), (0, 4));
    drop(guard);
    collect_often(&retirer);
    assert_eq!((retirer.retired(), domain.retired()), (0, 0));
    assert_eq!(freed.load(Ordering::Relaxed), 4);
}

#[test]
fn pins_nest() {
    let domain = Domain::new();
    let (reader, retirer) = (domain.participant(), domain.participant());
    let freed = Arc::new(AtomicU64::new(0));
    let outer = reader.pin();
    let inner = reader.pin();
    drop(outer);
    retire_one(&retirer, &freed);
    collect_often(&retirer);
    assert!(reader.is_pinned());
    assert_eq!(freed.load(Ordering::Relaxed), 0);
    drop(inner);
    assert!(!reader.is_pinned());
    collect_often(&retirer);
    assert_eq!(freed.load(Ordering::Relaxed), 1);
}

#[test]
fn a_bag_that_fills_collects_by_itself() {
    let domain = Domain::new();
    let participant = domain.participant();
    let freed = Arc::new(AtomicU64::new(0));
    for _ in 0..10_000 {
        let guard = participant.pin();
        guard.retire(Box::new(Tracked(freed.clone())));
    }
    assert!(domain.retired() < 10_000);
    assert_eq!(
        domain.retired() as u64 + freed.load(Ordering::Relaxed),
        10_000
    );
}

/// Objects of a kibibyte each, without a call that frees them.
#[test]
fn the_more_is_retired_the_sooner_it_is_freed() {
    let domain = Domain::new();
    let participant = domain.participant();
    for _ in 0..10_000 {
        participant.retire(Box::new([0_u8; 1024]));
    }
    assert!(domain.retired() < 1_000, "{}", domain.retired());
}

/// Most participants sleep, each with a few retired objects, and one works.
#[test]
fn objects_retired_by_sleepers_are_freed_by_others() {
    let domain = Domain::new();
    let sleepers: Vec<_> = (0..100).map(|_| domain.participant()).collect();
    let freed = Arc::new(AtomicU64::new(0));
    for sleeper in &sleepers {
        for _ in 0..200 {
            retire_one(sleeper, &freed);
        }
    }
    collect_often(&domain.participant());
    let kept: usize = sleepers.iter().map(Participant::retired).sum();
    assert!(kept <= 100 * 64, "{kept}");
    assert_eq!(domain.retired(), kept);
    assert_eq!(freed.load(Ordering::Relaxed) as usize, 20_000 - kept);
}

#[test]
fn objects_of_a_dropped_participant_are_freed_by_others() {
    let domain = Domain::new();
    let (gone, other) = (domain.participant(), domain.participant());
    let freed = Arc::new(AtomicU64::new(0));
    let guard = other.pin();
    retire_one(&gone, &freed);
    drop(gone);
    assert_eq!(freed.load(Ordering::Relaxed), 0);
    drop(guard);
    collect_often(&other);
    assert_eq!(freed.load(Ordering::Relaxed), 1);
}

/// Each of many participants leaves something behind when it is dropped. One that works frees it.
#[test]
fn objects_of_many_dropped_participants_are_freed_while_they_are_dropped() {
    let domain = Domain::new();
    let many: Vec<_> = (0..20_000).map(|_| domain.participant()).collect();
    let freed = Arc::new(AtomicU64::new(0));
    many.iter().for_each(|one| retire_one(one, &freed));
    assert_eq!(domain.retired(), 20_000);
    let before = domain.epoch();
    drop(many);
    // Few tries to advance the epoch, because each looks at all participants; and enough of them.
    let tries = domain.epoch() - before;
    assert!((2..200).contains(&tries), "{tries}");
    assert!(domain.retired() < 5_000, "{}", domain.retired());
}

#[test]
fn a_dropped_domain_frees_everything() {
    let domain = Domain::new();
    let freed = Arc::new(AtomicU64::new(0));
    retire_one(&domain.participant(), &freed);
    drop(domain);
    assert_eq!(freed.load(Ordering::Relaxed), 1);
}

#[test]
fn a_guard_knows_its_domain() {
    let (here, there) = (Domain::new(), Domain::new());
    let participant = here.participant();
    let guard = participant.pin();
    assert!(guard.pins(&here));
    assert!(!guard.pins(&there));
}

const ALIVE: u64 = 0x1234_5678_9ABC_DEF0;

struct Canary(AtomicU64);

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Threads replace and read a few shared pointers; a thread that reads under a pin finds a valid
/// canary.
#[test]
fn no_canary_is_read_after_it_was_freed() {
    const THREADS: usize = 64;
    const ROUNDS: usize = 3_000;
    let canary = || Box::into_raw(Box::new(Canary(AtomicU64::new(ALIVE))));
    let places: Vec<AtomicPtr<Canary>> = (0..4).map(|_| AtomicPtr::new(canary())).collect();
    let workers = Workers::with_seed(7);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let worker = workers.worker();
            let places = &places;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let place = &places[worker.random_below(4) as usize];
                    let guard = worker.pin();
                    if worker.random_below(4) == 0 {
                        let old = place.swap(canary(), Ordering::AcqRel);
                        // SAFETY: it came from a box and was taken out by this exchange alone.
                        guard.retire(unsafe { Box::from_raw(old) });
                    } else {
                        // SAFETY: found under a pin, so not freed before it ends.
                        let found = unsafe { &*place.load(Ordering::Acquire) };
                        if worker.random_below(256) == 0 {
                            thread::yield_now();
                        }
                        assert_eq!(found.0.load(Ordering::Relaxed), ALIVE);
                    }
                }
            });
        }
    });
    for place in places {
        let last = place.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: all threads are done.
        drop(unsafe { Box::from_raw(last) });
    }
}
