//! Measurements: outcomes, latencies, the machine's resources, and the machine itself.

/// Outcomes of attempts.
pub mod outcome;

/// Time of transactions.
pub mod latency;

/// Processor time and memory of the process.
pub mod usage;

/// Repetitions of one measurement and their spread.
pub mod spread;

/// Samples during a run.
pub mod timeline;

/// Machine and versions.
pub mod machine;

/// Free memory, and the end of runs that leave too little.
pub mod memory;

/// Where the program's own time goes, sampled.
pub mod profile;

/// The ratio of two measurements, and its interval.
pub mod ratio;

/// Measurements of one run of a closed loop.
pub mod run;

/// How the processors spent a window, by part of the engine.
pub mod time;

/// Points and curves: throughput over the number of clients.
pub mod curve;

/// Critical sections that one transaction passes.
pub mod anatomy;
