//! The index: finding leaves of the tree, and changing them.
//!
//! Readers descend by versions: they read the latch of a child, then check whether the parent is
//! unchanged, and only then believe that this was the right child. A writer does the same, and
//! latches only the nodes it changes, by a `try_lock` at the version that was read. If that fails,
//! another thread was here, and the descent begins again. No thread waits while holding a latch, so
//! there can be no deadlock.
//!
//! The order of the modules below is the ladder.

/// From the root to a leaf.
pub(super) mod descend;

/// From a leaf to its neighbours, and proof that nothing was missed.
pub(super) mod walk;

/// Splits of full nodes.
pub(super) mod split;

/// Insertion of records.
pub(super) mod insert;

/// Unlinking of empty leaves.
pub(super) mod shrink;

/// Removal of records.
pub(super) mod remove;
