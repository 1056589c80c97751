//! What the queues look like: one after the other, each as it is at one moment.

use super::{Buckets, LatchedQueues};
use crate::{
    inspect::{LockQueue, LockSnapshot, QueueEntry},
    managers::latched::head::{ConflictingRequest, LockHead},
    name::Name,
    request::OwnerId,
};
use foxton_sync::worker::Worker;
use std::{collections::HashSet, time::Duration};

/// One queue, in numbers.
struct RawQueue {
    name: Name,
    holders: Vec<(OwnerId, ConflictingRequest)>,
    line: Vec<(OwnerId, ConflictingRequest)>,
}

#[expect(private_bounds, reason = "as for the rest of it")]
impl<B: Buckets> LatchedQueues<B> {
    /// Every queue, in no particular order.
    pub(in crate::managers) fn queues(&self, worker: &Worker) -> Vec<LockQueue> {
        let mut queues = Vec::new();
        for index in 0..self.buckets.count() {
            self.show_bucket(worker, index, usize::MAX, &mut queues);
        }
        queues
    }

    /// What [`look`](crate::manager::LockManager::look) shows.
    pub(super) fn look_at(&self, worker: &Worker, most: usize) -> LockSnapshot {
        let mut queues: Vec<LockQueue> = Vec::new();
        let mut entries = 0;
        let awaited = self
            .registry
            .waits()
            .into_iter()
            .map(|waiting| waiting.name);
        let mut seen = HashSet::new();
        for name in awaited.filter(|name| seen.insert(*name)) {
            if entries >= most {
                break;
            }
            queues.extend(self.show(worker, name));
            let shown = queues
                .last()
                .map(|queue| queue.holders.len() + queue.waiters.len());
            entries += shown.unwrap_or(0);
        }
        let mut bucket = 0;
        while entries < most && bucket < self.buckets.count() {
            let first = queues.len();
            self.show_bucket(worker, bucket, most - entries, &mut queues);
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
        snapshot.left_out = entries >= most;
        snapshot
    }

    /// The queues of one bucket, until they have so many holders and waiters. Plain numbers under
    /// the latch, words after it.
    fn show_bucket(&self, worker: &Worker, index: usize, most: usize, into: &mut Vec<LockQueue>) {
        let seen: Vec<RawQueue> = self.buckets.with(worker, index, |heads| {
            let mut room = most;
            let heads = heads.iter().take_while(|head| {
                let goes_on = room > 0;
                room = room.saturating_sub(head.holders().count());
                goes_on
            });
            heads.map(|head| self.see(&head)).collect()
        });
        into.extend(seen.into_iter().map(|seen| self.told(seen)));
    }

    /// The queue of one name.
    fn show(&self, worker: &Worker, name: Name) -> Option<LockQueue> {
        let seen = self.with(worker, &name, name.hash() as u32, |heads| {
            heads.show(&name).map(|head| self.see(&head))
        });
        seen.map(|seen| self.told(seen))
    }

    fn see(&self, head: &LockHead) -> RawQueue {
        let holders = head.holders().map(|(place, mode)| (place, mode, false));
        let line = head.line().map(|waiter| (waiter.place, waiter.mode, true));
        RawQueue {
            name: head.name(),
            holders: self.identify(holders),
            line: self.identify(line),
        }
    }

    fn told(&self, seen: RawQueue) -> LockQueue {
        let entry = |(owner, (place, mode, waits)): (OwnerId, ConflictingRequest)| {
            let waiting = self.registry.record(place).waiting().filter(|_| waits);
            let waited = waiting.filter(|waiting| waiting.id == owner);
            let waited = waited.map_or(Duration::ZERO, |waiting| waiting.since.elapsed());
            QueueEntry::new(&self.registry, owner, mode, waited)
        };
        LockQueue {
            name: seen.name,
            holders: seen.holders.into_iter().map(entry).collect(),
            waiters: seen.line.into_iter().map(entry).collect(),
        }
    }
}
