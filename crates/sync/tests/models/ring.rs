//! Models of each ordering named in `ring.rs`, in the smallest history that needs it. The checker
//! sees every access to the ring's bytes, and so finds each that comes too early.

use foxton_sync::ring::{Completion, Reservation, Ring, RingAllocator, SharedAllocator};
use foxton_sync::shim::{Arc, AtomicBool, Mutex, Ordering::Relaxed, lock};

fn fill(mut reservation: Reservation<'_>) {
    let length = (reservation.end() - reservation.at()) as usize;
    reservation.write(&vec![1; length]);
    reservation.complete();
}

/// Polls once, and reads what is complete.
fn read(drainer: &mut foxton_sync::ring::Drainer) -> u64 {
    let length = drainer.poll() - drainer.at();
    assert!(
        drainer
            .bytes(length)
            .iter()
            .all(|part| part.iter().all(|byte| *byte == 1))
    );
    length
}

#[test]
fn o1_the_next_lap_is_written_after_the_last_was_read() {
    for shared in [false, true] {
        loom::model(move || {
            let (ring, mut allocator, mut drainer) = Ring::new(64, 0, Completion::Delegated);
            fill(allocator.reserve(&ring, 24).unwrap());
            let reader = loom::thread::spawn(move || {
                let length = read(&mut drainer);
                assert_eq!(length, 24);
                drainer.release(length);
            });
            // Wraps around the end, over what is being read.
            if shared {
                let allocator = SharedAllocator::from(allocator);
                if let Ok(reservation) = allocator.reserve(48, 1) {
                    fill(reservation);
                }
            } else if let Some(reservation) = allocator.reserve(&ring, 48) {
                fill(reservation);
            }
            reader.join().unwrap();
        });
    }
}

#[test]
fn o1_bytes_read_before_a_bypass_are_free_behind_it() {
    loom::model(|| {
        let (ring, mut allocator, mut drainer) = Ring::new(64, 0, Completion::Delegated);
        fill(allocator.reserve(&ring, 24).unwrap());
        let bypass = allocator.skip(64);
        let reader = loom::thread::spawn(move || {
            assert!(drainer.wait_for(bypass));
            let length = read(&mut drainer);
            drainer.release(length);
            drainer.skip();
        });
        if let Some(reservation) = allocator.reserve(&ring, 64) {
            fill(reservation);
        }
        reader.join().unwrap();
    });
}

#[test]
fn o2_a_reservation_seen_complete_is_written() {
    loom::model(|| {
        let (ring, mut allocator, mut drainer) = Ring::new(64, 0, Completion::Delegated);
        fill(allocator.reserve(&ring, 24).unwrap());
        let writer = loom::thread::spawn(move || {
            let allocator = SharedAllocator::from(allocator);
            fill(allocator.reserve(24, 1).unwrap());
        });
        read(&mut drainer);
        writer.join().unwrap();
        read(&mut drainer);
        assert_eq!(drainer.poll(), 48);
    });
}

#[test]
fn o2_a_long_reservation_seen_complete_has_its_length() {
    loom::model(|| {
        let (ring, mut allocator, mut drainer) = Ring::new(128, 0, Completion::Delegated);
        // So that the marks of the long length wrap around the end.
        fill(allocator.reserve(&ring, 48).unwrap());
        let length = read(&mut drainer);
        drainer.release(length);
        let writer = loom::thread::spawn(move || fill(allocator.reserve(&ring, 128).unwrap()));
        let seen = read(&mut drainer);
        assert!(seen == 0 || seen == 128, "{seen} of 128 bytes");
        writer.join().unwrap();
        assert_eq!(read(&mut drainer), 128);
    });
}

#[test]
fn o3_in_order_the_second_seen_complete_implies_the_first_written() {
    loom::model(|| {
        let (_, allocator, mut drainer) = Ring::new(64, 0, Completion::InOrder);
        let allocator = Arc::new(SharedAllocator::from(allocator));
        let writer = {
            let allocator = allocator.clone();
            loom::thread::spawn(move || fill(allocator.reserve(24, 9).unwrap()))
        };
        let second = loom::thread::spawn(move || fill(allocator.reserve(24, 9).unwrap()));
        read(&mut drainer);
        writer.join().unwrap();
        second.join().unwrap();
        assert_eq!(read(&mut drainer), 48);
    });
}

