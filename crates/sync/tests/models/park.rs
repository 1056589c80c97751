//! Models of the parker: its ordering, and that a wait is ended and woken exactly once.
//!
//! A lost wake-up is a deadlock, which the model checker reports.

use foxton_sync::park::{Parker, Ticket, Verdict};
use foxton_sync::shim::{Arc, AtomicU64, Ordering::Relaxed, UnsafeCell, thread};
use std::future::poll_fn;

const GRANTED: Verdict = Verdict::new(1);
const TIMED_OUT: Verdict = Verdict::new(2);

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

struct Shared {
    parker: Parker,
    gift: UnsafeCell<u64>,
    wakes: AtomicU64,
}

// SAFETY: the models are about the gift: the checker panics if two threads race for it.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

fn shared() -> Arc<Shared> {
    Arc::new(Shared {
        parker: Parker::new(),
        gift: UnsafeCell::new(0),
        wakes: AtomicU64::new(0),
    })
}

fn end(shared: &Shared, ticket: Ticket, verdict: Verdict) {
    if let Some(wake) = shared.parker.resolve(ticket, verdict) {
        shared.wakes.fetch_add(1, Relaxed);
        wake.wake();
    }
}

#[test]
fn o1_the_sleeper_sees_all_that_was_written_before_the_verdict() {
    model(|| {
        let shared = shared();
        let ticket = shared.parker.arm();
        let giver = {
            let shared = shared.clone();
            thread::spawn(move || {
                // SAFETY: the sleeper looks only after the verdict.
                shared.gift.with_mut(|gift| unsafe { *gift = 7 });
                end(&shared, ticket, GRANTED);
            })
        };
        if shared.parker.verdict(ticket).is_some() {
            // SAFETY: the giver wrote before the verdict.
            assert_eq!(shared.gift.with(|gift| unsafe { *gift }), 7);
        }
        giver.join().unwrap();
    });
}

#[test]
fn a_sleeping_thread_is_woken() {
    model(|| {
        let shared = shared();
        let ticket = shared.parker.arm();
        let sleeper = {
            let shared = shared.clone();
            thread::spawn(move || shared.parker.wait(ticket, None))
        };
        end(&shared, ticket, GRANTED);
        assert_eq!(sleeper.join().unwrap(), Some(GRANTED));
    });
}

#[test]
fn a_sleeping_task_is_woken() {
    model(|| {
        let shared = shared();
        let ticket = shared.parker.arm();
        let giver = {
            let shared = shared.clone();
            thread::spawn(move || end(&shared, ticket, GRANTED))
        };
        let verdict = loom::future::block_on(poll_fn(|cx| shared.parker.poll(ticket, cx)));
        assert_eq!(verdict, GRANTED);
        giver.join().unwrap();
    });
}

/// A verdict is granted revocably, revoked if the sleeper has not seen it, and given finally, to a
/// thread that may sleep at any moment between.
#[test]
fn a_revoked_verdict_ends_no_wait() {
    model(|| {
        let shared = shared();
        let ticket = shared.parker.arm();
        let giver = {
            let shared = shared.clone();
            thread::spawn(move || {
                let granted = shared
                    .parker
                    .grant_revocable(ticket, GRANTED)
                    .expect("it is open");
                let revoked = shared.parker.revoke(ticket, GRANTED);
                if revoked {
                    // SAFETY: the sleeper looks only after the verdict that is not revoked.
                    shared.gift.with_mut(|gift| unsafe { *gift = 7 });
                    let again = shared.parker.grant_revocable(ticket, GRANTED);
                    again.expect("it is open again").wake();
                }
                // Late, too.
                granted.wake();
                revoked
            })
        };
        assert_eq!(shared.parker.wait(ticket, None), Some(GRANTED));
        // SAFETY: no thread writes it after the verdict.
        let gift = shared.gift.with(|gift| unsafe { *gift });
        assert_eq!(gift == 7, giver.join().unwrap());
        assert!(!shared.parker.revoke(ticket, GRANTED), "it was seen");
    });
}

