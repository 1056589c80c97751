//! Lock head: the holders and waiters of one name. Plain data, changed under the latch of its
//! bucket.
//!
//! # State
//!
//! Granted requests are in slots that do not move, so an owner finds its request by the slot in a
//! name held by hundreds at once. A waiter is in the queue, with the mode that it will hold, and
//! gets a slot when it is granted. A conversion is a granted request that is in the queue as well.
//! So nothing here visits all waiters to find the holders.
//!
//! ```text
//! requests   0: t1 S    1: free    2: t2 S
//! queue      t1 -> X (conversion)  |  t5 -> S
//! granted    S, counted 2          waiting    X and S
//! ```
//!
//! # Invariants
//!
//! * I1  `counts` has for each component the number of granted requests with it, and `granted` is
//!   the set of components with a count above zero.
//! * I2  `waiting_modes` is the union of the modes in the queue; empty exactly if there is no
//!   waiter.
//! * I3  The conversions of the queue are in the order they came. So are the new requests behind
//!   them, except for `reorder` and `move_forward`.
//! * I4  Between two calls no waiter can be granted: each conflicts with an earlier one in the
//!   queue, or with the granted mode of another owner.
//! * I5  Slots without a granted mode are free, and chained from `free`.
//! * I6  `last_grant` is a waiter that `grant_waiters` granted a new request, and its slot. No
//!   waiter was granted after it, and no thread has tried to end its wait since. If that grant can
//!   still be revoked, its request is in its slot and holds the mode that it waited for.

mod barging;
mod conflicts;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use barging::{BargingAttempt, MAX_BARGES, Millis};
pub(crate) use conflicts::ConflictingRequests;

use crate::{
    mode::{COMPONENTS, Mode, Set},
    name::Name,
    owner::owner_table::WaitTicket,
    wait_list::{WaitList, WaitOrder, Waiter},
};
use foxton_sync::park::Ticket;
use smallvec::SmallVec;

/// No slot: the end of the chain of free slots.
const NO_SLOT: u32 = u32::MAX;
/// Maximum number of later requests put before one waiter, unless more waiters than that were ahead
/// of it when it came. Then the maximum is their number, up to 255. So a wait is twice as many
/// turns as in the order of arrival, or eight more.
pub(crate) const MAX_OVERTAKEN: u8 = 8;
/// Number of slots above which storage is freed when a name becomes vacant.
const MAX_KEPT_SLOTS: usize = 1024;

#[derive(Debug, Clone, Copy)]
struct RequestSlot {
    /// The owner; for a free slot, the next free one.
    owner_index: u32,
    /// Mode that is held; empty for a free slot.
    granted: Set,
}

impl RequestSlot {
    fn free(next: u32) -> Self {
        Self {
            owner_index: next,
            granted: Set::NONE,
        }
    }
}

// Two requests need no more space than the pointer and length of those that do not fit.
const _: () = assert!(size_of::<RequestSlot>() == 8);

/// Waiter in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadWaiter {
    pub(crate) owner_index: u32,
    pub(crate) ticket: Ticket,
    /// Mode that it will hold once granted.
    pub(crate) mode: Mode,
    /// For a conversion, the mode that it holds; otherwise empty.
    held: Set,
    /// For a conversion, the slot of its granted request.
    held_slot: u32,
    /// Number of later requests that were put before it, or barged past it.
    pub(crate) overtaken: u8,
    /// Maximum number of later requests put before it.
    max_overtaken: u8,
    /// Number of owners that waited for it, when it came or was last counted.
    pub(crate) weight: u32,
    /// Time of the first barging past it, if there was one.
    barged_since: Millis,
}

impl Waiter for HeadWaiter {
    fn wait_ticket(&self) -> WaitTicket {
        self.wait()
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn held(&self) -> Set {
        self.held
    }
}

impl HeadWaiter {
    pub(crate) fn wait(&self) -> WaitTicket {
        let Self {
            owner_index,
            ticket,
            ..
        } = *self;
        WaitTicket {
            owner_index,
            ticket,
        }
    }

