//! Models of every memory ordering, under loom.
//!
//! ```text
//! LOOM_MAX_BRANCHES=50000 RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom \
//!     -p foxton-store --test models
//! ```
#![cfg(loom)]

mod frame;
mod paged;
mod table;
