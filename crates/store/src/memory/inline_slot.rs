//! Inline slot: the space behind a record's key for its value.
//!
//! A record that is made with a value has it behind its key. A value is never changed, because a
//! thread may be reading it; so the next value is made elsewhere, and the slot is vacant. If it
//! stayed vacant, every row that was ever updated would be two places in memory to fetch, and every
//! update would allocate and free a block. So a later update writes into the slot again, if by then
//! no thread can be reading there any more. Of rows that are updated now and then, half have their
//! value behind their key.
//!
//! # State
//!
//! One word: 0 while the slot is in use. Otherwise it has the epoch at which its value was taken
//! out, cut to 30 bits, and whether the slot is *vacant* or *kept*. A kept value may still be read
//! at a snapshot, by a version that leads to it (`version.rs`); it is not overwritten.
//!
//! # Invariants
//!
//! * I6  While the word is 0 the slot has an owner. That is the record whose pointer leads there,
//!   or a thread that is about to make it lead there, or that has just taken its value out. While
//!   the word is not 0 the record's pointer does not lead there; while it is vacant, no version
//!   does that a reader may follow.
//! * I7  The thread that took the value out stores the word that is not 0. The word becomes 0, or
//!   vacant after kept, by an exchange, in which one of all that try succeeds.
//! * I8  Only a claimer writes the slot, and a claim requires that two epochs have passed since it
//!   became vacant, or since no reader finds its kept value any more. Until a claim, that value
//!   stays as it was and can be restored.
//!
//! # Why no thread reads what is written
//!
//! A reader of a value in the slot borrows the record, and so is pinned since before it found the
//! pointer (I2 of `record.rs`), for as long as it reads. Taking the value out, a fence, and reading
//! the epoch e (`Participant::stamp`) correspond to retiring it, and claiming at e + 2 corresponds
//! to freeing it (I3 and I4 of `foxton_sync::epoch`). By the argument there all that found it are
//! gone.
//!
//! *A kept value* is found by the pointer of a version, not of the record. A reader follows it
//! only if the generation of that version's writer is still running, after it has pinned. The
//! thread that makes the slot vacant has seen the end of that generation. So the same argument
//! holds, with the generation in the place of the pointer. A claimer takes a kept slot at once if
//! that generation is known to have ended two epochs ago (`version.rs`, I5). There the writer
//! itself has stored the next generation, passed a fence, and read the epoch. Versions that are
//! stamped are unlinked by a collector before it makes the slot vacant.
//!
//! *The epoch is cut.* The word has 30 bits of the epoch. The age of a value taken out at e, seen
//! at epoch n, is n - e, never less than 0 (O3). Cut to 30 bits it is that or less, so a value that
//! looks two epochs old is two epochs old or more. A slot whose age is a little more than a
//! multiple of a thousand million looks too young for a moment, and is left alone.
//!
//! *Two claims of the same word.* Between reading the word and the exchange, the value may have
//! been restored and taken out anew, at an epoch that looks the same. The thread that took it out
//! is pinned meanwhile. If the claimer saw epoch e + 2, that pin began at e + 1 or later, so the
//! recorded epoch is another than e.
//!
//! # Why a value that may be restored is not lost
//!
//! A transaction that replaced a value may restore it. If rows are locked, no other writes the row
//! until it has ended; it may itself, and by then the epochs have passed. So a claimer gives the
//! epoch since when it keeps what it replaces, an epoch before its first change: a value taken out
//! then or later is not claimed. Its own values were taken out later, and their age is not more
//! than what has passed since that first epoch. If that is more than 30 bits hold, no age is above
//! it, and nothing is claimed. Without locks a value can be lost so, and restoring it fails; memory
//! is safe all the same (I8).
//!
//! # Orderings
//!
//! * O3  `vacate` (Release) to the load in `claim` (Acquire): a thread that sees a recorded epoch
//!   sees no older one itself, and so no age below 0. The fence in `Participant::stamp` comes
//!   before the epoch is read, so the store needs its own order. To the checker the fence would do,
//!   and no model shows the difference.
//! * O4  the exchanges in `claim` and `restore` (Acquire), to `vacate` (Release): the new owner of
//!   the slot comes after all that was done in it.

use foxton_sync::epoch::{Participant, Stamp};
use foxton_sync::shim::{AtomicU32, Ordering};

const IN_USE: u32 = 0;
const VACATED: u32 = 1;
/// Beside `VACATED`: the value may still be read.
const KEPT: u32 = 2;
const EPOCH_SHIFT: u32 = 2;

/// Bits of an epoch that the word has.
const EPOCH_MASK: u32 = u32::MAX >> EPOCH_SHIFT;

/// Number of epochs after which no thread can be reading.
const SAFE_AGE: u32 = 2;

/// See the [module](self).
pub(super) struct InlineSlot(AtomicU32);

/// The word of a vacated slot, as stored by the thread that took its value out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VacateStamp(u32);

impl InlineSlot {
    pub(super) fn in_use() -> Self {
        Self(AtomicU32::new(IN_USE))
    }

    /// Records that the value was taken out. For the thread that did so, and still owns the slot.
    #[inline]
    pub(super) fn vacate(&self, participant: &Participant) -> VacateStamp {
        let vacated = vacated_now(participant);
        self.0.store(vacated, Ordering::Release); // O3, O4, I7
        VacateStamp(vacated)
    }

    /// As [`vacate`](Self::vacate), for a value that may be read at a snapshot.
    #[inline]
    pub(super) fn keep(&self, participant: &Participant) -> VacateStamp {
        let epoch = participant.recent_stamp().epoch() as u32; // Cut on purpose.
        let kept = epoch << EPOCH_SHIFT | KEPT | VACATED;
        self.0.store(kept, Ordering::Release); // O4, I7
        VacateStamp(kept)
    }

