//! Each ordering named in `ring.rs`, in the smallest history that needs it. The checker sees every
//! touch of the ring's bytes, and so finds who reads or writes too early by itself.
#![cfg(loom)]

use foxton_sync::ring::{Completion, Place, Ring, SharedFront};
use foxton_sync::shim::Arc;

fn fill(mut place: Place<'_>) {
    let length = (place.end() - place.at()) as usize;
    place.write(&vec![1; length]);
    place.complete();
}

/// Looks once, and reads what is complete.
fn read(taker: &mut foxton_sync::ring::Taker) -> u64 {
    let length = taker.look() - taker.at();
    assert!(
        taker
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
            let (ring, mut front, mut taker) = Ring::new(64, 0, Completion::Delegated);
            fill(front.allocate(&ring, 24).unwrap());
            let reader = loom::thread::spawn(move || {
                let length = read(&mut taker);
                assert_eq!(length, 24);
                taker.release(length);
            });
            // Goes around the end, over what is being read.
            if shared {
                let front = SharedFront::from(front);
                if let Ok(place) = front.allocate(48, 1) {
                    fill(place);
                }
            } else if let Some(place) = front.allocate(&ring, 48) {
                fill(place);
            }
            reader.join().unwrap();
        });
    }
}

#[test]
fn o1_what_was_read_before_a_gap_is_free_behind_it() {
    loom::model(|| {
        let (ring, mut front, mut taker) = Ring::new(64, 0, Completion::Delegated);
        fill(front.allocate(&ring, 24).unwrap());
        let gap = front.skip(64);
        let reader = loom::thread::spawn(move || {
            assert!(taker.meet(gap));
            let length = read(&mut taker);
            taker.release(length);
            taker.skip();
        });
        if let Some(place) = front.allocate(&ring, 64) {
            fill(place);
        }
        reader.join().unwrap();
    });
}

#[test]
fn o2_a_place_that_is_seen_complete_is_written() {
    loom::model(|| {
        let (ring, mut front, mut taker) = Ring::new(64, 0, Completion::Delegated);
        fill(front.allocate(&ring, 24).unwrap());
        let writer = loom::thread::spawn(move || {
            let front = SharedFront::from(front);
            fill(front.allocate(24, 1).unwrap());
        });
        read(&mut taker);
        writer.join().unwrap();
        read(&mut taker);
        assert_eq!(taker.look(), 48);
    });
}

#[test]
fn o2_a_long_place_that_is_seen_complete_has_its_length() {
    loom::model(|| {
        let (ring, mut front, mut taker) = Ring::new(128, 0, Completion::Delegated);
        // So that the marks of the long length go around the end.
        fill(front.allocate(&ring, 48).unwrap());
        let length = read(&mut taker);
        taker.release(length);
        let writer = loom::thread::spawn(move || fill(front.allocate(&ring, 128).unwrap()));
        let seen = read(&mut taker);
        assert!(seen == 0 || seen == 128, "{seen} of 128 bytes");
        writer.join().unwrap();
        assert_eq!(read(&mut taker), 128);
    });
}

#[test]
fn o3_in_turn_who_sees_the_second_complete_sees_the_first_written() {
    loom::model(|| {
        let (_, front, mut taker) = Ring::new(64, 0, Completion::InTurn);
        let front = Arc::new(SharedFront::from(front));
        let writer = {
            let front = front.clone();
            loom::thread::spawn(move || fill(front.allocate(24, 9).unwrap()))
        };
        let second = loom::thread::spawn(move || fill(front.allocate(24, 9).unwrap()));
        read(&mut taker);
        writer.join().unwrap();
        second.join().unwrap();
        assert_eq!(read(&mut taker), 48);
    });
}

#[test]
fn a_taker_that_sleeps_is_woken() {
    for completion in [Completion::Delegated, Completion::InTurn] {
        loom::model(move || {
            let (_, front, mut taker) = Ring::new(64, 0, completion);
            let front = SharedFront::from(front);
            let sleeper = loom::thread::spawn(move || {
                assert!(taker.wait());
                assert_eq!(read(&mut taker), 24);
            });
            fill(front.allocate(24, 1).unwrap());
            sleeper.join().unwrap();
        });
    }
}

#[test]
fn a_taker_that_sleeps_is_told_that_the_ring_broke() {
    loom::model(|| {
        let (_, front, mut taker) = Ring::new(64, 0, Completion::Delegated);
        let front = SharedFront::from(front);
        let sleeper = loom::thread::spawn(move || assert!(!taker.wait()));
        drop(front.allocate(24, 1).unwrap());
        sleeper.join().unwrap();
    });
}
