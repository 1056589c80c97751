//! The laboratory, tested in one program: many programs cost more to link than to run.
//!
//! `cargo test -p foxton-lab --test it NAME::` runs those of the file `NAME.rs`.

mod critical_sections;
mod elision;
mod figures;
mod latches;
mod smoke;
mod spoilt;
mod tatp;
mod tpcc;
mod tpcc_kill;
mod workloads;
