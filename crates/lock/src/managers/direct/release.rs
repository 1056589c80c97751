//! Releases: D10 and D11, single names, and counts of waits that end without the lock.
//!
//! # Orderings
//!
//! * O1  decrementing `revoking` (Release, in [`direct`](super)) to reading it at the end of a
//!   transaction (Acquire): an owner that finds it zero sees what was converted.

use super::granule::Granule;
use super::grouping::Grouping;
use super::{Direct, LIST};
use crate::{
    mode::Mode,
    name::Name,
    owner::{
        Owner, PendingWait,
        lock_list::{LockEntry, LockSource},
        owner_table::Wakes,
        remembered::{ConvertedLocks, RememberedLocks},
        remembered_index::IndexMatch,
    },
};
use foxton_sync::{shim::Ordering, worker::Worker};

impl<G: Grouping> Direct<G> {
    /// Returns the granule in which a wait is counted, to be uncounted unless the wait ends with
    /// the lock.
    pub(super) fn counted_granule(&self, owner: &Owner) -> Option<&Granule> {
        let PendingWait {
            name,
            hash,
            mode,
            converts,
            ..
        } = owner.pending?;
        let was_strong = converts.is_some_and(|at| !owner.locks.at(at).mode.is_weak(name.class()));
        let counts = !was_strong && !mode.is_weak(name.class());
        counts.then(|| self.granule(&name, hash))
    }

    pub(super) fn uncount_granule(&self, worker: &Worker, granule: Option<&Granule>) {
        if let Some(granule) = granule {
            self.leave_strong(worker, granule);
        }
    }

    /// Releases a real lock that was removed from `locks`.
    pub(super) fn release_lock<'m>(
        &'m self,
        worker: &Worker,
        entry: &LockEntry,
        wakes: &mut Wakes<'m>,
    ) {
        self.real.release_lock(worker, entry, wakes);
        if entry.source == LockSource::Revoker {
            self.converted(entry.name.near_hash()).remove();
        }
        if !entry.mode.is_weak(entry.name.class()) {
            self.leave_strong(worker, self.granule(&entry.name, entry.hash));
        }
    }

    /// Releases a remembered lock that has become real.
    fn release_converted<'m>(
        &'m self,
        worker: &Worker,
        (name, slot, mode): (Name, u32, Mode),
        wakes: &mut Wakes<'m>,
    ) {
        let entry = LockEntry::detached(name, name.hash() as u32, slot, mode);
        self.real.release_lock(worker, &entry, wakes);
        self.converted(name.near_hash()).remove();
    }

    /// Releases a name if it is remembered.
    pub(super) fn release_remembered(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
    ) -> bool {
        let hash = name.near_hash();
        let IndexMatch::Lock(index, mode) = self.find_remembered(owner, name, hash) else {
            return false;
        };
        owner.count_before_overflow();
        if let Some(position) = owner.list().anchored(index) {
            let (lock, me) = (owner.anchored.take(position), owner.id().index());
            self.release_anchored(worker, (owner, me), lock);
            self.take_back(worker, owner, (index, hash), name);
            return true;
        }
        if let Some(slot) = self.take_back(worker, owner, (index, hash), name) {
            let mut wakes = Wakes::new();
            self.release_converted(worker, (name, slot, mode), &mut wakes);
        }
        true
    }

    /// Releases the locks remembered since the savepoint with this order.
    pub(super) fn release_remembered_since<'m>(
        &'m self,
        worker: &Worker,
        owner: &mut Owner,
        since: u32,
        wakes: &mut Wakes<'m>,
    ) {
        while let Some(last) = owner.list().len().checked_sub(1)
            && owner.lookup.order_of(last) >= since
        {
            worker.account().passed(&LIST);
            if let Some(position) = owner.list().anchored(last) {
                let (lock, me) = (owner.anchored.take(position), owner.id().index());
                self.release_anchored(worker, (owner, me), lock);
            }
            let (list, lookup) = owner.list_and_lookup();
            let hash = list.hash_of(last);
            for converted in list.remove_entry(last) {
                self.release_converted(worker, converted, wakes);
            }
            lookup.drop_dead(list, last, hash);
        }
    }

    /// D10 if the fast path is closed, or some lock is real.
    #[inline(never)]
    pub(super) fn release_general(&self, worker: &Worker, owner: &mut Owner) {
        owner.assert_usable(&self.real.owners);
        let revoked = owner.remembered().is_some_and(|list| {
            list.clear();
            self.fence.light();
            self.is_revoked(list)
        }); // A proxy has no list.
        self.release_all_anchored(worker, owner);
        self.release_real(worker, owner, revoked);
    }

    /// True if some lock of `list`, which was cleared, may have been converted.
    #[inline(always)]
    pub(super) fn is_revoked(&self, list: &RememberedLocks) -> bool {
        self.revoking.load(Ordering::Acquire) != 0 || list.may_have_converted() // O1
    }

    /// D11, and the release of all real locks.
    #[inline(never)]
    pub(super) fn release_real(&self, worker: &Worker, owner: &mut Owner, revoked: bool) {
        let mut wakes = Wakes::new();
        if revoked {
            worker.account().passed(&LIST);
            let converted: ConvertedLocks = owner.list().take_converted();
            for (name, (slot, mode)) in converted {
                self.release_converted(worker, (name, slot, mode), &mut wakes);
            }
        }
        for entry in owner.locks.iter().rev() {
            self.release_lock(worker, entry, &mut wakes);
        }
        owner.clear_locks();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Fences, GranuleOptions, grouping::ByBlock};
    use super::*;
    use crate::{deadlock::VictimPolicy, manager::LockManager, owner::Owner};
    use foxton_sync::{latch, worker::Workers};
    use std::time::Duration;

    const TABLE: Name = Name::table(1);

    #[test]
    fn while_somebody_has_a_whole_table_intentions_of_others_on_it_are_real() {
        let workers = Workers::new();
        let worker = workers.worker();
        let granules = GranuleOptions {
            count: 4,
            hold_off: Duration::ZERO,
            tables: true,
            fences: Fences::Found,
        };
        let kind = latch::Kind::default();
        let direct = Direct::<ByBlock>::new(kind, 4, VictimPolicy::default(), granules);
        let (mut early, mut whole, mut late) = (direct.owner(), direct.owner(), direct.owner());
        let is_held =
            |owner: &mut Owner, mode| direct.try_lock(&worker, owner, TABLE, mode).is_held();
        let in_real = |owner: &Owner| {
            let queues = direct.real.queues(&worker);
            let mut holders = queues.iter().flat_map(|queue| &queue.holders);
            holders.any(|holder| holder.owner == owner.id())
        };
        assert!(is_held(&mut early, Mode::IS));
        assert!(!in_real(&early), "it is only remembered");
        assert!(is_held(&mut whole, Mode::S));
        assert!(in_real(&early) && in_real(&whole), "and was made real");
        assert!(is_held(&mut late, Mode::IS));
        assert!(in_real(&late) && late.list().is_empty());
        assert!(!is_held(&mut late, Mode::IX));
        direct.verify(&worker);
        for owner in [&mut early, &mut whole, &mut late] {
            direct.release_all(&worker, owner);
        }
        std::thread::sleep(Duration::from_millis(10)); // Longer than a moment.
        assert!(is_held(&mut late, Mode::IX));
        assert!(!in_real(&late), "no owner has the whole table now");
        direct.release_all(&worker, &mut late);
    }
}
