//! Client: requests the status of a running database.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::protocol::{ASK, Answer};
use super::socket_path;
use crate::status::Status;

/// Time limit for accepting the connection and for each part of an answer. A server needs far less,
/// even on a machine with ten times too much to do.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum length of an answer.
const ANSWER_BYTES: u64 = 256 << 20;

/// Client for a database that another process, or this one, has open with
/// [`Options::observe`](crate::Options::observe).
///
/// ```
/// use foxton::{Database, Options, observe::Watcher, options::Observe};
///
/// # let path = std::env::temp_dir().join(format!("foxton-watch-{}", std::process::id()));
/// # fn main_(path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
/// let mut options = Options::default();
/// options.observe = Observe::InDirectory;
/// let db = Database::open_with(path, options)?;
///
/// let mut watcher = Watcher::connect(path)?; // in another process, as a rule
/// let status = watcher.status()?;
/// println!("{} commits, {} wait", status.all_commits(), status.waiters().len());
/// # drop(db); Ok(()) }
/// # main_(&path).unwrap();
/// # std::fs::remove_dir_all(&path).unwrap();
/// ```
#[derive(Debug)]
pub struct Watcher {
    place: PathBuf,
    stream: BufReader<UnixStream>,
}

/// Why a database cannot be observed.
#[derive(Debug)]
#[non_exhaustive]
pub enum WatchError {
    /// The path does not exist.
    Missing {
        /// The path.
        place: PathBuf,
    },
    /// There is no socket: no process has the database open, or it did not opt in.
    NotObserved {
        /// The database's directory.
        place: PathBuf,
    },
    /// There is a socket, but the process that created it has ended.
    Gone {
        /// The database's directory, or the socket.
        place: PathBuf,
    },
    /// The database belongs to another user.
    NotAllowed {
        /// The database's directory, or the socket.
        place: PathBuf,
    },
    /// The server refused, or its answer is invalid: it may have another version.
    Refused {
        /// The server's message.
        what: String,
    },
    /// For half a minute the process did not accept the connection or did not continue its answer.
    /// It may be stopped.
    Silent,
    /// The connection failed.
    Broken {
        /// The cause.
        source: io::Error,
    },
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchError::Missing { place } => write!(
                f,
                "there is no {}: name the directory of a database, or a socket",
                place.display()
            ),
            WatchError::NotObserved { place } => write!(
                f,
                "{} is not observed: no process has it open, or the process that has did not \
                 opt in. A program opts in with `options.observe = Observe::InDirectory`, `foxton bench` \
                 with `--observe DIR`, `foxton shell` with `--observe`",
                place.display()
            ),
            WatchError::Gone { place } => write!(
                f,
                "the process that had {} open is gone; its socket is replaced when the database is \
                 opened again",
                place.display()
            ),
            WatchError::NotAllowed { place } => write!(
                f,
                "{} belongs to another user: observe it as the user whose process has it open",
                place.display()
            ),
            WatchError::Refused { what } => write!(f, "the observed process refused: {what}"),
            WatchError::Silent => write!(
                f,
                "the observed process does not answer, for {} seconds now: it may be stopped, or the \
                 machine overloaded. Try again",
                PATIENCE.as_secs()
            ),
            WatchError::Broken { source } => {
                write!(f, "the connection to the observed process failed: {source}")
            }
        }
    }
}

impl std::error::Error for WatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            WatchError::Broken { source } => Some(source),
            _ => None,
        }
    }
}

impl Watcher {
    /// Connects to the process that has the database in the directory `place` open; `place` may
    /// also be the socket.
    ///
    /// # Errors
    /// Names the obstacle and says what to do about it.
    pub fn connect(place: impl AsRef<Path>) -> Result<Watcher, WatchError> {
        let place = place.as_ref();
        let here = || place.to_owned();
        let stream = socket_path::connect(place, PATIENCE).map_err(|error| match error.kind() {
            ErrorKind::NotFound if !place.exists() => WatchError::Missing { place: here() },
            ErrorKind::NotFound => WatchError::NotObserved { place: here() },
            ErrorKind::ConnectionRefused => WatchError::Gone { place: here() },
            ErrorKind::PermissionDenied => WatchError::NotAllowed { place: here() },
            ErrorKind::WouldBlock => WatchError::Silent,
            _ => WatchError::Broken { source: error },
        })?;
        Ok(Watcher {
            place: here(),
            stream: BufReader::new(stream),
        })
    }

    /// Returns the current status.
    ///
    /// # Errors
    /// After an error the connection is unusable: connect again.
    pub fn status(&mut self) -> Result<Status, WatchError> {
        let line = self.ask().map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                WatchError::Gone {
                    place: self.place.clone(),
                }
            }
            ErrorKind::WouldBlock => WatchError::Silent,
            _ => WatchError::Broken { source: error },
        })?;
        let nonsense = |error| WatchError::Refused {
            what: format!("its answer cannot be read ({error})"),
        };
        let answer: Answer = serde_json::from_slice(&line).map_err(nonsense)?;
        answer.picture.ok_or_else(|| WatchError::Refused {
            what: answer.error.unwrap_or_else(|| "no picture".to_owned()),
        })
    }

    fn ask(&mut self) -> io::Result<Vec<u8>> {
        self.stream.get_mut().write_all(ASK)?;
        let mut line = Vec::new();
        let mut most = (&mut self.stream).take(ANSWER_BYTES);
        most.read_until(b'\n', &mut line)?;
        match line.last() {
            Some(b'\n') => Ok(line),
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}
