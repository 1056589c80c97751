//! Orders of acquisition do not run out, tested here with a thousand orders.
//!
//! On every manager, with and without inheritance, with locks that are remembered and locks that
//! never are. Each acquisition is counted once, however often the locks are renumbered.

use super::{AnyManager, Inheritance, ManagerKind, Options};
use crate::{
    manager::LockManager,
    mode::Mode,
    name::{KeyHasher, Name},
    owner::{LockSavepoint, Owner, lock_list::LAST_ORDER},
    request::RefusalReason,
};
use foxton_sync::worker::{Worker, Workers};
use std::time::Duration;

const ROUNDS: u64 = 3 * LAST_ORDER as u64;

struct TestSession {
    what: String,
    asked: Scenario,
    locks: AnyManager,
    worker: Worker,
    owner: Owner,
    taken: u64,
}

/// Names and modes that a test locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scenario {
    /// Remembered, if the manager remembers.
    Shared,
    /// Never remembered.
    Exclusive,
    /// Shared keys that are not remembered, because another owner held them exclusively a moment
    /// ago.
    Revoked,
    /// Tables that are left to the next transaction.
    Inherited,
}

/// Runs `play` on every manager and scenario, and checks the remaining locks and the counters.
fn on_every_stage(play: impl Fn(&mut TestSession)) {
    for kind in ManagerKind::ALL {
        for asked in [
            Scenario::Shared,
            Scenario::Exclusive,
            Scenario::Revoked,
            Scenario::Inherited,
        ] {
            let mut stage = TestSession::new(kind, asked);
            play(&mut stage);
            let what = &stage.what;
            let used = stage.owner.savepoint().order();
            assert!(used <= LAST_ORDER + 1, "{what}: {used}");
            stage.locks.verify(&stage.worker);
            stage.locks.release_all(&stage.worker, &mut stage.owner);
            let left = stage.locks.inspect(&stage.worker);
            assert!(left.queues.is_empty(), "{what}");
            let counted = stage.locks.stats(&stage.worker).acquisitions;
            assert_eq!(counted, stage.taken, "{what}");
        }
    }
}

impl TestSession {
    fn new(kind: ManagerKind, asked: Scenario) -> Self {
        let mut options = Options::tiny();
        options.kind = kind;
        if asked == Scenario::Inherited {
            options.inherit = Inheritance::Always;
        }
        // A revoked granule stays real.
        options.hold_off = Duration::from_secs(3600);
        let locks = AnyManager::new(&options);
        let mut stage = Self {
            what: format!("{kind}, {asked:?}"),
            asked,
            worker: Workers::with_seed(1).worker(),
            owner: locks.owner(),
            locks,
            taken: 0,
        };
        if asked == Scenario::Revoked {
            stage.revoke();
        }
        stage
    }

    /// Another owner holds keys of every granule exclusively, for a moment.
    fn revoke(&mut self) {
        let mut other = self.locks.owner();
        for number in 0..64 {
            let name = self.name(1_000_000 + number);
            let outcome = self.locks.try_lock(&self.worker, &mut other, name, Mode::X);
            assert!(outcome.is_held());
            self.taken += 1;
        }
        self.locks.release_all(&self.worker, &mut other);
    }

    fn name(&self, number: u64) -> Name {
        match self.asked {
            Scenario::Inherited => Name::table(number as u32),
            // Each in a block of its own.
            _ => Name::key(1, &(64 * number).to_be_bytes(), &KeyHasher::new(1)),
        }
    }

    fn mode(&self) -> Mode {
        match self.asked {
            Scenario::Exclusive => Mode::X,
            _ => Mode::S,
        }
    }

    fn lock(&mut self, number: u64) {
        let (name, mode) = (self.name(number), self.mode());
        let outcome = self
            .locks
            .try_lock(&self.worker, &mut self.owner, name, mode);
        assert!(outcome.is_held(), "{}: {outcome:?}", self.what);
        self.taken += 1;
    }

    fn unlock(&mut self, number: u64) {
        let name = self.name(number);
        assert!(self.locks.release(&self.worker, &mut self.owner, name));
    }

    fn release_since(&mut self, since: LockSavepoint) {
        self.locks
            .release_since(&self.worker, &mut self.owner, since);
    }

    #[track_caller]
    fn holds(&self, numbers: &[u64]) {
        let mut held: Vec<Name> = self.owner.held().map(|(name, _)| name).collect();
        held.sort();
        let mut expected: Vec<Name> = numbers.iter().map(|&at| self.name(at)).collect();
        expected.sort();
        assert_eq!(held, expected, "{}", self.what);
    }
}

#[test]
fn a_session_locks_and_unlocks_for_as_long_as_it_likes() {
    on_every_stage(|stage| {
        stage.lock(1);
        let mut kept = stage.owner.retain();
        for _ in 0..ROUNDS {
            stage.owner.begin_retaining(kept);
            stage.lock(2);
            kept = stage.owner.retain();
            stage.unlock(2);
        }
        stage.owner.begin_retaining(kept);
        stage.lock(3);
        stage.release_since(kept);
        stage.holds(&[1]);
    });
}

#[test]
fn also_if_it_goes_from_hand_to_hand() {
    on_every_stage(|stage| {
        stage.lock(0);
        for number in 1..ROUNDS {
            let kept = stage.owner.retain();
            stage.owner.begin_retaining(kept);
            stage.lock(number);
            stage.owner.retain();
            stage.unlock(number - 1);
        }
        stage.holds(&[ROUNDS - 1]);
    });
}

#[test]
fn savepoints_are_as_good_as_they_were() {
    on_every_stage(|stage| {
        stage.lock(1);
        let first = stage.owner.savepoint();
        (10..20).for_each(|number| stage.lock(number));
        let second = stage.owner.savepoint();
        (20..30).for_each(|number| stage.lock(number));
        for round in 0..ROUNDS {
            stage.lock(100 + round % 40);
            if round >= 20 {
                stage.unlock(100 + (round - 20) % 40);
            }
        }
        stage.release_since(second);
        let left: Vec<u64> = [1].into_iter().chain(10..20).collect();
        stage.holds(&left);
        stage.release_since(first);
        stage.holds(&[1]);
    });
}

#[test]
fn a_transaction_reads_for_a_moment_as_often_as_it_likes() {
    on_every_stage(|stage| {
        stage.lock(1);
        for round in 0..ROUNDS {
            stage.lock(2 + round % 3);
            stage.unlock(2 + round % 3);
        }
        stage.holds(&[1]);
    });
}

#[test]
fn an_owner_without_free_orders_is_refused() {
    on_every_stage(|stage| {
        if stage.asked == Scenario::Shared {
            return; // Remembered locks can share an order.
        }
        let all: Vec<u64> = (1..u64::from(LAST_ORDER)).collect();
        all.iter().for_each(|&number| stage.lock(number));
        for number in [0, 5000] {
            let name = stage.name(number);
            let refused = stage
                .locks
                .try_lock(&stage.worker, &mut stage.owner, name, Mode::X);
            let refusal = refused.refusal().expect("no order is left");
            assert_eq!(refusal.reason, RefusalReason::Full, "{}", stage.what);
        }
        stage.holds(&all);
        stage.unlock(1);
        stage.lock(0);
    });
}
