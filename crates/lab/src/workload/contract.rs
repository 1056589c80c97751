//! What a workload is to the laboratory. It is written once, and every experiment runs it: over any
//! lock manager, log buffer, durability and number of clients.
//!
//! A `Workload` says what is loaded and what is run, and is the same for everything compared. A
//! `Loaded` is what has become of it in one database: the experiment asks it for clients, and after
//! each run, when the database is quiet, whether everything is as it must be. What its clients
//! report is added up by the experiment and handed to the check, so a workload counts only what the
//! outcomes of its transactions do not tell.

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
    /// What is said of it in results.
    fn about(&self) -> About;

    /// The types of transaction its clients run, as they are named in results.
    fn kinds(&self) -> &'static [&'static str];

    /// Whether its settings agree with each other. Asked before anything is loaded.
    ///
    /// # Errors
    ///
    /// What contradicts what, and what to say instead.
    fn sound(&self) -> Result<(), String> {
        Ok(())
    }

    /// How much the load makes.
    fn size(&self) -> Size;

    /// Rows that so many clients add at least, however short the run: there must be memory for
    /// these, too.
    fn added_by(&self, _clients: u32) -> u64 {
        0
    }

    /// Whether the data grow while clients run. If so, they are loaded anew for each measurement,
    /// so that a later point has no more to go through than an earlier one.
    fn grows(&self) -> bool {
        false
    }

    /// Adds the secondary indexes its tables have.
    fn indexes(&self, _indexes: &mut Indexes) {}

    /// Fills an empty database. Each row is drawn from a seed of its own (the load's, its table,
    /// its key), so that it does not matter who writes it, and a check can draw it again.
    ///
    /// # Errors
    ///
    /// What the engine refused.
    fn load(&self, into: &Loading<'_>) -> foxton::Result<Box<dyn Loaded>>;

    /// What results say of a point beside what they say of every workload's, by name.
    fn facts(&self, _point: &Point) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// Tables of its own, beside those of every workload.
    fn blocks(&self, _curves: &[Curve]) -> Vec<Block> {
        Vec::new()
    }
}

/// A workload in one database.
pub trait Loaded: Send {
    /// Client `number`, with a generator of its own. No two clients of one database have one
    /// number, those of earlier runs among them.
    fn client(&mut self, db: &Database, number: u32) -> Box<dyn Client>;

    /// What must hold now that the database is quiet. `ended` is what all clients that ever ran on
    /// it have reported, ramps included.
    ///
    /// # Errors
    ///
    /// The first thing found wrong, as a sentence that names the row.
    fn check(&mut self, db: &Database, ended: &Tally) -> Result<(), String>;
}

/// What is said of a workload in results.
#[derive(Debug, Clone)]
pub struct About {
    /// Its name on the command line.
    pub name: &'static str,
    /// The variant, in one word or a few joined by dashes.
    pub variant: String,
    /// What is run, as a title.
    pub title: String,
    /// What one transaction does, in a sentence or two.
    pub description: String,
    /// What the checks compare, in a sentence.
    pub checked: String,
    /// Every setting that matters, by name: sizes, parameters, isolation, seed.
    pub settings: Vec<(&'static str, Value)>,
}

/// How much a load makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Rows of all tables.
    pub rows: u64,
    /// Bytes of a row, on average.
    pub row_bytes: u64,
}
