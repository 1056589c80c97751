//! Beyond the machine at hand: what measured times say about machines with more processors.

/// How many processors a latch over a whole table leaves room for.
pub mod overlap;

/// How much more processors do, fitted to a few.
pub mod scalability;
