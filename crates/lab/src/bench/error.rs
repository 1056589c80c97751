//! Errors of experiments, and what to do about them.

use std::{fmt, io, path::PathBuf};

use crate::{report::number::bytes, threads::NotStarted};

/// Why an experiment could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum BenchError {
    /// The settings contradict each other or the machine; the text says what to change.
    Settings(String),
    /// The databases need more memory than is free.
    Memory {
        /// Number of databases that exist at once.
        databases: usize,
        /// Approximate bytes of each.
        each: u64,
        /// Bytes of free memory.
        free: u64,
    },
    /// The system did not start all threads.
    Threads(NotStarted),
    /// A check failed, so the measurement is void; the text says which check and where.
    Failed(String),
    /// A file or directory could not be used.
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The engine refused an operation of the experiment.
    Engine {
        /// The operation.
        doing: String,
        /// The engine's error.
        cause: foxton::Error,
    },
    /// A transaction ended in the wrong way, or a check failed.
    Wrong {
        /// The operation.
        doing: String,
        /// The error.
        what: String,
    },
}

impl BenchError {
    /// Turns an engine's error during this operation into one of the experiment.
    pub(crate) fn engine(doing: impl Into<String>) -> impl Fn(foxton::Error) -> BenchError {
        let doing = doing.into();
        move |cause| BenchError::Engine {
            doing: doing.clone(),
            cause,
        }
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Settings(what) | BenchError::Failed(what) => f.write_str(what),
            BenchError::Memory {
                databases,
                each,
                free,
            } => write!(
                f,
                "{databases} databases of {} each do not fit into the free memory, {}; compare fewer at once \
                 with --locks, or use fewer rows with --rows",
                bytes(*each),
                bytes(*free)
            ),
            BenchError::Threads(not_started) => write!(f, "{not_started}"),
            BenchError::File { path, cause } => {
                write!(
                    f,
                    "{} cannot be used ({cause}); name another directory",
                    path.display()
                )
            }
            BenchError::Engine { doing, cause } => write!(f, "{doing}: {cause}"),
            BenchError::Wrong { doing, what } => write!(f, "{doing}: {what}"),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<NotStarted> for BenchError {
    fn from(error: NotStarted) -> BenchError {
        BenchError::Threads(error)
    }
}
