//! Remembered locks of one owner: a list to which the owner appends alone, and which revokers may
//! read.
//!
//! The list is one side of a protocol; the other side is `managers/direct`. That page argues why an
//! entry that no revoker has read is as good as a lock. `remembered_index` holds what the owner
//! alone needs to find its entries again.
//!
//! # State
//!
//! The list has entries of four words in chunks that never move, and a count. Behind a latch it has
//! the slot of each lock that a revoker has converted into a real lock. An entry is one lock: its
//! name, with the mode and a tag in the bits that a name leaves free. Or it is a *block* of up to
//! sixty-four neighbouring keys, with one bit for each shared key and one for each shared gap. Or
//! it is an *anchored* lock, which is real, and here only so that others see it.
//!
//! ```text
//!            0        1              2: 63   56 55     48 47       0   3
//! lock       head     tail              tag     mode      origin
//! anchored   head     tail              tag     mode      origin      position + 1
//! block      base     keys shared       0       0         origin      gaps shared
//! dead                                  0       0         0
//! ```
//!
//! # Invariants
//!
//! * I1  Entries below the count are whole. A dead entry was removed while later entries existed.
//! * I2  Only the owner appends and clears, without the latch. All other changes happen under the
//!   latch, by the owner or by a revoker.
//! * I3  A name has a slot exactly from its conversion until it is removed, or until all converted
//!   locks are taken. `any_converted` is set if any name has a slot.
//! * I4  While a revoker has the latch, the entries that it counted stay, because the owner does
//!   not clear the list without the latch then. The protocol ensures this, not this file.
//! * I5  Only the owner writes the bits of a block: without the latch if neither bit of the key was
//!   set, and otherwise under it.
//! * I6  No anchored lock has a slot here: it is real, and its anchor says where.
//!
//! # Orderings
//!
//! * O1  `append` and `clear` (Release) to `count` of a revoker (Acquire). A revoker that counts an
//!   entry reads it whole. A revoker that finds it cleared comes after everything that the owner
//!   did under the lock.

mod entry;

use crate::{
    mode::Mode,
    name::{KeyBlock, Name},
};
use entry::{ORIGIN, RememberedEntry, TAG_SHIFT, mode_bits, pack_meta};
use foxton_sync::{
    cache_line::CachePadded,
    shim::{AtomicBool, AtomicU32, Mutex, Ordering, lock},
};
use std::{collections::HashMap, fmt, sync::OnceLock};

pub(crate) use entry::{BlockBits, BlockPosition, EntryPlace, ShareResult};

/// Entries of the first chunk, which always exists; each further chunk has twice as many as the one
/// before.
pub(crate) const FIRST: usize = match () {
    _ if cfg!(loom) => 2,
    // So that histories reach further chunks, and the large atomics of a model fit its small
    // stacks.
    _ if cfg!(shuttle) => 8,
    _ => 128,
};
/// Enough chunks for 2^31 entries.
const CHUNKS: usize = 24;

/// Converted locks: the slot and the mode of each real lock.
pub(crate) type ConvertedLocks = HashMap<Name, (u32, Mode)>;

/// Remembered locks of one owner.
pub(crate) struct RememberedLocks {
    first: [RememberedEntry; FIRST],
    count: AtomicU32,
    /// True if an entry may have been converted.
    any_converted: AtomicBool,
    more: [OnceLock<Box<[RememberedEntry]>>; CHUNKS],
    converted: CachePadded<Mutex<ConvertedLocks>>,
}

impl Default for RememberedLocks {
    fn default() -> Self {
        Self {
            first: std::array::from_fn(|_| RememberedEntry::default()),
            count: AtomicU32::new(0),
            any_converted: AtomicBool::new(false),
            more: std::array::from_fn(|_| OnceLock::new()),
            converted: CachePadded::new(Mutex::default()),
        }
    }
}

impl fmt::Debug for RememberedLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remembered")
            .field("count", &self.len())
            .finish_non_exhaustive()
    }
}

