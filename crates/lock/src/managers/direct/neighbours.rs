//! Requests for neighbouring keys: D12 and D15, and the keys of scans.

use super::Direct;
use super::acquire::count_entry;
use super::granule::Granule;
use super::grouping::Grouping;
use crate::{
    manager::LockManager,
    mode::Mode,
    name::{KeyBlock, Name},
    owner::{Owner, Scan, remembered::BlockBits, remembered_index::IndexMatch},
    request::{Reply, WaitMode},
};
use foxton_sync::{anchor::LockAnchor, worker::Worker};

/// Most blocks that `lock_range` locks at once. A longer range is requested key by key, because it
/// may be mostly holes.
const MAX_BLOCKS: u64 = 4;

impl<G: Grouping> Direct<G> {
    /// True if a scan may extend the block at `index` although the fast path is closed.
    #[inline(never)]
    pub(super) fn may_extend(&self, owner: &Owner, index: u32) -> bool {
        owner.assert_usable(&self.real.owners);
        index < owner.list().len() && !owner.lookup.is_before_savepoint(index)
    }

    /// Requests the next key of a scan, if it does not simply extend the block of the key before.
    #[inline(never)]
    pub(super) fn request_in_next_block(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        scan: &mut Scan,
        (name, anchor): (Name, Option<&LockAnchor>),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let block = name.block().filter(|_| mode.is_weak(name.class()));
        let Some((block, at)) = block else {
            return self.request_alone(worker, owner, (name, anchor), mode, wait_mode);
        };
        let hash = block.hash();
        let granule = self.key_granule(hash, block.space());
        // A scan looks at the time once for each block, and so brings the bias back.
        if let Some(anchor) = anchor
            && !granule.is_biased()
            && !(owner.lookup.is_new(hash) && granule.may_remember(|| Some(self.moment())))
        {
            return self.request_at_anchor(worker, owner, (name, anchor), mode, wait_mode);
        }
        if owner.lookup.is_fast_path_open(self.address)
            && granule.is_biased()
            && owner.lookup.insert_seen(hash)
        {
            let (list, lookup) = owner.list_and_lookup();
            if list.try_append_block(block, BlockBits::one(at, mode)) {
                lookup.count();
                self.fence.light_expedited();
                if !granule.is_biased() {
                    return self.recheck_bias(worker, owner, (name, anchor), mode, wait_mode);
                }
                scan.enter(list.len() - 1, block, hash);
                return Reply::Granted;
            }
        }
        // A key that may be held in `locks` is requested by itself (I2 of `remembered_index`).
        let alone = owner.lookup.may_have_single(hash) || owner.locks.is_out_of_orders();
        if alone || !granule.may_remember(|| Some(self.moment())) {
            return self.request_alone(worker, owner, (name, anchor), mode, wait_mode);
        }
        let bits = BlockBits::one(at, mode);
        let known = match self.find_remembered(owner, name, hash) {
            IndexMatch::Lock(index, _) => {
                scan.enter(index, block, hash);
                return self.request_alone(worker, owner, (name, anchor), mode, wait_mode); // Held already.
            }
            IndexMatch::Block(index) if !owner.lookup.is_before_savepoint(index) => Some(index),
            IndexMatch::Block(_) | IndexMatch::Nothing => None,
        };
        if !self.set_bits(worker, owner, granule, (block, hash), bits, known) {
            return self.request_alone(worker, owner, (name, anchor), mode, wait_mode); // D4
        }
        let index = known.unwrap_or_else(|| owner.list().len() - 1);
        scan.enter(index, block, hash);
        Reply::Granted
    }

    /// Requests a key of a scan as if there was no scan.
    #[inline(never)]
    fn request_alone(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, anchor): (Name, Option<&LockAnchor>),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        match anchor {
            Some(anchor) => self.request_anchored(worker, owner, (name, anchor), mode, wait_mode),
            None => self.request(worker, owner, name, mode, wait_mode),
        }
    }

    /// D12 and D15: sets `bits`, none of which is set, in the block that has the entry at `known`,
    /// or in a new entry. Returns false if not all of it is held.
    #[inline]
    fn set_bits(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        granule: &Granule,
        (block, hash): (KeyBlock, u32),
        bits: BlockBits,
        known: Option<u32>,
    ) -> bool {
        owner.lookup.mark_seen(hash);
        let list = owner.list();
        let (index, fresh) = match known {
            Some(index) => match list.extend_all(index, bits) {
                Some(fresh) => (index, fresh),
                None => return false,
            },
            None => (list.append_block(block, bits), bits), // D2
        };
        self.fence.light();
        // D3, D4
        let kept = granule.is_biased() || self.keep_converted(worker, owner, (index, hash), fresh);
        let keys = if kept { fresh.all().count_ones() } else { 0 };
        match known {
            Some(_) => owner.lookup.count_scanned(keys),
            None if owner.list().is_dead(index) => {}
            None => count_entry(owner, index, keys.max(1)),
        }
        kept
    }

    /// D15 for all blocks from that of `first` to that of `last`, if they are few.
    #[inline]
    pub(super) fn lock_blocks(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        first: Name,
        last: Name,
    ) -> bool {
        let (Some((low, from)), Some((high, to))) = (first.block(), last.block()) else {
            return false;
        };
        let span = high.base.wrapping_sub(low.base);
        if low.origin != high.origin || first > last || span >= 64 * MAX_BLOCKS {
            return false;
        }
        if owner.locks.is_out_of_orders() {
            return false; // A request for one of the keys renumbers.
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
                // The gap before the first key is not requested.
                true => BlockBits {
                    keys: below & u64::MAX << from,
                    gaps: below & (u64::MAX - 1) << from,
                },
                false => BlockBits {
                    keys: below,
                    gaps: below,
                },
            };
            if !self.lock_block(worker, owner, block, bits) {
                return false;
            }
            if is_last {
                return true;
            }
            block.base += 64;
        }
    }

    /// D15 for one block.
    #[inline]
    fn lock_block(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        block: KeyBlock,
        bits: BlockBits,
    ) -> bool {
        let hash = block.hash();
        let granule = self.key_granule(hash, block.space());
        if owner.lookup.may_have_single(hash) || !granule.may_remember(|| Some(self.moment())) {
            return false;
        }
        let known = match self.find_remembered(owner, block.name(0), hash) {
            IndexMatch::Lock(index, _) | IndexMatch::Block(index) => Some(index),
            IndexMatch::Nothing => None,
        };
        // A return to a savepoint releases single keys or whole entries; this would be neither.
        if known.is_some_and(|index| owner.lookup.is_before_savepoint(index)) {
            return false;
        }
        self.set_bits(worker, owner, granule, (block, hash), bits, known)
    }
}
