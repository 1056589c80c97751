//! That the device or the directory is not as it must be.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The device or the directory is not as it must be.
#[derive(Debug)]
#[non_exhaustive]
pub enum Storage {
    /// The directory holds other things and no database.
    NotADatabase {
        /// The directory.
        path: PathBuf,
        /// What was found instead.
        found: String,
    },
    /// There is no such directory, and none could be made.
    NotCreated {
        /// The directory.
        path: PathBuf,
        /// What is in the way.
        why: String,
    },
    /// What is to be made needs an empty directory, and this one is not.
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// Something that is in it.
        found: String,
    },
    /// The directory holds no whole backup.
    NotABackup {
        /// The directory.
        path: PathBuf,
        /// What was found instead.
        found: String,
    },
    /// The database is open already, in this process or another.
    InUse {
        /// The directory.
        path: PathBuf,
        /// Who has it, as far as it is known.
        holder: String,
    },
    /// The file system takes no writes, or not from this user.
    ReadOnly {
        /// The directory.
        path: PathBuf,
    },
    /// The database was written by a later version of Foxton.
    FutureFormat {
        /// What is not known here.
        found: String,
    },
    /// Bytes that were once stored safely are not what they were.
    Damaged {
        /// The file, and where in it.
        place: String,
        /// What is wrong there.
        what: String,
    },
    /// The device has no room left.
    DeviceFull {
        /// What was being done.
        doing: String,
    },
    /// The device failed.
    Io {
        /// What was being done.
        doing: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// An earlier failure of the device ended this database; it takes no more commits.
    Poisoned {
        /// The earlier failure.
        why: String,
    },
}

impl Storage {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Storage::NotADatabase { .. } => "not_a_database",
            Storage::NotCreated { .. } => "not_created",
            Storage::NotEmpty { .. } => "not_empty",
            Storage::NotABackup { .. } => "not_a_backup",
            Storage::InUse { .. } => "in_use",
            Storage::ReadOnly { .. } => "read_only",
            Storage::FutureFormat { .. } => "future_format",
            Storage::Damaged { .. } => "damaged",
            Storage::DeviceFull { .. } => "device_full",
            Storage::Io { .. } => "io",
            Storage::Poisoned { .. } => "poisoned",
        }
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Storage::NotADatabase { path, found } => write!(
                f,
                "{} is not a Foxton database: {found}; name an empty or a new directory to create \
                 one there",
                path.display()
            ),
            Storage::NotCreated { path, why } => write!(
                f,
                "no database can be created at {}: {why}; name a directory that is there, or a new \
                 one in a directory that is there",
                path.display()
            ),
            Storage::NotEmpty { path, found } => write!(
                f,
                "{} is not empty: it holds {found}; name an empty or a new directory. If something \
                 was interrupted there, remove it first",
                path.display()
            ),
            Storage::NotABackup { path, found } => write!(
                f,
                "{} is not a whole backup: {found}; name a directory that `foxton backup` or \
                 `backup_to` has finished",
                path.display()
            ),
            Storage::InUse { path, holder } => write!(
                f,
                "{} is already open {holder}; one process opens a database once: share its \
                 Database handle, or end the other process",
                path.display()
            ),
            Storage::ReadOnly { path } => write!(
                f,
                "{} cannot be written; a database needs a directory it may write to: mount the \
                 file system for writing or change its permissions",
                path.display()
            ),
            Storage::FutureFormat { found } => write!(
                f,
                "the database was written by a later version of Foxton ({found}); open it with \
                 that version"
            ),
            Storage::Damaged { place, what } => write!(
                f,
                "{place}: {what}; what was stored there is lost: restore the directory from a \
                 backup"
            ),
            Storage::DeviceFull { doing } => write!(
                f,
                "the device is full ({doing}); make room, then open the database again: every \
                 acknowledged commit is kept"
            ),
            Storage::Io { doing, source } => write!(
                f,
                "{doing} failed: {source}; see to the device, then open the database again"
            ),
            Storage::Poisoned { why } => write!(
                f,
                "an earlier failure ended this database ({why}); it takes no more commits: see to \
                 the device, then open the database again"
            ),
        }
    }
}
