//! Why the engine did not do what it was asked, told by what the caller can do next.
//!
//! | variant | what to do | examples of [`Error::code`] |
//! |---|---|---|
//! | [`Error::Conflict`] | roll back and run the transaction again, or let [`Database::run`] do it | `deadlock`, `lock_timeout`, `lock_busy` |
//! | [`Error::Request`] | change the request | `key_exists`, `key_too_long`, `table_types` |
//! | [`Error::Storage`] | repair what it names, then open the database again | `in_use`, `damaged`, `poisoned` |
//!
//! Codes never change their meaning; new ones may appear. Messages are for people and may change.
//!
//! [`Database::run`]: crate::Database::run

mod index;

use std::fmt;
use std::io;
use std::path::PathBuf;

use foxton_lock::name::{Class, Name};
use foxton_lock::request::{Reason, Refusal};
use foxton_log::LogError;
use foxton_store::TooLong;

use crate::codec::Undecodable;
use crate::limits::{MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES, MAX_TABLES, MAX_VALUE_BYTES};

pub use index::{IndexError, KeyTaken};

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the engine did not do what it was asked. See the [module](self) for how to react.
///
/// ```
/// use foxton::{Database, Options, Table};
/// const USERS: Table<str, u32> = Table::new("users");
/// let db = Database::in_memory(Options::default())?;
/// let mut tx = db.begin()?;
/// tx.insert(&USERS, "ada", &1)?;
/// let error = tx.insert(&USERS, "ada", &2).unwrap_err();
/// assert_eq!(error.code(), "key_exists");
/// assert!(!error.is_retryable());
/// tx.commit()?; // the transaction goes on: only that one insert was refused
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction had to go first. Roll back and run this one again.
    Conflict(Conflict),
    /// The request cannot succeed as it stands. The transaction goes on.
    Request(Request),
    /// The device or the directory is not as it must be. Repair what is named and open again.
    Storage(Box<Storage>),
}

// Errors travel through every hot function: three words.
const _: () = assert!(size_of::<Error>() <= 24);

impl Error {
    /// A short stable name for programs: `"deadlock"`, `"key_exists"`, `"in_use"`.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Conflict(conflict) => conflict.code(),
            Error::Request(request) => request.code(),
            Error::Storage(storage) => storage.code(),
        }
    }

    /// Whether the same transaction, run again from its beginning, may well succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Conflict(_))
    }

    /// Whether a deadlock ended the transaction.
    pub(crate) fn is_defeat(&self) -> bool {
        let ended = [ConflictReason::Deadlock, ConflictReason::Ended];
        matches!(self, Error::Conflict(conflict) if ended.contains(&conflict.reason))
    }

    /// Whether a lock was refused because somebody has it.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Error::Conflict(conflict) if conflict.reason == ConflictReason::Busy)
    }

    /// Wraps an error of your own, so that a closure given to [`Database::run`] can end with it:
    /// the transaction is rolled back, not run again, and the error comes out of `run`.
    ///
    /// ```
    /// # use foxton::{Database, Error, Options};
    /// # let db = Database::in_memory(Options::default())?;
    /// let refused = db.run(|_tx| Err::<(), _>(Error::other("not enough money"))).unwrap_err();
    /// assert_eq!(refused.code(), "other");
    /// assert_eq!(refused.to_string(), "not enough money");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// [`Database::run`]: crate::Database::run
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Request(Request::Other(Box::new(error.into())))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Conflict(conflict) => conflict.fmt(f),
            Error::Request(request) => request.fmt(f),
            Error::Storage(storage) => storage.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Request(Request::Other(error)) => Some(&***error),
            Error::Storage(storage) => match &**storage {
                Storage::Io { source, .. } => Some(source),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Another transaction had to go first; who, and why.
#[derive(Debug)]
pub struct Conflict {
    reason: ConflictReason,
    detail: Option<Box<Detail>>,
}

#[derive(Debug)]
struct Detail {
    refusal: Refusal,
    tables: TableNames,
}

/// What the tables are called that the names of a refusal or of a deadlock lie in, by number.
#[derive(Debug, Clone)]
pub(crate) struct TableNames(Vec<(u32, String)>);

impl TableNames {
    /// Asks `table` for each that `names` lie in.
    pub(crate) fn of(names: impl IntoIterator<Item = Name>, table: impl Fn(u32) -> String) -> Self {
        let mut tables: Vec<(u32, String)> = Vec::new();
        for name in names {
            if tables.iter().all(|(space, _)| *space != name.space()) {
                tables.push((name.space(), table(name.space())));
            }
        }
        TableNames(tables)
    }

    fn get(&self, name: Name) -> &str {
        let found = self.0.iter().find(|(space, _)| *space == name.space());
        found.map_or("", |(_, table)| table)
    }

    /// The name as a person would call it: `users/ann`.
    pub(crate) fn call(&self, name: Name) -> String {
        name.in_table(self.get(name))
    }
}

/// Why another transaction had to go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConflictReason {
    /// A lock was asked for without waiting, and somebody has it. The transaction goes on.
    Busy,
    /// A lock was not granted within the time given. The transaction goes on.
    TimedOut,
    /// This transaction was chosen to end so that a cycle of waiters could go on. It has been
    /// rolled back already.
    Deadlock,
    /// The wait was ended from outside. The transaction goes on.
    Cancelled,
    /// More locks are held at once than the lock manager has room for. The transaction goes on, and can
    /// be run again when others have ended.
    Full,
    /// The transaction was ended and rolled back by an earlier conflict, and takes no more work.
    Ended,
}

