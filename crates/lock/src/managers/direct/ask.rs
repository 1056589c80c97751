//! Asking: D1 to D9, and D12 to D15, for new names, for names that are held already, and for the
//! neighbours that a scan comes to.

use super::granule::Granule;
use super::{Direct, LIST, index_of};
use crate::{
    blocks::Place,
    manager::LockManager,
    mode::Mode,
    name::{Block, Name},
    owner::{Owner, Scan},
    remembered::{Bits, REMEMBERED, Remembered},
    request::{Patience, Reply},
};
use foxton_sync::worker::Worker;

/// Blocks of a range that are covered at once: a longer one is asked for key by key, for it may be
/// mostly holes.
const MOST_COVERED: u64 = 4;

/// Notes that the block at `index` is the owner's.
#[inline]
fn own(owner: &mut Owner, block: Block, index: u32) {
    let order = owner.held.skip_order();
    owner.blocks.push(Place {
        block,
        index,
        order,
    });
}

/// The same if any of it is left, after D4; otherwise it goes.
fn drop_or_own(owner: &mut Owner, block: Block, index: u32) {
    let list = owner.remembered();
    match list.bits(index).all() {
        0 => drop(list.take_block(index)),
        _ => own(owner, block, index),
    }
}

impl Direct {
    /// D4 in part, and every other moment at which one entry must be certain: takes it out of the
    /// list, and says in which slot it is real.
    pub(super) fn take_back(&self, worker: &Worker, list: &Remembered, index: u32) -> Option<u32> {
        worker.account().passed(&LIST);
        list.take_back(index)
    }

    /// D2 to D4, for a granule that was biased a moment ago. `false`: the lock is not held.
    #[inline]
    pub(super) fn remember(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (granule, granule_hash): (&Granule, u32),
        (name, hash): (Name, u32),
        mode: Mode,
    ) -> bool {
        let list = owner.remembered();
        let index = list.append(name, granule_hash, mode); // D2
        self.fence.light();
        let slot = if granule.is_biased() {
            REMEMBERED | index // D3
        } else {
            match self.take_back(worker, list, index) {
                Some(slot) => slot, // D4
                None => return false,
            }
        };
        owner.held.push(name, hash, slot, mode);
        true
    }

