//! Errors of checkpoints, classified by the state they leave.

use std::fmt;
use std::io;
use std::path::Path;

use foxton_log::read::durable_reader::ReadError;
use foxton_log::{Failure, LogError, Lsn, OpenError};

use crate::error::{Error, Storage};
use crate::redo::parts::PartError;
use crate::redo::replay::InvalidRecord;

/// Why a checkpoint was not made or could not be read.
#[derive(Debug)]
pub(crate) enum CheckpointError {
    /// A call on one file failed. The previous checkpoint and the log stay valid.
    Device(Failure),
    /// A call on the directory failed. It is unknown which of two checkpoints a power failure would
    /// leave, and what else it would lose.
    Directory(Failure),
    /// A file differs from what was written.
    Damaged {
        /// The file.
        file: String,
        /// Position in it, in bytes.
        offset: u64,
        /// A description of the damage.
        what: &'static str,
    },
    /// A file has a format that this program does not know.
    Newer {
        /// The file.
        file: String,
        /// Its format.
        version: u32,
    },
    /// The log could not be read.
    Log(ReadError),
    /// The log could not be made durable, or has failed.
    Failed(LogError),
    /// A log record has invalid content.
    InvalidRecord(Lsn, InvalidRecord),
    /// Pages could not be written, or their part of the checkpoint could not.
    Pages(String),
    /// The database is being closed.
    Stopped,
}

impl CheckpointError {
    pub(crate) fn damaged(file: &str, offset: u64, what: &'static str) -> CheckpointError {
        CheckpointError::Damaged {
            file: file.to_owned(),
            offset,
            what,
        }
    }

    /// Returns the error that a part of a transaction could not be read again.
    pub(super) fn unread(error: PartError) -> CheckpointError {
        match error {
            PartError::Log(error) => CheckpointError::Log(error),
            PartError::Invalid(lsn, invalid) => CheckpointError::InvalidRecord(lsn, invalid),
        }
    }

    /// Converts it into an error of the public interface; the database is at `place`.
    pub(crate) fn into_error(self, place: &Path) -> Error {
        match self {
            CheckpointError::Device(failure)
            | CheckpointError::Directory(failure)
            | CheckpointError::Log(OpenError::Device(failure)) => {
                let file = place.join(&failure.file);
                let doing = format!("{} {}", failure.operation, file.display());
                Storage::from_io(place, doing, failure.source).into()
            }
            CheckpointError::Damaged { ref file, .. } => {
                let place = place.join(file).display().to_string();
                let what = self.to_string();
                Storage::Damaged { place, what }.into()
            }
            CheckpointError::Newer { file, version } => {
                let found = format!("checkpoint file {file} has format {version}");
                Storage::FutureFormat { found }.into()
            }
            CheckpointError::Log(OpenError::Foreign { file }) => {
                let file = place.join(file);
                Storage::Foreign { file }.into()
            }
            CheckpointError::Log(error) => Storage::Damaged {
                place: place.display().to_string(),
                what: error.to_string(),
            }
            .into(),
            CheckpointError::Failed(error) => error.into(),
            CheckpointError::InvalidRecord(lsn, invalid) => invalid.at(lsn),
            CheckpointError::Pages(why) => Storage::Poisoned { why }.into(),
            CheckpointError::Stopped => Storage::Io {
                doing: "finish a checkpoint".to_owned(),
                source: io::Error::other("the database is being closed"),
            }
            .into(),
        }
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointError::Device(failure) | CheckpointError::Directory(failure) => {
                failure.fmt(f)
            }
            CheckpointError::Damaged { file, offset, what } => write!(
                f,
                "the checkpoint is damaged in `{file}` at byte {offset}: {what}; nothing was \
                 changed. Restore the database from a backup"
            ),
            CheckpointError::Newer { file, version } => write!(
                f,
                "`{file}` has format {version}, which only a newer version can read"
            ),
            CheckpointError::Log(error) => error.fmt(f),
            CheckpointError::Failed(error) => error.fmt(f),
            CheckpointError::InvalidRecord(lsn, invalid) => {
                write!(f, "the log record at LSN {lsn} does not hold {invalid}")
            }
            CheckpointError::Pages(why) => f.write_str(why),
            CheckpointError::Stopped => f.write_str("the database is being closed"),
        }
    }
}

/// Returns a function that adds the operation and the file to a device error.
pub(super) fn failed(
    operation: &'static str,
    file: &str,
) -> impl FnOnce(io::Error) -> CheckpointError {
    move |source| {
        CheckpointError::Device(Failure {
            operation,
            file: file.to_owned(),
            source,
        })
    }
}

/// Like [`failed`], for calls on the directory that decide which checkpoint is valid.
pub(super) fn lost(
    operation: &'static str,
    file: &str,
) -> impl FnOnce(io::Error) -> CheckpointError {
    move |source| {
        CheckpointError::Directory(Failure {
            operation,
            file: file.to_owned(),
            source,
        })
    }
}
