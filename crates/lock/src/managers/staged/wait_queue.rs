//! Waiters in front of a chain. Plain data, changed under a latch.
//!
//! Holders are in the chains; a queue has only waiters, name by name. Only waiters, and owners that
//! release what they wait for, touch it.
//!
//! # Invariants
//!
//! * I1  A name has a queue exactly while it has waiters.
//! * I2  The first `conversions` of a queue are conversions, in the order they came; the others are
//!   new requests, in the order they came.
//! * I3  `counts` has for each component the number of waiters that want it.

use super::chain::{Holder, NewRequest};
use crate::{
    deadlock::{BlockingMode, WaitEdges},
    mode::{COMPONENTS, Mode, Set},
    name::Name,
    owner::owner_table::WaitTicket,
    request::OwnerId,
};
use foxton_sync::park::Ticket;
use std::collections::VecDeque;

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
}

impl ChainWaiter {
    pub(crate) fn wait_ticket(&self) -> WaitTicket {
        WaitTicket {
            owner_index: self.owner.index(),
            ticket: self.ticket,
        }
    }
}

/// Conflicting request: owner, mode, and whether it only waits.
pub(crate) type ChainConflict = (OwnerId, Mode, bool);

/// Waiters of one name.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    name: Name,
    hash: u32,
    waiters: VecDeque<ChainWaiter>,
    conversions: usize,
    counts: [u32; COMPONENTS],
    waiting_modes: Set,
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

    /// Adds a waiter at the end of its queue, or behind the last conversion if it is one.
    pub(crate) fn enqueue(&mut self, new: &NewRequest, request: u32, ticket: Ticket) -> &WaitQueue {
        let at = self.0.iter().position(|queue| queue.name == new.name);
        let at = at.unwrap_or_else(|| {
            self.0.push(WaitQueue::new(new.name, new.hash));
            self.0.len() - 1
        });
        let queue = &mut self.0[at];
        queue.enqueue(ChainWaiter {
            owner: new.owner,
            ticket,
            mode: new.mode,
            request,
            replaces: new.replaces,
        });
        queue
    }

    /// Removes the queue of `name` if it is empty (I1).
    pub(crate) fn remove_empty(&mut self, name: &Name) {
        self.0
            .retain(|queue| queue.name != *name || !queue.waiters.is_empty());
    }

    /// Returns the modes waited for in front of the chains that `is_chain` accepts.
    pub(crate) fn waiting_modes(&self, is_chain: impl Fn(u32) -> bool) -> Set {
        let queues = self.0.iter().filter(|queue| is_chain(queue.hash));
        queues.fold(Set::NONE, |all, queue| all.union(queue.waiting_modes))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &WaitQueue> {
        self.0.iter()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let waiters: usize = self.0.iter().map(|queue| queue.waiters.capacity()).sum();
        self.0.capacity() * size_of::<WaitQueue>() + waiters * size_of::<ChainWaiter>()
    }
}

impl WaitQueue {
    fn new(name: Name, hash: u32) -> Self {
        Self {
            name,
            hash,
            waiters: VecDeque::new(),
            conversions: 0,
            counts: [0; COMPONENTS],
            waiting_modes: Set::NONE,
        }
    }

    pub(crate) fn name(&self) -> Name {
        self.name
    }

    pub(crate) fn hash(&self) -> u32 {
        self.hash
    }

    fn enqueue(&mut self, waiter: ChainWaiter) {
        if waiter.replaces.is_some() {
            self.waiters.insert(self.conversions, waiter);
            self.conversions += 1;
        } else {
            self.waiters.push_back(waiter);
        }
        for component in waiter.mode.set().indices() {
            self.counts[component] += 1;
        }
        self.waiting_modes = self.waiting_modes.union(waiter.mode.set());
    }

    pub(crate) fn dequeue(&mut self, position: usize) -> ChainWaiter {
        let waiter = self
            .waiters
            .remove(position)
            .expect("a waiter is at the position");
        if position < self.conversions {
            self.conversions -= 1;
        }
        for component in waiter.mode.set().indices() {
            self.counts[component] -= 1;
            if self.counts[component] == 0 {
                self.waiting_modes = self.waiting_modes.minus(Set::one(component));
            }
        }
        waiter
    }

    pub(crate) fn position(&self, wait: WaitTicket) -> Option<usize> {
        self.waiters
            .iter()
            .position(|waiter| waiter.wait_ticket() == wait)
    }

    pub(crate) fn at(&self, position: usize) -> Option<ChainWaiter> {
        self.waiters.get(position).copied()
    }

