//! The shortest ways: D1, D2 and D12 for the most frequent requests. What they leave is for `ask`.

use super::{Direct, granule::Granule};
use crate::{
    mode::Mode,
    name::{Class, KeyBlock, Name},
    owner::{
        Owner,
        remembered::{BlockBits, ShareResult},
    },
};

/// What came of the shortest way.
pub(super) enum FastPathResult<'m> {
    /// The owner has it already.
    Held,
    /// An entry says so now (D2, D12), and this is the granule to look at for D3.
    Appended(&'m Granule),
}

/// D12 for a key whose block is that of the latest entry: what is asked for after its neighbour.
#[inline(never)]
fn share_neighbour(owner: &mut Owner, block: KeyBlock, bit: u64) -> Option<ShareResult> {
    let (list, lookup) = owner.list_and_lookup();
    // A key that may be held by itself is asked for by itself (I2 of `notes`).
    if lookup.may_have_single(block.hash()) {
        return None;
    }
    let shared = list.share_in_last(block, bit);
    if shared == Some(ShareResult::Now) {
        lookup.count();
    }
    shared
}

/// The shortest ways: nothing on them calls anything, but where a key is not the first of its block.
impl Direct {
    /// D1 and D2 for the most frequent requests: a short key, shared, in a granule that is biased, whose block
    /// is new to the owner or was the last to be new; and an intention on a table. `None`: nothing was done.
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

    /// The key of `block` with this bit.
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
        let granule = self.key_granule(hash);
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

    /// An intention on a table, which is new to the owner or among those asked for last.
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
            // Not if it is time to ask for all of it (D14).
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
        lookup.record_table(*name, mode); // Forgotten if the entry is taken back.
        Some(FastPathResult::Appended(granule))
    }
}
