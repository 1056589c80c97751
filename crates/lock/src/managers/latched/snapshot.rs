//! Snapshots of the queues: one after the other, each as it is at one moment.

use super::{Buckets, LatchedQueues};
use crate::{
    inspect::{LockSnapshot, NameQueue, QueueRequest},
    managers::latched::head::LockHead,
    mode::Mode,
    name::Name,
    request::OwnerId,
    wait_list::{WaitList, WaitOrder},
};
use foxton_sync::worker::Worker;
use std::{collections::HashSet, time::Duration};

/// One queue, in numbers.
struct RawQueue {
    name: Name,
    holders: Vec<(OwnerId, Mode)>,
    /// Waiters, with their orders.
    queue: Vec<(WaitOrder, OwnerId, Mode)>,
}

#[expect(private_bounds, reason = "as for the rest of it")]
impl<B: Buckets> LatchedQueues<B> {
    /// Returns every queue, in no particular order.
    pub(in crate::managers) fn queues(&self, worker: &Worker) -> Vec<NameQueue> {
        let mut queues = Vec::new();
        for index in 0..self.buckets.count() {
            self.snapshot_bucket(worker, index, usize::MAX, &mut queues);
        }
        queues
    }

    /// Returns the snapshot for [`inspect_limited`](crate::manager::LockManager::inspect_limited).
    pub(super) fn snapshot_limited(&self, worker: &Worker, most: usize) -> LockSnapshot {
        let mut queues: Vec<NameQueue> = Vec::new();
        let mut entries = 0;
        let waited_for = self.owners.waits().into_iter().map(|waiting| waiting.name);
        let mut seen = HashSet::new();
        for name in waited_for.filter(|name| seen.insert(*name)) {
            if entries >= most {
                break;
            }
            if let Some(mut queue) = self.snapshot_name(worker, name) {
                queue.shorten(most - entries);
                entries += queue.holders.len() + queue.waiters.len();
                queues.push(queue);
            }
        }
        let mut bucket = 0;
        while entries < most && bucket < self.buckets.count() {
            let first = queues.len();
            self.snapshot_bucket(worker, bucket, most - entries, &mut queues);
            let fresh = queues.split_off(first);
            let fresh = fresh
                .into_iter()
                .filter(|queue| !seen.contains(&queue.name));
            queues.extend(fresh);
            entries += queues[first..]
                .iter()
                .map(|queue| queue.holders.len())
                .sum::<usize>();
            bucket += 1;
        }
        let mut snapshot = LockSnapshot::new(queues);
        snapshot.truncated = entries >= most;
        snapshot
    }

    /// Adds the queues of one bucket, until there are `most` holders and waiters. Numbers are
    /// copied under the latch, and labels are added after it.
    fn snapshot_bucket(
        &self,
        worker: &Worker,
        index: usize,
        most: usize,
        into: &mut Vec<NameQueue>,
    ) {
        let raw: Vec<RawQueue> = self.buckets.with(worker, index, |entries| {
            let mut room = most;
            let entries = entries.iter().take_while(|head| {
                let goes_on = room > 0;
                room = room.saturating_sub(head.holders().count());
                goes_on
            });
            entries.map(|head| self.copy_queue(&head)).collect()
        });
        into.extend(raw.into_iter().map(|raw| self.describe_queue(raw)));
    }

    /// Returns the queue of one name.
    fn snapshot_name(&self, worker: &Worker, name: Name) -> Option<NameQueue> {
        let raw = self.with(worker, &name, name.hash() as u32, |entries| {
            entries.head_ref(&name).map(|head| self.copy_queue(&head))
        });
        raw.map(|raw| self.describe_queue(raw))
    }

    fn copy_queue(&self, head: &LockHead) -> RawQueue {
        let id = |owner_index| self.owners.record(owner_index).id();
        let holders = head.holders();
        let waiters = head.waiters().into_iter().flat_map(WaitList::unsorted);
        RawQueue {
            name: head.name(),
            holders: holders.map(|(owner, mode)| (id(owner), mode)).collect(),
            queue: waiters
                .map(|(order, waiter)| (order, id(waiter.owner_index), waiter.mode))
                .collect(),
        }
    }

    fn describe_queue(&self, mut raw: RawQueue) -> NameQueue {
        raw.queue.sort_unstable_by_key(|&(order, ..)| order);
        let waited = |owner: OwnerId| {
            let waiting = self.owners.record(owner.index()).waiting();
            let waiting = waiting.filter(|waiting| waiting.id == owner);
            waiting.map_or(Duration::ZERO, |waiting| waiting.since.elapsed())
        };
        let entry = |owner, mode, waited| QueueRequest::new(&self.owners, owner, mode, waited);
        let holders = raw.holders.into_iter();
        let waiters = raw.queue.into_iter();
        NameQueue {
            name: raw.name,
            holders: holders
                .map(|(owner, mode)| entry(owner, mode, Duration::ZERO))
                .collect(),
            waiters: waiters
                .map(|(_, owner, mode)| entry(owner, mode, waited(owner)))
                .collect(),
        }
    }
}
