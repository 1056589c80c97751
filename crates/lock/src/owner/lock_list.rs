//! List of the locks that one owner holds, in the order of acquisition. Only the owner touches it.
//!
//! Most transactions hold a handful of locks, and a walk over one or two cache lines finds a name
//! faster than any index. Above `MAX_LINEAR` entries there is an index.
//!
//! # Invariants
//!
//! * I1  A name has at most one live entry. Above `MAX_LINEAR` entries the index has exactly the
//!   live ones.
//! * I2  Entries are in the order of acquisition, and `order` grows along them, unless
//!   `is_unsorted`. A released entry stays as a dead one until all later ones are gone, so
//!   positions do not change between releases. The last entry is live. Released locks use up
//!   orders, too: beyond `LAST_ORDER` all entries get new orders, as low as savepoints allow.
//! * I3  `hash_filter` has the bit of every hash that was added since the list was cleared. Most
//!   requested names are new, and one bit shows that.

use crate::{mode::Mode, name::Name};
use hashbrown::HashTable;
use std::time::{Duration, Instant};

/// Number of entries up to which a walk replaces the index.
const MAX_LINEAR: usize = 16;
/// Capacity above which storage is freed after a large transaction.
const MAX_KEPT: usize = 4096;

/// Order of the first lock; 0 precedes every lock.
const FIRST_ORDER: u32 = 1;
/// Order from which on the held locks are renumbered before the next request. Half of all orders,
/// so that neither one request nor a sum of two counts overflows.
pub(crate) const LAST_ORDER: u32 = if cfg!(test) { 1000 } else { 1 << 31 };

/// How a lock came into its queue. `direct` compares it with the anchor of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockSource {
    /// By a request that knew of no anchor.
    Request,
    /// By its anchor, or by a request that found the anchor queued.
    Anchor,
    /// By a revoker, without its anchor. The manager counts it as converted.
    Revoker,
}

/// Held lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockEntry {
    pub(crate) name: Name,
    /// Hash that finds the bucket.
    pub(crate) hash: u32,
    /// Slot of the request in its head.
    pub(crate) slot: u32,
    /// Order of acquisition; 0 for an entry that is in no list.
    order: u32,
    pub(crate) mode: Mode,
    live: bool,
    pub(crate) source: LockSource,
}

const _: () = assert!(size_of::<LockEntry>() == 40);

impl LockEntry {
    /// Returns a lock that is in no list.
    pub(crate) fn detached(name: Name, hash: u32, slot: u32, mode: Mode) -> Self {
        Self {
            name,
            hash,
            slot,
            order: 0,
            mode,
            live: true,
            source: LockSource::Request,
        }
    }
}

/// Locks of one owner.
#[derive(Debug)]
pub(crate) struct LockList {
    entries: Vec<LockEntry>,
    live: usize,
    next_order: u32,
    /// True if an entry was added after later acquisitions.
    is_unsorted: bool,
    hash_filter: [u64; 4],
    index: HashTable<u32>,
    /// Locks that were waited for, and when their holds began.
    timed: Vec<(Name, Instant)>,
    /// Those of them that were released early, with their hold times.
    ended: Vec<(Name, Duration)>,
}

impl Default for LockList {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            live: 0,
            next_order: FIRST_ORDER,
            is_unsorted: false,
            hash_filter: [0; 4],
            index: HashTable::new(),
            timed: Vec::new(),
            ended: Vec::new(),
        }
    }
}

