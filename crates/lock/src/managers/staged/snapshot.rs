//! Snapshots of holders and waiters, for people: one chain after the other, and no thread stopped.

use super::{chain::Chains, manager::Staged, wait_queue::ChainConflict};
use crate::{
    inspect::{LockSnapshot, NameQueue, QueueRequest},
    name::Name,
};
use foxton_sync::worker::Worker;
use std::{collections::BTreeMap, time::Duration};

#[expect(
    private_bounds,
    reason = "what chains look like is not for outsiders to choose"
)]
impl<C: Chains> Staged<C> {
    /// Returns the queues of these chains, one after the other, until there are `most` holders and
    /// waiters.
    pub(super) fn snapshot_chains(
        &self,
        worker: &Worker,
        chains: impl Iterator<Item = usize>,
        most: usize,
    ) -> LockSnapshot {
        let (mut queues, mut entries, mut truncated): (Vec<NameQueue>, _, _) =
            (Vec::new(), 0, false);
        for at in chains.filter(|&at| !self.chains.is_empty(at)) {
            truncated = entries >= most;
            if truncated {
                break;
            }
            let found = self.queues(worker, at);
            queues.extend(found.into_iter().map(|(name, holders, waiters)| {
                let entry = |(owner, mode, waits): ChainConflict| {
                    let owner = self.current_owner(owner);
                    let record = self.owners.record(owner.index());
                    let waiting = record.waiting().filter(|_| waits);
                    let waited = waiting.filter(|waiting| waiting.id == owner);
                    let waited = waited.map_or(Duration::ZERO, |waiting| waiting.since.elapsed());
                    QueueRequest::new(&self.owners, owner, mode, waited)
                };
                let (holders, waiters) = (holders.into_iter(), waiters.into_iter());
                let queue = NameQueue {
                    name,
                    holders: holders.map(entry).collect(),
                    waiters: waiters.map(entry).collect(),
                };
                entries += queue.holders.len() + queue.waiters.len();
                queue
            }));
        }
        let mut snapshot = LockSnapshot::new(queues);
        snapshot.truncated = truncated;
        snapshot
    }

    pub(super) fn queues(
        &self,
        worker: &Worker,
        at: usize,
    ) -> Vec<(Name, Vec<ChainConflict>, Vec<ChainConflict>)> {
        let mut queues: BTreeMap<Name, (Vec<ChainConflict>, Vec<ChainConflict>)> = BTreeMap::new();
        self.with(worker, at as u32, |wait_queues| {
            self.chains.all(&self.index, at, &mut |name, holder| {
                let holders = &mut queues.entry(*name).or_default().0;
                if holders.iter().all(|(owner, ..)| *owner != holder.owner) {
                    holders.push((holder.owner, holder.mode, false));
                }
            });
            let mask = self.chains.count() - 1;
            for queue in wait_queues
                .iter()
                .filter(|queue| queue.hash() as usize & mask == at)
            {
                let waiters = queue.waiters().sorted().into_iter();
                let waiters = waiters.map(|waiter| (waiter.owner, waiter.mode, true));
                queues.entry(queue.name()).or_default().1.extend(waiters);
            }
        });
        let queues = queues.into_iter();
        queues
            .map(|(name, (holders, waiters))| (name, holders, waiters))
            .collect()
    }
}
