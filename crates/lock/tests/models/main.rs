//! Models of every memory ordering, under loom.
//!
//! ```text
//! LOOM_MAX_BRANCHES=50000 RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom \
//!     -p foxton-lock --test models
//! ```
#![cfg(loom)]

mod modelled;

mod anchors;
mod direct;
mod handoff;
mod inherit;
mod sharded;
mod staged;