/// Checks histories of three threads, with two preemptions each. The first stores a word and then
/// moves the front from `at`, which it returns; the second moves or closes it, too. The third loads
/// the front and then the word.
fn check_front<A: Send + Sync + 'static>(
    make: impl Fn(RingAllocator) -> A + Send + Sync + 'static,
    first: impl Fn(&A, &Ring) -> u64 + Copy + Send + Sync + 'static,
    second: impl Fn(&A) + Copy + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let (ring, allocator, _drainer) = Ring::new(64, 0, Completion::Delegated);
        let allocator = Arc::new(make(allocator));
        let word = Arc::new(AtomicBool::new(false));
        let first = {
            let (ring, allocator, word) = (ring.clone(), allocator.clone(), word.clone());
            loom::thread::spawn(move || {
                word.store(true, Relaxed); // Relaxed: O4 is what orders it.
                first(&allocator, &ring)
            })
        };
        let second = loom::thread::spawn(move || second(&allocator));
        let reader = loom::thread::spawn(move || {
            let front = ring.front();
            (front, word.load(Relaxed)) // Relaxed: as above.
        });
        let (front, seen) = reader.join().unwrap();
        let at = first.join().unwrap();
        second.join().unwrap();
        assert!(seen || front <= at, "front {front}");
    });
}

/// Returns where it began; nothing of it is written or read.
fn forget(reservation: Reservation<'_>) -> u64 {
    let at = reservation.at();
    std::mem::forget(reservation);
    at
}

#[test]
fn o4_a_front_behind_a_reservation_shows_what_precedes_it() {
    let reserve = |allocator: &SharedAllocator, _: &Ring| match allocator.reserve(24, 2) {
        Ok(reservation) => forget(reservation),
        Err(_) => u64::MAX,
    };
    let skip =
        |allocator: &SharedAllocator, _: &Ring| allocator.skip(24).map_or(u64::MAX, |gap| gap.at());
    let skip_too = |allocator: &SharedAllocator| drop(allocator.skip(24));
    check_front(SharedAllocator::from, reserve, skip_too);
    check_front(SharedAllocator::from, reserve, SharedAllocator::close);
    check_front(SharedAllocator::from, skip, skip_too);
}

/// As above, with an allocator that threads use one after the other.
#[test]
fn o4_a_front_that_one_thread_at_a_time_stores_shows_what_precedes_it() {
    type Latched = Mutex<RingAllocator>;
    let reserve = |allocator: &Latched, ring: &Ring| {
        let reservation = lock(allocator).reserve(ring, 24).map(forget);
        reservation.expect("there is space")
    };
    let skip = |allocator: &Latched, _: &Ring| lock(allocator).skip(24).at();
    let skip_too = |allocator: &Latched| drop(lock(allocator).skip(24));
    check_front(Mutex::new, reserve, skip_too);
    check_front(Mutex::new, skip, skip_too);
}

/// The thread whose turn comes after the break would complete bytes that were not written.
#[test]
fn in_order_nothing_behind_a_break_becomes_complete() {
    loom::model(|| {
        let (_, allocator, mut drainer) = Ring::new(64, 0, Completion::InOrder);
        let allocator = Arc::new(SharedAllocator::from(allocator));
        let breaking = allocator.reserve(24, 1).map(|place| place.at()).is_ok();
        assert!(breaking, "it was dropped, unwritten");
        let behind = loom::thread::spawn(move || fill(allocator.reserve(24, 1).unwrap()));
        assert_eq!(drainer.poll(), 0);
        behind.join().unwrap();
        assert_eq!(drainer.poll(), 0);
    });
}

#[test]
fn a_sleeping_drainer_is_woken() {
    for completion in [Completion::Delegated, Completion::InOrder] {
        loom::model(move || {
            let (_, allocator, mut drainer) = Ring::new(64, 0, completion);
            let allocator = SharedAllocator::from(allocator);
            let sleeper = loom::thread::spawn(move || {
                assert!(drainer.wait());
                assert_eq!(read(&mut drainer), 24);
            });
            fill(allocator.reserve(24, 1).unwrap());
            sleeper.join().unwrap();
        });
    }
}

#[test]
fn a_sleeping_drainer_is_woken_when_the_ring_breaks() {
    loom::model(|| {
        let (_, allocator, mut drainer) = Ring::new(64, 0, Completion::Delegated);
        let allocator = SharedAllocator::from(allocator);
        let sleeper = loom::thread::spawn(move || assert!(!drainer.wait()));
        drop(allocator.reserve(24, 1).unwrap());
        sleeper.join().unwrap();
    });
}
