//! Errors of a backup or a restore.

use std::io;
use std::path::Path;

use foxton_log::{Failure, LogError};

use crate::error::{Error, Storage};

/// Why a copy failed, by which of the two directories the error is about.
#[derive(Debug)]
pub(super) enum CopyFailure {
    /// The source could not be read.
    Source(Failure),
    /// The source differs from what was written.
    Damaged(String, String),
    /// A later version wrote the source.
    Newer(String),
    /// The copy could not be written.
    Target(Failure),
    /// The source contains a file of another database.
    Foreign(String),
    /// The copy differs from what was just written.
    Differs(String),
    /// The log of the open database could not be made durable.
    Log(LogError),
}

impl CopyFailure {
    pub(super) fn source(
        operation: &'static str,
        file: &str,
    ) -> impl FnOnce(io::Error) -> CopyFailure {
        let file = file.to_owned();
        move |source| {
            CopyFailure::Source(Failure {
                operation,
                file,
                source,
            })
        }
    }

    pub(super) fn target(
        operation: &'static str,
        file: &str,
    ) -> impl FnOnce(io::Error) -> CopyFailure {
        let file = file.to_owned();
        move |source| {
            CopyFailure::Target(Failure {
                operation,
                file,
                source,
            })
        }
    }

    pub(super) fn damaged(file: &str, offset: u64, what: &str) -> CopyFailure {
        CopyFailure::Damaged(file.to_owned(), format!("at byte {offset}: {what}"))
    }

    /// Converts it into an error of the public interface.
    pub(super) fn into_error(self, source: &Path, target: &Path) -> Error {
        let doing = |place: &Path, failure: &Failure| {
            let file = place.join(&failure.file);
            format!("{} {}", failure.operation, file.display())
        };
        match self {
            CopyFailure::Source(failure) => {
                let failed = Storage::from_io(source, doing(source, &failure), failure.source);
                return Error::from(failed).in_passing();
            }
            CopyFailure::Target(failure) => Storage::NotCopied {
                doing: doing(target, &failure),
                source: failure.source,
                left: None,
            },
            CopyFailure::Damaged(file, what) => Storage::Damaged {
                place: source.join(file).display().to_string(),
                what,
            },
            CopyFailure::Newer(found) => Storage::FutureFormat { found },
            CopyFailure::Log(error) => return error.into(),
            CopyFailure::Foreign(file) => Storage::Foreign {
                file: source.join(file),
            },
            CopyFailure::Differs(what) => Storage::NotCopied {
                doing: format!("read the copy in {} again", target.display()),
                source: io::Error::other(what),
                left: None,
            },
        }
        .into()
    }
}
