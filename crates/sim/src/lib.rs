#![forbid(unsafe_code)]
//! Faults, crashes and checkers.
//!
//! A load whose every transaction is known beforehand ([`ledger`]) runs on a database while
//! expectations are kept outside it ([`notebook`]). Then the database is killed, or its device
//! fails, and what a restart finds is compared with what was expected.

/// What the load does, and what must be found afterwards.
pub mod ledger;

/// Expectations kept in a file that survives a kill.
pub mod notebook;
