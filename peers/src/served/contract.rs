//! Contract of an engine: statements on tables of one form.
//!
//! A row has an id, a number and a text. Each statement is one round trip to a server, as in the
//! documents, and one call of the engine that has none. Every transaction is serializable.

use crate::Outcome;
use std::error::Error;

/// A table: its name, how many rows are loaded, and whether its numbers have an index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) rows: u64,
    pub(crate) indexed: bool,
}

/// The rows to load: number and text of a row by its table and id; ids begin at 1.
pub(crate) type Rows<'r> = dyn Fn(usize, u64) -> (i64, String) + 'r;

/// Why a transaction does not go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Another has to go first: it may run again.
    GaveWay,
    /// It is wrong, or the engine is.
    Failed(Box<dyn Error + Send + Sync>),
}

pub(crate) type Step<T = ()> = Result<T, Stop>;

/// Request for a range of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Its numbers and texts.
    Rows,
    /// The sum of its numbers.
    Sum,
    /// Its texts in order.
    Ordered,
    /// Its texts in order, each once.
    Distinct,
}

/// The reply: number of rows, and the sum of their numbers where numbers were requested.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) rows: u64,
    pub(crate) sum: i64,
}

/// Totals of a table while no client runs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) rows: u64,
    pub(crate) least_id: u64,
    pub(crate) greatest_id: u64,
    pub(crate) sum: i64,
    /// Of all texts together.
    pub(crate) letters: u64,
}

/// An engine that runs, with tables in it.
pub(crate) trait Engine: Sync {
    /// The session of one thread; made on that thread.
    fn session(&self) -> Outcome<Box<dyn Session + '_>>;

    /// Totals of a table while no other client runs.
    fn totals(&self, table: usize) -> Outcome<Totals>;
}

/// The session of one thread. A statement on a row that is not there fails.
pub(crate) trait Session {
    fn begin(&mut self) -> Step;
    fn commit(&mut self) -> Step;
    /// Ends what did not commit.
    fn undo(&mut self) -> Outcome;
    /// The number of a row, which is read whole.
    fn read(&mut self, table: usize, id: u64) -> Step<i64>;
    fn range(&mut self, ask: Ask, table: usize, first: u64, last: u64) -> Step<Came>;
    /// Adds to the number of a row.
    fn add(&mut self, table: usize, id: u64, amount: i64) -> Step;
    /// Replaces the text of a row.
    fn set(&mut self, table: usize, id: u64, text: &str) -> Step;
    fn delete(&mut self, table: usize, id: u64) -> Step;
    fn insert(&mut self, table: usize, id: u64, number: i64, text: &str) -> Step;
}

/// Fails unless a statement found its one row.
pub(crate) fn one(rows: u64, table: usize, id: u64) -> Step {
    match rows {
        1 => Ok(()),
        _ => {
            let what = format!("row {id} of table {table} was found {rows} times");
            Err(Stop::Failed(what.into()))
        }
    }
}
