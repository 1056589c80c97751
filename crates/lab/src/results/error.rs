//! Errors of records and of the documents made of them.

use std::{fmt, io, path::PathBuf};

/// Reason why records cannot be read or documents cannot be rendered.
#[derive(Debug)]
#[non_exhaustive]
pub enum ResultsError {
    /// The directory of records cannot be read.
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The directory has no record.
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// A record is not JSON, or not of the form of a record.
    Json {
        /// The file.
        path: PathBuf,
        /// Line and column, both from 1.
        position: (usize, usize),
        /// The field, if one is concerned.
        field: Option<String>,
        /// The parser's complaint.
        what: String,
    },
    /// A field breaks a rule.
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// The rule and the text that breaks it.
        what: String,
    },
    /// Two records have one id.
    SameId {
        /// The id.
        id: String,
        /// The two files.
        paths: [PathBuf; 2],
    },
    /// A document does not have each marker once, the opening one first.
    Markers {
        /// The document.
        path: PathBuf,
        /// The two lines.
        markers: [&'static str; 2],
    },
}

impl fmt::Display for ResultsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResultsError::Directory { path, cause } => write!(
                f,
                "{} cannot be read as a directory of records ({cause}): name one with --dir",
                path.display()
            ),
            ResultsError::Empty { path } => write!(
                f,
                "{} has no record: name a directory with NAME.json files with --dir",
                path.display()
            ),
            ResultsError::File { path, cause } => {
                write!(f, "{} cannot be read or written: {cause}", path.display())
            }
            ResultsError::Json {
                path,
                position: (line, column),
                field,
                what,
            } => {
                write!(f, "{}:{line}:{column}: ", path.display())?;
                if let Some(field) = field {
                    write!(f, "field `{field}`: ")?;
                }
                f.write_str(what)
            }
            ResultsError::Field { path, field, what } => {
                write!(f, "{}: field `{field}`: {what}", path.display())
            }
            ResultsError::SameId {
                id,
                paths: [first, second],
            } => write!(
                f,
                "{} and {}: field `id`: both are {id}",
                first.display(),
                second.display()
            ),
            ResultsError::Markers {
                path,
                markers: [opening, closing],
            } => write!(
                f,
                "{} needs the lines {opening} and {closing}, each once and in this order: the table goes \
                 between them",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ResultsError {}
