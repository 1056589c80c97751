//! Entries of one hash bucket.
//!
//! # State
//!
//! Nearly always a bucket has at most one name, with one holder and no waiter. So the bucket
//! itself, in the cache line of its latch, has space for this: a name, its holder, and the mode. A
//! grant writes the three, and a release clears one byte.
//!
//! Everything else is in the overflow, in storage of its own: a head for each name with several
//! holders or with waiters, and a short entry for each further name with one holder. A transaction
//! with very many locks has mostly such entries.
//!
//! ```text
//! bucket   latch | first: name, owner, mode | overflow_count | overflow --> heads [live][spare]
//!          one cache line                                                   sole  [name, ...]
//! ```
//!
//! # Invariants
//!
//! * I1  A name has one place: `first`, one of the first `live` heads, or one entry of `sole`.
//! * I2  The first `live` of the heads have holders or waiters. The others, a few at most, are
//!   vacant and wait for reuse.
//! * I3  `overflow_count` counts the names besides `first`. So if it is zero, every held name of
//!   this bucket is `first`.
//! * I4  The single request of a name without a head has slot 0, as it has in the head that it
//!   gets.
//! * I5  A name without a head has no waiters.

use super::head::LockHead;
use crate::{
    mode::{Mode, Set},
    name::Name,
};
use std::ops::Deref;

/// Vacant heads kept for the next names.
const SPARE_HEADS: usize = 4;
/// Entries for which a bucket has space from the start, if ordinary use is to allocate nothing.
const SOLE_CAPACITY: usize = 4;

/// Name with one holder and no waiter; vacant if no mode is granted.
#[derive(Debug, Clone, Copy)]
struct SoleHolder {
    name: Name,
    owner_index: u32,
    granted: Set,
}

const _: () = assert!(size_of::<SoleHolder>() == 32);

impl SoleHolder {
    #[inline]
    fn is_vacant(&self) -> bool {
        self.granted.is_empty()
    }

    fn fill(self, head: &mut LockHead) {
        let mode = Mode::of(self.granted);
        head.clear_slots();
        let slot = head.acquire(self.owner_index, mode);
        debug_assert_eq!(slot, Some(0), "I4");
    }

    fn head(self) -> LockHead {
        let mut head = LockHead::new(self.name);
        self.fill(&mut head);
        head
    }
}

/// Reference to a head: one that exists, or one built for the caller.
pub(crate) enum HeadRef<'h> {
    Existing(&'h LockHead),
    Built(LockHead),
}

impl Deref for HeadRef<'_> {
    type Target = LockHead;

    fn deref(&self) -> &LockHead {
        match self {
            Self::Existing(head) => head,
            Self::Built(head) => head,
        }
    }
}

/// Names that do not fit into the bucket.
#[derive(Debug, Default)]
struct OverflowEntries {
    heads: Vec<LockHead>,
    live: usize,
    sole: Vec<SoleHolder>,
    /// Capacity that is never freed, for heads and for entries.
    min_capacity: usize,
}

impl OverflowEntries {
    fn live(&self) -> &[LockHead] {
        &self.heads[..self.live]
    }

    fn position(&self, name: &Name) -> Option<usize> {
        self.live().iter().position(|head| head.name() == *name)
    }

    fn find_sole(&self, name: &Name) -> Option<usize> {
        self.sole.iter().position(|sole| sole.name == *name)
    }

    /// Gives a name a head, and returns the head's index.
    fn promote(&mut self, sole: SoleHolder) -> usize {
        let at = self.live;
        self.live += 1;
        match self.heads.get_mut(at) {
            Some(vacant) => {
                vacant.rename(sole.name);
                sole.fill(vacant);
            }
            None => self.heads.push(sole.head()),
        }
        at
    }

