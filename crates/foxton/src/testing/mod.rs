//! Injected faults and failpoints, for tests.

/// Injected faults: steps of the lock protocol that tests leave out.
#[cfg(not(feature = "planted"))]
pub(crate) mod injected_fault;
/// Injected faults: steps of the lock protocol that tests leave out.
#[cfg(feature = "planted")]
pub mod injected_fault;

/// Failpoints: places where tests pause or fail an operation.
pub mod failpoint;
