//! Models of each ordering named in `consolidation.rs`, in the smallest history that needs it. The
//! checker sees every access to a group's outcome and to the ring's bytes.

use foxton_sync::consolidation::{GroupShare, Groups};
use foxton_sync::ring::{Completion, Ring, SharedAllocator};
use foxton_sync::shim::{Arc, AtomicBool, Ordering::Relaxed};

/// State of several threads that reserve together, in an array of one slot.
struct Shared {
    allocator: SharedAllocator,
    groups: Groups,
}

impl Shared {
    fn share(&self) -> GroupShare<'_> {
        self.groups.join(0, 24).expect("the slot is open")
    }

    /// Reserves together with the other threads; `None` if the slot was closed.
    fn insert(&self) -> Option<u64> {
        let share = self.groups.join(0, 24)?;
        if share.is_first() {
            let group = share.close().unwrap();
            let reservation = self.allocator.reserve(group.length(), u32::MAX).unwrap();
            group.publish(Ok(reservation));
        }
        let mut reservation = share.wait().unwrap();
        let at = reservation.at();
        reservation.write(&[1; 24]);
        reservation.complete();
        Some(at)
    }
}

/// Threads that insert so many times each; returns the bytes that became complete.
fn model(first: usize, second: usize, preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let (ring, allocator, mut drainer) = Ring::new(256, 0, Completion::Delegated);
        let shared = Arc::new(Shared {
            allocator: allocator.into(),
            groups: Groups::new(ring, 1),
        });
        let other = {
            let shared = shared.clone();
            loom::thread::spawn(move || (0..second).filter_map(|_| shared.insert()).count())
        };
        let mine = (0..first).filter_map(|_| shared.insert()).count();
        let all = mine + other.join().unwrap();
        let length = drainer.poll();
        assert_eq!(length, 24 * all as u64);
        assert_eq!(drainer.bytes(length).concat(), vec![1; length as usize]);
    });
}

#[test]
fn o1_a_member_that_reads_the_outcome_comes_after_the_allocation() {
    model(1, 1, 3);
}

#[test]
fn o2_one_group_is_over_before_the_next_begins() {
    model(2, 1, 5);
}

/// Two have joined and know the outcome before the history begins, so that all of it is how they
/// leave and the next one joins.
#[test]
fn o2_the_last_to_leave_comes_after_all_readers() {
    loom::model(|| {
        let (ring, allocator, _drainer) = Ring::new(256, 0, Completion::Delegated);
        let shared = Box::into_raw(Box::new(Shared {
            allocator: allocator.into(),
            groups: Groups::new(ring, 1),
        }));
        // SAFETY: freed at the end of the model, when the other thread is gone.
        let all: &'static Shared = unsafe { &*shared };
        let (mine, others) = (all.share(), all.share());
        let group = mine.close().unwrap();
        let reservation = all.allocator.reserve(group.length(), 1).unwrap();
        group.publish(Ok(reservation));
        let other = loom::thread::spawn(move || others.wait().unwrap().at());
        let first = mine.wait().unwrap();
        // The outcome of the next group is written where the other thread may still read.
        let next = all.groups.join(0, 24).map(|share| {
            let group = share.close().unwrap();
            let reservation = all.allocator.reserve(group.length(), 1).unwrap();
            group.publish(Ok(reservation));
            share.wait().unwrap().at()
        });
        assert_eq!(first.at(), 0);
        assert_eq!(other.join().unwrap(), 24);
        assert!(next.is_none_or(|at| at == 48));
        std::mem::forget(first);
        // SAFETY: as above; made by `Box::into_raw` and used by no thread any more.
        drop(unsafe { Box::from_raw(shared) });
    });
}

/// Two threads each store a word and then join; one of them reserves for both. A third loads the
/// front and then the words.
#[test]
fn o3_a_front_behind_a_group_shows_what_precedes_each_member() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (ring, allocator, _drainer) = Ring::new(256, 0, Completion::Delegated);
        let shared = Arc::new(Shared {
            allocator: allocator.into(),
            groups: Groups::new(ring.clone(), 1),
        });
        let words = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let members = words.clone().map(|word| {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                word.store(true, Relaxed); // Relaxed: O3 is what orders it.
                shared.insert()
            })
        });
        // A thread of its own, so that this one waits and each history begins with any of three.
        let reader = loom::thread::spawn(move || {
            let front = ring.front();
            (front, words.map(|word| word.load(Relaxed))) // Relaxed: as above.
        });
        let (front, seen) = reader.join().unwrap();
        for (member, seen) in members.into_iter().zip(seen) {
            let at = member.join().unwrap();
            assert!(seen || at.is_none_or(|at| front <= at), "front {front}");
        }
    });
}