    /// Adds an entry. Grows by a quarter, because there may be very many entries, and buckets of
    /// one size grow at the same time.
    fn push_sole(&mut self, sole: SoleHolder) {
        if self.sole.len() == self.sole.capacity() {
            self.sole.reserve_exact((self.sole.len() / 4).max(4));
        }
        self.sole.push(sole);
    }

    fn remove_sole(&mut self, at: usize) -> SoleHolder {
        let sole = self.sole.swap_remove(at);
        if self.sole.len() < self.sole.capacity() / 4 {
            self.sole.shrink_to(self.min_capacity);
        }
        sole
    }

    /// Restores I2 after the head at `at` has become vacant.
    fn vacate(&mut self, at: usize) {
        self.heads[at].reset();
        self.live -= 1;
        let last = self.live;
        self.heads.swap(at, last);
        self.heads.truncate(last + SPARE_HEADS);
        // A quarter, so that a bucket that grows and shrinks around one size does not move each
        // time.
        if self.heads.len() < self.heads.capacity() / 4 {
            self.heads.shrink_to(self.min_capacity);
        }
    }
}

/// Names of one bucket.
#[derive(Debug)]
pub struct BucketEntries {
    first: SoleHolder,
    overflow_count: u32,
    overflow: Option<Box<OverflowEntries>>,
}

impl Default for BucketEntries {
    fn default() -> Self {
        let first = SoleHolder {
            // Any name will do, because it is vacant.
            name: Name::table(0),
            owner_index: 0,
            granted: Set::NONE,
        };
        Self {
            first,
            overflow_count: 0,
            overflow: None,
        }
    }
}

/// A bucket may be used directly, or inside a wrapper that pads it.
impl AsMut<BucketEntries> for BucketEntries {
    #[inline(always)]
    fn as_mut(&mut self) -> &mut BucketEntries {
        self
    }
}

impl BucketEntries {
    /// Returns a bucket with space for a few names, which it keeps, so that ordinary use allocates
    /// nothing under the latch.
    pub(crate) fn with_capacity() -> Self {
        let overflow = OverflowEntries {
            heads: Vec::with_capacity(SPARE_HEADS),
            live: 0,
            sole: Vec::with_capacity(SOLE_CAPACITY),
            min_capacity: SOLE_CAPACITY,
        };
        Self {
            overflow: Some(Box::new(overflow)),
            ..Self::default()
        }
    }

    fn overflow(&mut self) -> &mut OverflowEntries {
        self.overflow.get_or_insert_default()
    }

    #[inline]
    fn is_first(&self, name: &Name) -> bool {
        !self.first.is_vacant() && self.first.name == *name
    }

    /// Grants `name` to the owner at `owner_index`, which does not hold it, and returns the slot;
    /// or returns the head in which a request conflicts.
    // Always inlined: two managers and two calls are four places, and none is worth a call.
    #[inline(always)]
    pub(crate) fn acquire(
        &mut self,
        name: &Name,
        owner_index: u32,
        mode: Mode,
    ) -> Result<u32, &mut LockHead> {
        if self.overflow_count == 0 && self.first.is_vacant() {
            self.first = SoleHolder {
                name: *name,
                owner_index,
                granted: mode.set(),
            };
            return Ok(0); // I4
        }
        self.acquire_overflow(name, owner_index, mode)
    }

    #[inline(never)]
    fn acquire_overflow(
        &mut self,
        name: &Name,
        owner_index: u32,
        mode: Mode,
    ) -> Result<u32, &mut LockHead> {
        if let Some(at) = self.head(name) {
            let head = &mut self.overflow().heads[at];
            return head.acquire(owner_index, mode).ok_or(head);
        }
        let sole = SoleHolder {
            name: *name,
            owner_index,
            granted: mode.set(),
        };
        if self.first.is_vacant() {
            self.first = sole;
        } else {
            self.overflow_count += 1;
            self.overflow().push_sole(sole);
        }
        Ok(0)
    }

