//! The anchored locks of one owner: real locks whose words are beside the data.
//!
//! Each has an entry in the owner's list (`remembered`), by which other threads see it. Here is
//! what only the owner needs: the right to release the anchor, and what is counted until then.
//!
//! # Invariants
//!
//! * I1  An entry of the list has a position here exactly while the anchor is held by this owner,
//!   or is inflated and the lock is in the queue of its name. The lock here has that entry's index.

use crate::mode::Mode;
use foxton_sync::anchor::{HeldAnchor, Hold, LockAnchor};

/// Positions above which storage is freed after a large transaction.
const MAX_KEPT: usize = 4096;
/// Latest locks among which one is looked up by its anchor.
const RECENT: usize = 8;

/// One anchored lock.
#[derive(Debug)]
pub(crate) struct AnchoredLock {
    held: HeldAnchor,
    /// Index of its entry in the owner's list.
    pub(crate) index: u32,
    /// Number of its granule.
    pub(crate) granule: u32,
    pub(crate) mode: Mode,
}

impl AnchoredLock {
    /// Releases the anchor for the owner at `owner`. If the lock is in the queue, returns the right
    /// to leave it.
    #[inline(always)]
    pub(crate) fn release(self, owner: u32) -> Result<(), HeldAnchor> {
        self.held.release(hold(owner, self.mode))
    }

    /// Returns the right to release the anchor.
    pub(crate) fn into_held(self) -> HeldAnchor {
        self.held
    }
}

/// Returns the word of an owner that holds an anchor in `mode`.
#[inline(always)]
pub(crate) fn hold(owner: u32, mode: Mode) -> Hold {
    Hold {
        owner,
        mode: mode.set().bits(),
    }
}

/// Anchored locks, by position.
#[derive(Debug, Default)]
pub(crate) struct AnchoredLocks(Vec<Option<AnchoredLock>>);

impl AnchoredLocks {
    /// True if there is none.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the position of the next lock.
    #[inline(always)]
    pub(crate) fn next_position(&self) -> u32 {
        self.0.len() as u32
    }

    /// Adds a lock whose entry in the owner's list has this index.
    #[inline(always)]
    pub(crate) fn push(&mut self, held: HeldAnchor, index: u32, granule: u32, mode: Mode) {
        self.0.push(Some(AnchoredLock {
            held,
            index,
            granule,
            mode,
        }));
    }

    /// Takes all locks, the latest first, and keeps the storage.
    #[inline(always)]
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = AnchoredLock> + '_ {
        self.0.drain(..).rev().flatten()
    }

    /// Takes the storage of all locks, to be drained and given back.
    #[inline(always)]
    pub(crate) fn take_all(&mut self) -> AnchoredLocks {
        std::mem::take(self)
    }

    /// Gives back the storage that was taken, unless it is large.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, drained: AnchoredLocks) {
        debug_assert!(drained.is_empty() && self.is_empty());
        if drained.0.capacity() <= MAX_KEPT {
            self.0 = drained.0;
        }
    }

    /// Takes the lock at `position`.
    pub(crate) fn take(&mut self, position: u32) -> AnchoredLock {
        let lock = self.0[position as usize].take();
        while self.0.last().is_some_and(Option::is_none) {
            self.0.pop();
        }
        lock.expect("I1: a position has a lock")
    }

    /// Returns the position of the lock on `anchor`, if it is one of the latest.
    #[inline]
    pub(crate) fn find_recent(&self, anchor: &LockAnchor) -> Option<u32> {
        let recent = self.0.iter().enumerate().rev().take(RECENT);
        let is_it =
            |lock: &Option<AnchoredLock>| lock.as_ref().is_some_and(|lock| lock.held.is_of(anchor));
        let mut found = recent.filter(|(_, lock)| is_it(lock));
        found.next().map(|(position, _)| position as u32)
    }

    /// Returns the lock at `position`.
    pub(crate) fn at(&self, position: u32) -> &AnchoredLock {
        let lock = self.0[position as usize].as_ref();
        lock.expect("I1: a position has a lock")
    }

    /// Gives the lock at `position`, of the owner at `owner`, the mode `target`. Returns false if
    /// its anchor is inflated.
    pub(crate) fn set_mode(&mut self, position: u32, owner: u32, target: Mode) -> bool {
        let lock = self.0[position as usize].as_mut();
        let lock = lock.expect("I1: a position has a lock");
        let (from, to) = (hold(owner, lock.mode), hold(owner, target));
        let changed = lock.held.set_mode(from, to);
        if changed {
            lock.mode = target;
        }
        changed
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Option<AnchoredLock>>()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use foxton_sync::anchor::Anchors;

    #[test]
    fn positions_stay_until_their_locks_are_taken() {
        let anchors = Anchors::free(4);
        let mut locks = AnchoredLocks::default();
        for (at, anchor) in anchors.iter().enumerate() {
            assert_eq!(locks.next_position(), at as u32);
            let held = anchor.hold(hold(3, Mode::S)).expect("free");
            locks.push(held, at as u32, 0, Mode::S);
        }
        assert_eq!(locks.find_recent(&anchors[1]), Some(1));
        assert!(locks.set_mode(1, 3, Mode::X));
        assert_eq!(locks.at(1).mode, Mode::X);
        assert!(locks.take(1).release(3).is_ok());
        assert_eq!(locks.find_recent(&anchors[1]), None);
        assert!(locks.take(3).release(3).is_ok());
        assert_eq!(locks.next_position(), 3);
        let mut taken = locks.take_all();
        let left: Vec<u32> = taken
            .drain()
            .map(|lock| {
                let index = lock.index;
                lock.release(3).expect("nobody made it inflated");
                index
            })
            .collect();
        assert_eq!(left, [2, 0]);
        let storage = taken.memory_bytes();
        locks.give_back(taken);
        assert!(locks.is_empty() && locks.memory_bytes() == storage);
    }
}
