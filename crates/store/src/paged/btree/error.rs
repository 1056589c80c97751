//! Errors of a tree.

use std::fmt;

use foxton_log::LogError;

use crate::TooLong;
use crate::paged::PageId;
use crate::paged::page::{PageError, PageFault};
use crate::paged::pool::PoolError;
use crate::paged::recovery::{NoLogSpace, WriteError};

/// An operation on a tree failed. Nothing of it was done.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TreeError {
    /// A page could not be read, or the file could not grow.
    Pool(PoolError),
    /// The change could not be logged.
    Log(LogError),
    /// There is no space in the log for the change and for undoing it.
    NoLogSpace(NoLogSpace),
    /// A page is whole by itself but not the page that belongs where it was found.
    Damaged(PageError),
    /// The key or the row has too many bytes for the pages of this database.
    TooLong(TooLong),
    /// Key and value together have too many bytes for a leaf.
    RowTooLong {
        /// Number of bytes.
        bytes: usize,
        /// Maximum for pages of this size.
        most: usize,
    },
    /// The tree was freed, because its table was dropped.
    Dropped {
        /// The table.
        table: u64,
    },
}

impl TreeError {
    /// Returns the error of a page whose field is not what its parent or its table says.
    pub(super) fn field(page: PageId, field: &'static str, value: u64) -> TreeError {
        let fault = PageFault::Field { field, value };
        TreeError::Damaged(PageError { page, fault })
    }
}

impl From<PoolError> for TreeError {
    fn from(error: PoolError) -> Self {
        TreeError::Pool(error)
    }
}

impl From<WriteError> for TreeError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NoLogSpace(error) => TreeError::NoLogSpace(error),
            WriteError::Log(error) => TreeError::Log(error),
        }
    }
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeError::Pool(error) => write!(f, "{error}"),
            TreeError::Log(error) => write!(f, "the change could not be logged: {error}"),
            TreeError::NoLogSpace(error) => write!(f, "{error}"),
            TreeError::Damaged(error) => write!(f, "{error}"),
            TreeError::TooLong(error) => write!(f, "{error}"),
            TreeError::RowTooLong { bytes, most } => write!(
                f,
                "key and value have {bytes} bytes; together they have at most {most} with pages \
                 of this size"
            ),
            TreeError::Dropped { table } => write!(f, "table {table} was dropped"),
        }
    }
}

impl std::error::Error for TreeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TreeError::Pool(error) => Some(error),
            TreeError::Log(error) => Some(error),
            TreeError::Damaged(error) => Some(error),
            TreeError::TooLong(error) => Some(error),
            TreeError::RowTooLong { .. } | TreeError::NoLogSpace(_) | TreeError::Dropped { .. } => {
                None
            }
        }
    }
}
