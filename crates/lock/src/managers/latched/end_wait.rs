//! Waits that are ended from outside, and the wait-for graph that says which should be.

use super::{Buckets, LatchedQueues, OwnedConflict, WAIT};
use crate::{
    deadlock::{BlockingMode, Graph, WaitEdges},
    managers::latched::{bucket_entries::BucketEntries, head::LockHead},
    owner::owner_table::{OwnerTable, WaitInfo, WaitTicket, Wakes},
    request::{CycleMember, RefusalReason},
};
use foxton_sync::worker::Worker;

#[expect(private_bounds, reason = "as for the rest of it")]
impl<B: Buckets> LatchedQueues<B> {
    /// Ends a wait with a refusal, if it has not ended (I1). It has, when this returns: a grant that was lent is for good.
    pub(super) fn refuse(
        &self,
        worker: &Worker,
        wait: WaitTicket,
        reason: RefusalReason,
        cycle: Vec<CycleMember>,
    ) -> bool {
        worker.account().passed(&WAIT);
        let Some(waiting) = self.registry.waiting(wait) else {
            return false;
        };
        let mut wakes = Wakes::new();
        let (name, hash) = (waiting.name, waiting.name.hash() as u32);
        self.with(worker, &name, hash, |heads| {
            self.refuse_in(worker, heads, &waiting, reason, cycle, &mut wakes)
        })
    }

    /// The same with the bucket of the name at hand, under its latch.
    pub(in crate::managers) fn refuse_in<'m>(
        &'m self,
        worker: &Worker,
        heads: &mut BucketEntries,
        waiting: &WaitInfo,
        reason: RefusalReason,
        cycle: Vec<CycleMember>,
        wakes: &mut Wakes<'m>,
    ) -> bool {
        let wait = waiting.wait_ticket();
        let Some(head) = heads.get(&waiting.name) else {
            return false;
        };
        let Some(position) = head.position(wait) else {
            // Granted. Were that taken back, the wait would go on, and who meant to end it has been here.
            head.keep_given(wait);
            return false;
        };
        heads.change(&waiting.name, |head| {
            let obstacles = head.obstacles(wait.place, waiting.mode, position);
            let obstacles: Vec<OwnedConflict> = self.identify(obstacles);
            head.withdraw(wait);
            let refusal = waiting.refusal(reason, self.blockers(obstacles), cycle);
            let record = self.registry.record(wait.place);
            wakes.extend(record.refuse(wait.ticket, refusal));
            self.regrant(worker, head, wakes);
        });
        true
    }
}

impl<B: Buckets> Graph for LatchedQueues<B> {
    fn registry(&self) -> &OwnerTable {
        &self.registry
    }

    fn reach(&self, worker: &Worker, waiting: &WaitInfo, target: u32) -> Option<WaitEdges> {
        self.with(worker, &waiting.name, waiting.name.hash() as u32, |heads| {
            let head = heads.get(&waiting.name)?;
            let position = head.position(waiting.wait_ticket())?;
            Some(head.reach(position, target))
        })
    }

    fn in_the_way(
        &self,
        worker: &Worker,
        waiting: &WaitInfo,
        blocker: u32,
    ) -> Option<BlockingMode> {
        self.with(worker, &waiting.name, waiting.name.hash() as u32, |heads| {
            heads
                .get(&waiting.name)?
                .in_the_way(waiting.wait_ticket(), blocker)
        })
    }

    fn condemn(&self, worker: &Worker, victim: WaitTicket, cycle: Vec<CycleMember>) -> bool {
        self.refuse(worker, victim, RefusalReason::Deadlock, cycle)
    }

    fn let_none_pass(&self, worker: &Worker, waiting: &WaitInfo) {
        if !self.lends() {
            return;
        }
        let (name, hash) = (&waiting.name, waiting.name.hash() as u32);
        self.with(worker, name, hash, |heads| {
            let is_there = heads.get(name).as_deref().is_some_and(LockHead::is_awaited);
            if is_there {
                heads.change(name, |head| head.let_none_pass(waiting.wait_ticket()));
            }
        });
    }
}
