//! The room behind a record's key: who may put a value there.
//!
//! A record that is made with a value has that behind its key. A value is never changed, since somebody may be reading it; so the next
//! one is made elsewhere, and the room is empty. It was left empty for good once, and then every row that had
//! ever been updated was two places in memory to fetch, and every update a block to be found and freed. Now the next update but one goes
//! back into the room, if by then nobody can be reading there any more: of rows that are updated now and then, a
//! half has its value behind its key.
//!
//! # State
//!
//! One word: 0 while the room is in use, else twice the epoch at which its value was taken out, and one, cut to 32 bits.
//!
//! # Invariants
//!
//! * I6  While the word is 0 the room belongs to somebody: to the record whose pointer leads there, or to a thread that is about
//!   to make it lead there, or that has just taken it out. While it is not 0 nothing leads there.
//! * I7  The word leaves 0 by a store of whoever took the value out, and comes back to it by an exchange, which one of all that try succeeds in.
//! * I8  The room is written by whoever claimed it, which wants two epochs to have passed since its value was taken out; until somebody
//!   claims it, that value stays as it was and can be put back.
//!
//! # Why nobody reads what is written
//!
//! Who reads a value in the room borrows the record, and so is pinned since before it found the pointer (I2 of `record.rs`), for as long as it
//! reads. Taking the value out, a fence, and reading the epoch e (`Participant::stamp`) is what retiring it would be, and claiming at e + 2 is
//! what freeing it would be (I3 and I4 of `foxton_sync::epoch`): by the argument there all who found it are gone.
//!
//! *The epoch is cut.* Of epochs the word has 31 bits. The age of what was taken out at e, seen at epoch n, is n - e, never less than
//! 0 (O3). Cut to 31 bits it is that or less, so what looks two epochs old is two epochs old or more. Room whose age is a little more than a multiple of two
//! thousand million looks too young for a moment, and is left alone.
//!
//! *Two claims of the same word.* Between the look at the word and the exchange, the value may have been put back and taken out anew, at an
//! epoch that looks the same. Whoever took it out is pinned meanwhile. If the claimer saw epoch e + 2, that pin began at e + 1 or later, so what is noted is
//! another epoch than e.
//!
//! # Why a value that is to be put back is not lost
//!
//! A transaction that replaced a value may want it back. Nobody else writes the row until it has ended, if rows are locked; it may itself,
//! and by then the epochs have passed. So whoever claims says since when it keeps what it replaces, an epoch
//! of before its first change: what was taken out then or later is not claimed. (Its own were, and their age is not more than what has passed since that first
//! epoch. If that is more than 31 bits hold, no age is above it, and nothing is claimed.) Without locks a value can be lost so, and putting it
//! back fails; memory is safe all the same (I8).
//!
//! # Orderings
//!
//! * O3  `leave` (Release) to the look in `claim` (Acquire): whoever sees an epoch noted sees no older one itself, and so no age below 0.
//!   The fence in `Participant::stamp` comes before the epoch is read, so the store needs its own order; to the checker
//!   the fence would do, and no model shows the difference.
//! * O4  the exchanges in `claim` and `take_back` (Acquire), to `leave` (Release): who has the room comes after all that was done in it.

use foxton_sync::epoch::{Participant, Stamp};
use foxton_sync::shim::{AtomicU32, Ordering};

const IN_USE: u32 = 0;
const VACATED: u32 = 1;

/// Bits of an epoch that the word has.
const EPOCH_MASK: u32 = u32::MAX >> 1;

/// Epochs after which nobody can be reading.
const SAFE_AGE: u32 = 2;

/// See the [module](self).
pub(super) struct InlineSlot(AtomicU32);

/// How the room was left, by whoever took its value out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VacateStamp(u32);

impl InlineSlot {
    pub(super) fn in_use() -> Self {
        Self(AtomicU32::new(IN_USE))
    }

    /// Notes that the value was taken out. For whoever did so, and still has the room.
    #[inline]
    pub(super) fn vacate(&self, participant: &Participant) -> VacateStamp {
        let epoch = participant.stamp().epoch() as u32; // Cut on purpose.
        let vacated = epoch << 1 | VACATED;
        self.0.store(vacated, Ordering::Release); // O3, O4, I7
        VacateStamp(vacated)
    }

    /// Whether it is as it was left: nobody has used it since.
    pub(super) fn is_as_left(&self, vacated: VacateStamp) -> bool {
        // Relaxed: a hint; the exchange decides.
        self.0.load(Ordering::Relaxed) == vacated.0
    }

    /// Takes the room to have it lead to the value that was left there. Says whether that is still there.
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

    /// Takes the room to write into it. Says whether it may be written: nobody has it, nobody can be reading what was
    /// left there, and that was left before `kept_since`.
    #[inline]
    pub(super) fn claim(&self, participant: &Participant, kept_since: Stamp) -> bool {
        let vacated = self.0.load(Ordering::Acquire); // O3
        if vacated == IN_USE {
            return false;
        }
        if !may_claim(vacated >> 1, participant.recent_stamp(), kept_since) {
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

    /// Whether somebody has it.
    pub(super) fn is_in_use(&self) -> bool {
        // Relaxed: for when nobody else is here.
        self.0.load(Ordering::Relaxed) == IN_USE
    }
}

/// Whether what was taken out at an epoch of which the last bits are `vacated` may be overwritten at `now` by somebody who keeps what was
/// there at `kept_since`.
#[inline]
fn may_claim(vacated: u32, now: Stamp, kept_since: Stamp) -> bool {
    let age = (now.epoch() as u32).wrapping_sub(vacated) & EPOCH_MASK; // Cut on purpose.
    let kept = now.epoch().saturating_sub(kept_since.epoch());
    age >= SAFE_AGE && u64::from(age) > kept
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Of what was taken out at `vacated` whoever keeps what was there at `kept_since` may overwrite it at `now`.
    fn may(vacated: u64, now: u64, kept_since: u64) -> bool {
        let cut = (vacated as u32) << 1 >> 1;
        may_claim(cut, Stamp::from_epoch(now), Stamp::from_epoch(kept_since))
    }

    /// Epochs about every place where bits are carried.
    fn epochs() -> impl Iterator<Item = u64> {
        let edges = [0, 1_u64 << 30, 1 << 31, 1 << 32, 3 << 31, 1 << 33, 1 << 40];
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
