//! The contract of lock managers.

use crate::{
    inspect::{DeadlockCycle, LockSnapshot, LockStats},
    mode::Mode,
    name::Name,
    owner::{LockSavepoint, Owner, Scan, WaitTicket},
    request::{Outcome, RefusalReason, Reply, WaitMode},
};
use foxton_sync::{park::WAKING, worker::Worker};
use std::{
    fmt::Debug,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// Decides which owners may hold which names in which modes.
///
/// # Contract
///
/// * L1  Two owners never hold one name in incompatible modes.
/// * L2  Asking again for what is held returns `Held` at once; asking for more converts to the
///   supremum. Either way the name is released once.
/// * L3  A refused or cancelled request leaves no trace: holders, waiters and their order are as
///   before. A cancellation that comes after the grant gives back what was granted.
/// * L4  A waiter whose conflicts are gone is granted without anyone asking again, and exactly the
///   grantable waiters are woken. Until it has seen that, another may be granted in its place, where L5
///   lets it be overtaken; then it waits on.
/// * L5  Among requests that conflict, earlier goes first; a conversion goes before new requests,
///   never before an earlier conversion. Where a manager's order regards who is waited for, or who is
///   awake, new requests overtake each other, but each is overtaken so many times at most
///   ([`ManagerKind::max_overtaken`](crate::any::ManagerKind::max_overtaken)).
/// * L6  Every wait ends: granted, timed out, cancelled, or chosen as a victim. Of every cycle of
///   waits one member is chosen.
/// * L7  After `release_all` the manager remembers nothing of the owner.
///
/// `tests/contract.rs` has a test for each clause and runs it on every manager over every latch;
/// `tests/scripts` tells the same by example.
///
/// # Use
///
/// [`request`](Self::request) never blocks. When it answers `Waiting`, the request stands in a queue
/// and the owner must see the wait to its end before it does anything else: by
/// [`wait`](Self::wait) (a thread sleeps), by [`poll_wait`](Self::poll_wait) (a task does), or by
/// [`cancel`](Self::cancel). [`lock`](Self::lock) is the first two steps in one.
///
/// # Panics
///
/// All methods panic when called with an owner of another manager, for a mode that does not suit
/// the name, or for anything but the end of a wait while one is in progress.
pub trait LockManager: Send + Sync + Debug {
    /// An owner without locks. Making one takes a latch that all share; use it again for one
    /// transaction after another.
    fn owner(&self) -> Owner;

    /// Asks for `name` in `mode`, without blocking.
    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply;

    /// As [`request`](Self::request), for a key that a scan has come to. Managers that can do with
    /// less for a key near the one before keep in `scan` what they need for that; who goes on
    /// scanning passes the same one again.
    ///
    /// Such locks may be given back later than asked: by `release_since` only if the first of a
    /// group of neighbours was acquired since the savepoint.
    #[inline]
    fn request_in_scan(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        _scan: &mut Scan,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        self.request(worker, owner, name, mode, wait_mode)
    }

    /// Asks at once for all keys of one length from `first` to `last`, whether there are such keys or
    /// not: each shared, with the gap before it, but not the gap before `first`. `true`: all of that is
    /// held until the end. `false`: whoever needs any of it has to ask for it, and some may be held
    /// already. Never waits.
    ///
    /// For a short range that is about to be read. The same as for
    /// [`request_in_scan`](Self::request_in_scan) holds for giving back.
    #[inline]
    fn lock_range(&self, _worker: &Worker, _owner: &mut Owner, _first: Name, _last: Name) -> bool {
        false
    }

    /// Says that `name` is about to be asked for: what has to be fetched from memory for that can be on its way meanwhile.
    /// Changes nothing, and need not be said.
    #[inline]
    fn prefetch(&self, _name: Name) {}

    /// Withdraws the request that waits, if one does. If it was granted meanwhile, what was granted
    /// is given back (L3); if it was refused, nothing remains to be done.
    fn cancel(&self, worker: &Worker, owner: &mut Owner);

    /// Ends a wait from outside, as timed out or cancelled, and says whether it was this call that
    /// ended it. If not, it has ended otherwise: what was granted is granted for good, whether who waited has seen it
    /// or not. Who waits learns of it by `wait` or `poll_wait`.
    fn end_wait(&self, worker: &Worker, ticket: WaitTicket, reason: RefusalReason) -> bool;

    /// Gives back `name`, whatever its mode. `false` if it was not held.
    fn release(&self, worker: &Worker, owner: &mut Owner, name: Name) -> bool;

    /// Gives back all that was acquired since `savepoint`, the latest first. What was held before
    /// and converted since keeps its stronger mode.
    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: LockSavepoint);

    /// Gives back all that `owner` holds, and wakes whoever can now go on.
    fn release_all(&self, worker: &Worker, owner: &mut Owner);

    /// Who holds and awaits what. Looks at one queue after the other and never stops the world.
    fn inspect(&self, worker: &Worker) -> LockSnapshot;

    /// As [`inspect`](Self::inspect), but no more than about `most` holders and waiters: first the
    /// names that somebody waits for, the longest wait first, then some of the others.
    fn inspect_limited(&self, worker: &Worker, most: usize) -> LockSnapshot {
        self.inspect(worker).shortened(most)
    }

    /// How long the longest of all waits has lasted so far, if somebody waits.
    fn longest_wait(&self, worker: &Worker) -> Option<Duration> {
        let snapshot = self.inspect(worker);
        snapshot.waits().first().map(|(_, waiter)| waiter.waited)
    }

    /// The most recent deadlocks, up to 64, the latest last.
    fn deadlocks(&self) -> Vec<DeadlockCycle>;

    /// How much there was of everything.
    fn stats(&self, worker: &Worker) -> LockStats;

    /// Panics if an invariant of the manager is broken. Slow; for tests and simulation.
    fn verify(&self, worker: &Worker);

    /// Sleeps until the wait of `owner` has ended, at the latest at `deadline`: then it is timed
    /// out.
    fn wait(&self, worker: &Worker, owner: &mut Owner, deadline: Option<Instant>) -> Outcome {
        let wait = owner
            .wait_ticket()
            .expect("wait without a request that waits");
        worker.account().passed(&WAKING);
        let parker = &owner.record().parker;
        let slept = parker.wait(wait.ticket, deadline);
        let verdict = slept.unwrap_or_else(|| {
            // Whether we end the wait or somebody else just did: it has ended now.
            self.end_wait(worker, wait, RefusalReason::TimedOut);
            let verdict = parker.verdict(wait.ticket);
            verdict.expect("an ended wait has a verdict")
        });
        owner.finish_wait(verdict)
    }

    /// The outcome of the wait of `owner`, or `PendingWait` with the task registered to be woken. For a
    /// deadline, have a timer call [`end_wait`](Self::end_wait) with the owner's ticket.
    fn poll_wait(
        &self,
        _worker: &Worker,
        owner: &mut Owner,
        context: &mut Context<'_>,
    ) -> Poll<Outcome> {
        let wait = owner
            .wait_ticket()
            .expect("poll without a request that waits");
        let verdict = owner.record().parker.poll(wait.ticket, context);
        verdict.map(|verdict| owner.finish_wait(verdict))
    }

    /// Asks for `name` in `mode` and waits until `deadline`, or for as long as it takes.
    fn lock(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        deadline: Option<Instant>,
    ) -> Outcome {
        match self.request(worker, owner, name, mode, WaitMode::Wait) {
            Reply::Granted => Outcome::Granted,
            Reply::Held => Outcome::Held,
            Reply::Refused(refusal) => Outcome::Refused(refusal),
            Reply::Waiting => self.wait(worker, owner, deadline),
            Reply::Skipped => unreachable!("a request that is to wait is not passed over"),
        }
    }

    /// Asks for `name` in `mode` and does not wait.
    fn try_lock(&self, worker: &Worker, owner: &mut Owner, name: Name, mode: Mode) -> Outcome {
        match self.request(worker, owner, name, mode, WaitMode::Refuse) {
            Reply::Granted => Outcome::Granted,
            Reply::Held => Outcome::Held,
            Reply::Refused(refusal) => Outcome::Refused(refusal),
            Reply::Waiting | Reply::Skipped => unreachable!("it is refused instead"),
        }
    }
}

