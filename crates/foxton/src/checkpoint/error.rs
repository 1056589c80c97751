//! What can go wrong with checkpoints, told by what it leaves.

use std::fmt;
use std::io;
use std::path::Path;

use foxton_log::read::durable_reader::ReadError;
use foxton_log::{Failure, LogError, Lsn, OpenError};

use crate::error::{Error, Storage};
use crate::redo::replay::InvalidRecord;

/// Why there is no (new) checkpoint.
#[derive(Debug)]
pub(crate) enum CheckpointError {
    /// A call about one file failed. The checkpoint before stands, and so does the log.
    Device(Failure),
    /// A call about the directory failed: which of two checkpoints it names after a power cut is
    /// unknown, and what else it lost, too.
    Directory(Failure),
    /// A file is not what was written.
    Damaged {
        /// Which.
        file: String,
        /// Where, in bytes.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A file is of a format that this program does not know.
    Newer {
        /// Which.
        file: String,
        /// Its format.
        version: u32,
    },
    /// The log could not be read.
    Log(ReadError),
    /// The log could not be made durable, or has failed.
    Failed(LogError),
    /// A record of the log makes no sense.
    InvalidRecord(Lsn, InvalidRecord),
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

    /// The same in the words of the engine's users; the database lies at `place`.
    pub(crate) fn told(self, place: &Path) -> Error {
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
            CheckpointError::InvalidRecord(lsn, senseless) => senseless.at(lsn),
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
            CheckpointError::InvalidRecord(lsn, senseless) => {
                write!(f, "the log record at LSN {lsn} does not hold {senseless}")
            }
            CheckpointError::Stopped => f.write_str("the database is being closed"),
        }
    }
}

/// Tells an error of the device which file it was about.
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

/// As [`failed`], for calls about the directory that decide which checkpoint is there.
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
