//! Models of every memory ordering, under loom.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom \
//!     -p foxton-store --test models
//! ```
#![cfg(loom)]

mod table;
