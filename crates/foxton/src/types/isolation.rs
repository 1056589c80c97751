//! How far apart transactions are kept.
//!
//! Levels differ in which locks a plain read takes and how long it keeps them; writes, and reads that
//! ask for more than [`Lock::Shared`], keep theirs to the end at every level. So transactions of
//! different levels live side by side, and each has what its own level promises, whatever the others
//! chose: nobody else's level lets anybody overwrite what was not committed.

use crate::types::lock_options::{Lock, LockOptions, LockWait};

/// How far a transaction is kept apart from others: what a plain read, one with
/// [`Lock::Shared`], locks and until when.
///
/// | may be seen | `Serializable` | `RepeatableRead` | `ReadCommitted` | `ReadUncommitted` |
/// |---|---|---|---|---|
/// | a write over one that is not committed (G0) | no | no | no | no |
/// | what was rolled back, or was overwritten before its commit (G1a, G1b) | no | no | no | yes |
/// | information that flows in a circle (G1c) | no | no | no | yes |
/// | a transaction that was seen and vanishes again (OTV) | no | no | no | yes |
/// | another value at the second look, a lost update, half of a transaction (P4, G-single) | no | no | yes | yes |
/// | two that each read what the other writes (write skew, G2-item) | no | no | yes | yes |
/// | a key that was not there at the first look (phantoms: PMP, G2) | no | yes | yes | yes |
///
/// | a plain read | `Serializable` | `RepeatableRead` | `ReadCommitted` | `ReadUncommitted` |
/// |---|---|---|---|---|
/// | locks keys | to the end | to the end | while it reads them | no |
/// | locks the gaps between them | to the end | no | no | no |
/// | waits for who writes | yes | yes | yes | no |
///
/// At `ReadCommitted` and below, [`get_for_update`](crate::Transaction::get_for_update) is how to read
/// what is to be written: it keeps its lock, so no update is lost.
///
/// ```
/// use foxton::{Database, Isolation, Options, Table};
///
/// const STOCK: Table<str, u32> = Table::new("stock");
/// let db = Database::in_memory(Options::default())?;
/// db.run(|tx| tx.put(&STOCK, "apples", &3))?;
///
/// let mut report = db.begin()?;
/// report.set_isolation(Isolation::ReadCommitted);
/// assert_eq!(report.get(&STOCK, "apples")?, Some(3));
/// db.run(|tx| tx.put(&STOCK, "apples", &2))?; // does not wait for the report
/// assert_eq!(report.get(&STOCK, "apples")?, Some(2));
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Isolation {
    /// As if transactions ran one after the other.
    #[default]
    Serializable,
    /// What was read stays as it is; more may come in between.
    RepeatableRead,
    /// What is read was committed.
    ReadCommitted,
    /// What is read was written, or will be, or neither: it may yet be rolled back.
    ReadUncommitted,
}

foxton_sync::named_enum! {
    Isolation, "isolation level":
    Serializable = "serializable",
    RepeatableRead = "repeatable-read",
    ReadCommitted = "read-committed",
    ReadUncommitted = "read-uncommitted",
}

/// What a read locks, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LockDuration {
    /// Keys and the gaps between them, to the end.
    #[default]
    Range,
    /// Keys, to the end.
    Key,
    /// Each key until it has been read, unless it was locked before.
    Short,
    /// Nothing.
    None,
}

impl Isolation {
    /// What a read with these options locks.
    #[inline]
    pub(crate) fn hold(self, options: LockOptions) -> LockDuration {
        // What passes over keys cannot keep others out of the gaps between them.
        let skips = options.wait == LockWait::Skip;
        match (self, options.lock) {
            (Isolation::Serializable, _) if !skips => LockDuration::Range,
            (Isolation::ReadCommitted, Lock::Shared) if !skips => LockDuration::Short,
            (Isolation::ReadUncommitted, Lock::Shared) if !skips => LockDuration::None,
            _ => LockDuration::Key,
        }
    }
}
