//! Models of the orderings, on slots alone: the pointer to a slot is read and written without any.
#![cfg(test)]

use super::*;
use foxton_sync::epoch::Domain;
use foxton_sync::shim::{Arc, AtomicBool, UnsafeCell, thread};

/// A slot with a value in it, which is found while `linked`.
struct Shared {
    slot: InlineSlot,
    linked: AtomicBool,
    thing: UnsafeCell<u64>,
}

// SAFETY: the models are about this value: the checker panics if two threads race for it.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn read(&self) {
        // SAFETY: if the orderings are right, no thread writes meanwhile.
        let found = self.thing.with(|thing| unsafe { *thing });
        assert_eq!(found, 0, "written while it could be found");
    }

    fn write(&self) {
        // SAFETY: if the orderings are right, no other thread looks.
        self.thing.with_mut(|thing| unsafe { *thing += 1 });
    }
}

/// Runs `theirs` in another thread and `ours` in this one, each with a participant.
fn meet(
    theirs: impl Fn(&Shared, &Participant) + Send + Sync + Copy + 'static,
    ours: impl Fn(&Shared, &Participant) + Send + Sync + Copy + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let domain = Domain::new();
        let (here, there) = (domain.participant(), domain.participant());
        let shared = Arc::new(Shared {
            slot: InlineSlot::in_use(),
            linked: AtomicBool::new(true),
            thing: UnsafeCell::new(0),
        });
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                theirs(&shared, &there);
                // Not dropped here: leaving the domain synchronizes, and would hide a flaw.
                there
            })
        };
        ours(&shared, &here);
        drop(other.join().unwrap());
    });
}

fn look(shared: &Shared, reader: &Participant) {
    let guard = reader.pin();
    if shared.linked.load(Ordering::Relaxed) {
        shared.read();
    }
    drop(guard);
}

fn leave_and_claim(shared: &Shared, writer: &Participant) {
    shared.linked.store(false, Ordering::Relaxed);
    shared.slot.vacate(writer);
    (0..2).for_each(|_| writer.advance());
    if shared.slot.claim(writer, writer.recent_stamp()) {
        shared.write();
    }
}

#[test]
fn a_pinned_reader_reads_the_vacated_value() {
    meet(look, leave_and_claim);
}

#[test]
fn a_claim_comes_after_all_readers() {
    meet(
        |shared, reader| {
            look(shared, reader);
            look(shared, reader);
        },
        leave_and_claim,
    );
}

#[test]
fn a_reader_that_pins_after_the_stamp_finds_nothing() {
    meet(
        |shared, reader| {
            // So that, without the fence in `stamp`, the writer might record an epoch that is over.
            reader.advance();
            look(shared, reader);
        },
        |shared, writer| {
            shared.linked.store(false, Ordering::Relaxed);
            shared.slot.vacate(writer);
            writer.advance();
            if shared.slot.claim(writer, writer.recent_stamp()) {
                shared.write();
            }
        },
    );
}

#[test]
fn o3_a_thread_that_sees_the_stamp_sees_its_epoch() {
    meet(
        |shared, writer| {
            writer.advance();
            shared.slot.vacate(writer);
        },
        |shared, writer| {
            // There is at most one epoch: no age is two.
            assert!(!shared.slot.claim(writer, writer.recent_stamp()));
        },
    );
}

#[test]
fn o4_a_claim_comes_after_the_vacating() {
    meet(
        |shared, writer| {
            shared.write();
            shared.slot.vacate(writer);
        },
        |shared, writer| {
            (0..2).for_each(|_| writer.advance());
            if shared.slot.claim(writer, writer.recent_stamp()) {
                shared.write();
            }
        },
    );
}

#[test]
fn o4_restoring_comes_after_the_vacating() {
    meet(
        |shared, writer| {
            shared.write();
            shared.slot.vacate(writer);
        },
        |shared, _| {
            // The word after vacating at the first epoch.
            if shared.slot.restore(VacateStamp(VACATED)) {
                shared.write();
            }
        },
    );
}

/// The slot was vacated long ago. Two threads compete for it, and the owner writes there.
fn two_compete(
    theirs: impl Fn(&InlineSlot, &Participant, VacateStamp) -> bool + Send + Sync + Copy + 'static,
    ours: impl Fn(&InlineSlot, &Participant, VacateStamp) -> bool + Send + Sync + Copy + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let domain = Domain::new();
        let (here, there) = (domain.participant(), domain.participant());
        let shared = Arc::new(Shared {
            slot: InlineSlot::in_use(),
            linked: AtomicBool::new(false),
            thing: UnsafeCell::new(0),
        });
        let vacated = shared.slot.vacate(&here);
        (0..2).for_each(|_| here.advance());
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let has_it = theirs(&shared.slot, &there, vacated);
                if has_it {
                    shared.write();
                }
                (has_it, there)
            })
        };
        let has_it = ours(&shared.slot, &here, vacated);
        if has_it {
            shared.write();
        }
        let (other_has_it, _there) = other.join().unwrap();
        assert!(has_it != other_has_it, "one of the two has it");
    });
}

fn claim(slot: &InlineSlot, participant: &Participant, _: VacateStamp) -> bool {
    slot.claim(participant, participant.recent_stamp())
}

#[test]
fn one_of_two_claims_succeeds() {
    two_compete(claim, claim);
}

#[test]
fn one_of_a_claim_and_a_restore_succeeds() {
    two_compete(claim, |slot, _, vacated| slot.restore(vacated));
}
