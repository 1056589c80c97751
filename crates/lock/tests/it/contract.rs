//! The contract L1..L7, clause by clause, on every manager over every latch.
//!
//! No thread but the test's own: a request that waits is in its queue until the test polls it, so
//! every history here is exact.

use foxton_lock::{
    any::{AnyManager, Inheritance, ManagerKind, Options},
    deadlock::VictimPolicy,
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::Owner,
    request::{Outcome, Refusal, RefusalReason, Reply, WaitMode},
};
use foxton_sync::{
    latch,
    worker::{Worker, Workers},
};
use std::{
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// A manager with a worker, and short forms of the contract's calls.
struct Table {
    locks: AnyManager,
    worker: Worker,
    _workers: Workers,
}

/// Runs `test` on every manager over every latch, each with few buckets and many; `direct` also
/// with the fences of systems without a barrier.
fn on_all(test: impl Fn(&Table)) {
    on_all_with(VictimPolicy::default(), test);
}

fn on_all_with(victim: VictimPolicy, test: impl Fn(&Table)) {
    let fenced = |kind| {
        crate::fenced::fences(kind)
            .iter()
            .map(move |&fences| (kind, fences))
    };
    for (kind, fences) in ManagerKind::ALL.into_iter().flat_map(fenced) {
        for latch in latch::Kind::ALL {
            for (bucket_count, inherit) in [
                (1, Inheritance::Off),
                (64, Inheritance::Off),
                (1, Inheritance::Always),
                (64, Inheritance::Always),
            ] {
                let mut options = Options::tiny();
                (options.kind, options.latch, options.victim) = (kind, latch, victim);
                (options.bucket_count, options.inherit) = (bucket_count, inherit);
                options.fences = fences;
                println!(
                    "{kind} over {latch}, {bucket_count} buckets, inheritance {inherit}, fences {fences}"
                );
                let workers = Workers::with_seed(1);
                let worker = workers.worker();
                let table = Table {
                    locks: AnyManager::new(&options),
                    worker,
                    _workers: workers,
                };
                test(&table);
                table.locks.verify(&table.worker);
            }
        }
    }
}

impl Table {
    fn owner(&self, label: &'static str) -> Owner {
        let mut owner = self.locks.owner();
        owner.set_label(label);
        owner
    }

    fn ask(&self, owner: &mut Owner, name: Name, mode: Mode) -> Reply {
        let reply = self
            .locks
            .request(&self.worker, owner, name, mode, WaitMode::Wait);
        self.locks.verify(&self.worker);
        reply
    }

    fn granted(&self, owner: &mut Owner, name: Name, mode: Mode) {
        assert!(matches!(self.ask(owner, name, mode), Reply::Granted));
    }

    fn waits(&self, owner: &mut Owner, name: Name, mode: Mode) {
        assert!(matches!(self.ask(owner, name, mode), Reply::Waiting));
    }

    fn refused(&self, owner: &mut Owner, name: Name, mode: Mode) -> Box<Refusal> {
        self.locks
            .try_lock(&self.worker, owner, name, mode)
            .refusal()
            .expect("a refusal")
    }

    /// Returns the outcome of a wait, or `None` while it goes on.
    fn poll(&self, owner: &mut Owner) -> Option<Outcome> {
        let mut context = Context::from_waker(Waker::noop());
        match self.locks.poll_wait(&self.worker, owner, &mut context) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn now_granted(&self, owner: &mut Owner) {
        assert!(matches!(self.poll(owner), Some(Outcome::Granted)));
    }

    fn still_waits(&self, owner: &mut Owner) {
        assert!(self.poll(owner).is_none());
    }

    fn now_refused(&self, owner: &mut Owner) -> Box<Refusal> {
        self.poll(owner)
            .and_then(Outcome::refusal)
            .expect("a refusal")
    }

    fn release_all(&self, owner: &mut Owner) {
        self.locks.release_all(&self.worker, owner);
        self.locks.verify(&self.worker);
    }

    /// Returns the holders and waiters of `name`, by label and mode.
    fn shown(&self, name: Name) -> String {
        let snapshot = self.locks.inspect(&self.worker);
        let Some(queue) = snapshot.queue(name) else {
            return "nobody".to_owned();
        };
        let mut holders: Vec<String> = queue
            .holders
            .iter()
            .map(|entry| format!("{} {}", entry.label, entry.mode))
            .collect();
        holders.sort();
        let waiters = queue
            .waiters
            .iter()
            .map(|entry| format!("{} {}", entry.label, entry.mode));
        format!(
            "{} | {}",
            holders.join(", "),
            waiters.collect::<Vec<_>>().join(", ")
        )
    }
}

const A: Name = Name::table(1);
const B: Name = Name::table(2);
const C: Name = Name::table(3);

#[test]
fn l1_two_owners_never_hold_one_name_in_incompatible_modes() {
    on_all(|t| {
        for first in Mode::TABLE_MODES {
            for second in Mode::TABLE_MODES {
                let (mut one, mut other) = (t.owner("one"), t.owner("other"));
                t.granted(&mut one, A, first);
                let outcome = t.locks.try_lock(&t.worker, &mut other, A, second);
                assert_eq!(
                    outcome.is_held(),
                    first.compatible(second),
                    "{first} {second}"
                );
                t.release_all(&mut one);
                t.release_all(&mut other);
            }
        }
    });
}

#[test]
fn l2_asking_again_is_answered_at_once_and_asking_for_more_converts() {
    on_all(|t| {
        let (mut one, mut other) = (t.owner("one"), t.owner("other"));
        t.granted(&mut one, A, Mode::S);
        assert!(matches!(t.ask(&mut one, A, Mode::S), Reply::Held));
        assert!(matches!(t.ask(&mut one, A, Mode::IS), Reply::Held));
        t.granted(&mut one, A, Mode::IX);
        assert_eq!(one.held_mode(A), Some(Mode::SIX));
        assert_eq!(one.lock_count(), 1);
        assert_eq!(t.shown(A), "one SIX | ");
        t.refused(&mut other, A, Mode::IX);
        assert!(t.locks.release(&t.worker, &mut one, A));
        assert!(!t.locks.release(&t.worker, &mut one, A));
        assert_eq!(t.shown(A), "nobody");
        t.granted(&mut other, A, Mode::X);
        t.release_all(&mut other);
    });
}

#[test]
fn l3_a_refused_request_leaves_no_trace() {
    on_all(|t| {
        let mut owners = ["a", "b", "c", "d"].map(|label| t.owner(label));
        let [a, b, c, d] = &mut owners;
        t.granted(a, A, Mode::S);
        t.granted(b, A, Mode::S);
        t.waits(c, A, Mode::X);
        let before = t.shown(A);
        assert_eq!(before, "a S, b S | c X");

        let refusal = t.refused(d, A, Mode::S);
        assert_eq!(refusal.reason, RefusalReason::Busy);
        assert_eq!(refusal.blockers.len(), 1);
        assert_eq!(
            (&*refusal.blockers[0].label, refusal.blockers[0].waiting),
            ("c", true)
        );
        assert_eq!(t.shown(A), before);

        let refusal = t.refused(a, A, Mode::X);
        assert_eq!(&*refusal.blockers[0].label, "b");
        assert_eq!((refusal.name, refusal.mode), (A, Mode::X));
        assert_eq!(t.shown(A), before);
        assert_eq!(a.held_mode(A), Some(Mode::S));

        t.waits(d, A, Mode::S);
        t.locks.cancel(&t.worker, d);
        assert!(!d.is_waiting());
        assert_eq!(t.shown(A), before);
        owners.iter_mut().for_each(|owner| {
            t.locks.cancel(&t.worker, owner);
            t.release_all(owner);
        });
    });
}

#[test]
fn l3_who_passes_over_leaves_no_trace_and_is_told_no_names() {
    on_all(|t| {
        let mut owners = ["a", "b", "c"].map(|label| t.owner(label));
        let [a, b, c] = &mut owners;
        t.granted(a, A, Mode::S);
        t.granted(b, A, Mode::S);
        for (owner, mode) in [(&mut *c, Mode::X), (&mut *a, Mode::X)] {
            let patience = WaitMode::Skip;
            let reply = t.locks.request(&t.worker, owner, A, mode, patience);
            t.locks.verify(&t.worker);
            assert!(matches!(reply, Reply::Skipped), "{reply:?}");
            assert_eq!(t.shown(A), "a S, b S | ");
        }
        assert_eq!(a.held_mode(A), Some(Mode::S));
        assert_eq!(t.locks.stats(&t.worker).busy, 2);
        let reply = (t.locks).request(&t.worker, c, A, Mode::S, WaitMode::Skip);
        assert!(matches!(reply, Reply::Granted), "nobody is in its way");
        owners.iter_mut().for_each(|owner| t.release_all(owner));
    });
}

#[test]
fn l3_a_cancellation_after_the_grant_gives_it_back() {
    on_all(|t| {
        let mut owners = ["a", "b", "c"].map(|label| t.owner(label));
        let [a, b, c] = &mut owners;
        t.granted(a, A, Mode::X);
        t.waits(b, A, Mode::X);
        t.waits(c, A, Mode::S);
        t.release_all(a);
        assert_eq!(t.shown(A), "b X | c S", "granted, and not collected");
        t.locks.cancel(&t.worker, b);
        assert_eq!(b.lock_count(), 0);
        assert_eq!(t.shown(A), "c S | ");
        t.now_granted(c);

        // A conversion goes back to its former mode.
        t.granted(a, A, Mode::S);
        t.waits(c, A, Mode::X);
        t.release_all(a);
        assert_eq!(t.shown(A), "c X | ");
        t.waits(b, A, Mode::S);
        t.locks.cancel(&t.worker, c);
        assert_eq!(c.held_mode(A), Some(Mode::S));
        t.now_granted(b);
        assert_eq!(t.shown(A), "b S, c S | ");
        owners.iter_mut().for_each(|owner| t.release_all(owner));
    });
}

#[test]
fn l4_whoever_can_go_on_is_granted_and_nobody_else() {
    on_all(|t| {
        let mut owners = ["a", "b", "c", "d", "e"].map(|label| t.owner(label));
        let [a, b, c, d, e] = &mut owners;
        t.granted(a, A, Mode::X);
        t.waits(b, A, Mode::S);
        t.waits(c, A, Mode::IS);
        t.waits(d, A, Mode::IX);
        t.waits(e, A, Mode::S);
        t.release_all(a);
        t.now_granted(b);
        t.now_granted(c);
        t.still_waits(d);
        t.still_waits(e);
        assert_eq!(t.shown(A), "b S, c IS | d IX, e S");
        t.locks.cancel(&t.worker, d);
        t.now_granted(e);
        owners.iter_mut().for_each(|owner| t.release_all(owner));
    });
}

#[test]
fn l5_earlier_goes_first_and_a_conversion_before_new_requests() {
    on_all(|t| {
        let mut owners = ["a", "b", "c", "d"].map(|label| t.owner(label));
        let [a, b, c, d] = &mut owners;
        t.granted(a, A, Mode::IS);
        t.granted(b, A, Mode::S);
        t.waits(c, A, Mode::X);
        t.waits(d, A, Mode::S);
        t.waits(a, A, Mode::IX);
        assert_eq!(t.shown(A), "a IS, b S | a IX, c X, d S");
        t.release_all(b);
        t.now_granted(a);
        t.still_waits(c);
        t.still_waits(d);
        t.release_all(a);
        t.now_granted(c);
        t.release_all(c);
        t.now_granted(d);
        t.release_all(d);
    });
}

#[test]
fn l5_a_conversion_does_not_overtake_an_earlier_one() {
    on_all(|t| {
        let mut owners = ["a", "b", "c"].map(|label| t.owner(label));
        let [a, b, c] = &mut owners;
        t.granted(a, A, Mode::IS);
        t.granted(b, A, Mode::IS);
        t.granted(c, A, Mode::IX);
        t.waits(a, A, Mode::S);
        let refusal = t.refused(b, A, Mode::IX);
        assert_eq!(
            &*refusal.blockers[0].label, "a",
            "compatible with all that is held"
        );
        t.waits(b, A, Mode::S);
        assert_eq!(t.shown(A), "a IS, b IS, c IX | a S, b S");
        t.release_all(c);
        t.now_granted(a);
        t.now_granted(b);
        owners.iter_mut().for_each(|owner| t.release_all(owner));
    });
}

#[test]
fn l6_a_wait_ends_at_its_deadline_and_those_behind_it_go_on() {
    on_all(|t| {
        let mut owners = ["a", "b", "c"].map(|label| t.owner(label));
        let [a, b, c] = &mut owners;
        t.granted(a, A, Mode::S);
        t.waits(b, A, Mode::X);
        t.waits(c, A, Mode::S);
        let deadline = Instant::now() + Duration::from_millis(1);
        let refusal = t
            .locks
            .wait(&t.worker, b, Some(deadline))
            .refusal()
            .unwrap();
        assert_eq!(refusal.reason, RefusalReason::TimedOut);
        assert!(refusal.waited >= Duration::from_millis(1));
        assert_eq!(&*refusal.blockers[0].label, "a");
        t.now_granted(c);
        assert_eq!(t.locks.stats(&t.worker).timeouts, 1);
        owners.iter_mut().for_each(|owner| t.release_all(owner));
    });
}

#[test]
fn l6_a_wait_ends_from_outside_once() {
    on_all(|t| {
        let (mut a, mut b) = (t.owner("a"), t.owner("b"));
        t.granted(&mut a, A, Mode::X);
        t.waits(&mut b, A, Mode::X);
        let ticket = b.wait_ticket().unwrap();
        assert!(
            t.locks
                .end_wait(&t.worker, ticket, RefusalReason::Cancelled)
        );
        assert!(!t.locks.end_wait(&t.worker, ticket, RefusalReason::TimedOut));
        assert_eq!(t.now_refused(&mut b).reason, RefusalReason::Cancelled);
        assert!(!t.locks.end_wait(&t.worker, ticket, RefusalReason::TimedOut));
        t.waits(&mut b, A, Mode::S);
        assert!(
            !t.locks.end_wait(&t.worker, ticket, RefusalReason::TimedOut),
            "an old ticket"
        );
        t.release_all(&mut a);
        t.now_granted(&mut b);
        t.release_all(&mut b);
    });
}

#[test]
fn l6_of_a_cycle_one_is_chosen_by_policy() {
    for (policy, victim) in [
        (VictimPolicy::LeastWork, 1),
        (VictimPolicy::Youngest, 2),
        (VictimPolicy::Requester, 0),
    ] {
        on_all_with(policy, |t| {
            let mut owners = ["a", "b", "c"].map(|label| t.owner(label));
            let [a, b, c] = &mut owners;
            t.granted(a, A, Mode::X);
            t.granted(b, B, Mode::X);
            t.granted(c, C, Mode::X);
            t.granted(a, Name::table(10), Mode::S);
            t.granted(c, Name::table(10), Mode::S);
            t.waits(b, C, Mode::X);
            t.waits(c, A, Mode::X);
            t.waits(a, B, Mode::X);
            let report = t.locks.deadlocks().pop().expect("a report");
            assert_eq!(report.cycle.len(), 3);
            let chosen: Vec<_> = report.cycle.iter().filter(|member| member.victim).collect();
            assert_eq!(chosen.len(), 1);
            let labels = ["a", "b", "c"];
            assert_eq!(&*chosen[0].label, labels[victim], "{policy}");
            for (at, owner) in owners.iter_mut().enumerate() {
                if at == victim {
                    let refusal = t.now_refused(owner);
                    assert_eq!(refusal.reason, RefusalReason::Deadlock);
                    assert_eq!(refusal.cycle.len(), 3);
                    assert_eq!(refusal.blockers.len(), 1);
                } else {
                    t.still_waits(owner);
                }
            }
            t.release_all(&mut owners[victim]);
            // The others end one after the other: in the cycle b -> c -> a -> b.
            let behind = [2, 0, 1];
            let mut next = behind[victim];
            for _ in 0..2 {
                t.now_granted(&mut owners[next]);
                t.release_all(&mut owners[next]);
                next = behind[next];
            }
            assert_eq!(t.locks.deadlocks().len(), 1);
            assert_eq!(t.locks.stats(&t.worker).deadlocks, 1);
        });
    }
}

#[test]
fn l7_after_release_all_nothing_is_remembered() {
    on_all(|t| {
        let mut owner = t.owner("a");
        for round in 0..3 {
            for number in 0..100 {
                t.granted(&mut owner, Name::advisory(number), Mode::X);
            }
            assert_eq!(owner.lock_count(), 100);
            t.release_all(&mut owner);
            assert_eq!(owner.held().count(), 0);
            assert!(t.locks.inspect(&t.worker).queues.is_empty());
            assert_eq!(t.locks.stats(&t.worker).acquisitions, 100 * (round + 1));
            owner.begin();
        }
    });
}

#[test]
#[should_panic(expected = "an owner of another manager")]
fn an_owner_of_another_manager_is_refused() {
    let workers = Workers::with_seed(1);
    let (one, other) = (
        AnyManager::new(&Options::tiny()),
        AnyManager::new(&Options::tiny()),
    );
    let mut owner = one.owner();
    let _ = other.try_lock(&workers.worker(), &mut owner, A, Mode::S);
}

#[test]
#[should_panic(expected = "a wait is in progress")]
fn no_request_is_made_while_a_wait_is_in_progress() {
    let workers = Workers::with_seed(1);
    let (locks, worker) = (AnyManager::new(&Options::tiny()), workers.worker());
    let (mut one, mut other) = (locks.owner(), locks.owner());
    let _ = locks.try_lock(&worker, &mut one, A, Mode::X);
    let _ = locks.request(&worker, &mut other, A, Mode::X, WaitMode::Wait);
    let _ = locks.try_lock(&worker, &mut other, B, Mode::X);
}

#[test]
#[should_panic(expected = "gap parts are for keys")]
fn a_mode_that_does_not_suit_the_name_is_a_programming_error() {
    let workers = Workers::with_seed(1);
    let locks = AnyManager::new(&Options::tiny());
    let mut owner = locks.owner();
    let gap = "gapS".parse().unwrap();
    let _ = locks.try_lock(&workers.worker(), &mut owner, A, gap);
}

#[test]
fn counts_are_summed_over_owners_that_are_gone() {
    on_all(|t| {
        for _ in 0..3 {
            let mut owner = t.owner("a");
            t.granted(&mut owner, A, Mode::S);
            assert!(matches!(t.ask(&mut owner, A, Mode::S), Reply::Held));
            t.release_all(&mut owner);
        }
        let stats = t.locks.stats(&t.worker);
        assert_eq!((stats.acquisitions, stats.re_asks, stats.waits), (3, 3, 0));
        assert!(stats.memory_bytes > 0);
        assert_eq!(stats.wait_quantile(0.5), Duration::ZERO);
    });
}

#[test]
fn old_names_of_managers_are_still_parsed() {
    for (old, kind, name) in [
        ("direct:arrival", ManagerKind::DirectFifo, "direct:fifo"),
        ("sharded:arrival", ManagerKind::ShardedFifo, "sharded:fifo"),
        (
            "sharded:world",
            ManagerKind::ShardedGlobalLatch,
            "sharded:global-latch",
        ),
    ] {
        assert_eq!(old.parse(), Ok(kind));
        assert_eq!(kind.to_string(), name);
    }
}
