//! Storage errors: the device or the directory is not in the required state.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use foxton_log::Failure;
use foxton_log::device::FailureKind;
use foxton_store::paged::recovery::NoLogSpace;

/// The device or the directory is not in the required state.
#[derive(Debug)]
#[non_exhaustive]
pub enum Storage {
    /// The directory holds other files and no database.
    NotADatabase {
        /// The directory.
        path: PathBuf,
        /// A description of what was found instead.
        found: String,
        /// A description of the directory to name instead.
        name: &'static str,
    },
    /// The directory does not exist and cannot be created.
    NotCreated {
        /// The directory.
        path: PathBuf,
        /// The obstacle.
        why: String,
    },
    /// The operation needs an empty directory, and this one is not empty.
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// A file or directory in it.
        found: String,
    },
    /// The directory holds no complete backup.
    NotABackup {
        /// The directory.
        path: PathBuf,
        /// A description of what was found instead.
        found: String,
    },
    /// A restore into the directory was begun and is not complete, so there is no database yet.
    NotRestored {
        /// The directory.
        path: PathBuf,
    },
    /// The database is open already, in this or another process.
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process that has it open, as far as known.
        holder: String,
    },
    /// The file system is read-only.
    ReadOnly {
        /// The directory.
        path: PathBuf,
    },
    /// The program's user lacks a permission.
    NotPermitted {
        /// The operation that needs it.
        doing: String,
    },
    /// The directory contains a file of another database.
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// A copy could not be written: a backup, or a database being restored from one. The source of
    /// the copy is unchanged. [`code`](super::Error::code) says what kind of failure it was, as for
    /// other failures.
    NotCopied {
        /// The failed operation.
        doing: String,
        /// The operating system's error.
        source: io::Error,
        /// The directory whose files could not be removed, if any.
        left: Option<PathBuf>,
    },
    /// A device call failed during a copy, a check or a checkpoint, or there is no space for the
    /// changes of a transaction. That operation had no effect, and the database need not be
    /// reopened. [`code`](super::Error::code) says what kind of failure it was: `device_full`,
    /// `no_resources` if the process has no file descriptors or no memory left, or as for other
    /// failures.
    NotDone {
        /// The failed operation.
        doing: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// A later version of Foxton wrote the database.
    FutureFormat {
        /// A description of the unknown feature or format.
        found: String,
    },
    /// Stored bytes have changed since they were made durable.
    Damaged {
        /// The file, and the position in it.
        place: String,
        /// A description of the damage.
        what: String,
    },
    /// The process that last had the database open ended without closing it, and the pages of its
    /// paged tables may lack changes. They cannot be added, because the database is opened to be
    /// read.
    NotClosed {
        /// The file with the pages.
        file: PathBuf,
    },
    /// The page file has no free page, and the device no space for more. The change had no effect.
    PageRoom {
        /// The failed operation.
        doing: String,
    },
    /// Open transactions keep more log than
    /// [`max_kept_log_bytes`](crate::Options::max_kept_log_bytes). The change had no effect.
    LogRoom {
        /// The transaction that keeps the most.
        holder: String,
        /// Bytes of log from its first record on.
        bytes: u64,
        /// Maximum that is allowed.
        most: u64,
    },
    /// The device has no free space.
    DeviceFull {
        /// The failed operation.
        doing: String,
    },
    /// The device failed.
    Io {
        /// The failed operation.
        doing: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// An earlier failure of the device stopped this database; it accepts no more commits.
    Poisoned {
        /// The earlier failure.
        why: String,
    },
}

impl Storage {
    /// Classifies a failed device call by what the user can do about it.
    pub(crate) fn from_io(path: &Path, doing: String, source: io::Error) -> Storage {
        match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem => Storage::ReadOnly {
                path: PathBuf::from(path),
            },
            io::ErrorKind::PermissionDenied => Storage::NotPermitted { doing },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Storage::DeviceFull { doing }
            }
            _ if FailureKind::of(&source) == FailureKind::NoResources => {
                Storage::NotDone { doing, source }
            }
            _ => Storage::Io { doing, source },
        }
    }

    /// Converts the error into one of an operation that is not needed to keep the database open.
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

    /// The log has no space for a record, or no resources to get some. It continues.
    pub(super) fn not_inserted(failure: &Failure) -> Storage {
        let Failure {
            operation,
            file,
            source,
        } = failure;
        let again = || io::Error::new(source.kind(), source.to_string());
        Storage::NotDone {
            doing: format!("{operation} {file}"),
            // The failure is shared with the log's other callers.
            source: source
                .raw_os_error()
                .map_or_else(again, io::Error::from_raw_os_error),
        }
    }

    /// The log has no space for a change and for undoing it.
    pub(crate) fn no_log_space(error: &NoLogSpace) -> Storage {
        Storage::NotDone {
            doing: error.to_string(),
            source: io::ErrorKind::StorageFull.into(),
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
                    _ => match FailureKind::of(source) {
                        FailureKind::Full => "device_full",
                        FailureKind::NoResources => "no_resources",
                        FailureKind::Broken => "io",
                    },
                }
            }
            Storage::FutureFormat { .. } => "future_format",
            Storage::Damaged { .. } => "damaged",
            Storage::NotClosed { .. } => "not_closed",
            Storage::PageRoom { .. } => "page_room",
            Storage::LogRoom { .. } => "log_room",
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
                "a restore into {} is not complete, so there is no database yet: repeat the same \
                 restore, which begins anew, or remove the directory",
                path.display()
            ),
            Storage::InUse { path, holder } => write!(
                f,
                "{} is already open {holder}, and can be opened again once it is closed there. In \
                 one process, share a clone of the Database; to close it, drop its last clone, session, \
                 transaction and future of one. Otherwise end the other process, or a child that it \
                 left behind",
                path.display()
            ),
            Storage::ReadOnly { path } => write!(
                f,
                "{} cannot be written; mount the file system for writing, or copy the database \
                 elsewhere, or open it with read_only",
                path.display()
            ),
            Storage::NotPermitted { doing } => write!(
                f,
                "this user may not {doing}; change its permissions, or run as the user that owns it"
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
                "{doing} failed: {source}; it had no effect and did no harm: {}, and try again",
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
            Storage::NotClosed { file } => write!(
                f,
                "the database was not closed when it was last used, so {} may lack some changes of \
                 its paged tables; open it once to be written, which adds them from the log",
                file.display()
            ),
            Storage::PageRoom { doing } => write!(
                f,
                "there is no space for another page ({doing}); nothing was changed: free some \
                 space on the device, or delete rows, and try again"
            ),
            Storage::LogRoom {
                holder,
                bytes,
                most,
            } => write!(
                f,
                "{holder} is open and keeps {bytes} bytes of log, of {most} that may be kept; \
                 nothing was changed: commit it or roll it back, and try again. idle_timeout ends \
                 such transactions, and max_kept_log_bytes is the limit"
            ),
            Storage::DeviceFull { doing } => write!(
                f,
                "the device is full ({doing}); free some space, then open the database again: every \
                 acknowledged commit is kept"
            ),
            Storage::Io { doing, source } => write!(
                f,
                "{doing} failed: {source}; check the device, then open the database again"
            ),
            Storage::Poisoned { why } => write!(
                f,
                "an earlier failure ended this database ({why}); it takes no more commits: check \
                 the device, then open the database again"
            ),
        }
    }
}

/// Returns advice about a failed call.
fn mend(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "mount the file system for writing",
        io::ErrorKind::PermissionDenied => "change the permissions there",
        _ => match FailureKind::of(source) {
            FailureKind::Full => "free some space there",
            FailureKind::NoResources => "free file descriptors and memory, or raise their limits",
            FailureKind::Broken => "check the device there",
        },
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
        "{doing} failed: {source}; there is no copy, and the source is unchanged: {mend}, or \
         name another directory, and copy it again"
    )?;
    match left {
        Some(path) => write!(f, ". The files left in {} can be removed", path.display()),
        None => Ok(()),
    }
}
