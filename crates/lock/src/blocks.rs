//! The blocks of which an owner remembers keys: where each stands in its list.
//!
//! # State
//!
//! A block is one entry of the list (`remembered`) for up to sixty-four neighbouring keys. Here is what
//! the owner alone needs: which blocks it has, in the order of acquisition, with an index above
//! [`LINEAR`] of them; and a filter of the blocks of all keys that it holds one by one.
//!
//! # Invariants
//!
//! * I1  A block has at most one entry.
//! * I2  A key is held in its block, or among `held`, and not in both. So a block whose keys may be
//!   among those held one by one, by the filter, gets no more bits.

use crate::name::Block;
use hashbrown::HashTable;

/// Blocks that are walked rather than indexed.
const LINEAR: usize = 8;
/// Storage above this many is given back after a large transaction.
const KEPT: usize = 4096;

/// One block of an owner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) block: Block,
    /// Where it stands in the list.
    pub(crate) index: u32,
    /// When it was acquired.
    pub(crate) order: u32,
}

/// The blocks of one owner.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    places: Vec<Place>,
    index: HashTable<u32>,
    single: u64,
}

impl Blocks {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Place> {
        self.places.iter()
    }

    /// Where the entry of `block` stands in the list.
    pub(crate) fn find(&self, block: Block) -> Option<u32> {
        let places = &self.places;
        if places.len() <= LINEAR {
            let found = places.iter().find(|place| place.block == block);
            return found.map(|place| place.index);
        }
        let same = |&at: &u32| places[at as usize].block == block;
        let at = *self.index.find(spread(block), same)?;
        Some(places[at as usize].index)
    }

    pub(crate) fn push(&mut self, place: Place) {
        self.places.push(place);
        if self.places.len() > LINEAR {
            self.index_last();
        }
    }

    #[inline(never)]
    fn index_last(&mut self) {
        let places = &self.places;
        let last = places.len() - 1;
        let first = if last == LINEAR { 0 } else { last };
        for at in first..=last {
            let hash_of = |&at: &u32| spread(places[at as usize].block);
            let hash = spread(places[at].block);
            self.index.insert_unique(hash, at as u32, hash_of);
        }
    }

    /// Removes the last block if it was acquired at `since` or later.
    pub(crate) fn pop_since(&mut self, since: u32) -> Option<Place> {
        let last = *self.places.last().filter(|last| last.order >= since)?;
        let at = self.places.len() as u32 - 1;
        if let Ok(found) = self
            .index
            .find_entry(spread(last.block), |&other| other == at)
        {
            found.remove();
        }
        self.places.pop();
        if self.places.len() == LINEAR {
            self.index.clear();
        }
        Some(last)
    }

    /// Notes that a key of a block with this hash may be held by itself.
    #[inline(always)]
    pub(crate) fn note_single(&mut self, hash: u32) {
        self.single |= 1 << (hash >> 26);
    }

    /// Whether a key of a block with this hash may be held by itself.
    #[inline(always)]
    pub(crate) fn may_have_single(&self, hash: u32) -> bool {
        self.single & 1 << (hash >> 26) != 0
    }

    /// Forgets everything and keeps the storage.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.single = 0;
        if self.places.len() > LINEAR {
            self.clear_index();
        }
        self.places.clear();
    }

    #[inline(never)]
    fn clear_index(&mut self) {
        self.index.clear();
        if self.places.capacity() > KEPT {
            *self = Self::default();
        }
    }
}

fn spread(block: Block) -> u64 {
    u64::from(block.hash()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_until_they_go() {
        let mut blocks = Blocks::default();
        let block = |number: u32| Block {
            base: u64::from(number) << 6,
            origin: 0x0001_0108,
        };
        for number in 0..100 {
            blocks.push(Place {
                block: block(number),
                index: number * 2,
                order: number,
            });
            assert!((0..=number).all(|at| blocks.find(block(at)) == Some(at * 2)));
            assert_eq!(blocks.find(block(number + 1)), None);
        }
        for number in (5..100).rev() {
            assert_eq!(blocks.pop_since(5).map(|place| place.order), Some(number));
            assert_eq!(blocks.find(block(number)), None);
            assert_eq!(blocks.find(block(4)), Some(8));
        }
        assert!(blocks.pop_since(5).is_none());
        blocks.clear();
        assert!(blocks.is_empty());
    }
}
