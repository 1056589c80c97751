//! How strongly rows, tables and numbers are locked, and how long to wait for that.

use std::time::Duration;

use foxton_lock::mode::{GapPart, KeyPart, Mode};
use foxton_lock::request::WaitMode;

/// How strongly a read locks what it reads, until the transaction ends.
///
/// | | while it is held, others may | take it to |
/// |---|---|---|
/// | `Shared` | read | read |
/// | `Update` | read with `Shared` | read what will probably be written |
/// | `Exclusive` | neither read nor write | read what will surely be written |
///
/// Two transactions that both read `Shared` and then both write wait for each other for ever, and
/// one of them is ended; with `Update` the second waits at its read and nobody is ended.
///
/// A lock alone waits as long as [`Options::lock_wait`](crate::Options::lock_wait) says; the
/// methods say otherwise:
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
    /// Others may read too.
    #[default]
    Shared,
    /// Others may read, but not mean to write.
    Update,
    /// Nobody else reads or writes.
    Exclusive,
}

impl Lock {
    /// Refuse with `lock_busy` rather than wait. The transaction goes on;
    /// [`Database::run`](crate::Database::run) does not run it again for that, but hands the refusal on.
    pub fn nowait(self) -> LockOptions {
        LockOptions {
            lock: self,
            wait: LockWait::Refuse,
        }
    }

    /// Wait at most this long for each lock, then refuse with `lock_timeout`. The transaction goes on;
    /// [`Database::run`](crate::Database::run) does not run it again for that, but hands the refusal on.
    pub fn timeout(self, at_most: Duration) -> LockOptions {
        LockOptions {
            lock: self,
            wait: LockWait::AtMost(at_most),
        }
    }

    /// Pass over what others have locked, as if it were not there.
    ///
    /// For work queues: many workers each take the first job that nobody has. A range read this
    /// way locks the keys it returns and nothing between them, so it is not serializable: it does
    /// not notice what it skipped, nor what appears later.
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

    /// The mode for a number of the program's own.
    pub(crate) fn advisory_mode(self) -> Mode {
        match self {
            Lock::Shared => Mode::S,
            Lock::Update => Mode::U,
            Lock::Exclusive => Mode::X,
        }
    }

    /// The mode for a key alone.
    pub(crate) fn key_mode(self) -> Mode {
        Mode::key(self.key_part(), GapPart::None)
    }

    /// The mode for a key and the gap before it.
    pub(crate) fn range_mode(self) -> Mode {
        Mode::key(self.key_part(), GapPart::S)
    }
}

/// A [`Lock`] and how long to wait for it. Made by its methods, or from it alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct LockOptions {
    /// How strongly.
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

/// How a whole table is locked, by [`Transaction::lock_table`](crate::Transaction::lock_table).
///
/// Intentions say that the transaction locks, or will lock, single keys: reads take the first, reads for
/// update and writes the second, without being told. Which of them may be held side by side, by different
/// transactions:
///
/// | | `IntentShared` | `IntentExclusive` | `Shared` | `SharedIntentExclusive` | `Update` | `Exclusive` |
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
    /// All is read: nobody writes.
    Shared,
    /// All is read and some will be written.
    SharedIntentExclusive,
    /// All is read and much will probably be written: nobody else means to.
    Update,
    /// All is written: nobody reads or writes, and no key needs a lock any more.
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
    /// Not at all: refuse.
    Refuse,
    /// At most so long.
    AtMost(Duration),
    /// Not at all: pass over what is locked.
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
