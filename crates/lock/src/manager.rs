//! Contract of a lock manager.

use crate::{
    inspect::{DeadlockCycle, LockSnapshot, LockStats},
    mode::Mode,
    name::Name,
    owner::{LockSavepoint, Owner, Scan, WaitTicket},
    request::{Outcome, RefusalReason, Reply, WaitMode},
};
use foxton_sync::{anchor::LockAnchor, park::WAKING, worker::Worker};
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
///   grantable waiters are woken. Until it has seen that, another may be granted in its place,
///   where L5 lets it be overtaken; then it waits on.
/// * L5  Among requests that conflict, earlier goes first; a conversion goes before new requests,
///   never before an earlier conversion. Where a manager's order regards who is waited for, or who
///   is awake, new requests overtake each other, but each is overtaken so many times at most
///   ([`ManagerKind::max_overtaken`](crate::any::ManagerKind::max_overtaken)).
/// * L6  Every wait ends: granted, timed out, cancelled, or chosen as a victim. Of every cycle of
///   waits one member is chosen.
/// * L7  After `release_all` the manager remembers nothing of the owner.
///
/// `tests/it/contract.rs` has a test for each clause and runs it on every manager over every latch;
/// `tests/scripts` shows the same by example.
///
/// # Use
///
/// [`request`](Self::request) never blocks. When it answers `Waiting`, the request is in a queue,
/// and the owner must end the wait before it does anything else. A thread calls
/// [`wait`](Self::wait) and sleeps, a task calls [`poll_wait`](Self::poll_wait), and
/// [`cancel`](Self::cancel) withdraws the request. [`lock`](Self::lock) combines a request and a
/// wait.
///
/// # Panics
///
/// All methods panic when called with an owner of another manager, or for a mode that does not suit
/// the name. While a wait is in progress, they panic unless they end the wait.
pub trait LockManager: Send + Sync + Debug {
    /// Returns an owner without locks. Making one takes a latch that all share, so use it for one
    /// transaction after another.
    fn owner(&self) -> Owner;

    /// Requests `name` in `mode`, without blocking.
    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply;

