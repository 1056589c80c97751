#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
//! The laboratory: workloads, the driver that runs them, measurements, and reports.
//!
//! A measurement consists of *points*: one number of clients (MPL) with one system. The points of
//! all systems are interleaved and repeated, so that a slow minute of the machine affects all, and
//! every number has its spread, the machine and the settings. A workload's own consistency checks
//! run after each point; a number whose checks failed is void.

/// Random numbers that can be drawn again.
pub mod random;

/// Threads that begin together, or not at all.
pub mod threads;

/// Outcomes, latencies, resources, the machine, the spread.
pub mod measure;

/// Clients as threads in a closed loop.
pub mod driver;

/// Tables, CSV, JSON, SVG and HTML.
pub mod report;

/// Comparison of two runs.
pub mod compare;

/// Progress for a person.
pub mod progress;

/// Projections to other machines.
pub mod project;

/// The systems that are compared: configurations of the engine.
pub mod system;

/// Tables, loads, transactions and checks of the workloads.
pub mod workload;

/// The experiments behind `foxton bench`.
pub mod bench;

/// The figures and tables of the documents, repeated.
pub mod figure;

/// All figures in one run, and one report.
pub mod reproduce;

/// Published numbers as records, and the documents rendered from them.
pub mod results;
