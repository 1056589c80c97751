//! Anchored requests: A1 to A8.
//!
//! # Orderings
//!
//! * O1  A revoker counts (`add`), and then reads whether the granule is real. A strong request
//!   makes the granule real, or finds it real, and then reads the count (`has_any`). Between the
//!   two the revoker and the maker have a fence, and the finder's accesses are themselves `SeqCst`.
//!   So a revoker that converts a lock without its anchor is seen by the strong request, or sees
//!   that the granule is real, and converts nothing. The models have no finder, which takes a
//!   fourth thread. Under loom a `SeqCst` access orders less than it does.
//! * O2  `remove` (Release) to `has_any` (Acquire): a strong request that finds no converted lock
//!   comes after all that their owners did.

use super::acquire::count_entry;
use super::granule::Granule;
use super::grouping::Grouping;
use super::{ANCHOR, Direct};
use crate::managers::latched::bucket_entries::BucketEntries;
use crate::{
    failpoint,
    manager::LockManager,
    mode::{Mode, Set},
    name::{Class, Name},
    owner::{
        Owner,
        anchored_locks::{AnchoredLock, hold},
        lock_list::{LockEntry, LockSource},
        owner_table::Wakes,
        remembered_index::IndexMatch,
    },
    request::{Reply, WaitMode},
};
use foxton_sync::{
    anchor::{AnchorState, HeldAnchor, Hold, LockAnchor},
    shim::{AtomicU32, Ordering, fence},
    worker::Worker,
};

/// Converted locks of some granules: real locks in queues whose anchors do not know of them.
#[derive(Debug, Default)]
pub(super) struct Converted(AtomicU32);

impl Converted {
    /// Counts a lock that is about to be converted.
    pub(super) fn add(&self) {
        // Site: "lock revocation".
        self.0.fetch_add(1, Ordering::Relaxed); // Before the fence.
        fence(Ordering::SeqCst); // O1
    }

    /// Uncounts a lock that was released, or not converted.
    pub(super) fn remove(&self) {
        // Site: "lock revocation".
        let count = self.0.fetch_sub(1, Ordering::Release); // O2
        debug_assert!(count > 0, "more converted locks gone than came");
    }

    /// True if there may be any. Asked by a strong request that has found its granule real.
    #[inline(always)]
    fn has_any(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0 // O1, O2
    }
}

/// Request with an anchor.
pub(super) struct AnchoredRequest<'a> {
    pub(super) name: Name,
    /// Hash that finds its granule.
    pub(super) near: u32,
    pub(super) anchor: &'a LockAnchor,
    pub(super) mode: Mode,
    pub(super) wait_mode: WaitMode,
}

