//! Snapshots of remembered and real locks, and checks that they agree.
//!
//! # Orderings
//!
//! * O1  decrementing `revoking` (Release) to reading it at the end of a transaction (Acquire), as
//!   in [`direct`](super). Nothing is converted here that would have to be seen. But an owner that
//!   reads zero takes no latch, and writes new entries over the old. The old ones, whose words are
//!   read Relaxed, must all have been read by then (I4 of `remembered`). No model fails without
//!   this ordering, because under loom no load returns a value that is stored only later.

use super::granule::Granule;
use super::grouping::Grouping;
use super::{Direct, LIST};
use crate::{
    inspect::{LockSnapshot, NameQueue, QueueRequest},
    manager::LockManager,
    name::Name,
};
use foxton_sync::{shim::Ordering, worker::Worker};
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

impl<G: Grouping> Direct<G> {
    /// Returns remembered locks with their owners: all, or at least `most`.
    pub(super) fn remembered(&self, worker: &Worker, most: usize) -> Vec<(Name, QueueRequest)> {
        let mut all = Vec::new();
        let owners = &self.real.owners;
        self.revoking.fetch_add(1, Ordering::Relaxed);
        self.fence.heavy();
        for record in owners.records() {
            if all.len() >= most {
                break;
            }
            let Some(list) = record.remembered() else {
                continue;
            };
            worker.account().passed(&LIST);
            let (owner, entries) = list.entries(|| record.id());
            for (name, mode, is_anchored) in entries {
                // In a real granule any other entry is being removed (I2).
                if is_anchored || !self.granule(&name, name.hash() as u32).is_real() {
                    all.push((name, QueueRequest::new(owners, owner, mode, Duration::ZERO)));
                }
            }
        }
        self.revoking.fetch_sub(1, Ordering::Release); // O1
        all
    }

    /// Panics if a strong lock is not counted.
    pub(super) fn verify_counts(&self, worker: &Worker) {
        self.real.verify(worker);
        // Every strong lock in the real manager is counted. A request that was refused and not
        // collected is counted as well.
        let mut counts = HashMap::<*const Granule, (u64, &Granule)>::new();
        for queue in self.real.queues(worker) {
            let strong = |entry: &&QueueRequest| !entry.mode.is_weak(queue.name.class());
            let holders: Vec<_> = queue.holders.iter().filter(strong).collect();
            let converts =
                |entry: &&QueueRequest| holders.iter().any(|held| held.owner == entry.owner);
            let new = queue
                .waiters
                .iter()
                .filter(strong)
                .filter(|waiter| !converts(waiter));
            let count = (holders.len() + new.count()) as u64;
            let granule = self.granule(&queue.name, queue.name.hash() as u32);
            counts.entry(granule).or_insert((0, granule)).0 += count;
        }
        for (count, granule) in counts.into_values().filter(|&(count, _)| count > 0) {
            assert!(
                granule.strong_count() >= count,
                "I1: a strong lock is not counted"
            );
            assert!(
                granule.is_real(),
                "I1: a strong lock in a granule that is not real"
            );
        }
    }
}

/// Adds the remembered locks to the real ones.
pub(super) fn merge(snapshot: &mut LockSnapshot, remembered: Vec<(Name, QueueRequest)>) {
    let mut further = BTreeMap::<Name, NameQueue>::new();
    for (name, entry) in remembered {
        let real = snapshot
            .queues
            .binary_search_by_key(&name, |queue| queue.name);
        let holders = match real {
            Ok(at) => &mut snapshot.queues[at].holders,
            Err(_) => {
                &mut further
                    .entry(name)
                    .or_insert_with(|| NameQueue::new(name))
                    .holders
            }
        };
        if holders.iter().all(|holder| holder.owner != entry.owner) {
            holders.push(entry);
        }
    }
    snapshot.queues.extend(further.into_values());
    snapshot.queues.sort_by_key(|queue| queue.name);
}
