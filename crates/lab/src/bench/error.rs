//! Why an experiment could not be made, and what to do about it.

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
        /// How many databases there are at once.
        databases: usize,
        /// Bytes that each takes, about.
        each: u64,
        /// Bytes that programs could still have.
        free: u64,
    },
    /// The system would not start so many threads.
    Threads(NotStarted),
    /// A check failed, so what was measured does not count; the text says which and where.
    Failed(String),
    /// A file or directory could not be used.
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The engine refused what the experiment needs.
    Engine {
        /// What was being done.
        doing: String,
        /// What the engine said.
        cause: foxton::Error,
    },
    /// A transaction did not end as it must, or a check failed.
    Wrong {
        /// What was being done.
        doing: String,
        /// What is wrong.
        what: String,
    },
}

impl BenchError {
    /// What the engine refused while this was being done.
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
                "{databases} databases of {} each need more memory than is free, {}: compare fewer at \
                 once, or use fewer rows",
                bytes(*each),
                bytes(*free)
            ),
            BenchError::Threads(not_started) => write!(f, "{not_started}"),
            BenchError::File { path, cause } => {
                write!(
                    f,
                    "{} cannot be used ({cause}): name another place",
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
