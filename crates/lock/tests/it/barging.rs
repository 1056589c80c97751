//! Barging: a lock granted to a sleeping waiter goes to another request before the waiter has seen
//! it. It does so only where allowed, only so often, and without a trace.
//!
//! One thread plays all owners, so that there is neither time nor chance in it. A waiter sleeps
//! until it is polled.

use crate::played::{READ, Table, UPDATE, WRITE};
use foxton_lock::{
    any::{ManagerKind, Options},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::Owner,
    request::{Outcome, RefusalReason, Reply, WaitMode},
};
use std::{ops::Deref, task::Poll, thread, time::Duration};

/// A table with the one name under test.
struct Hot(Table, Name);

impl Deref for Hot {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.0
    }
}

impl Hot {
    fn new(kind: ManagerKind) -> Self {
        Self::of(Table::new(kind))
    }

    fn of(table: Table) -> Self {
        let hot = table.name(0);
        Self(table, hot)
    }

    /// Returns true if the request is granted at once; if not, it waits.
    fn asks(&self, owner: &mut Owner, mode: Mode) -> bool {
        self.0.asks(owner, self.1, mode)
    }

    fn holds(&self, mode: Mode) -> Owner {
        let mut owner = self.owner();
        assert!(self.asks(&mut owner, mode));
        owner
    }

    fn waits(&self, mode: Mode) -> Owner {
        let mut owner = self.owner();
        assert!(!self.asks(&mut owner, mode));
        owner
    }

    fn asks_for_the_other(&self, owner: &mut Owner) -> bool {
        self.0.asks(owner, self.name(1), WRITE)
    }

    /// Returns an owner that holds the other name and waits to write this one. It was a victim
    /// before, and will not be one again.
    fn waits_with_the_other(&self) -> Owner {
        let mut owner = self.owner();
        owner.set_defeats(20);
        assert!(self.asks_for_the_other(&mut owner));
        assert!(!self.asks(&mut owner, WRITE));
        owner
    }

    /// Requests the other name, which closes a cycle, and is the victim.
    fn gives_way(&self, mut owner: Owner) {
        assert!(!self.asks_for_the_other(&mut owner));
        assert_eq!(self.locks.deadlocks().len(), 1);
        let ended = self.polled(&mut owner);
        assert!(matches!(ended, Poll::Ready(Outcome::Refused(_))));
        self.end(owner);
    }

    /// Returns an owner that waits to write, and to which the lock was granted.
    fn asleep(&self) -> Owner {
        let first = self.holds(WRITE);
        let asleep = self.waits(WRITE);
        self.end(first);
        asleep
    }

    /// Each owner has the lock in its turn, none before those ahead have ended, and none is left.
    fn have_their_turns<const N: usize>(&self, line: [Owner; N]) {
        let mut line = line.into_iter();
        while let Some(mut owner) = line.next() {
            assert!(self.is_granted(&mut owner), "it was its turn");
            for later in line.as_mut_slice() {
                assert!(!self.is_granted(later), "it was another's turn");
            }
            self.end(owner);
        }
        self.nobody_is_left();
    }
}

#[test]
fn requests_barge_past_a_sleeper_only_so_often() {
    for kind in ManagerKind::ALL {
        for mode in [READ, UPDATE, WRITE] {
            let table = Hot::new(kind);
            let mut asleep = table.asleep();
            let mut passed = 0;
            let mut late = loop {
                let mut owner = table.owner();
                if !table.asks(&mut owner, mode) {
                    break owner;
                }
                table.end(owner);
                passed += 1;
            };
            // Not past a lock that it would share, because such requests might never end.
            let most = match kind {
                ManagerKind::Direct | ManagerKind::DirectTable if mode == WRITE => {
                    kind.max_overtaken()
                }
                _ => 0,
            };
            assert_eq!(passed, most, "{kind}, {mode}");
            assert!(table.is_granted(&mut asleep), "{kind}: it was its turn");
            assert!(!table.is_granted(&mut late));
            table.end(asleep);
            assert!(table.is_granted(&mut late));
            table.end(late);
            table.nobody_is_left();
        }
    }
}

/// A request that barges may hold the lock for long, so the number of bargings is not the only
/// limit.
#[test]
fn barging_past_a_waiter_ends_after_the_window() {
    for long in [Duration::ZERO, Duration::MAX] {
        let mut options = Options::tiny();
        (options.kind, options.barging_window) = (ManagerKind::Direct, long);
        let table = Hot::of(Table::with(&options));
        let mut asleep = table.asleep();
        // Longer than a clock tick.
        let tick = Duration::from_millis(30);
        thread::sleep(tick); // The time for which it has the lock does not matter.
        let passer = table.holds(WRITE);
        thread::sleep(tick);
        table.end(passer);
        let mut late = table.owner();
        assert_eq!(table.asks(&mut late, WRITE), long == Duration::MAX);
        if long == Duration::MAX {
            table.end(late);
            assert!(table.is_granted(&mut asleep));
            table.end(asleep);
        } else {
            assert!(table.is_granted(&mut asleep));
            table.end(asleep);
            assert!(table.is_granted(&mut late));
            table.end(late);
        }
        table.nobody_is_left();
    }
}

