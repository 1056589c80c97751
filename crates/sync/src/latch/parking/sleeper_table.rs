//! Table of sleepers, where threads sleep until woken, by address.

#[cfg(not(any(loom, shuttle)))]
use crate::cache_line::CachePadded;
use crate::shim::AtomicUsize;
#[cfg(not(any(loom, shuttle)))]
use parking_lot_core as core;

/// State found at a wake.
#[derive(Debug, Clone, Copy)]
pub(super) struct WakeState {
    /// True if a thread slept.
    pub(super) sleeper: bool,
    /// True if others still do.
    pub(super) others: bool,
    /// True if fairness requires that the latch is handed over this time.
    pub(super) is_fair: bool,
}

/// Sleepers, by address.
pub(super) trait SleeperTable {
    /// Spinning of a thread before it sleeps.
    type Spin: SpinPhase;

    /// Number of extended latches over this table. While there is none, no pass reads its latch
    /// before the exchange: a line that another thread has written is then fetched once, for
    /// writing, and not twice.
    fn extended_latches(&self) -> &AtomicUsize;

    /// Sleeps at `address` until woken, if `validate` is still true once no thread can be woken
    /// there. Returns true if the latch was handed over.
    fn sleep(&self, address: usize, validate: impl Fn() -> bool) -> bool;

    /// Wakes one sleeper, if there is one. `decide` is called while no thread can begin to sleep
    /// there, and returns whether the latch is handed over to the sleeper.
    fn wake(&self, address: usize, decide: impl FnOnce(WakeState) -> bool);
}

/// Spins.
pub(super) trait SpinPhase: Default {
    /// Spins a little. Returns false if it has spun enough.
    fn spin(&mut self) -> bool;

    /// Starts anew.
    fn reset(&mut self);
}

/// The table of the process.
#[cfg(not(any(loom, shuttle)))]
#[derive(Debug, Default)]
pub(super) struct ProcessTable;

#[cfg(not(any(loom, shuttle)))]
const FREE: core::UnparkToken = core::UnparkToken(0);
#[cfg(not(any(loom, shuttle)))]
const HANDED_OVER: core::UnparkToken = core::UnparkToken(1);

#[cfg(not(any(loom, shuttle)))]
impl SpinPhase for core::SpinWait {
    fn spin(&mut self) -> bool {
        core::SpinWait::spin(self)
    }

    fn reset(&mut self) {
        core::SpinWait::reset(self);
    }
}

#[cfg(not(any(loom, shuttle)))]
static EXTENDED_LATCHES: CachePadded<AtomicUsize> = CachePadded::new(AtomicUsize::new(0));

#[cfg(not(any(loom, shuttle)))]
impl SleeperTable for ProcessTable {
    type Spin = core::SpinWait;

    #[inline(always)]
    fn extended_latches(&self) -> &AtomicUsize {
        &EXTENDED_LATCHES
    }

    fn sleep(&self, address: usize, validate: impl Fn() -> bool) -> bool {
        let token = core::DEFAULT_PARK_TOKEN;
        // SAFETY: the address is that of a latch, at which no other code sleeps; none of the calls
        // here panics or parks, and no thread is woken by a timeout.
        let woken = unsafe { core::park(address, validate, || {}, |_, _| {}, token, None) };
        woken == core::ParkResult::Unparked(HANDED_OVER)
    }

    fn wake(&self, address: usize, decide: impl FnOnce(WakeState) -> bool) {
        let decide = |result: core::UnparkResult| {
            let found = WakeState {
                sleeper: result.unparked_threads > 0,
                others: result.have_more_threads,
                is_fair: result.be_fair,
            };
            if decide(found) { HANDED_OVER } else { FREE }
        };
        // SAFETY: as in `sleep`.
        unsafe { core::unpark_one(address, decide) };
    }
}
