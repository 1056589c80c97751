#![forbid(unsafe_code)]
//! The laboratory: workloads, the driver that runs them, what is measured, and how it is told.
//!
//! A measurement is made of *points*: one number of clients (MPL) against one variant of the
//! engine. The points of everything compared are interleaved and repeated, so that a slow minute
//! of the machine falls on all alike, and every number comes with its spread, the machine and the
//! settings. A workload's own consistency checks run after each point; a number whose checks
//! failed is void.

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

/// Two runs held against each other.
pub mod compare;

/// Telling a person how far it is.
pub mod progress;

/// Projections to machines that are not at hand.
pub mod project;

/// What is compared: configurations of the engine.
pub mod system;

/// Tables, loads, transactions and checks of the workloads.
pub mod workload;

/// The experiments behind `foxton bench`.
pub mod bench;

/// The figures and tables of the documents, repeated.
pub mod figure;

/// All of them in one go, and one report.
pub mod reproduce;