    /// A request for a name that is not held and is not to be remembered.
    #[inline(never)]
    pub(super) fn request_real(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, hash): (Name, u32),
        mode: Mode,
        patience: Patience,
    ) -> Reply {
        mode.assert_suits(&name);
        if self.escalation.is_due(owner) {
            self.escalate(worker, owner, name.parent()); // D14
        }
        let strong = !mode.is_weak(name.class());
        let granule = self.granule(&name, hash);
        if strong {
            self.enter(worker, granule, &name, hash);
        }
        let real = &self.real;
        let reply = real.request_new(
            worker,
            owner,
            (name, hash),
            mode,
            patience,
            |wait, reach| {
                real.detector.check(real, worker, wait, reach);
            },
        ); // D8
        if strong && matches!(reply, Reply::Refused(_)) {
            self.leave(worker, granule);
        }
        reply
    }

    /// A request for the name held at `at`.
    #[inline(never)]
    pub(super) fn request_again(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        at: usize,
        mode: Mode,
        patience: Patience,
    ) -> Reply {
        let held = *owner.held.at(at);
        if held.mode.covers(mode) {
            owner.re_asks += 1;
            if self.escalation.is_due(owner) {
                self.escalate(worker, owner, Some(held.name)); // D14
            }
            return Reply::Held;
        }
        let (target, class) = (held.mode.supremum(mode), held.name.class());
        let granule = self.granule(&held.name, held.hash);
        let remembered = index_of(&held);
        if let Some(index) = remembered
            && target.is_weak(class)
        {
            worker.account().passed(&LIST);
            let list = owner.remembered();
            // Under the latch no fence is needed: a revoker that missed the stronger mode had the
            // latch before, and counted itself in the granule before that.
            let tag = Self::granule_hash(&held.name, held.hash);
            if list.strengthen(index, tag, target, || granule.is_biased()) {
                owner.held.set_mode(at, target);
                return Reply::Granted;
            }
        }
        let counts = held.mode.is_weak(class) && !target.is_weak(class);
        let enters = counts || remembered.is_some();
        if enters {
            self.enter(worker, granule, &held.name, held.hash);
        }
        if let Some(index) = remembered {
            let slot = self.take_back(worker, owner.remembered(), index);
            let slot = slot.expect("I2: in a real granule a lock that is held is real");
            owner.held.set_slot(at, slot);
        }
        let real = &self.real;
        let reply = real.request_again(worker, owner, at, mode, patience, |wait, reach| {
            real.detector.check(real, worker, wait, reach);
        });
        if enters && (!counts || matches!(reply, Reply::Refused(_))) {
            self.leave(worker, granule);
        }
        reply
    }

    /// A request for a name that is held by the block, in the mode `found.2`.
    #[inline(never)]
    pub(super) fn request_in_block(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, hash): (Name, u32),
        (index, at, held): (u32, u32, Mode),
        mode: Mode,
        patience: Patience,
    ) -> Reply {
        if held.covers(mode) {
            owner.re_asks += 1;
            return Reply::Held;
        }
        let (target, class) = (held.supremum(mode), name.class());
        let granule = self.granule(&name, hash);
        worker.account().passed(&LIST);
        let list = owner.remembered();
        if target.is_weak(class) && list.strengthen_key(index, at, target, || granule.is_biased()) {
            return Reply::Granted;
        }
        // The key leaves its block for the locks that are held one by one, as a real one.
        self.enter(worker, granule, &name, hash);
        let slot = list.take_key(index, at);
        let slot = slot.expect("I2: in a real granule a lock that is held is real");
        owner.blocks.note_single(Self::granule_hash(&name, hash));
        owner.held.push(name, hash, slot, held);
        let (at, real) = (owner.held.last(), &self.real);
        let reply = real.request_again(worker, owner, at, mode, patience, |wait, reach| {
            real.detector.check(real, worker, wait, reach);
        });
        if target.is_weak(class) || matches!(reply, Reply::Refused(_)) {
            self.leave(worker, granule);
        }
        reply
    }

    /// A key that a scan has come to and that does not simply extend the block that it came from.
    #[inline(never)]
    pub(super) fn request_in_next_block(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        scan: &mut Scan,
        name: Name,
        mode: Mode,
        patience: Patience,
    ) -> Reply {
        let block = name.block().filter(|_| mode.is_weak(name.class()));
        let Some((block, at)) = block else {
            return self.request(worker, owner, name, mode, patience);
        };
        let hash = block.hash();
        let granule = self.key_granule(hash);
        // A key that may be held by itself is asked for by itself (I2 of `blocks`).
        if owner.blocks.may_have_single(hash) || !granule.invites(|| self.moment()) {
            return self.request(worker, owner, name, mode, patience);
        }
        let bits = Bits::one(at, mode);
        let known = owner.blocks.find(block);
        let list = owner.remembered();
        let index = match known {
            Some(index) => {
                scan.enter(index, block, hash);
                if !list.extend(scan.mark, at, bits) {
                    return self.request(worker, owner, name, mode, patience); // Held already.
                }
                index
            }
            None => list.append_block(block, hash, bits), // D2
        };
        self.fence.light();
        if !granule.is_biased() {
            worker.account().passed(&LIST);
            if !list.keep(index, bits) {
                if known.is_none() {
                    drop_or_own(owner, block, index);
                }
                return self.request(worker, owner, name, mode, patience); // D4
            }
        }
        if known.is_none() {
            scan.enter(index, block, hash);
            own(owner, block, index);
        }
        Reply::Granted
    }

    /// D15 for all blocks from that of `first` to that of `last`, if they are few.
    #[inline]
    pub(super) fn cover_blocks(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        first: Name,
        last: Name,
    ) -> bool {
        let (Some((low, from)), Some((high, to))) = (first.block(), last.block()) else {
            return false;
        };
        let reach = high.base.wrapping_sub(low.base) >> Block::shift(low.origin);
        if low.origin != high.origin || first > last || reach >= 64 * MOST_COVERED {
            return false;
        }
        let mut block = low;
        loop {
            let is_last = block == high;
            let below = if is_last {
                u64::MAX >> (63 - to)
            } else {
                u64::MAX
            };
            let bits = match block == low {
                // The gap before the first is not asked for.
                true => Bits {
                    keys: below & u64::MAX << from,
                    gaps: below & (u64::MAX - 1) << from,
                },
                false => Bits {
                    keys: below,
                    gaps: below,
                },
            };
            if !self.cover_block(worker, owner, block, bits) {
                return false;
            }
            if is_last {
                return true;
            }
            block.base += 64 << Block::shift(block.origin);
        }
    }

    /// D15 for one block.
    #[inline]
    fn cover_block(&self, worker: &Worker, owner: &mut Owner, block: Block, bits: Bits) -> bool {
        let hash = block.hash();
        let granule = self.key_granule(hash);
        if owner.blocks.may_have_single(hash) || !granule.invites(|| self.moment()) {
            return false;
        }
        let known = owner.blocks.find(block);
        let list = owner.remembered();
        let (index, fresh) = match known {
            Some(index) => match list.extend_all(index, bits) {
                Some(fresh) => (index, fresh),
                None => return false,
            },
            None => (list.append_block(block, hash, bits), bits), // D2
        };
        self.fence.light();
        if granule.is_biased() {
            if known.is_none() {
                own(owner, block, index);
            }
            return true; // D3
        }
        worker.account().passed(&LIST);
        let kept = list.keep(index, fresh); // D4
        if known.is_none() {
            drop_or_own(owner, block, index);
        }
        kept
    }
}
