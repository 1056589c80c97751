//! Parts of the manager: requests in chains, waiters in queues.
//!
//! # State
//!
//! Chains have all holders, and are reached without a latch. In front of them are queues with all
//! waiters, and a latch over the queues of each 1/256 of the chains. Requests come from the lock
//! index. The table of owners and the detector of deadlocks are the same as in the other managers.
//!
//! # Invariants
//!
//! * I1  A wait ends under the latch of its queue, by the thread that dequeues the waiter, and so
//!   only once.
//! * I2  `Owner::locks` has exactly the granted requests of the owner, except a grant that was not
//!   collected yet.
//! * I3  The modes that waiters in front of a chain wait for are announced there (C3, C4), under
//!   the latch, before any of them is left waiting.
//! * I4  When the latch is dropped no waiter of the queue can be granted, unless it is blocked only
//!   by holders that have marked their requests obsolete and are on their way to the latch.
//!
//! # Why L3, L4 and L5 hold
//!
//! A request that cannot pass a chain takes the latch of its queue. Under it, requests of one name
//! are decided one after the other: announce, check the holders, then be granted, refused or
//! enqueued. So the order among waiters is that of the latch. No later request that conflicts with
//! a waiter passes it: a request without the latch sees the announcement, and then takes the latch.
//! Conversions go before new requests and behind earlier conversions. A refused request was in the
//! queue, or in none; its announcement is withdrawn, and a request that the announcement sent to
//! the latch is decided there, by the actual requests (L3). Every step that removes a conflict
//! checks the queue afterwards: a releasing thread learns by C4 that there is a waiter, and a
//! waiter that leaves the queue is under its latch (L4).

use super::{
    chain::Chains,
    lock_index::{LockIndex, ReuseRule},
    wait_queue::{ChainConflicts, WaitQueues},
};
use crate::{
    deadlock::{Detector, VictimPolicy},
    escalation,
    mode::{Mode, Set},
    name::Name,
    owner::{Owner, owner_table::OwnerTable},
    request::{Blockers, OwnerId, Reply},
};
use foxton_sync::{
    cache_line::CachePadded,
    latch::{Kind, Latched},
    shim::Arc,
    site::{Component, Pattern, Site},
    worker::Worker,
};
use std::fmt;

/// Queues: waiters, and owners that release what they wait for.
static QUEUE: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock line");
/// A waiter and the thread that ends its wait meet at the record and its parker.
pub(super) static WAIT: Site = Site::new(Component::Lock, Pattern::Fixed, "lock wait");

/// Number of latches over queues.
const STRIPES: usize = if cfg!(loom) { 1 } else { 256 };

/// Manager over chains of either form.
pub struct Staged<C> {
    pub(super) chains: C,
    pub(super) queues: Box<[CachePadded<Latched<WaitQueues>>]>,
    pub(super) index: LockIndex,
    pub(super) owners: Arc<OwnerTable>,
    pub(super) detector: Detector,
}

impl<C> fmt::Debug for Staged<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staged")
            .field("index", &self.index)
            .field("policy", &self.detector.policy())
            .finish_non_exhaustive()
    }
}

#[expect(
    private_bounds,
    reason = "what chains look like is not for outsiders to choose"
)]
impl<C: Chains> Staged<C> {
    /// Returns a manager of `count` chains, a power of two up to 2^31, over latches of `kind`.
    pub(crate) fn over(
        count: usize,
        kind: Kind,
        policy: VictimPolicy,
        rule: ReuseRule,
        limit: u32,
    ) -> Self {
        assert!(
            count.is_power_of_two() && count <= 1 << 31,
            "2^n chains, at most 2^31"
        );
        let owners = Arc::new(OwnerTable::new());
        let queue = |_| CachePadded::new(Latched::new(kind, &QUEUE, WaitQueues::default()));
        Self {
            chains: C::new(count),
            queues: (0..count.min(STRIPES)).map(queue).collect(),
            index: LockIndex::new(rule, limit, owners.clone()),
            owners,
            detector: Detector::new(policy),
        }
    }

    pub(crate) fn owners(&self) -> &OwnerTable {
        &self.owners
    }

    /// Calls `body` with the queues in front of a chain, under their latch and pinned.
    pub(super) fn with<R>(
        &self,
        worker: &Worker,
        hash: u32,
        body: impl FnOnce(&mut WaitQueues) -> R,
    ) -> R {
        let stripe = hash as usize & (self.queues.len() - 1);
        self.queues[stripe].with(worker, |queues| {
            let _pinned = self.index.pin(worker);
            body(queues)
        })
    }

    /// Returns the modes that waiters in front of one chain wait for.
    pub(super) fn waiting_modes(&self, queues: &WaitQueues, hash: u32) -> Set {
        let mask = self.chains.count() as u32 - 1;
        queues.waiting_modes(|other| (other ^ hash) & mask == 0)
    }

    pub(super) fn set_waiting_modes(&self, queues: &WaitQueues, hash: u32) {
        self.chains
            .set_waiting_modes(hash, self.waiting_modes(queues, hash));
    }

    /// Refuses a request for which there is no segment left.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse_full(
        &self,
        worker: &Worker,
        owner: &Owner,
        name: Name,
        mode: Mode,
    ) -> Reply {
        owner.refuse_full(name, mode, escalation::largest_holders(self, worker))
    }

    /// Returns the current owner with the index of `owner`. An inherited lock outlives the
    /// transaction that took it.
    pub(super) fn current_owner(&self, owner: OwnerId) -> OwnerId {
        self.owners.record(owner.index()).id()
    }

    pub(super) fn blockers(&self, found: ChainConflicts) -> Blockers {
        let blocker = |(owner, mode, waiting)| {
            let owner = self.current_owner(owner);
            self.owners.blocker(owner, mode, waiting)
        };
        Blockers {
            listed: found.listed.into_iter().map(blocker).collect(),
            more: found.more,
        }
    }
}