/// Methods of the contract in which a manager adds nothing to another one that it stands on:
/// `forward! { (inner) cancel release }` has `self.inner` answer.
macro_rules! forward {
    ($to:tt $($method:ident)+) => { $($crate::manager::forward!(@$method $to);)+ };
    (@owner ($($to:tt)+)) => {
        fn owner(&self) -> $crate::owner::Owner {
            self.$($to)+.owner()
        }
    };
    (@prefetch ($($to:tt)+)) => {
        #[inline]
        fn prefetch(&self, name: $crate::name::Name) {
            self.$($to)+.prefetch(name);
        }
    };
    (@cancel ($($to:tt)+)) => {
        fn cancel(
            &self,
            worker: &foxton_sync::worker::Worker,
            owner: &mut $crate::owner::Owner,
        ) {
            self.$($to)+.cancel(worker, owner);
        }
    };
    (@end_wait ($($to:tt)+)) => {
        fn end_wait(
            &self,
            worker: &foxton_sync::worker::Worker,
            ticket: $crate::owner::WaitTicket,
            reason: $crate::request::RefusalReason,
        ) -> bool {
            self.$($to)+.end_wait(worker, ticket, reason)
        }
    };
    (@wait ($($to:tt)+)) => {
        fn wait(
            &self,
            worker: &foxton_sync::worker::Worker,
            owner: &mut $crate::owner::Owner,
            deadline: Option<std::time::Instant>,
        ) -> $crate::request::Outcome {
            self.$($to)+.wait(worker, owner, deadline)
        }
    };
    (@poll_wait ($($to:tt)+)) => {
        fn poll_wait(
            &self,
            worker: &foxton_sync::worker::Worker,
            owner: &mut $crate::owner::Owner,
            context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<$crate::request::Outcome> {
            self.$($to)+.poll_wait(worker, owner, context)
        }
    };
    (@release ($($to:tt)+)) => {
        fn release(
            &self,
            worker: &foxton_sync::worker::Worker,
            owner: &mut $crate::owner::Owner,
            name: $crate::name::Name,
        ) -> bool {
            self.$($to)+.release(worker, owner, name)
        }
    };
    (@release_since ($($to:tt)+)) => {
        fn release_since(
            &self,
            worker: &foxton_sync::worker::Worker,
            owner: &mut $crate::owner::Owner,
            savepoint: $crate::owner::LockSavepoint,
        ) {
            self.$($to)+.release_since(worker, owner, savepoint);
        }
    };
    (@release_all ($($to:tt)+)) => {
        #[inline]
        fn release_all(
            &self,
            worker: &foxton_sync::worker::Worker,
            owner: &mut $crate::owner::Owner,
        ) {
            self.$($to)+.release_all(worker, owner);
        }
    };
    (@inspect ($($to:tt)+)) => {
        fn inspect(
            &self,
            worker: &foxton_sync::worker::Worker,
        ) -> $crate::inspect::LockSnapshot {
            self.$($to)+.inspect(worker)
        }
    };
    (@inspect_limited ($($to:tt)+)) => {
        fn inspect_limited(
            &self,
            worker: &foxton_sync::worker::Worker,
            most: usize,
        ) -> $crate::inspect::LockSnapshot {
            self.$($to)+.inspect_limited(worker, most)
        }
    };
    (@longest_wait ($($to:tt)+)) => {
        fn longest_wait(
            &self,
            worker: &foxton_sync::worker::Worker,
        ) -> Option<std::time::Duration> {
            self.$($to)+.longest_wait(worker)
        }
    };
    (@deadlocks ($($to:tt)+)) => {
        fn deadlocks(&self) -> Vec<$crate::inspect::DeadlockCycle> {
            self.$($to)+.deadlocks()
        }
    };
    (@stats ($($to:tt)+)) => {
        fn stats(
            &self,
            worker: &foxton_sync::worker::Worker,
        ) -> $crate::inspect::LockStats {
            self.$($to)+.stats(worker)
        }
    };
    (@verify ($($to:tt)+)) => {
        fn verify(&self, worker: &foxton_sync::worker::Worker) {
            self.$($to)+.verify(worker);
        }
    };
}

pub(crate) use forward;