    /// True if it is a conversion.
    pub(crate) fn converts(&self) -> bool {
        !self.held.is_empty()
    }

    /// True if a later request may be put before it.
    pub(crate) fn may_be_overtaken(&self) -> bool {
        self.overtaken < self.max_overtaken
    }

    /// True if a later request of this weight may be put before it.
    fn gives_way_to(&self, weight: u32) -> bool {
        self.may_be_overtaken() && self.weight < weight
    }
}

/// Grant to a waiter: the waiter, its slot, and the order that it had in the queue.
#[derive(Debug, Clone, Copy)]
struct LatestGrant {
    waiter: HeadWaiter,
    slot: u32,
    order: WaitOrder,
}

/// Waiters, and the latest grant to one of them.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct HeadQueue {
    waiters: WaitList<HeadWaiter>,
    /// The latest grant, whose owner may not have seen it (I6).
    last_grant: Option<LatestGrant>,
    /// No request barges past a waiter of this order or a lower one.
    barging_after: Option<WaitOrder>,
}

/// One name with its requests.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct LockHead {
    name: Name,
    counts: [u32; COMPONENTS],
    requests: SmallVec<[RequestSlot; 2]>,
    queue: Option<Box<HeadQueue>>,
    free: u32,
    granted: Set,
    waiting_modes: Set,
}

// A bucket with one head and its latch fit the pair of cache lines that the processor fetches.
const _: () = assert!(size_of::<LockHead>() <= 96);

/// Conflicting request: owner index, mode, and whether it only waits.
pub(crate) type ConflictingRequest = (u32, Mode, bool);

impl LockHead {
    pub(crate) fn new(name: Name) -> Self {
        Self {
            name,
            counts: [0; COMPONENTS],
            requests: SmallVec::new(),
            queue: None,
            free: NO_SLOT,
            granted: Set::NONE,
            waiting_modes: Set::NONE,
        }
    }

    #[inline]
    pub(crate) fn name(&self) -> Name {
        self.name
    }

    /// True if the name has no holder and no waiter.
    #[inline]
    pub(crate) fn is_vacant(&self) -> bool {
        self.granted.union(self.waiting_modes).is_empty()
    }

    /// Gives a vacant head to another name, with all its storage.
    #[inline]
    pub(crate) fn rename(&mut self, name: Name) {
        debug_assert!(self.is_vacant());
        self.name = name;
    }

    /// Drops the slots of a vacant head, if there are many, and frees unusually large storage. A
    /// few free slots are as good for the next name as none.
    #[inline]
    pub(crate) fn reset(&mut self) {
        debug_assert!(self.is_vacant());
        if self.requests.spilled() {
            self.clear_slots();
        }
    }

    #[inline(never)]
    pub(super) fn clear_slots(&mut self) {
        if self.requests.len() > MAX_KEPT_SLOTS {
            self.requests = SmallVec::new();
        }
        self.requests.clear();
        self.free = NO_SLOT;
    }

    /// Grants a new request, if it conflicts with no earlier one.
    #[inline]
    pub(crate) fn acquire(&mut self, owner_index: u32, mode: Mode) -> Option<u32> {
        if mode
            .conflicts()
            .intersects(self.granted.union(self.waiting_modes))
        {
            return None;
        }
        self.count_granted(mode.set());
        Some(self.take_slot(owner_index, mode.set()))
    }

    /// Grants a request that is granted elsewhere, whatever conflicts.
    pub(crate) fn enter(&mut self, owner_index: u32, mode: Mode) -> u32 {
        self.count_granted(mode.set());
        self.take_slot(owner_index, mode.set())
    }

    /// True if another granted request conflicts with `mode`, which is granted in `slot`.
    pub(crate) fn has_conflict(&self, slot: u32, mode: Mode) -> bool {
        let own = self.requests[slot as usize].granted;
        mode.conflicts().intersects(self.granted_by_others(own))
    }

