//! Bags of retired objects.
//!
//! # Invariants
//!
//! Those of [`epoch`](super): I3 and I4 say when a bag is tagged and when it may be run.

/// Number of retired objects that fill a bag.
pub(super) const BAG_CAPACITY: usize = if cfg!(loom) { 1 } else { 64 };

/// Bytes of retired objects that fill a bag: a participant that sleeps for long keeps no more than
/// that, and the last object.
pub(super) const BAG_BYTES: usize = 8 << 10;

/// An object to be freed, and the function that does it.
pub(super) struct Deferred {
    pub(super) address: *mut (),
    pub(super) free: unsafe fn(*mut ()),
}

// SAFETY: `retire` asks for `Send` content and `retire_raw` for a function that any thread may
// call; the address is used for nothing else.
unsafe impl Send for Deferred {}

impl Deferred {
    fn free(self) {
        // SAFETY: the retirer granted the right to call this once, and `self` is consumed. No
        // thread can still look at the object, by the argument on the page of `epoch`.
        unsafe { (self.free)(self.address) }
    }
}

/// A bag of deferred calls.
#[derive(Default)]
pub(super) struct Bag {
    pub(super) content: Vec<Deferred>,
    /// Size of its objects, in bytes.
    pub(super) bytes: usize,
}

impl Bag {
    /// Returns a bag of objects whose sizes are no longer needed.
    pub(super) fn of(content: Vec<Deferred>) -> Bag {
        Bag { content, bytes: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.content.len() >= BAG_CAPACITY || self.bytes >= BAG_BYTES
    }

    /// Frees its objects.
    pub(super) fn free(self) {
        self.content.into_iter().for_each(Deferred::free);
    }
}
