//! A database for one experiment, in a directory that goes with it.

use std::path::Path;

use foxton::{Database, Durability};
use tempfile::TempDir;

use super::error::BenchError;
use crate::system::System;

/// A database of one system. Its directory is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    /// The database.
    pub db: Database,
    /// How it was opened.
    pub system: System,
    // Last: the database is closed before its directory goes.
    _directory: TempDir,
}

impl Scratch {
    /// A new database for `system`, in a new directory inside `parent` or, if `None`, in the
    /// system's place for temporary files.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made or the engine refuses.
    pub fn new(
        system: System,
        durability: Durability,
        parent: Option<&Path>,
    ) -> Result<Scratch, BenchError> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let directory = tempfile::Builder::new()
            .prefix("foxton-bench-")
            .tempdir_in(&parent)
            .map_err(|cause| BenchError::File {
                path: parent,
                cause,
            })?;
        let options = system.options(durability);
        let db = Database::open_with(directory.path().join("db"), options).map_err(|cause| {
            BenchError::Engine {
                doing: format!("opening a database for {system}"),
                cause,
            }
        })?;
        Ok(Scratch {
            db,
            system,
            _directory: directory,
        })
    }

    /// The lock manager's name and the latch's, for results.
    pub fn names(&self) -> (String, String) {
        (self.system.manager_name(), self.system.latch_name())
    }

    /// The largest MPL the system can take.
    pub fn largest_mpl(&self) -> u32 {
        if self.system.is_locking() {
            u32::MAX
        } else {
            1
        }
    }

    /// Threads worth loading it with.
    pub fn loading_threads(&self) -> usize {
        match self.system.is_locking() {
            true => std::thread::available_parallelism().map_or(1, usize::from),
            false => 1,
        }
    }

    /// What can be said about clients that do not come back.
    pub fn diagnose(&self) -> String {
        let waits: Vec<String> = self
            .db
            .waits()
            .iter()
            .map(|wait| format!("  {wait}\n"))
            .collect();
        format!("Who waits for whom:\n{}", waits.concat())
    }
}