    /// Grants `name` to the owner at `owner_index`, which holds it already by an anchor, whatever
    /// conflicts: another grant here may be one that its owner is about to give back.
    pub(crate) fn enter(&mut self, name: &Name, owner_index: u32, mode: Mode) -> u32 {
        match self.acquire(name, owner_index, mode) {
            Ok(slot) => slot,
            Err(head) => head.enter(owner_index, mode),
        }
    }

    /// True if some request of `name` is here.
    pub(crate) fn contains(&self, name: &Name) -> bool {
        self.is_first(name)
            || self.overflow_count != 0
                && self.overflow.as_ref().is_some_and(|overflow| {
                    overflow.position(name).is_some() || overflow.find_sole(name).is_some()
                })
    }

    /// True if a grant of another owner conflicts with `mode`, in which `name` is granted in
    /// `slot`. Only beside an anchor.
    pub(crate) fn has_conflict(&self, name: &Name, slot: u32, mode: Mode) -> bool {
        let overflow = self.overflow.as_ref();
        let head = overflow.and_then(|overflow| Some(&overflow.live()[overflow.position(name)?]));
        head.is_some_and(|head| head.has_conflict(slot, mode)) // A sole holder has none.
    }

    /// Returns the slot in which the owner at `owner_index` holds `name`.
    pub(crate) fn slot_of(&self, name: &Name, owner_index: u32) -> u32 {
        let overflow = self.overflow.as_ref();
        let head = overflow.and_then(|overflow| Some(&overflow.live()[overflow.position(name)?]));
        match head {
            Some(head) => head.slot_of(owner_index),
            None => 0, // I4
        }
    }

    /// Returns the index of the head of `name`, and gives it one if it is held and had none.
    fn head(&mut self, name: &Name) -> Option<usize> {
        if self.is_first(name) {
            let first = self.first;
            self.first.granted = Set::NONE;
            self.overflow_count += 1;
            return Some(self.overflow().promote(first));
        }
        let overflow = self.overflow.as_mut()?;
        overflow.position(name).or_else(|| {
            let sole = overflow.find_sole(name)?;
            let sole = overflow.remove_sole(sole);
            Some(overflow.promote(sole))
        })
    }

    /// Converts `name`, held in `slot`, to the mode `target`, which covers its mode; or returns the
    /// head in which a request conflicts.
    pub(crate) fn convert(
        &mut self,
        name: &Name,
        slot: u32,
        target: Mode,
    ) -> Result<(), &mut LockHead> {
        if self.is_first(name) {
            self.first.granted = target.set(); // I5
            return Ok(());
        }
        let overflow = self.overflow();
        if let Some(at) = overflow.position(name) {
            let head = &mut overflow.heads[at];
            return if head.convert(slot, target) {
                Ok(())
            } else {
                Err(head)
            };
        }
        let at = overflow
            .find_sole(name)
            .expect("a name that is held has a place");
        overflow.sole[at].granted = target.set(); // I5
        Ok(())
    }

    /// Ends the request of `name` granted in `slot`. If the name has other holders or waiters,
    /// `grant_waiters` grants the waiters.
    #[inline(always)]
    pub(crate) fn release(
        &mut self,
        name: &Name,
        slot: u32,
        grant_waiters: impl FnOnce(&mut LockHead),
    ) {
        if self.overflow_count == 0 || self.is_first(name) {
            debug_assert!(self.is_first(name), "I3");
            self.first.granted = Set::NONE; // I5
            return;
        }
        self.release_overflow(name, slot, grant_waiters);
    }

    #[inline(never)]
    fn release_overflow(
        &mut self,
        name: &Name,
        slot: u32,
        grant_waiters: impl FnOnce(&mut LockHead),
    ) {
        let overflow = self.overflow();
        let gone = match overflow.position(name) {
            Some(at) => {
                let head = &mut overflow.heads[at];
                head.release(slot);
                grant_waiters(head);
                let gone = head.is_vacant();
                if gone {
                    overflow.vacate(at);
                }
                gone
            }
            None => {
                let at = overflow
                    .find_sole(name)
                    .expect("a name that is held has a place");
                overflow.remove_sole(at); // I5
                true
            }
        };
        self.overflow_count -= u32::from(gone);
    }