impl Conflict {
    /// The refusal; `table` knows what tables are called.
    pub(crate) fn refused(refusal: Refusal, table: impl Fn(u32) -> String) -> Conflict {
        let reason = match refusal.reason {
            Reason::Busy => ConflictReason::Busy,
            Reason::TimedOut => ConflictReason::TimedOut,
            Reason::Deadlock => ConflictReason::Deadlock,
            Reason::Full => ConflictReason::Full,
            _ => ConflictReason::Cancelled,
        };
        let cycle = refusal.cycle.iter().map(|member| member.awaited.0);
        let tables = TableNames::of(std::iter::once(refusal.name).chain(cycle), table);
        Conflict {
            reason,
            detail: Some(Box::new(Detail { refusal, tables })),
        }
    }

    pub(crate) const ENDED: Conflict = Conflict {
        reason: ConflictReason::Ended,
        detail: None,
    };

    /// Why.
    pub fn reason(&self) -> ConflictReason {
        self.reason
    }

    /// The table in which the lock was refused; `None` if it is no table's.
    pub fn table(&self) -> Option<&str> {
        let detail = self.detail.as_ref()?;
        let name = detail.refusal.name;
        (name.class() != Class::Advisory).then(|| detail.tables.get(name))
    }

    /// What was refused, who stood in the way with which labels, and the cycle of a deadlock.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.detail.as_ref().map(|detail| &detail.refusal)
    }

    fn code(&self) -> &'static str {
        match self.reason {
            ConflictReason::Busy => "lock_busy",
            ConflictReason::TimedOut => "lock_timeout",
            ConflictReason::Deadlock => "deadlock",
            ConflictReason::Cancelled => "lock_cancelled",
            ConflictReason::Full => "lock_room",
            ConflictReason::Ended => "ended_by_conflict",
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            ConflictReason::Busy => "the lock is held by another transaction; try again later",
            ConflictReason::TimedOut => "the lock was not granted in time; run it again",
            ConflictReason::Deadlock => {
                "a deadlock ended this transaction and rolled it back; run it again"
            }
            ConflictReason::Cancelled => "the wait for a lock was cancelled; run it again",
            ConflictReason::Full => {
                "there is no room for another lock; run it again when others have ended, and let \
                 long transactions lock whole tables"
            }
            ConflictReason::Ended => {
                "an earlier conflict ended this transaction and rolled it back; drop it and run \
                 it again from the beginning"
            }
        })?;
        match self.detail.as_deref() {
            Some(Detail { refusal, tables }) => {
                write!(f, " ({})", refusal.with_names(&|name| tables.call(name)))
            }
            None => Ok(()),
        }
    }
}