    /// Returns the slot of the granted request of the owner at `owner_index`.
    pub(crate) fn slot_of(&self, owner_index: u32) -> u32 {
        let is_it = |request: &RequestSlot| {
            request.owner_index == owner_index && !request.granted.is_empty()
        };
        let slot = self.requests.iter().position(is_it);
        slot.expect("a lock that is held has a slot") as u32
    }

    /// Converts the request in `slot` to the mode `target`, which covers its mode, if no other
    /// owner's granted mode and no earlier conversion conflicts.
    #[inline]
    pub(crate) fn convert(&mut self, slot: u32, target: Mode) -> bool {
        let own = self.requests[slot as usize].granted;
        let ahead = self.conversion_modes();
        if target
            .conflicts()
            .intersects(self.granted_by_others(own).union(ahead))
        {
            return false;
        }
        self.set_granted(slot, target.set());
        true
    }

    /// Adds a request at the end of the queue, or behind the last conversion if it is one.
    pub(crate) fn enqueue(
        &mut self,
        owner_index: u32,
        ticket: Ticket,
        mode: Mode,
        converts: Option<u32>,
    ) -> HeadWaiter {
        let ahead = u8::try_from(self.queue_length()).unwrap_or(u8::MAX);
        let max_overtaken = MAX_OVERTAKEN.max(ahead);
        let held = converts.map(|slot| self.requests[slot as usize].granted);
        let waiter = HeadWaiter {
            owner_index,
            ticket,
            mode,
            held: held.unwrap_or(Set::NONE),
            held_slot: converts.unwrap_or(NO_SLOT),
            overtaken: 0,
            max_overtaken,
            weight: 0,
            barged_since: 0,
        };
        self.queue.get_or_insert_default().waiters.push(waiter);
        self.waiting_modes = self.waiting_modes.union(mode.set());
        waiter
    }

    /// Ends the granted request in `slot`. `grant_waiters` grants the requests that it blocked.
    #[inline]
    pub(crate) fn release(&mut self, slot: u32) {
        let free = RequestSlot::free(self.free);
        let request = std::mem::replace(&mut self.requests[slot as usize], free);
        self.free = slot;
        self.discount_granted(request.granted);
    }

    /// Gives the granted request in `slot` back its former, weaker mode.
    pub(crate) fn revert(&mut self, slot: u32, former: Mode) {
        self.set_granted(slot, former.set());
    }

    /// Removes a waiter from the queue. Returns false if it is not there, because its wait has
    /// ended. `grant_waiters` grants those behind it.
    pub(crate) fn withdraw(&mut self, wait: WaitTicket) -> bool {
        self.dequeue(wait).is_some()
    }

