//! Transaction backend: what an elided latch needs of the processor, so that software can replace
//! it.
//!
//! # Contract
//!
//! * H1  Between a `begin` that succeeds and the `end` that follows it on the same thread, no other
//!   such pair and no `exclusively` is seen to happen. A thread that would be seen aborts the
//!   transaction, or waits.
//! * H2  The condition given to `begin` (the latch is free) was true then, and stays true until the
//!   end.
//! * H3  A `begin` that fails has done nothing, and says why.
//! * H4  A `begin` that succeeds sees all that was done before those ends, and before the condition
//!   became true.

use super::{Abort, Rtm, ticks};

/// Abort code: the latch was held when the transaction checked.
pub(crate) const BUSY: u8 = 0xFF;

/// Abort code: a latch that elides was taken inside a transaction.
pub(crate) const NESTED_LATCH: u8 = 0xFD;

/// Begins and ends transactions. See the contract above.
pub(crate) trait TransactionBackend: Send + Sync {
    /// Begins a transaction in which `free` is true, and stays so.
    ///
    /// # Errors
    /// The reason of the abort: [`Abort::explicit`] with [`BUSY`] if `free` was false.
    fn begin(&self, free: impl FnOnce() -> bool) -> Result<(), Abort>;

    /// Ends it.
    ///
    /// # Safety
    ///
    /// A `begin` of the same thread has succeeded, and was not ended yet.
    unsafe fn end(&self);

    /// If the caller is inside a transaction, aborts it with [`NESTED_LATCH`].
    fn abort_enclosing(&self);

    /// True if the caller may be inside a transaction, of any latch. `true` is always right.
    fn may_be_inside(&self) -> bool {
        true
    }

    /// Returns the time of a clock; see [`ticks`].
    fn now(&self) -> u64 {
        ticks()
    }

    /// Calls `take`, which makes the condition of transactions false.
    #[inline(always)]
    fn exclusively<R>(&self, take: impl FnOnce() -> R) -> R {
        // The processor sees the write, and aborts them.
        take()
    }

    /// As `exclusively`, but gives up rather than wait for a thread inside; then `take` was not
    /// called.
    #[inline(always)]
    fn try_exclusively(&self, take: impl FnOnce() -> bool) -> bool {
        self.exclusively(take)
    }
}

impl TransactionBackend for Rtm {
    #[inline(always)]
    fn begin(&self, free: impl FnOnce() -> bool) -> Result<(), Abort> {
        match self.0.begin() {
            Abort::NONE => {
                if !free() {
                    self.0.abort::<BUSY>();
                    unreachable!("nothing comes after an abort");
                }
                Ok(())
            }
            status => Err(Abort::of_status(status)),
        }
    }

    #[inline(always)]
    unsafe fn end(&self) {
        // SAFETY: passed on to the caller.
        unsafe { self.0.end() }
    }

    #[inline(always)]
    fn may_be_inside(&self) -> bool {
        self.is_inside()
    }

    #[inline(always)]
    fn abort_enclosing(&self) {
        if self.is_inside() {
            self.0.abort::<NESTED_LATCH>();
        }
    }
}
