//! Implementations of the contract.

/// One name: who holds it, who waits for it.
pub(crate) mod head;

/// The names of one bucket.
pub(crate) mod heads;

/// What managers with latched queues share.
pub mod queued;

/// One latch over the whole table.
pub mod global;

/// A latch for each bucket.
pub mod bucket;

/// Either arrangement, made to be elided.
pub mod elidable;

/// Locks that are only remembered until somebody conflicts.
pub mod direct;

/// Latches for shards, and an order that knows who is waited for.
pub mod sharded;

/// No latch while nobody waits.
pub mod staged;

/// Locks that go from one transaction to the next, over any manager.
pub mod inherit;
