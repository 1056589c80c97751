//! Locks that an owner only remembers: a list that it appends to without asking anybody, and that
//! whoever must know may read.
//!
//! The list is one side of a protocol whose other side is `managers/direct`: there it is argued why
//! an entry that nobody has looked at is as good as a lock.
//!
//! # State
//!
//! Entries of four words in chunks that never move; a count; and behind a latch, for everything that
//! somebody else has turned into a real lock, the slot of that lock. An entry is one lock, its name
//! with the mode and a tag in the bits that a name leaves free; or it is a *block*, up to sixty-four
//! neighbouring keys, each shared, or its gap, or both, by a bit.
//!
//! ```text
//!            0        1              2: 63   56 55     48 47       0   3
//! lock       head     tail              tag     mode      origin
//! block      base     keys shared       tag     BLOCK     origin      gaps shared
//! ```
//!
//! # Invariants
//!
//! * I1  Entries below the count are whole. An entry whose mode is empty is dead: taken back while
//!   others stood behind it.
//! * I2  Appending, and forgetting all, is the owner's and takes no latch. Everything else happens
//!   under the latch, by the owner or by a revoker.
//! * I3  A lock, or a key of a block, has a slot exactly from being converted until it is taken back,
//!   or until all is collected; and `touched` is set if any has one.
//! * I4  While a revoker has the latch, the entries it counted stay: the owner does not forget them
//!   without the latch then. That is kept by the protocol, not here.
//! * I5  The bits of a block are written by its owner alone: set without the latch where neither bit of
//!   the key was set, and otherwise under it.
//!
//! # Orderings
//!
//! * O1  `append` and `forget` (Release) to `count` of a revoker (Acquire): who counts an entry reads
//!   it whole; and who finds it forgotten comes after everything its owner did under it.

mod entry;

use crate::{
    mode::Mode,
    name::{Block, Name},
};
use entry::{BLOCK, Entry, ORIGIN, TAG_SHIFT, mode_bits, third};
use foxton_sync::{
    cache_line::CachePadded,
    shim::{AtomicBool, AtomicU32, Mutex, Ordering, lock},
};
use std::{collections::HashMap, fmt, sync::OnceLock};

pub(crate) use entry::{Bits, Mark};

/// Entries of the first chunk, which is always there; each further chunk has twice as many as the one
/// before.
const FIRST: usize = if cfg!(loom) { 2 } else { 64 };
/// Enough chunks for any number below [`REMEMBERED`].
const CHUNKS: usize = 25;

/// In the place of a slot: the lock is remembered, and the rest is its index in the list.
pub(crate) const REMEMBERED: u32 = 1 << 31;

/// Not converted.
const NO_SLOT: u32 = u32::MAX;

/// What was converted: the slots of locks by index, short of those that never were, and those of the
/// keys of blocks by name.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    locks: Vec<u32>,
    keys: HashMap<Name, (u32, Mode)>,
}

impl Slots {
    /// The slot of the lock at `index`.
    pub(crate) fn get(&self, index: u32) -> Option<u32> {
        let slot = self.locks.get(index as usize).copied();
        slot.filter(|&slot| slot != NO_SLOT)
    }

    fn set(&mut self, index: u32, slot: u32) {
        let index = index as usize;
        if index >= self.locks.len() {
            self.locks.resize(index + 1, NO_SLOT);
        }
        self.locks[index] = slot;
    }

    fn remove(&mut self, index: u32) -> Option<u32> {
        let slot = self.get(index)?;
        self.locks[index as usize] = NO_SLOT;
        Some(slot)
    }

    /// The keys of blocks, with their slots.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (Name, u32, Mode)> {
        self.keys
            .iter()
            .map(|(&name, &(slot, mode))| (name, slot, mode))
    }
}

/// The remembered locks of one owner.
pub(crate) struct Remembered {
    count: AtomicU32,
    /// Whether an entry may have been converted.
    touched: AtomicBool,
    first: [Entry; FIRST],
    more: [OnceLock<Box<[Entry]>>; CHUNKS],
    slots: CachePadded<Mutex<Slots>>,
}

