//! Interface between workloads and the laboratory. A workload is written once, and every experiment
//! runs it: over any lock manager, log buffer, durability and number of clients.
//!
//! A `Workload` defines the load and the transactions, and is the same for all systems. A `Loaded`
//! is its instance in one database. The experiment gets clients from it, and after each run, when
//! the database is idle, has it checked. The experiment adds up the clients' reports and passes
//! them to the check, so a workload counts only what the outcomes of its transactions do not show.

use foxton::{Database, Indexes};
use serde_json::Value;

use super::loading::Loading;
use crate::{
    driver::Client,
    measure::{
        curve::{Curve, Point},
        outcome::Tally,
    },
    report::findings::Block,
};

/// Tables, load, transactions and checks that belong together.
pub trait Workload: Send + Sync {
    /// Its description in results.
    fn about(&self) -> About;

    /// The types of transaction of its clients, by their names in results.
    fn kinds(&self) -> &'static [&'static str];

    /// Checks that its settings agree with each other, before anything is loaded.
    ///
    /// # Errors
    ///
    /// If they do not; the text says what to change.
    fn sound(&self) -> Result<(), String> {
        Ok(())
    }

    /// The size of the load.
    fn size(&self) -> Size;

    /// Least number of rows that `clients` clients add, however short the run: there must be memory
    /// for these too.
    fn added_by(&self, _clients: u32) -> u64 {
        0
    }

    /// True if the data grow while clients run. Then they are loaded again for each measurement, so
    /// that a later point has no more data than an earlier one.
    fn grows(&self) -> bool {
        false
    }

    /// Adds the secondary indexes its tables have.
    fn indexes(&self, _indexes: &mut Indexes) {}

    /// Fills an empty database. Each row is drawn from a seed of its own (the load's, its table,
    /// its key), so that any thread can write it and a check can draw it again.
    ///
    /// # Errors
    ///
    /// The engine's error.
    fn load(&self, into: &Loading<'_>) -> foxton::Result<Box<dyn Loaded>>;

    /// Further values of a point for results, by name.
    fn facts(&self, _point: &Point) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// Further tables.
    fn blocks(&self, _curves: &[Curve]) -> Vec<Block> {
        Vec::new()
    }
}

/// A workload in one database.
pub trait Loaded: Send {
    /// Client `number`, with a generator of its own. Numbers are unique in a database, also across
    /// runs.
    fn client(&mut self, db: &Database, number: u32) -> Box<dyn Client>;

    /// Checks the invariants of the idle database. `ended` is the sum of the reports of all clients
    /// that ever ran on it, ramps included.
    ///
    /// # Errors
    ///
    /// The first error, as a sentence that names the row.
    fn check(&mut self, db: &Database, ended: &Tally) -> Result<(), String>;
}

/// Description of a workload in results.
#[derive(Debug, Clone)]
pub struct About {
    /// Its name on the command line.
    pub name: &'static str,
    /// The variant, in one word or a few joined by dashes.
    pub variant: String,
    /// Title: what is run.
    pub title: String,
    /// A transaction, in a sentence or two.
    pub description: String,
    /// The checks, in a sentence.
    pub checked: String,
    /// Every setting that matters, by name: sizes, parameters, isolation, seed.
    pub settings: Vec<(&'static str, Value)>,
}

/// Size of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Rows of all tables.
    pub rows: u64,
    /// Bytes of a row, on average.
    pub row_bytes: u64,
}
