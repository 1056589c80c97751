//! One entry of a list of remembered locks: a lock, or a block of keys. Its words are drawn on the
//! first page of [`remembered`](super).

use crate::{
    mode::{Mode, Set},
    name::{Block, Name},
};
use foxton_sync::shim::{AtomicU64, Ordering};

const MODE_SHIFT: u32 = 48;
pub(super) const TAG_SHIFT: u32 = 56;
pub(super) const ORIGIN: u64 = (1 << MODE_SHIFT) - 1;

/// In the place of the mode: the entry is a block.
pub(super) const BLOCK: u64 = 0xff;

#[derive(Default)]
#[repr(align(32))]
pub(super) struct Entry([AtomicU64; 4]);

/// The bits of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bits {
    pub(crate) keys: u64,
    pub(crate) gaps: u64,
}

impl Bits {
    /// The key at `at` in `mode`, which is weak.
    #[inline(always)]
    pub(crate) fn one(at: u32, mode: Mode) -> Self {
        let (key, gap) = mode.shares();
        Self {
            keys: u64::from(key) << at,
            gaps: u64::from(gap) << at,
        }
    }

    #[inline(always)]
    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            keys: self.keys | other.keys,
            gaps: self.gaps | other.gaps,
        }
    }

    /// Those of the keys in `mask`.
    #[inline(always)]
    pub(crate) fn only(self, mask: u64) -> Self {
        Self {
            keys: self.keys & mask,
            gaps: self.gaps & mask,
        }
    }

    pub(super) fn without(self, at: u32) -> Self {
        Self {
            keys: self.keys & !(1 << at),
            gaps: self.gaps & !(1 << at),
        }
    }

    /// In which mode the key at `at` is held.
    #[inline(always)]
    pub(crate) fn mode(self, at: u32) -> Option<Mode> {
        Mode::sharing(self.keys >> at & 1 != 0, self.gaps >> at & 1 != 0)
    }

    /// Keys that are held in any way.
    pub(crate) fn all(self) -> u64 {
        self.keys | self.gaps
    }

    pub(super) fn modes(self) -> impl Iterator<Item = (u32, Mode)> {
        (0..64).filter_map(move |at| Some((at, self.mode(at)?)))
    }
}

impl Entry {
    #[inline(always)]
    pub(super) fn write(&self, [head, tail, third]: [u64; 3]) {
        // Relaxed: published by the count (O1).
        self.0[0].store(head, Ordering::Relaxed);
        self.0[1].store(tail, Ordering::Relaxed);
        self.0[2].store(third, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn third(&self) -> u64 {
        self.0[2].load(Ordering::Relaxed)
    }

    /// Gives a lock another mode, or ends it.
    pub(super) fn set_third(&self, third: u64) {
        // Relaxed: under the latch.
        self.0[2].store(third, Ordering::Relaxed);
    }

    fn mode_bits(&self) -> u64 {
        self.third() >> MODE_SHIFT & 0xff
    }

    /// The lock that stands here, unless it is dead or a block.
    pub(super) fn lock(&self) -> Option<(Name, Mode)> {
        let third = self.third();
        let mode = self.mode_bits();
        let [head, tail] = [0, 1].map(|at: usize| self.0[at].load(Ordering::Relaxed));
        let name = Name::from_words([head, tail, third & ORIGIN]);
        let is_lock = mode != 0 && mode != BLOCK;
        is_lock.then(|| (name, Mode::of(Set::from_bits(mode as u8))))
    }

    /// The block that stands here, if one does.
    pub(super) fn block(&self) -> Option<(Block, Bits)> {
        let block = Block {
            base: self.0[0].load(Ordering::Relaxed),
            origin: self.third() & ORIGIN,
        };
        (self.mode_bits() == BLOCK).then(|| (block, self.bits()))
    }

    #[inline(always)]
    pub(super) fn bits(&self) -> Bits {
        Bits {
            keys: self.0[1].load(Ordering::Relaxed),
            gaps: self.0[3].load(Ordering::Relaxed),
        }
    }

    #[inline(always)]
    pub(super) fn set_bits(&self, bits: Bits) {
        // Relaxed: the fence after it, or the latch, is what a revoker goes by.
        self.0[1].store(bits.keys, Ordering::Relaxed);
        self.0[3].store(bits.gaps, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn extend(&self, mark: Mark, at: u32, fresh: Bits) -> bool {
        let bits = self.bits();
        let same = self.third() == mark.third && self.0[0].load(Ordering::Relaxed) == mark.base;
        let extends = same && bits.all() >> at & 1 == 0;
        if extends {
            self.set_bits(bits.union(fresh));
        }
        extends
    }

    /// Everything that stands here.
    pub(super) fn locks(&self) -> impl Iterator<Item = (Name, Mode)> {
        let in_block = self.block().into_iter();
        let in_block = in_block
            .flat_map(|(block, bits)| bits.modes().map(move |(at, mode)| (block.name(at), mode)));
        self.lock().into_iter().chain(in_block)
    }
}

/// The third word of an entry. The tag is the low bits of the hash, so that a revoker passes over most
/// entries that are not its own without working their hashes out.
#[inline(always)]
pub(super) fn third(origin: u64, mode: u64, hash: u32) -> u64 {
    u64::from(hash as u8) << TAG_SHIFT | mode << MODE_SHIFT | origin
}

#[inline(always)]
pub(super) fn mode_bits(mode: Mode) -> u64 {
    u64::from(mode.set().bits())
}

/// A block for whoever sets bit after bit: where it stands, and what stands there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) index: u32,
    pub(crate) base: u64,
    pub(super) third: u64,
}

impl Mark {
    /// No block: no name has this origin.
    pub(crate) const NONE: Self = Self {
        index: 0,
        base: 0,
        third: ORIGIN,
    };

    pub(crate) fn new(index: u32, block: Block, hash: u32) -> Self {
        Self {
            index,
            base: block.base,
            third: third(block.origin, BLOCK, hash),
        }
    }

    /// The origin of the keys of the block.
    #[inline(always)]
    pub(crate) fn origin(&self) -> u64 {
        self.third & ORIGIN
    }
}
