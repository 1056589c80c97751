//! A database for one experiment, in a directory that is removed with it.
//!
//! Control-C leaves the directory behind. The next experiment in the same place removes those that
//! no process has locked.

use std::{
    fs::{self, File},
    path::Path,
    time::Duration,
};

use foxton::{Database, Durability, Observe, Options, observe::SOCKET_FILE};
use tempfile::TempDir;

use super::error::BenchError;
use crate::{progress::Progress, system::System, workload::loading::Loading};

const PREFIX: &str = "foxton-bench-";
const DATABASE: &str = "db";
const YOUNG: Duration = Duration::from_secs(60);

/// A database of one system. Its directory is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    /// The database.
    pub db: Database,
    /// Its configuration.
    pub system: System,
    // Dropped last: the database is closed before its directory is removed.
    _directory: TempDir,
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
        remove_abandoned(&parent);
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(&parent)
            .map_err(|cause| BenchError::File {
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
        let db = Database::open_with(directory.path().join(DATABASE), options)
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

/// Removes the directories of interrupted experiments in `parent`. Those that cannot be read or
/// removed belong to another user and are left alone.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && is_abandoned(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// True if `directory` has a database that no process has open. A young one is left alone, because
/// it may be between the creation of its lock file and the locking.
fn is_abandoned(directory: &Path) -> bool {
    let modified = fs::metadata(directory).and_then(|about| about.modified());
    let age = modified.ok().and_then(|modified| modified.elapsed().ok());
    if age.is_none_or(|age| age < YOUNG) {
        return false;
    }
    let lock = File::open(directory.join(DATABASE).join("lock"));
    lock.is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_an_interrupted_experiment_is_removed_and_one_in_use_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let system = || System::all(&["default".parse().unwrap()], &[]).remove(0);
        let open =
            || Scratch::new(system(), Durability::Buffered, Some(parent.path()), None).unwrap();
        let count = || fs::read_dir(parent.path()).unwrap().count();
        let first = open();
        let left = parent.path().join("foxton-bench-left").join(DATABASE);
        fs::create_dir_all(&left).unwrap();
        File::create(left.join("lock")).unwrap();
        let other = parent.path().join("something-else").join(DATABASE);
        fs::create_dir_all(&other).unwrap();
        File::create(other.join("lock")).unwrap();
        let long_ago = std::time::SystemTime::now() - 2 * YOUNG;
        for entry in fs::read_dir(parent.path()).unwrap() {
            File::open(entry.unwrap().path())
                .unwrap()
                .set_modified(long_ago)
                .unwrap();
        }
        let second = open();
        assert!(!left.exists() && other.exists());
        assert_eq!(count(), 3);
        drop((first, second));
        assert_eq!(count(), 1);
    }
}
