//! Failpoints of transactions; see [`foxton_sync::failpoint`].

pub use foxton_store::failpoint::VERSION_MISSING;

use foxton_sync::failpoint::Failpoint;

/// An insert has looked up its right neighbour and locked the gap, and has not inserted.
pub const INSERTING: Failpoint = Failpoint::passing("txn/inserting");
/// A scan has found its next key, or found none, and has not locked it.
pub const SCAN_FOUND: Failpoint = Failpoint::passing("txn/scan found");
/// A scan has locked the key, and has not checked that it is still the next one.
pub const SCAN_LOCKED: Failpoint = Failpoint::passing("txn/scan locked");
/// A request waits for its lock, and its thread or task is about to wait.
pub const WAIT_BEGIN: Failpoint = Failpoint::passing("txn/wait begin");
/// A wait has ended, with whatever result.
pub const WAIT_END: Failpoint = Failpoint::passing("txn/wait end");
/// The record of a commit is in the log's buffer, and the commit has not waited for it.
pub const LOGGED: Failpoint = Failpoint::passing("txn/logged");
/// A commit has released its locks early; it is not durable.
pub const RELEASED: Failpoint = Failpoint::passing("txn/released");
/// A commit is as durable as required, or never will be. Unless it released early, it holds its
/// locks.
pub const DURABLE: Failpoint = Failpoint::passing("txn/durable");
/// The changes of a transaction are about to be undone, under its locks.
pub const ROLLBACK: Failpoint = Failpoint::passing("txn/rollback");
/// A ghost's key and gap are locked exclusively; it is about to be removed.
pub const PURGE: Failpoint = Failpoint::passing("txn/purge");

/// A reader has found a row's key in an index entry, and has not locked the row. Reached only by
/// reads through an index, so not in [`ALL`], which every writer reaches.
pub const ENTRY_READ: Failpoint = Failpoint::passing("txn/entry read");
/// A commit has its place in the log, and readers at snapshots do not know it yet. It may be passed
/// under a latch of the log, so it is not in [`ALL`].
pub const PLACED: Failpoint = Failpoint::passing("txn/placed");
/// A reader of a paged table at a snapshot has read the page, and not looked for versions of the
/// row. Reached only at snapshots, so not in [`ALL`].
pub const PAGE_READ: Failpoint = Failpoint::passing("txn/page read");
/// A commit is about to ask for its place in the log. Reached only by those that have versions, so
/// not in [`ALL`].
pub const COMMITTING: Failpoint = Failpoint::passing("txn/committing");
/// A snapshot has its position, and has not registered it.
pub const REGISTERING: Failpoint = Failpoint::passing("txn/registering");
/// A collector of versions has raised the watermark, and has not looked for snapshots.
pub const COLLECTING: Failpoint = Failpoint::passing("txn/collecting");
/// A reader at a snapshot has searched a table, and not yet its deleted rows.
pub const SEARCHED_ONCE: Failpoint = Failpoint::passing("txn/searched once");
/// A thread that removes a record has met one of its versions, and looks for the one before it.
pub const COPYING: Failpoint = Failpoint::passing("txn/copying");
/// A transaction that was idle for too long is about to be ended, and its program is not using it.
/// Reached only with `Options::idle_timeout`, on a thread of its own, so not in [`ALL`].
pub const IDLE: Failpoint = Failpoint::passing("txn/idle");

/// The failpoints that transactions reach which read and write by keys.
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

/// Returns every failpoint that a database reaches: its own, the index's and the log's.
pub fn everywhere() -> impl Iterator<Item = Failpoint> {
    let log = foxton_log::failpoint::ALL.into_iter();
    ALL.into_iter()
        .chain(foxton_store::failpoint::ALL)
        .chain(log)
}
