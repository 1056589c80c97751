//! Recovery: the tables of a database, rebuilt from its files.

/// Errors of opening a directory.
pub(crate) mod open_error;

/// Restart from checkpoint and log.
pub(crate) mod restart;
