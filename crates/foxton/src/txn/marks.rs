//! Where a transaction was when it took its savepoints.
//!
//! # Invariants
//!
//! * I1  Marks are in order: each has as many changes as the one before it, or more, and a greater number.
//! * I2  A mark's length of redo means something only while as many parts have gone as when it was made.

/// Where a transaction was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) number: u64,
    /// Changes so far.
    pub(super) changes: usize,
    /// Bytes of redo that had not gone to the log.
    pub(super) redo: usize,
    /// Parts that had gone to the log.
    pub(super) parts: u64,
}

/// The savepoints of a transaction that it can go back to.
#[derive(Debug, Default)]
pub(crate) struct SavepointStack {
    pub(super) open: Vec<Mark>,
    /// Savepoints taken so far, by all transactions of the worker: in a session one has the owner of the one
    /// before, and must not take its savepoints for its own.
    pub(super) taken: u64,
}

impl SavepointStack {
    /// The transaction is over.
    pub(crate) fn forget(&mut self) {
        self.open.clear();
    }
}
