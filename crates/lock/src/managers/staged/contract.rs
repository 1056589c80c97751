//! The contract of lock managers, and the wait-for graph that the search for deadlocks walks, over
//! the parts.

use super::{
    chain::{Chains, NewRequest, NotGranted, ReleasedRequest},
    manager::{Staged, WAIT},
    wait_queue::WaitQueue,
};
use crate::{
    deadlock::{BlockingMode, Graph, WaitEdges},
    inspect::{DeadlockCycle, LockSnapshot, LockStats},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::{
        LockSavepoint, Owner,
        owner_table::{GRANTED, OwnerTable, WaitInfo, WaitTicket, Wakes},
    },
    request::{DeadlockMember, RefusalReason, Reply, WaitMode},
};
use foxton_sync::worker::Worker;
use std::{collections::HashSet, time::Duration};

impl<C: Chains> LockManager for Staged<C> {
    fn owner(&self) -> Owner {
        Owner::new(&self.owners)
    }

    #[inline(never)]
    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        owner.assert_usable(&self.owners);
        mode.assert_suits(&name);
        if !owner.has_free_order() {
            return owner.refuse_out_of_orders(name, mode);
        }
        let hash = name.hash() as u32;
        if let Some(at) = owner.locks.find(name, hash) {
            return self.request_held(worker, owner, at, mode, wait_mode);
        }
        // Made twice, so that it need not be in memory if it is granted at once.
        let new = |id| NewRequest {
            name,
            hash,
            owner: id,
            mode,
            replaces: None,
        };
        self.mark_active(owner);
        let id = owner.id();
        match self
            .chains
            .acquire(&self.index, worker, &new(id), &mut owner.reserved)
        {
            Ok(request) => {
                owner.locks.push(name, hash, request, mode);
                Reply::Granted
            }
            Err(NotGranted::Blocked(request)) => {
                self.contend(worker, owner, new(id), None, request, wait_mode)
            }
            Err(NotGranted::Full) => self.refuse_full(worker, owner, name, mode),
        }
    }

    #[inline]
    fn prefetch(&self, name: Name) {
        self.chains.prefetch(name.hash() as u32);
    }

    fn cancel(&self, worker: &Worker, owner: &mut Owner) {
        let Some(pending) = owner.pending.take() else {
            return;
        };
        worker.account().passed(&WAIT);
        let wait = WaitTicket {
            owner_index: owner.id().index(),
            ticket: pending.ticket,
        };
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        let verdict = self.with(worker, pending.hash, |queues| {
            let verdict = owner.record().parker.disarm(pending.ticket);
            if verdict.is_none() {
                let queue = queues.get_mut(&pending.name);
                let found = queue.and_then(|queue| queue.dequeue(wait));
                let waiter = found.expect("I1: an open wait is in the queue");
                self.clean_up_waiter(
                    worker,
                    queues,
                    &waiter,
                    &pending.name,
                    &mut retired,
                    &mut wakes,
                );
            }
            verdict
        });
        drop(wakes);
        if verdict == Some(GRANTED) {
            match pending.converts {
                Some(at) => self.revert(worker, owner, &pending, at),
                None => {
                    let request = pending.slot.expect("it waited with a request");
                    let released = ReleasedRequest {
                        hash: pending.hash,
                        request,
                        mode: pending.mode,
                    };
                    if self
                        .chains
                        .release(&self.index, worker, released, &mut retired)
                    {
                        let mut wakes = Wakes::new();
                        self.with(worker, pending.hash, |queues| {
                            self.grant_waiters(worker, queues, &pending.name, &mut wakes);
                        });
                    }
                }
            }
        }
        owner.record().end_wait();
        owner.mark_idle();
    }

    fn end_wait(&self, worker: &Worker, ticket: WaitTicket, reason: RefusalReason) -> bool {
        self.refuse(worker, ticket, reason, Vec::new())
    }

    fn release(&self, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
        owner.assert_usable(&self.owners);
        let Some(at) = owner.locks.find(name, name.hash() as u32) else {
            return false;
        };
        let entry = owner.locks.remove(at);
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        self.release_lock(worker, &entry, &mut retired, &mut wakes);
        owner.mark_idle();
        true
    }

    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: LockSavepoint) {
        owner.assert_usable(&self.owners);
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        while let Some(entry) = owner.locks.pop_since(savepoint.order()) {
            self.release_lock(worker, &entry, &mut retired, &mut wakes);
        }
        owner.mark_idle();
    }

    #[inline]
    fn release_all(&self, worker: &Worker, owner: &mut Owner) {
        owner.assert_usable(&self.owners);
        // Waiters are woken together at the end, and requests freed in bulk.
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        for entry in owner.locks.iter().rev() {
            self.release_lock(worker, entry, &mut retired, &mut wakes);
        }
        if self.index.tracks_active() {
            owner.record().mark_idle();
        }
        owner.clear_locks();
    }

    fn dismiss(&self, worker: &Worker, owner: &mut Owner) {
        owner.assert_usable(&self.owners);
        self.index.give_back(worker, &mut owner.reserved);
    }

    fn inspect(&self, worker: &Worker) -> LockSnapshot {
        self.snapshot_chains(worker, 0..self.chains.count(), usize::MAX)
    }

    fn inspect_limited(&self, worker: &Worker, most: usize) -> LockSnapshot {
        let mask = self.chains.count() - 1;
        let waited_for = self.owners.waits().into_iter();
        let waited_for = waited_for.map(|waiting| waiting.name.hash() as usize & mask);
        let mut seen = HashSet::new();
        let order = waited_for.chain(0..=mask).filter(|&at| seen.insert(at));
        self.snapshot_chains(worker, order, most).shortened(most)
    }

    fn longest_wait(&self, _worker: &Worker) -> Option<Duration> {
        self.owners.longest_wait()
    }

    fn deadlocks(&self) -> Vec<DeadlockCycle> {
        self.detector.recent()
    }

    fn stats(&self, worker: &Worker) -> LockStats {
        let queues = self.queues.iter();
        let queues = queues.map(|queues| queues.with(worker, |queues| queues.memory_bytes()));
        let bytes = queues.sum::<usize>()
            + size_of_val(&self.queues[..])
            + self.chains.memory_bytes()
            + self.index.memory_bytes();
        LockStats::sum(&self.owners, bytes)
    }

    fn verify(&self, worker: &Worker) {
        for at in 0..self.chains.count() {
            self.with(worker, at as u32, |queues| {
                let waiting_modes = self.waiting_modes(queues, at as u32);
                self.chains.verify(&self.index, at, waiting_modes);
                queues.iter().for_each(WaitQueue::verify);
            });
        }
    }
}

