//! What was measured: outcomes, latencies, the machine's resources, and the machine itself.

/// What became of each attempt.
pub mod outcome;

/// How long transactions took.
pub mod latency;

/// Processor time and memory the process used.
pub mod usage;

/// What was sampled while a run went on.
pub mod timeline;

/// Which machine, which versions.
pub mod machine;

/// Memory that is left, and when there is too little to go on.
pub mod memory;

/// Where the program's own time goes, sampled.
pub mod profile;

/// Repetitions of one measurement and their spread.
pub mod spread;

/// How many times one measurement is another, and how sure that is.
pub mod ratio;

/// What one run of a closed loop measured.
pub mod run;

/// How the processors spent a window, by part of the engine.
pub mod time;

/// Points and curves: throughput over the number of clients.
pub mod curve;

/// What one transaction passes that others might have to wait for.
pub mod anatomy;
