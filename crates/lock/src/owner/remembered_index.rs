//! The owner's private index of its remembered locks: which it holds, for certain or possibly, and
//! since when.
//!
//! The locks themselves are in its list (`remembered`), once. Nearly all requested names are new to
//! their owner, and one byte here shows that.
//!
//! # State
//!
//! * `seen`: by hash, the stamp of the last transaction that requested a name with that hash. A new
//!   transaction has a new stamp, so nothing need be cleared at the end. Stamps are odd; one less
//!   says that all those names were acquired with their anchors.
//! * `by_hash`: entries of the list by hash, filled as far as lookups needed it, once a walk along
//!   the list would be long.
//! * `gate`: address of the manager for which the fast path is open. `CLOSED` while a wait is in
//!   progress and once there is a savepoint. 0 if the fences are not expedited or the owner
//!   remembers nothing. So one comparison shows that the manager made the owner, that the owner may
//!   request, and that entries need no order.
//! * `tables`: the tables requested last, by number, with the stamp of the transaction.
//! * `orders`: from the first savepoint on, the order of acquisition of each further entry. Earlier
//!   entries are as old as the transaction, because no savepoint separates them.
//!
//! # Invariants
//!
//! * I1  The hash of every lock that the owner holds, in its list or in `locks`, is marked as seen.
//!   For a short key that is the hash of its block.
//! * I2  A key is held in a block, as an anchored lock, or in `locks`, and in one of them only. If
//!   it is not in a block, its block's hash is marked as having single keys.
//! * I3  A block has one entry, and one more for each savepoint before some of its keys. So a
//!   release back to a savepoint removes whole entries.
//! * I4  If only anchored locks are marked for a hash, the owner acquired each key with this hash
//!   that it holds with the key's anchor, which is not free while it does.

use crate::{
    mode::Mode,
    name::{Class, Name},
    owner::remembered::RememberedLocks,
};
use foxton_sync::shim::{AtomicU32, AtomicUsize, Ordering};
use hashbrown::HashTable;

/// Number of entries up to which a walk replaces the index.
const MAX_LINEAR: u32 = if cfg!(loom) { 1 } else { 32 };
/// Capacity above which storage is freed after a large transaction.
const MAX_KEPT: usize = 4096;
// Small under the model checker, whose stacks are small.
const SEEN: usize = if cfg!(loom) { 16 } else { 4096 };
const NO_SAVEPOINT: u32 = u32::MAX;
/// The first stamp. Neither 0 nor 1, one of which follows the greatest, means a transaction.
const FIRST_STAMP: u8 = 3;
/// Gate that is closed to every manager: no manager has this address.
const CLOSED: usize = 1;
/// Tables that are recognised at once when requested again, if their numbers differ enough.
const TABLES: usize = 4;

/// Result of looking up a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexMatch {
    /// The name is remembered, at this index of the list, in this mode.
    Lock(u32, Mode),
    /// The name is not remembered, but its block has the entry at this index.
    Block(u32),
    /// Neither the name nor its block is remembered.
    Nothing,
}

/// Table that the transaction with this stamp, which is not 0, holds in these modes.
#[derive(Debug, Clone, Copy)]
struct HeldTable {
    space: u32,
    stamp: u8,
    modes: u8,
}

impl HeldTable {
    const NONE: Self = Self {
        space: 0,
        stamp: 0,
        modes: 0,
    };
}

