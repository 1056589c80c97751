//! One thing that is looked at, named for all to see.
//!
//! Hazard pointers (M. M. Michael: *Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects*, IEEE Transactions
//! on Parallel and Distributed Systems 15(6), 2004), for what is found in one place and replaced often. Whoever loses the
//! processor keeps one thing from being freed, and not everything that anybody retires from then on. What was measured with
//! hundreds of threads on two processors: 125 MB of replaced values waited for the epoch, and new ones were made in
//! memory that had left the caches.
//!
//! # State
//!
//! Each participant has a few hazards in its slot, each null or the address of what it protects. A [`Hazard`] has one of them for as long
//! as it lives.
//!
//! # Invariants
//!
//! * I8  A hazard is written only by whoever has its participant.
//! * I9  A thing is looked at only while a hazard names it, if it was still in its place after the hazard did.
//! * I10 A thing is retired after it was taken out of its place, and freed by who took it off the pile, passed the
//!   heavy fence, and then found that no hazard names it.
//!
//! # Why nobody looks at what is freed
//!
//! Reader R names X, passes its light fence, and finds X still in its place. Whoever frees, F, comes after the taking out (O6 of
//! `pile`), passes its heavy fence, and reads the hazards. By the argument of [`asymmetric`](crate::asymmetric) R finds what was put
//! in X's place, and does not look at X (I9), or F sees the hazard name X, and keeps it; or F sees what R
//! wrote there later, and comes after everything R read before (O7).
//!
//! X may have been put back into its place, or freed and another made at its address, between R's two looks at the place. Then
//! what R finds there the second time is what its hazard names, as it was published last: the second look is
//! the one that counts.
//!
//! # Orderings
//!
//! * O7  writing a hazard (Release) to reading all (Acquire): who sees that a thing is named no more comes after
//!   everything that was read of it.
//! * O8  the second look at the place (Acquire), to whatever put the thing there (Release): who finds a thing sees it as
//!   it was then. No model can show it: to the checker the light fence before it is a full one, which would do.
//!
//! The light fence stands in `protect` between naming and the second look, the heavy one in
//! `DomainInner::free_unprotected` between taking bags off the pile and reading the hazards.

use super::slot::{HAZARDS, ParticipantSlot};
use crate::asymmetric::Asymmetric;
use crate::shim::{AtomicPtr, Ordering};
use std::cell::Cell;
use std::fmt;
use std::ptr;

/// Which hazards of a participant are taken.
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

    /// Names nothing any more, if one was forgotten.
    pub(super) fn clear(&self, slot: &ParticipantSlot) {
        if self.taken.get() != 0 {
            for hazard in slot.hazards() {
                hazard.store(ptr::null_mut(), Ordering::Release); // O7, I8
            }
        }
    }
}

/// Names what its participant looks at, one thing at a time. It belongs to the participant's thread:
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
/// // SAFETY: nobody finds it any more, and who does look at it has a hazard.
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
    /// What is in `place`, which stays until this hazard names something else or is dropped, if it is retired behind
    /// hazards of the same domain; or null. Waits for nobody, but looks again when it is replaced meanwhile.
    #[inline]
    pub fn protect<T>(&mut self, place: &AtomicPtr<T>) -> *mut T {
        let mut found = place.load(Ordering::Relaxed); // Looked at again below.
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

    /// The number of its domain: see [`Domain::id`](super::Domain::id).
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
