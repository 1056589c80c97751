//! End of a wait by another thread, and the wait-for graph that shows which waits to end.

use super::{Buckets, LatchedQueues, WAIT};
use crate::{
    deadlock::{BlockingMode, Graph, WaitEdges},
    managers::latched::{bucket_entries::BucketEntries, head::LockHead},
    owner::owner_table::{OwnerTable, WaitInfo, WaitTicket, Wakes},
    request::{DeadlockMember, RefusalReason},
};
use foxton_sync::worker::Worker;

#[expect(private_bounds, reason = "as for the rest of it")]
impl<B: Buckets> LatchedQueues<B> {
    /// Ends a wait with a refusal, if it has not ended (I1). When this returns the wait has ended:
    /// a revocable grant has become final.
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
        let mut wakes = Wakes::new();
        let (name, hash) = (waiting.name, waiting.name.hash() as u32);
        self.with(worker, &name, hash, |entries| {
            self.refuse_in(worker, entries, &waiting, reason, cycle, &mut wakes)
        })
    }

    /// As [`refuse`](Self::refuse), with the bucket of the name at hand, under its latch.
    pub(in crate::managers) fn refuse_in<'m>(
        &'m self,
        worker: &Worker,
        entries: &mut BucketEntries,
        waiting: &WaitInfo,
        reason: RefusalReason,
        cycle: Vec<DeadlockMember>,
        wakes: &mut Wakes<'m>,
    ) -> bool {
        let wait = waiting.wait_ticket();
        let Some(head) = entries.get(&waiting.name) else {
            return false;
        };
        let Some((order, _)) = head.find(wait) else {
            // Granted. If that grant were revoked later, the wait would go on, and the thread that
            // wanted to end it would not try again.
            head.make_final(wait);
            return false;
        };
        entries.change(&waiting.name, |head| {
            let conflicting = head.conflicting(wait.owner_index, waiting.mode, order);
            let conflicting = self.identify(conflicting);
            head.withdraw(wait);
            let refusal = waiting.refusal(reason, self.blockers(conflicting), cycle);
            let record = self.owners.record(wait.owner_index);
            wakes.extend(record.refuse(wait.ticket, refusal));
            self.grant_waiters(worker, head, wakes);
        });
        true
    }
}

impl<B: Buckets> Graph for LatchedQueues<B> {
    fn owners(&self) -> &OwnerTable {
        &self.owners
    }

    fn wait_edges(&self, worker: &Worker, waiting: &WaitInfo, target: u32) -> Option<WaitEdges> {
        self.with(
            worker,
            &waiting.name,
            waiting.name.hash() as u32,
            |entries| {
                entries
                    .get(&waiting.name)?
                    .wait_edges(waiting.wait_ticket(), target)
            },
        )
    }

    fn blocking_mode(
        &self,
        worker: &Worker,
        waiting: &WaitInfo,
        blocker: u32,
    ) -> Option<BlockingMode> {
        self.with(
            worker,
            &waiting.name,
            waiting.name.hash() as u32,
            |entries| {
                entries
                    .get(&waiting.name)?
                    .blocking_mode(waiting.wait_ticket(), blocker)
            },
        )
    }

    fn abort_victim(
        &self,
        worker: &Worker,
        victim: WaitTicket,
        cycle: Vec<DeadlockMember>,
    ) -> bool {
        self.refuse(worker, victim, RefusalReason::Deadlock, cycle)
    }

    fn forbid_barging(&self, worker: &Worker, waiting: &WaitInfo) {
        if !self.allows_barging() {
            return;
        }
        let (name, hash) = (&waiting.name, waiting.name.hash() as u32);
        self.with(worker, name, hash, |entries| {
            let is_there = entries
                .get(name)
                .as_deref()
                .is_some_and(LockHead::has_waiters);
            if is_there {
                entries.change(name, |head| head.forbid_barging(waiting.wait_ticket()));
            }
        });
    }
}
