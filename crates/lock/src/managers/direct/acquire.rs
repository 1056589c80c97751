//! Requests: D1 to D9, D13 and D14, for new names and for names that are held already.

use super::granule::{Granule, Moment};
use super::grouping::Grouping;
use super::{Direct, LIST};
use crate::{
    escalation,
    mode::Mode,
    name::{Class, Name},
    owner::{Owner, lock_list::LockSource, remembered::BlockBits, remembered_index::IndexMatch},
    request::{Reply, WaitMode},
};
use foxton_sync::{anchor::LockAnchor, worker::Worker};

/// Counts an appended entry with this many keys.
#[inline]
pub(super) fn count_entry(owner: &mut Owner, index: u32, keys: u32) {
    if owner.lookup.has_savepoint() {
        let order = owner.locks.take_order(); // Counts, too.
        owner.lookup.set_order(index, order);
    } else {
        owner.lookup.count();
    }
    owner.lookup.count_scanned(keys - 1);
}

/// After the fast paths.
impl<G: Grouping> Direct<G> {
    /// D4 after any fast path.
    #[cold]
    #[inline(never)]
    pub(super) fn recheck_bias(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, anchor): (Name, Option<&LockAnchor>),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let last = owner.list().len() - 1;
        owner.lookup.uncount();
        if self.recheck_entry(worker, owner, last, name, mode) {
            owner.has_free_order(); // It used up an order, and may do so each time.
            return Reply::Granted;
        }
        self.request_slow(worker, owner, (name, anchor), mode, wait_mode)
    }
}

/// All other requests.
impl<G: Grouping> Direct<G> {
    /// Handles what the fast path leaves: most often a short key, new to its owner, in a real
    /// granule.
    #[inline(never)]
    pub(super) fn request_general(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let eligible = owner.lookup.is_fast_path_open(self.address)
            && name.class() == Class::Key
            && !owner.locks.is_out_of_orders();
        if eligible && mode.is_weak(Class::Key) {
            let near = name.near_hash();
            let granule = self.key_granule(near, name.space());
            if !granule.may_remember(|| self.moment_of(owner)) {
                let hash = name.hash() as u32;
                // If no name with this hash is held (I1 of `remembered_index`), neither list is
                // searched.
                if !owner.must_check_limits()
                    && (owner.lookup.insert_seen(near) || self.is_new_in_block(owner, name, hash))
                {
                    owner.lookup.mark_single(near);
                    return self.acquire_real(worker, owner, (name, hash), mode, wait_mode);
                }
            } else if name.block().is_none() && owner.lookup.insert_seen(near) {
                return self.remember_long(worker, owner, (name, near), mode, wait_mode);
            }
        }
        self.request_slow(worker, owner, (name, None), mode, wait_mode)
    }

    /// True if a key is certainly not held, although others of its block are. For real locks
    /// without anchors, which are mostly in `locks`.
    #[inline]
    fn is_new_in_block(&self, owner: &Owner, name: Name, hash: u32) -> bool {
        const FEW: u32 = 4;
        let list = owner.list();
        let may_hold =
            |index, block| list.is_block(index, block) || list.mode_of(index, name).is_some();
        let is_listed = |block| (0..list.len()).any(|index| may_hold(index, block));
        let block = name.block().filter(|_| list.len() <= FEW);
        block.is_some_and(|(block, _)| !is_listed(block)) && owner.locks.find(name, hash).is_none()
    }

