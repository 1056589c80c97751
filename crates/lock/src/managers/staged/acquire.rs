//! Requests that are not granted at once: for a name that the owner holds, or with a conflict.
//!
//! The first attempt, without the latch, is `Chains::acquire`. If it fails, `contend` announces the
//! request, checks again, and grants, refuses or enqueues it, all under the latch of the queue (I1
//! to I4 of `manager`).

use super::{
    chain::{Chains, NewRequest, NotGranted},
    manager::{Staged, WAIT},
    wait_queue::{ChainConflicts, HolderModes, WaitQueues, conflicting},
};
use crate::{
    deadlock::WaitEdges,
    mode::{Mode, Set},
    owner::{
        Owner, PendingWait,
        lock_list::LockSource,
        owner_table::{WaitInfo, Wakes},
    },
    request::{Reply, WaitMode},
};
use foxton_sync::worker::Worker;

/// Outcome of a request that could not be granted at once.
enum Decision {
    Granted,
    Busy(ChainConflicts),
    Waiting(Box<(WaitInfo, WaitEdges)>),
}

#[expect(
    private_bounds,
    reason = "what chains look like is not for outsiders to choose"
)]
impl<C: Chains> Staged<C> {
    /// Requests the name held at `at`: nothing to do, or a conversion.
    #[inline(never)]
    pub(super) fn request_held(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        at: usize,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let held = *owner.locks.at(at);
        if held.mode.covers(mode) {
            owner.re_asks += 1;
            return Reply::Held;
        }
        // The first request of a transaction may be the conversion of a retained lock.
        self.mark_active(owner);
        let new = NewRequest {
            name: held.name,
            hash: held.hash,
            owner: owner.id(),
            mode: held.mode.supremum(mode),
            replaces: Some(held.slot),
        };
        // Two requests: a cancellation after the grant goes back to the weaker mode, and cannot be
        // refused then.
        if self.index.reserve(worker, &mut owner.reserved, 2).is_none() {
            return self.refuse_full(worker, owner, new.name, new.mode);
        }
        match self
            .chains
            .acquire(&self.index, worker, &new, &mut owner.reserved)
        {
            Ok(request) => {
                owner.locks.set_mode(at, new.mode);
                owner.locks.set_slot(at, request);
                Reply::Granted
            }
            Err(NotGranted::Blocked(request)) => {
                self.contend(worker, owner, new, Some(at), request, wait_mode)
            }
            Err(NotGranted::Full) => self.refuse_full(worker, owner, new.name, new.mode),
        }
    }

    /// Records that a transaction runs, if the index tracks that.
    #[inline]
    pub(super) fn mark_active(&self, owner: &Owner) {
        if self.index.tracks_active() {
            owner.record().mark_active(|| self.index.moment());
        }
    }

    /// Handles a request that could not be granted without the latch.
    #[cold]
    #[inline(never)]
    pub(super) fn contend(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        new: NewRequest,
        converts: Option<usize>,
        request: u32,
        wait_mode: WaitMode,
    ) -> Reply {
        let mut wakes = Wakes::new();
        let decided = self.with(worker, new.hash, |queues| {
            self.decide(worker, owner, queues, &new, request, wait_mode, &mut wakes)
        });
        drop(wakes);
        match decided {
            Decision::Granted => {
                match converts {
                    Some(at) => {
                        owner.locks.set_mode(at, new.mode);
                        owner.locks.set_slot(at, request);
                    }
                    None => owner.locks.push(new.name, new.hash, request, new.mode),
                }
                Reply::Granted
            }
            Decision::Busy(_) if wait_mode == WaitMode::Skip => owner.skip(),
            Decision::Busy(conflicting) => {
                owner.refuse_busy(new.name, new.mode, self.blockers(conflicting))
            }
            Decision::Waiting(wait) => {
                let (waiting, wait_edges) = *wait;
                let NewRequest {
                    name, hash, mode, ..
                } = new;
                owner.pending = Some(PendingWait {
                    name,
                    hash,
                    slot: Some(request),
                    ticket: waiting.ticket,
                    mode,
                    converts,
                    source: LockSource::Request,
                    since: waiting.since,
                });
                worker.account().passed(&WAIT);
                self.detector.check(self, worker, &waiting, wait_edges);
                Reply::Waiting
            }
        }
    }

    /// Under the latch: announces, checks, decides.
    #[expect(clippy::too_many_arguments, reason = "one step of one story")]
    fn decide<'m>(
        &'m self,
        worker: &Worker,
        owner: &Owner,
        queues: &mut WaitQueues,
        new: &NewRequest,
        request: u32,
        wait_mode: WaitMode,
        wakes: &mut Wakes<'m>,
    ) -> Decision {
        let NewRequest {
            name, hash, mode, ..
        } = *new;
        let converts = new.replaces.is_some();
        self.chains.announce(hash, mode.set());
        let held = new
            .replaces
            .map(|held| self.index.request(held).mode().set());
        let held = held.unwrap_or(Set::NONE);
        let holders = self.chains.holders(&self.index, hash, &name);
        let queue = queues.get(&name);
        let ahead = queue.map_or(Set::NONE, |queue| queue.waiters().modes_ahead(converts));
        let blocking = HolderModes::of(&holders).besides(held).union(ahead);
        if !blocking.intersects(mode.conflicts()) {
            let waiting_modes = self.waiting_modes(queues, hash);
            self.chains.grant(&self.index, new, request, waiting_modes);
            return Decision::Granted;
        }
        if wait_mode != WaitMode::Wait {
            let conflicting = match queue {
                _ if wait_mode == WaitMode::Skip => Default::default(),
                Some(queue) => {
                    let order = queue.waiters().order_of_next(converts);
                    queue.conflicting(&holders, new.owner, mode, order)
                }
                None => conflicting(&holders, new.owner, mode),
            };
            let mut retired = self.index.retire(worker);
            self.chains
                .withdraw(&self.index, hash, request, &mut retired);
            self.set_waiting_modes(queues, hash);
            self.grant_waiters(worker, queues, &name, wakes);
            return Decision::Busy(conflicting);
        }
        let waiting = owner.prepare_wait(name, mode);
        let queue = queues.enqueue(new, held, request, waiting.ticket);
        let wait_edges = queue.wait_edges(&holders, waiting.wait_ticket(), new.owner.index());
        let wait_edges = wait_edges.expect("it has just been put there");
        // A thread that saw this request, and not yet that it would wait, may be queued behind it.
        self.grant_waiters(worker, queues, &name, wakes);
        Decision::Waiting(Box::new((waiting, wait_edges)))
    }
}
