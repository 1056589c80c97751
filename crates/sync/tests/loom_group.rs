//! Each ordering named in `group.rs`, in the smallest history that needs it. The checker sees every
//! touch of a group's outcome and of the ring's bytes.
#![cfg(loom)]

use foxton_sync::group::Groups;
use foxton_sync::ring::{Completion, Ring, SharedFront};
use foxton_sync::shim::Arc;

/// What several threads share that ask together, in an array of one slot.
struct Shared {
    front: SharedFront,
    groups: Groups,
}

impl Shared {
    /// A place asked for with whoever else is there; `None` if the slot was closed.
    fn insert(&self) -> Option<u64> {
        let seat = self.groups.join(0, 24)?;
        if seat.is_first() {
            let duty = seat.close().unwrap();
            let place = self.front.allocate(duty.length(), u32::MAX).unwrap();
            duty.publish(Ok(place));
        }
        let mut place = seat.wait().unwrap();
        let at = place.at();
        place.write(&[1; 24]);
        place.complete();
        Some(at)
    }
}

/// Threads that insert so many times each; returns the bytes that became complete.
fn model(first: usize, second: usize, preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let (ring, front, mut taker) = Ring::new(256, 0, Completion::Delegated);
        let shared = Arc::new(Shared {
            front: front.into(),
            groups: Groups::new(ring, 1),
        });
        let other = {
            let shared = shared.clone();
            loom::thread::spawn(move || (0..second).filter_map(|_| shared.insert()).count())
        };
        let mine = (0..first).filter_map(|_| shared.insert()).count();
        let all = mine + other.join().unwrap();
        let length = taker.look();
        assert_eq!(length, 24 * all as u64);
        assert_eq!(taker.bytes(length).concat(), vec![1; length as usize]);
    });
}

#[test]
fn o1_who_is_told_of_its_part_comes_after_the_allocation() {
    model(1, 1, 3);
}

#[test]
fn o2_one_group_is_over_before_the_next_begins() {
    model(2, 1, 5);
}