/// Operations of the owner, without the latch.
impl RememberedLocks {
    /// Returns the number of entries, dead ones included. Exact for the owner; a hint for other
    /// threads.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// True if there are no entries. After the revoker's fence that is final.
    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Adds a block, if it fits among the [`FIRST`] entries.
    #[inline(always)]
    pub(crate) fn try_append_block(&self, block: KeyBlock, bits: BlockBits) -> bool {
        let index = self.len();
        let entry = self.first.get(index as usize);
        if let Some(entry) = entry {
            entry.write_block(block, bits);
            self.count.store(index + 1, Ordering::Release); // O1
        }
        entry.is_some()
    }

    /// As [`try_append_block`](Self::try_append_block), for a lock.
    #[inline(always)]
    pub(crate) fn try_append_lock(&self, name: Name, hash: u32, mode: Mode) -> bool {
        let index = self.len();
        let entry = self.first.get(index as usize);
        if let Some(entry) = entry {
            entry.write_lock(name, hash, mode);
            self.count.store(index + 1, Ordering::Release); // O1
        }
        entry.is_some()
    }

    /// Adds a lock that is anchored, at `position` of the owner's list of those, and returns its
    /// index.
    #[inline(always)]
    pub(crate) fn append_anchored(&self, name: Name, hash: u32, mode: Mode, position: u32) -> u32 {
        self.add(|entry| entry.write_anchored(name, hash, mode, position))
    }

    /// Returns the position of the lock at `index` in the owner's list of anchored locks, if it is
    /// anchored.
    #[inline(always)]
    pub(crate) fn anchored(&self, index: u32) -> Option<u32> {
        self.entry(index).anchored()
    }

    /// Sets the mode of the anchored lock at `index`.
    pub(crate) fn set_anchored_mode(&self, index: u32, mode: Mode) {
        let entry = self.entry(index);
        let former = entry.meta();
        let tag = (former >> TAG_SHIFT) as u32;
        // One word, so that a reader sees either mode.
        entry.set_meta(pack_meta(former & ORIGIN, mode_bits(mode), tag));
    }

    /// Returns the name of the anchored lock at `index`, which may have been cleared since, but not
    /// overwritten.
    pub(crate) fn anchored_name(&self, index: u32) -> Name {
        let (name, _) = self
            .entry(index)
            .lock()
            .expect("I6: an anchored lock is a lock");
        name
    }

    /// Shares the key with the bit `bit` in the latest entry, if that is the entry of `block`, is
    /// among the [`FIRST`], and the key's gap is not held.
    #[inline(always)]
    pub(crate) fn share_in_last(&self, block: KeyBlock, bit: u64) -> Option<ShareResult> {
        let index = self.len().wrapping_sub(1);
        let entry = self.first.get(index as usize)?;
        let found = entry.is_block(block);
        found.then(|| entry.share(bit))?
    }

    /// Adds a lock and returns its index.
    pub(crate) fn append(&self, name: Name, hash: u32, mode: Mode) -> u32 {
        self.add(|entry| entry.write_lock(name, hash, mode))
    }

    /// Adds a block and returns its index.
    pub(crate) fn append_block(&self, block: KeyBlock, bits: BlockBits) -> u32 {
        self.add(|entry| entry.write_block(block, bits))
    }

    #[inline(always)]
    fn add(&self, write: impl FnOnce(&RememberedEntry)) -> u32 {
        let index = self.len();
        write(self.entry(index));
        self.count.store(index + 1, Ordering::Release); // O1
        index
    }

    /// Sets bits of the key at `at`, none of which was set, in a block that still exists. Returns
    /// false if nothing was done.
    #[inline(always)]
    pub(crate) fn extend(&self, position: BlockPosition, at: u32, fresh: BlockBits) -> bool {
        let Some(entry) = self.first.get(position.index as usize) else {
            return self.extend_further(position, at, fresh);
        };
        position.index < self.len() && entry.extend(position, at, fresh)
    }

    #[inline(never)]
    fn extend_further(&self, position: BlockPosition, at: u32, fresh: BlockBits) -> bool {
        position.index < self.len() && self.entry(position.index).extend(position, at, fresh)
    }

