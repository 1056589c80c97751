//! What is retired, by the bag.
//!
//! # Invariants
//!
//! Those of [`epoch`](super): I3 and I4 say when a bag is tagged and when it may be run.

/// Retired things that fill a bag.
pub(super) const BAG_CAPACITY: usize = if cfg!(loom) { 1 } else { 64 };

/// Bytes of retired things that fill a bag: a participant that sleeps for long keeps no more than that, and the last.
pub(super) const BAG_BYTES: usize = 8 << 10;

/// Something to be freed, and how.
pub(super) struct Deferred {
    pub(super) address: *mut (),
    pub(super) free: unsafe fn(*mut ()),
}

// SAFETY: `retire` asks for `Send` content and `retire_raw` for a function that any thread may
// call; the address is used for nothing else.
unsafe impl Send for Deferred {}

impl Deferred {
    fn free(self) {
        // SAFETY: whoever retired it handed over the right to call this once, and `self` is
        // consumed; nobody can still look at it by the argument on the page of `epoch`.
        unsafe { (self.free)(self.address) }
    }
}

/// Deferred work.
#[derive(Default)]
pub(super) struct Bag {
    pub(super) content: Vec<Deferred>,
    /// What its content takes, in bytes.
    pub(super) bytes: usize,
}

impl Bag {
    /// One of things whose sizes nobody asks for again.
    pub(super) fn of(content: Vec<Deferred>) -> Bag {
        Bag { content, bytes: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.content.len() >= BAG_CAPACITY || self.bytes >= BAG_BYTES
    }

    /// Frees everything in it.
    pub(super) fn free(self) {
        self.content.into_iter().for_each(Deferred::free);
    }
}
