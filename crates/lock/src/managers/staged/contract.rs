//! The contract of lock managers, and the graph that the search for deadlocks walks, over the parts.

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
    request::{CycleMember, RefusalReason, Reply, WaitMode},
};
use foxton_sync::worker::Worker;
use std::{collections::HashSet, time::Duration};

impl<C: Chains> LockManager for Staged<C> {
    fn owner(&self) -> Owner {
        Owner::new(&self.registry)
    }

    #[inline(never)]
    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        owner.assert_usable(&self.registry);
        mode.assert_suits(&name);
        if !owner.has_room() {
            return owner.refuse_for_order(name, mode);
        }
        let hash = name.hash() as u32;
        if let Some(at) = owner.held.find(name, hash) {
            return self.request_again(worker, owner, at, mode, patience);
        }
        // Made twice, so that it need not be in memory where it is granted at once.
        let asked = |id| NewRequest {
            name,
            hash,
            owner: id,
            mode,
            replaces: None,
        };
        self.note_running(owner);
        let id = owner.id();
        match self
            .chains
            .acquire(&self.index, worker, &asked(id), &mut owner.spare)
        {
            Ok(request) => {
                owner.held.push(name, hash, request, mode);
                Reply::Granted
            }
            Err(NotGranted::Blocked(request)) => {
                self.contend(worker, owner, asked(id), None, request, patience)
            }
            Err(NotGranted::Full) => self.refuse_for_room(worker, owner, name, mode),
        }
    }

    #[inline]
    fn expect(&self, name: Name) {
        self.chains.expect(name.hash() as u32);
    }

    fn cancel(&self, worker: &Worker, owner: &mut Owner) {
        let Some(pending) = owner.pending.take() else {
            return;
        };
        worker.account().passed(&WAIT);
        let wait = WaitTicket {
            place: owner.id().place(),
            ticket: pending.ticket,
        };
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        let verdict = self.with(worker, pending.hash, |lines| {
            let verdict = owner.record().parker.disarm(pending.ticket);
            if verdict.is_none() {
                let line = lines.get_mut(&pending.name);
                let found = line.and_then(|line| Some(line.leave(line.position(wait)?)));
                let waiter = found.expect("I1: an open wait is in the line");
                self.leave_line(
                    worker,
                    lines,
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
                    let ended = ReleasedRequest {
                        hash: pending.hash,
                        request: pending.slot,
                        mode: pending.mode,
                    };
                    if self
                        .chains
                        .release(&self.index, worker, ended, &mut retired)
                    {
                        let mut wakes = Wakes::new();
                        self.with(worker, pending.hash, |lines| {
                            self.regrant(worker, lines, &pending.name, &mut wakes);
                        });
                    }
                }
            }
        }
        owner.record().end_wait();
        owner.rest();
    }

    fn end_wait(&self, worker: &Worker, ticket: WaitTicket, reason: RefusalReason) -> bool {
        self.refuse(worker, ticket, reason, Vec::new())
    }

    fn release(&self, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
        owner.assert_usable(&self.registry);
        let Some(at) = owner.held.find(name, name.hash() as u32) else {
            return false;
        };
        let entry = owner.held.remove(at);
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        self.give_back(worker, &entry, &mut retired, &mut wakes);
        owner.rest();
        true
    }

    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: LockSavepoint) {
        owner.assert_usable(&self.registry);
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        while let Some(entry) = owner.held.pop_since(savepoint.order()) {
            self.give_back(worker, &entry, &mut retired, &mut wakes);
        }
        owner.rest();
    }

    #[inline]
    fn release_all(&self, worker: &Worker, owner: &mut Owner) {
        owner.assert_usable(&self.registry);
        // Woken together at the end, and given back in bulk.
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        for entry in owner.held.iter().rev() {
            self.give_back(worker, entry, &mut retired, &mut wakes);
        }
        if self.index.asks_who_runs() {
            owner.record().run_no_more();
        }
        owner.forget_held();
    }

    fn inspect(&self, worker: &Worker) -> LockSnapshot {
        self.see(worker, 0..self.chains.count(), usize::MAX)
    }

    fn look(&self, worker: &Worker, most: usize) -> LockSnapshot {
        let mask = self.chains.count() - 1;
        let awaited = self.registry.waits().into_iter();
        let awaited = awaited.map(|waiting| waiting.name.hash() as usize & mask);
        let mut seen = HashSet::new();
        let order = awaited.chain(0..=mask).filter(|&at| seen.insert(at));
        self.see(worker, order, most).shortened(most)
    }

    fn longest_wait(&self, _worker: &Worker) -> Option<Duration> {
        self.registry.longest_wait()
    }

    fn deadlocks(&self) -> Vec<DeadlockCycle> {
        self.detector.recent()
    }

    fn stats(&self, worker: &Worker) -> LockStats {
        let lines = self.lines.iter();
        let lines = lines.map(|lines| lines.with(worker, |lines| lines.memory_bytes()));
        let bytes = lines.sum::<usize>()
            + size_of_val(&self.lines[..])
            + self.chains.memory_bytes()
            + self.index.memory_bytes();
        LockStats::sum(&self.registry, bytes)
    }

    fn verify(&self, worker: &Worker) {
        for at in 0..self.chains.count() {
            self.with(worker, at as u32, |lines| {
                let awaited = self.awaited(lines, at as u32);
                self.chains.verify(&self.index, at, awaited);
                lines.iter().for_each(WaitQueue::verify);
            });
        }
    }
}

impl<C: Chains> Graph for Staged<C> {
    fn registry(&self) -> &OwnerTable {
        &self.registry
    }

    fn reach(&self, worker: &Worker, waiting: &WaitInfo, target: u32) -> Option<WaitEdges> {
        let hash = waiting.name.hash() as u32;
        self.with(worker, hash, |lines| {
            let line = lines.get(&waiting.name)?;
            let position = line.position(waiting.wait_ticket())?;
            let holders = self.chains.holders(&self.index, hash, &waiting.name);
            Some(line.reach(&holders, position, target))
        })
    }

    fn in_the_way(
        &self,
        worker: &Worker,
        waiting: &WaitInfo,
        blocker: u32,
    ) -> Option<BlockingMode> {
        let hash = waiting.name.hash() as u32;
        self.with(worker, hash, |lines| {
            let line = lines.get(&waiting.name)?;
            let holders = self.chains.holders(&self.index, hash, &waiting.name);
            line.in_the_way(&holders, waiting.wait_ticket(), blocker)
        })
    }

    fn condemn(&self, worker: &Worker, victim: WaitTicket, cycle: Vec<CycleMember>) -> bool {
        self.refuse(worker, victim, RefusalReason::Deadlock, cycle)
    }
}