    /// D2 to D4 for a key that is in no block, and is new.
    #[inline(always)]
    fn remember_long(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, hash): (Name, u32),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let (list, lookup) = owner.list_and_lookup();
        if !list.try_append_lock(name, hash, mode) {
            return self.request_slow(worker, owner, (name, None), mode, wait_mode);
        }
        lookup.count();
        self.fence.light_expedited();
        match self.key_granule(hash, name.space()).is_biased() {
            true => Reply::Granted,
            false => self.recheck_bias(worker, owner, (name, None), mode, wait_mode),
        }
    }

    /// Returns the time for one call in sixteen, because a granule may become biased again a little
    /// later. In short transactions too: each begins the count elsewhere.
    #[inline(always)]
    pub(super) fn moment_of(&self, owner: &Owner) -> Option<Moment> {
        const EVERY: u32 = 16;
        let due = (owner.acquired() + owner.lookup.transaction_number()).is_multiple_of(EVERY);
        due.then(|| self.moment())
    }

    /// D8 for a name that is not held.
    #[inline(always)]
    fn acquire_real(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, hash): (Name, u32),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let real = &self.real;
        let reply = real.request_new(
            worker,
            owner,
            (name, hash),
            mode,
            wait_mode,
            |wait, wait_edges| {
                real.detector.check(real, worker, wait, wait_edges);
            },
        );
        if matches!(reply, Reply::Waiting) {
            owner.lookup.close_fast_path();
        }
        reply
    }

    /// Handles any request.
    #[inline(never)]
    pub(super) fn request_slow(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, anchor): (Name, Option<&LockAnchor>),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        owner.assert_usable(&self.real.owners);
        mode.assert_suits(&name);
        if !owner.has_free_order() {
            return owner.refuse_out_of_orders(name, mode);
        }
        owner.lookup.open_fast_path();
        if owner.must_check_limits()
            && let Some(reply) = escalation::check_limits(self, worker, owner, (name, mode))
        {
            return reply; // D14
        }
        let reply = match anchor {
            Some(anchor) => self.decide_anchored(worker, owner, (name, anchor), mode, wait_mode),
            None => self.decide(worker, owner, name, mode, wait_mode),
        };
        if matches!(reply, Reply::Waiting) {
            owner.lookup.close_fast_path();
        }
        reply
    }

    fn decide(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let near = name.near_hash();
        let found = self.find_remembered(owner, name, near);
        if let IndexMatch::Lock(index, held) = found {
            return match owner.list().anchored(index) {
                Some(position) => self.convert_anchored(worker, owner, position, mode, wait_mode),
                None => {
                    let (target, found) = ((name, None), (index, held));
                    self.request_remembered(worker, owner, target, found, mode, wait_mode)
                }
            };
        }
        let hash = name.hash() as u32;
        if let Some(at) = owner.locks.find(name, hash) {
            return self.request_held(worker, owner, at, mode, wait_mode);
        }
        let granule = self.granule(&name, hash);
        if mode.is_weak(name.class())
            && granule.may_remember(|| Some(self.moment())) // D1, D9
            && self.remember(worker, owner, granule, (name, near), mode, found)
        {
            return Reply::Granted;
        }
        self.request_real(worker, owner, (name, hash), mode, wait_mode)
    }

    /// Looks up a remembered name.
    #[inline]
    pub(super) fn find_remembered(&self, owner: &mut Owner, name: Name, hash: u32) -> IndexMatch {
        let (list, lookup) = owner.list_and_lookup();
        match lookup.is_new(hash) {
            false => lookup.find(list, name, hash),
            true => IndexMatch::Nothing,
        }
    }

    /// Part of D4, and of every other step that must be certain about one name: removes it from the
    /// entry at `index`, and returns the slot of the real lock.
    pub(super) fn take_back(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (index, hash): (u32, u32),
        name: Name,
    ) -> Option<u32> {
        worker.account().passed(&LIST);
        let (list, lookup) = owner.list_and_lookup();
        let slot = list.remove(index, name);
        lookup.drop_dead(list, index, hash);
        slot
    }

    /// D4 for a name in the entry at `index` that is not counted. Returns false if it is not held.
    fn recheck_entry(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        index: u32,
        name: Name,
        mode: Mode,
    ) -> bool {
        let near = name.near_hash();
        let slot = self.take_back(worker, owner, (index, near), name);
        if let Some(slot) = slot {
            owner.lookup.mark_single(near);
            owner.locks.push(name, name.hash() as u32, slot, mode);
            let at = owner.locks.last();
            owner.locks.set_source(at, LockSource::Revoker);
        }
        slot.is_some()
    }

    /// D4 for keys of the block at `index`. Returns true if all bits that were just set are held.
    pub(super) fn keep_converted(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (index, hash): (u32, u32),
        fresh: BlockBits,
    ) -> bool {
        worker.account().passed(&LIST);
        let (list, lookup) = owner.list_and_lookup();
        let kept = list.retain_converted(index, fresh);
        lookup.drop_dead(list, index, hash);
        kept
    }

    /// D2 to D4, for a granule that was biased a moment ago. Returns false if the lock is not held.
    pub(super) fn remember(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        granule: &Granule,
        (name, near): (Name, u32),
        mode: Mode,
        found: IndexMatch,
    ) -> bool {
        owner.lookup.mark_seen(near);
        let list = owner.list();
        let (index, is_new) = match (name.block(), found) {
            (Some((_, at)), IndexMatch::Block(index))
                if !owner.lookup.is_before_savepoint(index) =>
            {
                list.extend_all(index, BlockBits::one(at, mode)); // D12
                (index, false)
            }
            (Some((block, at)), _) => (list.append_block(block, BlockBits::one(at, mode)), true),
            (None, _) => (list.append(name, near, mode), true),
        }; // D2
        self.fence.light();
        if !granule.is_biased() {
            return self.recheck_entry(worker, owner, index, name, mode); // D4
        }
        match is_new {
            true => count_entry(owner, index, 1), // D3
            false => owner.lookup.count(),
        }
        true
    }

    /// Requests a name that is not held and is not to be remembered.
    #[inline(never)]
    fn request_real(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, hash): (Name, u32),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let strong = !mode.is_weak(name.class());
        let granule = self.granule(&name, hash);
        let near = name.near_hash();
        // In a real granule every conflicting lock is real, so a request that would be skipped need
        // not be counted.
        if strong
            && wait_mode == WaitMode::Skip
            && granule.is_real()
            && self.real.is_blocked(worker, (&name, hash), mode)
        {
            return owner.skip();
        }
        owner.lookup.mark_seen(near);
        owner.lookup.mark_single(near);
        if strong {
            self.enter_strong(worker, granule, &name, hash);
        }
        let reply = self.acquire_real(worker, owner, (name, hash), mode, wait_mode);
        match reply {
            Reply::Refused(_) | Reply::Skipped if strong => self.leave_strong(worker, granule),
            Reply::Granted => self.coarsen(worker, name, mode),
            _ => {}
        }
        reply
    }

    /// Requests the name held at `at`, as a real lock.
    #[inline(never)]
    pub(super) fn request_held(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        at: usize,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let held = *owner.locks.at(at);
        if held.mode.covers(mode) {
            owner.re_asks += 1;
            return Reply::Held;
        }
        let (target, class) = (held.mode.supremum(mode), held.name.class());
        let granule = self.granule(&held.name, held.hash);
        let counts = held.mode.is_weak(class) && !target.is_weak(class);
        if counts {
            self.enter_strong(worker, granule, &held.name, held.hash);
        }
        let reply = self.convert(worker, owner, at, mode, wait_mode);
        if counts && matches!(reply, Reply::Refused(_) | Reply::Skipped) {
            self.leave_strong(worker, granule);
        }
        reply
    }

    pub(super) fn convert(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        at: usize,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let real = &self.real;
        let reply = real.request_held(worker, owner, at, mode, wait_mode, |wait, wait_edges| {
            real.detector.check(real, worker, wait, wait_edges);
        });
        if matches!(reply, Reply::Granted) {
            let held = owner.locks.at(at);
            self.coarsen(worker, held.name, held.mode);
        }
        reply
    }

    /// Requests a name that is remembered at `index` in the mode `held`.
    #[inline(never)]
    pub(super) fn request_remembered(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, anchor): (Name, Option<&LockAnchor>),
        (index, held): (u32, Mode),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        if held.covers(mode) {
            owner.re_asks += 1;
            if name.class() == Class::Table {
                owner.lookup.record_table(name, held);
            }
            return Reply::Held;
        }
        let (target, class) = (held.supremum(mode), name.class());
        let (hash, near) = (name.hash() as u32, name.near_hash());
        let granule = self.granule(&name, hash);
        // Under the latch no fence is needed: a revoker that missed the stronger mode had the latch
        // before, and had counted itself in the granule before that.
        if target.is_weak(class) {
            worker.account().passed(&LIST);
            let list = owner.list();
            if list.strengthen(index, name, target, || granule.is_biased()) {
                return Reply::Granted;
            }
        }
        // The lock leaves the list of remembered locks, and is added to `locks` as a real one, with
        // its order.
        self.enter_strong(worker, granule, &name, hash);
        let order = owner.lookup.order_of(index);
        let is_older = owner.lookup.is_before_savepoint(index);
        let slot = self.take_back(worker, owner, (index, near), name);
        let slot = slot.expect("I2: in a real granule a lock that is held is real");
        owner.lookup.mark_single(near);
        owner.lookup.uncount();
        match is_older {
            true => owner.locks.push_with_order((name, hash), slot, held, order),
            false => owner.locks.push(name, hash, slot, held),
        }
        let at = owner.locks.last();
        owner.locks.set_source(at, LockSource::Revoker);
        if let Some(anchor) = anchor {
            self.queue_anchor(worker, name, anchor); // A7
        }
        let reply = self.convert(worker, owner, at, mode, wait_mode);
        if target.is_weak(class) || matches!(reply, Reply::Refused(_) | Reply::Skipped) {
            self.leave_strong(worker, granule);
        }
        reply
    }
}
