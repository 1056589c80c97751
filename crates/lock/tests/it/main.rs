//! The lock managers, tested in one program: many programs cost more to link than to run.
//!
//! `cargo test -p foxton-lock --test it NAME::` runs those of the file `NAME.rs`.
#![cfg(not(any(loom, shuttle)))]

mod anchors;
mod barging;
mod contention;
mod contract;
#[cfg(feature = "emulated")]
mod elided;
mod escalation;
mod fairness;
mod fenced;
mod inherit;
mod lock_range;
mod memory;
// One thread, so there is nothing here for a race detector, which is slow.
#[cfg(not(foxton_tsan))]
mod model;
mod played;
mod queue_length;
mod scripts;
mod seeing;
mod stalled;
