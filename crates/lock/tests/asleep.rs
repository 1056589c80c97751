//! What is granted to somebody who waits, and goes to somebody else before it is seen: only where it may, only
//! as often as it may, and without a trace.
//!
//! One thread plays everybody, so that there is neither time nor chance in it. Who waits is asleep until it is
//! polled.

use foxton_lock::{
    any::{ManagerKind, Options},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::Owner,
    request::{Outcome, RefusalReason, Reply, WaitMode},
};
use played::{READ, Table, UPDATE, WRITE};
use std::{ops::Deref, task::Poll, thread, time::Duration};

mod played;

/// A table of which one name is looked at.
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

    /// Whether it is granted at once; if not, it waits.
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

    /// One that has the other name and waits to write this one. It has given way before, and will not again.
    fn waits_with_the_other(&self) -> Owner {
        let mut owner = self.owner();
        owner.set_defeats(20);
        assert!(self.asks_for_the_other(&mut owner));
        assert!(!self.asks(&mut owner, WRITE));
        owner
    }

    /// It asks for the other name, closes a circle, and gives way.
    fn gives_way(&self, mut owner: Owner) {
        assert!(!self.asks_for_the_other(&mut owner));
        assert_eq!(self.locks.deadlocks().len(), 1);
        let ended = self.polled(&mut owner);
        assert!(matches!(ended, Poll::Ready(Outcome::Refused(_))));
        self.end(owner);
    }

    /// One that waits to write, and to which the lock was granted.
    fn asleep(&self) -> Owner {
        let first = self.holds(WRITE);
        let asleep = self.waits(WRITE);
        self.end(first);
        asleep
    }

    /// Each in its turn has the lock, none before those ahead have ended, and nobody is left.
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
fn who_is_awake_goes_before_who_sleeps_so_often_at_most() {
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
            // Not by who would share it with others: they would never cease.
            let most = match kind {
                ManagerKind::Direct if mode == WRITE => kind.max_overtaken(),
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

/// Who passes may hold the lock for long: what counts is not only how often.
#[test]
fn who_was_passed_for_the_first_time_long_ago_is_passed_no_more() {
    for long in [Duration::ZERO, Duration::MAX] {
        let mut options = Options::tiny();
        (options.kind, options.barging_window) = (ManagerKind::Direct, long);
        let table = Hot::of(Table::with(&options));
        let mut asleep = table.asleep();
        // Longer than a tick of the clock.
        let tick = Duration::from_millis(30);
        thread::sleep(tick); // However long it has had the lock.
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

/// From the first time on, and not from the last.
#[test]
fn who_is_passed_again_and_again_is_passed_no_longer_for_that() {
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

/// A session may hold a number for hours, and ask for it again as soon as it has let go.
#[test]
fn numbers_are_had_in_turn() {
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
fn who_has_seen_its_lock_keeps_it() {
    let table = Hot::new(ManagerKind::Direct);
    let mut owner = table.asleep();
    assert!(table.is_granted(&mut owner));
    let mut late = table.waits(WRITE);
    table.end(owner);
    assert!(table.is_granted(&mut late));
    table.end(late);
    table.nobody_is_left();
}

/// It is first again, and so before those who came after it.
#[test]
fn who_was_passed_stands_where_it_stood() {
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
fn what_several_were_granted_is_not_taken_from_them() {
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

/// Nor is a stronger mode taken from who held a weaker one before.
#[test]
fn a_conversion_is_neither_passed_nor_passes() {
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
    // `late` is asleep with the lock now.
    let passer = table.holds(WRITE);
    assert!(!table.is_granted(&mut late));
    table.end(passer);
    assert!(table.is_granted(&mut late));
    table.end(late);
    table.nobody_is_left();
}

/// Who converts waits for the sleeper, and would wait for whoever took its place.
#[test]
fn nobody_passes_a_sleeper_for_whom_a_conversion_waits() {
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

/// Who reads for update passes another that would, and then writes: a conversion waits for holders only.
#[test]
fn who_has_passed_another_converts_before_it() {
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
fn who_does_not_wait_does_not_pass() {
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

/// However its wait ends: before it is passed, while it is, or after.
#[test]
fn who_was_passed_and_leaves_leaves_no_trace() {
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

/// Whoever ends a wait from outside comes once, as the timer of a task does: were the grant taken back after that,
/// nobody would end it any more.
#[test]
fn who_was_to_be_woken_without_its_lock_and_has_it_is_passed_no_more() {
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

/// Cancelled while it has the lock and has not seen it: what was granted is given back, and nobody can take it
/// from it later.
#[test]
fn who_gives_up_what_it_has_not_seen_gives_it_back() {
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

/// Who passes can close a circle later, like anybody else: it is found, and the victim does not pass the other again.
#[test]
fn a_circle_through_who_was_passed_is_found_and_closed_once() {
    let table = Hot::new(ManagerKind::Direct);
    let first = table.holds(WRITE);
    let asleep = table.waits_with_the_other();
    table.end(first);
    table.gives_way(table.holds(WRITE));
    let again = table.waits(WRITE);
    table.have_their_turns([asleep, again]);
}

/// The same where somebody stands between: who passes the first in the line passes both.
#[test]
fn a_circle_through_who_stands_behind_a_sleeper_is_closed_once() {
    let table = Hot::new(ManagerKind::Direct);
    let first = table.holds(WRITE);
    let [asleep, behind] = [table.waits(WRITE), table.waits_with_the_other()];
    table.gives_way(first);
    let again = table.waits(WRITE);
    table.have_their_turns([asleep, behind, again]);
}

/// And where the sleeper is not in the line but has the lock, beside the victim.
#[test]
fn a_circle_beside_a_sleeper_is_closed_once() {
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
