//! Locks that an owner only remembers: a list that it appends to without asking anybody, and that
//! whoever must know may read.
//!
//! The list is one side of a protocol whose other side is `managers/direct`: there it is argued why
//! an entry that nobody has looked at is as good as a lock.
//!
//! # State
//!
//! Entries of three words, the name with a mode and a tag in the bits that a name leaves free, in
//! chunks that never move; a count; and behind a latch, for each entry that somebody else has turned
//! into a real lock, the slot of that lock.
//!
//! ```text
//!            0        1        2        63      56 55   48 47            0
//! entry      head     tail     third    tag       mode    origin
//! ```
//!
//! # Invariants
//!
//! * I1  Entries below the count are whole. An entry whose mode is empty is dead: taken back while
//!   others stood behind it.
//! * I2  Appending, and forgetting all, is the owner's and takes no latch. Everything else happens
//!   under the latch, by the owner or by a revoker.
//! * I3  An entry has a slot exactly from being converted until it is taken back, or until all is
//!   collected; and `touched` is set if any has one.
//! * I4  While a revoker has the latch, the entries it counted stay: the owner does not forget them
//!   without the latch then. That is kept by the protocol, not here.
//!
//! # Orderings
//!
//! * O1  `append` and `forget` (Release) to `count` of a revoker (Acquire): who counts an entry reads
//!   it whole; and who finds it forgotten comes after everything its owner did under it.

use crate::{
    mode::{Mode, Set},
    name::Name,
};
use foxton_sync::{
    cache_line::CachePadded,
    shim::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, lock},
};
use std::{fmt, sync::OnceLock};

/// Entries of the first chunk, which is always there; each further chunk has twice as many as the one
/// before.
const FIRST: usize = if cfg!(loom) { 2 } else { 64 };
/// Enough chunks for any number below [`REMEMBERED`].
const CHUNKS: usize = 25;

/// In the place of a slot: the lock is remembered, and the rest is its index in the list.
pub(crate) const REMEMBERED: u32 = 1 << 31;

/// Not converted.
const NO_SLOT: u32 = u32::MAX;

const MODE_SHIFT: u32 = 48;
const TAG_SHIFT: u32 = 56;
const ORIGIN: u64 = (1 << MODE_SHIFT) - 1;

#[derive(Default)]
struct Entry([AtomicU64; 3]);

impl Entry {
    #[inline(always)]
    fn write(&self, [head, tail, third]: [u64; 3]) {
        // Relaxed: published by the count (O1).
        self.0[0].store(head, Ordering::Relaxed);
        self.0[1].store(tail, Ordering::Relaxed);
        self.0[2].store(third, Ordering::Relaxed);
    }

    /// The third word alone.
    fn third(&self) -> u64 {
        self.0[2].load(Ordering::Relaxed)
    }

    /// What stands here, unless it is dead.
    fn read(&self) -> Option<(Name, Mode)> {
        let third = self.third();
        let mode = Set::from_bits((third >> MODE_SHIFT) as u8);
        let [head, tail] = [0, 1].map(|at: usize| self.0[at].load(Ordering::Relaxed));
        let name = Name::from_words([head, tail, third & ORIGIN]);
        (!mode.is_empty()).then(|| (name, Mode::of(mode)))
    }
}

/// The third word of an entry. The tag is the low bits of the hash, so that a revoker passes over most
/// entries that are not its own without working their hashes out.
#[inline(always)]
fn third(origin: u64, mode: Mode, hash: u32) -> u64 {
    u64::from(hash as u8) << TAG_SHIFT | u64::from(mode.set().bits()) << MODE_SHIFT | origin
}

/// The slots of converted entries, by index; short of those that never were.
#[derive(Debug, Default)]
struct Slots(Vec<u32>);

impl Slots {
    fn get(&self, index: u32) -> Option<u32> {
        let slot = self.0.get(index as usize).copied();
        slot.filter(|&slot| slot != NO_SLOT)
    }

    fn set(&mut self, index: u32, slot: u32) {
        let index = index as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, NO_SLOT);
        }
        self.0[index] = slot;
    }

    fn remove(&mut self, index: u32) -> Option<u32> {
        let slot = self.get(index)?;
        self.0[index as usize] = NO_SLOT;
        Some(slot)
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
        let words = [head, tail, third(origin, mode, hash)];
        match self.first.get(index as usize) {
            Some(entry) => entry.write(words),
            None => self.further(index).write(words),
        }
        self.count.store(index + 1, Ordering::Release); // O1
        index
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
    /// Takes the entry at `index` out of the list. If it was converted, it is a real lock in the slot
    /// returned.
    pub(crate) fn take_back(&self, index: u32) -> Option<u32> {
        let mut slots = lock(&self.slots);
        let mut count = self.len();
        self.entry(index).0[2].store(0, Ordering::Relaxed);
        while count > 0 && self.entry(count - 1).third() == 0 {
            count -= 1;
        }
        // Relaxed: a revoker counts under the latch.
        self.count.store(count, Ordering::Relaxed);
        slots.remove(index)
    }

    /// Gives the entry at `index` a stronger mode, if it was not converted and `allowed` says so
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
        let word = third(former & ORIGIN, mode, hash);
        entry.0[2].store(word, Ordering::Relaxed);
        let allowed = allowed();
        if !allowed {
            entry.0[2].store(former, Ordering::Relaxed);
        }
        allowed
    }

    /// The slots of all that was converted, by index; after [`forget`](Self::forget). From now on
    /// nothing is touched.
    pub(crate) fn collect(&self) -> Vec<u32> {
        let mut slots = lock(&self.slots);
        self.touched.store(false, Ordering::Relaxed);
        std::mem::take(&mut slots.0)
    }

    /// Shows `convert` the entries that are not converted; where it returns a slot, the entry is
    /// converted. Only those whose hash agrees with `hash` in the bits of `mask`, as far as the tags
    /// tell, are shown.
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
            if other & mask != 0 || slots.get(index).is_some() {
                continue;
            }
            let converted = entry.read().and_then(|(name, mode)| convert(name, mode));
            if let Some(slot) = converted {
                slots.set(index, slot);
                self.touched.store(true, Ordering::Relaxed);
            }
        }
    }

    /// All entries that are not converted, and what `whose` says while they stay.
    pub(crate) fn entries<R>(&self, whose: impl FnOnce() -> R) -> (R, Vec<(Name, Mode)>) {
        let slots = lock(&self.slots);
        let unconverted = (0..self.count()).filter(|&index| slots.get(index).is_none());
        let entries = unconverted
            .filter_map(|index| self.entry(index).read())
            .collect();
        (whose(), entries)
    }

    /// Entries, for somebody else than the owner.
    fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire) // O1
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let chunks = self.more.iter().filter_map(OnceLock::get);
        let slots = lock(&self.slots).0.capacity() * size_of::<u32>();
        size_of::<Self>() + slots + chunks.map(|chunk| size_of_val(&**chunk)).sum::<usize>()
    }
}

/// The slot of the entry at `index`, among those collected.
pub(crate) fn slot_in(collected: &[u32], index: u32) -> Option<u32> {
    let slot = collected.get(index as usize).copied();
    slot.filter(|&slot| slot != NO_SLOT)
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
