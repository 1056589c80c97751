//! The log, tested in one program: many programs cost more to link than to run.
//!
//! `cargo test -p foxton-log --test it NAME::` runs those of the file `NAME.rs`.
#![cfg(not(loom))]

mod support;

mod buffers;
mod concurrent;
mod crash;
mod damage;
mod devices;
mod evicted;
mod failures;
#[cfg(feature = "hooks")]
mod hooks;
mod record_reader;
mod start;
