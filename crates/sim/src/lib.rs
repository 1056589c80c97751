#![forbid(unsafe_code)]
//! Faults, crashes and checkers.
//!
//! A load whose every transaction is known beforehand ([`ledger`]) runs on a database while
//! expectations are kept outside it. Then the database's process is killed ([`kill`]), or its
//! device fails or loses power ([`crash`]), and the result of a restart is compared with the
//! expectations. Besides, random [`clients`] record every answer, and two checkers inspect the
//! whole [`history`]: one [replays](mod@replay) it, one transaction after the other, and one looks
//! for cycles in the [`graph`] of dependencies.

/// The load, and what must be found afterwards.
pub mod ledger;

/// Histories: requests of transactions and their answers.
pub mod history;

/// Replay of a history, one transaction after the other.
pub mod replay;

/// The graph of dependencies between transactions, and its cycles.
pub mod graph;

/// Isolation levels and the anomalies that each allows.
pub mod level;

/// Random transactions, with every answer recorded.
pub mod clients;

/// Anomalies as scripts, run in every order.
pub mod case;

/// The ledger's transactions on a database.
pub mod load;

/// Expectations in a file that survives a kill.
pub mod notebook;

/// Backups taken one after the other, and a list of them.
pub mod backups;

/// The process that is killed.
pub mod victim;

/// Where a database lies when its process dies.
pub mod ground;

/// File systems whose power is cut.
#[cfg(target_os = "linux")]
pub mod loop_mount;

/// Checks of the backups that a killed process took.
mod shelf;

/// Kill and restart.
pub mod kill;

/// Faults at the k-th system call.
#[cfg(target_os = "linux")]
pub mod calls;

/// Power cuts at every moment of a recorded run.
pub mod crash;

/// Damage at rest.
pub mod flip;

/// Pages that are larger than memory, and their restart.
pub mod pages;

/// Power cuts of databases with resident and paged tables.
pub mod components;

/// Files whose checksums are made right again.
pub mod mend;

/// Files garbled as a string of bytes says.
pub mod garble;

/// Entries for fuzzers.
pub mod fuzz;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
