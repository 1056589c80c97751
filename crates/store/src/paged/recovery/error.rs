//! Errors, by the action they call for.
//!
//! | error | what to do |
//! |-------|------------|
//! | [`RecoveryError::NoLogSpace`] | commit or roll back; retry after the log was cut |
//! | [`RecoveryError::Log`] | if the record was too large, change less at once; else open again |
//! | [`RecoveryError::Read`] | repair the device, or restore a backup |
//! | [`RecoveryError::Damaged`] | restore a backup |
//! | [`RecoveryError::ContractBroken`] | fix the program that owns the pages |
//! | [`RecoveryError::Anchor`] | repair the device; the checkpoint before remains |
//! | [`RecoveryError::Pages`] | as the owner of the pages says |

use std::fmt;
use std::io;

use foxton_log::read::durable_reader::ReadError;
use foxton_log::{LogError, Lsn};

use super::record::Malformed;
use super::space::NoLogSpace;
use crate::paged::PageId;

/// Reason of a failure. `E` is the error of the pages' owner.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecoveryError<E> {
    /// There is no space in the log for the change and for undoing it. Nothing was done.
    NoLogSpace(NoLogSpace),
    /// The log did not take a record.
    Log(LogError),
    /// The log could not be read.
    Read(Box<ReadError>),
    /// A record is malformed, by itself or at its position.
    Damaged(Malformed),
    /// The owner of the pages broke the contract: undoing the change that was logged at `lsn`
    /// logged no compensation, or more than one, or one that is larger than its reserve.
    ContractBroken {
        /// The record.
        lsn: Lsn,
        /// Its page.
        page: PageId,
    },
    /// The file with the position of the last checkpoint could not be read or written.
    Anchor(AnchorError),
    /// The owner of the pages failed.
    Pages(E),
}

impl<E: fmt::Display> fmt::Display for RecoveryError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryError::NoLogSpace(error) => error.fmt(f),
            RecoveryError::Log(error) => error.fmt(f),
            RecoveryError::Read(error) => error.fmt(f),
            RecoveryError::Damaged(malformed) => malformed.fmt(f),
            RecoveryError::ContractBroken { lsn, page } => write!(
                f,
                "taking back the change of page {page} at LSN {lsn} did not log exactly one compensation \
                 within its reserve"
            ),
            RecoveryError::Anchor(error) => error.fmt(f),
            RecoveryError::Pages(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for RecoveryError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RecoveryError::Log(error) => Some(error),
            RecoveryError::Read(error) => Some(&**error),
            RecoveryError::Damaged(malformed) => Some(malformed),
            RecoveryError::Anchor(error) => Some(error),
            RecoveryError::Pages(error) => Some(error),
            RecoveryError::NoLogSpace(_) | RecoveryError::ContractBroken { .. } => None,
        }
    }
}

/// Reason why a record was not inserted into the log.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// As [`RecoveryError::NoLogSpace`].
    NoLogSpace(NoLogSpace),
    /// As [`RecoveryError::Log`].
    Log(LogError),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::NoLogSpace(error) => error.fmt(f),
            WriteError::Log(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            WriteError::NoLogSpace(_) => None,
            WriteError::Log(error) => Some(error),
        }
    }
}

impl From<NoLogSpace> for WriteError {
    fn from(error: NoLogSpace) -> Self {
        WriteError::NoLogSpace(error)
    }
}

impl From<LogError> for WriteError {
    fn from(error: LogError) -> Self {
        WriteError::Log(error)
    }
}

impl<E> From<WriteError> for RecoveryError<E> {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NoLogSpace(error) => RecoveryError::NoLogSpace(error),
            WriteError::Log(error) => RecoveryError::Log(error),
        }
    }
}

impl<E> From<LogError> for RecoveryError<E> {
    fn from(error: LogError) -> Self {
        RecoveryError::Log(error)
    }
}

impl<E> From<ReadError> for RecoveryError<E> {
    fn from(error: ReadError) -> Self {
        RecoveryError::Read(Box::new(error))
    }
}

impl<E> From<Malformed> for RecoveryError<E> {
    fn from(error: Malformed) -> Self {
        RecoveryError::Damaged(error)
    }
}

impl<E> From<AnchorError> for RecoveryError<E> {
    fn from(error: AnchorError) -> Self {
        RecoveryError::Anchor(error)
    }
}

/// Error of the file with the position of the last checkpoint.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnchorError {
    /// The device failed.
    Device {
        /// The operation that failed.
        operation: &'static str,
        /// The device's error.
        source: io::Error,
    },
    /// Its bytes differ from what was written, or belong to another database.
    Damaged,
    /// It has a format that this program does not know.
    Newer(u32),
}

impl AnchorError {
    pub(super) fn of(operation: &'static str) -> impl FnOnce(io::Error) -> AnchorError {
        move |source| AnchorError::Device { operation, source }
    }
}

impl fmt::Display for AnchorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = super::ANCHOR_FILE;
        match self {
            AnchorError::Device { operation, source } => {
                write!(f, "could not {operation} `{file}`: {source}")
            }
            AnchorError::Damaged => write!(
                f,
                "`{file}` is damaged, or belongs to another database. Restore the database from a backup"
            ),
            AnchorError::Newer(version) => write!(
                f,
                "`{file}` has format {version}, which only a newer version can read"
            ),
        }
    }
}

impl std::error::Error for AnchorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AnchorError::Device { source, .. } => Some(source),
            AnchorError::Damaged | AnchorError::Newer(_) => None,
        }
    }
}
