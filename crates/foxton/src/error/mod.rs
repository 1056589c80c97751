//! Errors, classified by what the caller can do next.
//!
//! | variant | what to do | examples of [`Error::code`] |
//! |---|---|---|
//! | [`Error::Conflict`] | rerun it, as [`Database::run`] does | `deadlock`, `lock_busy` |
//! | [`Error::Request`] | change the request | `key_exists`, `key_too_long` |
//! | [`Error::Storage`] | repair the named cause, then open again | `in_use`, `damaged` |
//!
//! [`Database::run`] reruns a transaction after a `deadlock` only. After a storage error of a copy
//! or a check, repeat the copy or the check; the database stays open.
//!
//! Codes never change their meaning; new ones may appear. Messages are for people and may change.
//!
//! [`Database::run`]: crate::Database::run

/// Conflicts between transactions.
mod conflict;

/// Errors of secondary indexes.
mod index;

/// Failures of storage.
mod storage;

use std::fmt;
use std::io;

use foxton_log::LogError;
use foxton_store::TooLong;
use foxton_sync::process::{self, ProcessStamp};

use crate::types::codec::Undecodable;
use crate::types::component::TableComponent;
use crate::types::limits::{MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES, MAX_TABLES, MAX_VALUE_BYTES};

pub(crate) use conflict::TableNames;
pub use conflict::{Conflict, ConflictReason};
pub use foxton_lock::request::{Blocker, Refusal, RefusalReason};
pub use index::{IndexError, KeyTaken};
pub use storage::Storage;

/// Result of an operation that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine. The [module](self) says how to react to each variant.
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
    /// A conflict with other transactions. Roll back and rerun the transaction.
    Conflict(Conflict),
    /// The request cannot succeed as it is. The transaction stays open.
    Request(Request),
    /// The device or the directory is not in the required state. Repair what the error names and
    /// open the database again.
    Storage(Box<Storage>),
}

// Hot functions return errors: at most three words.
const _: () = assert!(size_of::<Error>() <= 24);

impl Error {
    /// Returns a short stable name for programs: `"deadlock"`, `"key_exists"`, `"in_use"`.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Conflict(conflict) => conflict.code(),
            Error::Request(request) => request.code(),
            Error::Storage(storage) => storage.code(),
        }
    }

    /// True if the transaction may well succeed when it is rerun from its beginning.
    /// [`Database::run`](crate::Database::run) reruns only transactions that a deadlock ended.
    /// After a refused lock the caller decides when to retry. A transaction that was idle for too
    /// long is not retryable, because it would be idle again unless its program changes. A
    /// cancelled one is not retryable, because it is not wanted.
    pub fn is_retryable(&self) -> bool {
        let for_good = [
            ConflictReason::Idle,
            ConflictReason::Cancelled,
            ConflictReason::SnapshotEnded,
        ];
        matches!(self, Error::Conflict(conflict) if !for_good.contains(&conflict.reason()))
    }

    /// True if a deadlock, or a change since its snapshot, ended the transaction.
    pub(crate) fn is_defeat(&self) -> bool {
        let ended = [
            ConflictReason::Deadlock,
            ConflictReason::Ended,
            ConflictReason::TableDropped,
            ConflictReason::Overwritten,
        ];
        matches!(self, Error::Conflict(conflict) if ended.contains(&conflict.reason()))
    }

    /// Marks the error as one of a session's own request: the session still holds its locks.
    pub(crate) fn of_session(mut self) -> Error {
        if let Error::Conflict(conflict) = &mut self {
            conflict.now_of_session();
        }
        self
    }

    /// Marks the error as one of an operation that is not needed to keep the database open. So the
    /// message does not ask to reopen it.
    pub(crate) fn in_passing(self) -> Error {
        match self {
            Error::Storage(storage) => storage.in_passing().into(),
            other => other,
        }
    }

    /// True if a lock was refused because another owner holds it.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Error::Conflict(conflict) if conflict.reason() == ConflictReason::Busy)
    }

    /// Wraps an error of your own, so that a closure given to [`Database::run`] can return it.
    /// `run` then rolls the transaction back, does not rerun it, and returns the error.
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
                Storage::Io { source, .. }
                | Storage::NotCopied { source, .. }
                | Storage::NotDone { source, .. } => Some(source),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The request cannot succeed as it is.
