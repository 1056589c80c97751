//! Models of every memory ordering, under loom.
//!
//! ```text
//! LOOM_MAX_BRANCHES=50000 RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom \
//!     -p foxton-sync --test models
//! ```
#![cfg(loom)]

mod admission;
mod anchor;
mod asymmetric;
mod consolidation;
mod elided;
mod epoch;
mod hazard;
mod latch;
mod park;
mod ring;