    /// Returns the waiters, first come first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ChainWaiter> {
        self.waiters.iter()
    }

    /// Returns the position of a request that comes now.
    pub(crate) fn position_of_next(&self, is_conversion: bool) -> usize {
        if is_conversion {
            self.conversions
        } else {
            self.waiters.len()
        }
    }

    /// Returns the modes of the waiters ahead of a request that comes now.
    pub(crate) fn ahead_of_next(&self, is_conversion: bool) -> Set {
        let ahead = self
            .waiters
            .iter()
            .take(self.position_of_next(is_conversion));
        if is_conversion {
            ahead.fold(Set::NONE, |all, waiter| all.union(waiter.mode.set()))
        } else {
            self.waiting_modes
        }
    }

    /// True if all waiters from `position` on are new requests and conflict with a granted or
    /// earlier waiting mode, whatever their own mode is. Then hundreds of waiting writers need not
    /// be visited.
    pub(crate) fn rest_is_blocked(&self, position: usize, granted: Set, ahead: Set) -> bool {
        let blocked = granted.union(ahead).conflicts();
        position >= self.conversions && self.waiting_modes.minus(blocked).is_empty()
    }

    /// Returns the requests that block a request of `owner` for `mode` at `position`: see
    /// [`conflicting`].
    pub(crate) fn conflicting(
        &self,
        holders: &[Holder],
        owner: OwnerId,
        mode: Mode,
        position: usize,
    ) -> Vec<ChainConflict> {
        let mut found = conflicting(holders, owner, mode);
        let ahead = self.waiters.iter().take(position);
        let conflicting = ahead
            .filter(|waiter| waiter.owner != owner && !waiter.mode.compatible(mode))
            .map(|waiter| (waiter.owner, waiter.mode, true));
        found.extend(conflicting);
        found
    }

    /// Returns the mode in which `blocker` blocks `wait`, if that still waits.
    pub(crate) fn blocking_mode(
        &self,
        holders: &[Holder],
        wait: WaitTicket,
        blocker: u32,
    ) -> Option<BlockingMode> {
        let position = self.position(wait)?;
        let waiter = self.waiters[position];
        let conflicting = self.conflicting(holders, waiter.owner, waiter.mode, position);
        let found = conflicting
            .into_iter()
            .find(|(owner, ..)| owner.index() == blocker);
        found.map(|(_, mode, waits)| BlockingMode {
            mode,
            holds: !waits,
        })
    }

    /// Returns the owners that the waiter at `position` waits for, directly or through other
    /// waiters of this queue.
    pub(crate) fn wait_edges(&self, holders: &[Holder], position: usize, target: u32) -> WaitEdges {
        let start = self.waiters[position];
        let ahead = self.waiters.iter().take(position).rev();
        let granted = holders
            .iter()
            .fold(Set::NONE, |all, holder| all.union(holder.mode.set()));
        WaitEdges::collect(
            (start.owner.index(), start.mode),
            ahead.map(|waiter| (waiter.wait_ticket(), waiter.mode)),
            granted,
            holders
                .iter()
                .map(|holder| (holder.owner.index(), holder.mode)),
            target,
        )
    }

    /// Panics if an invariant is broken.
    pub(crate) fn verify(&self) {
        assert!(!self.waiters.is_empty(), "I1 of {}", self.name);
        let mut counts = [0; COMPONENTS];
        for waiter in &self.waiters {
            waiter
                .mode
                .set()
                .indices()
                .for_each(|component| counts[component] += 1);
        }
        assert_eq!(counts, self.counts, "I3 of {}", self.name);
        for (component, &count) in counts.iter().enumerate() {
            let set = self.waiting_modes.intersects(Set::one(component));
            assert_eq!(set, count > 0, "I3 of {}", self.name);
        }
        for (position, waiter) in self.waiters.iter().enumerate() {
            let converts = waiter.replaces.is_some();
            assert_eq!(converts, position < self.conversions, "I2 of {}", self.name);
        }
    }
}

/// Returns the holders that block a request of `owner` for `mode`, each owner once.
pub(crate) fn conflicting(holders: &[Holder], owner: OwnerId, mode: Mode) -> Vec<ChainConflict> {
    let mut found: Vec<ChainConflict> = Vec::new();
    for holder in holders {
        let owner_index = holder.owner.index();
        let conflicts = owner_index != owner.index() && !holder.mode.compatible(mode);
        if conflicts && found.iter().all(|(other, ..)| other.index() != owner_index) {
            found.push((holder.owner, holder.mode, false));
        }
    }
    found
}