/// Private index of one owner.
#[derive(Debug)]
pub(crate) struct RememberedIndex {
    seen: [u8; SEEN],
    stamp: u8,
    gate: AtomicUsize,
    /// Value of `gate` when the fast path is open.
    manager_address: usize,
    /// Acquisitions that are not in `locks`. A block that a scan came to counts as one, and so does
    /// each name requested by itself.
    acquired: u32,
    /// Further keys of blocks.
    scanned: u32,
    /// By hash, whether keys of a block may be held outside of it.
    single: u64,
    /// Remembered tables.
    tables: [HeldTable; TABLES],
    by_hash: HashTable<u32>,
    /// Number of entries of the list that are in `by_hash`.
    indexed: u32,
    /// Entries before the first savepoint. An atomic, as are `savepoint_order` and `gate`, only so
    /// that a savepoint can be taken through a shared reference: only the owner accesses them.
    entries_before: AtomicU32,
    /// Order of the latest savepoint.
    savepoint_order: AtomicU32,
    /// Locks acquired before this order are retained from one transaction to the next. If it is not
    /// 0, there is a savepoint.
    retained: u32,
    orders: Vec<u32>,
}

impl Default for RememberedIndex {
    fn default() -> Self {
        Self {
            seen: [0; SEEN],
            stamp: FIRST_STAMP,
            gate: AtomicUsize::new(0),
            manager_address: 0,
            acquired: 0,
            scanned: 0,
            single: 0,
            tables: [HeldTable::NONE; TABLES],
            by_hash: HashTable::new(),
            indexed: 0,
            entries_before: AtomicU32::new(NO_SAVEPOINT),
            savepoint_order: AtomicU32::new(0),
            retained: 0,
            orders: Vec::new(),
        }
    }
}

/// Seen hashes, the fast path and counts.
impl RememberedIndex {
    /// True if no name with this hash can be held (I1).
    #[inline(always)]
    pub(crate) fn is_new(&self, hash: u32) -> bool {
        self.seen[hash as usize % SEEN] | 1 != self.stamp
    }

    /// Marks the hash of a name that is about to be held.
    #[inline(always)]
    pub(crate) fn mark_seen(&mut self, hash: u32) {
        self.seen[hash as usize % SEEN] = self.stamp;
    }

    /// Marks the hash, and returns true if it was new.
    #[inline(always)]
    pub(crate) fn insert_seen(&mut self, hash: u32) -> bool {
        let seen = &mut self.seen[hash as usize % SEEN];
        std::mem::replace(seen, self.stamp) | 1 != self.stamp
    }

    /// Marks the hash of a key that is about to be acquired with its anchor, which was free.
    /// Returns true if the key is certainly not held (I4).
    #[inline(always)]
    pub(crate) fn insert_anchored(&mut self, hash: u32) -> bool {
        let seen = &mut self.seen[hash as usize % SEEN];
        let is_new = *seen != self.stamp;
        if is_new {
            *seen = self.stamp - 1;
        }
        is_new
    }

    /// Records that a key of a block with this hash may be in `locks`, or anchored.
    #[inline(always)]
    pub(crate) fn mark_single(&mut self, hash: u32) {
        self.single |= 1 << (hash >> 26);
    }

    /// True if a key of a block with this hash may be in `locks`, or anchored. If not, a scan need
    /// not look there.
    #[inline(always)]
    pub(crate) fn may_have_single(&self, hash: u32) -> bool {
        self.single & 1 << (hash >> 26) != 0
    }

    /// True if the fast path is open for the manager at this address.
    #[inline(always)]
    pub(crate) fn is_fast_path_open(&self, manager: usize) -> bool {
        self.gate.load(Ordering::Relaxed) == manager
    }

    #[inline(always)]
    fn set_gate(&self, gate: usize) {
        self.gate.store(gate, Ordering::Relaxed);
    }

    /// Closes the fast path, because a wait is in progress.
    pub(crate) fn close_fast_path(&mut self) {
        self.set_gate(CLOSED);
    }

    /// Opens the fast path again, unless there is a savepoint.
    #[inline]
    pub(crate) fn open_fast_path(&mut self) {
        if !self.has_savepoint() {
            self.set_gate(self.manager_address);
        }
    }

    /// Enables the fast path for the manager at this address.
    pub(crate) fn enable_fast_path(&mut self, manager: usize) {
        self.manager_address = manager;
        self.open_fast_path();
    }

    /// Counts a name that was requested by itself, or a block that a scan came to.
    #[inline(always)]
    pub(crate) fn count(&mut self) {
        self.acquired += 1;
    }

