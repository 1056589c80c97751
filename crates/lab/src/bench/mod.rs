//! The experiments behind `foxton bench`.

/// Why an experiment could not be made.
pub mod error;

/// What every sweep over clients is told.
pub mod runs;

/// A database for one experiment.
pub mod scratch;

/// Points interleaved over everything compared.
pub mod sweep;

/// The same for what is no database.
pub mod pace;

/// txbench loaded into a database, ready for clients.
pub mod loaded;

/// txbench over time, while one transaction never ends.
pub mod stalled;

/// txbench over a sweep of clients, or over time with a stalled transaction.
pub mod txbench;

/// Any workload over a sweep of clients.
pub mod workload;

/// How often a transaction passes a place where it could meet others.
pub mod critical_sections;

/// What a commit costs, and how many share a sync.
pub mod commit;

/// A lock manager alone.
pub mod alone;

/// The same by how many locks are held at once.
pub(crate) mod by_held;

/// Clients that have a database each.
mod apart;

/// What locking costs a transaction, and a lock alone.
pub mod lock_cost;

/// The lock manager alone, with many at it.
pub mod lock_only;

/// Restarts, and what checkpoints cost.
pub mod restart;

/// A queue of jobs in a table, with locked ones passed over or waited for.
pub mod queue;

/// Who is passed by whom, and how often.
pub mod fairness;

/// Everybody at the same few names: progress, and whether each report of a deadlock is right.
pub mod storm;

/// How long records are.
pub mod lengths;

/// The log buffer alone.
pub mod log_insert;

/// Small structures behind every latch, elided ones among them.
pub mod latches;
