//! Tests of hazard pointers, one step at a time, and at full size with canaries. Interleavings of
//! the steps are in `models/hazard.rs`.

use foxton_sync::epoch::{Domain, Participant};
use foxton_sync::shim::{AtomicPtr, AtomicU64, Ordering};
use foxton_sync::worker::Workers;
use std::ptr;
use std::thread;

const ALIVE: u64 = 0x1234_5678_9ABC_DEF0;

/// Marks itself when it is freed.
struct Canary(AtomicU64);

impl Canary {
    fn hatch() -> *mut Canary {
        Box::into_raw(Box::new(Canary(AtomicU64::new(ALIVE))))
    }
}

unsafe fn free(address: *mut ()) {
    let canary = address.cast::<Canary>();
    // SAFETY: it came from a box and is freed once, when no thread looks any more.
    let canary = unsafe { Box::from_raw(canary) };
    canary.0.store(0, Ordering::Relaxed);
}

/// Puts a new one into the place, and retires the old one as an object of `bytes` bytes.
fn replace(place: &AtomicPtr<Canary>, writer: &Participant, bytes: usize) {
    let old = place.swap(Canary::hatch(), Ordering::AcqRel);
    // SAFETY: this exchange alone took it out, and here all threads look by hazards.
    unsafe { writer.retire_hazard_protected(old.cast(), bytes, free) };
}

fn is_alive(found: *mut Canary) -> bool {
    // SAFETY: the caller's hazard names it.
    unsafe { &*found }.0.load(Ordering::Relaxed) == ALIVE
}

fn free_last(place: AtomicPtr<Canary>) {
    // SAFETY: no thread looks any more.
    unsafe { free(place.into_inner().cast()) };
}

#[test]
fn a_hazard_protects_one_object_and_no_other() {
    let domain = Domain::new();
    let (reader, writer) = (domain.participant(), domain.participant());
    let place = AtomicPtr::new(Canary::hatch());
    replace(&place, &writer, 8);
    let mut hazard = reader.hazard();
    let found = hazard.protect(&place);
    for _ in 0..10 {
        replace(&place, &writer, 8);
    }
    assert_eq!(domain.retired(), 11);
    writer.collect();
    assert_eq!(domain.retired(), 1);
    assert!(is_alive(found));
    hazard.protect(&place);
    writer.collect();
    assert_eq!(domain.retired(), 0);
    replace(&place, &writer, 8);
    writer.collect();
    assert_eq!(domain.retired(), 1);
    drop(hazard);
    writer.collect();
    assert_eq!(domain.retired(), 0);
    free_last(place);
}

#[test]
fn a_pin_keeps_nothing_that_is_hazard_protected() {
    let domain = Domain::new();
    let (sleeper, writer) = (domain.participant(), domain.participant());
    let place = AtomicPtr::new(Canary::hatch());
    let guard = sleeper.pin();
    for _ in 0..10_000 {
        replace(&place, &writer, 1024);
    }
    assert!(domain.retired() < 1_100, "{}", domain.retired());
    drop(guard);
    free_last(place);
}

#[test]
fn objects_of_a_dropped_participant_are_freed_unless_protected() {
    let domain = Domain::new();
    let (reader, other) = (domain.participant(), domain.participant());
    let place = AtomicPtr::new(Canary::hatch());
    let mut hazard = reader.hazard();
    let found = hazard.protect(&place);
    let gone = domain.participant();
    replace(&place, &gone, 8);
    replace(&place, &gone, 8);
    drop(gone);
    assert_eq!(domain.retired(), 2);
    other.collect();
    assert_eq!(domain.retired(), 1);
    assert!(is_alive(found));
    // A forgotten hazard protects its object until its participant is dropped.
    std::mem::forget(hazard);
    other.collect();
    assert_eq!(domain.retired(), 1);
    drop(reader);
    other.collect();
    assert_eq!(domain.retired(), 0);
    free_last(place);
}

/// An object kept by a forgotten hazard is on the list when the last participant is dropped, and no
/// thread sweeps it any more.
#[test]
fn a_dropped_domain_frees_all_hazard_protected_objects() {
    static FREED: AtomicU64 = AtomicU64::new(0);
    unsafe fn free_counting(address: *mut ()) {
        // SAFETY: passed on.
        unsafe { free(address) };
        FREED.fetch_add(1, Ordering::Relaxed);
    }
    let domain = Domain::new();
    let place = AtomicPtr::new(Canary::hatch());
    let (reader, writer) = (domain.participant(), domain.participant());
    let mut hazard = reader.hazard();
    let found = hazard.protect(&place);
    std::mem::forget(hazard);
    place.store(ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: no thread finds it any more, and the hazard protects it for the thread that has found
    // it.
    unsafe { writer.retire_hazard_protected(found.cast(), 8, free_counting) };
    drop(writer);
    drop(reader);
    assert_eq!((domain.retired(), FREED.load(Ordering::Relaxed)), (1, 0));
    drop(domain);
    assert_eq!(FREED.load(Ordering::Relaxed), 1);
}

#[test]
fn four_objects_are_protected_at_once() {
    let domain = Domain::new();
    let (reader, writer) = (domain.participant(), domain.participant());
    let places = [0; 4].map(|_| AtomicPtr::new(Canary::hatch()));
    let mut hazards = places.each_ref().map(|_| reader.hazard());
    let both = hazards.iter_mut().zip(&places);
    let found: Vec<_> = both.map(|(hazard, place)| hazard.protect(place)).collect();
    places.iter().for_each(|place| replace(place, &writer, 8));
    writer.collect();
    assert!(found.into_iter().all(is_alive));
    assert_eq!(domain.retired(), 4);
    // A released hazard can be acquired again.
    let [first, _second, third, fourth] = hazards;
    drop((first, third));
    writer.collect();
    assert_eq!(domain.retired(), 2);
    let _again = [reader.hazard(), reader.hazard()];
    drop(fourth);
    writer.collect();
    assert_eq!(domain.retired(), 1);
    places.into_iter().for_each(free_last);
}

#[test]
#[should_panic(expected = "too much is looked at at once")]
fn a_fifth_hazard_is_refused() {
    let domain = Domain::new();
    let reader = domain.participant();
    let _hazards = [0; 5].map(|_| reader.hazard());
}

#[test]
fn an_empty_source_gives_null() {
    let domain = Domain::new();
    let reader = domain.participant();
    let place: AtomicPtr<Canary> = AtomicPtr::new(ptr::null_mut());
    assert!(reader.hazard().protect(&place).is_null());
}

/// Threads replace and read a few shared pointers; a thread that reads under a hazard finds a valid
/// canary.
#[test]
fn no_canary_is_read_after_it_was_freed() {
    const THREADS: usize = 64;
    const ROUNDS: usize = 10_000;
    let places = [0; 4].map(|_| AtomicPtr::new(Canary::hatch()));
    let workers = Workers::with_seed(7);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let worker = workers.worker();
            let places = &places;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let place = &places[worker.random_below(4) as usize];
                    if worker.random_below(4) == 0 {
                        // Large ones, so that hazards are swept all the time.
                        replace(place, worker.participant(), 64 << 10);
                    } else {
                        let mut hazard = worker.participant().hazard();
                        let found = hazard.protect(place);
                        if worker.random_below(256) == 0 {
                            thread::yield_now();
                        }
                        assert!(is_alive(found));
                    }
                }
            });
        }
    });
    assert!(workers.domain().retired() < 1_000);
    places.into_iter().for_each(free_last);
}
