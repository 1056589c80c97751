//! The end of a lock or of a wait: who is let through by it, and what is left.
//!
//! Whatever takes an obstacle away comes here for the line of its name, under the latch, and grants all who
//! can be granted in the order in which they came (I4 of `manager`).

use super::{
    chain::{Chains, Holder, Holders, NewRequest, ReleasedRequest},
    lock_index::RetiredRequests,
    manager::{Staged, WAIT, are_in_the_way},
    wait_queue::{ChainWaiter, WaitQueues},
};
use crate::{
    mode::Set,
    name::Name,
    owner::{
        Owner, PendingWait,
        lock_list::LockEntry,
        owner_table::{GRANTED, WaitTicket, Wakes},
    },
    request::{CycleMember, RefusalReason},
};
use foxton_sync::worker::Worker;

#[expect(
    private_bounds,
    reason = "what chains look like is not for outsiders to choose"
)]
impl<C: Chains> Staged<C> {
    /// Grants all in the line of `name` who now can be, first come first. Under the latch; the wakes
    /// are for after it.
    pub(super) fn regrant<'m>(
        &'m self,
        worker: &Worker,
        lines: &mut WaitQueues,
        name: &Name,
        wakes: &mut Wakes<'m>,
    ) {
        let Some(line) = lines.get(name) else { return };
        let hash = line.hash();
        let mut holders = self.chains.holders(&self.index, hash, name);
        let mut ahead = Set::NONE;
        let mut position = 0;
        while let Some(waiter) = lines.get(name).and_then(|line| line.at(position)) {
            let line = lines.get_mut(name).expect("somebody is in it");
            if ahead.meets(waiter.mode.conflicts())
                || are_in_the_way(&holders, waiter.owner, waiter.mode)
            {
                ahead = ahead.union(waiter.mode.set());
                position += 1;
                let granted = holders
                    .iter()
                    .fold(Set::NONE, |all, holder| all.union(holder.mode.set()));
                if line.rest_is_blocked(position, granted, ahead) {
                    break;
                }
            } else {
                line.leave(position);
                self.grant(worker, lines, name, hash, &waiter, &mut holders, wakes);
            }
        }
        lines.tidy(name);
    }

    #[expect(clippy::too_many_arguments, reason = "one step of one story")]
    pub(super) fn grant<'m>(
        &'m self,
        worker: &Worker,
        lines: &WaitQueues,
        name: &Name,
        hash: u32,
        waiter: &ChainWaiter,
        holders: &mut Holders,
        wakes: &mut Wakes<'m>,
    ) {
        let asked = NewRequest {
            name: *name,
            hash,
            owner: waiter.owner,
            mode: waiter.mode,
            replaces: waiter.replaces,
        };
        let awaited = self.awaited(lines, hash);
        self.chains
            .grant(&self.index, &asked, waiter.request, awaited);
        holders.retain(|holder| Some(holder.request) != waiter.replaces);
        holders.push(Holder {
            owner: waiter.owner,
            mode: waiter.mode,
            request: waiter.request,
        });
        worker.account().passed(&WAIT);
        let record = self.registry.record(waiter.owner.place());
        let wake = record.parker.resolve(waiter.ticket, GRANTED);
        debug_assert!(wake.is_some(), "I1: the wait had ended before");
        wakes.extend(wake);
    }

    #[inline]
    pub(super) fn give_back<'m>(
        &'m self,
        worker: &Worker,
        lock: &LockEntry,
        retired: &mut RetiredRequests<'_>,
        wakes: &mut Wakes<'m>,
    ) {
        let ended = ReleasedRequest {
            hash: lock.hash,
            request: lock.slot,
            mode: lock.mode,
        };
        if self.chains.release(&self.index, worker, ended, retired) {
            self.regrant_after(worker, lock, wakes);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn regrant_after<'m>(
        &'m self,
        worker: &Worker,
        lock: &LockEntry,
        wakes: &mut Wakes<'m>,
    ) {
        self.with(worker, lock.hash, |lines| {
            self.regrant(worker, lines, &lock.name, wakes);
        });
    }

    /// Ends a wait with a refusal, if it has not ended (I1).
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
        let hash = waiting.name.hash() as u32;
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        self.with(worker, hash, |lines| {
            let Some(line) = lines.get_mut(&waiting.name) else {
                return false;
            };
            let Some(position) = line.position(wait) else {
                return false;
            };
            let holders = self.chains.holders(&self.index, hash, &waiting.name);
            let obstacles = line.obstacles(&holders, waiting.id, waiting.mode, position);
            let waiter = line.leave(position);
            self.leave_line(
                worker,
                lines,
                &waiter,
                &waiting.name,
                &mut retired,
                &mut wakes,
            );
            let refusal = waiting.refusal(reason, self.blockers(obstacles), cycle);
            let record = self.registry.record(wait.place);
            wakes.extend(record.refuse(wait.ticket, refusal));
            true
        })
    }

    /// What is to be done when somebody has left the line ungranted.
    pub(super) fn leave_line<'m>(
        &'m self,
        worker: &Worker,
        lines: &mut WaitQueues,
        waiter: &ChainWaiter,
        name: &Name,
        retired: &mut RetiredRequests<'_>,
        wakes: &mut Wakes<'m>,
    ) {
        let hash = name.hash() as u32;
        lines.tidy(name);
        self.chains
            .withdraw(&self.index, hash, waiter.request, retired);
        self.set_awaited(lines, hash);
        self.regrant(worker, lines, name, wakes);
    }

    /// Gives a conversion back that was granted after its owner had lost interest.
    pub(super) fn revert(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        pending: &PendingWait,
        at: usize,
    ) {
        let former = owner.held.at(at).mode;
        let asked = NewRequest {
            name: pending.name,
            hash: pending.hash,
            owner: owner.id(),
            mode: former,
            replaces: Some(pending.slot),
        };
        let request = self.index.take(worker, &mut owner.spare);
        let request = request.expect("reserved when the conversion was asked for");
        self.chains.write(&self.index, &asked, request);
        let mut wakes = Wakes::new();
        self.with(worker, pending.hash, |lines| {
            let awaited = self.awaited(lines, pending.hash);
            self.chains.grant(&self.index, &asked, request, awaited);
            self.regrant(worker, lines, &pending.name, &mut wakes);
        });
        owner.held.set_slot(at, request);
    }
}
