//! Errors of the pool.

use std::fmt;
use std::sync::Arc;

use foxton_log::LogError;

use crate::paged::page::{PageError, PageFault};
use crate::paged::space::PageFileError;

/// A page could not be brought into a frame, or written.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PoolError {
    /// The page could not be read. Other pages are not affected.
    Read(Arc<PageFileError>),
    /// The page is damaged. Other pages are not affected.
    Damaged(PageError),
    /// A write or a sync failed earlier, or now. Nothing is written any more, because it is unknown
    /// what is durable. Clean pages can still be read.
    Write(Arc<PageFileError>),
    /// The page file has no free page and the device no space to grow it. Nothing was changed.
    NoPages(Arc<PageFileError>),
    /// The page file could not be cut. It is longer than it need be, and nothing is lost.
    NotCut(Arc<PageFileError>),
    /// The log cannot become durable, so no page may be written. Clean pages can still be read.
    Log(LogError),
}

/// The first failure after which nothing is written.
#[derive(Debug, Clone)]
pub(super) enum WriteFailure {
    /// A write or a sync.
    File(Arc<PageFileError>),
    /// The log, before a write.
    Log(LogError),
}

impl From<PageFileError> for WriteFailure {
    fn from(error: PageFileError) -> Self {
        WriteFailure::File(Arc::new(error))
    }
}

/// The error of a growth.
impl From<PageFileError> for PoolError {
    fn from(error: PageFileError) -> Self {
        match error.is_full_device() {
            true => PoolError::NoPages(Arc::new(error)),
            false => PoolError::Write(Arc::new(error)),
        }
    }
}

impl From<WriteFailure> for PoolError {
    fn from(failure: WriteFailure) -> Self {
        match failure {
            WriteFailure::File(error) => PoolError::Write(error),
            WriteFailure::Log(error) => PoolError::Log(error),
        }
    }
}

impl From<PageError> for PoolError {
    fn from(error: PageError) -> Self {
        PoolError::Damaged(error)
    }
}

impl PoolError {
    /// Returns the error of a read.
    pub(super) fn of_read(error: PageFileError) -> PoolError {
        match error {
            PageFileError::Damaged(error) => PoolError::Damaged(error),
            other => PoolError::Read(Arc::new(other)),
        }
    }

    /// Returns the error of a cut. A failed write of the header is final, a failed cut is not.
    pub(super) fn of_cut(error: PageFileError) -> PoolError {
        match error {
            PageFileError::Device { .. } => PoolError::NotCut(Arc::new(error)),
            other => other.into(),
        }
    }

    /// True if a page is older than when it was evicted: a write was lost.
    pub fn is_lost_write(&self) -> bool {
        matches!(
            self,
            PoolError::Damaged(PageError {
                fault: PageFault::Stale { .. },
                ..
            })
        )
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::Read(error) => write!(f, "a page could not be read: {error}"),
            PoolError::Damaged(error) => write!(f, "{error}"),
            PoolError::Write(error) => {
                write!(f, "pages cannot be written: {error}; reopen the database")
            }
            PoolError::NoPages(error) => {
                write!(
                    f,
                    "the page file is full: {error}; free space, or delete rows"
                )
            }
            PoolError::NotCut(error) => {
                write!(f, "the page file could not be cut: {error}; shrink again")
            }
            PoolError::Log(error) => {
                write!(f, "pages cannot be written before the log is: {error}")
            }
        }
    }
}

impl std::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PoolError::Read(error)
            | PoolError::Write(error)
            | PoolError::NoPages(error)
            | PoolError::NotCut(error) => Some(&**error),
            PoolError::Damaged(error) => Some(error),
            PoolError::Log(error) => Some(error),
        }
    }
}
