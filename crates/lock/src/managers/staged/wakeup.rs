//! End of a lock or of a wait, and the grants that it allows.
//!
//! Every step that removes a conflict comes here for the queue of its name, under the latch, and
//! grants all waiters that can be granted, in the order in which they came (I4 of `manager`).

use super::{
    chain::{Chains, NewRequest, ReleasedRequest},
    lock_index::RetiredRequests,
    manager::{Staged, WAIT},
    wait_queue::{ChainWaiter, HolderModes, WaitQueues},
};
use crate::{
    mode::Set,
    name::Name,
    owner::{
        Owner, PendingWait,
        lock_list::LockEntry,
        owner_table::{GRANTED, WaitTicket, Wakes},
    },
    request::{DeadlockMember, RefusalReason},
    wait_list::Waiter,
};
use foxton_sync::worker::Worker;

#[expect(
    private_bounds,
    reason = "what chains look like is not for outsiders to choose"
)]
impl<C: Chains> Staged<C> {
    /// Grants all waiters of `name` that can be granted now, first come first. Under the latch;
    /// `wakes` is for after it.
    pub(super) fn grant_waiters<'m>(
        &'m self,
        worker: &Worker,
        queues: &mut WaitQueues,
        name: &Name,
        wakes: &mut Wakes<'m>,
    ) {
        let Some(queue) = queues.get(name) else {
            return;
        };
        let hash = queue.hash();
        let holders = self.chains.holders(&self.index, hash, name);
        let mut held = HolderModes::of(&holders);
        let mut scan = queue.waiters().scan();
        let mut ahead = Set::NONE;
        while let Some(queue) = queues.get_mut(name)
            && let Some((order, waiter)) = scan.next(queue.waiters())
        {
            let blocking = held.besides(waiter.held).union(ahead);
            if waiter.mode.conflicts().intersects(blocking) {
                ahead = ahead.union(waiter.mode.set());
                scan.pass_class(&waiter);
                continue;
            }
            queue.dequeue(waiter.wait_ticket());
            scan.pass(queue.waiters(), order, &waiter);
            held.grant(waiter.mode, waiter.held);
            self.grant(worker, queues, (*name, hash), &waiter, wakes);
        }
        queues.remove_empty(name);
    }

    fn grant<'m>(
        &'m self,
        worker: &Worker,
        queues: &WaitQueues,
        (name, hash): (Name, u32),
        waiter: &ChainWaiter,
        wakes: &mut Wakes<'m>,
    ) {
        let new = NewRequest {
            name,
            hash,
            owner: waiter.owner,
            mode: waiter.mode,
            replaces: waiter.replaces,
        };
        let waiting_modes = self.waiting_modes(queues, hash);
        self.chains
            .grant(&self.index, &new, waiter.request, waiting_modes);
        worker.account().passed(&WAIT);
        let record = self.owners.record(waiter.owner.index());
        let wake = record.parker.resolve(waiter.ticket, GRANTED);
        debug_assert!(wake.is_some(), "I1: the wait had ended before");
        wakes.extend(wake);
    }

    #[inline]
    pub(super) fn release_lock<'m>(
        &'m self,
        worker: &Worker,
        lock: &LockEntry,
        retired: &mut RetiredRequests<'_>,
        wakes: &mut Wakes<'m>,
    ) {
        let released = ReleasedRequest {
            hash: lock.hash,
            request: lock.slot,
            mode: lock.mode,
        };
        if self.chains.release(&self.index, worker, released, retired) {
            self.grant_waiters_after(worker, lock, wakes);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn grant_waiters_after<'m>(
        &'m self,
        worker: &Worker,
        lock: &LockEntry,
        wakes: &mut Wakes<'m>,
    ) {
        self.with(worker, lock.hash, |queues| {
            self.grant_waiters(worker, queues, &lock.name, wakes);
        });
    }

    /// Ends a wait with a refusal, if it has not ended (I1).
    pub(super) fn refuse(
        &self,
        worker: &Worker,
        wait: WaitTicket,
        reason: RefusalReason,
        cycle: Vec<DeadlockMember>,
    ) -> bool {
        worker.account().passed(&WAIT);
        let Some(waiting) = self.owners.waiting(wait) else {
            return false;
        };
        let hash = waiting.name.hash() as u32;
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        self.with(worker, hash, |queues| {
            let Some(queue) = queues.get_mut(&waiting.name) else {
                return false;
            };
            let Some((order, waiter)) = queue.waiters().get(wait) else {
                return false;
            };
            let holders = self.chains.holders(&self.index, hash, &waiting.name);
            let conflicting = queue.conflicting(&holders, waiting.id, waiting.mode, order);
            queue.dequeue(wait);
            self.clean_up_waiter(
                worker,
                queues,
                &waiter,
                &waiting.name,
                &mut retired,
                &mut wakes,
            );
            let refusal = waiting.refusal(reason, self.blockers(conflicting), cycle);
            let record = self.owners.record(wait.owner_index);
            wakes.extend(record.refuse(wait.ticket, refusal));
            true
        })
    }

    /// Cleans up after a waiter that left the queue without a grant.
    pub(super) fn clean_up_waiter<'m>(
        &'m self,
        worker: &Worker,
        queues: &mut WaitQueues,
        waiter: &ChainWaiter,
        name: &Name,
        retired: &mut RetiredRequests<'_>,
        wakes: &mut Wakes<'m>,
    ) {
        let hash = name.hash() as u32;
        queues.remove_empty(name);
        self.chains
            .withdraw(&self.index, hash, waiter.request, retired);
        self.set_waiting_modes(queues, hash);
        self.grant_waiters(worker, queues, name, wakes);
    }

    /// Reverts a conversion that was granted after its owner had cancelled it.
    pub(super) fn revert(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        pending: &PendingWait,
        at: usize,
    ) {
        let former = owner.locks.at(at).mode;
        let new = NewRequest {
            name: pending.name,
            hash: pending.hash,
            owner: owner.id(),
            mode: former,
            replaces: pending.slot,
        };
        let request = self.index.take(worker, &mut owner.reserved);
        let request = request.expect("reserved when the conversion was asked for");
        self.chains.write(&self.index, &new, request);
        let mut wakes = Wakes::new();
        self.with(worker, pending.hash, |queues| {
            let waiting_modes = self.waiting_modes(queues, pending.hash);
            self.chains.grant(&self.index, &new, request, waiting_modes);
            self.grant_waiters(worker, queues, &pending.name, &mut wakes);
        });
        owner.locks.set_slot(at, request);
    }
}
