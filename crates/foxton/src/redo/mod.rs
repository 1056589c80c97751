//! Redo: the log records of transactions, and their replay.

/// Patches: the difference between two values of a row.
pub(crate) mod patch;

/// Log records of a transaction.
pub(crate) mod record;

/// Replay of log records as committed transactions.
pub(crate) mod replay;

/// Reading the parts of a committed transaction.
pub(crate) mod parts;