    /// True if there are waiters, which a release may unblock.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiting_modes.is_empty()
    }

    /// Grants all waiters that can be granted now, first come first (I4). Shows each to `granted`,
    /// with the slot of its request.
    pub(crate) fn grant_waiters(&mut self, mut granted: impl FnMut(HeadWaiter, u32)) {
        let Some(waiters) = self.waiters() else {
            return;
        };
        let mut scan = waiters.scan();
        let mut ahead = Set::NONE;
        while let Some(waiters) = self.waiters()
            && let Some((order, waiter)) = scan.next(waiters)
        {
            let blocking = self.granted_by_others(waiter.held).union(ahead);
            if waiter.mode.conflicts().intersects(blocking) {
                ahead = ahead.union(waiter.mode.set());
                scan.pass_class(&waiter);
                continue;
            }
            self.dequeue(waiter.wait());
            let slot = match waiter.held.is_empty() {
                true => {
                    self.count_granted(waiter.mode.set());
                    self.take_slot(waiter.owner_index, waiter.mode.set())
                }
                false => {
                    self.set_granted(waiter.held_slot, waiter.mode.set());
                    waiter.held_slot
                }
            };
            let queue = self.queue.as_mut().expect("the queue had a waiter");
            queue.last_grant = waiter.held.is_empty().then_some(LatestGrant {
                waiter,
                slot,
                order,
            });
            scan.pass(&queue.waiters, order, &waiter);
            granted(waiter, slot);
        }
    }

    /// Moves new requests with more weight before those with less, and returns the waiters that
    /// moved. If there are any, call `grant_waiters`. Each waiter is overtaken only up to its
    /// maximum, and equal weights stay in order. Without this call the queue is in the order of
    /// arrival (I3).
    ///
    /// A grant considers all requests that are ahead in the queue, and not how they got there. So
    /// no order can grant two conflicting requests.
    pub(crate) fn reorder(
        &mut self,
        weight: impl Fn(&HeadWaiter) -> u32,
    ) -> SmallVec<[WaitTicket; 4]> {
        let mut moved = SmallVec::new();
        let Some(queue) = self.queue.as_mut() else {
            return moved;
        };
        queue.waiters.rearrange(|waiters| {
            for waiter in &mut *waiters {
                waiter.weight = weight(waiter);
            }
            for from in 1..waiters.len() {
                let waiter = waiters[from];
                let ahead = waiters[..from].iter().rev();
                let passed = ahead.take_while(|other| other.gives_way_to(waiter.weight));
                let to = from - passed.count();
                if to < from {
                    waiters[to..from]
                        .iter_mut()
                        .for_each(|other| other.overtaken += 1);
                    waiters[to..=from].rotate_right(1);
                    moved.push(waiter.wait());
                }
            }
            !moved.is_empty()
        });
        moved
    }

    /// Sets a waiter's weight, and moves it before those with less, in the same way, unless it
    /// converts. If it moved, call `grant_waiters`.
    pub(crate) fn move_forward(&mut self, wait: WaitTicket, weight: u32) -> bool {
        let Some(queue) = self.queue.as_mut() else {
            return false;
        };
        let waiters = &mut queue.waiters;
        let is_new = |(_, waiter): (WaitOrder, HeadWaiter)| waiter.held.is_empty();
        waiters.update(wait, |waiter| waiter.weight = weight);
        waiters.get(wait).is_some_and(is_new)
            && waiters.move_forward(
                wait,
                |other| other.gives_way_to(weight),
                |other| other.overtaken += 1,
            )
    }

    /// Returns the queue, if there ever was one.
    pub(crate) fn waiters(&self) -> Option<&WaitList<HeadWaiter>> {
        self.queue.as_ref().map(|queue| &queue.waiters)
    }

    /// Returns a waiter and its order, if it is in the queue.
    pub(crate) fn find(&self, wait: WaitTicket) -> Option<(WaitOrder, HeadWaiter)> {
        self.waiters()?.get(wait)
    }

    fn dequeue(&mut self, wait: WaitTicket) -> Option<HeadWaiter> {
        let waiters = &mut self.queue.as_mut()?.waiters;
        let waiter = waiters.remove(wait)?;
        self.waiting_modes = waiters.modes();
        Some(waiter)
    }

    /// Returns the modes of waiting conversions.
    fn conversion_modes(&self) -> Set {
        self.waiters()
            .map_or(Set::NONE, |waiters| waiters.modes_ahead(true))
    }

    /// Returns the modes granted to owners other than a holder of `own`.
    #[inline]
    fn granted_by_others(&self, own: Set) -> Set {
        let alone = own
            .indices()
            .filter(|&component| self.counts[component] == 1);
        alone.fold(self.granted, |besides, component| {
            besides.minus(Set::one(component))
        })
    }

    #[inline]
    fn count_granted(&mut self, mode: Set) {
        for component in mode.indices() {
            self.counts[component] += 1;
        }
        self.granted = self.granted.union(mode);
    }

    #[inline]
    fn discount_granted(&mut self, mode: Set) {
        for component in mode.indices() {
            self.counts[component] -= 1;
            if self.counts[component] == 0 {
                self.granted = self.granted.minus(Set::one(component));
            }
        }
    }

    fn set_granted(&mut self, slot: u32, mode: Set) {
        self.discount_granted(self.requests[slot as usize].granted);
        self.count_granted(mode);
        self.requests[slot as usize].granted = mode;
    }

    #[inline]
    fn take_slot(&mut self, owner_index: u32, granted: Set) -> u32 {
        let request = RequestSlot {
            owner_index,
            granted,
        };
        let slot = self.free;
        if slot == NO_SLOT {
            return self.add_slot(request);
        }
        let free = std::mem::replace(&mut self.requests[slot as usize], request);
        self.free = free.owner_index;
        slot
    }

    #[inline(never)]
    fn add_slot(&mut self, request: RequestSlot) -> u32 {
        self.requests.push(request);
        self.requests.len() as u32 - 1
    }

    /// Returns the holders: owner index and mode.
    pub(crate) fn holders(&self) -> impl Iterator<Item = (u32, Mode)> {
        let granted = self
            .requests
            .iter()
            .filter(|request| !request.granted.is_empty());
        granted.map(|request| (request.owner_index, Mode::of(request.granted)))
    }

    /// Returns the waiters, first come first. Not for a hot path.
    #[cfg(test)]
    pub(crate) fn queue(&self) -> std::vec::IntoIter<HeadWaiter> {
        self.waiters()
            .map_or(Vec::new(), WaitList::sorted)
            .into_iter()
    }

    /// Returns the number of waiters.
    pub(crate) fn queue_length(&self) -> usize {
        self.waiters().map_or(0, WaitList::len)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let slots = if self.requests.spilled() {
            self.requests.capacity()
        } else {
            0
        };
        let queue = self.queue.as_ref().map_or(0, |queue| {
            size_of::<HeadQueue>() + queue.waiters.memory_bytes()
        });
        slots * size_of::<RequestSlot>() + queue
    }

    /// Panics if an invariant is broken.
    pub(crate) fn verify(&self) {
        let mut counts = [0; COMPONENTS];
        for (_, mode) in self.holders() {
            mode.set()
                .indices()
                .for_each(|component| counts[component] += 1);
        }
        assert_eq!(counts, self.counts, "I1 of {}", self.name);
        for (component, &count) in counts.iter().enumerate() {
            let set = self.granted.intersects(Set::one(component));
            assert_eq!(set, count > 0, "I1 of {}", self.name);
        }
        if let Some(waiters) = self.waiters() {
            waiters.verify();
        }
        let waiting_modes = self.waiters().map_or(Set::NONE, WaitList::modes);
        assert_eq!(waiting_modes, self.waiting_modes, "I2 of {}", self.name);
        let mut ahead = Set::NONE;
        for waiter in self.waiters().map_or(Vec::new(), WaitList::sorted) {
            if let Some(request) = self.requests.get(waiter.held_slot as usize) {
                assert_eq!(request.owner_index, waiter.owner_index, "{}", self.name);
                assert_eq!(request.granted, waiter.held, "{}", self.name);
            }
            let blocking = self.granted_by_others(waiter.held).union(ahead);
            assert!(
                waiter.mode.conflicts().intersects(blocking),
                "I4: a waiter could be granted {}",
                self.name
            );
            ahead = ahead.union(waiter.mode.set());
        }
        let free = std::iter::successors(Some(self.free), |&slot| {
            Some(self.requests.get(slot as usize)?.owner_index)
        });
        let free = free.take_while(|&slot| slot != NO_SLOT).count();
        let holders: Vec<(u32, Mode)> = self.holders().collect();
        assert_eq!(
            free + holders.len(),
            self.requests.len(),
            "I5 of {}",
            self.name
        );
        for (at, &(owner_index, mode)) in holders.iter().enumerate() {
            for &(other, held) in &holders[..at] {
                assert!(
                    mode.compatible(held),
                    "L1: {mode} and {held} on {}",
                    self.name
                );
                assert_ne!(
                    owner_index, other,
                    "two requests of one owner on {}",
                    self.name
                );
            }
        }
    }
}
