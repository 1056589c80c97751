//! Models of each ordering named in `ring.rs`, in the smallest history that needs it. The checker
//! sees every access to the ring's bytes, and so finds each that comes too early.

use foxton_sync::ring::{Completion, Reservation, Ring, SharedAllocator};
use foxton_sync::shim::Arc;

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