    /// Sets those of `bits` that are not set in the block at `index`, unless some key has only one
    /// of its two bits set and would need the other. Returns the bits that were set.
    pub(crate) fn extend_all(&self, index: u32, bits: BlockBits) -> Option<BlockBits> {
        let entry = self.entry(index);
        let former = entry.bits();
        let fresh = bits.only(!former.all());
        let all = former.union(fresh);
        // I5
        (all == all.union(bits)).then(|| {
            entry.set_bits(all);
            fresh
        })
    }

    /// Returns the bits of the block at `index`, as its owner knows them.
    #[inline(always)]
    pub(crate) fn bits(&self, index: u32) -> BlockBits {
        self.entry(index).bits()
    }

    /// True if the entry at `index` is the entry of `block`.
    #[inline(always)]
    pub(crate) fn is_block(&self, index: u32, block: KeyBlock) -> bool {
        self.entry(index).is_block(block)
    }

    /// Returns the mode of the lock at `index`, if it is a lock on `name`.
    #[inline(always)]
    pub(crate) fn mode_of(&self, index: u32, name: Name) -> Option<Mode> {
        self.entry(index).mode_of(name)
    }

    /// Returns the hash by which the entry at `index` is found.
    pub(crate) fn hash_of(&self, index: u32) -> u32 {
        let entry = self.entry(index);
        match (entry.block(), entry.lock()) {
            (Some((block, _)), _) => block.hash(),
            (None, Some((name, _))) => name.near_hash(),
            (None, None) => 0,
        }
    }

    /// True if the entry at `index` is dead.
    pub(crate) fn is_dead(&self, index: u32) -> bool {
        index >= self.len() || self.entry(index).meta() == 0
    }

    /// Returns the locks of the entry at `index`.
    pub(crate) fn locks(&self, index: u32) -> impl DoubleEndedIterator<Item = (Name, Mode)> {
        self.entry(index).locks()
    }

    /// Removes all entries. Converted ones have to be taken then.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.count.store(0, Ordering::Release); // O1
    }

    /// True if some entry was converted. Exact for a thread that knows that no revoker is running.
    #[inline(always)]
    pub(crate) fn may_have_converted(&self) -> bool {
        // Relaxed: the end of a revocation orders it.
        self.any_converted.load(Ordering::Relaxed)
    }

    #[inline(never)]
    fn further(&self, index: u32) -> &RememberedEntry {
        let (chunk, at) = chunk_of(index);
        let size = FIRST << chunk;
        &self.more[chunk - 1]
            .get_or_init(|| (0..size).map(|_| RememberedEntry::default()).collect())[at]
    }

    #[inline(always)]
    fn entry(&self, index: u32) -> &RememberedEntry {
        match self.first.get(index as usize) {
            Some(entry) => entry,
            None => self.further(index),
        }
    }
}

/// Operations under the latch.
impl RememberedLocks {
    /// Removes `name` from the entry at `index`. If it was converted, returns the slot of the real
    /// lock.
    pub(crate) fn remove(&self, index: u32, name: Name) -> Option<u32> {
        let mut converted = lock(&self.converted);
        let entry = self.entry(index);
        match (entry.block(), name.block()) {
            (Some((_, bits)), Some((_, at))) => self.set_bits(index, bits.without(at)),
            _ => self.mark_dead(index),
        }
        converted.remove(&name).map(|(slot, _)| slot)
    }

    /// Under the latch: sets the bits of the block at `index`, and marks it dead if no bit is left.
    fn set_bits(&self, index: u32, bits: BlockBits) {
        self.entry(index).set_bits(bits);
        if bits.all() == 0 {
            self.mark_dead(index);
        }
    }

    /// Under the latch: marks the entry at `index` dead, and drops dead entries at the end.
    fn mark_dead(&self, index: u32) {
        let mut count = self.len();
        self.entry(index).set_meta(0);
        while count > 0 && self.entry(count - 1).meta() == 0 {
            count -= 1;
        }
        // Relaxed: a revoker counts under the latch.
        self.count.store(count, Ordering::Relaxed);
    }