#[test]
fn a_task_sleeps_on_when_its_verdict_is_revoked() {
    model(|| {
        let shared = shared();
        let ticket = shared.parker.arm();
        let giver = {
            let shared = shared.clone();
            thread::spawn(move || {
                let granted = shared
                    .parker
                    .grant_revocable(ticket, GRANTED)
                    .expect("it is open");
                granted.wake();
                if shared.parker.revoke(ticket, GRANTED) {
                    end(&shared, ticket, TIMED_OUT);
                    return TIMED_OUT;
                }
                GRANTED
            })
        };
        let verdict = loom::future::block_on(poll_fn(|cx| shared.parker.poll(ticket, cx)));
        assert_eq!(verdict, giver.join().unwrap());
    });
}

#[test]
fn one_of_two_wakers_ends_the_wait() {
    model(|| {
        let shared = shared();
        let ticket = shared.parker.arm();
        let sleeper = {
            let shared = shared.clone();
            thread::spawn(move || shared.parker.wait(ticket, None))
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || end(&shared, ticket, TIMED_OUT))
        };
        end(&shared, ticket, GRANTED);
        other.join().unwrap();
        let verdict = sleeper.join().unwrap();
        assert!(verdict == Some(GRANTED) || verdict == Some(TIMED_OUT));
        assert_eq!(shared.wakes.load(Relaxed), 1);
        assert_eq!(shared.parker.verdict(ticket), verdict);
    });
}

#[test]
fn a_wait_is_either_withdrawn_or_resolved() {
    model(|| {
        let shared = shared();
        let ticket = shared.parker.arm();
        let giver = {
            let shared = shared.clone();
            thread::spawn(move || {
                // SAFETY: the sleeper looks only after the verdict.
                shared.gift.with_mut(|gift| unsafe { *gift = 7 });
                end(&shared, ticket, GRANTED);
            })
        };
        let verdict = shared.parker.disarm(ticket);
        if verdict.is_some() {
            // SAFETY: the giver wrote before the verdict.
            assert_eq!(shared.gift.with(|gift| unsafe { *gift }), 7);
        }
        giver.join().unwrap();
        assert_eq!(shared.wakes.load(Relaxed), u64::from(verdict.is_some()));
    });
}

#[test]
fn a_wait_is_withdrawn_for_good_while_its_verdict_is_revoked() {
    model(|| {
        let shared = shared();
        let ticket = shared.parker.arm();
        let granted = shared
            .parker
            .grant_revocable(ticket, GRANTED)
            .expect("it is open");
        let giver = {
            let shared = shared.clone();
            thread::spawn(move || shared.parker.revoke(ticket, GRANTED))
        };
        let verdict = shared.parker.disarm(ticket);
        assert_eq!(verdict.is_none(), giver.join().unwrap());
        let again = shared.parker.resolve(ticket, TIMED_OUT);
        assert!(again.is_none(), "it is over");
        granted.wake();
    });
}

/// The first wait ends without sleeping. Its `Wake` comes when the second wait may already sleep,
/// and must leave it alone. If it took the second sleeper, that would sleep for ever.
#[test]
fn a_late_wake_leaves_the_next_wait_alone() {
    model(|| {
        let shared = shared();
        let first = shared.parker.arm();
        let late = shared
            .parker
            .resolve(first, GRANTED)
            .expect("nobody was before us");
        assert_eq!(shared.parker.wait(first, None), Some(GRANTED));
        let second = shared.parker.arm();
        let sleeper = {
            let shared = shared.clone();
            thread::spawn(move || shared.parker.wait(second, None))
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || end(&shared, second, TIMED_OUT))
        };
        late.wake();
        other.join().unwrap();
        assert_eq!(sleeper.join().unwrap(), Some(TIMED_OUT));
    });
}
