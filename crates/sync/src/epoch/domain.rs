//! The epoch, and the lists of retired objects.
//!
//! # State
//!
//! The epoch, the slots of all participants, and two lists of sealed bags: of objects that wait for
//! the epoch, and of hazard-protected objects.
//!
//! # Invariants
//!
//! Those of [`epoch`](super): I2 in `try_advance`, I4 in `due`.
//!
//! # Orderings
//!
//! * O2  `try_advance` (Release) to `acquire_epoch` (Acquire): a thread that sees epoch t + 2 comes
//!   after everything that O1 (of `slot`) put before the advance.
//! * O3  the fence in `try_advance`, fence A of the argument on the page of `epoch`: between
//!   reading the epoch and checking that every participant has seen it.
//! * O7  writing a hazard (Release, in `hazard`) to reading all (Acquire).

use super::bag::Bag;
use super::retired::{self, RetiredList};
use super::slot::SlotTable;
use crate::asymmetric::Asymmetric;
use crate::cache_line::CachePadded;
use crate::process::ProcessStamp;
use crate::shim::{Arc, AtomicU64, Ordering, fence, unmodelled};
use std::fmt;

/// Lots of ticks, of all participants, between two tries to advance the epoch. A try looks at
/// the slot of every participant, which takes some nanoseconds each.
const LOTS_PER_TRY: u64 = if cfg!(loom) { 1 } else { 2 };

/// Number of domains made so far.
static DOMAINS: unmodelled::AtomicU32 = unmodelled::AtomicU32::new(0);

/// The content of a domain, shared by its clones.
pub(super) struct DomainInner {
    id: u32,
    epoch: CachePadded<AtomicU64>,
    /// Lots of ticks so far.
    tick_lots: CachePadded<AtomicU64>,
    pub(super) slots: SlotTable,
    epoch_list: RetiredList,
    hazard_list: RetiredList,
    pub(super) fence: Asymmetric,
    pub(super) process: ProcessStamp,
}

impl DomainInner {
    /// The present epoch, or a recent one.
    #[inline]
    pub(super) fn recent_epoch(&self) -> u64 {
        // Relaxed: a caller that needs it recent has a fence before this.
        self.epoch.load(Ordering::Relaxed)
    }

    /// The present epoch, or a recent one. A thread that sees it comes after everything that had to
    /// end for it to come.
    #[inline]
    pub(super) fn acquire_epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire) // O2
    }

    /// Records a lot of ticks, and returns whether the caller should try to advance the epoch.
    pub(super) fn record_tick_lot(&self) -> bool {
        // Relaxed: a number, which leads to no memory.
        self.tick_lots.fetch_add(1, Ordering::Relaxed) % LOTS_PER_TRY == LOTS_PER_TRY - 1
    }

    /// Advances the epoch if every pinned participant has seen the present one. Never waits.
    pub(super) fn try_advance(&self) {
        // Relaxed: an outdated epoch is refused by the exchange.
        let epoch = self.epoch.load(Ordering::Relaxed);
        fence(Ordering::SeqCst); // O3
        if self.slots.iter().all(|slot| slot.has_seen(epoch)) {
            // If this fails, another thread has advanced it, which is as good.
            let _ = self.epoch.compare_exchange(
                epoch,
                epoch + 1,
                Ordering::Release, // O2, I2
                Ordering::Relaxed,
            );
        }
    }

    /// The latest tag whose bags may be freed, if there is one yet.
    pub(super) fn due(&self) -> Option<u64> {
        self.acquire_epoch().checked_sub(2) // I4
    }

    /// Adds a full bag, and returns whether the caller should free what is due. Everything in it
    /// was unlinked before a fence (O3 of `participant`) that came before this.
    pub(super) fn seal(&self, bag: Bag) -> bool {
        // The fence keeps this from being too old.
        let tag = self.recent_epoch(); // I3
        self.epoch_list.push(tag, bag)
    }

    /// Frees all bags that are due, of all participants.
    pub(super) fn free_due(&self) {
        if let Some(due) = self.due() {
            self.epoch_list.free_due(due);
        }
    }

    /// Adds a full bag of hazard-protected objects, and returns whether the caller should sweep
    /// them.
    pub(super) fn seal_hazard_bag(&self, bag: Bag) -> bool {
        self.hazard_list.push(0, bag)
    }

    /// Frees all hazard-protected objects that no hazard names, of all participants.
    pub(super) fn free_unprotected(&self) {
        self.hazard_list.free_unprotected(|| {
            self.fence.heavy(); // I10
            let mut protected = Vec::new();
            for slot in self.slots.iter() {
                let all = slot.hazards().iter();
                let protected_here = all.map(|hazard| hazard.load(Ordering::Acquire)); // O7
                protected.extend(protected_here.filter(|address| !address.is_null()));
            }
            protected.sort_unstable();
            protected
        });
    }
}

