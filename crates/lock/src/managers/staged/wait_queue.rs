//! Waiters in front of a chain. Plain data, changed under a latch.
//!
//! Holders are in the chains; a queue has only waiters, name by name. Only waiters, and owners that
//! release what they wait for, touch it.
//!
//! # Invariants
//!
//! * I1  A name has a queue exactly while it has waiters.
//! * I2  The waiters are in the order they came, but conversions before new requests.

use super::chain::{Holder, NewRequest};
use crate::{
    deadlock::{BlockingMode, WaitEdges},
    mode::{COMPONENTS, Mode, Set},
    name::Name,
    owner::owner_table::WaitTicket,
    request::{MAX_BLOCKERS, OwnerId},
    wait_list::{WaitList, WaitOrder, Waiter},
};
use foxton_sync::park::Ticket;

/// Waiter in a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainWaiter {
    pub(crate) owner: OwnerId,
    pub(crate) ticket: Ticket,
    /// Mode that it will hold once granted.
    pub(crate) mode: Mode,
    /// The request that it waits with.
    pub(crate) request: u32,
    /// For a conversion, the request that holds the weaker mode.
    pub(crate) replaces: Option<u32>,
    /// The weaker mode; empty for a new request.
    pub(crate) held: Set,
}

impl Waiter for ChainWaiter {
    fn wait_ticket(&self) -> WaitTicket {
        WaitTicket {
            owner_index: self.owner.index(),
            ticket: self.ticket,
        }
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn held(&self) -> Set {
        self.held
    }
}

/// Conflicting request: owner, mode, and whether it only waits.
pub(crate) type ChainConflict = (OwnerId, Mode, bool);

/// Conflicting requests: some of them, and how many more there are.
#[derive(Debug, Default)]
pub(crate) struct ChainConflicts {
    pub(crate) listed: Vec<ChainConflict>,
    pub(crate) more: usize,
}

/// Modes of the holders of a name, counted, so that a thread which grants hundreds of waiters need
/// not visit all holders for each of them.
#[derive(Debug)]
pub(crate) struct HolderModes([u32; COMPONENTS]);

impl HolderModes {
    pub(crate) fn of(holders: &[Holder]) -> Self {
        let mut modes = Self([0; COMPONENTS]);
        holders
            .iter()
            .for_each(|holder| modes.add(holder.mode.set()));
        modes
    }

    fn add(&mut self, mode: Set) {
        mode.indices().for_each(|component| self.0[component] += 1);
    }

    /// Counts a grant to a waiter that held `held`.
    pub(crate) fn grant(&mut self, mode: Mode, held: Set) {
        held.indices().for_each(|component| self.0[component] -= 1);
        self.add(mode.set());
    }

    /// Returns the modes of the holders besides one that holds `held`.
    pub(crate) fn besides(&self, held: Set) -> Set {
        let counted = (0..COMPONENTS).filter(|&component| {
            let own = u32::from(held.intersects(Set::one(component)));
            self.0[component] > own
        });
        counted.fold(Set::NONE, |all, component| all.union(Set::one(component)))
    }
}

/// Waiters of one name.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    name: Name,
    hash: u32,
    waiters: WaitList<ChainWaiter>,
}

/// Queues of all chains that share a latch.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues(Vec<WaitQueue>);

impl WaitQueues {
    pub(crate) fn get(&self, name: &Name) -> Option<&WaitQueue> {
        self.0.iter().find(|queue| queue.name == *name)
    }

    pub(crate) fn get_mut(&mut self, name: &Name) -> Option<&mut WaitQueue> {
        self.0.iter_mut().find(|queue| queue.name == *name)
    }

    /// Adds a waiter at the end of its queue, or behind the last conversion if it is one, which
    /// holds `held`.
    pub(crate) fn enqueue(
        &mut self,
        new: &NewRequest,
        held: Set,
        request: u32,
        ticket: Ticket,
    ) -> &WaitQueue {
        let at = self.0.iter().position(|queue| queue.name == new.name);
        let at = at.unwrap_or_else(|| {
            self.0.push(WaitQueue::new(new.name, new.hash));
            self.0.len() - 1
        });
        let queue = &mut self.0[at];
        queue.waiters.push(ChainWaiter {
            owner: new.owner,
            ticket,
            mode: new.mode,
            request,
            replaces: new.replaces,
            held,
        });
        queue
    }

    /// Removes the queue of `name` if it is empty (I1).
    pub(crate) fn remove_empty(&mut self, name: &Name) {
        let at = self.0.iter().position(|queue| queue.name == *name);
        if let Some(at) = at.filter(|&at| self.0[at].waiters.is_empty()) {
            self.0.swap_remove(at);
        }
    }

