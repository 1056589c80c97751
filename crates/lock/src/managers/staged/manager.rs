//! The manager: requests in chains, waiters in lines.
//!
//! # State
//!
//! Chains with everybody who holds something, reached without a latch. In front of them lines with
//! everybody who waits, a latch over the lines of each 1/256 of the chains. The index from which requests
//! come. The registry of owners and the detector of deadlocks, shared with the other managers.
//!
//! # Invariants
//!
//! * I1  A wait ends under the latch of its line, by whoever takes the waiter out of it: so once.
//! * I2  `Owner::locks` has exactly the granted requests of the owner, but for a grant that was not
//!   collected yet.
//! * I3  What is awaited in front of a chain is announced there (C3, C4), under the latch, before
//!   anybody in it is left waiting.
//! * I4  When the latch is dropped nobody in the line can be granted; but for holders that have marked
//!   their requests obsolete and are on their way to the latch.
//!
//! # Why L3, L4 and L5 hold
//!
//! Whoever cannot pass a chain takes the latch of its line. Under it, requests of one name are decided
//! one after the other: announce, look at the holders, then be granted, refused or put in the line. So
//! among those who wait, the order is that of the latch; and nobody passes them who is in their way,
//! for the announcement is seen by everybody who comes without the latch, and he then takes it.
//! Conversions stand before new requests and behind earlier conversions. A request refused was in the
//! line, or in none: what it announced is taken back, and whoever was sent here by it decides under the
//! latch, by what is really there (L3). Whatever takes an obstacle away looks at the line afterwards: who
//! releases learns by C4 that somebody waits, and who leaves the line is under its latch (L4).

use super::{
    chain::{Chains, Holder},
    lock_index::{LockIndex, ReuseRule},
    wait_queue::{ChainConflict, WaitQueues},
};
use crate::{
    deadlock::{Detector, VictimPolicy},
    escalation,
    mode::{Mode, Set},
    name::Name,
    owner::{Owner, owner_table::OwnerTable},
    request::{Blocker, OwnerId, Reply},
};
use foxton_sync::{
    cache_line::CachePadded,
    latch::{Kind, Latched},
    shim::Arc,
    site::{Component, Pattern, Site},
    worker::Worker,
};
use std::fmt;

/// The lines: for those who must wait, and those who release what is awaited.
static QUEUE: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock line");
/// A waiter and whoever ends its wait: the record and the parker between them.
pub(super) static WAIT: Site = Site::new(Component::Lock, Pattern::Fixed, "lock wait");

/// Latches over lines.
const STRIPES: usize = if cfg!(loom) { 1 } else { 256 };

/// A manager over chains of either form.
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
    /// A manager of `count` chains, a power of two up to 2^31, over latches of `kind`.
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

    /// Calls `body` with the lines in front of a chain, under their latch and pinned.
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

    /// What is awaited in front of one chain.
    pub(super) fn waiting_modes(&self, queues: &WaitQueues, hash: u32) -> Set {
        let mask = self.chains.count() as u32 - 1;
        queues.waiting_modes(|other| (other ^ hash) & mask == 0)
    }

    pub(super) fn set_waiting_modes(&self, queues: &WaitQueues, hash: u32) {
        self.chains
            .set_waiting_modes(hash, self.waiting_modes(queues, hash));
    }

    /// Answers a request for which there is no segment left.
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

    /// Who has the place of `owner` now. A lock that is inherited outlives the transaction that took it.
    pub(super) fn current_owner(&self, owner: OwnerId) -> OwnerId {
        self.owners.record(owner.index()).id()
    }

    pub(super) fn blockers(&self, found: Vec<ChainConflict>) -> Vec<Blocker> {
        let blocker = |(owner, mode, waiting)| {
            let owner = self.current_owner(owner);
            self.owners.blocker(owner, mode, waiting)
        };
        found.into_iter().map(blocker).collect()
    }
}

/// Whether one of `holders` keeps `owner` from `mode`.
pub(super) fn any_conflict(holders: &[Holder], owner: OwnerId, mode: Mode) -> bool {
    let conflicts = mode.conflicts();
    holders.iter().any(|holder| {
        holder.mode.set().intersects(conflicts) && holder.owner.index() != owner.index()
    })
}