/// The window counts from the first barging, and not from the last.
#[test]
fn further_barging_does_not_extend_the_window() {
    let mut options = Options::tiny();
    (options.kind, options.barging_window) = (ManagerKind::Direct, Duration::from_millis(100));
    let table = Hot::of(Table::with(&options));
    let mut asleep = table.asleep();
    let mut passed = 0;
    let mut late = loop {
        let mut owner = table.owner();
        if !table.asks(&mut owner, WRITE) {
            break owner;
        }
        passed += 1;
        thread::sleep(Duration::from_millis(20));
        table.end(owner);
    };
    assert!(passed < 20, "{passed} times, of 20 ms each");
    assert!(table.is_granted(&mut asleep));
    table.end(asleep);
    assert!(table.is_granted(&mut late));
    table.end(late);
    table.nobody_is_left();
}

/// A session may hold a number for hours, and request it again as soon as it has released it.
#[test]
fn advisory_numbers_are_granted_in_turn() {
    for kind in ManagerKind::ALL {
        let table = Hot(Table::new(kind), Name::advisory(7));
        let session = table.holds(Mode::X);
        let mut next = table.waits(Mode::X);
        table.end(session);
        let mut again = table.waits(Mode::X);
        assert!(table.is_granted(&mut next), "{kind}");
        table.end(next);
        assert!(table.is_granted(&mut again), "{kind}");
        table.end(again);
        table.nobody_is_left();
    }
}

#[test]
fn a_grant_that_was_seen_is_final() {
    let table = Hot::new(ManagerKind::Direct);
    let mut owner = table.asleep();
    assert!(table.is_granted(&mut owner));
    let mut late = table.waits(WRITE);
    table.end(owner);
    assert!(table.is_granted(&mut late));
    table.end(late);
    table.nobody_is_left();
}

/// It is first again, and so before requests that came after it.
#[test]
fn a_waiter_that_was_passed_keeps_its_position() {
    let table = Hot::new(ManagerKind::Direct);
    let first = table.holds(WRITE);
    let (mut asleep, mut second) = (table.waits(WRITE), table.waits(READ));
    table.end(first);
    let passer = table.holds(WRITE);
    assert!(!table.is_granted(&mut asleep) && !table.is_granted(&mut second));
    table.end(passer);
    assert!(!table.is_granted(&mut second));
    assert!(table.is_granted(&mut asleep));
    assert!(!table.is_granted(&mut second));
    table.end(asleep);
    assert!(table.is_granted(&mut second));
    table.end(second);
    table.nobody_is_left();
}

#[test]
fn a_grant_to_several_waiters_is_not_revoked() {
    let table = Hot::new(ManagerKind::Direct);
    let first = table.holds(WRITE);
    let readers = [table.waits(READ), table.waits(READ)];
    table.end(first);
    let mut late = table.waits(WRITE);
    for mut reader in readers {
        assert!(table.is_granted(&mut reader));
        table.end(reader);
    }
    assert!(table.is_granted(&mut late));
    table.end(late);
    table.nobody_is_left();
}

/// Nor is a stronger mode revoked from an owner that held a weaker one before.
#[test]
fn conversions_neither_barge_nor_are_passed() {
    let table = Hot::new(ManagerKind::Direct);
    let (mut converts, reader) = (table.holds(READ), table.holds(READ));
    assert!(!table.asks(&mut converts, WRITE));
    table.end(reader);
    let mut late = table.waits(WRITE);
    assert!(
        table.is_granted(&mut converts),
        "granted, and not taken back"
    );
    table.end(converts);
    // `late` sleeps with the lock now.
    let passer = table.holds(WRITE);
    assert!(!table.is_granted(&mut late));
    table.end(passer);
    assert!(table.is_granted(&mut late));
    table.end(late);
    table.nobody_is_left();
}

/// The conversion waits for the sleeper, and would wait for the request that took its place.
#[test]
fn no_request_barges_past_a_sleeper_with_a_waiting_conversion() {
    let table = Hot::new(ManagerKind::Direct);
    let (first, mut converts) = (table.holds(UPDATE), table.holds(READ));
    let mut asleep = table.waits(UPDATE);
    table.end(first);
    assert!(!table.asks(&mut converts, WRITE));
    let mut late = table.waits(UPDATE);
    assert!(table.is_granted(&mut asleep));
    table.end(asleep);
    assert!(table.is_granted(&mut converts));
    assert!(!table.is_granted(&mut late));
    table.end(converts);
    assert!(table.is_granted(&mut late));
    table.end(late);
    table.nobody_is_left();
}

/// A read for update barges past another one, and then writes: a conversion waits for holders only.
#[test]
fn a_request_that_barged_past_another_converts_before_it() {
    let table = Hot::new(ManagerKind::Direct);
    let first = table.holds(UPDATE);
    let mut asleep = table.waits(UPDATE);
    table.end(first);
    let mut passer = table.holds(UPDATE);
    assert!(table.asks(&mut passer, WRITE));
    assert!(!table.is_granted(&mut asleep));
    table.end(passer);
    assert!(table.is_granted(&mut asleep));
    table.end(asleep);
    table.nobody_is_left();
}

