//! The primitives, tested in one program: many programs cost more to link than to run.
//!
//! `cargo test -p foxton-sync --test it NAME::` runs those of the file `NAME.rs`.
#![cfg(not(loom))]

mod elided;
mod epoch;
mod hazard;
#[cfg(feature = "hooks")]
mod hooks;
mod latch_contract;
mod park;
mod smoke;
mod worker;
