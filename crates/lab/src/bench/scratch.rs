//! A database for one experiment, in a directory that goes with it.
//!
//! Control-C leaves the directory behind; the next experiment in the same place removes what nobody
//! has locked any more.

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
    /// How it was opened.
    pub system: System,
    // Last: the database is closed before its directory goes.
    _directory: TempDir,
}

impl Scratch {
    /// A new database for `system`, in a new directory inside `parent` or, if `None`, in the
    /// system's place for temporary files. Others may look into it by a socket in `watched`.
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

    /// As [`new`](Self::new), with options that `change` has changed.
    ///
    /// # Errors
    ///
    /// As there.
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

    /// Loading it, with as many threads as are worth it: one, if it does not lock.
    pub fn loading<'a>(&'a self, progress: &'a Progress) -> Loading<'a> {
        let threads = match self.system.is_locking() {
            true => std::thread::available_parallelism().map_or(1, usize::from),
            false => 1,
        };
        Loading::new(&self.db, threads, progress)
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

/// Removes what experiments that were cut short left in `parent`. What cannot be read or removed is
/// left alone: it is somebody else's.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && is_abandoned(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether there is a database in `directory` that no process has open. A young one is left alone:
/// it may be between the making of its lock file and the locking.
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
    fn what_an_experiment_left_behind_is_removed_and_what_is_in_use_is_not() {
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
