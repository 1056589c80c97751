//! Faults on purpose, to see whether those who look for faults find them.
//!
//! With the feature `planted`, `Options::planted` makes one database misbehave in one way.
//! Without it there is no such option, what carries the choice is empty, and each question whether
//! something is to be done wrong is answered when it is compiled: no.
//!
//! A program that means to keep its data never turns this on.

use foxton_lock::any;
use foxton_lock::mode::{GapPart, KeyPart, Mode};

use crate::types::isolation::LockDuration;
use crate::types::lock_options::Lock;

/// The fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(
    not(feature = "planted"),
    expect(
        unreachable_pub,
        reason = "out of sight, it is asked for and never had"
    )
)]
pub enum Fault {
    /// A range locks its keys and not the gaps between them.
    GapsUnlocked,
    /// A range does not lock the gap in which it ends.
    BoundUnlocked,
    /// A read that finds nothing gives its lock back.
    MissUnlocked,
    /// A shared lock goes once its key has been read.
    SharedReleased,
    /// A shared lock is not asked for: what is not committed is read.
    SharedIgnored,
    /// A lock for update is not asked for.
    UpdateIgnored,
    /// A range of an index locks its rows and its end, and not the gaps between its entries.
    EntryGapUnlocked,
    /// A read that finds no row by a unique index gives its lock back.
    NameMissUnlocked,
    /// The entry that a row is no longer to be found by is not locked.
    OldEntryUnlocked,
    /// A rollback to a savepoint leaves index entries as they are.
    EntryKept,
    /// A reader of a key writes it without waiting for other readers.
    UpgradeUnasked,
    /// A cell of the compatibility table is wrong: readers and writers of a key do not conflict.
    WrongCell,
    /// An insert does not ask for the gap it comes into.
    IntentionIgnored,
    /// An insert into a range that the transaction has read leaves half of that open.
    HalfUnlocked,
    /// A scan does not look again once it has its lock.
    LookedOnce,
    /// A transaction that wrote over a value reads the value.
    OwnMissed,
    /// Locks go before the changes of a transaction are undone.
    UnlockBeforeUndo,
    /// Changes are undone in the order in which they were made.
    UndoInOrder,
    /// The first change is not undone.
    UndoForgotten,
    /// Locks go before the record of the commit is in the log.
    UnlockBeforeLog,
    /// One waiter of 64 is not told that it has its lock.
    WakeUpLost,
    /// A revocable grant to a sleeping waiter (`direct`) goes to a barger even after it was seen.
    LentTwice,
}

foxton_sync::named_enum! {
    Fault, "planted fault":
    GapsUnlocked = "gaps-unlocked",
    BoundUnlocked = "bound-unlocked",
    MissUnlocked = "miss-unlocked",
    SharedReleased = "shared-released",
    SharedIgnored = "shared-ignored",
    UpdateIgnored = "update-ignored",
    EntryGapUnlocked = "entry-gap-unlocked",
    NameMissUnlocked = "name-miss-unlocked",
    OldEntryUnlocked = "old-entry-unlocked",
    EntryKept = "entry-kept",
    UpgradeUnasked = "upgrade-unasked",
    WrongCell = "wrong-cell",
    IntentionIgnored = "intention-ignored",
    HalfUnlocked = "half-unlocked",
    LookedOnce = "looked-once",
    OwnMissed = "own-missed",
    UnlockBeforeUndo = "unlock-before-undo",
    UndoInOrder = "undo-in-order",
    UndoForgotten = "undo-forgotten",
    UnlockBeforeLog = "unlock-before-log",
    WakeUpLost = "wake-up-lost",
    LentTwice = "lent-twice",
}

/// Which fault there is to be, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Planted(#[cfg(feature = "planted")] pub(crate) Option<Fault>);

// Off, it takes no room in whoever carries it.
#[cfg(not(feature = "planted"))]
const _: () = assert!(size_of::<Planted>() == 0);

impl Planted {
    /// Whether `fault` is to be done.
    #[inline(always)]
    #[cfg_attr(not(feature = "planted"), expect(unused_variables, reason = "none is"))]
    pub(crate) fn is(self, fault: Fault) -> bool {
        #[cfg(feature = "planted")]
        return self.0 == Some(fault);
        #[cfg(not(feature = "planted"))]
        false
    }

    /// Whether there is any.
    #[inline(always)]
    pub(crate) fn is_any(self) -> bool {
        self != Planted::default()
    }

    /// Has the lock manager do wrong what is its part.
    #[cfg_attr(not(feature = "planted"), expect(unused_variables, reason = "none is"))]
    pub(crate) fn plant_in_locks(self, options: &mut any::Options) {
        #[cfg(feature = "planted")]
        {
            options.barge_after_seen = self.is(Fault::LentTwice);
        }
    }

    /// Returns how long a read holds its locks, instead of `right`.
    #[inline(always)]
    pub(crate) fn hold(self, right: LockDuration, lock: Lock) -> LockDuration {
        if self.is(Fault::GapsUnlocked) && right == LockDuration::Range {
            LockDuration::Key
        } else if self.is(Fault::SharedReleased) && lock == Lock::Shared {
            LockDuration::Short
        } else if self.is(Fault::SharedIgnored) && lock == Lock::Shared
            || self.is(Fault::UpdateIgnored) && lock == Lock::Update
        {
            LockDuration::None
        } else {
            right
        }
    }

    /// Whether a lock is not asked for that should be, by one who holds its name as `held`.
    #[inline(always)]
    pub(crate) fn spares(self, mode: Mode, held: impl FnOnce() -> Option<Mode>) -> bool {
        if self.is(Fault::LookedOnce) {
            // Between the check and the lock there are only a few instructions otherwise.
            std::thread::yield_now();
        }
        let gap = |part| mode == Mode::key(KeyPart::None, part);
        self.is(Fault::BoundUnlocked) && gap(GapPart::S)
            || self.is(Fault::IntentionIgnored) && gap(GapPart::InsertIntention)
            || self.is(Fault::UpgradeUnasked)
                && mode.key_part() == KeyPart::X
                && held().is_some_and(|held| held.key_part() == KeyPart::S)
    }

    /// The mode in which a key is written that should be X.
    #[inline(always)]
    pub(crate) fn writes(self, right: Mode) -> Mode {
        match self.is(Fault::WrongCell) {
            true => Mode::key(KeyPart::U, GapPart::None),
            false => right,
        }
    }
}
