//! Outcome of a case.

use std::collections::BTreeMap;

/// Rows of a table.
pub(crate) type Rows = BTreeMap<u64, i64>;

/// Answer of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Nothing that could differ.
    Done,
    /// A value, or `None` if there is none.
    Value(Option<i64>),
    /// Rows of a range, in its order.
    Rows(Vec<(u64, i64)>),
    /// The key had a value already.
    Exists,
}

/// Outcome of one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Played {
    /// True if it committed.
    pub committed: bool,
    /// Answers of its steps, as far as it got.
    pub answers: Vec<Answer>,
    /// When its first step began, among all events of the run.
    pub begun: usize,
    /// When it had ended.
    pub ended: usize,
}

/// Outcome of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// One entry for each transaction.
    pub sessions: Vec<Played>,
    /// Rows afterwards.
    pub end: Rows,
}
