//! The workloads: each one's tables, load, transactions and checks.

/// What a workload is to the laboratory.
pub mod contract;

/// Loading in parallel.
pub mod loading;

/// One transaction, run once or until it commits.
pub mod attempt;

/// Range reads and point updates.
pub mod txbench;

/// A bank's branches, tellers, accounts and history.
pub mod tpcb;

/// One table with an index, scanned and changed.
pub mod wisconsin;
