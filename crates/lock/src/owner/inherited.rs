//! What a place keeps between two of its transactions: locks that the last one left behind and the
//! next one may take over.
//!
//! Such a lock stands in its queue as granted to the place, and belongs to no transaction. Its
//! entry lies here instead of among the owner's held ones, where others reach it: whoever takes the
//! entry out, under the mutex, has the lock. The place's own transaction takes it over; anybody
//! else gives it back. So nobody has to wait for a worker that sleeps.
//!
//! # Invariants
//!
//! * I1  An entry here is in no list of held locks, and a name has at most one entry of a place in
//!   both together.

use crate::{
    mode::{Mode, Set},
    name::Name,
    owner::lock_list::LockEntry,
};

/// A lock that nobody's transaction holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InheritedLock {
    pub(crate) entry: LockEntry,
    /// Transactions of the place that ended without asking for it.
    pub(crate) unused_by: u32,
}

/// The locks that one place keeps.
#[derive(Debug, Default)]
pub(crate) struct InheritedLocks {
    locks: Vec<InheritedLock>,
    /// How many were taken away by others.
    pub(crate) revoked: u64,
}

impl InheritedLocks {
    pub(crate) fn len(&self) -> usize {
        self.locks.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &InheritedLock> {
        self.locks.iter()
    }

    pub(crate) fn contains(&self, name: Name) -> bool {
        self.locks.iter().any(|lock| lock.entry.name == name)
    }

    pub(crate) fn insert(&mut self, entry: LockEntry) {
        debug_assert!(!self.contains(entry.name), "I1");
        self.locks.push(InheritedLock {
            entry,
            unused_by: 0,
        });
    }

    /// For its own place: the lock on `name`, to use it or to give it back.
    pub(crate) fn remove(&mut self, name: Name) -> Option<LockEntry> {
        let at = self.locks.iter().position(|lock| lock.entry.name == name)?;
        Some(self.locks.swap_remove(at).entry)
    }

    /// For somebody else: the lock on `name`, to give it back, if it is in the way of `mode`.
    pub(crate) fn revoke(&mut self, name: Name, mode: Mode) -> Option<LockEntry> {
        let conflicts =
            |lock: &InheritedLock| lock.entry.name == name && !lock.entry.mode.compatible(mode);
        let at = self.locks.iter().position(conflicts)?;
        self.revoked += 1;
        Some(self.locks.swap_remove(at).entry)
    }

    /// Counts one more transaction that asked for none of these, and takes out what was passed over
    /// more than `limit` times.
    pub(crate) fn expire(&mut self, limit: u32) -> impl Iterator<Item = LockEntry> {
        self.locks.iter_mut().for_each(|lock| lock.unused_by += 1);
        let given_up = self
            .locks
            .extract_if(.., move |lock| lock.unused_by > limit);
        given_up.map(|lock| lock.entry)
    }

    /// The modes of what is kept of the names that `among` chooses.
    pub(crate) fn modes(&self, among: impl Fn(Name) -> bool) -> Set {
        let chosen = self.locks.iter().filter(|lock| among(lock.entry.name));
        chosen.fold(Set::NONE, |all, lock| all.union(lock.entry.mode.set()))
    }
}
