//! Injected faults: steps that a test makes the engine leave out or do wrong, to see whether checks
//! find that.
//!
//! Each fault is a [failpoint](foxton_sync::failpoint). With the feature `hooks`,
//! `Database::failpoints().arm(&FAULT)` makes one database misbehave. Without it no fault can be
//! armed, and every check of a fault is a constant: false.
//!
//! A program that wants to keep its data never arms a fault.

pub use foxton_lock::failpoint::{
    ANCHOR_IGNORED, CONVERTED_IGNORED, GRANT_UNCONFIRMED, GRANTED_TWICE, QUEUE_IGNORED,
};
pub use foxton_store::failpoint::{PAGE_FAULTS, VACATED_EARLY, VERSION_LATE};

use foxton_lock::mode::{GapPart, KeyPart, Mode};
use foxton_sync::failpoint::{Failpoint, Failpoints};

use crate::types::isolation::LockDuration;
use crate::types::lock_options::Lock;

/// A range locks its keys but not the gaps between them.
pub const GAPS_UNLOCKED: Failpoint = Failpoint::fault("txn/gaps unlocked");
/// A range does not lock the gap in which it ends.
pub const BOUND_UNLOCKED: Failpoint = Failpoint::fault("txn/bound unlocked");
/// A read that finds no row releases its lock.
pub const MISS_UNLOCKED: Failpoint = Failpoint::fault("txn/miss unlocked");
/// A shared lock is released once its key has been read.
pub const SHARED_RELEASED: Failpoint = Failpoint::fault("txn/shared released");
/// A shared lock is not requested, so uncommitted values are read.
pub const SHARED_IGNORED: Failpoint = Failpoint::fault("txn/shared ignored");
/// A lock for update is not requested.
pub const UPDATE_IGNORED: Failpoint = Failpoint::fault("txn/update ignored");
/// A range of an index locks its rows and its end, but not the gaps between its entries.
pub const ENTRY_GAP_UNLOCKED: Failpoint = Failpoint::fault("txn/entry gap unlocked");
/// A read by a unique index that finds no row releases its lock.
pub const NAME_MISS_UNLOCKED: Failpoint = Failpoint::fault("txn/name miss unlocked");
/// An index entry that a write removes is not locked.
pub const OLD_ENTRY_UNLOCKED: Failpoint = Failpoint::fault("txn/old entry unlocked");
/// An index entry that a write inserts into a paged tree is not locked.
pub const NEW_ENTRY_UNLOCKED: Failpoint = Failpoint::fault("txn/new entry unlocked");
/// Rolling back to a savepoint does not undo index entries.
pub const ENTRY_KEPT: Failpoint = Failpoint::fault("txn/entry kept");
/// A transaction that has read a key writes it without waiting for other readers.
pub const UPGRADE_IGNORED: Failpoint = Failpoint::fault("txn/upgrade ignored");
/// One cell of the compatibility table is wrong: a writer and a reader of a key are compatible.
pub const WRONG_CELL: Failpoint = Failpoint::fault("txn/wrong cell");
/// An insert does not request the gap it inserts into.
pub const INTENTION_IGNORED: Failpoint = Failpoint::fault("txn/intention ignored");
/// An insert into a range that the transaction has read leaves half of the range unlocked.
pub const HALF_UNLOCKED: Failpoint = Failpoint::fault("txn/half unlocked");
/// A scan does not repeat its lookup once it has its lock.
pub const LOOKUP_NOT_REPEATED: Failpoint = Failpoint::fault("txn/lookup not repeated");
/// A transaction that has overwritten a value reads the old value.
pub const OWN_WRITE_MISSED: Failpoint = Failpoint::fault("txn/own write missed");
/// Locks are released before the changes of a transaction are undone.
pub const UNLOCK_BEFORE_UNDO: Failpoint = Failpoint::fault("txn/unlock before undo");
/// Changes are undone in the order in which they were made.
pub const UNDO_IN_ORDER: Failpoint = Failpoint::fault("txn/undo in order");
/// The first change is not undone.
pub const UNDO_FORGOTTEN: Failpoint = Failpoint::fault("txn/undo forgotten");
/// Locks are released before the record of the commit is in the log.
pub const UNLOCK_BEFORE_LOG: Failpoint = Failpoint::fault("txn/unlock before log");
/// One waiter of 64 is not woken when its lock is granted.
pub const WAKE_UP_LOST: Failpoint = Failpoint::fault("txn/wake-up lost");
/// The anchor of a new record is free, not queued.
pub const BORN_FREE: Failpoint = Failpoint::fault("txn/born free");
/// The lock on a record that is removed stays at its anchor.
pub const ANCHOR_KEPT: Failpoint = Failpoint::fault("txn/anchor kept");

