//! Directories of experiments: made, locked, removed, and found again if their process was killed.
//!
//! A directory is called `foxton-bench-PROCESS-RANDOM`, and has the file `in-use`, which its
//! process locks until it ends. So a directory whose file is not locked is left over, in every
//! case: after a kill, a crash or a power cut.
//!
//! A directory without that file is between its creation and its locking, or an earlier version of
//! this program made it. It counts as left over if it is a minute old and its database is not
//! locked.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process,
    time::{Duration, SystemTime},
};

use tempfile::TempDir;

const PREFIX: &str = "foxton-bench-";
/// Prefix of an earlier version's experiment.
const FORMER_PREFIX: &str = "foxton-restart-";
const IN_USE: &str = "in-use";
/// The database of an experiment.
pub(super) const DATABASE: &str = "db";
const YOUNG: Duration = Duration::from_secs(60);

/// A directory for the database of one experiment. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct ScratchDirectory {
    // Dropped in this order: it is locked until it is removed.
    directory: TempDir,
    _in_use: File,
}

impl ScratchDirectory {
    /// Makes a directory in `parent`.
    pub(crate) fn new(parent: &Path) -> io::Result<ScratchDirectory> {
        let directory = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", process::id()))
            .tempdir_in(parent)?;
        let in_use = File::create_new(directory.path().join(IN_USE))?;
        in_use.lock()?;
        Ok(ScratchDirectory {
            directory,
            _in_use: in_use,
        })
    }

    /// The place of the database.
    pub(crate) fn database(&self) -> PathBuf {
        self.directory.path().join(DATABASE)
    }
}

/// A directory whose process has ended without removing it.
#[derive(Debug)]
pub struct Leftover {
    /// The directory.
    pub path: PathBuf,
    /// Size of its files, in bytes.
    pub bytes: u64,
    /// Time since it was made; `None` if the clock was set back meanwhile.
    pub age: Option<Duration>,
}

impl Leftover {
    /// Removes the directory.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.path)
    }
}

/// Returns the directories in `parent` that this user's experiments have left over, by name. Those
/// that cannot be read are left out.
pub fn leftovers(parent: &Path) -> Vec<Leftover> {
    let is_ours = |name: &str| name.starts_with(PREFIX) || name.starts_with(FORMER_PREFIX);
    found(parent, is_ours, |directory, age| {
        is_free(directory.join(IN_USE)).unwrap_or_else(|_| {
            age.is_some_and(|age| age >= YOUNG)
                && is_free(directory.join(DATABASE).join("lock")).unwrap_or(true)
        })
    })
}

/// Like [`leftovers`], but only those of the process of this number, which no longer runs an
/// experiment.
pub fn leftovers_of(process: u32, parent: &Path) -> Vec<Leftover> {
    let own = format!("{PREFIX}{process}-");
    found(
        parent,
        |name| name.starts_with(&own),
        |directory, _| is_free(directory.join(IN_USE)).unwrap_or(true),
    )
}

/// True if no process has locked this file; an error if there is none.
fn is_free(path: PathBuf) -> io::Result<bool> {
    File::open(path).map(|file| file.try_lock().is_ok())
}

fn found(
    parent: &Path,
    is_ours: impl Fn(&str) -> bool,
    is_left_over: impl Fn(&Path, Option<Duration>) -> bool,
) -> Vec<Leftover> {
    let user = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        // Of the entry itself, so that no link leads elsewhere.
        let Ok(about) = entry.metadata() else {
            continue;
        };
        let name = entry.file_name();
        if !is_ours(&name.to_string_lossy()) || !about.is_dir() || about.uid() != user {
            continue;
        }
        let made = about.modified().ok();
        let age = made.and_then(|made| SystemTime::now().duration_since(made).ok());
        let path = entry.path();
        if is_left_over(&path, age) {
            let bytes = size(&path);
            found.push(Leftover { path, bytes, age });
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

/// Size of all files in a directory, as far as they can be read.
fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(about) if about.is_dir() => size(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_left_over_once_no_process_has_locked_it() {
        let parent = tempfile::tempdir().unwrap();
        let names = || {
            let found = leftovers(parent.path()).into_iter();
            let names = found.map(|one| one.path.file_name().unwrap().to_owned());
            names
                .map(|name| name.into_string().unwrap())
                .collect::<Vec<_>>()
        };
        let used = ScratchDirectory::new(parent.path()).unwrap();
        let make = |name: &str, file: &str, is_old: bool| {
            let directory = parent.path().join(name);
            let path = directory.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            File::create(path).unwrap();
            if is_old {
                let long_ago = SystemTime::now() - 2 * YOUNG;
                let opened = File::open(directory).unwrap();
                opened.set_modified(long_ago).unwrap();
            }
        };
        make("foxton-bench-7-left", IN_USE, false);
        make("foxton-bench-7-new", "other", false);
        make("foxton-bench-former", "db/lock", true);
        make("foxton-restart-former", "db/lock", true);
        make("something-else", IN_USE, true);
        let open = parent.path().join("foxton-bench-open");
        make("foxton-bench-open", "db/lock", true);
        let lock = File::open(open.join("db/lock")).unwrap();
        lock.lock().unwrap();
        std::os::unix::fs::symlink(&open, parent.path().join("foxton-bench-link")).unwrap();
        let left = [
            "foxton-bench-7-left",
            "foxton-bench-former",
            "foxton-restart-former",
        ];
        assert_eq!(names(), left);
        assert_eq!(leftovers_of(7, parent.path()).len(), 2);
        assert_eq!(leftovers_of(process::id(), parent.path()).len(), 0);
        leftovers(parent.path()).remove(0).remove().unwrap();
        assert_eq!(names(), left[1..]);
        let place = used.database();
        assert!(place.parent().unwrap().exists());
        drop(used);
        assert!(!place.parent().unwrap().exists());
    }
}