#[derive(Debug)]
#[non_exhaustive]
pub enum Request {
    /// An insert found its key in the table.
    KeyExists,
    /// An encoded key is longer than tables accept.
    KeyTooLong {
        /// Bytes of the key.
        bytes: usize,
    },
    /// An encoded value is longer than tables accept.
    ValueTooLong {
        /// Bytes of the value.
        bytes: usize,
    },
    /// The table exists with other key or value types.
    TableTypes(Box<TableTypes>),
    /// The table exists, and its rows are not where it was declared to have them.
    TableComponent(Box<ComponentMismatch>),
    /// A key, or an entry of an index, is longer than a paged table takes with this page size.
    RowTooLong {
        /// Bytes of the key, or of the entry with its value.
        bytes: usize,
        /// Maximum.
        most: usize,
    },
    /// The rows in memory would take more than
    /// [`Options::resident_memory`](crate::Options::resident_memory).
    ResidentRoom(Box<ResidentRoom>),
    /// A table name is empty or too long.
    TableName {
        /// Bytes of the name.
        bytes: usize,
    },
    /// The database has the maximum number of tables.
    TooManyTables,
    /// There is no such table.
    NoSuchTable {
        /// The name.
        table: String,
    },
    /// Stored bytes are no encoding of the requested type. Either the table was written through a
    /// raw table, or the type changed its encoding but not its name.
    Undecodable(Undecodable),
    /// The savepoint belongs to another transaction, was released, or was taken after one that was
    /// rolled back to.
    NoSuchSavepoint,
    /// Locking is off and another transaction is open.
    OneAtATime,
    /// A transaction of the session is open, and a session runs one transaction at a time.
    SessionBusy,
    /// This process is a child made by `fork`, and its parent opened the database.
    ForkedChild,
    /// The program has other handles of the database to close.
    StillOpen,
    /// Locking is off, so a session cannot hold locks.
    SessionWithoutLocks,
    /// The level was to change to or from `Snapshot` after a read.
    LevelTooLate,
    /// Locking is off, so there are no versions to read at a snapshot.
    SnapshotWithoutLocks,
    /// Read views, the baseline of snapshots, do not read paged tables.
    ReadViewOfPages,
    /// The table or index was made, or moved to another component, after the snapshot.
    YoungerThanSnapshot,
    /// An index refuses a row, or differs from its declaration.
    Index(Box<IndexError>),
    /// An option is out of range.
    Option(&'static str),
    /// The database is in memory and keeps no files that could be copied.
    InMemory,
    /// The database was opened with [`Options::read_only`](crate::Options::read_only), so nothing
    /// in it can be changed.
    OpenedReadOnly,
    /// The closure given to `run` returned an error of its own.
    Other(Box<Box<dyn std::error::Error + Send + Sync>>),
}

/// A table was used with types other than its own.
#[derive(Debug)]
#[non_exhaustive]
pub struct TableTypes {
    /// The table.
    pub table: String,
    /// Its stored key and value type.
    pub stored: (String, String),
    /// The key and value type it was used with.
    pub used: (String, String),
}

/// A row in memory was refused, because rows in memory have reached their limit.
#[derive(Debug)]
#[non_exhaustive]
pub struct ResidentRoom {
    /// The table.
    pub table: String,
    /// Bytes by which its rows would have grown.
    pub bytes: u64,
    /// Bytes that all rows in memory take.
    pub used: u64,
    /// The limit, in bytes.
    pub limit: u64,
}

/// A table was declared with another component than its own.
#[derive(Debug)]
#[non_exhaustive]
pub struct ComponentMismatch {
    /// The table.
    pub table: String,
    /// The component that has its rows.
    pub stored: TableComponent,
    /// The component it was declared with.
    pub used: TableComponent,
}

impl Request {
    fn code(&self) -> &'static str {
        match self {
            Request::KeyExists => "key_exists",
            Request::KeyTooLong { .. } => "key_too_long",
            Request::ValueTooLong { .. } => "value_too_long",
            Request::TableTypes(_) => "table_types",
            Request::TableComponent(_) => "table_component",
            Request::RowTooLong { .. } => "row_too_long",
            Request::ResidentRoom(_) => "resident_room",
            Request::TableName { .. } => "table_name",
            Request::TooManyTables => "too_many_tables",
            Request::NoSuchTable { .. } => "no_such_table",
            Request::Undecodable(_) => "undecodable",
            Request::NoSuchSavepoint => "no_such_savepoint",
            Request::OneAtATime => "one_at_a_time",
            Request::SessionBusy => "session_busy",
            Request::ForkedChild => "forked_child",
            Request::StillOpen => "still_open",
            Request::SessionWithoutLocks => "session_without_locks",
            Request::LevelTooLate => "level_too_late",
            Request::SnapshotWithoutLocks => "snapshot_without_locks",
            Request::ReadViewOfPages => "read_view_of_pages",
            Request::YoungerThanSnapshot => "younger_than_snapshot",
            Request::Index(error) => error.code(),
            Request::Option(_) => "option",
            Request::InMemory => "in_memory",
            Request::OpenedReadOnly => "opened_read_only",
            Request::Other(_) => "other",
        }
    }
}