    /// Counts further keys of blocks.
    #[inline(always)]
    pub(crate) fn count_scanned(&mut self, keys: u32) {
        self.scanned += keys;
    }

    /// Uncounts an acquisition that is in `locks` now, and counted there.
    pub(crate) fn uncount(&mut self) {
        // A key that a scan came to was counted as such.
        match self.acquired {
            0 => self.scanned = self.scanned.saturating_sub(1),
            _ => self.acquired -= 1,
        }
    }

    /// Returns a number that the next transaction of the owner has increased by one, most often.
    #[inline(always)]
    pub(crate) fn transaction_number(&self) -> u32 {
        (self.stamp >> 1).into()
    }

    /// Returns the number of acquisitions, with each block of a scan as one.
    #[inline(always)]
    pub(crate) fn acquired(&self) -> u32 {
        self.acquired
    }

    /// Returns the number of acquisitions, with every key.
    #[inline(always)]
    pub(crate) fn acquired_keys(&self) -> u32 {
        self.acquired + self.scanned
    }

    /// True if `name` is a recorded table, held in a mode that covers `mode`.
    #[inline(always)]
    pub(crate) fn is_table_held(&self, name: &Name, mode: Mode) -> bool {
        let known = &self.tables[name.space() as usize % TABLES];
        known.space == name.space()
            && known.stamp == self.stamp
            && mode.set().bits() & !known.modes == 0
    }

    /// Records a table that is held in `mode` or a stronger mode.
    #[inline(always)]
    pub(crate) fn record_table(&mut self, name: Name, mode: Mode) {
        self.tables[name.space() as usize % TABLES] = HeldTable {
            space: name.space(),
            stamp: self.stamp,
            // An owner that holds a table in any mode has IS.
            modes: mode.set().bits() | Mode::IS.set().bits(),
        };
    }
}

/// Lookup.
impl RememberedIndex {
    /// Looks up `name` in `list`, if its hash (for a short key, the hash of its block) has been
    /// seen.
    #[inline(never)]
    pub(crate) fn find(&mut self, list: &RememberedLocks, name: Name, hash: u32) -> IndexMatch {
        let place = name.block();
        let may_be_single = self.may_have_single(hash);
        let mut block = IndexMatch::Nothing;
        let mut match_at = |index| match place {
            Some((wanted, at)) if list.is_block(index, wanted) => match list.bits(index).mode(at) {
                Some(mode) => Some(IndexMatch::Lock(index, mode)),
                None => {
                    // The latest entry of the block (I3).
                    block = match block {
                        IndexMatch::Block(other) => IndexMatch::Block(index.max(other)),
                        _ => IndexMatch::Block(index),
                    };
                    None
                }
            },
            // An anchored key.
            Some(_) if !may_be_single => None,
            _ => {
                let mode = list.mode_of(index, name);
                mode.map(|mode| IndexMatch::Lock(index, mode))
            }
        };
        let found = if list.len() <= MAX_LINEAR {
            (0..list.len()).rev().find_map(match_at)
        } else {
            self.index_all(list);
            let mut same = self.by_hash.iter_hash(spread(hash));
            same.find_map(|&index| match_at(index))
        };
        found.unwrap_or(block)
    }

    /// Returns the mode in which `name` is remembered. As [`find`](Self::find), through a shared
    /// reference, for rare calls.
    pub(crate) fn mode_of(&self, list: &RememberedLocks, name: Name) -> Option<Mode> {
        if self.is_new(name.near_hash()) {
            return None;
        }
        let match_at = |index| match name.block() {
            Some((block, at)) if list.is_block(index, block) => list.bits(index).mode(at),
            _ => list.mode_of(index, name),
        };
        let mut indices = 0..list.len();
        // A table is before its keys in the list, and an owner that has traded keys for a table
        // looks it up at each key.
        match name.class() {
            Class::Table => indices.find_map(match_at),
            _ => indices.rev().find_map(match_at),
        }
    }