impl<C: Chains> Graph for Staged<C> {
    fn owners(&self) -> &OwnerTable {
        &self.owners
    }

    fn wait_edges(&self, worker: &Worker, waiting: &WaitInfo, target: u32) -> Option<WaitEdges> {
        let hash = waiting.name.hash() as u32;
        self.with(worker, hash, |queues| {
            let queue = queues.get(&waiting.name)?;
            let holders = self.chains.holders(&self.index, hash, &waiting.name);
            queue.wait_edges(&holders, waiting.wait_ticket(), target)
        })
    }

    fn blocking_mode(
        &self,
        worker: &Worker,
        waiting: &WaitInfo,
        blocker: u32,
    ) -> Option<BlockingMode> {
        let hash = waiting.name.hash() as u32;
        self.with(worker, hash, |queues| {
            let queue = queues.get(&waiting.name)?;
            let holders = self.chains.holders(&self.index, hash, &waiting.name);
            queue.blocking_mode(&holders, waiting.wait_ticket(), blocker)
        })
    }

    fn abort_victim(
        &self,
        worker: &Worker,
        victim: WaitTicket,
        cycle: Vec<DeadlockMember>,
    ) -> bool {
        self.refuse(worker, victim, RefusalReason::Deadlock, cycle)
    }
}