    /// Gives `name`, in the entry at `index`, a stronger mode, if it was not converted and
    /// `allowed` returns true after the change. Otherwise restores the former mode.
    pub(crate) fn strengthen(
        &self,
        index: u32,
        name: Name,
        mode: Mode,
        allowed: impl FnOnce() -> bool,
    ) -> bool {
        let converted = lock(&self.converted);
        let entry = self.entry(index);
        if converted.contains_key(&name) {
            return false;
        }
        match (entry.block(), name.block()) {
            (Some((_, former)), Some((_, at))) => {
                entry.set_bits(former.union(BlockBits::one(at, mode)));
                let allowed = allowed();
                if !allowed {
                    entry.set_bits(former);
                }
                allowed
            }
            _ => {
                let former = entry.meta();
                let word = pack_meta(
                    former & ORIGIN,
                    mode_bits(mode),
                    (former >> TAG_SHIFT) as u32,
                );
                entry.set_meta(word);
                let allowed = allowed();
                if !allowed {
                    entry.set_meta(former);
                }
                allowed
            }
        }
    }

    /// Returns true if all of `fresh` was converted, and clears the bits that were not. `fresh` are
    /// bits of the block at `index` that were just set, each where neither bit of the key was set
    /// before.
    pub(crate) fn retain_converted(&self, index: u32, fresh: BlockBits) -> bool {
        let converted = lock(&self.converted);
        let Some((block, mut bits)) = self.entry(index).block() else {
            return false;
        };
        let mut all = true;
        for (at, mode) in fresh.modes() {
            let real = converted.get(&block.name(at)).map(|&(_, mode)| mode);
            if real != Some(mode) {
                all = false;
                bits = bits.without(at);
                // A revoker may have read between the two words.
                bits = real.map_or(bits, |mode| bits.union(BlockBits::one(at, mode)));
            }
        }
        self.set_bits(index, bits);
        all
    }

    /// Removes the entry at `index`, and returns its locks that are real.
    pub(crate) fn remove_entry(&self, index: u32) -> Vec<(Name, u32, Mode)> {
        let mut converted = lock(&self.converted);
        let names: Vec<_> = self.entry(index).locks().collect();
        self.mark_dead(index);
        let real = names.into_iter().filter_map(|(name, _)| {
            let (slot, mode) = converted.remove(&name)?;
            Some((name, slot, mode))
        });
        real.collect()
    }

    /// Takes all converted locks, after [`clear`](Self::clear). From now on no entry counts as
    /// converted.
    pub(crate) fn take_converted(&self) -> ConvertedLocks {
        let mut converted = lock(&self.converted);
        self.any_converted.store(false, Ordering::Relaxed);
        std::mem::take(&mut *converted)
    }