impl Default for Remembered {
    fn default() -> Self {
        Self {
            count: AtomicU32::new(0),
            touched: AtomicBool::new(false),
            first: std::array::from_fn(|_| Entry::default()),
            more: std::array::from_fn(|_| OnceLock::new()),
            slots: CachePadded::new(Mutex::default()),
        }
    }
}

impl fmt::Debug for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remembered")
            .field("count", &self.len())
            .finish_non_exhaustive()
    }
}

/// What the owner does without asking anybody.
impl Remembered {
    /// Entries, dead ones included, as the owner knows it; a hint for everybody else.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there are no entries. After the revoker's fence that is final.
    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Adds an entry and returns its index.
    #[inline]
    pub(crate) fn append(&self, name: Name, hash: u32, mode: Mode) -> u32 {
        let index = self.len();
        let [head, tail, origin] = name.words();
        let words = [head, tail, third(origin, mode_bits(mode), hash)];
        match self.first.get(index as usize) {
            Some(entry) => entry.write(words),
            None => self.further(index).write(words),
        }
        self.count.store(index + 1, Ordering::Release); // O1
        index
    }

    /// Adds a block and returns its index.
    pub(crate) fn append_block(&self, block: Block, hash: u32, bits: Bits) -> u32 {
        let index = self.len();
        let entry = self.entry(index);
        entry.write([block.base, bits.keys, third(block.origin, BLOCK, hash)]);
        entry.set_bits(bits);
        self.count.store(index + 1, Ordering::Release); // O1
        index
    }

    /// Sets bits of the key at `at`, none of which was set, in a block that is still there. `false`:
    /// nothing was done.
    #[inline(always)]
    pub(crate) fn extend(&self, mark: Mark, at: u32, fresh: Bits) -> bool {
        let Some(entry) = self.first.get(mark.index as usize) else {
            return self.extend_further(mark, at, fresh);
        };
        mark.index < self.len() && entry.extend(mark, at, fresh)
    }

    #[inline(never)]
    fn extend_further(&self, mark: Mark, at: u32, fresh: Bits) -> bool {
        mark.index < self.len() && self.entry(mark.index).extend(mark, at, fresh)
    }

    /// Sets those of `bits` that are not set in the block at `index`, if for none of its keys only one
    /// was set that would not do. Returns what was set.
    pub(crate) fn extend_all(&self, index: u32, bits: Bits) -> Option<Bits> {
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

    /// The bits of the block at `index`, as its owner knows them.
    pub(crate) fn bits(&self, index: u32) -> Bits {
        self.entry(index).bits()
    }

    /// Drops all entries. Those that were converted have to be collected then.
    #[inline]
    pub(crate) fn forget(&self) {
        self.count.store(0, Ordering::Release); // O1
    }

    /// Whether something was converted; exact for whoever knows that no revoker is about.
    #[inline]
    pub(crate) fn is_touched(&self) -> bool {
        // Relaxed: the end of a revocation orders it.
        self.touched.load(Ordering::Relaxed)
    }

    #[inline(never)]
    fn further(&self, index: u32) -> &Entry {
        let (chunk, at) = chunk_of(index);
        let size = FIRST << chunk;
        &self.more[chunk - 1].get_or_init(|| (0..size).map(|_| Entry::default()).collect())[at]
    }

    fn entry(&self, index: u32) -> &Entry {
        match self.first.get(index as usize) {
            Some(entry) => entry,
            None => self.further(index),
        }
    }
}

/// What happens under the latch.
impl Remembered {
    /// Takes the lock at `index` out of the list. If it was converted, it is a real lock in the slot
    /// returned.
    pub(crate) fn take_back(&self, index: u32) -> Option<u32> {
        let mut slots = lock(&self.slots);
        self.kill(index);
        slots.remove(index)
    }

    /// Under the latch: the entry at `index` is no more, nor those at the end that are no more either.
    fn kill(&self, index: u32) {
        let mut count = self.len();
        self.entry(index).set_third(0);
        while count > 0 && self.entry(count - 1).third() == 0 {
            count -= 1;
        }
        // Relaxed: a revoker counts under the latch.
        self.count.store(count, Ordering::Relaxed);
    }