    /// Returns the word, if the slot has a kept value.
    #[inline]
    pub(super) fn kept(&self) -> Option<VacateStamp> {
        let word = self.0.load(Ordering::Acquire); // O4
        (word & KEPT != 0).then_some(VacateStamp(word))
    }

    /// Makes a slot vacant whose kept value no reader finds any more. It does nothing if that value
    /// was restored meanwhile.
    #[cold]
    pub(super) fn give_up(&self, kept: VacateStamp, participant: &Participant) {
        let vacated = vacated_now(participant);
        // Site: "record value".
        let _ = self.0.compare_exchange(
            kept.0,
            vacated,
            Ordering::AcqRel, // O3, O4, I7
            Ordering::Relaxed,
        );
    }

    /// True if it is as it was vacated: no thread has used it since.
    pub(super) fn is_as_left(&self, vacated: VacateStamp) -> bool {
        // Relaxed: a hint; the exchange decides.
        self.0.load(Ordering::Relaxed) == vacated.0
    }

    /// Takes the slot for the value that was left there. Returns whether that is still there.
    pub(super) fn restore(&self, vacated: VacateStamp) -> bool {
        // Site: "record value".
        let taken = self.0.compare_exchange(
            vacated.0,
            IN_USE,
            Ordering::Acquire, // O4, I7
            Ordering::Relaxed,
        );
        taken.is_ok()
    }

    /// Takes the slot to write into it. Returns whether it may be written: it is vacant, no thread
    /// can be reading the value left there, and that was taken out before `kept_since`.
    #[inline]
    pub(super) fn claim(&self, participant: &Participant, kept_since: Stamp) -> bool {
        let vacated = self.0.load(Ordering::Acquire); // O3
        if vacated == IN_USE || vacated & KEPT != 0 {
            return false;
        }
        if !may_claim(
            vacated >> EPOCH_SHIFT,
            participant.recent_stamp(),
            kept_since,
        ) {
            return false;
        }
        // Site: "record value".
        let taken = self.0.compare_exchange(
            vacated,
            IN_USE,
            Ordering::Acquire, // O4, I7
            Ordering::Relaxed,
        );
        taken.is_ok()
    }

    /// True if it has an owner.
    pub(super) fn is_in_use(&self) -> bool {
        // Relaxed: for callers without concurrent writers.
        self.0.load(Ordering::Relaxed) == IN_USE
    }
}

/// Returns the word of a slot that becomes vacant now.
#[inline]
fn vacated_now(participant: &Participant) -> u32 {
    let epoch = participant.stamp().epoch() as u32; // Cut on purpose.
    epoch << EPOCH_SHIFT | VACATED
}

/// True if a value taken out at an epoch with the last bits `left` may be overwritten at `now` by a
/// thread that keeps the values since `kept_since`.
#[inline]
fn may_claim(vacated: u32, now: Stamp, kept_since: Stamp) -> bool {
    let age = (now.epoch() as u32).wrapping_sub(vacated) & EPOCH_MASK; // Cut on purpose.
    let kept = now.epoch().saturating_sub(kept_since.epoch());
    age >= SAFE_AGE && u64::from(age) > kept
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// True if a value taken out at `left` may be overwritten at `now` by a thread that keeps the
    /// values since `kept_since`.
    fn may(vacated: u64, now: u64, kept_since: u64) -> bool {
        let cut = vacated as u32 & EPOCH_MASK;
        may_claim(cut, Stamp::from_epoch(now), Stamp::from_epoch(kept_since))
    }

    /// Epochs around every place where bits are carried.
    fn epochs() -> impl Iterator<Item = u64> {
        let edges = [0, 1_u64 << 29, 1 << 30, 1 << 32, 3 << 30, 1 << 33, 1 << 40];
        edges.into_iter().flat_map(|edge| {
            let least = edge.saturating_sub(4);
            least..=edge + 4
        })
    }

    #[test]
    fn a_value_two_epochs_old_may_be_overwritten() {
        for vacated in epochs() {
            let claims: Vec<bool> = (0..5)
                .map(|age| may(vacated, vacated + age, vacated + age))
                .collect();
            assert_eq!(
                claims,
                [false, false, true, true, true],
                "left at {vacated}"
            );
        }
    }

    #[test]
    fn no_younger_or_kept_value_is_overwritten() {
        for vacated in epochs() {
            for now in epochs().filter(|&now| now >= vacated) {
                for kept_since in epochs().filter(|&kept_since| kept_since <= now) {
                    let safe = now - vacated >= 2 && vacated < kept_since;
                    assert!(
                        safe || !may(vacated, now, kept_since),
                        "left at {vacated}, now {now}, kept since {kept_since}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_slot_has_one_owner() {
        let domain = foxton_sync::epoch::Domain::new();
        let participant = domain.participant();
        let slot = InlineSlot::in_use();
        assert!(!slot.claim(&participant, participant.recent_stamp()));
        let vacated = slot.vacate(&participant);
        assert!(
            !slot.claim(&participant, participant.recent_stamp()),
            "too young"
        );
        assert!(slot.is_as_left(vacated) && slot.restore(vacated));
        assert!(
            !slot.is_as_left(vacated) && !slot.restore(vacated),
            "it is in use"
        );
        let vacated = slot.vacate(&participant);
        (0..2).for_each(|_| participant.advance());
        assert!(
            !slot.claim(&participant, Stamp::from_epoch(0)),
            "it is kept"
        );
        assert!(slot.claim(&participant, participant.recent_stamp()));
        assert!(
            !slot.claim(&participant, participant.recent_stamp()),
            "it is in use"
        );
        assert!(!slot.restore(vacated), "and was written");
    }
}

#[cfg(all(test, loom))]
mod models;
