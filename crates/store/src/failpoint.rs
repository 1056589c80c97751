//! Failpoints of the index and of pages; see [`foxton_sync::failpoint`].

use foxton_sync::failpoint::Failpoint;

/// The leaf of a new record was found, and is not yet latched.
pub const INSERT: Failpoint = Failpoint::passing("index/insert");
/// The leaf of a record to be removed was found, and is not yet latched.
pub const REMOVE: Failpoint = Failpoint::passing("index/remove");
/// A leaf is full and about to be split.
pub const SPLIT: Failpoint = Failpoint::passing("index/split");
/// A leaf was left empty and is about to be taken out.
pub const SHRINK: Failpoint = Failpoint::passing("index/shrink");

/// All points of the index.
pub const ALL: [Failpoint; 4] = [INSERT, REMOVE, SPLIT, SHRINK];

/// A batch of pages is written in their places, and the page file is not synced yet.
pub const PAGES_WRITTEN: Failpoint = Failpoint::passing("pages/written");

/// A frame is marked clean although its page has changed since it was copied.
pub const CLEAN_UNCOMPARED: Failpoint = Failpoint::fault("pages/clean uncompared");
/// A slot of the doublewrite buffer is written again before the page file is synced.
pub const SLOT_REUSED: Failpoint = Failpoint::fault("pages/slot reused");
/// Redo of a formatting record reads the old page.
pub const FORMAT_READS: Failpoint = Failpoint::fault("pages/format reads");
/// The allocation of a structure modification is a record of its own.
pub const ALLOCATION_APART: Failpoint = Failpoint::fault("pages/allocation apart");
/// A commit ignores its tail.
pub const TAIL_IGNORED: Failpoint = Failpoint::fault("pages/tail ignored");
/// A child hint is used without a look at the page in the frame.
pub const HINT_TRUSTED: Failpoint = Failpoint::fault("pages/hint trusted");

/// A page is written before the log is durable up to its LSN.
pub const PAGE_BEFORE_LOG: Failpoint = Failpoint::fault("pages/page before log");
/// A page counts as clean once it is written, and the page file is not synced.
pub const CLEAN_UNSYNCED: Failpoint = Failpoint::fault("pages/clean unsynced");
/// Redo takes every page for one without an LSN.
pub const LSN_IGNORED: Failpoint = Failpoint::fault("pages/lsn ignored");
/// Undone changes are not logged.
pub const COMPENSATION_UNLOGGED: Failpoint = Failpoint::fault("pages/compensation unlogged");
/// A compensation says to continue with the change that was just undone.
pub const UNDO_NEXT_WRONG: Failpoint = Failpoint::fault("pages/undo next wrong");
/// Restart takes a transaction without a commit for a committed one.
pub const LOSER_WINS: Failpoint = Failpoint::fault("pages/loser wins");
/// A split gives away the reserved bytes of rows, which an open transaction may need for its undo.
pub const RESERVE_GIVEN_AWAY: Failpoint = Failpoint::fault("pages/reserve given away");

/// A row's new value is written over one that readers at snapshots may still read.
pub const VACATED_EARLY: Failpoint = Failpoint::fault("memory/vacated early");

/// A page has the new state of a row before the old one is recorded, so readers at snapshots may
/// find neither right. Only they show it, so it is not in [`PAGE_FAULTS`].
pub const VERSION_LATE: Failpoint = Failpoint::fault("pages/version late");
/// With [`VERSION_LATE`]: a page has the new state of a row, and the old one is not recorded yet.
pub const VERSION_MISSING: Failpoint = Failpoint::passing("pages/version missing");

/// The faults of pages.
pub const PAGE_FAULTS: [Failpoint; 13] = [
    PAGE_BEFORE_LOG,
    CLEAN_UNSYNCED,
    LSN_IGNORED,
    COMPENSATION_UNLOGGED,
    UNDO_NEXT_WRONG,
    LOSER_WINS,
    RESERVE_GIVEN_AWAY,
    CLEAN_UNCOMPARED,
    SLOT_REUSED,
    FORMAT_READS,
    ALLOCATION_APART,
    TAIL_IGNORED,
    HINT_TRUSTED,
];
