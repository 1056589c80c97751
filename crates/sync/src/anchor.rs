//! Anchors: one word beside the data, for the lock that is on it.
//!
//! A lock manager for data that stays where it is needs no hash table to find a lock: the record
//! has a word for it (Gottemukkala and Lehman, direct addressing). Here is the word, with the
//! changes that keep it and the memory under it safe. The protocol of a lock manager decides when
//! each change happens.
//!
//! # State
//!
//! ```text
//! bits   31 .. 8        7 .. 0
//!        0              0         free: nothing is locked
//!        owner          mode      held by one owner
//!        1              0         queued: the locks are in a queue, found by name
//!        2              0         inflated: as queued, and the owner that held it has not let go
//!        3              0         dead: as queued, for ever
//!
//!              hold             inflate             leave
//!     free ------------> held -----------> inflated ------> queued --+--> held (deflate)
//!      ^ |                |                   |               ^      +--> dead (retire)
//!      | |                | release           | leave         |
//!      +-|----------------+-------------------+               |
//!        +----------------------------------------------------+ queue
//! ```
//!
//! # Invariants
//!
//! * I1  The word is held or inflated exactly while one
//!   [`HeldAnchor`](crate::anchor::HeldAnchor) for it exists. So its memory is not needed
//!   for anything else then, and may not be freed (`LockAnchor::new`).
//! * I2  Only the holder changes its mode, releases or leaves. Only a thread under the latch of the
//!   queue makes a free word queued, a held one inflated, or a queued one held.
//! * I3  Nothing leaves dead.
//!
//! # Orderings
//!
//! All changes are read-modify-writes. So each that acquires comes after every earlier one that
//! releases.
//!
//! * O1  `release` and `leave` (Release) to `hold`, `queue` and `inflate` (Acquire): a holder comes
//!   after all that were before it. So does an owner that shares the lock with a holder, or finds
//!   it in the queue. From one latch of the queue to the next the latch orders owners, so `deflate`
//!   acquires nothing, and neither does a holder that finds its anchor inflated.
//! * O2  `release`, `leave` and `enter_queue` (Release) to `is_unheld` and `retire` (Acquire):
//!   memory is freed after everything that the last holder did.

use crate::shim::{AtomicU32, Ordering};
use std::fmt;
use std::ptr::NonNull;

const MODE: u32 = 0xff;
const OWNER_SHIFT: u32 = 8;

const FREE: u32 = 0;
const QUEUED: u32 = 1 << OWNER_SHIFT;
const INFLATED: u32 = 2 << OWNER_SHIFT;
const DEAD: u32 = 3 << OWNER_SHIFT;

/// Owners have numbers below this.
pub const MAX_OWNERS: u32 = 1 << (32 - OWNER_SHIFT);

/// An owner and the mode in which it holds an anchor. The mode has one to eight bits, never none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Number of the owner, below [`MAX_OWNERS`].
    pub owner: u32,
    /// Its mode, which is not 0. The word gives it no meaning.
    pub mode: u8,
}

impl Hold {
    #[inline(always)]
    fn word(self) -> u32 {
        debug_assert!(self.owner < MAX_OWNERS && self.mode != 0);
        self.owner << OWNER_SHIFT | u32::from(self.mode)
    }
}

/// State of an anchor, a moment ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnchorState {
    /// Nothing is locked.
    Free,
    /// One owner holds it, and nobody else holds or awaits the lock.
    Held(Hold),
    /// The locks are in a queue.
    Queued,
    /// The locks are in a queue, and the owner that held the anchor has not let go of it.
    Inflated,
    /// The locks are in a queue for ever, because the data is gone.
    Dead,
}

/// The word. See the [module](self).
pub struct LockAnchor(AtomicU32);

impl fmt::Debug for LockAnchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockAnchor").field(&self.state()).finish()
    }
}

/// The right to release an anchor. If it is dropped instead, the anchor stays as it is for ever,
/// and so does its memory.
#[must_use = "an anchor that is held is released"]
pub struct HeldAnchor(NonNull<LockAnchor>);

// SAFETY: an anchor is one atomic word, and the memory is kept for whichever thread has the
// handle (I1).
unsafe impl Send for HeldAnchor {}
// SAFETY: a shared handle only reads the atomic word.
unsafe impl Sync for HeldAnchor {}

impl fmt::Debug for HeldAnchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldAnchor").field(self.anchor()).finish()
    }
}

