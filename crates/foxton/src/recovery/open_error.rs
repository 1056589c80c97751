//! Errors of opening or reading a directory, in terms of its path.

use std::io;
use std::path::Path;

use foxton_log::OpenError;
use foxton_log::device::{Device, LockError};
use foxton_log::format::superblock::{self, SuperblockError};

use crate::error::{Error, Request, Storage};
use crate::redo::replay::InvalidRecord;
use crate::types::limits::RESTORE_FILE;

/// Advice about a directory that was to be opened.
const TO_OPEN: &str = "an empty or a new directory to create one there";

/// Advice about a directory that was to be read.
const TO_READ: &str = "the directory of a database";

/// Error: the directory to open holds no database.
pub(crate) fn no_database(path: &Path, found: String) -> Error {
    let (path, name) = (path.into(), TO_OPEN);
    Storage::NotADatabase { path, found, name }.into()
}

/// Error: a device call failed.
pub(crate) fn device_error(path: &Path, doing: &str, error: io::Error) -> Error {
    Storage::from_io(path, format!("{doing} {}", path.display()), error).into()
}

/// Error: the directory does not exist and cannot be created.
pub(crate) fn not_created(path: &Path, error: io::Error) -> Error {
    let why = match (error.kind(), path.parent()) {
        (io::ErrorKind::NotFound, _) if path.is_symlink() => {
            "it is a link to a path that does not exist".to_owned()
        }
        (io::ErrorKind::NotFound, Some(parent)) if parent.is_dir() => {
            format!("{} accepts no new directory", parent.display())
        }
        (io::ErrorKind::NotFound, Some(parent)) => format!("{} does not exist", parent.display()),
        (io::ErrorKind::NotADirectory, _) => "a part of the path is a file".to_owned(),
        (io::ErrorKind::InvalidFilename, _) => {
            "a name in it is too long for the file system".to_owned()
        }
        (io::ErrorKind::NotFound | io::ErrorKind::InvalidInput, _) => error.to_string(),
        _ => return device_error(path, "open", error),
    };
    let path = path.into();
    Storage::NotCreated { path, why }.into()
}

/// Error: the directory cannot be opened to be read.
pub(crate) fn not_read(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Storage::NotADatabase {
            path: path.into(),
            found: match error.kind() {
                io::ErrorKind::NotFound => "there is no such directory".to_owned(),
                _ => "it is no directory".to_owned(),
            },
            name: TO_READ,
        }
        .into(),
        _ => device_error(path, "read", error).in_passing(),
    }
}

/// Error: the directory cannot be locked.
pub(crate) fn not_locked(path: &Path, error: LockError) -> Error {
    match error {
        LockError::Held { pid, .. } => {
            let holder = match pid {
                Some(pid) if pid == std::process::id() => "in this process".to_owned(),
                Some(pid) => format!("in process {pid}"),
                None => "elsewhere".to_owned(),
            };
            Storage::InUse {
                path: path.into(),
                holder,
            }
            .into()
        }
        LockError::Device(error) => device_error(path, "lock", error),
        LockError::Forked => Request::ForkedChild.into(),
        other => Storage::InUse {
            path: path.into(),
            holder: other.to_string(),
        }
        .into(),
    }
}

/// Error: the superblock of the directory at `path`, which is `device`, cannot be read.
pub(crate) fn no_superblock(device: &dyn Device, path: &Path, error: SuperblockError) -> Error {
    let names = device.list().unwrap_or_default();
    match error {
        SuperblockError::Missing if names.iter().any(|name| name == RESTORE_FILE) => {
            Storage::NotRestored { path: path.into() }
        }
        SuperblockError::Missing => {
            let found = format!("it has no file {}", superblock::FILE);
            Storage::NotADatabase {
                path: path.into(),
                found,
                name: TO_READ,
            }
        }
        SuperblockError::Damaged(what) => Storage::Damaged {
            place: path.join(superblock::FILE).display().to_string(),
            what: what.to_owned(),
        },
        SuperblockError::Unknown(what) => Storage::FutureFormat { found: what },
        SuperblockError::Device(error) => {
            return device_error(path, "read or write the superblock of", error);
        }
        other => Storage::Damaged {
            place: path.display().to_string(),
            what: other.to_string(),
        },
    }
    .into()
}

/// Error: the log cannot be opened.
pub(crate) fn not_opened(path: &Path, error: OpenError<InvalidRecord>) -> Error {
    match error {
        OpenError::Locked(error) => not_locked(path, error),
        OpenError::Device(failure) => {
            let doing = format!(
                "{} {}",
                failure.operation,
                path.join(&failure.file).display()
            );
            Storage::from_io(path, doing, failure.source).into()
        }
        OpenError::Corrupt(corruption) => {
            let place = format!("{}", path.join(&corruption.file).display());
            Storage::Damaged {
                place,
                what: corruption.to_string(),
            }
            .into()
        }
        OpenError::Newer { file, version } => {
            let found = format!("log file {file} has format {version}");
            Storage::FutureFormat { found }.into()
        }
        OpenError::Foreign { file } => {
            let file = path.join(file);
            Storage::Foreign { file }.into()
        }
        OpenError::Visit { lsn, error } => error.at(lsn),
        other => {
            let place = path.display().to_string();
            Storage::Damaged {
                place,
                what: other.to_string(),
            }
            .into()
        }
    }
}
