//! Models of the orderings of commit slots: a writer with two versions and a reader of both.
#![cfg(test)]

use foxton_sync::epoch::Domain;
use foxton_sync::shim::{Arc, AtomicBool, thread};

use super::*;
use crate::memory::value::VersionWords;

struct Shared {
    slots: CommitSlots,
    /// The front of the log.
    front: AtomicU64,
    versions: [VersionWords; 2],
    /// True while a reader may be at a snapshot below a commit: the writer stamps.
    stamps: bool,
}

const COMMIT: u64 = 20;

fn write(shared: &Shared, own: &mut OwnSlot, here: &Participant) {
    let front = shared.front.load(Ordering::Acquire);
    shared.slots.start_commit(own, Lsn::new(front));
    let end = Lsn::new(shared.front.fetch_add(COMMIT - 10, Ordering::AcqRel) + COMMIT - 10); // O1
    shared.slots.committed(own, end, Promise::Nothing);
    if shared.stamps {
        let begin = Begin::at(end, Promise::Nothing);
        shared
            .versions
            .iter()
            .for_each(|words| words.set_begin(begin));
    }
    shared.slots.end(own, here);
}

/// Returns whether the version is visible, or `None` if that is not known yet.
fn decide(shared: &Shared, words: &VersionWords, snapshot: Lsn) -> Option<bool> {
    loop {
        let begin = words.begin();
        match shared.slots.visibility(begin, snapshot) {
            Visibility::Visible(_) => return Some(true),
            Visibility::Invisible => return Some(false),
            Visibility::Unresolved => return None,
            Visibility::Ended if words.begin() != begin => {}
            Visibility::Ended => return Some(true),
        }
    }
}

fn read(shared: &Shared) {
    let snapshot = Lsn::new(shared.front.load(Ordering::Acquire)); // O1
    let is_behind = snapshot.bytes() >= COMMIT;
    for words in &shared.versions {
        let decided = decide(shared, words, snapshot);
        assert!(decided.is_some() || is_behind, "nothing to wait for");
        assert!(
            decided.is_none_or(|visible| visible == is_behind),
            "another answer"
        );
    }
}

fn shared() -> (Shared, OwnSlot) {
    let slots = CommitSlots::new();
    let own = slots.acquire();
    let versions = [VersionWords::new(), VersionWords::new()];
    versions
        .iter()
        .for_each(|words| words.set_begin(slots.begin(&own)));
    let shared = Shared {
        slots,
        front: AtomicU64::new(10),
        versions,
        stamps: true,
    };
    (shared, own)
}

/// Explores the schedules with few preemptions. All of them take minutes, and were explored once.
fn bounded(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

#[test]
fn o1_to_o3_a_reader_gives_one_answer() {
    bounded(|| {
        let (shared, mut own) = shared();
        let shared = Arc::new(shared);
        let here = Domain::new().participant();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || write(&shared, &mut own, &here))
        };
        // In a thread of its own: the checker would always let this one read first.
        let reader = thread::spawn(move || read(&shared));
        other.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn o4_the_state_of_the_next_transaction_is_not_taken_for_this() {
    bounded(|| {
        let (shared, mut own) = shared();
        let shared = Arc::new(shared);
        let here = Domain::new().participant();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                write(&shared, &mut own, &here);
                let front = shared.front.load(Ordering::Relaxed);
                shared.slots.start_commit(&own, Lsn::new(front));
                shared
                    .slots
                    .committed(&own, Lsn::new(front + 10), Promise::Nothing);
            })
        };
        // In a thread of its own: the checker would always let this one read first.
        let reader = thread::spawn(move || read(&shared));
        other.join().unwrap();
        reader.join().unwrap();
    });
}

struct Flag(AtomicBool);

impl std::task::Wake for Flag {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_reader_that_waits_is_woken() {
    loom::model(|| {
        let (shared, own) = shared();
        let shared = Arc::new(shared);
        shared.slots.start_commit(&own, Lsn::new(10));
        let begin = shared.slots.begin(&own);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let end = Lsn::new(COMMIT);
                shared.slots.committed(&own, end, Promise::Nothing);
            })
        };
        let woken = std::sync::Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(woken.clone());
        let waits = shared.slots.poll(begin, &Context::from_waker(&waker));
        other.join().unwrap();
        assert!(
            !waits || woken.0.load(Ordering::Acquire),
            "it sleeps for ever"
        );
        let snapshot = Lsn::new(COMMIT);
        assert!(matches!(
            shared.slots.visibility(begin, snapshot),
            Visibility::Visible(_)
        ));
    });
}