impl LockAnchor {
    /// Returns an anchor that is free, or queued.
    ///
    /// # Safety
    ///
    /// From its first use on, the anchor stays at its address. Its memory is neither freed nor used
    /// for anything else until no thread can reach the anchor any more. Then
    /// [`is_unheld`](Self::is_unheld) has to return true, or [`retire`](Self::retire) to have
    /// returned true before.
    pub unsafe fn new(queued: bool) -> Self {
        Self(AtomicU32::new(if queued { QUEUED } else { FREE }))
    }

    #[inline(always)]
    fn change(&self, from: u32, to: u32, success: Ordering) -> bool {
        // Site: "lock anchor".
        self.0
            .compare_exchange(from, to, success, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns the state. A hint, unless the caller knows that no other thread changes it.
    #[inline(always)]
    pub fn state(&self) -> AnchorState {
        match self.0.load(Ordering::Relaxed) {
            FREE => AnchorState::Free,
            QUEUED => AnchorState::Queued,
            INFLATED => AnchorState::Inflated,
            DEAD => AnchorState::Dead,
            word => AnchorState::Held(Hold {
                owner: word >> OWNER_SHIFT,
                mode: (word & MODE) as u8,
            }),
        }
    }

    /// True if nothing is locked. A hint, as [`state`](Self::state).
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == FREE
    }

    /// True if no [`HeldAnchor`] exists (I1). Final if no other thread can reach the anchor.
    pub fn is_unheld(&self) -> bool {
        matches!(self.0.load(Ordering::Acquire), FREE | QUEUED | DEAD) // O2
    }

    /// Takes a free anchor, and returns the right to release it. `None` if it was not free.
    #[inline(always)]
    pub fn hold(&self, hold: Hold) -> Option<HeldAnchor> {
        self.change(FREE, hold.word(), Ordering::Acquire) // O1
            .then(|| HeldAnchor(NonNull::from(self)))
    }

    /// Makes a held anchor inflated, if `seen` still holds it. The caller has the latch of the
    /// queue, and enters the lock of `seen` there before it drops the latch.
    pub fn inflate(&self, seen: Hold) -> bool {
        self.change(seen.word(), INFLATED, Ordering::Acquire) // O1
    }

    /// Makes a free anchor queued. The caller has the latch of the queue.
    pub fn queue(&self) -> bool {
        self.change(FREE, QUEUED, Ordering::Acquire) // O1
    }

    /// Takes a queued anchor whose queue is empty. The caller has the latch of the queue.
    pub fn deflate(&self, hold: Hold) -> Option<HeldAnchor> {
        // Relaxed: the latch orders owners.
        self.change(QUEUED, hold.word(), Ordering::Relaxed)
            .then(|| HeldAnchor(NonNull::from(self)))
    }

    /// Makes an anchor dead that no owner holds, because its data is gone. Returns false if an
    /// owner holds it; then its memory must stay.
    pub fn retire(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if !matches!(word, FREE | QUEUED | DEAD) {
                return false;
            }
            // Site: "lock anchor".
            let swapped = self
                .0
                .compare_exchange(word, DEAD, Ordering::Acquire, Ordering::Relaxed); // O2
            match swapped {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }
}

impl HeldAnchor {
    #[inline(always)]
    fn anchor(&self) -> &LockAnchor {
        // SAFETY: the memory stays while the word is held or inflated, which it is until this
        // handle is given up (I1).
        unsafe { self.0.as_ref() }
    }

    /// True if this is the right to release `anchor`.
    #[inline(always)]
    pub fn is_of(&self, anchor: &LockAnchor) -> bool {
        std::ptr::eq(self.0.as_ptr(), anchor)
    }

    /// Changes the mode of the holder. Returns false if the anchor is inflated.
    #[inline(always)]
    pub fn set_mode(&self, from: Hold, to: Hold) -> bool {
        debug_assert_eq!(from.owner, to.owner, "only the holder changes its mode");
        // Relaxed: the holder did the acquiring, and no other thread reads through the mode.
        self.anchor()
            .change(from.word(), to.word(), Ordering::Relaxed)
    }

    /// Makes the anchor free again. If it is inflated, returns the right: the lock is in the queue,
    /// and once it has been released there, under the latch, comes [`leave`](Self::leave).
    #[inline(always)]
    pub fn release(self, hold: Hold) -> Result<(), Self> {
        let anchor = self.anchor();
        let freed = anchor.change(hold.word(), FREE, Ordering::Release); // O1, O2
        match freed {
            true => Ok(()), // From here on the memory may be gone.
            false => Err(self),
        }
    }

    /// Makes an inflated anchor queued, or free if the queue is empty. The caller has the latch of
    /// the queue.
    ///
    /// # Panics
    ///
    /// If the anchor is not inflated.
    pub fn leave(self, is_empty: bool) {
        let to = if is_empty { FREE } else { QUEUED };
        let left = self.anchor().change(INFLATED, to, Ordering::Release); // O1, O2
        assert!(left, "I2: the anchor of a lock in a queue is inflated");
    }

    /// Makes a held anchor queued, because its holder has entered its lock in the queue. The caller
    /// has the latch of the queue. Also for an inflated one, whose lock is there already: returns
    /// true if the lock has yet to be entered.
    pub fn enter_queue(self, hold: Hold) -> bool {
        let anchor = self.anchor();
        // O2
        if anchor.change(hold.word(), QUEUED, Ordering::Release) {
            return true;
        }
        self.leave(false);
        false
    }
}

/// Anchors in memory of their own, for tests, benchmarks, and engines without records. The memory
/// is leaked if an anchor is held when this is dropped.
///
/// ```
/// use foxton_sync::anchor::{AnchorState, Anchors, Hold};
///
/// let anchors = Anchors::free(2);
/// let reader = Hold { owner: 7, mode: 1 };
/// let held = anchors[0].hold(reader).expect("it was free");
/// assert!(anchors[0].hold(Hold { owner: 8, mode: 1 }).is_none());
/// held.release(reader).expect("nobody made it inflated");
/// assert_eq!(anchors[0].state(), AnchorState::Free);
/// ```
#[derive(Debug)]
pub struct Anchors(NonNull<[LockAnchor]>);

// SAFETY: it owns its anchors, which are atomic words.
unsafe impl Send for Anchors {}
// SAFETY: a shared reference gives access to atomic words.
unsafe impl Sync for Anchors {}

impl Anchors {
    /// Returns `count` anchors that are free.
    pub fn free(count: usize) -> Self {
        // SAFETY: they stay in their box, which is freed by `drop` if none is held, and no thread
        // can reach them then.
        let anchors: Box<[LockAnchor]> = (0..count)
            .map(|_| unsafe { LockAnchor::new(false) })
            .collect();
        Self(NonNull::from(Box::leak(anchors)))
    }
}

impl std::ops::Deref for Anchors {
    type Target = [LockAnchor];

    fn deref(&self) -> &[LockAnchor] {
        // SAFETY: the box is freed only by `drop`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Anchors {
    fn drop(&mut self) {
        if self.iter().all(LockAnchor::is_unheld) {
            // SAFETY: it came out of a box, and no handle into it exists (I1).
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ME: Hold = Hold { owner: 1, mode: 4 };
    const OTHER: Hold = Hold { owner: 2, mode: 16 };

    #[test]
    fn one_owner_holds_a_free_anchor_until_it_releases_it() {
        let anchors = Anchors::free(1);
        let held = anchors[0].hold(ME).expect("free");
        assert!(held.is_of(&anchors[0]));
        assert_eq!(anchors[0].state(), AnchorState::Held(ME));
        assert!(anchors[0].hold(OTHER).is_none() && !anchors[0].retire());
        let stronger = Hold { mode: 20, ..ME };
        assert!(held.set_mode(ME, stronger));
        assert!(held.release(stronger).is_ok());
        assert_eq!(anchors[0].state(), AnchorState::Free);
    }

    #[test]
    fn an_inflated_anchor_is_held_again_only_after_its_holder_has_left() {
        let anchors = Anchors::free(1);
        let anchor = &anchors[0];
        let held = anchor.hold(ME).expect("free");
        assert!(!anchor.inflate(OTHER) && anchor.inflate(ME));
        assert!(!held.set_mode(ME, Hold { mode: 20, ..ME }));
        let held = held.release(ME).expect_err("its lock is in a queue");
        assert!(!anchor.is_unheld() && anchor.deflate(OTHER).is_none() && !anchor.retire());
        held.leave(false);
        assert_eq!(anchor.state(), AnchorState::Queued);
        let held = anchor.deflate(OTHER).expect("queued");
        assert!(held.enter_queue(OTHER));
        assert!(anchor.retire() && anchor.is_unheld());
        assert!(
            anchor.hold(ME).is_none() && anchor.deflate(ME).is_none(),
            "I3"
        );
        assert_eq!(anchor.state(), AnchorState::Dead);
    }
}
