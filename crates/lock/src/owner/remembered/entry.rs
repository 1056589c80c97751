//! Entry of a list of remembered locks: a lock, or a block of keys. Its words are drawn on the
//! first page of [`remembered`](super).

use crate::{
    mode::{Mode, Set},
    name::{KeyBlock, Name},
};
use foxton_sync::shim::{AtomicU64, Ordering};

const MODE_SHIFT: u32 = 48;
pub(super) const TAG_SHIFT: u32 = 56;
pub(super) const ORIGIN: u64 = (1 << MODE_SHIFT) - 1;

#[derive(Default)]
#[repr(align(32))]
pub(super) struct RememberedEntry([AtomicU64; 4]);

/// Bits of a block: shared keys and shared gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BlockBits {
    pub(crate) keys: u64,
    pub(crate) gaps: u64,
}

impl BlockBits {
    /// Returns the bits of the key at `at` in `mode`, which is weak.
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

    /// Returns the bits of the keys in `mask`.
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

    /// Returns the mode in which the key at `at` is held.
    #[inline(always)]
    pub(crate) fn mode(self, at: u32) -> Option<Mode> {
        Mode::sharing(self.keys >> at & 1 != 0, self.gaps >> at & 1 != 0)
    }

    /// Returns the keys that are held in any way.
    pub(crate) fn all(self) -> u64 {
        self.keys | self.gaps
    }

    pub(super) fn modes(self) -> impl DoubleEndedIterator<Item = (u32, Mode)> {
        (0..64).filter_map(move |at| Some((at, self.mode(at)?)))
    }
}

impl RememberedEntry {
    #[inline(always)]
    pub(super) fn write_lock(&self, name: Name, hash: u32, mode: Mode) {
        let [head, tail, origin] = name.words();
        self.write([head, tail, pack_meta(origin, mode_bits(mode), hash), 0]);
    }

    /// Writes an anchored lock, which is at `position` of its owner's list of them.
    #[inline(always)]
    pub(super) fn write_anchored(&self, name: Name, hash: u32, mode: Mode, position: u32) {
        let [head, tail, origin] = name.words();
        let meta = pack_meta(origin, mode_bits(mode), hash);
        self.write([head, tail, meta, 1 + u64::from(position)]);
    }

    /// Returns the position of an anchored lock in its owner's list of them, if this is one.
    #[inline(always)]
    pub(super) fn anchored(&self) -> Option<u32> {
        let position = self.0[3].load(Ordering::Relaxed).checked_sub(1)?;
        (self.mode_bits() != 0).then_some(position as u32)
    }

    #[inline(always)]
    pub(super) fn write_block(&self, block: KeyBlock, bits: BlockBits) {
        self.write([block.base, bits.keys, block.origin, bits.gaps]);
    }