    fn index_all(&mut self, list: &RememberedLocks) {
        for index in self.indexed..list.len() {
            if !list.is_dead(index) {
                let hash = spread(list.hash_of(index));
                let hash_of = |&other: &u32| spread(list.hash_of(other));
                self.by_hash.insert_unique(hash, index, hash_of);
            }
        }
        self.indexed = list.len();
    }

    /// Removes the entry at `index`, with this hash, from the index if it is dead.
    pub(crate) fn drop_dead(&mut self, list: &RememberedLocks, index: u32, hash: u32) {
        self.tables = [HeldTable::NONE; TABLES];
        if index < self.indexed && list.is_dead(index) {
            let found = self
                .by_hash
                .find_entry(spread(hash), |&other| other == index);
            if let Ok(found) = found {
                found.remove();
            }
        }
        self.indexed = self.indexed.min(list.len());
    }
}

/// Savepoints.
impl RememberedIndex {
    /// Records a savepoint with this order, when the list has `entries` entries.
    pub(crate) fn set_savepoint(&self, order: u32, entries: u32) {
        if self.entries_before.load(Ordering::Relaxed) == NO_SAVEPOINT {
            self.entries_before.store(entries, Ordering::Relaxed);
        }
        self.savepoint_order.store(order, Ordering::Relaxed);
        self.set_gate(CLOSED);
    }

    /// Retains the locks acquired before `order`, when the list has `entries` entries; 0 retains
    /// none.
    pub(crate) fn retain(&mut self, order: u32, entries: u32) {
        if order != 0 {
            self.set_savepoint(order, entries);
        }
        self.retained = order;
    }

    /// Returns the order before which locks are retained.
    pub(crate) fn retained(&self) -> u32 {
        self.retained
    }

    /// Returns the order of the latest savepoint; 0 if there is none.
    pub(crate) fn savepoint_order(&self) -> u32 {
        self.savepoint_order.load(Ordering::Relaxed)
    }

    /// Sets the order of all later acquisitions to `since`.
    pub(crate) fn reset_orders(&mut self, since: u32) {
        let orders = self.orders.iter_mut();
        orders.for_each(|order| *order = (*order).min(since));
    }

    /// True if entries need orders.
    pub(crate) fn has_savepoint(&self) -> bool {
        self.entries_before.load(Ordering::Relaxed) != NO_SAVEPOINT
    }

    /// Records that the new entry at `index` was acquired at `order`.
    pub(crate) fn set_order(&mut self, index: u32, order: u32) {
        let entries_before = index.min(self.entries_before.load(Ordering::Relaxed));
        self.entries_before.store(entries_before, Ordering::Relaxed);
        self.orders.truncate((index - entries_before) as usize);
        self.orders.push(order);
    }

    /// Returns when the entry at `index` was acquired; 0 if that was before the first savepoint.
    pub(crate) fn order_of(&self, index: u32) -> u32 {
        let behind = index.checked_sub(self.entries_before.load(Ordering::Relaxed));
        behind.map_or(0, |behind| self.orders[behind as usize])
    }

    /// True if a savepoint was taken since the entry at `index` was acquired.
    pub(crate) fn is_before_savepoint(&self, index: u32) -> bool {
        self.has_savepoint() && self.order_of(index) < self.savepoint_order.load(Ordering::Relaxed)
    }
}

impl RememberedIndex {
    /// Resets the counts, and returns the number of keys acquired so far. Held locks stay recorded.
    pub(crate) fn take_acquired_count(&mut self) -> u32 {
        std::mem::take(&mut self.acquired) + std::mem::take(&mut self.scanned)
    }