    /// Returns the modes waited for in front of the chains that `is_chain` accepts.
    pub(crate) fn waiting_modes(&self, is_chain: impl Fn(u32) -> bool) -> Set {
        let queues = self.0.iter().filter(|queue| is_chain(queue.hash));
        queues.fold(Set::NONE, |all, queue| all.union(queue.waiters.modes()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &WaitQueue> {
        self.0.iter()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let waiters = self.0.iter().map(|queue| queue.waiters.memory_bytes());
        self.0.capacity() * size_of::<WaitQueue>() + waiters.sum::<usize>()
    }
}

impl WaitQueue {
    fn new(name: Name, hash: u32) -> Self {
        Self {
            name,
            hash,
            waiters: WaitList::default(),
        }
    }

    pub(crate) fn name(&self) -> Name {
        self.name
    }

    pub(crate) fn hash(&self) -> u32 {
        self.hash
    }

    /// Returns the waiters.
    pub(crate) fn waiters(&self) -> &WaitList<ChainWaiter> {
        &self.waiters
    }

    pub(crate) fn dequeue(&mut self, wait: WaitTicket) -> Option<ChainWaiter> {
        self.waiters.remove(wait)
    }

    /// Returns the requests that block a request of `owner` for `mode` at `order`: holders, and
    /// then waiters, first come first.
    pub(crate) fn conflicting(
        &self,
        holders: &[Holder],
        owner: OwnerId,
        mode: Mode,
        order: WaitOrder,
    ) -> ChainConflicts {
        let mut found = conflicting(holders, owner, mode);
        let most = MAX_BLOCKERS - found.listed.len();
        let ahead = self.waiters.conflicting_before(order, mode, most);
        found.more += self
            .waiters
            .count_conflicting(order, mode)
            .saturating_sub(ahead.len());
        let ahead = ahead.iter();
        found
            .listed
            .extend(ahead.map(|waiter| (waiter.owner, waiter.mode, true)));
        found
    }

    /// Returns the mode in which `blocker` blocks `wait`, if that still waits.
    pub(crate) fn blocking_mode(
        &self,
        holders: &[Holder],
        wait: WaitTicket,
        blocker: u32,
    ) -> Option<BlockingMode> {
        let (order, waiter) = self.waiters.get(wait)?;
        let blocks = |mode: Mode| blocker != waiter.owner.index() && !mode.compatible(waiter.mode);
        let holds = |holder: &&Holder| holder.owner.index() == blocker && blocks(holder.mode);
        if let Some(&Holder { mode, .. }) = holders.iter().find(holds) {
            return Some(BlockingMode { mode, holds: true });
        }
        let (before, other) = self.waiters.get_owner(blocker)?;
        (before < order && blocks(other.mode)).then_some(BlockingMode {
            mode: other.mode,
            holds: false,
        })
    }

    /// Returns the owners that a waiter waits for, directly or through other waiters of this queue;
    /// `None` if it has left the queue.
    pub(crate) fn wait_edges(
        &self,
        holders: &[Holder],
        wait: WaitTicket,
        target: u32,
    ) -> Option<WaitEdges> {
        let start = self.waiters.get(wait)?;
        let granted = HolderModes::of(holders).besides(Set::NONE);
        let holders = holders.iter();
        Some(WaitEdges::collect(
            &self.waiters,
            start,
            granted,
            holders.map(|holder| (holder.owner.index(), holder.mode)),
            target,
        ))
    }

    /// Panics if an invariant is broken.
    pub(crate) fn verify(&self) {
        assert!(!self.waiters.is_empty(), "I1 of {}", self.name);
        self.waiters.verify();
        for (_, waiter) in self.waiters.unsorted() {
            let converts = waiter.replaces.is_some();
            assert_eq!(converts, !waiter.held.is_empty(), "I2 of {}", self.name);
        }
    }
}

/// Returns the holders that block a request of `owner` for `mode`, each owner once.
pub(crate) fn conflicting(holders: &[Holder], owner: OwnerId, mode: Mode) -> ChainConflicts {
    let mut found = ChainConflicts::default();
    for holder in holders {
        let owner_index = holder.owner.index();
        let conflicts = owner_index != owner.index() && !holder.mode.compatible(mode);
        if conflicts && found.listed.len() == MAX_BLOCKERS {
            found.more += 1;
        } else if conflicts
            && found
                .listed
                .iter()
                .all(|(other, ..)| other.index() != owner_index)
        {
            found.listed.push((holder.owner, holder.mode, false));
        }
    }
    found
}
