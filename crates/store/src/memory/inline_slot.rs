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
const LEFT: u32 = 1;

/// Bits of an epoch that the word has.
const CUT: u32 = u32::MAX >> 1;

/// Epochs after which nobody can be reading.
const PASSED: u32 = 2;

/// See the [module](self).
pub(super) struct Room(AtomicU32);

/// How the room was left, by whoever took its value out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left(u32);

impl Room {
    pub(super) fn in_use() -> Self {
        Self(AtomicU32::new(IN_USE))
    }

    /// Notes that the value was taken out. For whoever did so, and still has the room.
    #[inline]
    pub(super) fn leave(&self, participant: &Participant) -> Left {
        let epoch = participant.stamp().epoch() as u32; // Cut on purpose.
        let left = epoch << 1 | LEFT;
        self.0.store(left, Ordering::Release); // O3, O4, I7
        Left(left)
    }

    /// Whether it is as it was left: nobody has used it since.
    pub(super) fn is_as(&self, left: Left) -> bool {
        // Relaxed: a hint; the exchange decides.
        self.0.load(Ordering::Relaxed) == left.0
    }

    /// Takes the room to have it lead to the value that was left there. Says whether that is still there.
    pub(super) fn take_back(&self, left: Left) -> bool {
        // Site: "record value".
        let taken = self.0.compare_exchange(
            left.0,
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
        let left = self.0.load(Ordering::Acquire); // O3
        if left == IN_USE {
            return false;
        }
        if !may_claim(left >> 1, participant.recent_stamp(), kept_since) {
            return false;
        }
        // Site: "record value".
        let taken = self.0.compare_exchange(
            left,
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

/// Whether what was taken out at an epoch of which the last bits are `left` may be overwritten at `now` by somebody who keeps what was
/// there at `kept_since`.
#[inline]
fn may_claim(left: u32, now: Stamp, kept_since: Stamp) -> bool {
    let age = (now.epoch() as u32).wrapping_sub(left) & CUT; // Cut on purpose.
    let kept = now.epoch().saturating_sub(kept_since.epoch());
    age >= PASSED && u64::from(age) > kept
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Of what was taken out at `left` whoever keeps what was there at `kept_since` may overwrite it at `now`.
    fn may(left: u64, now: u64, kept_since: u64) -> bool {
        let cut = (left as u32) << 1 >> 1;
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
    fn what_is_two_epochs_old_may_be_overwritten() {
        for left in epochs() {
            let claims: Vec<bool> = (0..5)
                .map(|age| may(left, left + age, left + age))
                .collect();
            assert_eq!(claims, [false, false, true, true, true], "left at {left}");
        }
    }

    #[test]
    fn nothing_is_overwritten_that_is_younger_or_kept() {
        for left in epochs() {
            for now in epochs().filter(|&now| now >= left) {
                for kept_since in epochs().filter(|&kept_since| kept_since <= now) {
                    let safe = now - left >= 2 && left < kept_since;
                    assert!(
                        safe || !may(left, now, kept_since),
                        "left at {left}, now {now}, kept since {kept_since}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_room_is_had_by_one() {
        let domain = foxton_sync::epoch::Domain::new();
        let participant = domain.participant();
        let room = Room::in_use();
        assert!(!room.claim(&participant, participant.recent_stamp()));
        let left = room.leave(&participant);
        assert!(
            !room.claim(&participant, participant.recent_stamp()),
            "too young"
        );
        assert!(room.is_as(left) && room.take_back(left));
        assert!(!room.is_as(left) && !room.take_back(left), "it is in use");
        let left = room.leave(&participant);
        (0..2).for_each(|_| participant.advance());
        assert!(
            !room.claim(&participant, Stamp::from_epoch(0)),
            "it is kept"
        );
        assert!(room.claim(&participant, participant.recent_stamp()));
        assert!(
            !room.claim(&participant, participant.recent_stamp()),
            "it is in use"
        );
        assert!(!room.take_back(left), "and was written");
    }
}

#[cfg(all(test, loom))]
mod models;