#[test]
fn a_request_that_would_not_wait_does_not_barge() {
    let table = Hot::new(ManagerKind::Direct);
    let mut asleep = table.asleep();
    for patience in [WaitMode::Refuse, WaitMode::Skip] {
        let mut owner = table.owner();
        let reply = table.request(&mut owner, table.1, WRITE, patience);
        assert!(
            matches!(reply, Reply::Refused(_) | Reply::Skipped),
            "{reply:?}"
        );
        table.end(owner);
    }
    assert!(table.is_granted(&mut asleep));
    table.end(asleep);
    table.nobody_is_left();
}

/// However its wait ends: before another request passes it, meanwhile, or after.
#[test]
fn a_waiter_that_was_passed_and_leaves_leaves_no_trace() {
    for passes in 0..3 {
        for outcome in [
            None,
            Some(RefusalReason::TimedOut),
            Some(RefusalReason::Cancelled),
        ] {
            let table = Hot::new(ManagerKind::Direct);
            let mut asleep = table.asleep();
            for _ in 0..passes {
                table.end(table.holds(WRITE));
            }
            let ticket = asleep.wait_ticket().unwrap();
            let passer = table.holds(WRITE);
            match outcome {
                None => table.locks.cancel(&table.worker, &mut asleep),
                Some(reason) => {
                    assert!(table.locks.end_wait(&table.worker, ticket, reason));
                    let ended = table.polled(&mut asleep);
                    let Poll::Ready(Outcome::Refused(refusal)) = ended else {
                        panic!("{ended:?}");
                    };
                    assert_eq!(refusal.reason, reason);
                }
            }
            table.locks.verify(&table.worker);
            let mut next = table.waits(WRITE);
            table.end(passer);
            assert!(table.is_granted(&mut next), "nobody else is in the line");
            table.end(next);
            table.end(asleep);
            table.nobody_is_left();
        }
    }
}

/// A thread that ends waits comes once, as the timer of a task does. If the grant were revoked
/// after that, no thread would end the wait any more.
#[test]
fn a_grant_is_final_after_an_attempt_to_end_its_wait() {
    for reason in [RefusalReason::TimedOut, RefusalReason::Cancelled] {
        for passes in 0..2 {
            let table = Hot::new(ManagerKind::Direct);
            let asleep = table.asleep();
            for _ in 0..passes {
                table.end(table.holds(WRITE));
            }
            let ticket = asleep.wait_ticket().unwrap();
            let ended = table.locks.end_wait(&table.worker, ticket, reason);
            assert!(!ended, "it was granted before");
            let late = table.waits(WRITE);
            table.have_their_turns([asleep, late]);
        }
    }
}

/// The waiter is cancelled while it has the lock and has not seen it. The grant is undone, and no
/// request can revoke it later.
#[test]
fn a_cancelled_waiter_releases_a_grant_that_it_has_not_seen() {
    let table = Hot::new(ManagerKind::Direct);
    let mut asleep = table.asleep();
    table.locks.cancel(&table.worker, &mut asleep);
    let other = table.holds(WRITE);
    let mut late = table.waits(WRITE);
    table.end(asleep);
    assert!(!table.is_granted(&mut late));
    table.end(other);
    assert!(table.is_granted(&mut late));
    table.end(late);
    table.nobody_is_left();
}

/// A request that barged can close a cycle later, like any other. It is found, and the victim does
/// not barge past the other again.
#[test]
fn a_cycle_through_a_waiter_that_was_passed_is_closed_once() {
    let table = Hot::new(ManagerKind::Direct);
    let first = table.holds(WRITE);
    let asleep = table.waits_with_the_other();
    table.end(first);
    table.gives_way(table.holds(WRITE));
    let again = table.waits(WRITE);
    table.have_their_turns([asleep, again]);
}

/// The same with a waiter in between: a request that barges past the first of the queue passes
/// both.
#[test]
fn a_cycle_through_a_waiter_behind_a_sleeper_is_closed_once() {
    let table = Hot::new(ManagerKind::Direct);
    let first = table.holds(WRITE);
    let [asleep, behind] = [table.waits(WRITE), table.waits_with_the_other()];
    table.gives_way(first);
    let again = table.waits(WRITE);
    table.have_their_turns([asleep, behind, again]);
}

/// And if the sleeper is not in the queue but has the lock, beside the victim.
#[test]
fn a_cycle_beside_a_sleeper_is_closed_once() {
    let table = Hot::new(ManagerKind::Direct);
    let first = table.holds(WRITE);
    let asleep = table.waits(READ);
    table.end(first);
    let reader = table.holds(READ);
    let writer = table.waits_with_the_other();
    table.gives_way(reader);
    let again = table.waits(WRITE);
    table.have_their_turns([asleep, writer, again]);
}
