//! Fast paths: D1, D2 and D12 for the most frequent requests. `acquire` handles the others.

use super::{Direct, granule::Granule, grouping::Grouping};
use crate::{
    mode::Mode,
    name::{Class, KeyBlock, Name},
    owner::{
        Owner,
        remembered::{BlockBits, ShareResult},
    },
};

/// Result of a fast path.
pub(super) enum FastPathResult<'m> {
    /// The owner holds the lock already.
    Held,
    /// The lock is in an entry now (D2, D12); D3 reads this granule.
    Appended(&'m Granule),
}

/// D12 for a key in the block of the latest entry, which is requested after its neighbour.
#[inline(never)]
fn share_neighbour(owner: &mut Owner, block: KeyBlock, bit: u64) -> Option<ShareResult> {
    let (list, lookup) = owner.list_and_lookup();
    // A key that may be held in `locks` is requested by itself (I2 of `remembered_index`).
    if lookup.may_have_single(block.hash()) {
        return None;
    }
    let shared = list.share_in_last(block, bit);
    if shared == Some(ShareResult::Now) {
        lookup.count();
    }
    shared
}

/// Fast paths, which call no function unless a key is not the first of its block.
impl<G: Grouping> Direct<G> {
    /// D1 and D2 for the most frequent requests. One is for S on a short key in a biased granule,
    /// whose block is new to the owner or was the latest new one. The other is for an intention on
    /// a table. Returns `None` if nothing was done.
    #[inline(always)]
    pub(super) fn try_remember(
        &self,
        owner: &mut Owner,
        name: &Name,
        mode: Mode,
    ) -> Option<FastPathResult<'_>> {
        match name.block_bit() {
            Some((block, bit)) if mode == Mode::S => self.share_fast(owner, block, bit),
            None if name.class() == Class::Table => self.intend_fast(owner, name, mode),
            _ => None,
        }
    }

    /// Shares the key of `block` with this bit.
    #[inline(always)]
    fn share_fast(
        &self,
        owner: &mut Owner,
        block: KeyBlock,
        bit: u64,
    ) -> Option<FastPathResult<'_>> {
        if !owner.lookup.is_fast_path_open(self.address) {
            return None;
        }
        let hash = block.hash();
        let granule = self.key_granule(hash, block.space());
        if !granule.is_biased() {
            return None;
        }
        if !owner.lookup.insert_seen(hash) {
            return match share_neighbour(owner, block, bit)? {
                ShareResult::Now => Some(FastPathResult::Appended(granule)),
                ShareResult::Already => Some(FastPathResult::Held),
            };
        }
        let (list, lookup) = owner.list_and_lookup();
        if !list.try_append_block(block, BlockBits { keys: bit, gaps: 0 }) {
            return None;
        }
        lookup.count();
        Some(FastPathResult::Appended(granule))
    }

    /// Records an intention on a table, which is new to the owner or among those requested last.
    #[inline(always)]
    fn intend_fast(
        &self,
        owner: &mut Owner,
        name: &Name,
        mode: Mode,
    ) -> Option<FastPathResult<'_>> {
        if !owner.lookup.is_fast_path_open(self.address) || !mode.is_weak(Class::Table) {
            return None;
        }
        if owner.lookup.is_table_held(name, mode) {
            // Not if the limits must be checked (D14).
            return (!owner.must_check_limits()).then_some(FastPathResult::Held);
        }
        let hash = name.hash() as u32;
        let granule = self.table_granule(hash);
        let (list, lookup) = owner.list_and_lookup();
        let noted = granule.is_biased()
            && lookup.insert_seen(hash)
            && list.try_append_lock(*name, hash, mode);
        if !noted {
            return None;
        }
        lookup.count();
        lookup.record_table(*name, mode); // Dropped if the entry is removed.
        Some(FastPathResult::Appended(granule))
    }
}