/// A ghost of a paged table is purged without a lock on its key and its gap.
pub const PURGE_UNLOCKED: Failpoint = Failpoint::fault("txn/purge unlocked");

/// A ghost of a paged table is purged without a lock on the gap before it.
pub const PURGE_GAP_UNLOCKED: Failpoint = Failpoint::fault("txn/purge gap unlocked");
/// A commit that releases its locks early leaves no stamp for the rows of paged tables. Only
/// crashes show it, so it is not in [`ALL`].
pub const STAMP_FORGOTTEN: Failpoint = Failpoint::fault("txn/stamp forgotten");

/// A reader at a snapshot takes a version for invisible whose commit LSN is not known yet.
pub const UNRESOLVED_TAKEN_FOR_INVISIBLE: Failpoint =
    Failpoint::fault("txn/unresolved taken for invisible");
/// A reader at a snapshot does not look among the deleted rows.
pub const DELETED_ROWS_MISSED: Failpoint = Failpoint::fault("txn/deleted rows missed");
/// A transaction that reads at a snapshot does not see what it has written.
pub const OWN_VERSION_MISSED: Failpoint = Failpoint::fault("txn/own version missed");
/// A reader of a paged table at a snapshot does not look whether there was a rollback meanwhile.
pub const ROLLBACK_MISSED: Failpoint = Failpoint::fault("txn/rollback missed");
/// A ghost of a paged table is purged, and readers at snapshots do not find its key any more.
pub const PURGE_UNCOPIED: Failpoint = Failpoint::fault("txn/purge uncopied");
/// A large value is freed although a reader at a snapshot may need it.
pub const KEPT_VALUE_FREED: Failpoint = Failpoint::fault("txn/kept value freed");
/// A commit asks for its place in the log before its slot says so.
pub const COMMITTING_LATE: Failpoint = Failpoint::fault("txn/committing late");
/// A commit awaits space in the log while readers at snapshots wait for its place.
pub const SPACE_AWAITED: Failpoint = Failpoint::fault("txn/space awaited");
/// A reader at a snapshot goes past a deletion to the version before it.
pub const TOMBSTONE_SKIPPED: Failpoint = Failpoint::fault("txn/tombstone skipped");
/// A commit releases its locks before it stamps its versions.
pub const STAMPED_LATE: Failpoint = Failpoint::fault("txn/stamped late");
/// A commit does not stamp index entries.
pub const ENTRY_UNSTAMPED: Failpoint = Failpoint::fault("txn/entry unstamped");
/// A commit looks whether there are snapshots before it has its commit LSN.
pub const STAGE_LOADED_EARLY: Failpoint = Failpoint::fault("txn/stage loaded early");
/// A collector looks for snapshots before it raises the watermark.
pub const WATERMARK_LATE: Failpoint = Failpoint::fault("txn/watermark late");
/// A collector takes a version for one that a snapshot exactly at its begin does not need.
pub const BEGIN_EXCLUDED: Failpoint = Failpoint::fault("txn/begin excluded");
/// A snapshot does not look at the watermark again once it is registered.
pub const SECOND_LOOK_SKIPPED: Failpoint = Failpoint::fault("txn/second look skipped");
/// A reader at a snapshot searches the deleted rows first, and then the table.
pub const DELETED_ROWS_FIRST: Failpoint = Failpoint::fault("txn/deleted rows first");
/// A write at a snapshot does not look for a newer version among the deleted rows.
pub const DELETED_UNCHECKED: Failpoint = Failpoint::fault("txn/deleted unchecked");
/// Nothing tells a write at a snapshot of a row that came and went since.
pub const DELETION_FORGOTTEN: Failpoint = Failpoint::fault("txn/deletion forgotten");
/// Versions of a removed record are copied from a walk that was cut short, too.
pub const WALK_KEPT: Failpoint = Failpoint::fault("txn/walk kept");

/// A deleted row stays in its table as a ghost. The data are right; [`ALL`] has no fault that only
/// costs time.
pub const GHOSTS_LEFT: Failpoint = Failpoint::fault("txn/ghosts left");

