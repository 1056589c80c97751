//! Hazard pointers.
//!
//! After M. M. Michael: *Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects*, IEEE
//! Transactions on Parallel and Distributed Systems 15(6), 2004; for objects that are found in one
//! place and replaced often. A descheduled thread keeps one object from being freed, and not all
//! that others retire from then on. With epochs, hundreds of threads on two processors kept over a
//! hundred megabytes of replaced values waiting, and new values were made in memory that had left
//! the caches.
//!
//! # State
//!
//! Each participant has a few hazards in its slot, each null or the address of the object it
//! protects. A [`Hazard`] owns one of them while it exists.
//!
//! # Invariants
//!
//! * I8  Only the owner of a participant writes its hazards.
//! * I9  A thread looks at an object only while its hazard names it, if the object was still in its
//!   source after the hazard did.
//! * I10  An object is retired after it was taken out of its source. It is freed by a thread that
//!   took it off the list of retired objects, passed the heavy fence, and then found that no hazard
//!   names it.
//!
//! # Why no thread looks at a freed object
//!
//! Reader R names X, passes its light fence, and finds X still in its source. The freeing thread F
//! comes after the taking out (O6 of `retired`), passes its heavy fence, and reads the hazards. By
//! the argument of [`asymmetric`](crate::asymmetric) one of three things happens. R finds what
//! replaced X in its source, and does not look at X (I9). Or F sees the hazard name X, and keeps
//! it. Or F sees what R wrote there later, and comes after everything R read before (O7).
//!
//! X may have been put back into its source, or freed and another object made at its address,
//! between R's two reads of the source. Then the object that R finds there the second time is the
//! one that its hazard names, as it was published last: the second read is the one that counts.
//!
//! # Orderings
//!
//! * O7  writing a hazard (Release) to reading all (Acquire): a thread that sees that an object is
//!   named no more comes after everything that was read of it.
//! * O8  the second read of the source (Acquire), to the write that put the object there (Release):
//!   a thread that finds an object sees it as it was then. No model can show it: to the checker the
//!   light fence before it is a full one, which would do.
//!
//! The light fence is in `protect` between naming and the second read, the heavy one in
//! `DomainInner::free_unprotected` between taking bags off the list and reading the hazards.

use super::slot::{HAZARDS, ParticipantSlot};
use crate::asymmetric::Asymmetric;
use crate::shim::{AtomicPtr, Ordering};
use std::cell::Cell;
use std::fmt;
use std::ptr;

/// The hazards of a participant that are in use.
#[derive(Debug, Default)]
pub(super) struct Hazards {
    taken: Cell<u8>,
}

impl Hazards {
    #[inline]
    pub(super) fn acquire<'p>(
        &'p self,
        slot: &'p ParticipantSlot,
        domain: u32,
        fence: Asymmetric,
    ) -> Hazard<'p> {
        let taken = self.taken.get();
        let number = taken.trailing_ones() as usize;
        assert!(number < HAZARDS, "too much is looked at at once");
        self.taken.set(taken | 1 << number);
        Hazard {
            cell: &slot.hazards()[number],
            bit: 1 << number,
            owner: self,
            domain,
            fence,
        }
    }

    /// Clears all hazards, if one was forgotten.
    pub(super) fn clear(&self, slot: &ParticipantSlot) {
        if self.taken.get() != 0 {
            for hazard in slot.hazards() {
                hazard.store(ptr::null_mut(), Ordering::Release); // O7, I8
            }
        }
    }
}

/// Protects one object at a time that its participant looks at. It belongs to the participant's
/// thread:
///
/// ```compile_fail,E0277
/// fn assert_send<T: Send>() {}
/// assert_send::<foxton_sync::epoch::Hazard<'static>>();
/// ```
///
/// ```
/// use foxton_sync::epoch::Domain;
/// use foxton_sync::shim::{AtomicPtr, Ordering};
///
/// unsafe fn free(address: *mut ()) {
///     drop(unsafe { Box::from_raw(address.cast::<u64>()) });
/// }
///
/// let domain = Domain::new();
/// let (reader, writer) = (domain.participant(), domain.participant());
/// let place = AtomicPtr::new(Box::into_raw(Box::new(1_u64)));
/// let mut hazard = reader.hazard();
/// let found = hazard.protect(&place);
///
/// let old = place.swap(Box::into_raw(Box::new(2)), Ordering::AcqRel);
/// // SAFETY: no thread finds it any more, and a thread that looks at it has a hazard.
/// unsafe { writer.retire_hazard_protected(old.cast(), size_of::<u64>(), free) };
/// writer.collect();
/// // SAFETY: the hazard names it.
/// assert_eq!(unsafe { *found }, 1);
///
/// drop(hazard);
/// writer.collect();
/// assert_eq!(domain.retired(), 0);
/// # unsafe { free(place.into_inner().cast()) };
/// ```
pub struct Hazard<'p> {
    cell: &'p AtomicPtr<()>,
    owner: &'p Hazards,
    bit: u8,
    domain: u32,
    fence: Asymmetric,
}

impl fmt::Debug for Hazard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hazard").finish_non_exhaustive()
    }
}

impl Hazard<'_> {
    /// Returns the object in `place`, or null. If it is hazard-protected in the same domain, it
    /// stays until this hazard protects another or is dropped. Waits for no thread, but reads again
    /// if the object is replaced meanwhile.
    #[inline]
    pub fn protect<T>(&mut self, place: &AtomicPtr<T>) -> *mut T {
        let mut found = place.load(Ordering::Relaxed); // Read again below.
        loop {
            self.cell.store(found.cast(), Ordering::Release); // O7, I8
            self.fence.light();
            let again = place.load(Ordering::Acquire); // O8
            if again == found {
                return found; // I9
            }
            found = again;
        }
    }

    /// Number of its domain: see [`Domain::id`](super::Domain::id).
    #[inline]
    pub fn domain(&self) -> u32 {
        self.domain
    }
}

impl Drop for Hazard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.cell.store(ptr::null_mut(), Ordering::Release); // O7, I8
        self.owner.taken.set(self.owner.taken.get() & !self.bit);
    }
}
