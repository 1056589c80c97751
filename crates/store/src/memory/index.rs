//! The tree over the nodes: finding leaves, and changing them.
//!
//! Readers go down by versions: they read the latch of a child, then ask whether the parent is still
//! as it was, and only then believe that this was the child to go to. Whoever changes something does
//! the same, and latches only what is changed, by a `try_lock` at the version that was read. If that
//! fails, somebody else was here, and the descent begins again: nobody waits while holding anything,
//! so nothing can deadlock.
//!
//! The order of the modules below is the ladder.

/// From the root to a leaf.
pub(super) mod descend;

/// From a leaf to its neighbours, and proof that nothing was missed.
pub(super) mod walk;

/// Making room.
pub(super) mod split;

/// New records.
pub(super) mod insert;

/// Taking empty leaves out.
pub(super) mod shrink;

/// Records that go.
pub(super) mod remove;
