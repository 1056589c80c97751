//! The experiments behind `foxton bench`.

/// Errors of experiments.
pub mod error;

/// Settings of every sweep over clients.
pub mod runs;

/// Directories of experiments.
pub mod directory;

/// A database for one experiment.
pub mod scratch;

/// Numbers with spread, as a table and as a record.
pub mod measured;

/// Clients, and counters sampled each second.
mod observed;

/// Rows that count their updates, their checks, and clients that read and update them.
mod rows;

/// Points interleaved over all systems.
pub mod sweep;

/// Settings of sweeps without a database.
pub mod pace;

/// txbench loaded into a database, ready for clients.
pub mod loaded;

/// txbench over time, while one transaction never ends.
pub mod stalled;

/// txbench over a sweep of clients, or over time with a stalled transaction.
pub mod txbench;

/// Any workload over a sweep of clients.
pub mod workload;

/// Counting the critical sections of a transaction.
pub mod critical_sections;

/// Cost of a commit, and commits for each sync.
pub mod commit;

/// A lock manager alone.
pub mod alone;

/// A lock manager alone, by the number of locks held at once.
pub(crate) mod by_held;

/// Clients with a database each.
mod apart;

/// Instructions, counted by callgrind.
mod callgrind;

/// Cost of locking for a transaction, and of a lock alone.
pub mod lock_cost;

/// The lock manager alone, with many threads.
pub mod lock_only;

/// Restarts, and the cost of checkpoints.
pub mod restart;

/// Paged tables whose data are larger than their memory.
pub mod pages;

/// A queue of jobs in a table, with locked jobs skipped or waited for.
pub mod queue;

/// Reads at snapshots, and what a snapshot that does not end costs.
pub mod snapshots;

/// Updates, reads, memory and closing after a peak of open transactions.
pub mod peak;

/// One hot row that tasks or threads update.
pub mod hot_row;

/// Readers granted before waiting writers, counted.
pub mod fairness;

/// Many threads that want the same few names: progress, and whether reports of deadlocks are right.
pub mod storm;

/// Lengths of records.
pub mod lengths;

/// The log buffer alone.
pub mod log_insert;

/// Small structures behind every latch, also elided ones.
pub mod latches;
