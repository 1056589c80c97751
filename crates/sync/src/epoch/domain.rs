//! The epoch, and what waits until it is due.
//!
//! # State
//!
//! The epoch, the slots of all participants, and the piles of sealed bags: what waits for the epoch, and what is behind
//! hazards.
//!
//! # Invariants
//!
//! Those of [`epoch`](super): I2 in `try_advance`, I4 in `due`.
//!
//! # Orderings
//!
//! * O2  `try_advance` (Release) to `seen` (Acquire): who sees epoch t + 2 comes after everything that
//!   O1 (of `slot`) put before the advance.
//! * O3  the fence in `try_advance`, fence A of the argument on the page of `epoch`: between reading the
//!   epoch and looking whether everybody has seen it.
//! * O7  writing a hazard (Release, in `hazard`) to reading all (Acquire).

use super::bag::Bag;
use super::retired::{self, RetiredList};
use super::slot::SlotList;
use crate::asymmetric::Asymmetric;
use crate::cache_line::CachePadded;
use crate::shim::{Arc, AtomicU64, Ordering, fence, unmodelled};
use std::fmt;

/// Ticks of all participants, in the lots that they bring them in, after which the epoch is tried. A try looks at every participant, some
/// nanoseconds each.
const LOTS_PER_TRY: u64 = if cfg!(loom) { 1 } else { 2 };

/// How many domains there have been.
static DOMAINS: unmodelled::AtomicU32 = unmodelled::AtomicU32::new(0);

/// What all clones of a domain are.
pub(super) struct DomainInner {
    id: u32,
    epoch: CachePadded<AtomicU64>,
    /// Lots of ticks.
    tick_lots: CachePadded<AtomicU64>,
    pub(super) slots: SlotList,
    epoch_list: RetiredList,
    hazard_list: RetiredList,
    pub(super) fence: Asymmetric,
}

impl DomainInner {
    /// The present epoch, or one of a moment ago.
    #[inline]
    pub(super) fn recent_epoch(&self) -> u64 {
        // Relaxed: whoever needs it not too old has a fence before this.
        self.epoch.load(Ordering::Relaxed)
    }

    /// The present epoch, or one of a moment ago; whoever sees it comes after everything that had to end for it to come.
    #[inline]
    pub(super) fn acquire_epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire) // O2
    }

    /// Takes a lot of ticks, and says whether somebody should try the epoch.
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
            // Failed, somebody else has advanced it: as good.
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

    /// Takes a full bag, and says whether somebody should look what is due. Everything in it was unlinked before a
    /// fence (O3 of `participant`) that came before this.
    pub(super) fn seal(&self, bag: Bag) -> bool {
        // The fence is what keeps this from being too old.
        let tag = self.recent_epoch(); // I3
        self.epoch_list.push(tag, bag)
    }

    /// Frees what is due of everybody.
    pub(super) fn free_due(&self) {
        if let Some(due) = self.due() {
            self.epoch_list.free_due(due);
        }
    }

    /// Takes a full bag of what is behind hazards, and says whether somebody should look which are named.
    pub(super) fn seal_hazard_bag(&self, bag: Bag) -> bool {
        self.hazard_list.push(0, bag)
    }

    /// Frees what is behind hazards and named by none, of everybody.
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
        // Every participant has the domain: nobody is left to look.
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
    /// Whether both are the same domain.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Domain {}

impl Domain {
    /// A domain without participants.
    ///
    /// # Panics
    ///
    /// If this process had 4,294,967,295 of them before.
    pub fn new() -> Self {
        // Relaxed: all that counts is that no number comes twice.
        let count = DOMAINS.fetch_update(
            unmodelled::Ordering::Relaxed,
            unmodelled::Ordering::Relaxed,
            |count| count.checked_add(1),
        );
        Self(Arc::new(DomainInner {
            id: count.expect("a process has less than 4,294,967,295 domains in its life"),
            tick_lots: CachePadded::new(AtomicU64::new(0)),
            epoch: CachePadded::new(AtomicU64::new(0)),
            slots: SlotList::new(),
            epoch_list: RetiredList::new(retired::EPOCH_SWEEP_BYTES),
            hazard_list: RetiredList::new(retired::HAZARD_SWEEP_BYTES),
            fence: Asymmetric::new(),
        }))
    }

    /// The present epoch. It only grows.
    pub fn epoch(&self) -> u64 {
        self.0.recent_epoch()
    }

    /// Things retired and not freed yet, by all participants, those that are gone included. Exact
    /// when nobody retires or frees meanwhile.
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

/// A moment that whoever pins has passed; see [`Participant::stamp`](super::Participant::stamp).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub(super) u64);

impl Stamp {
    /// The epoch of that moment, for those who keep it as a number.
    #[inline]
    pub const fn epoch(self) -> u64 {
        self.0
    }

    /// The stamp whose [`epoch`](Self::epoch) was `epoch`.
    #[inline]
    pub const fn from_epoch(epoch: u64) -> Self {
        Self(epoch)
    }
}
