//! Each ordering named in `group.rs`, in the smallest history that needs it. The checker sees every
//! touch of a group's outcome and of the ring's bytes.
#![cfg(loom)]

use foxton_sync::consolidation::{Groups, Seat};
use foxton_sync::ring::{Completion, Ring, SharedFront};
use foxton_sync::shim::Arc;

/// What several threads share that ask together, in an array of one slot.
struct Shared {
    front: SharedFront,
    groups: Groups,
}

impl Shared {
    fn seat(&self) -> Seat<'_> {
        self.groups.join(0, 24).expect("the slot is open")
    }

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

/// Two are seated and told before the history begins, so that all of it is how they leave and who is
/// seated next.
#[test]
fn o2_who_leaves_last_comes_after_all_who_read() {
    loom::model(|| {
        let (ring, front, _taker) = Ring::new(256, 0, Completion::Delegated);
        let shared = Box::into_raw(Box::new(Shared {
            front: front.into(),
            groups: Groups::new(ring, 1),
        }));
        // SAFETY: freed at the end of the model, when the other thread is gone.
        let all: &'static Shared = unsafe { &*shared };
        let (mine, others) = (all.seat(), all.seat());
        let duty = mine.close().unwrap();
        let place = all.front.allocate(duty.length(), 1).unwrap();
        duty.publish(Ok(place));
        let other = loom::thread::spawn(move || others.wait().unwrap().at());
        let first = mine.wait().unwrap();
        // The outcome of the next group is written where the other may still read.
        let next = all.groups.join(0, 24).map(|seat| {
            let duty = seat.close().unwrap();
            let place = all.front.allocate(duty.length(), 1).unwrap();
            duty.publish(Ok(place));
            seat.wait().unwrap().at()
        });
        assert_eq!(first.at(), 0);
        assert_eq!(other.join().unwrap(), 24);
        assert!(next.is_none_or(|at| at == 48));
        std::mem::forget(first);
        // SAFETY: as above; made by `Box::into_raw` and used by nobody any more.
        drop(unsafe { Box::from_raw(shared) });
    });
}
