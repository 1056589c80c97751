//! Inherited locks: locks that a transaction leaves in its owner record, for the next transaction
//! with the same owner index.
//!
//! An inherited lock is granted in its queue to the owner index, and no running transaction holds
//! it. Its entry is here instead of in the owner's list, because other threads need access: a
//! thread that removes the entry, under the mutex, has the lock. The next transaction with this
//! index takes it over; every other thread releases it. So nothing waits for a worker that sleeps.
//!
//! # Invariants
//!
//! * I1  An entry here is in no list of held locks. A name has at most one entry of an owner index
//!   in both together.

use crate::{
    mode::{Mode, Set},
    name::Name,
    owner::lock_list::LockEntry,
};

/// Lock that no running transaction holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InheritedLock {
    pub(crate) entry: LockEntry,
    /// Number of transactions with this index that ended without requesting it.
    pub(crate) unused_by: u32,
}

/// Inherited locks of one owner index.
#[derive(Debug, Default)]
pub(crate) struct InheritedLocks {
    locks: Vec<InheritedLock>,
    /// Number of locks that were revoked by other owners.
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

    /// Removes the lock on `name`, so that its own owner uses or releases it.
    pub(crate) fn remove(&mut self, name: Name) -> Option<LockEntry> {
        let at = self.locks.iter().position(|lock| lock.entry.name == name)?;
        Some(self.locks.swap_remove(at).entry)
    }

    /// Removes the lock on `name` if it conflicts with `mode`, so that another owner releases it.
    pub(crate) fn revoke(&mut self, name: Name, mode: Mode) -> Option<LockEntry> {
        let conflicts =
            |lock: &InheritedLock| lock.entry.name == name && !lock.entry.mode.compatible(mode);
        let at = self.locks.iter().position(conflicts)?;
        self.revoked += 1;
        Some(self.locks.swap_remove(at).entry)
    }

    /// Counts one more transaction that requested none of these, and removes locks that more than
    /// `limit` transactions did not use.
    pub(crate) fn expire(&mut self, limit: u32) -> impl Iterator<Item = LockEntry> {
        self.locks.iter_mut().for_each(|lock| lock.unused_by += 1);
        let given_up = self
            .locks
            .extract_if(.., move |lock| lock.unused_by > limit);
        given_up.map(|lock| lock.entry)
    }

    /// Removes all locks, so that their own owner releases them.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = LockEntry> {
        self.locks.drain(..).map(|lock| lock.entry)
    }

    /// Returns the modes of the locks on names that `among` accepts.
    pub(crate) fn modes(&self, among: impl Fn(Name) -> bool) -> Set {
        let chosen = self.locks.iter().filter(|lock| among(lock.entry.name));
        chosen.fold(Set::NONE, |all, lock| all.union(lock.entry.mode.set()))
    }
}