impl LockList {
    /// Returns the number of held locks.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Returns the memory beyond the list itself, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<LockEntry>() + self.index.allocation_size()
    }

    /// Returns the order of the next acquisition.
    #[inline]
    pub(crate) fn next_order(&self) -> u32 {
        self.next_order
    }

    /// Returns the order of the latest acquisition that is still held; 0 if there is none.
    pub(crate) fn greatest_order(&self) -> u32 {
        match self.is_unsorted {
            false => self.entries.last().map_or(0, |last| last.order), // I2
            true => self.iter().map(|entry| entry.order).max().unwrap_or(0),
        }
    }

    /// Returns the number of acquisitions.
    #[inline(always)]
    pub(crate) fn acquired(&self) -> u32 {
        self.next_order - FIRST_ORDER
    }

    /// Takes an order for an acquisition that is not in the list.
    pub(crate) fn take_order(&mut self) -> u32 {
        self.next_order += 1;
        self.next_order - 1
    }

    /// Begins to time the hold of the lock at `at`, which was waited for, from `since` on.
    pub(crate) fn start_timing(&mut self, at: usize, since: Instant) {
        let name = self.entries[at].name;
        if self.timed.iter().all(|timed| timed.0 != name) {
            self.timed.push((name, since)); // I1
        }
    }

    /// True if some hold is timed.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        !self.timed.is_empty() || !self.ended.is_empty()
    }

    /// True if some timed hold has ended.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Takes the timed holds; those that have not ended end now.
    pub(crate) fn take_timed(&mut self) -> impl Iterator<Item = (Name, Duration)> {
        let ended = std::mem::take(&mut self.ended).into_iter();
        let now = Instant::now();
        let open = std::mem::take(&mut self.timed).into_iter();
        ended.chain(open.map(move |(name, since)| (name, now.saturating_duration_since(since))))
    }

    #[cold]
    fn end_timed(&mut self, entry: &LockEntry) {
        let is_it = |timed: &mut (Name, Instant)| timed.0 == entry.name;
        let ended = self.timed.extract_if(.., is_it);
        self.ended
            .extend(ended.map(|(name, since)| (name, since.elapsed())));
    }

    /// Returns the position of `name`.
    #[inline]
    pub(crate) fn find(&self, name: Name, hash: u32) -> Option<usize> {
        let (word, bit) = filter_bit(hash);
        if self.hash_filter[word] & bit == 0 {
            return None; // I3
        }
        self.search(name, hash)
    }

    #[inline(never)]
    fn search(&self, name: Name, hash: u32) -> Option<usize> {
        if self.entries.len() <= MAX_LINEAR {
            let same = |entry: &LockEntry| entry.hash == hash && entry.live && entry.name == name;
            self.entries.iter().position(same)
        } else {
            let entries = &self.entries;
            let same = |&at: &u32| entries[at as usize].name == name;
            self.index.find(spread(hash), same).map(|&at| at as usize)
        }
    }

    #[inline]
    pub(crate) fn at(&self, at: usize) -> &LockEntry {
        &self.entries[at]
    }

    /// Returns the position of the last entry. There must be one.
    pub(crate) fn last(&self) -> usize {
        self.entries.len() - 1
    }

    pub(crate) fn set_mode(&mut self, at: usize, mode: Mode) {
        self.entries[at].mode = mode;
    }

    /// Sets how the lock at `at` came into its queue.
    pub(crate) fn set_source(&mut self, at: usize, source: LockSource) {
        self.entries[at].source = source;
    }

    /// Sets the slot of an entry's request.
    pub(crate) fn set_slot(&mut self, at: usize, slot: u32) {
        self.entries[at].slot = slot;
    }

    /// Adds a name that is not in the list.
    // The compiler makes this a call if it may, and a call is a tenth of the cost of a lock that is
    // not remembered.
    #[inline(always)]
    pub(crate) fn push(&mut self, name: Name, hash: u32, slot: u32, mode: Mode) {
        let (word, bit) = filter_bit(hash);
        self.hash_filter[word] |= bit;
        let order = self.next_order;
        self.next_order += 1;
        self.live += 1;
        self.entries.push(LockEntry {
            name,
            hash,
            slot,
            order,
            mode,
            live: true,
            source: LockSource::Request,
        });
        if self.entries.len() > MAX_LINEAR {
            self.index_last();
        }
    }

    /// Adds an entry with the earlier order `order`, in place of another record of the lock.
    pub(crate) fn push_with_order(
        &mut self,
        (name, hash): (Name, u32),
        slot: u32,
        mode: Mode,
        order: u32,
    ) {
        self.push(name, hash, slot, mode);
        let last = self.last();
        self.entries[last].order = order;
        self.is_unsorted = true;
    }

    #[inline(never)]
    fn index_last(&mut self) {
        let first = if self.entries.len() == MAX_LINEAR + 1 {
            0
        } else {
            self.entries.len() - 1
        };
        let entries = &self.entries;
        for (at, entry) in entries
            .iter()
            .enumerate()
            .skip(first)
            .filter(|(_, entry)| entry.live)
        {
            let hash_of = |&at: &u32| spread(entries[at as usize].hash);
            self.index
                .insert_unique(spread(entry.hash), at as u32, hash_of);
        }
    }

    fn unindex(&mut self, at: usize) {
        let is_it = |&other: &u32| other as usize == at;
        if let Ok(found) = self.index.find_entry(spread(self.entries[at].hash), is_it) {
            found.remove();
        }
    }

    /// Removes one entry.
    pub(crate) fn remove(&mut self, at: usize) -> LockEntry {
        let entry = self.entries[at];
        if !self.timed.is_empty() {
            self.end_timed(&entry);
        }
        if self.entries.len() > MAX_LINEAR {
            self.unindex(at);
        }
        self.entries[at].live = false;
        self.live -= 1;
        while self.entries.last().is_some_and(|last| !last.live) {
            self.drop_last();
        }
        // Dead entries are the price of cheap ordering; there are never more of them than live
        // ones.
        if self.entries.len() > 2 * MAX_LINEAR && self.live < self.entries.len() / 2 {
            self.compact();
        }
        entry
    }

    /// Removes the last entry if it was acquired at `since` or later.
    pub(crate) fn pop_since(&mut self, since: u32) -> Option<LockEntry> {
        self.sort();
        let last = *self.entries.last()?;
        (last.order >= since).then(|| self.remove(self.entries.len() - 1))
    }

    /// True if the orders are about to run out.
    #[inline(always)]
    pub(crate) fn is_out_of_orders(&self) -> bool {
        self.next_order >= LAST_ORDER
    }

    /// Renumbers what was acquired at `since` or later without gaps, and returns how many orders
    /// that frees.
    pub(crate) fn renumber(&mut self, since: u32) -> u32 {
        self.sort();
        let mut next = since.max(FIRST_ORDER);
        let later = self
            .entries
            .iter_mut()
            .filter(|entry| entry.live && entry.order >= since);
        for entry in later {
            entry.order = next;
            next += 1;
        }
        self.compact(); // Dead entries get no order.
        std::mem::replace(&mut self.next_order, next) - next
    }

    /// Sorts entries that were added late by their order (I2).
    fn sort(&mut self) {
        if self.is_unsorted {
            self.entries.sort_by_key(|entry| entry.order);
            self.compact();
            self.is_unsorted = false;
        }
    }

    /// Goes back to the order `since`, and returns how many later acquisitions there were. All of
    /// them have been released.
    ///
    /// # Panics
    ///
    /// If some of them are still held.
    pub(crate) fn rewind(&mut self, since: u32) -> u32 {
        assert!(
            self.greatest_order() < since.max(1),
            "begin with locks held: release_since comes first"
        );
        let acquired = self.next_order.saturating_sub(since.max(FIRST_ORDER));
        self.next_order -= acquired;
        acquired
    }

    /// Takes the timed holds that have ended.
    pub(crate) fn take_ended(&mut self) -> Vec<(Name, Duration)> {
        std::mem::take(&mut self.ended)
    }

    fn drop_last(&mut self) {
        self.entries.pop();
        if self.entries.len() == MAX_LINEAR {
            self.index.clear();
        }
    }

    fn compact(&mut self) {
        self.entries.retain(|entry| entry.live);
        self.index.clear();
        if self.entries.len() > MAX_LINEAR {
            let entries = &self.entries;
            for (at, entry) in entries.iter().enumerate() {
                let hash_of = |&at: &u32| spread(entries[at as usize].hash);
                self.index
                    .insert_unique(spread(entry.hash), at as u32, hash_of);
            }
        }
    }

    /// Returns the live entries, in the order of acquisition.
    #[inline]
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &LockEntry> {
        self.entries.iter().filter(|entry| entry.live)
    }

    /// Removes all entries and keeps the storage.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.entries.len() > MAX_LINEAR {
            self.clear_index();
        }
        self.entries.clear();
        self.hash_filter = [0; 4];
        self.live = 0;
        self.next_order = FIRST_ORDER;
        self.is_unsorted = false;
    }

    #[inline(never)]
    fn clear_index(&mut self) {
        self.index.clear();
        if self.entries.capacity() > MAX_KEPT {
            self.index = HashTable::new();
            self.entries = Vec::new();
        }
    }

    #[cfg(test)]
    fn verify(&self) {
        assert_eq!(self.iter().count(), self.live);
        assert!(
            self.entries
                .windows(2)
                .all(|pair| self.is_unsorted || pair[0].order < pair[1].order),
            "I2"
        );
        for (at, entry) in self.entries.iter().enumerate() {
            let found = self.find(entry.name, entry.hash);
            assert_eq!(found == Some(at), entry.live, "I1: {}", entry.name);
        }
        let indexed = if self.entries.len() > MAX_LINEAR {
            self.live
        } else {
            0
        };
        assert_eq!(self.index.len(), indexed, "I1");
    }
}

