//! Implementations of the contract.

/// The contract in its plainest form: one mutex and plain lists.
pub mod reference;

/// Managers whose queues are protected by latches: one for all, or one for each bucket.
pub mod latched;

/// Biased locks: the owner only remembers them until a conflicting request arrives.
pub mod direct;

/// Sharded latches, and an order of grants that considers who blocks the most waiters.
pub mod sharded;

/// Lock chains without latches; a latch is taken only once a request waits.
pub mod staged;

/// Speculative lock inheritance, over any manager.
pub mod inherit;
