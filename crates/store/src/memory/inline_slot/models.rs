//! The orderings, on rooms alone: what leads there is read and written without any.
#![cfg(test)]

use super::*;
use foxton_sync::epoch::Domain;
use foxton_sync::shim::{Arc, AtomicBool, UnsafeCell, thread};

/// A room with a thing in it, which is found while `linked`.
struct Shared {
    room: Room,
    linked: AtomicBool,
    thing: UnsafeCell<u64>,
}

// SAFETY: the thing is what the models are about: the checker panics if two threads race for it.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn read(&self) {
        // SAFETY: if the orderings are right, nobody writes meanwhile.
        let found = self.thing.with(|thing| unsafe { *thing });
        assert_eq!(found, 0, "written while it could be found");
    }

    fn write(&self) {
        // SAFETY: if the orderings are right, nobody else looks.
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
            room: Room::in_use(),
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
    shared.room.leave(writer);
    (0..2).for_each(|_| writer.advance());
    if shared.room.claim(writer, writer.recent_stamp()) {
        shared.write();
    }
}

#[test]
fn who_is_pinned_reads_what_was_left() {
    meet(look, leave_and_claim);
}

#[test]
fn who_claims_comes_after_all_who_read() {
    meet(
        |shared, reader| {
            look(shared, reader);
            look(shared, reader);
        },
        leave_and_claim,
    );
}

#[test]
fn who_pins_after_an_epoch_was_noted_finds_nothing() {
    meet(
        |shared, reader| {
            // So that the writer might note an epoch that is over, without the fence in `stamp`.
            reader.advance();
            look(shared, reader);
        },
        |shared, writer| {
            shared.linked.store(false, Ordering::Relaxed);
            shared.room.leave(writer);
            writer.advance();
            if shared.room.claim(writer, writer.recent_stamp()) {
                shared.write();
            }
        },
    );
}

#[test]
fn o3_who_sees_the_epoch_that_was_noted_sees_it_itself() {
    meet(
        |shared, writer| {
            writer.advance();
            shared.room.leave(writer);
        },
        |shared, writer| {
            // There is one epoch at the most: no age is two.
            assert!(!shared.room.claim(writer, writer.recent_stamp()));
        },
    );
}

#[test]
fn o4_who_claims_comes_after_who_left() {
    meet(
        |shared, writer| {
            shared.write();
            shared.room.leave(writer);
        },
        |shared, writer| {
            (0..2).for_each(|_| writer.advance());
            if shared.room.claim(writer, writer.recent_stamp()) {
                shared.write();
            }
        },
    );
}

#[test]
fn o4_who_takes_it_back_comes_after_who_left() {
    meet(
        |shared, writer| {
            shared.write();
            shared.room.leave(writer);
        },
        |shared, _| {
            // As it is left at the first epoch.
            if shared.room.take_back(Left(LEFT)) {
                shared.write();
            }
        },
    );
}

/// The room was left long ago. Two want it, and whoever has it writes there.
fn two_want_it(
    theirs: impl Fn(&Room, &Participant, Left) -> bool + Send + Sync + Copy + 'static,
    ours: impl Fn(&Room, &Participant, Left) -> bool + Send + Sync + Copy + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let domain = Domain::new();
        let (here, there) = (domain.participant(), domain.participant());
        let shared = Arc::new(Shared {
            room: Room::in_use(),
            linked: AtomicBool::new(false),
            thing: UnsafeCell::new(0),
        });
        let left = shared.room.leave(&here);
        (0..2).for_each(|_| here.advance());
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let has_it = theirs(&shared.room, &there, left);
                if has_it {
                    shared.write();
                }
                (has_it, there)
            })
        };
        let has_it = ours(&shared.room, &here, left);
        if has_it {
            shared.write();
        }
        let (other_has_it, _there) = other.join().unwrap();
        assert!(has_it != other_has_it, "one of the two has it");
    });
}

fn claim(room: &Room, participant: &Participant, _: Left) -> bool {
    room.claim(participant, participant.recent_stamp())
}

#[test]
fn of_two_who_claim_one_has_it() {
    two_want_it(claim, claim);
}

#[test]
fn of_who_claims_and_who_takes_it_back_one_has_it() {
    two_want_it(claim, |room, _, left| room.take_back(left));
}