    /// Removes everything and keeps the storage.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        // With a savepoint the gate is closed.
        let was_open = self.is_fast_path_open(self.manager_address);
        self.clear_fast();
        if !was_open {
            self.clear_rest();
        }
    }

    /// As [`clear`](Self::clear), if the gate is open.
    #[inline(always)]
    pub(crate) fn clear_fast(&mut self) {
        self.acquired = 0;
        self.scanned = 0;
        self.single = 0;
        self.stamp = self.stamp.wrapping_add(2);
        if self.stamp < FIRST_STAMP || self.indexed != 0 {
            self.clear_rest();
        }
    }

    #[cold]
    #[inline(never)]
    fn clear_rest(&mut self) {
        if self.stamp < FIRST_STAMP {
            self.seen = [0; SEEN];
            self.tables = [HeldTable::NONE; TABLES];
            self.stamp = FIRST_STAMP;
        }
        self.by_hash.clear();
        if self.by_hash.capacity() > MAX_KEPT {
            self.by_hash = HashTable::new();
        }
        self.indexed = 0;
        self.entries_before.store(NO_SAVEPOINT, Ordering::Relaxed);
        self.savepoint_order.store(0, Ordering::Relaxed);
        self.retained = 0;
        self.orders = Vec::new();
        self.set_gate(self.manager_address);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.by_hash.allocation_size() + self.orders.capacity() * size_of::<u32>()
    }
}

fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::name::{KeyBlock, KeyHasher};
    use crate::owner::remembered::BlockBits;

    fn key(number: u64) -> (Name, KeyBlock, u32) {
        let name = Name::key(1, &number.to_be_bytes(), &KeyHasher::new(1));
        let (block, at) = name.block().expect("a short key");
        (name, block, at)
    }

    #[test]
    fn keys_are_found_in_their_blocks_until_they_go() {
        let (list, mut lookup) = (RememberedLocks::default(), RememberedIndex::default());
        for number in 0..100 {
            let (name, block, at) = key(number * 64 + 7);
            let index = list.append_block(block, BlockBits::one(at, Mode::S));
            let found = lookup.find(&list, name, block.hash());
            assert_eq!(found, IndexMatch::Lock(index, Mode::S));
            let neighbour = lookup.find(&list, key(number * 64).0, block.hash());
            assert_eq!(neighbour, IndexMatch::Block(index));
            let (other, block, _) = key((number + 1) * 64);
            assert_eq!(lookup.find(&list, other, block.hash()), IndexMatch::Nothing);
        }
        for number in (0..100).rev() {
            let (name, block, _) = key(number * 64 + 7);
            assert_eq!(list.remove(number as u32, name), None);
            lookup.drop_dead(&list, number as u32, block.hash());
            assert_eq!(lookup.find(&list, name, block.hash()), IndexMatch::Nothing);
        }
        assert_eq!(lookup.by_hash.len(), 0);
    }

    #[test]
    fn a_seen_hash_is_new_again_after_the_end() {
        let mut lookup = RememberedIndex::default();
        lookup.enable_fast_path(64);
        for _ in 0..1000 {
            assert!(lookup.is_new(5));
            lookup.mark_seen(5);
            assert!(!lookup.is_new(5) && lookup.is_new(6));
            lookup.clear();
        }
    }

    #[test]
    fn entries_have_their_orders_from_the_first_savepoint_on() {
        let mut lookup = RememberedIndex::default();
        lookup.enable_fast_path(64);
        assert!(!lookup.is_before_savepoint(0));
        lookup.set_savepoint(4, 2);
        lookup.set_order(2, 4);
        lookup.set_order(3, 5);
        assert_eq!(
            [0, 1, 2, 3].map(|index| lookup.order_of(index)),
            [0, 0, 4, 5]
        );
        assert!(lookup.is_before_savepoint(1) && !lookup.is_before_savepoint(2));
        lookup.set_savepoint(6, 4);
        assert!(lookup.is_before_savepoint(3));
        // The later entries are gone.
        lookup.set_order(1, 6);
        assert_eq!([0, 1].map(|index| lookup.order_of(index)), [0, 6]);
        lookup.clear();
        assert!(!lookup.has_savepoint() && lookup.is_fast_path_open(64));
    }
}
