//! Limits on the memory of locks, and the memory of each owner's locks.
//!
//! # Sharing
//!
//! An owner publishes the memory of its locks in its record, once in a few hundred acquisitions. No
//! other thread writes there, so no counter is shared. A thread that needs the sum walks over the
//! records.

use foxton_sync::shim::{AtomicU64, Ordering};

/// Memory of a lock in a queue, about: its owner's entry with a share of the index, and the
/// manager's entry or request. `tests/it/memory.rs` checks that every manager stays below a hundred
/// bytes.
pub(crate) const LOCK_BYTES: usize = 96;
/// Memory of an entry of remembered locks: one lock, or some of sixty-four neighbours.
pub(crate) const ENTRY_BYTES: usize = 32;
/// Most acquisitions between two checks.
const MAX_INTERVAL: u32 = 256;

/// Limits above which owners trade key locks for table locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryLimits {
    /// Number of keys of one table.
    pub(crate) keys: u32,
    /// Bytes of one owner's locks.
    pub(crate) owner_bytes: usize,
    /// Bytes of the locks of all owners together.
    pub(crate) total_bytes: usize,
}

impl MemoryLimits {
    pub(crate) const NONE: Self = Self {
        keys: u32::MAX,
        owner_bytes: usize::MAX,
        total_bytes: usize::MAX,
    };

    /// Returns the number of acquisitions between two checks, so that an owner exceeds no limit by
    /// more than a quarter.
    pub(crate) fn check_interval(&self) -> u32 {
        if *self == Self::NONE {
            return u32::MAX;
        }
        let quarter = self.owner_bytes.min(self.total_bytes) / LOCK_BYTES / 4;
        let quarter = u32::try_from(quarter).unwrap_or(u32::MAX);
        MAX_INTERVAL.min(self.keys).min(quarter).max(1)
    }
}

/// Memory of an owner's locks, published by the owner alone.
#[derive(Debug, Default)]
pub(crate) struct LockMemory {
    /// Memory at the owner's last check.
    bytes: AtomicU64,
}

/// Escalations of an owner. Written by the owner alone.
#[derive(Debug, Default)]
pub(crate) struct EscalationCounts {
    pub(crate) done: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) traded: AtomicU64,
}

impl LockMemory {
    pub(crate) fn publish(&self, bytes: usize) {
        // Relaxed, here and below: a count that others add up while it changes.
        self.bytes.store(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_looked_at_before_it_is_passed_by_a_quarter() {
        assert_eq!(MemoryLimits::NONE.check_interval(), u32::MAX);
        let keys = |keys| MemoryLimits {
            keys,
            ..MemoryLimits::NONE
        };
        assert_eq!(
            [1, 20, 10_000].map(|n| keys(n).check_interval()),
            [1, 20, MAX_INTERVAL]
        );
        let owner_bytes = |locks: usize| MemoryLimits {
            owner_bytes: locks * LOCK_BYTES,
            ..MemoryLimits::NONE
        };
        assert_eq!(
            [0, 40, 1 << 20].map(|n| owner_bytes(n).check_interval()),
            [1, 10, MAX_INTERVAL]
        );
    }
}
