#![forbid(unsafe_code)]
//! Faults, crashes and checkers.
//!
//! A load whose every transaction is known beforehand ([`ledger`]) runs on a database while
//! expectations are kept outside it. Then the database's process is killed ([`kill`]), or its
//! device fails or loses power ([`crash`]), and what a restart finds is compared with what was
//! expected. Beside it, random [`clients`] note every answer, and judges look at the whole
//! [`history`]: one [replays](mod@replay) it, one transaction after the other, and one looks for circles in the
//! [`graph`] of who depends on whom.

/// What the load does, and what must be found afterwards.
pub mod ledger;

/// What transactions asked and saw, noted.
pub mod history;

/// A history run again, one transaction after the other.
pub mod replay;

/// Who depends on whom, and where that goes in a circle.
pub mod graph;

/// What each isolation level lets through.
pub mod level;

/// Random transactions, noted.
pub mod clients;

/// Anomalies as scripts, played in every order.
pub mod case;

/// The ledger's transactions on a database.
pub mod load;

/// Expectations kept in a file that survives a kill.
pub mod notebook;

/// One backup after the other, and a list of them.
pub mod backups;

/// The process that is killed.
pub mod victim;

/// What a database lies on when its process dies.
pub mod ground;

/// File systems whose power is cut.
#[cfg(target_os = "linux")]
pub mod loop_mount;

/// What became of the backups that a killed process took.
mod shelf;

/// Kill and restart.
pub mod kill;

/// Killed, or refused, at the k-th system call.
#[cfg(target_os = "linux")]
pub mod calls;

/// Power cuts at every moment of a recorded run.
pub mod crash;

/// Damage at rest.
pub mod flip;

/// Pages that are larger than memory, and their restart.
pub mod pages;

/// Checks made right again.
pub mod mend;

/// Files garbled as bytes say.
pub mod garble;

/// What fuzzers call.
pub mod fuzz;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