/// The request cannot succeed as it stands.
#[derive(Debug)]
#[non_exhaustive]
pub enum Request {
    /// An insert found its key already there.
    KeyExists,
    /// An encoded key is longer than tables take.
    KeyTooLong {
        /// Bytes of the key.
        bytes: usize,
    },
    /// An encoded value is longer than tables take.
    ValueTooLong {
        /// Bytes of the value.
        bytes: usize,
    },
    /// The table was made for other key or value types.
    TableTypes(Box<TableTypes>),
    /// A table name is empty or too long.
    TableName {
        /// Bytes of the name.
        bytes: usize,
    },
    /// The database has as many tables as it takes.
    TooManyTables,
    /// Stored bytes are no encoding of the type asked for. The table was written through a raw
    /// table, or the type changed its encoding but not its name.
    Undecodable(Undecodable),
    /// The savepoint is none of this transaction's, was released, or was taken after one that was gone
    /// back to.
    NoSuchSavepoint,
    /// Locking is off and another transaction is open.
    OneAtATime,
    /// An index refuses a row, or is not as it is declared.
    Index(Box<IndexError>),
    /// An option is out of its range.
    Option(&'static str),
    /// The closure given to `run` ended with an error of its own.
    Other(Box<Box<dyn std::error::Error + Send + Sync>>),
}

/// A table used with types it was not made for.
#[derive(Debug)]
#[non_exhaustive]
pub struct TableTypes {
    /// The table.
    pub table: String,
    /// Its key and value type, as stored.
    pub stored: (String, String),
    /// The key and value type it was used with.
    pub used: (String, String),
}

impl Request {
    fn code(&self) -> &'static str {
        match self {
            Request::KeyExists => "key_exists",
            Request::KeyTooLong { .. } => "key_too_long",
            Request::ValueTooLong { .. } => "value_too_long",
            Request::TableTypes(_) => "table_types",
            Request::TableName { .. } => "table_name",
            Request::TooManyTables => "too_many_tables",
            Request::Undecodable(_) => "undecodable",
            Request::NoSuchSavepoint => "no_such_savepoint",
            Request::OneAtATime => "one_at_a_time",
            Request::Index(error) => error.code(),
            Request::Option(_) => "option",
            Request::Other(_) => "other",
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::KeyExists => f.write_str(
                "the key exists already; use put to replace its value, or choose another key",
            ),
            Request::KeyTooLong { bytes } => write!(
                f,
                "the key takes {bytes} bytes and a table takes at most {}; use a shorter key",
                MAX_KEY_BYTES
            ),
            Request::ValueTooLong { bytes } => write!(
                f,
                "the value takes {bytes} bytes and a table takes at most {}; \
                 split it over several keys",
                MAX_VALUE_BYTES
            ),
            Request::TableTypes(types) => write!(
                f,
                "table \"{}\" maps {} to {} and was used as a map from {} to {}; \
                 use the stored types, or another table name",
                types.table, types.stored.0, types.stored.1, types.used.0, types.used.1
            ),
            Request::TableName { bytes } => write!(
                f,
                "a table name takes 1 to {} bytes and this one has {bytes}",
                MAX_TABLE_NAME_BYTES
            ),
            Request::TooManyTables => write!(
                f,
                "the database has {} tables and takes no more; \
                 put the kinds of things that share a table into its key",
                MAX_TABLES
            ),
            Request::Undecodable(undecodable) => write!(
                f,
                "{undecodable}; read the table as raw bytes to see what is there"
            ),
            Request::NoSuchSavepoint => f.write_str(
                "there is no such savepoint: it is of another transaction, was released, or was taken after \
                 one that was gone back to; keep those that are to be gone back to",
            ),
            Request::OneAtATime => f.write_str(
                "locking is off, so only one transaction may be open at a time; \
                 end the other one first, or open the database with locking on",
            ),
            Request::Index(error) => error.fmt(f),
            Request::Option(what) => f.write_str(what),
            Request::Other(error) => error.fmt(f),
        }
    }
}

/// The device or the directory is not as it must be.
#[derive(Debug)]
#[non_exhaustive]
pub enum Storage {
    /// The directory holds other things and no database.
    NotADatabase {
        /// The directory.
        path: PathBuf,
        /// What was found instead.
        found: String,
    },
    /// There is no such directory, and none could be made.
    NotCreated {
        /// The directory.
        path: PathBuf,
        /// What is in the way.
        why: String,
    },
    /// What is to be made needs an empty directory, and this one is not.
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// Something that is in it.
        found: String,
    },
    /// The directory holds no whole backup.
    NotABackup {
        /// The directory.
        path: PathBuf,
        /// What was found instead.
        found: String,
    },
    /// The database is open already, in this process or another.
    InUse {
        /// The directory.
        path: PathBuf,
        /// Who has it, as far as it is known.
        holder: String,
    },
    /// The file system takes no writes, or not from this user.
    ReadOnly {
        /// The directory.
        path: PathBuf,
    },
    /// The database was written by a later version of Foxton.
    FutureFormat {
        /// What is not known here.
        found: String,
    },
    /// Bytes that were once stored safely are not what they were.
    Damaged {
        /// The file, and where in it.
        place: String,
        /// What is wrong there.
        what: String,
    },
    /// The device has no room left.
    DeviceFull {
        /// What was being done.
        doing: String,
    },
    /// The device failed.
    Io {
        /// What was being done.
        doing: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// An earlier failure of the device ended this database; it takes no more commits.
    Poisoned {
        /// The earlier failure.
        why: String,
    },
}