impl<G: Grouping> Direct<G> {
    /// A1: requests a key that is not to be remembered, if the owner can be seen not to hold it.
    #[inline(always)]
    pub(super) fn request_at_anchor(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, anchor): (Name, &LockAnchor),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        // Made only where it is needed: a fast path builds nothing in memory.
        let request = |near| AnchoredRequest {
            name,
            near,
            anchor,
            mode,
            wait_mode,
        };
        let near = name.near_hash();
        let number = self.granule_number(near, name.space());
        let granule = self.granule_at(number);
        let is_weak = mode.is_weak(Class::Key);
        // While the fast path is open there is no savepoint, so no order is used up.
        let is_new = owner.lookup.is_fast_path_open(self.address)
            && anchor.is_free()
            && name.is_exact_key()
            && !owner.must_check_limits()
            && !(is_weak && granule.may_remember(|| self.moment_of(owner)))
            && (owner.lookup.insert_anchored(near) || self.is_not_held(owner, name));
        if !is_new {
            return self.request_at_anchor_slow(worker, owner, &request(near));
        }
        if !is_weak {
            self.enter_strong(worker, granule, &name, near);
        }
        if (is_weak || !self.has_converted(worker, near))
            && let Some(held) = anchor.hold(hold(owner.id().index(), mode))
        {
            worker.account().passed(&ANCHOR);
            self.add_anchored(owner, held, (name, near), (number, mode));
            owner.lookup.count();
            return Reply::Granted;
        }
        self.request_at_queue(worker, owner, &request(near))
    }

    /// Handles what the fast path leaves.
    #[inline(never)]
    fn request_at_anchor_slow(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        request: &AnchoredRequest<'_>,
    ) -> Reply {
        let &AnchoredRequest {
            name,
            anchor,
            mode,
            wait_mode,
            ..
        } = request;
        if !name.is_exact_key() {
            // Another key may have the same name, and another anchor.
            return self.request_general(worker, owner, name, mode, wait_mode);
        }
        if owner.lookup.is_fast_path_open(self.address)
            && let AnchorState::Held(holder) = anchor.state()
            && holder.owner == owner.id().index()
            && let Some(position) = owner.anchored.find_recent(anchor)
        {
            return self.convert_anchored(worker, owner, position, mode, wait_mode);
        }
        self.request_slow(worker, owner, (name, Some(anchor)), mode, wait_mode)
    }

    /// True if a key is certainly not held, although others of its block are: its anchor is free,
    /// so it could only be remembered, or in `locks`.
    #[inline(never)]
    fn is_not_held(&self, owner: &Owner, name: Name) -> bool {
        const FEW: u32 = 16;
        let list = owner.list();
        let is_remembered = |block| (0..list.len()).any(|index| list.is_block(index, block));
        let block = name.block().filter(|_| list.len() <= FEW);
        block.is_some_and(|(block, _)| !is_remembered(block))
            && (owner.locks.len() == 0 || owner.locks.find(name, name.hash() as u32).is_none())
    }

    /// Adds a lock whose anchor this owner has taken.
    #[inline(always)]
    fn add_anchored(
        &self,
        owner: &mut Owner,
        held: HeldAnchor,
        (name, near): (Name, u32),
        (granule, mode): (u32, Mode),
    ) -> u32 {
        let position = owner.anchored.next_position();
        let index = owner.list().append_anchored(name, near, mode, position);
        owner.anchored.push(held, index, granule, mode);
        owner.lookup.mark_single(near);
        index
    }

    /// Handles any anchored request.
    pub(super) fn decide_anchored(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, anchor): (Name, &LockAnchor),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let near = name.near_hash();
        let found = self.find_remembered(owner, name, near);
        if let IndexMatch::Lock(index, held) = found {
            return match owner.list().anchored(index) {
                Some(at) => self.convert_anchored(worker, owner, at, mode, wait_mode),
                None => {
                    let (target, found) = ((name, Some(anchor)), (index, held));
                    self.request_remembered(worker, owner, target, found, mode, wait_mode)
                }
            };
        }
        let hash = name.hash() as u32;
        if let Some(at) = owner.locks.find(name, hash) {
            let is_held = match owner.locks.at(at).source {
                LockSource::Anchor => true,
                LockSource::Revoker => {
                    if !owner.locks.at(at).mode.covers(mode) {
                        self.queue_anchor(worker, name, anchor); // A7
                    }
                    true
                }
                LockSource::Request => self.confirm(worker, owner, at, anchor), // A6
            };
            if is_held {
                return self.request_held(worker, owner, at, mode, wait_mode);
            }
            self.release(worker, owner, name);
        }
        let granule = self.key_granule(near, name.space());
        let is_weak = mode.is_weak(Class::Key);
        if is_weak
            && granule.may_remember(|| Some(self.moment())) // D1, D9
            && self.remember(worker, owner, granule, (name, near), mode, found)
        {
            return Reply::Granted;
        }
        if wait_mode == WaitMode::Skip
            && let AnchorState::Held(other) = anchor.state()
            && mode_of(other).conflicts().intersects(mode.set())
        {
            return owner.skip(); // Nothing need become inflated for it.
        }
        owner.lookup.mark_seen(near);
        if !is_weak {
            self.enter_strong(worker, granule, &name, near);
        }
        let request = AnchoredRequest {
            name,
            near,
            anchor,
            mode,
            wait_mode,
        };
        self.request_at_queue(worker, owner, &request)
    }

    /// A6: true if the lock at `at`, which was granted without `anchor`, excludes what it should.
    /// If the anchor is queued, it will stay so until the lock is released.
    fn confirm(&self, worker: &Worker, owner: &mut Owner, at: usize, anchor: &LockAnchor) -> bool {
        let LockEntry {
            name,
            hash,
            slot,
            mode,
            ..
        } = *owner.locks.at(at);
        let state = self.real.with(worker, &name, hash, |entries| {
            let state = anchor.state();
            let is_beside = entries.has_conflict(&name, slot, mode);
            (!is_beside).then_some(state)
        });
        match state {
            Some(AnchorState::Queued | AnchorState::Inflated) => {
                owner.locks.set_source(at, LockSource::Anchor);
                true
            }
            // The record is gone. If there is another, its anchor comes next.
            Some(AnchorState::Dead) => true,
            Some(AnchorState::Free | AnchorState::Held(_)) | None => worker
                .failpoints()
                .misbehaves(&failpoint::GRANT_UNCONFIRMED),
        }
    }

    /// A3: requests a key that is not held, under the latch of its queue. A strong request is
    /// counted.
    #[inline(never)]
    fn request_at_queue(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        request: &AnchoredRequest<'_>,
    ) -> Reply {
        let &AnchoredRequest {
            name,
            near,
            anchor,
            mode,
            wait_mode,
        } = request;
        let is_weak = mode.is_weak(Class::Key);
        let me = owner.id().index();
        let may_hold = is_weak || !self.has_converted(worker, near);
        let granule = self.key_granule(near, name.space());
        owner.lookup.mark_single(near);
        let (mut taken, mut is_dead) = (None, false);
        let real = &self.real;
        let reply = real.request_if(
            worker,
            owner,
            (name, name.hash() as u32),
            (mode, wait_mode),
            |entries| {
                let wanted = may_hold.then_some(hold(me, mode));
                taken = take_or_queue(worker, entries, (name, anchor), wanted);
                is_dead = anchor.state() == AnchorState::Dead;
                taken.is_none()
            },
            |wait, wait_edges| {
                real.detector.check(real, worker, wait, wait_edges);
            },
        );
        let Some(reply) = reply else {
            let held = taken.expect("only a taken anchor needs no request");
            worker.account().passed(&ANCHOR);
            let number = self.granule_number(near, name.space());
            let index = self.add_anchored(owner, held, (name, near), (number, mode));
            count_entry(owner, index, 1);
            return Reply::Granted;
        };
        let source = match is_dead {
            true => LockSource::Request,
            false => LockSource::Anchor,
        };
        match reply {
            Reply::Waiting => {
                let pending = owner.pending.as_mut();
                pending.expect("a waiter has a pending wait").source = source;
                owner.lookup.close_fast_path();
            }
            Reply::Granted => {
                let at = owner.locks.last();
                owner.locks.set_source(at, source);
            }
            Reply::Refused(_) | Reply::Skipped if !is_weak => self.leave_strong(worker, granule),
            _ => {}
        }
        reply
    }

    /// A7: makes an anchor that this owner does not hold queued, because the owner's lock on the
    /// name is a converted one.
    pub(super) fn queue_anchor(&self, worker: &Worker, name: Name, anchor: &LockAnchor) {
        let hash = name.hash() as u32;
        let taken = self.real.with(worker, &name, hash, |entries| {
            take_or_queue(worker, entries, (name, anchor), None)
        });
        debug_assert!(taken.is_none(), "nothing was wanted");
    }

    /// A4: requests the key that is anchored at `position`, in another mode.
    #[inline(never)]
    pub(super) fn convert_anchored(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        position: u32,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let &AnchoredLock {
            index,
            granule,
            mode: held,
            ..
        } = owner.anchored.at(position);
        if held.covers(mode) {
            owner.re_asks += 1;
            return Reply::Held;
        }
        let target = held.supremum(mode);
        let granule = self.granule_at(granule);
        let name = owner.list().anchored_name(index);
        let near = name.near_hash();
        let counts = held.is_weak(Class::Key) && !target.is_weak(Class::Key);
        if counts {
            self.enter_strong(worker, granule, &name, near);
        }
        let me = owner.id().index();
        if !(counts && self.has_converted(worker, near))
            && owner.anchored.set_mode(position, me, target)
        {
            owner.list().set_anchored_mode(index, target);
            return Reply::Granted;
        }
        let at = self.move_to_queue(worker, owner, position);
        let reply = self.convert(worker, owner, at, mode, wait_mode);
        match reply {
            Reply::Waiting => owner.lookup.close_fast_path(),
            Reply::Refused(_) | Reply::Skipped if counts => self.leave_strong(worker, granule),
            _ => {}
        }
        reply
    }

    /// Moves an anchored lock to the queue of its name, and returns its index in `locks`.
    pub(super) fn move_to_queue(&self, worker: &Worker, owner: &mut Owner, position: u32) -> usize {
        let lock = owner.anchored.take(position);
        let (index, mode) = (lock.index, lock.mode);
        let (me, held) = (owner.id().index(), lock.into_held());
        let name = owner.list().anchored_name(index);
        let near = name.near_hash();
        let hash = name.hash() as u32;
        let slot = self.real.with(worker, &name, hash, |entries| {
            match held.enter_queue(hold(me, mode)) {
                true => entries.enter(&name, me, mode),
                false => entries.slot_of(&name, me),
            }
        });
        let order = owner.lookup.order_of(index);
        let is_older = owner.lookup.is_before_savepoint(index);
        self.take_back(worker, owner, (index, near), name);
        owner.lookup.uncount();
        match is_older {
            true => owner.locks.push_with_order((name, hash), slot, mode, order),
            false => owner.locks.push(name, hash, slot, mode),
        }
        let at = owner.locks.last();
        owner.locks.set_source(at, LockSource::Anchor);
        at
    }

    /// A8: moves the lock on `name` to its queue, if it is anchored. Returns false if another owner
    /// has a grant there that conflicts, and is not confirmed yet.
    pub(super) fn unanchor_lock(&self, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
        owner.assert_usable(&self.real.owners);
        if let IndexMatch::Lock(index, _) = self.find_remembered(owner, name, name.near_hash())
            && let Some(position) = owner.list().anchored(index)
        {
            self.move_to_queue(worker, owner, position);
        }
        let hash = name.hash() as u32;
        let Some(at) = owner.locks.find(name, hash) else {
            return true;
        };
        let LockEntry { slot, mode, .. } = *owner.locks.at(at);
        !self.real.with(worker, &name, hash, |entries| {
            entries.has_conflict(&name, slot, mode)
        })
    }

    /// A2: releases an anchored lock of the owner at `me`.
    #[inline(always)]
    pub(super) fn release_anchored(
        &self,
        worker: &Worker,
        (owner, me): (&Owner, u32),
        lock: AnchoredLock,
    ) {
        let AnchoredLock {
            index,
            granule,
            mode,
            ..
        } = lock;
        worker.account().passed(&ANCHOR);
        if let Err(held) = lock.release(me) {
            let name = owner.list().anchored_name(index);
            self.release_inflated(worker, (name, mode), me, held);
        }
        if !mode.is_weak(Class::Key) {
            self.leave_strong(worker, self.granule_at(granule));
        }
    }

    /// A2 for a lock that is in the queue of its name.
    #[cold]
    #[inline(never)]
    fn release_inflated(
        &self,
        worker: &Worker,
        (name, mode): (Name, Mode),
        me: u32,
        held: HeldAnchor,
    ) {
        let hash = name.hash() as u32;
        let mut wakes = Wakes::new();
        self.real.with(worker, &name, hash, |entries| {
            let slot = entries.slot_of(&name, me);
            let entry = LockEntry::detached(name, hash, slot, mode);
            self.real
                .release_lock_in(worker, entries, &entry, &mut wakes);
            held.leave(!entries.contains(&name));
        });
    }

    /// A2 for all anchored locks, whose entries were cleared.
    #[inline]
    pub(super) fn release_all_anchored(&self, worker: &Worker, owner: &mut Owner) {
        let me = owner.id().index();
        let mut locks = owner.anchored.take_all();
        for lock in locks.drain() {
            self.release_anchored(worker, (owner, me), lock);
        }
        owner.anchored.give_back(locks);
    }

    /// True if the granule that has this hash may have converted locks, for a strong request.
    #[inline(always)]
    fn has_converted(&self, worker: &Worker, near: u32) -> bool {
        self.converted(near).has_any()
            && !worker
                .failpoints()
                .misbehaves(&failpoint::CONVERTED_IGNORED)
    }

    /// Returns the converted locks of the granule that has this hash, and of some others.
    #[inline(always)]
    pub(super) fn converted(&self, near: u32) -> &Converted {
        &self.converted[near as usize % super::CONVERTED]
    }

    /// Converts a remembered lock of another owner, unless the granule is real: then the entry is
    /// not a lock (see "Why it is right").
    pub(super) fn convert_remembered(
        &self,
        worker: &Worker,
        (granule, owner_index): (&Granule, u32),
        (name, mode): (Name, Mode),
    ) -> Option<u32> {
        let converted = self.converted(name.near_hash());
        converted.add();
        let slot = match granule.is_real() {
            true => None,
            false => {
                let hash = name.hash() as u32;
                self.real.grant_to(worker, owner_index, name, hash, mode)
            }
        };
        if slot.is_none() {
            converted.remove();
        }
        slot
    }
}

