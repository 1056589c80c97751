//! The tables, tested in one program: many programs cost more to link than to run.
//!
//! `cargo test -p foxton-store --test it NAME::` runs those of the file `NAME.rs`.
#![cfg(not(loom))]

mod bounded;
mod domains;
mod inline_slot;
mod model;
mod page_format;
mod page_log;
mod page_rows;
mod recovery_records;
mod stress;