impl Storage {
    fn code(&self) -> &'static str {
        match self {
            Storage::NotADatabase { .. } => "not_a_database",
            Storage::NotCreated { .. } => "not_created",
            Storage::NotEmpty { .. } => "not_empty",
            Storage::NotABackup { .. } => "not_a_backup",
            Storage::InUse { .. } => "in_use",
            Storage::ReadOnly { .. } => "read_only",
            Storage::FutureFormat { .. } => "future_format",
            Storage::Damaged { .. } => "damaged",
            Storage::DeviceFull { .. } => "device_full",
            Storage::Io { .. } => "io",
            Storage::Poisoned { .. } => "poisoned",
        }
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Storage::NotADatabase { path, found } => write!(
                f,
                "{} is not a Foxton database: {found}; name an empty or a new directory to create \
                 one there",
                path.display()
            ),
            Storage::NotCreated { path, why } => write!(
                f,
                "no database can be created at {}: {why}; name a directory that is there, or a new \
                 one in a directory that is there",
                path.display()
            ),
            Storage::NotEmpty { path, found } => write!(
                f,
                "{} is not empty: it holds {found}; name an empty or a new directory. If something \
                 was interrupted there, remove it first",
                path.display()
            ),
            Storage::NotABackup { path, found } => write!(
                f,
                "{} is not a whole backup: {found}; name a directory that `foxton backup` or \
                 `backup_to` has finished",
                path.display()
            ),
            Storage::InUse { path, holder } => write!(
                f,
                "{} is already open {holder}; one process opens a database once: share its \
                 Database handle, or end the other process",
                path.display()
            ),
            Storage::ReadOnly { path } => write!(
                f,
                "{} cannot be written; a database needs a directory it may write to: mount the \
                 file system for writing or change its permissions",
                path.display()
            ),
            Storage::FutureFormat { found } => write!(
                f,
                "the database was written by a later version of Foxton ({found}); open it with \
                 that version"
            ),
            Storage::Damaged { place, what } => write!(
                f,
                "{place}: {what}; what was stored there is lost: restore the directory from a \
                 backup"
            ),
            Storage::DeviceFull { doing } => write!(
                f,
                "the device is full ({doing}); make room, then open the database again: every \
                 acknowledged commit is kept"
            ),
            Storage::Io { doing, source } => write!(
                f,
                "{doing} failed: {source}; see to the device, then open the database again"
            ),
            Storage::Poisoned { why } => write!(
                f,
                "an earlier failure ended this database ({why}); it takes no more commits: see to \
                 the device, then open the database again"
            ),
        }
    }
}

impl From<Conflict> for Error {
    fn from(conflict: Conflict) -> Error {
        Error::Conflict(conflict)
    }
}

impl From<Request> for Error {
    fn from(request: Request) -> Error {
        Error::Request(request)
    }
}

impl From<Storage> for Error {
    fn from(storage: Storage) -> Error {
        Error::Storage(Box::new(storage))
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Error {
        match &error {
            LogError::TooLarge { bytes } => Request::ValueTooLong { bytes: *bytes }.into(),
            LogError::Failed(failure) => match failure.source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Storage::DeviceFull {
                    doing: failure.to_string(),
                }
                .into(),
                _ => Storage::Poisoned {
                    why: failure.to_string(),
                }
                .into(),
            },
            _ => Storage::Poisoned {
                why: error.to_string(),
            }
            .into(),
        }
    }
}

impl From<TooLong> for Error {
    fn from(error: TooLong) -> Error {
        match error {
            TooLong::Key { bytes } => Request::KeyTooLong { bytes }.into(),
            TooLong::Value { bytes } => Request::ValueTooLong { bytes }.into(),
        }
    }
}

impl From<Undecodable> for Error {
    fn from(undecodable: Undecodable) -> Error {
        Error::Request(Request::Undecodable(undecodable))
    }
}