    /// Calls `convert` with each lock that is not converted; if it returns a slot, the lock is
    /// converted. Entries for whose place `is_wanted` is false are skipped.
    pub(crate) fn revoke(
        &self,
        is_wanted: impl Fn(EntryPlace) -> bool,
        mut convert: impl FnMut(Name, Mode) -> Option<u32>,
    ) {
        let mut converted = lock(&self.converted);
        for index in 0..self.count() {
            let entry = self.entry(index);
            if entry.anchored().is_some() {
                continue; // I6
            }
            if !is_wanted(entry.place()) {
                continue;
            }
            for (name, mode) in entry.locks() {
                if !converted.contains_key(&name)
                    && let Some(slot) = convert(name, mode)
                {
                    converted.insert(name, (slot, mode));
                    self.any_converted.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// Returns all locks that are not converted, each with whether it is anchored, and the result
    /// of `owner_of`, taken while they stay.
    pub(crate) fn entries<R>(&self, owner_of: impl FnOnce() -> R) -> (R, Vec<(Name, Mode, bool)>) {
        let converted = lock(&self.converted);
        let entries = (0..self.count())
            .flat_map(|index| {
                let entry = self.entry(index);
                let is_anchored = entry.anchored().is_some();
                let locks = entry.locks();
                locks.map(move |(name, mode)| (name, mode, is_anchored))
            })
            .filter(|(name, ..)| !converted.contains_key(name))
            .collect();
        (owner_of(), entries)
    }

    /// Returns the number of entries, for threads other than the owner.
    fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire) // O1
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let chunks = self.more.iter().filter_map(OnceLock::get);
        let converted = lock(&self.converted).capacity() * size_of::<(Name, (u32, Mode))>();
        size_of::<Self>() + converted + chunks.map(|chunk| size_of_val(&**chunk)).sum::<usize>()
    }
}

/// Returns the chunk of an index beyond the first chunk, and the index within it.
fn chunk_of(index: u32) -> (usize, usize) {
    let shifted = index as usize + FIRST;
    let chunk = (shifted.ilog2() - FIRST.ilog2()) as usize;
    (chunk, shifted - (FIRST << chunk))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::name::KeyHasher;

    /// The key is too long for a block.
    fn name(number: u64) -> Name {
        let bytes = (u128::from(number) << 64).to_be_bytes();
        Name::key(7, &bytes, &KeyHasher::new(1))
    }

    fn append(list: &RememberedLocks, number: u64) -> u32 {
        list.append(name(number), name(number).hash() as u32, Mode::S)
    }

    #[test]
    fn appended_entries_are_read_again() {
        let list = RememberedLocks::default();
        for number in 0..1000 {
            assert_eq!(append(&list, number), number as u32);
        }
        let expected: Vec<_> = (0..1000)
            .map(|number| (name(number), Mode::S, false))
            .collect();
        assert_eq!(list.entries(|| ()).1, expected);
        list.clear();
        assert!(list.entries(|| ()).1.is_empty());
    }

    #[test]
    fn an_entry_in_the_middle_is_dead_until_those_behind_it_go() {
        let list = RememberedLocks::default();
        for number in 0..3 {
            append(&list, number);
        }
        assert_eq!(list.remove(1, name(1)), None);
        assert_eq!(
            (list.len(), list.is_dead(1), list.is_dead(2)),
            (3, true, false)
        );
        assert_eq!(
            list.entries(|| ()).1,
            [(name(0), Mode::S, false), (name(2), Mode::S, false)]
        );
        assert_eq!(list.remove(2, name(2)), None);
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn a_block_is_there_until_its_last_key_goes() {
        let list = RememberedLocks::default();
        let key = |number: u64| Name::key(7, &number.to_be_bytes(), &KeyHasher::new(1));
        let (block, at) = key(70).block().expect("a short key");
        let index = list.append_block(block, BlockBits::one(at, Mode::S));
        list.extend_all(index, BlockBits::one(at + 1, Mode::S));
        assert_eq!(
            list.entries(|| ()).1,
            [(key(70), Mode::S, false), (key(71), Mode::S, false)]
        );
        assert_eq!(list.remove(index, key(70)), None);
        assert_eq!((list.len(), list.hash_of(index)), (1, block.hash()));
        assert_eq!(list.remove(index, key(71)), None);
        assert_eq!(list.len(), 0);
    }

    #[test]
    fn a_converted_lock_is_shown_once_and_taken() {
        let list = RememberedLocks::default();
        for number in 0..100 {
            append(&list, number);
        }
        let wanted = name(70).hash() as u32;
        let convert = |list: &RememberedLocks, slot| {
            let mut shown = 0;
            list.revoke(
                |place| place.hash == wanted & place.known,
                |shown_name, _| {
                    shown += u32::from(shown_name == name(70));
                    (shown_name == name(70)).then_some(slot)
                },
            );
            shown
        };
        assert_eq!(convert(&list, 5), 1);
        assert_eq!(convert(&list, 6), 0);
        assert!(list.may_have_converted());
        assert!(!list.strengthen(70, name(70), Mode::S, || true));
        assert_eq!(list.entries(|| ()).1.len(), 99);
        list.clear();
        let converted: Vec<_> = list.take_converted().into_iter().collect();
        assert_eq!(converted, [(name(70), (5, Mode::S))]);
        assert!(!list.may_have_converted());
    }
}