/// A3 and A5, under the latch of the queue: makes the anchor held as `wanted`, and returns the
/// right to release it; or makes it queued or inflated, unless it is dead.
#[inline]
fn take_or_queue(
    worker: &Worker,
    entries: &mut BucketEntries,
    (name, anchor): (Name, &LockAnchor),
    wanted: Option<Hold>,
) -> Option<HeldAnchor> {
    let faults = worker.failpoints();
    loop {
        let taken = match (anchor.state(), wanted) {
            (AnchorState::Free, Some(wanted)) => anchor.hold(wanted),
            (AnchorState::Queued, Some(wanted))
                if !entries.contains(&name) || faults.misbehaves(&failpoint::QUEUE_IGNORED) =>
            {
                anchor.deflate(wanted) // A5
            }
            (AnchorState::Free, None) if anchor.queue() => return None,
            (AnchorState::Held(_), _) if faults.misbehaves(&failpoint::ANCHOR_IGNORED) => {
                return None;
            }
            (AnchorState::Held(other), _) if anchor.inflate(other) => {
                entries.enter(&name, other.owner, mode_of(other));
                return None;
            }
            // Its holder released it, or another owner took it.
            (AnchorState::Free | AnchorState::Held(_), _) => None,
            (AnchorState::Queued | AnchorState::Inflated | AnchorState::Dead, _) => return None,
        };
        if taken.is_some() {
            return taken;
        }
    }
}

/// Returns the mode of a hold.
fn mode_of(hold: Hold) -> Mode {
    Mode::of(Set::from_bits(hold.mode))
}
