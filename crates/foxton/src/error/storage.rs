//! That the device or the directory is not as it must be.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

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
        /// What to name in its place.
        name: &'static str,
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
    /// What was begun in the directory was to become a restored database, and is none yet.
    NotRestored {
        /// The directory.
        path: PathBuf,
    },
    /// The database is open already, in this process or another.
    InUse {
        /// The directory.
        path: PathBuf,
        /// Who has it, as far as it is known.
        holder: String,
    },
    /// The file system takes no writes.
    ReadOnly {
        /// The directory.
        path: PathBuf,
    },
    /// The user that the program runs as may not do what has to be done.
    NotPermitted {
        /// What that is.
        doing: String,
    },
    /// A file of another database lies in the directory.
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// A copy, which is a backup or what was to be restored from one, could not be written. What was to be copied
    /// is as it was. [`code`](super::Error::code) says what kind of failure it was, as for others.
    NotCopied {
        /// What was being done.
        doing: String,
        /// What the operating system said.
        source: io::Error,
        /// What of it had to be left where it is.
        left: Option<PathBuf>,
    },
    /// A call to the device failed for somebody who copies, checks or makes a checkpoint. Nothing came of that, and no
    /// database has to be opened again. [`code`](super::Error::code) says what kind of failure it was, as for others.
    NotDone {
        /// What was being done.
        doing: String,
        /// What the operating system said.
        source: io::Error,
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
    /// A failed call to the device, told apart by what can be done about it.
    pub(crate) fn from_io(path: &Path, doing: String, source: io::Error) -> Storage {
        match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem => Storage::ReadOnly {
                path: PathBuf::from(path),
            },
            io::ErrorKind::PermissionDenied => Storage::NotPermitted { doing },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Storage::DeviceFull { doing }
            }
            _ => Storage::Io { doing, source },
        }
    }

    /// The same, of something that is no part of keeping a database open.
    pub(super) fn in_passing(self) -> Storage {
        match self {
            Storage::Io { doing, source } => Storage::NotDone { doing, source },
            Storage::DeviceFull { doing } => Storage::NotDone {
                doing,
                source: io::ErrorKind::StorageFull.into(),
            },
            other => other,
        }
    }

    pub(super) fn code(&self) -> &'static str {
        match self {
            Storage::NotADatabase { .. } => "not_a_database",
            Storage::NotCreated { .. } => "not_created",
            Storage::NotEmpty { .. } => "not_empty",
            Storage::NotABackup { .. } => "not_a_backup",
            Storage::NotRestored { .. } => "not_restored",
            Storage::InUse { .. } => "in_use",
            Storage::ReadOnly { .. } => "read_only",
            Storage::NotPermitted { .. } => "not_permitted",
            Storage::Foreign { .. } => "foreign",
            Storage::NotCopied { source, .. } | Storage::NotDone { source, .. } => {
                match source.kind() {
                    io::ErrorKind::ReadOnlyFilesystem => "read_only",
                    io::ErrorKind::PermissionDenied => "not_permitted",
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "device_full",
                    _ => "io",
                }
            }
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
            Storage::NotADatabase { path, found, name } => {
                let path = path.display();
                write!(f, "{path} is not a Foxton database: {found}; name {name}")
            }
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
            Storage::NotRestored { path } => write!(
                f,
                "a restore into {} has not come to its end, and there is no database before it has: give it \
                 again, which begins anew, or remove the directory",
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
                 file system for writing, or copy it elsewhere",
                path.display()
            ),
            Storage::NotPermitted { doing } => write!(
                f,
                "this user may not {doing}; change its permissions, or be the user that it belongs to"
            ),
            Storage::Foreign { file } => write!(
                f,
                "{} belongs to another database; move it to where it belongs. If it took the place \
                 of a file of this database, restore the directory from a backup",
                file.display()
            ),
            Storage::NotCopied {
                doing,
                source,
                left,
            } => not_copied(f, doing, source, left.as_deref()),
            Storage::NotDone { doing, source } => write!(
                f,
                "{doing} failed: {source}; nothing came of it, and nothing was harmed by it: {}, and try again",
                mend(source)
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

/// What can be done about a failed call.
fn mend(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room there",
        io::ErrorKind::ReadOnlyFilesystem => "mount the file system for writing",
        io::ErrorKind::PermissionDenied => "change the permissions there",
        _ => "see to the device there",
    }
}

fn not_copied(
    f: &mut fmt::Formatter<'_>,
    doing: &str,
    source: &io::Error,
    left: Option<&Path>,
) -> fmt::Result {
    let mend = mend(source);
    write!(
        f,
        "{doing} failed: {source}; there is no copy, and what was to be copied is as it was: {mend}, or name \
         another directory, and copy it again"
    )?;
    match left {
        Some(path) => write!(f, ". What is left in {} can be removed", path.display()),
        None => Ok(()),
    }
}
