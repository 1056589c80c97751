//! What came of a play.

use std::collections::BTreeMap;

/// The rows of a table.
pub(crate) type Rows = BTreeMap<u64, i64>;

/// What a step answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Nothing that could differ.
    Done,
    /// A value, or that there is none.
    Value(Option<i64>),
    /// The rows of a range, in its order.
    Rows(Vec<(u64, i64)>),
    /// The key had a value already.
    Exists,
}

/// What became of one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Played {
    /// Whether it committed.
    pub committed: bool,
    /// What its steps answered, as far as it came.
    pub answers: Vec<Answer>,
    /// When its first step was begun, among everything that happened in the play.
    pub begun: usize,
    /// When it had ended.
    pub ended: usize,
}

/// What came of a play.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Each transaction.
    pub sessions: Vec<Played>,
    /// The rows afterwards.
    pub end: Rows,
}
