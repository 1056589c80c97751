//! Models of each ordering named in `epoch.rs`: no thread looks at a freed object.
//!
//! The retired object is a cell of the model checker. If a thread reads it while it is freed, or
//! after without knowing, the checker panics. Under the checker a bag holds one object, so every
//! `retire` also tries to advance and to free.

use foxton_sync::epoch::{Domain, Participant};
use foxton_sync::shim::{Arc, AtomicBool, Ordering::Relaxed, UnsafeCell, thread};

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// A structure with one object in it, which is found while `linked`.
struct Shared {
    linked: AtomicBool,
    thing: UnsafeCell<u64>,
}

// SAFETY: the models are about this object: the checker panics if two threads race for it.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

const FREED: u64 = u64::MAX;

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            linked: AtomicBool::new(true),
            thing: UnsafeCell::new(0),
        })
    }

    /// Looks at the object if it is found. The participant is pinned.
    ///
    /// The link is read and written without any ordering: only the epoch keeps the object alive.
    fn look(&self) {
        if self.linked.load(Relaxed) {
            // SAFETY: if the epochs are right, no thread frees it while we are pinned.
            assert_ne!(self.thing.with(|thing| unsafe { *thing }), FREED);
        }
    }

    fn unlink_and_retire(&self, participant: &Participant) {
        unsafe fn free(address: *mut ()) {
            // SAFETY: the model keeps `Shared` alive until all its threads are done.
            let shared = unsafe { &*address.cast::<Shared>() };
            // SAFETY: if the epochs are right, no thread looks any more.
            shared.thing.with_mut(|thing| unsafe { *thing = FREED });
        }
        self.linked.store(false, Relaxed);
        let address = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: it is unlinked, and the structure outlives the domain's last participant.
        unsafe { participant.retire_raw(address, 0, free) };
    }
}

/// Runs `reader` in another thread and `retirer` in this one, each with a participant.
fn meet(
    reader: impl Fn(&Arc<Shared>, &Participant) + Send + Sync + Copy + 'static,
    retirer: impl Fn(&Arc<Shared>, &Participant) + Send + Sync + Copy + 'static,
) {
    model(move || {
        let domain = Domain::new();
        let (ours, theirs) = (domain.participant(), domain.participant());
        let shared = Shared::new();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                reader(&shared, &theirs);
                // Not dropped here: leaving the domain synchronizes, and would hide a flaw.
                theirs
            })
        };
        retirer(&shared, &ours);
        let theirs = other.join().unwrap();
        drop((ours, theirs, domain));
        assert_eq!(
            shared.thing.with(|thing| unsafe { *thing }),
            FREED,
            "freed at the latest now"
        );
    });
}

/// The reader looked and is unpinned when the epoch advances twice.
#[test]
fn o1_reads_before_unpinning_come_before_the_freeing() {
    meet(
        |shared, reader| {
            let guard = reader.pin();
            shared.look();
            drop(guard);
        },
        |shared, retirer| {
            shared.unlink_and_retire(retirer);
            retirer.collect();
        },
    );
}

/// The reader looked, unpinned and pinned again, at an epoch that does not hold up the freeing.
#[test]
fn o1_reads_before_pinning_again_come_before_the_freeing() {
    meet(
        |shared, reader| {
            let guard = reader.pin();
            shared.look();
            drop(guard);
            let guard = reader.pin();
            drop(guard);
        },
        |shared, retirer| {
            shared.unlink_and_retire(retirer);
            retirer.collect();
        },
    );
}

/// A third thread, which sees the reader unpinned, advances the epoch: that is all the retirer
/// knows. (If it were the reader itself, its fence would suffice.)
#[test]
fn o2_a_thread_that_sees_the_epoch_comes_after_the_unpinning() {
    with_a_third_thread_advancing();
}

/// The reader's word may still be on its way when the retirer looks at it (fences R and A).
#[test]
fn o3_a_reader_is_seen_pinned_or_finds_nothing() {
    meet(
        |shared, reader| {
            let guard = reader.pin();
            shared.look();
            drop(guard);
        },
        |shared, retirer| {
            shared.unlink_and_retire(retirer);
            retirer.collect();
        },
    );
}

/// The reader has the address of the object from an earlier pin, and looks at it without finding it
/// again, if the pin now continues the earlier one. `third` tries to advance the epoch, too.
fn with_an_address_from_an_earlier_pin(third: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let domain = Domain::new();
        let (ours, theirs) = (domain.participant(), domain.participant());
        let shared = Shared::new();
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let guard = theirs.pin();
                let found = shared.linked.load(Relaxed).then(|| guard.epoch());
                drop(guard);
                let guard = theirs.pin();
                if let Some(epoch) = found
                    && guard.continues(epoch)
                {
                    // SAFETY: if the argument is right, no thread frees it while we are pinned.
                    assert_ne!(shared.thing.with(|thing| unsafe { *thing }), FREED);
                }
                drop(guard);
                theirs
            })
        };
        let advancing = third.then(|| {
            let participant = domain.participant();
            thread::spawn(move || {
                participant.advance();
                participant.advance();
                participant
            })
        });
        shared.unlink_and_retire(&ours);
        if !third {
            ours.collect();
        }
        let theirs = reader.join().unwrap();
        let others = advancing.map(|thread| thread.join().unwrap());
        drop((ours, theirs, others, domain));
    });
}

