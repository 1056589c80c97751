//! Waits that are ended from outside, and the wait-for graph that says which should be.

use super::{Buckets, Identified, Queued, WAIT};
use crate::{
    deadlock::{Graph, Reach, Way},
    managers::latched::{bucket_entries::Heads, head::Head},
    owner::owner_table::{Registry, WaitTicket, Waiting, Wakes},
    request::{Member, Reason},
};
use foxton_sync::worker::Worker;

#[expect(private_bounds, reason = "as for the rest of it")]
impl<B: Buckets> Queued<B> {
    /// Ends a wait with a refusal, if it has not ended (I1). It has, when this returns: a grant that was lent is for good.
    pub(super) fn refuse(
        &self,
        worker: &Worker,
        wait: WaitTicket,
        reason: Reason,
        cycle: Vec<Member>,
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
        heads: &mut Heads,
        waiting: &Waiting,
        reason: Reason,
        cycle: Vec<Member>,
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
            let obstacles: Vec<Identified> = self.identify(obstacles);
            head.withdraw(wait);
            let refusal = waiting.refusal(reason, self.blockers(obstacles), cycle);
            let record = self.registry.record(wait.place);
            wakes.extend(record.refuse(wait.ticket, refusal));
            self.regrant(worker, head, wakes);
        });
        true
    }
}

impl<B: Buckets> Graph for Queued<B> {
    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn reach(&self, worker: &Worker, waiting: &Waiting, target: u32) -> Option<Reach> {
        self.with(worker, &waiting.name, waiting.name.hash() as u32, |heads| {
            let head = heads.get(&waiting.name)?;
            let position = head.position(waiting.wait_ticket())?;
            Some(head.reach(position, target))
        })
    }

    fn in_the_way(&self, worker: &Worker, waiting: &Waiting, blocker: u32) -> Option<Way> {
        self.with(worker, &waiting.name, waiting.name.hash() as u32, |heads| {
            heads
                .get(&waiting.name)?
                .in_the_way(waiting.wait_ticket(), blocker)
        })
    }

    fn condemn(&self, worker: &Worker, victim: WaitTicket, cycle: Vec<Member>) -> bool {
        self.refuse(worker, victim, Reason::Deadlock, cycle)
    }

    fn let_none_pass(&self, worker: &Worker, waiting: &Waiting) {
        if !self.lends() {
            return;
        }
        let (name, hash) = (&waiting.name, waiting.name.hash() as u32);
        self.with(worker, name, hash, |heads| {
            let is_there = heads.get(name).as_deref().is_some_and(Head::is_awaited);
            if is_there {
                heads.change(name, |head| head.let_none_pass(waiting.wait_ticket()));
            }
        });
    }
}
