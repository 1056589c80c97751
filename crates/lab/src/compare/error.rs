//! Why two runs cannot be compared, and what to do about it.

use std::{fmt, io, path::PathBuf};

/// Why two runs cannot be compared.
#[derive(Debug)]
#[non_exhaustive]
pub enum CompareError {
    /// A file could not be read.
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A file is not what a run writes.
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file has no throughput over clients in it.
    Nothing {
        /// Which.
        path: PathBuf,
    },
    /// The two ran different experiments.
    Experiments {
        /// What each ran.
        ran: [Vec<String>; 2],
    },
    /// The two ran the same experiment, but no system with the same number of clients in both.
    NoCommonPoint,
    /// A point of the two was asked differently.
    Settings {
        /// Which point.
        point: String,
        /// The setting that differs.
        name: String,
        /// What it is in each.
        values: [String; 2],
    },
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompareError::File { path, cause } => write!(
                f,
                "{} cannot be read ({cause}): name a directory that `foxton bench`, `foxton figure` or \
                 `foxton reproduce` wrote, or its results.json",
                path.display()
            ),
            CompareError::Damaged { path, what } => {
                write!(f, "{} is not what a run writes: {what}", path.display())
            }
            CompareError::Nothing { path } => write!(
                f,
                "{} has no throughput over clients, which is what is compared",
                path.display()
            ),
            CompareError::Experiments { ran: [first, second] } => write!(
                f,
                "the two ran different experiments, the first {}, the second {}",
                first.join("; "),
                second.join("; ")
            ),
            CompareError::NoCommonPoint => f.write_str(
                "the two have no point in common: repeat one with the --locks, --latch and --mpl of the other",
            ),
            CompareError::Settings {
                point,
                name,
                values: [first, second],
            } => write!(
                f,
                "the two were asked differently: {point} has {name} {first} in the first and {second} in \
                 the second"
            ),
        }
    }
}

impl std::error::Error for CompareError {}