/// The faults of reads at snapshots, which histories without snapshots do not show.
pub const OF_SNAPSHOTS: [Failpoint; 17] = [
    UNRESOLVED_TAKEN_FOR_INVISIBLE,
    DELETED_ROWS_MISSED,
    OWN_VERSION_MISSED,
    COMMITTING_LATE,
    SPACE_AWAITED,
    TOMBSTONE_SKIPPED,
    STAMPED_LATE,
    ENTRY_UNSTAMPED,
    STAGE_LOADED_EARLY,
    WATERMARK_LATE,
    BEGIN_EXCLUDED,
    SECOND_LOOK_SKIPPED,
    DELETED_ROWS_FIRST,
    DELETED_UNCHECKED,
    DELETION_FORGOTTEN,
    WALK_KEPT,
    VACATED_EARLY,
];

/// All faults that show while a database runs without snapshots.
pub const ALL: [Failpoint; 31] = [
    GAPS_UNLOCKED,
    BOUND_UNLOCKED,
    MISS_UNLOCKED,
    SHARED_RELEASED,
    SHARED_IGNORED,
    UPDATE_IGNORED,
    ENTRY_GAP_UNLOCKED,
    NAME_MISS_UNLOCKED,
    OLD_ENTRY_UNLOCKED,
    NEW_ENTRY_UNLOCKED,
    ENTRY_KEPT,
    UPGRADE_IGNORED,
    WRONG_CELL,
    INTENTION_IGNORED,
    HALF_UNLOCKED,
    LOOKUP_NOT_REPEATED,
    OWN_WRITE_MISSED,
    UNLOCK_BEFORE_UNDO,
    UNDO_IN_ORDER,
    UNDO_FORGOTTEN,
    UNLOCK_BEFORE_LOG,
    WAKE_UP_LOST,
    GRANTED_TWICE,
    ANCHOR_IGNORED,
    QUEUE_IGNORED,
    CONVERTED_IGNORED,
    GRANT_UNCONFIRMED,
    BORN_FREE,
    ANCHOR_KEPT,
    PURGE_UNLOCKED,
    PURGE_GAP_UNLOCKED,
];

/// Returns how long a read holds its locks, where `right` is correct.
#[inline(always)]
pub(crate) fn read_duration(faults: &Failpoints, right: LockDuration, lock: Lock) -> LockDuration {
    if faults.misbehaves(&GAPS_UNLOCKED) && right == LockDuration::Range {
        LockDuration::Key
    } else if faults.misbehaves(&SHARED_RELEASED) && lock == Lock::Shared {
        LockDuration::Short
    } else if faults.misbehaves(&SHARED_IGNORED) && lock == Lock::Shared
        || faults.misbehaves(&UPDATE_IGNORED) && lock == Lock::Update
    {
        LockDuration::None
    } else {
        right
    }
}

/// True if a lock in `mode` is not requested although it should be. `held` returns the mode in
/// which the owner holds the name.
#[inline(always)]
pub(crate) fn skips_lock(
    faults: &Failpoints,
    mode: Mode,
    held: impl FnOnce() -> Option<Mode>,
) -> bool {
    let late = [LOOKUP_NOT_REPEATED, GRANT_UNCONFIRMED, ANCHOR_KEPT];
    if faults.misbehaves_anywhere() && late.iter().any(|fault| faults.misbehaves(fault)) {
        // Otherwise there would be only a few instructions between the lookup and the lock.
        std::thread::yield_now();
    }
    let gap = |part| mode == Mode::key(KeyPart::None, part);
    faults.misbehaves(&BOUND_UNLOCKED) && gap(GapPart::S)
        || faults.misbehaves(&INTENTION_IGNORED) && gap(GapPart::InsertIntention)
        || faults.misbehaves(&UPGRADE_IGNORED)
            && mode.key_part() == KeyPart::X
            && held().is_some_and(|held| held.key_part() == KeyPart::S)
}

/// Returns the mode in which a key is locked for a write, where `right` is correct.
#[inline(always)]
pub(crate) fn write_mode(faults: &Failpoints, right: Mode) -> Mode {
    match faults.misbehaves(&WRONG_CELL) {
        true => Mode::key(KeyPart::U, GapPart::None),
        false => right,
    }
}

/// Returns the mode in which the key and the gap of a ghost are locked to purge it, where `right`
/// is correct.
#[inline(always)]
pub(crate) fn purge_mode(faults: &Failpoints, right: Mode) -> Mode {
    match faults.misbehaves(&PURGE_GAP_UNLOCKED) {
        true => Mode::key(right.key_part(), GapPart::None),
        false => right,
    }
}
