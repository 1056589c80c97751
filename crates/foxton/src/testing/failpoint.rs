//! Where tests can step in; see [`foxton_sync::failpoint`].

use foxton_sync::failpoint::Failpoint;

/// An insert has looked up its right neighbour and locked the gap, and has not inserted.
pub const INSERTING: Failpoint = Failpoint::passing("txn/inserting");
/// A scan has found its next key, or that there is none, and has not locked it.
pub const SCAN_FOUND: Failpoint = Failpoint::passing("txn/scan found");
/// A scan has locked what it found, and has not checked that it still is what is next.
pub const SCAN_LOCKED: Failpoint = Failpoint::passing("txn/scan locked");
/// A request waits for its lock, and the thread or task is about to.
pub const WAIT_BEGIN: Failpoint = Failpoint::passing("txn/wait begin");
/// A wait is over, however it ended.
pub const WAIT_END: Failpoint = Failpoint::passing("txn/wait end");
/// The record of a commit is in the log's buffer; nobody has waited for it.
pub const LOGGED: Failpoint = Failpoint::passing("txn/logged");
/// A commit has given its locks back early; it is not durable.
pub const RELEASED: Failpoint = Failpoint::passing("txn/released");
/// A commit is as durable as asked, or never will be; unless it let go early, its locks are held.
pub const DURABLE: Failpoint = Failpoint::passing("txn/durable");
/// The changes of a transaction are about to be undone, under its locks.
pub const ROLLBACK: Failpoint = Failpoint::passing("txn/rollback");
/// A ghost's key and gap are locked exclusively; it is about to be removed.
pub const PURGE: Failpoint = Failpoint::passing("txn/purge");

/// An entry of an index has said which row it leads to; that is not locked. Passed only where rows are read by an index, and so
/// not among [`ALL`], which whoever writes passes.
pub const ENTRY_READ: Failpoint = Failpoint::passing("txn/entry read");
/// A transaction that was idle for too long is about to be ended, and is in nobody else's hands. Passed with
/// `Options::idle_timeout` only, by a thread of its own, and so not among [`ALL`].
pub const IDLE: Failpoint = Failpoint::passing("txn/idle");

/// The points that transactions pass which read and write by keys.
pub const ALL: [Failpoint; 10] = [
    INSERTING,
    SCAN_FOUND,
    SCAN_LOCKED,
    WAIT_BEGIN,
    WAIT_END,
    LOGGED,
    RELEASED,
    DURABLE,
    ROLLBACK,
    PURGE,
];

/// Every point that a database passes: its own, the index's and the log's.
pub fn everywhere() -> impl Iterator<Item = Failpoint> {
    let log = foxton_log::failpoint::ALL.into_iter();
    ALL.into_iter()
        .chain(foxton_store::failpoint::ALL)
        .chain(log)
}