    /// Gives the lock at `index` a stronger mode, if it was not converted and `allowed` says so
    /// afterwards. Otherwise it is as before.
    pub(crate) fn strengthen(
        &self,
        index: u32,
        hash: u32,
        mode: Mode,
        allowed: impl FnOnce() -> bool,
    ) -> bool {
        let slots = lock(&self.slots);
        let entry = self.entry(index);
        let former = entry.third();
        if slots.get(index).is_some() {
            return false;
        }
        let word = third(former & ORIGIN, mode_bits(mode), hash);
        entry.set_third(word);
        let allowed = allowed();
        if !allowed {
            entry.set_third(former);
        }
        allowed
    }

    /// As [`strengthen`](Self::strengthen), for the key at `at` in the block at `index`.
    pub(crate) fn strengthen_key(
        &self,
        index: u32,
        at: u32,
        mode: Mode,
        allowed: impl FnOnce() -> bool,
    ) -> bool {
        let slots = lock(&self.slots);
        let entry = self.entry(index);
        let Some((block, former)) = entry.block() else {
            return false;
        };
        if slots.keys.contains_key(&block.name(at)) {
            return false;
        }
        entry.set_bits(former.union(Bits::one(at, mode)));
        let allowed = allowed();
        if !allowed {
            entry.set_bits(former);
        }
        allowed
    }

    /// Takes the key at `at` out of the block at `index`. If it was converted, it is a real lock in the
    /// slot returned.
    pub(crate) fn take_key(&self, index: u32, at: u32) -> Option<u32> {
        let mut slots = lock(&self.slots);
        let entry = self.entry(index);
        let (block, bits) = entry.block()?;
        entry.set_bits(bits.without(at));
        slots.keys.remove(&block.name(at)).map(|(slot, _)| slot)
    }

    /// Whether all of `fresh`, bits of the block at `index` that were set just now where neither bit of
    /// the key was set before, was converted. What was not is cleared.
    pub(crate) fn keep(&self, index: u32, fresh: Bits) -> bool {
        let slots = lock(&self.slots);
        let entry = self.entry(index);
        let Some((block, mut bits)) = entry.block() else {
            return false;
        };
        let mut all = true;
        for (at, mode) in fresh.modes() {
            let converted = slots.keys.get(&block.name(at)).map(|&(_, mode)| mode);
            if converted != Some(mode) {
                all = false;
                bits = bits.without(at);
                // A revoker may have come between the two words.
                bits = converted.map_or(bits, |mode| bits.union(Bits::one(at, mode)));
            }
        }
        entry.set_bits(bits);
        all
    }

    /// Takes the block at `index` out of the list, and returns what of it is real.
    pub(crate) fn take_block(&self, index: u32) -> Vec<(Name, u32, Mode)> {
        let mut slots = lock(&self.slots);
        let keys: Vec<_> = self.entry(index).locks().collect();
        self.kill(index);
        let converted = keys.into_iter().filter_map(|(name, _)| {
            let (slot, mode) = slots.keys.remove(&name)?;
            Some((name, slot, mode))
        });
        converted.collect()
    }

    /// All that was converted; after [`forget`](Self::forget). From now on nothing is touched.
    pub(crate) fn collect(&self) -> Slots {
        let mut slots = lock(&self.slots);
        self.touched.store(false, Ordering::Relaxed);
        std::mem::take(&mut *slots)
    }

    /// Shows `convert` what is not converted; where it returns a slot, the lock is converted. Only
    /// what stands in entries whose hash agrees with `hash` in the bits of `mask`, as far as the tags
    /// tell, is shown.
    pub(crate) fn revoke(
        &self,
        hash: u32,
        mask: u32,
        mut convert: impl FnMut(Name, Mode) -> Option<u32>,
    ) {
        let (tag, mask) = (hash as u8, mask as u8);
        let mut slots = lock(&self.slots);
        for index in 0..self.count() {
            let entry = self.entry(index);
            let other = (entry.third() >> TAG_SHIFT) as u8 ^ tag;
            if other & mask != 0 {
                continue;
            }
            let touched = match entry.block() {
                Some((block, bits)) => slots.convert_block(block, bits, &mut convert),
                None => slots.convert_lock(index, entry, &mut convert),
            };
            if touched {
                self.touched.store(true, Ordering::Relaxed);
            }
        }
    }

