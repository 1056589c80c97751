//! Isolation levels.
//!
//! Levels differ in which locks a plain read takes and how long it holds them, and in whether it
//! reads at a snapshot. Writes, and reads that request more than [`Lock::Shared`], hold their locks
//! to the end at every level. So transactions of different levels run side by side, and each has
//! the guarantees of its own level, whatever the others chose. At no level can a transaction
//! overwrite an uncommitted value.

use crate::types::lock_options::{Lock, LockOptions, LockWait};

/// Isolation level: what a plain read, one with [`Lock::Shared`], locks and until when.
///
/// Columns: `Serializable`, `RepeatableRead`, `ReadCommitted`, `ReadUncommitted`.
///
/// | a transaction may see | S | RR | RC | RU |
/// |---|---|---|---|---|
/// | a write over an uncommitted write (G0) | no | no | no | no |
/// | a write rolled back, or overwritten before its commit (G1a, G1b) | no | no | no | yes |
/// | circular information flow (G1c) | no | no | no | yes |
/// | a transaction that was seen and vanishes again (OTV) | no | no | no | yes |
/// | another value at a second read, a lost update (P4, G-single) | no | no | yes | yes |
/// | two that read each other's old values (write skew, G2-item) | no | no | yes | yes |
/// | a key that was missing at the first read (phantoms: PMP, G2) | no | yes | yes | yes |
///
/// | a plain read | `Serializable` | `RepeatableRead` | `ReadCommitted` | `ReadUncommitted` |
/// |---|---|---|---|---|
/// | locks keys | to the end | to the end | while it reads them | no |
/// | locks the gaps between them | to the end | no | no | no |
/// | waits for writers | yes | yes | yes | no |
///
/// [`Snapshot`](Self::Snapshot) is beside these: of the anomalies above it may show write skew
/// alone.
///
/// At `ReadCommitted` and below, read a row that you will write with
/// [`get_for_update`](crate::Transaction::get_for_update). It holds its lock, so no update is lost.
///
/// ```
/// use foxton::{Database, Isolation, Options, Table};
///
/// const STOCK: Table<str, u32> = Table::new("stock");
/// let db = Database::in_memory(Options::default())?;
/// db.run(|tx| tx.put(&STOCK, "apples", &3))?;
///
/// let mut report = db.begin()?;
/// report.set_isolation(Isolation::ReadCommitted)?;
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
    /// Plain reads return what was committed when the first of them began, and the transaction's
    /// own writes. They lock nothing and wait for no writer. Writes lock, and are refused with
    /// `overwritten` if the row has changed since. A transaction that only reads is serializable,
    /// as long as those that write are. One that writes may see write skew. Until it ends, rows
    /// that others delete stay in memory, so that its writes hear of them.
    ///
    /// A read with more than [`Lock::Shared`] returns what is there at the snapshot, too, and locks
    /// it. It is refused with `overwritten` if that has changed since, or was deleted. A range
    /// locks the rows that it returns, and no gaps: rows that others insert are not in the
    /// snapshot.
    Snapshot,
    /// Values that were read do not change; new keys may appear between them.
    RepeatableRead,
    /// Reads return committed values.
    ReadCommitted,
    /// Reads may return values that are not committed and may yet be rolled back.
    ReadUncommitted,
}

foxton_sync::named_enum! {
    Isolation, "isolation level":
    Serializable = "serializable",
    Snapshot = "snapshot",
    RepeatableRead = "repeatable-read",
    ReadCommitted = "read-committed",
    ReadUncommitted = "read-uncommitted",
}

/// Which locks a read takes, and how long it holds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LockDuration {
    /// Locks on keys and the gaps between them, held to the end.
    #[default]
    Range,
    /// Locks on keys, held to the end.
    Key,
    /// A lock on each key while it is read, unless the transaction held one before.
    Short,
    /// No locks.
    None,
}

impl Isolation {
    /// The levels whose plain reads lock or read the newest values, the strictest first: all but
    /// [`Snapshot`](Self::Snapshot).
    pub const LOCKING: [Isolation; 4] = [
        Isolation::Serializable,
        Isolation::RepeatableRead,
        Isolation::ReadCommitted,
        Isolation::ReadUncommitted,
    ];

    /// Returns which locks a read with these options takes, and how long it holds them.
    #[inline]
    pub(crate) fn hold(self, options: LockOptions) -> LockDuration {
        // A read that skips keys cannot keep others out of the gaps between them.
        let skips = options.wait == LockWait::Skip;
        match (self, options.lock) {
            (Isolation::Serializable, _) if !skips => LockDuration::Range,
            (Isolation::ReadCommitted, Lock::Shared) if !skips => LockDuration::Short,
            (Isolation::ReadUncommitted, Lock::Shared) if !skips => LockDuration::None,
            _ => LockDuration::Key,
        }
    }
}