/// Refuses a call of a forked child, before it touches anything that belongs to the parent.
#[inline(always)]
pub(crate) fn check_process(process: &ProcessStamp) -> Result<()> {
    match process.is_inherited() {
        false => Ok(()),
        true => Err(forked_child()),
    }
}

#[cold]
fn forked_child() -> Error {
    Request::ForkedChild.into()
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
            Request::TableComponent(component) => write!(
                f,
                "table \"{}\" is {} and was declared as {}; declare it as it is, move it \
                 with `convert`, or use another table name",
                component.table, component.stored, component.used
            ),
            Request::RowTooLong { bytes, most } => write!(
                f,
                "the key or index entry takes {bytes} bytes and a paged table here at most {most}; \
                 use a shorter one, or keep the table in memory"
            ),
            Request::ResidentRoom(room) => write!(
                f,
                "table \"{}\" would grow by {} bytes, and the rows in memory take {} of at most {} \
                 bytes; move a table to pages with `convert`, delete rows, or open the database \
                 with a larger resident_memory",
                room.table, room.bytes, room.used, room.limit
            ),
            Request::TableName { bytes } => write!(
                f,
                "a table name takes 1 to {} bytes and this one has {bytes}",
                MAX_TABLE_NAME_BYTES
            ),
            Request::TooManyTables => write!(
                f,
                "the database has had {} tables and takes no more, dropped ones included; put the \
                 kinds of things that share a table into its key, and truncate tables instead of \
                 dropping them",
                MAX_TABLES
            ),
            Request::NoSuchTable { table } => write!(
                f,
                "there is no table \"{table}\"; `stats` and `foxton inspect` list the tables"
            ),
            Request::Undecodable(undecodable) => write!(
                f,
                "{undecodable}; read the table as raw bytes to see what is there"
            ),
            Request::NoSuchSavepoint => f.write_str(
                "there is no such savepoint: it belongs to another transaction, was released, or was \
                 taken after one that was rolled back to",
            ),
            Request::OneAtATime => f.write_str(
                "locking is off, so only one transaction may be open at a time; \
                 end the other one first, or open the database with locking on",
            ),
            Request::SessionBusy => f.write_str(
                "a transaction of this session is open, and a session does one thing at a time; end it \
                 first, or open another session",
            ),
            Request::ForkedChild => f.write_str(process::REFUSAL),
            Request::StillOpen => f.write_str(
                "the program has other handles of this database, which stays open for them: it \
                 closes when the last clone, session, transaction and future of one is dropped",
            ),
            Request::SessionWithoutLocks => f.write_str(
                "locking is off, so a session cannot hold locks; open the database with locking on",
            ),
            Request::LevelTooLate => f.write_str(
                "the transaction has read already, so its level does not change to or from \
                 snapshot; set it before the first read",
            ),
            Request::SnapshotWithoutLocks => f.write_str(
                "locking is off, so no versions are kept; open the database with locking on",
            ),
            Request::ReadViewOfPages => f.write_str(
                "read views do not read paged tables; leave `Options::snapshots` as it is, or move \
                 the table to memory with `convert`",
            ),
            Request::YoungerThanSnapshot => f.write_str(
                "the table or index was made or converted after the snapshot; begin another snapshot",
            ),
            Request::Index(error) => error.fmt(f),
            Request::Option(what) => f.write_str(what),
            Request::InMemory => f.write_str(
                "the database is in memory and keeps no files that could be copied; open it on a \
                 MemoryDevice to have some",
            ),
            Request::OpenedReadOnly => f.write_str(
                "the database was opened with read_only, so nothing in it can be changed; close it \
                 and open it without read_only to write",
            ),
            Request::Other(error) => error.fmt(f),
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
            LogError::Forked => Request::ForkedChild.into(),
            LogError::TooLarge { bytes } => Request::ValueTooLong { bytes: *bytes }.into(),
            LogError::NotInserted(failure) => Storage::not_inserted(failure).into(),
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