    /// True if a new request of an owner that does not hold `name` is blocked.
    pub(crate) fn blocks(&self, name: &Name, mode: Mode) -> bool {
        let by = |sole: &SoleHolder| sole.granted.intersects(mode.conflicts());
        if self.is_first(name) {
            return by(&self.first);
        }
        let Some(overflow) = &self.overflow else {
            return false;
        };
        match overflow.position(name) {
            Some(at) => overflow.heads[at].blocks(mode),
            None => overflow
                .find_sole(name)
                .is_some_and(|at| by(&overflow.sole[at])),
        }
    }

    /// Returns the head of `name`, if it has one. Without a head it has no waiters (I5).
    pub(crate) fn get(&mut self, name: &Name) -> Option<&mut LockHead> {
        let overflow = self.overflow.as_mut()?;
        let at = overflow.position(name)?;
        Some(&mut overflow.heads[at])
    }

    /// Changes the head of `name`, which has holders or waiters, and removes it if it is vacant
    /// then.
    pub(crate) fn change<R>(&mut self, name: &Name, change: impl FnOnce(&mut LockHead) -> R) -> R {
        let at = self.head(name);
        let at = at.expect("a name that is held or awaited can have a head");
        let overflow = self.overflow();
        let head = &mut overflow.heads[at];
        let result = change(head);
        if head.is_vacant() {
            overflow.vacate(at);
            self.overflow_count -= 1;
        }
        result
    }

    /// Returns a head of `name` to read.
    pub(crate) fn head_ref(&self, name: &Name) -> Option<HeadRef<'_>> {
        self.iter().find(|head| head.name() == *name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = HeadRef<'_>> {
        let first = Some(&self.first).filter(|first| !first.is_vacant());
        let sole = self.overflow.iter().flat_map(|overflow| &overflow.sole);
        let sole = first.into_iter().chain(sole);
        let live = self.overflow.iter().flat_map(|overflow| overflow.live());
        let existing = live.map(HeadRef::Existing);
        existing.chain(sole.map(|sole| HeadRef::Built(sole.head())))
    }

    /// Takes the overflow if it has no names, and the bucket need not keep it. After a peak every
    /// bucket has one, and though it is small, its page stays with the process.
    pub(crate) fn take_unused(&mut self) -> Option<impl Drop + use<>> {
        let is_unused = |overflow: &mut Box<OverflowEntries>| overflow.min_capacity == 0;
        match self.overflow_count {
            0 => self.overflow.take_if(is_unused),
            _ => None,
        }
    }

    /// Returns the memory beyond the bucket itself, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.overflow.as_ref().map_or(0, |overflow| {
            let heads: usize = overflow.heads.iter().map(LockHead::memory_bytes).sum();
            let vectors = overflow.heads.capacity() * size_of::<LockHead>()
                + overflow.sole.capacity() * size_of::<SoleHolder>();
            size_of::<OverflowEntries>() + vectors + heads
        })
    }

    pub(crate) fn verify(&self) {
        if let Some(overflow) = &self.overflow {
            for (at, head) in overflow.heads.iter().enumerate() {
                assert_eq!(at < overflow.live, !head.is_vacant(), "I2: {}", head.name());
            }
        }
        let count = self.iter().count() - usize::from(!self.first.is_vacant());
        assert_eq!(count, self.overflow_count as usize, "I3");
        let mut names = Vec::new();
        for head in self.iter() {
            head.verify();
            names.push(head.name());
        }
        names.sort();
        let same = names.windows(2).find(|pair| pair[0] == pair[1]);
        assert!(same.is_none(), "I1: two places of {same:?}");
    }
}
