//! Options of a lock request: how strongly to lock a row, a table or an advisory number, and how
//! long to wait.

use std::time::Duration;

use foxton_lock::mode::{GapPart, KeyPart, Mode};
use foxton_lock::request::WaitMode;

/// How strongly a read locks a row; the lock is held until the transaction ends.
///
/// | | while it is held, others may | use it to |
/// |---|---|---|
/// | `Shared` | read | read |
/// | `Update` | read with `Shared` | read a row that will probably be written |
/// | `Exclusive` | neither read nor write | read a row that will surely be written |
///
/// Two transactions that both read with `Shared` and then both write would wait for each other for
/// ever, so one of them is aborted. With `Update` the second one waits at its read, and neither is
/// aborted.
///
/// Without further options a request waits as long as
/// [`Options::lock_wait`](crate::Options::lock_wait) says. The methods change that:
///
/// ```
/// use foxton::{Database, Lock, Options, Table};
/// use std::time::Duration;
///
/// const JOBS: Table<u64, str> = Table::new("jobs");
/// let db = Database::in_memory(Options::default())?;
/// db.run(|tx| tx.put(&JOBS, &1, "sweep the floor"))?;
///
/// let mut tx = db.begin()?;
/// let job = tx.get_locked(&JOBS, &1, Lock::Update.timeout(Duration::from_millis(5)))?;
/// assert_eq!(job.as_deref(), Some("sweep the floor"));
///
/// let mut other = db.begin()?;
/// assert!(other.get_locked(&JOBS, &1, Lock::Shared).is_ok());
/// let refused = other.get_locked(&JOBS, &1, Lock::Update.nowait()).unwrap_err();
/// assert_eq!(refused.code(), "lock_busy");
/// assert_eq!(other.get_locked(&JOBS, &1, Lock::Update.skip_locked())?, None);
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Lock {
    /// Others may read.
    #[default]
    Shared,
    /// Others may read, but not with the intention to write.
    Update,
    /// Others may neither read nor write.
    Exclusive,
}

impl Lock {
    /// Refuses with `lock_busy` instead of waiting. The transaction stays open.
    /// [`Database::run`](crate::Database::run) returns the refusal and does not rerun the
    /// transaction.
    pub fn nowait(self) -> LockOptions {
        LockOptions {
            lock: self,
            wait: LockWait::Refuse,
        }
    }

    /// Waits at most `at_most` for each lock, then refuses with `lock_timeout`. The transaction
    /// stays open. [`Database::run`](crate::Database::run) returns the refusal and does not rerun
    /// the transaction.
    pub fn timeout(self, at_most: Duration) -> LockOptions {
        LockOptions {
            lock: self,
            wait: LockWait::AtMost(at_most),
        }
    }

    /// Skips rows that others have locked, as if they did not exist.
    ///
    /// This is for work queues, where each worker takes the first job that no other worker has
    /// taken. A range read this way locks the keys it returns and nothing between them, so it is
    /// not serializable: it notices neither the rows it skipped nor rows that appear later.
    pub fn skip_locked(self) -> LockOptions {
        LockOptions {
            lock: self,
            wait: LockWait::Skip,
        }
    }

    pub(crate) fn key_part(self) -> KeyPart {
        match self {
            Lock::Shared => KeyPart::S,
            Lock::Update => KeyPart::U,
            Lock::Exclusive => KeyPart::X,
        }
    }

    /// Returns the mode for an advisory lock, which is on a number of the program's own.
    pub(crate) fn advisory_mode(self) -> Mode {
        match self {
            Lock::Shared => Mode::S,
            Lock::Update => Mode::U,
            Lock::Exclusive => Mode::X,
        }
    }

    /// Returns the mode for a key without its gap.
    pub(crate) fn key_mode(self) -> Mode {
        Mode::key(self.key_part(), GapPart::None)
    }

    /// Returns the mode for a key and the gap before it.
    pub(crate) fn range_mode(self) -> Mode {
        Mode::key(self.key_part(), GapPart::S)
    }
}

/// A [`Lock`] and how long to wait for it. Create it with the methods of [`Lock`], or from a
/// `Lock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct LockOptions {
    /// How strongly to lock.
    pub lock: Lock,
    /// How long to wait.
    pub wait: LockWait,
}

impl From<Lock> for LockOptions {
    fn from(lock: Lock) -> LockOptions {
        LockOptions {
            lock,
            wait: LockWait::Default,
        }
    }
}

/// How strongly [`Transaction::lock_table`](crate::Transaction::lock_table) locks a whole table.
///
/// An intention says that the transaction locks, or will lock, single keys. Reads take
/// `IntentShared` automatically; reads for update and writes take `IntentExclusive`. This table
/// says which locks different transactions may hold at the same time:
///
/// Columns are in the order of the rows.
///
/// | | IS | IX | S | SIX | U | X |
/// |---|---|---|---|---|---|---|
/// | `IntentShared` | yes | yes | yes | yes | yes | |
/// | `IntentExclusive` | yes | yes | | | | |
/// | `Shared` | yes | | yes | | yes | |
/// | `SharedIntentExclusive` | yes | | | | | |
/// | `Update` | yes | | yes | | | |
/// | `Exclusive` | | | | | | |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TableLock {
    /// Some keys will be read.
    IntentShared,
    /// Some keys will be written.
    IntentExclusive,
    /// The whole table is read. Others may not write.
    Shared,
    /// The whole table is read, and some keys will be written.
    SharedIntentExclusive,
    /// The whole table is read, and many keys will probably be written. Others may not intend to
    /// write.
    Update,
    /// The whole table is written. Others may neither read nor write, and no key needs a lock of
    /// its own.
    Exclusive,
}

impl TableLock {
    pub(crate) fn mode(self) -> Mode {
        match self {
            TableLock::IntentShared => Mode::IS,
            TableLock::IntentExclusive => Mode::IX,
            TableLock::Shared => Mode::S,
            TableLock::SharedIntentExclusive => Mode::SIX,
            TableLock::Update => Mode::U,
            TableLock::Exclusive => Mode::X,
        }
    }
}

/// How long to wait for one lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum LockWait {
    /// As long as [`Options::lock_wait`](crate::Options::lock_wait) says.
    #[default]
    Default,
    /// Do not wait: refuse.
    Refuse,
    /// Wait at most this long.
    AtMost(Duration),
    /// Do not wait: skip the row.
    Skip,
}

impl LockWait {
    pub(crate) fn patience(self) -> WaitMode {
        match self {
            LockWait::Default | LockWait::AtMost(_) => WaitMode::Wait,
            LockWait::Refuse => WaitMode::Refuse,
            LockWait::Skip => WaitMode::Skip,
        }
    }
}
