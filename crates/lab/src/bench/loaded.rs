//! txbench loaded into a database of its own, ready for clients.

use std::{path::Path, sync::Arc};

use foxton::{Database, Durability};
use serde_json::Value;

use super::{error::BenchError, runs::Runs, scratch::Scratch, sweep::Subject};
use crate::{
    driver::Client,
    progress::Audience,
    system::System,
    workload::txbench::{
        Shape, TABLES,
        check::check,
        client::{KINDS, Stamper, TxbenchClient},
        load::load,
        row::Sums,
        stamp::Book,
    },
};

/// txbench in a database of one system.
#[derive(Debug)]
pub struct Loaded {
    scratch: Scratch,
    shape: Arc<Shape>,
    sums: Arc<Sums>,
    book: Option<Book>,
    run: u16,
}

/// Settings of a load.
#[derive(Debug, Clone)]
pub struct Load<'a> {
    /// The workload's variant.
    pub shape: &'a Shape,
    /// Durability of commits while measuring.
    pub durability: Durability,
    /// True to keep stamps.
    pub stamp: bool,
    /// True to load one wrong value.
    pub plant: bool,
    /// Parent directory of the database; if `None`, the system's directory for temporary files.
    pub directory: Option<&'a Path>,
    /// The runs it is for, which say whether the database can be observed, and where.
    pub runs: Option<&'a Runs>,
}

impl Loaded {
    /// Creates a database for `system` in a new directory and loads it.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made or the engine refuses.
    pub fn new(system: System, what: &Load<'_>, audience: Audience) -> Result<Loaded, BenchError> {
        let watched = what.runs.and_then(|runs| runs.watched(&system));
        let scratch = Scratch::new(system, what.durability, what.directory, watched.as_deref())?;
        let (shape, system) = (what.shape, &scratch.system);
        let rows = u64::from(shape.rows) * TABLES.len() as u64;
        let progress = audience.count(&format!("loading {system}"), rows, "rows");
        load(&scratch.loading(&progress), shape, what.plant)
            .map_err(BenchError::engine(format!("loading {system}")))?;
        Ok(Loaded {
            shape: Arc::new(shape.clone()),
            sums: Arc::new(Sums::new(shape.seed, shape.rows)),
            book: what.stamp.then(|| Book::new(shape.rows)),
            run: 0,
            scratch,
        })
    }

    /// Clients run this variant from now on; it must have the same rows.
    ///
    /// # Panics
    ///
    /// If it has other rows.
    pub fn reshape(&mut self, shape: &Shape) {
        let rows = |shape: &Shape| (shape.rows, shape.seed);
        assert_eq!(rows(&self.shape), rows(shape), "other rows were loaded");
        self.shape = Arc::new(shape.clone());
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.scratch.db
    }
}

impl Subject for Loaded {
    fn names(&self) -> (String, String) {
        self.scratch.names()
    }

    fn note(&self) -> String {
        self.scratch.system.note()
    }

    fn settings(&self) -> Vec<(&'static str, Value)> {
        self.scratch.system.listed()
    }

    fn largest_mpl(&self) -> u32 {
        self.scratch.largest_mpl()
    }

    fn kinds(&self) -> &'static [&'static str] {
        KINDS
    }

    fn clients(&mut self, mpl: u32) -> Vec<Box<dyn Client>> {
        self.run += 1;
        let run = self.run;
        let client = |number: u32| {
            let stamper = self.book.as_ref().map(|book| Stamper {
                run,
                client: number as u16,
                notes: book.notes(),
            });
            let who = (u64::from(run), u64::from(number));
            let client = TxbenchClient::new(
                self.scratch.db.clone(),
                self.shape.clone(),
                self.sums.clone(),
                who,
                stamper,
            );
            Box::new(client) as Box<dyn Client>
        };
        (0..mpl).map(client).collect()
    }

    fn check(&mut self) -> Result<(), String> {
        check(
            &self.scratch.db,
            &self.shape,
            &self.sums,
            self.book.as_mut(),
        )
    }

    fn diagnose(&self) -> String {
        self.scratch.diagnose()
    }
}
