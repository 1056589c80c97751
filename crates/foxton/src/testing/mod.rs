//! Failpoints and injected faults, for tests.

/// Injected faults: steps that tests make the engine leave out or do wrong.
pub mod injected_fault;

/// Failpoints: places where tests pause or fail an operation.
pub mod failpoint;
