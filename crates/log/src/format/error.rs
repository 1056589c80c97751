//! Errors, and how to react to each.
//!
//! | error                         | what to do                                             |
//! |-------------------------------|--------------------------------------------------------|
//! | `LogError::TooLarge`          | insert less at once                                    |
//! | `LogError::Kind`              | use a kind that is free                                |
//! | `LogError::NotInserted`       | insert again once there is space, or a descriptor      |
//! | `LogError::Failed`            | repair the device, then open the log again             |
//! | `LogError::Closed`            | nothing: the program closed the log                    |
//! | `LogError::Forked`            | open a log after the fork, in the process that uses it |
//! | `OpenError::Locked`           | close the log where it is open                         |
//! | `OpenError::Device`           | repair the device, then try again                      |
//! | `OpenError::Corrupt`          | restore a backup; what precedes the damage is readable |
//! | `OpenError::Foreign`          | move the file away: it belongs to another database     |
//! | `OpenError::Newer`            | open the log with the program that wrote it            |
//! | `OpenError::Visit`            | see the visitor's own error                            |

use std::fmt;
use std::io;
use std::sync::Arc;

use foxton_sync::process;

use crate::device::LockError;
use crate::format::lsn::Lsn;
use crate::format::record::{FIRST_OWN_KIND, Flaw, MAX_PAYLOAD};

/// A failed call to the device, and the file it was about.
#[derive(Debug)]
pub struct Failure {
    /// The attempted operation: `write`, `sync`, `create` ...
    pub operation: &'static str,
    /// Name of the file.
    pub file: String,
    /// The error of the device.
    pub source: io::Error,
}

impl Failure {
    /// Adds operation and file to an error of the device.
    pub(crate) fn of(operation: &'static str, file: &str) -> impl FnOnce(io::Error) -> Failure {
        move |source| Failure {
            operation,
            file: file.to_owned(),
            source,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "could not {} `{}`: {}",
            self.operation, self.file, self.source
        )
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Reason why an open log refused a request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LogError {
    /// The record is larger than a record may be.
    TooLarge {
        /// Bytes in the parts given.
        bytes: usize,
    },
    /// The kind is 0, or one that the log uses itself.
    Kind(u8),
    /// The device has no space for the record, or the process no resources to get some
    /// ([`FailureKind`](crate::device::FailureKind)). Nothing was inserted or written, and the log
    /// continues.
    NotInserted(Arc<Failure>),
    /// A write or a sync failed, now or earlier. A failed sync may have lost its bytes and is never
    /// tried again, so the log accepts nothing more. Records acknowledged before are safe. Other
    /// records may or may not be there when the log is opened again.
    Failed(Arc<Failure>),
    /// The log was closed.
    Closed,
    /// This process is a forked child, and the log is its parent's.
    Forked,
}

// Small, because every insert returns it.
#[cfg(not(loom))]
const _: () = assert!(size_of::<LogError>() <= 16);

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::TooLarge { bytes } => {
                write!(
                    f,
                    "a record of {bytes} bytes is over the limit of {MAX_PAYLOAD}"
                )
            }
            LogError::Kind(kind) => write!(
                f,
                "kind {kind} cannot be used: kinds go from 1 to {}",
                FIRST_OWN_KIND - 1
            ),
            LogError::NotInserted(failure) => write!(
                f,
                "the log {failure}. Nothing was inserted; try again once there is space, or a file \
                 descriptor"
            ),
            LogError::Failed(failure) => write!(
                f,
                "the log {failure}. It accepts nothing more; what was acknowledged before is \
                 safe. Repair the device and open the database again"
            ),
            LogError::Closed => write!(f, "the log is closed"),
            LogError::Forked => f.write_str(process::REFUSAL),
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LogError::Failed(failure) | LogError::NotInserted(failure) => Some(&**failure),
            _ => None,
        }
    }
}

/// Reason why a log could not be opened or read. `E` is the visitor's own error.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError<E> {
    /// Another instance has the log open.
    Locked(LockError),
    /// The device failed.
    Device(Failure),
    /// Bytes that were durable differ from what was written.
    Corrupt(Box<Corruption>),
    /// A segment of another database is in the directory.
    Foreign {
        /// Name of the segment.
        file: String,
    },
    /// A segment has a format that this program does not know.
    Newer {
        /// Name of the segment.
        file: String,
        /// The version of its format.
        version: u32,
    },
    /// The visitor refused a record.
    Visit {
        /// Where the record begins.
        lsn: Lsn,
        /// The visitor's error.
        error: E,
    },
}

impl<E: fmt::Display> fmt::Display for OpenError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Locked(error) => error.fmt(f),
            OpenError::Device(failure) => write!(f, "the log {failure}"),
            OpenError::Corrupt(corruption) => corruption.fmt(f),
            OpenError::Foreign { file } => {
                write!(
                    f,
                    "`{file}` belongs to another database; move it out of this directory"
                )
            }
            OpenError::Newer { file, version } => {
                write!(
                    f,
                    "`{file}` has format {version}, which only a newer version can read"
                )
            }
            OpenError::Visit { lsn, error } => write!(f, "the log record at LSN {lsn}: {error}"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for OpenError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Locked(error) => Some(error),
            OpenError::Device(failure) => Some(failure),
            OpenError::Corrupt(corruption) => Some(corruption),
            OpenError::Visit { error, .. } => Some(error),
            OpenError::Foreign { .. } | OpenError::Newer { .. } => None,
        }
    }
}

impl<E> From<Failure> for OpenError<E> {
    fn from(failure: Failure) -> Self {
        OpenError::Device(failure)
    }
}

impl<E> From<Corruption> for OpenError<E> {
    fn from(corruption: Corruption) -> Self {
        OpenError::Corrupt(Box::new(corruption))
    }
}

/// Damage to bytes that had been durable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Corruption {
    /// Name of the file.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Position in the stream. Everything before it was read and is good.
    pub lsn: Lsn,
    /// Kind of damage.
    pub damage: CorruptionKind,
}

/// Kind of damage to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CorruptionKind {
    /// A record is bad, and what follows shows that it had been good and durable.
    Record(Flaw),
    /// The header of a segment is bad, and the segment is not one that was never finished.
    Header,
    /// The segment that should begin here is missing, and a later one is there.
    Missing,
    /// The segment is shorter than its successor shows it to have been.
    Short,
    /// Two segments hold the same part of the stream.
    Overlap,
    /// A good record of a kind that this program does not know.
    Kind(u8),
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Corruption {
            file,
            offset,
            lsn,
            damage,
        } = self;
        write!(
            f,
            "the log is damaged in `{file}` at byte {offset} (LSN {lsn}): "
        )?;
        match damage {
            CorruptionKind::Record(flaw) => {
                write!(f, "{flaw}, although it had been written and synced")?
            }
            CorruptionKind::Header => {
                f.write_str("the checksum of the segment header does not match")?
            }
            CorruptionKind::Missing => f.write_str("the segment is missing")?,
            CorruptionKind::Short => f.write_str("the segment ends too early")?,
            CorruptionKind::Overlap => f.write_str("the segment overlaps the one before it")?,
            CorruptionKind::Kind(kind) => {
                write!(f, "this version does not know records of kind {kind}")?
            }
        }
        f.write_str("; nothing was changed. Restore the database from a backup")
    }
}

impl std::error::Error for Corruption {}