/// The advance that frees the object comes before the second pin, or sees it (its fence).
#[test]
fn o3_an_address_from_an_earlier_pin_is_good_while_the_epoch_is_the_same() {
    with_an_address_from_an_earlier_pin(false);
}

/// As above, and another thread than the retirer advances the epoch.
#[test]
fn o3_an_address_from_an_earlier_pin_is_good_whichever_thread_advances() {
    with_an_address_from_an_earlier_pin(true);
}

/// The reader advances the epoch before it pins, so that a tag read too early would be too old
/// (fences R and W).
#[test]
fn o3_a_tag_is_not_older_than_the_unlinking() {
    meet(
        |shared, reader| {
            reader.collect();
            let guard = reader.pin();
            shared.look();
            drop(guard);
        },
        |shared, retirer| {
            shared.unlink_and_retire(retirer);
        },
    );
}

/// A third thread advances the epoch, twice, and must not overlook the reader (fence A). The
/// retirer's own fence does not help it.
#[test]
fn o3_a_third_thread_sees_a_reader_pinned_or_it_finds_nothing() {
    with_a_third_thread_advancing();
}

/// One thread looks, one unlinks and retires, and one tries to advance the epoch twice.
fn with_a_third_thread_advancing() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let domain = Domain::new();
        let (ours, theirs, third) = (
            domain.participant(),
            domain.participant(),
            domain.participant(),
        );
        let shared = Shared::new();
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let guard = theirs.pin();
                shared.look();
                drop(guard);
                theirs
            })
        };
        let advancer = thread::spawn(move || {
            third.collect();
            third.collect();
            third
        });
        shared.unlink_and_retire(&ours);
        let gone = (reader.join().unwrap(), advancer.join().unwrap());
        drop((ours, gone, domain));
    });
}

/// The retirer had the reader's slot before, and may remember its own last word there.
#[test]
fn words_of_a_slots_next_participant_come_later() {
    model(|| {
        let domain = Domain::new();
        let (former, ours) = (domain.participant(), domain.participant());
        let shared = Shared::new();
        let reader = {
            let (shared, domain) = (shared.clone(), domain.clone());
            thread::spawn(move || {
                let theirs = domain.participant();
                let guard = theirs.pin();
                shared.look();
                drop(guard);
                (theirs, domain)
            })
        };
        drop(former);
        shared.unlink_and_retire(&ours);
        ours.collect();
        let gone = reader.join().unwrap();
        drop((ours, gone, domain));
    });
}

/// The reader has looked, and its participant is gone, when the epoch advances twice. Its slot is
/// before that of the retirer, so its bit shows it.
#[test]
fn o4_reads_of_a_dropped_participant_come_before_the_freeing() {
    meet_a_leaver(true);
}

/// The same with a slot behind that of the retirer, so that the number of blocks shows it.
#[test]
fn o4_reads_of_the_last_participant_come_before_the_freeing() {
    meet_a_leaver(false);
}

fn meet_a_leaver(leaver_first: bool) {
    model(move || {
        let domain = Domain::new();
        let pair = (domain.participant(), domain.participant());
        let (theirs, ours) = match leaver_first {
            true => pair,
            false => (pair.1, pair.0),
        };
        let shared = Shared::new();
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let guard = theirs.pin();
                shared.look();
                // Forgotten, so that no unpinning orders what was read: only leaving does.
                std::mem::forget(guard);
                drop(theirs);
            })
        };
        shared.unlink_and_retire(&ours);
        ours.collect();
        reader.join().unwrap();
        ours.collect();
        drop((ours, domain));
    });
}

/// A slot is released and occupied again, by a reader in another thread, while the epoch advances.
#[test]
fn a_slot_that_is_occupied_again_is_not_overlooked() {
    model(|| {
        let domain = Domain::new();
        let ours = domain.participant();
        let shared = Shared::new();
        let reader = {
            let (shared, domain, former) = (shared.clone(), domain.clone(), domain.participant());
            thread::spawn(move || {
                drop(former);
                let theirs = domain.participant();
                let guard = theirs.pin();
                shared.look();
                drop(guard);
                (theirs, domain)
            })
        };
        shared.unlink_and_retire(&ours);
        ours.collect();
        let gone = reader.join().unwrap();
        drop((ours, gone, domain));
    });
}

/// The checker panics when a slot is read by a thread that does not know that it was made.
#[test]
fn o5_a_slot_is_whole_when_it_is_found() {
    model(|| {
        let domain = Domain::new();
        let ours = domain.participant();
        let other = {
            let domain = domain.clone();
            thread::spawn(move || (domain.participant(), domain))
        };
        ours.advance();
        let gone = other.join().unwrap();
        drop((ours, gone, domain));
    });
}

/// An object retired here is freed by another thread, which comes after the retirer's last access.
#[test]
fn o6_freeing_comes_after_the_retirement_by_another_thread() {
    meet(
        |_, other| {
            other.collect();
            other.collect();
        },
        |shared, retirer| {
            // SAFETY: no thread looks at it in this model until it is freed.
            shared.thing.with_mut(|thing| unsafe { *thing = 1 });
            shared.unlink_and_retire(retirer);
        },
    );
}
