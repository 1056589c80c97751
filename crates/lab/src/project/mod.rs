//! Projections from measured times to machines with more processors.

/// Number of processors that a latch over a whole table can keep busy.
pub mod overlap;

/// Throughput of more processors, fitted to measurements on a few.
pub mod scalability;