/// Returns the bit of `hash_filter` for a hash, from bits of the hash that choose no bucket.
#[inline]
fn filter_bit(hash: u32) -> (usize, u64) {
    ((hash >> 30) as usize, 1 << (hash >> 24 & 63))
}

/// Spreads a hash to 64 bits for the index, whose tags are the highest bits.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64) -> (Name, u32) {
        let name = Name::advisory(number);
        // The hashes are bad on purpose.
        (name, name.hash() as u32 % 4)
    }

    /// Compares random pushes, removals and savepoints with a plain list.
    #[test]
    fn the_list_agrees_with_a_plain_one() {
        let mut state = 7u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let (mut held, mut plain) = (LockList::default(), Vec::<(u64, u32)>::new());
        for step in 0..20_000 {
            let number = random(60);
            let (name, hash) = name(number);
            match held.find(name, hash) {
                Some(at) => {
                    assert!(plain.iter().any(|entry| entry.0 == number));
                    if random(2) == 0 {
                        assert_eq!(held.remove(at).name, name);
                        plain.retain(|entry| entry.0 != number);
                    }
                }
                None => {
                    assert!(plain.iter().all(|entry| entry.0 != number));
                    plain.push((number, held.next_order()));
                    held.push(name, hash, 0, Mode::S);
                }
            }
            if random(50) == 0 {
                let since = plain.get(random(60) as usize).map_or(0, |entry| entry.1);
                while held.pop_since(since).is_some() {}
                plain.retain(|entry| entry.1 < since);
            }
            if random(500) == 0 {
                held.clear();
                plain.clear();
            }
            if held.is_out_of_orders() {
                let owner_index = random(60) as usize;
                let since = plain.get(owner_index).map_or(1, |entry| entry.1);
                held.renumber(since);
                let later = plain.iter_mut().filter(|entry| entry.1 >= since);
                later
                    .zip(since..)
                    .for_each(|(entry, order)| entry.1 = order);
            }
            if step % 16 == 0 {
                held.verify();
            }
            let names: Vec<Name> = held.iter().map(|entry| entry.name).collect();
            let expected: Vec<Name> = plain.iter().map(|entry| Name::advisory(entry.0)).collect();
            assert_eq!(names, expected);
        }
    }
}