    #[inline(always)]
    fn write(&self, words: [u64; 4]) {
        for (word, value) in self.0.iter().zip(words) {
            // Relaxed: published by the count (O1).
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub(super) fn meta(&self) -> u64 {
        self.0[2].load(Ordering::Relaxed)
    }

    /// Sets the word with the mode; 0 marks the entry dead.
    pub(super) fn set_meta(&self, meta: u64) {
        // Relaxed: under the latch.
        self.0[2].store(meta, Ordering::Relaxed);
    }

    fn mode_bits(&self) -> u64 {
        self.meta() >> MODE_SHIFT & 0xff
    }

    /// Returns the lock, unless the entry is dead or a block.
    pub(super) fn lock(&self) -> Option<(Name, Mode)> {
        let meta = self.meta();
        let mode = self.mode_bits();
        let [head, tail] = [0, 1].map(|at: usize| self.0[at].load(Ordering::Relaxed));
        let name = Name::from_words([head, tail, meta & ORIGIN]);
        (mode != 0).then(|| (name, Mode::of(Set::from_bits(mode as u8))))
    }

    /// Returns the block, if the entry is one: a block has no mode, and a dead entry has no origin.
    #[inline(always)]
    pub(super) fn block(&self) -> Option<(KeyBlock, BlockBits)> {
        let meta = self.meta();
        let block = KeyBlock {
            base: self.0[0].load(Ordering::Relaxed),
            origin: meta,
        };
        (meta != 0 && meta & !ORIGIN == 0).then(|| (block, self.bits()))
    }

    /// True if this is the entry of `block`.
    #[inline(always)]
    pub(super) fn is_block(&self, block: KeyBlock) -> bool {
        self.0[0].load(Ordering::Relaxed) == block.base && self.meta() == block.origin
    }

    /// Returns the mode of the lock, if it is a lock on `name`.
    #[inline(always)]
    pub(super) fn mode_of(&self, name: Name) -> Option<Mode> {
        let origin = name.words()[2];
        let other = (self.meta() ^ origin) & ORIGIN != 0;
        let found = if other { None } else { self.lock() };
        found.filter(|lock| lock.0 == name).map(|lock| lock.1)
    }

    #[inline(always)]
    pub(super) fn bits(&self) -> BlockBits {
        BlockBits {
            keys: self.0[1].load(Ordering::Relaxed),
            gaps: self.0[3].load(Ordering::Relaxed),
        }
    }

    #[inline(always)]
    pub(super) fn set_bits(&self, bits: BlockBits) {
        // Relaxed: a revoker relies on the fence that follows, or on the latch.
        self.0[1].store(bits.keys, Ordering::Relaxed);
        self.0[3].store(bits.gaps, Ordering::Relaxed);
    }

    /// Sets `fresh`, bits of the key at `at`, if this is the block of `position` and no bit of the
    /// key is set.
    #[inline(always)]
    pub(super) fn extend(&self, position: BlockPosition, at: u32, fresh: BlockBits) -> bool {
        let bits = self.bits();
        let extends = self.is_block(position.block) && bits.all() >> at & 1 == 0;
        if extends {
            self.set_bits(bits.union(fresh));
        }
        extends
    }

    /// Shares the key with the bit `bit`, unless its gap is held.
    #[inline(always)]
    pub(super) fn share(&self, bit: u64) -> Option<ShareResult> {
        let BlockBits { keys, gaps } = self.bits();
        if keys & bit != 0 {
            return Some(ShareResult::Already);
        }
        // I5
        (gaps & bit == 0).then(|| {
            // Relaxed: as in `set_bits`.
            self.0[1].store(keys | bit, Ordering::Relaxed);
            ShareResult::Now
        })
    }

    /// Returns where the names of the entry belong.
    #[inline(always)]
    pub(super) fn place(&self) -> EntryPlace {
        let meta = self.meta();
        let (hash, known) = match self.block() {
            Some((block, _)) => (block.hash(), u32::MAX),
            None => ((meta >> TAG_SHIFT) as u32, u32::from(u8::MAX)),
        };
        EntryPlace {
            space: ((meta & ORIGIN) >> 16) as u32,
            hash,
            known,
        }
    }

    /// Returns all locks of the entry.
    pub(super) fn locks(&self) -> impl DoubleEndedIterator<Item = (Name, Mode)> {
        let in_block = self.block().into_iter();
        let in_block = in_block
            .flat_map(|(block, bits)| bits.modes().map(move |(at, mode)| (block.name(at), mode)));
        self.lock().into_iter().chain(in_block)
    }
}

/// Packs the third word of a lock. The tag is the low bits of the hash, so a revoker skips most
/// foreign entries without computing their hashes.
#[inline(always)]
pub(super) fn pack_meta(origin: u64, mode: u64, hash: u32) -> u64 {
    u64::from(hash as u8) << TAG_SHIFT | mode << MODE_SHIFT | origin
}

#[inline(always)]
pub(super) fn mode_bits(mode: Mode) -> u64 {
    u64::from(mode.set().bits())
}

/// Where the names of an entry belong, as far as the entry shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryPlace {
    /// Number of the table.
    pub(crate) space: u32,
    /// Hash of the block or the name, in the bits of `known`.
    pub(crate) hash: u32,
    pub(crate) known: u32,
}

/// Result of sharing a key in an existing block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShareResult {
    /// The key is shared from now on.
    Now,
    /// The key was shared before.
    Already,
}

/// Block and the index of its entry, for setting bit after bit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockPosition {
    pub(crate) index: u32,
    pub(crate) block: KeyBlock,
}

impl BlockPosition {
    pub(crate) const NONE: Self = Self {
        index: 0,
        block: KeyBlock::NONE,
    };
}
