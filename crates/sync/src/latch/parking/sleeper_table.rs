//! Where threads sleep until somebody wakes them, by an address.

#[cfg(not(any(loom, shuttle)))]
use crate::cache_line::CachePadded;
use crate::shim::AtomicUsize;
#[cfg(not(any(loom, shuttle)))]
use parking_lot_core as core;

/// What is found when somebody is to be woken.
#[derive(Debug, Clone, Copy)]
pub(super) struct WakeState {
    /// Whether somebody slept.
    pub(super) sleeper: bool,
    /// Whether others still do.
    pub(super) others: bool,
    /// Whether he is to be handed what he sleeps for, for once.
    pub(super) is_fair: bool,
}

/// Sleepers, by address.
pub(super) trait SleeperTable {
    /// How a thread passes its time before it sleeps.
    type Spin: SpinPhase;

    /// How many latches over it have more to them. While none has, no pass looks at its latch before the exchange: a line that
    /// somebody else has written is then fetched once, to be written, and not twice.
    fn extended_latches(&self) -> &AtomicUsize;

    /// Sleeps by `address`, if `validate` still says so once nobody can be woken there, until woken. Says whether it was handed what
    /// it sleeps for.
    fn sleep(&self, address: usize, validate: impl Fn() -> bool) -> bool;

    /// Wakes one, if there is one. `decide` is called while nobody goes to sleep there, and says whether he is handed what he
    /// sleeps for.
    fn wake(&self, address: usize, decide: impl FnOnce(WakeState) -> bool);
}

/// Passes time.
pub(super) trait SpinPhase: Default {
    /// Waits a little. Returns false if it was enough.
    fn spin(&mut self) -> bool;

    /// Has all its patience again.
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
        // SAFETY: the address is that of a latch, which nobody else sleeps by; nothing that is called here panics or parks, and
        // nobody is woken by a timeout.
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