    /// All that is not converted, and what `whose` says while it stays.
    pub(crate) fn entries<R>(&self, whose: impl FnOnce() -> R) -> (R, Vec<(Name, Mode)>) {
        let slots = lock(&self.slots);
        let unconverted = (0..self.count()).filter(|&index| slots.get(index).is_none());
        let entries = unconverted
            .flat_map(|index| self.entry(index).locks())
            .filter(|(name, _)| !slots.keys.contains_key(name))
            .collect();
        (whose(), entries)
    }

    /// Entries, for somebody else than the owner.
    fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire) // O1
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let chunks = self.more.iter().filter_map(OnceLock::get);
        let slots = lock(&self.slots);
        let keys = slots.keys.capacity() * size_of::<(Name, (u32, Mode))>();
        let slots = slots.locks.capacity() * size_of::<u32>() + keys;
        size_of::<Self>() + slots + chunks.map(|chunk| size_of_val(&**chunk)).sum::<usize>()
    }
}

impl Slots {
    fn convert_lock(
        &mut self,
        index: u32,
        entry: &Entry,
        convert: &mut impl FnMut(Name, Mode) -> Option<u32>,
    ) -> bool {
        let unconverted = entry.lock().filter(|_| self.get(index).is_none());
        let slot = unconverted.and_then(|(name, mode)| convert(name, mode));
        slot.map(|slot| self.set(index, slot)).is_some()
    }

    fn convert_block(
        &mut self,
        block: Block,
        bits: Bits,
        convert: &mut impl FnMut(Name, Mode) -> Option<u32>,
    ) -> bool {
        let mut touched = false;
        for (at, mode) in bits.modes() {
            let name = block.name(at);
            if !self.keys.contains_key(&name)
                && let Some(slot) = convert(name, mode)
            {
                self.keys.insert(name, (slot, mode));
                touched = true;
            }
        }
        touched
    }
}

/// The chunk of an index beyond the first, and the place there.
fn chunk_of(index: u32) -> (usize, usize) {
    let shifted = index as usize + FIRST;
    let chunk = (shifted.ilog2() - FIRST.ilog2()) as usize;
    (chunk, shifted - (FIRST << chunk))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::name::KeyHasher;

    fn name(number: u64) -> Name {
        Name::key(7, &number.to_be_bytes(), &KeyHasher::new(1))
    }

    fn append(list: &Remembered, number: u64) -> u32 {
        list.append(name(number), name(number).hash() as u32, Mode::S)
    }

    #[test]
    fn what_was_appended_is_read_again() {
        let list = Remembered::default();
        for number in 0..1000 {
            assert_eq!(append(&list, number), number as u32);
        }
        let expected: Vec<_> = (0..1000).map(|number| (name(number), Mode::S)).collect();
        assert_eq!(list.entries(|| ()).1, expected);
        list.forget();
        assert!(list.entries(|| ()).1.is_empty());
    }

    #[test]
    fn an_entry_in_the_middle_is_dead_until_those_behind_it_go() {
        let list = Remembered::default();
        for number in 0..3 {
            append(&list, number);
        }
        assert_eq!(list.take_back(1), None);
        assert_eq!(list.len(), 3);
        assert_eq!(
            list.entries(|| ()).1,
            [(name(0), Mode::S), (name(2), Mode::S)]
        );
        assert_eq!(list.take_back(2), None);
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn what_is_converted_is_shown_once_and_collected() {
        let list = Remembered::default();
        for number in 0..100 {
            append(&list, number);
        }
        let wanted = name(70).hash() as u32;
        let convert = |list: &Remembered, slot| {
            let mut shown = 0;
            list.revoke(wanted, u32::MAX, |shown_name, _| {
                shown += u32::from(shown_name == name(70));
                (shown_name == name(70)).then_some(slot)
            });
            shown
        };
        assert_eq!(convert(&list, 5), 1);
        assert_eq!(convert(&list, 6), 0);
        assert!(list.is_touched());
        assert!(!list.strengthen(70, wanted, Mode::S, || true));
        assert_eq!(list.entries(|| ()).1.len(), 99);
        list.forget();
        let slots = list.collect();
        let slot_in = |slots: &Slots, index| slots.get(index);
        assert_eq!(
            (
                slot_in(&slots, 70),
                slot_in(&slots, 69),
                slot_in(&slots, 71)
            ),
            (Some(5), None, None)
        );
        assert!(!list.is_touched());
    }
}
