//! The workloads: each one's tables, load, transactions and checks.

/// Loading in parallel.
pub mod loading;

/// The interface between workloads and the laboratory.
pub mod contract;

/// One transaction, run once or until it commits.
pub mod attempt;

/// Reading whole tables of an idle database.
pub mod whole_table;

/// Changes of transactions, row by row.
pub mod ledger;

/// Range reads and point updates.
pub mod txbench;

/// A bank's branches, tellers, accounts and history.
pub mod tpcb;

/// A register of telephone subscribers.
pub mod tatp;

/// Rows found through an index.
pub mod secondary;

/// A wholesale supplier: TPC-C.
pub mod tpcc;

/// One table with an index, scanned and changed.
pub mod wisconsin;

/// Records read and written by unevenly drawn keys.
pub mod ycsb;

/// Customers with two accounts, and six short transactions.
pub mod smallbank;

/// Money moved between accounts, and an auditor.
pub mod transfers;

/// Points and ranges of eight tables with an index each.
pub mod sysbench;

/// Tables of each client's own.
pub mod private_insert;

/// Small structures that threads share behind latches.
pub mod micro;