    /// As [`request`](Self::request), for a key whose data has an anchor: a word for the lock. Some
    /// managers find the lock there and nowhere else; the others ignore it.
    ///
    /// While a key's data can be found, all requests for the key must come with its anchor. A
    /// search follows a request that came without, because the data was not there. If it is there
    /// now, request the key again, with the anchor, before relying on the lock. Anchors of new data
    /// are queued, not free. Data is removed only by an owner that holds the key and its gap
    /// exclusively, after [`unanchor`](Self::unanchor).
    #[inline]
    fn request_anchored(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, _anchor): (Name, &LockAnchor),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        self.request(worker, owner, name, mode, wait_mode)
    }

    /// Makes a lock on `name` independent of the key's anchor, because the key's data is about to
    /// be removed. Returns false if the data must stay: another owner was granted the key without
    /// the anchor, has not requested it again yet, and is to find the data then.
    #[inline]
    #[must_use]
    fn unanchor(&self, _worker: &Worker, _owner: &mut Owner, _name: Name) -> bool {
        true
    }

    /// As [`request`](Self::request), for a key that a scan has come to, with the anchor of its
    /// data if it has one ([`request_anchored`](Self::request_anchored)). Some managers need less
    /// for a key near the one before, and store in `scan` what they need for that. Pass the same
    /// `scan` again for the next key.
    ///
    /// Such locks may be released later than requested: `release_since` releases them only if the
    /// first of a group of neighbours was acquired since the savepoint.
    #[inline]
    fn request_in_scan(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        _scan: &mut Scan,
        (name, _anchor): (Name, Option<&LockAnchor>),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        self.request(worker, owner, name, mode, wait_mode)
    }

    /// Requests all keys of one length from `first` to `last` at once, existing or not. Each key is
    /// shared, with the gap before it, but not the gap before `first`. Returns true if all of that
    /// is held until the end. Otherwise some of it may be held, and each key has to be requested.
    /// Never waits.
    ///
    /// For a short range that is about to be read. Locks are released as for
    /// [`request_in_scan`](Self::request_in_scan).
    #[inline]
    fn lock_range(&self, _worker: &Worker, _owner: &mut Owner, _first: Name, _last: Name) -> bool {
        false
    }

    /// Prefetches the memory for a request of `name` that is about to follow. Has no other effect,
    /// and may be left out.
    #[inline]
    fn prefetch(&self, _name: Name) {}

    /// Withdraws the request that waits, if there is one. If it was granted meanwhile, the grant is
    /// undone (L3); if it was refused, nothing remains to be done.
    fn cancel(&self, worker: &Worker, owner: &mut Owner);

    /// Ends a wait from another thread, as timed out or cancelled, and returns true if this call
    /// ended it. Otherwise the wait has ended before, and a grant is final, whether or not the
    /// waiter has seen it. The waiter gets the outcome from `wait` or `poll_wait`.
    fn end_wait(&self, worker: &Worker, ticket: WaitTicket, reason: RefusalReason) -> bool;

    /// Releases `name`, whatever its mode. Returns false if it was not held.
    fn release(&self, worker: &Worker, owner: &mut Owner, name: Name) -> bool;

    /// Releases everything that was acquired since `savepoint`, the latest first. A lock that was
    /// held before and converted since keeps its stronger mode.
    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: LockSavepoint);

    /// Releases everything that `owner` holds, and wakes the waiters that can now go on.
    fn release_all(&self, worker: &Worker, owner: &mut Owner);

    /// Releases what the manager has kept for the next transaction of `owner`: locks to be
    /// inherited, and memory for requests. Call it before an owner is dropped for good. The owner
    /// holds nothing, and can still be used.
    fn dismiss(&self, _worker: &Worker, _owner: &mut Owner) {}

    /// Frees memory that requests needed which have ended. Visits the whole table, one latch at a
    /// time, so it is for the background, after many owners were dropped.
    fn trim(&self, _worker: &Worker) {}

    /// Returns all holders and waiters. Visits one queue after the other, and never stops all
    /// threads.
    fn inspect(&self, worker: &Worker) -> LockSnapshot;

    /// As [`inspect`](Self::inspect), but no more than about `most` holders and waiters: first the
    /// names with waiters, the longest wait first, then some of the others.
    fn inspect_limited(&self, worker: &Worker, most: usize) -> LockSnapshot {
        self.inspect(worker).shortened(most)
    }

    /// Returns how long the longest of all waits has lasted so far, if there is one.
    fn longest_wait(&self, worker: &Worker) -> Option<Duration> {
        let snapshot = self.inspect(worker);
        snapshot.waits().first().map(|(_, waiter)| waiter.waited)
    }

    /// Returns the most recent deadlocks, up to 64, the latest last.
    fn deadlocks(&self) -> Vec<DeadlockCycle>;

    /// Returns the counters of the manager.
    fn stats(&self, worker: &Worker) -> LockStats;

    /// Panics if an invariant of the manager is broken. Slow; for tests and simulation.
    fn verify(&self, worker: &Worker);

    /// Sleeps until the wait of `owner` has ended; at `deadline` the wait is timed out.
    fn wait(&self, worker: &Worker, owner: &mut Owner, deadline: Option<Instant>) -> Outcome {
        let wait = owner
            .wait_ticket()
            .expect("wait without a request that waits");
        worker.account().passed(&WAKING);
        let parker = &owner.record().parker;
        let slept = parker.wait(wait.ticket, deadline);
        let verdict = slept.unwrap_or_else(|| {
            // Whether this thread ended the wait or another one just did, it has ended now.
            self.end_wait(worker, wait, RefusalReason::TimedOut);
            let verdict = parker.verdict(wait.ticket);
            verdict.expect("an ended wait has a verdict")
        });
        owner.finish_wait(verdict)
    }

    /// Returns the outcome of the wait of `owner`, or `Pending` with the task registered to be
    /// woken. For a deadline, have a timer call [`end_wait`](Self::end_wait) with the owner's
    /// ticket.
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

    /// Requests `name` in `mode` and waits until `deadline`, or for as long as it takes.
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

    /// Requests `name` in `mode` and does not wait.
    fn try_lock(&self, worker: &Worker, owner: &mut Owner, name: Name, mode: Mode) -> Outcome {
        match self.request(worker, owner, name, mode, WaitMode::Refuse) {
            Reply::Granted => Outcome::Granted,
            Reply::Held => Outcome::Held,
            Reply::Refused(refusal) => Outcome::Refused(refusal),
            Reply::Waiting | Reply::Skipped => unreachable!("it is refused instead"),
        }
    }
}

/// Methods of the contract that a manager forwards unchanged to the manager below it: with
/// `forward! { (inner) cancel release }`, `self.inner` answers.
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
    (@unanchor ($($to:tt)+)) => {
        #[inline]
        fn unanchor(
            &self,
            worker: &foxton_sync::worker::Worker,
            owner: &mut $crate::owner::Owner,
            name: $crate::name::Name,
        ) -> bool {
            self.$($to)+.unanchor(worker, owner, name)
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
    (@dismiss ($($to:tt)+)) => {
        fn dismiss(
            &self,
            worker: &foxton_sync::worker::Worker,
            owner: &mut $crate::owner::Owner,
        ) {
            self.$($to)+.dismiss(worker, owner);
        }
    };
    (@trim ($($to:tt)+)) => {
        fn trim(&self, worker: &foxton_sync::worker::Worker) {
            self.$($to)+.trim(worker);
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
