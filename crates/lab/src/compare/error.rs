//! Errors of comparisons, and what to do about them.

use std::{fmt, io, path::PathBuf};

/// Why two runs cannot be compared.
#[derive(Debug)]
#[non_exhaustive]
pub enum CompareError {
    /// A file could not be read.
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A file was not written by a run.
    Damaged {
        /// The path.
        path: PathBuf,
        /// The error.
        what: String,
    },
    /// A file has no throughput over clients.
    Nothing {
        /// The path.
        path: PathBuf,
    },
    /// The two ran different experiments.
    Experiments {
        /// The experiments of each.
        ran: [Vec<String>; 2],
    },
    /// The two ran the same experiment, but no system with the same number of clients in both.
    NoCommonPoint,
    /// A point has different settings in the two.
    Settings {
        /// The point.
        point: String,
        /// The setting that differs.
        name: String,
        /// Its values.
        values: [String; 2],
    },
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompareError::File { path, cause } => write!(
                f,
                "{} cannot be read ({cause}); name a directory of `foxton bench`, `foxton figure` or \
                 `foxton reproduce`, or its results.json",
                path.display()
            ),
            CompareError::Damaged { path, what } => {
                write!(f, "{} is not a results.json of a run: {what}", path.display())
            }
            CompareError::Nothing { path } => write!(
                f,
                "{} has no throughput over clients, and only that can be compared",
                path.display()
            ),
            CompareError::Experiments { ran: [first, second] } => write!(
                f,
                "the two ran different experiments, the first {}, the second {}",
                first.join("; "),
                second.join("; ")
            ),
            CompareError::NoCommonPoint => f.write_str(
                "the two have no point in common; repeat one with the --locks, --latch and --mpl of the other",
            ),
            CompareError::Settings {
                point,
                name,
                values: [first, second],
            } => write!(
                f,
                "the two had different settings: {point} has {name} {first} in the first and {second} in \
                 the second",
            ),
        }
    }
}

impl std::error::Error for CompareError {}
