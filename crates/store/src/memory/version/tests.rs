//! Begin timestamps, and the states of commit slots.
#![cfg(test)]

use foxton_sync::epoch::Domain;
use foxton_sync::shim::AtomicBool;
use std::sync::Arc;
use std::task::{Wake, Waker};

use super::*;

#[test]
fn a_begin_timestamp_says_what_it_was_made_of() {
    assert_eq!(Begin::ALWAYS.committed(), None);
    for promise in [Promise::Nothing, Promise::Written, Promise::Durable] {
        for lsn in [1, 64, (1 << 59) - 1] {
            let begin = Begin::at(Lsn::new(lsn), promise);
            assert_eq!(begin.committed(), Some((Lsn::new(lsn), promise)));
            assert!(!begin.is_reference());
        }
    }
    for (slot, generation) in [(0, 0), ((1 << SLOT_BITS) - 1, (1 << 43) - 1)] {
        let begin = Begin::of_slot(slot, generation);
        assert_eq!(begin.reference(), Some((slot, generation)));
        assert_eq!(begin.committed(), None);
    }
}

#[test]
#[should_panic(expected = "the log is too long")]
fn a_log_of_more_than_half_an_exabyte_is_refused() {
    let _ = Begin::at(Lsn::new(1 << 59), Promise::Nothing);
}

#[test]
fn each_slot_has_its_place() {
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..10_000 {
        let (segment, index) = place(number);
        assert!(index < FIRST_SEGMENT << segment);
        assert!(seen.insert((segment, index)));
    }
    let (last, _) = place((1 << SLOT_BITS) - 1);
    assert!(last < SEGMENTS + 1, "segment {last}");
}

#[test]
fn a_slot_that_was_given_back_goes_on_in_its_generation() {
    let slots = CommitSlots::new();
    let mut own = slots.acquire();
    let former = slots.begin(&own);
    slots.end(&mut own, &Domain::new().participant());
    slots.release(own);
    let own = slots.acquire();
    assert_ne!(slots.begin(&own), former);
    assert_eq!(slots.visibility(former, Lsn::new(9)), Visibility::Ended);
    assert_eq!(
        slots.visibility(slots.begin(&own), Lsn::new(9)),
        Visibility::Invisible
    );
}

#[test]
fn a_commit_that_got_no_place_is_active_again() {
    let slots = CommitSlots::new();
    let own = slots.acquire();
    let begin = slots.begin(&own);
    slots.start_commit(&own, Lsn::new(5));
    assert_eq!(slots.visibility(begin, Lsn::new(9)), Visibility::Unresolved);
    slots.stop_commit(&own);
    assert_eq!(slots.visibility(begin, Lsn::new(9)), Visibility::Invisible);
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_reader_waits_for_a_commit_lsn_and_for_nothing_else() {
    let slots = CommitSlots::new();
    let mut own = slots.acquire();
    let begin = slots.begin(&own);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let context = Context::from_waker(&waker);
    let was_woken = || woken.0.swap(false, Ordering::AcqRel);

    assert!(!slots.poll(begin, &context), "it is active");
    slots.start_commit(&own, Lsn::new(5));
    assert!(slots.poll(begin, &context));
    assert!(slots.poll(begin, &context), "a second time");
    assert!(!was_woken());
    slots.committed(&own, Lsn::new(7), Promise::Nothing);
    assert!(was_woken());
    assert!(!slots.poll(begin, &context), "it is committed");
    slots.end(&mut own, &Domain::new().participant());
    slots.start_commit(&own, Lsn::new(9));
    assert!(!slots.poll(begin, &context), "this is the next transaction");
    slots.stop_commit(&own);
    assert!(!was_woken());
}
