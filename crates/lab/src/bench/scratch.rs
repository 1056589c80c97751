//! A database for one experiment, in a directory that is removed with it.

use std::{fs, path::Path};

use super::{directory::ScratchDirectory, error::BenchError};
use crate::{progress::Progress, system::System, workload::loading::Loading};
use foxton::{Database, Durability, Observe, Options, observe::SOCKET_FILE};

/// A database of one system. Its directory is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    /// The database.
    pub db: Database,
    /// Its configuration.
    pub system: System,
    // Dropped last: the database is closed before its directory is removed.
    _directory: ScratchDirectory,
}

impl Scratch {
    /// A new database for `system`, in a new directory inside `parent`; if `None`, in the system's
    /// directory for temporary files. It can be observed by a socket in `watched`.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made or the engine refuses.
    pub fn new(
        system: System,
        durability: Durability,
        parent: Option<&Path>,
        watched: Option<&Path>,
    ) -> Result<Scratch, BenchError> {
        let durability = system.durability(durability);
        Scratch::opened(system, parent, watched, |options| {
            options.durability = durability;
        })
    }

    /// Like [`new`](Self::new), with options changed by `change`.
    ///
    /// # Errors
    ///
    /// As for `new`.
    pub fn opened(
        system: System,
        parent: Option<&Path>,
        watched: Option<&Path>,
        change: impl FnOnce(&mut Options),
    ) -> Result<Scratch, BenchError> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let directory = ScratchDirectory::new(&parent).map_err(|cause| BenchError::File {
            path: parent,
            cause,
        })?;
        let mut options = system.options(Durability::default());
        change(&mut options);
        if let Some(watched) = watched {
            fs::create_dir_all(watched).map_err(|cause| BenchError::File {
                path: watched.to_owned(),
                cause,
            })?;
            options.observe = Observe::At(watched.join(SOCKET_FILE));
        }
        let doing = format!("opening a database for {system}");
        let db = Database::open_with(directory.database(), options)
            .map_err(BenchError::engine(doing))?;
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

    /// Loads the database with as many threads as pay off: one if it does not lock.
    pub fn loading<'a>(&'a self, progress: &'a Progress) -> Loading<'a> {
        let threads = match self.system.is_locking() {
            true => std::thread::available_parallelism().map_or(1, usize::from),
            false => 1,
        };
        Loading::new(&self.db, threads, progress)
    }

    /// Describes the state of clients that hang.
    pub fn diagnose(&self) -> String {
        let waits: Vec<String> = self
            .db
            .waits()
            .iter()
            .map(|wait| format!("  {wait}\n"))
            .collect();
        format!("Waits:\n{}", waits.concat())
    }
}
