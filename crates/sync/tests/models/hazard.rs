//! Models of each ordering and fence named in `epoch/hazard.rs`: no thread looks at a freed object.
//!
//! As in `epoch.rs`, the retired object is a cell of the model checker, and each
//! `retire_hazard_protected` also sweeps the hazards.

use foxton_sync::epoch::{Domain, Participant};
use foxton_sync::shim::{Arc, AtomicPtr, Ordering, UnsafeCell, thread};
use std::ptr;

const FREED: u64 = u64::MAX;

struct Thing(UnsafeCell<u64>);

/// A place and the objects that are found there, one after the other.
struct Shared {
    place: AtomicPtr<Thing>,
    things: [Thing; 2],
}

// SAFETY: the models are about these objects: the checker panics if two threads race for one.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        let shared = Arc::new(Shared {
            place: AtomicPtr::new(ptr::null_mut()),
            things: [0, 1].map(|number| Thing(UnsafeCell::new(number))),
        });
        shared.put(0);
        shared
    }

    /// The place is written without any ordering: only the hazard keeps an object alive.
    fn put(&self, number: usize) {
        let thing = ptr::from_ref(&self.things[number]).cast_mut();
        self.place.store(thing, Ordering::Relaxed);
    }

    fn look(&self, reader: &Participant) {
        let mut hazard = reader.hazard();
        let found = hazard.protect(&self.place);
        // SAFETY: null, or one of the objects, which are valid as long as the model.
        if let Some(thing) = unsafe { found.as_ref() } {
            // SAFETY: if the hazards are right, no thread frees it while one names it.
            assert_ne!(thing.0.with(|thing| unsafe { *thing }), FREED);
        }
    }

    /// Takes the object out of the place, where no thread finds it any more.
    fn retire(&self, number: usize, writer: &Participant) {
        unsafe fn free(address: *mut ()) {
            // SAFETY: the model keeps `Shared` alive until all its threads are done.
            let thing = unsafe { &*address.cast::<Thing>() };
            // SAFETY: if the hazards are right, no thread looks any more.
            thing.0.with_mut(|thing| unsafe { *thing = FREED });
        }
        let address = ptr::from_ref(&self.things[number]).cast_mut().cast();
        // SAFETY: it was taken out, and only `look` looks at it.
        unsafe { writer.retire_hazard_protected(address, 0, free) };
    }
}

/// Runs `others` in threads of their own and `here` in this one, each with a participant.
fn meet(here: fn(&Shared, &Participant), others: &'static [fn(&Shared, &Participant)]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let domain = Domain::new();
        let shared = Shared::new();
        let ours = domain.participant();
        let others: Vec<_> = others
            .iter()
            .map(|other| {
                let (shared, theirs) = (shared.clone(), domain.participant());
                thread::spawn(move || {
                    other(&shared, &theirs);
                    // Not dropped here: leaving the domain synchronizes, and would hide a flaw.
                    theirs
                })
            })
            .collect();
        here(&shared, &ours);
        let theirs: Vec<_> = others
            .into_iter()
            .map(|other| other.join().unwrap())
            .collect();
        drop((ours, theirs, domain));
        let first = shared.things[0].0.with(|thing| unsafe { *thing });
        assert_eq!(first, FREED, "freed at the latest now");
    });
}

fn empty_and_retire(shared: &Shared, writer: &Participant) {
    shared.place.store(ptr::null_mut(), Ordering::Relaxed);
    shared.retire(0, writer);
}

fn look(shared: &Shared, reader: &Participant) {
    shared.look(reader);
}

/// The hazard may still be on its way when all are swept, and the object that was taken out may
/// still be found.
#[test]
fn a_hazard_is_seen_or_the_object_is_not_found() {
    meet(empty_and_retire, &[look]);
}

/// The reader has looked and protects nothing any more.
#[test]
fn o7_reads_come_before_the_freeing() {
    meet(empty_and_retire, &[look]);
}

/// The reader has looked and protects another object now.
#[test]
fn o7_reads_before_protecting_another_come_before_the_freeing() {
    meet(
        |shared, writer| {
            shared.put(1);
            shared.retire(0, writer);
        },
        &[|shared, reader| {
            let mut hazard = reader.hazard();
            for _ in 0..2 {
                let found = hazard.protect(&shared.place);
                // SAFETY: one of the objects, which are valid as long as the model.
                let thing = unsafe { &*found };
                // SAFETY: if the hazards are right, no thread frees it while one names it.
                assert_ne!(thing.0.with(|thing| unsafe { *thing }), FREED);
            }
            std::mem::forget(hazard);
        }],
    );
}

/// One thread takes it out and retires it, another frees.
#[test]
fn a_third_thread_sees_the_hazard_or_the_object_is_not_found() {
    meet(
        empty_and_retire,
        &[look, |_, third| {
            third.collect();
        }],
    );
}

/// A forgotten hazard protects its object until its participant is dropped.
#[test]
fn o7_reads_come_before_the_freeing_when_the_participant_is_dropped() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let domain = Domain::new();
        let shared = Shared::new();
        let ours = domain.participant();
        let reader = {
            let (shared, theirs) = (shared.clone(), domain.participant());
            thread::spawn(move || {
                let mut hazard = theirs.hazard();
                let found = hazard.protect(&shared.place);
                // SAFETY: null, or one of the objects, which are valid as long as the model.
                if let Some(thing) = unsafe { found.as_ref() } {
                    // SAFETY: if the hazards are right, no thread frees it while one names it.
                    assert_ne!(thing.0.with(|thing| unsafe { *thing }), FREED);
                }
                std::mem::forget(hazard);
            })
        };
        empty_and_retire(&shared, &ours);
        ours.collect();
        reader.join().unwrap();
        drop((ours, domain));
    });
}