impl Drop for DomainInner {
    fn drop(&mut self) {
        // Every participant keeps the domain alive: no thread is left that looks.
        self.epoch_list.free_all();
        self.hazard_list.free_all();
    }
}

/// Participants that reclaim together. Cheap to clone; all clones are one domain.
///
/// ```
/// use foxton_sync::epoch::Domain;
///
/// let domain = Domain::new();
/// let participant = domain.participant();
/// let guard = participant.pin();
/// guard.retire(Box::new("not needed any more"));
/// ```
#[derive(Clone)]
pub struct Domain(pub(super) Arc<DomainInner>);

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("epoch", &self.epoch())
            .field("retired", &self.retired())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Domain {
    /// True if both are the same domain.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Domain {}

impl Domain {
    /// Returns a domain without participants.
    ///
    /// # Panics
    ///
    /// If this process had 4,294,967,295 of them before.
    pub fn new() -> Self {
        // Relaxed: it only matters that no number comes twice.
        let count = DOMAINS.fetch_update(
            unmodelled::Ordering::Relaxed,
            unmodelled::Ordering::Relaxed,
            |count| count.checked_add(1),
        );
        Self(Arc::new(DomainInner {
            id: count.expect("a process has less than 4,294,967,295 domains in its life"),
            tick_lots: CachePadded::new(AtomicU64::new(0)),
            epoch: CachePadded::new(AtomicU64::new(0)),
            slots: SlotTable::new(),
            epoch_list: RetiredList::new(retired::EPOCH_SWEEP_BYTES),
            hazard_list: RetiredList::new(retired::HAZARD_SWEEP_BYTES),
            fence: Asymmetric::new(),
            process: ProcessStamp::new(),
        }))
    }

    /// The present epoch. It only grows.
    pub fn epoch(&self) -> u64 {
        self.0.recent_epoch()
    }

    /// Number of objects retired and not freed yet, by all participants, dropped ones included.
    /// Exact when no thread retires or frees meanwhile.
    pub fn retired(&self) -> usize {
        // Relaxed: a sum for people and tests.
        let kept = self
            .0
            .slots
            .iter()
            .map(|slot| slot.retired.load(Ordering::Relaxed));
        kept.sum::<usize>() + self.0.epoch_list.objects() + self.0.hazard_list.objects()
    }

    /// A number that no other domain of this process has or had.
    #[inline]
    pub fn id(&self) -> u32 {
        self.0.id
    }
}

/// A moment that all pinned threads pass; see [`Participant::stamp`](super::Participant::stamp).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub(super) u64);

impl Stamp {
    /// Returns the epoch of that moment, for callers that keep it as a number.
    #[inline]
    pub const fn epoch(self) -> u64 {
        self.0
    }

    /// Returns the stamp whose [`epoch`](Self::epoch) was `epoch`.
    #[inline]
    pub const fn from_epoch(epoch: u64) -> Self {
        Self(epoch)
    }
}
