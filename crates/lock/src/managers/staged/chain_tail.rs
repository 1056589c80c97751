//! Chains that grow at the tail: the form of the paper.
//!
//! # State
//!
//! Each hash bucket has a chain of requests from the oldest to the newest, of any names; its head,
//! its tail, and a word with the modes waited for and the number of ended requests.
//!
//! ```text
//!   head --> t2 X (obsolete) --> t4 X active --> t7 X waiting --> t9 S asking <-- tail
//! ```
//!
//! A thread writes a new request in state *asking*, exchanges the tail for it (S1), and links it
//! from its predecessor. Then it walks the chain from the head to its request. If it finds a
//! request of the same name that is not obsolete and conflicts, its own becomes *waiting* (S2) and
//! goes to the queue; otherwise it becomes *active*. Between the exchange and the link the chain is
//! interrupted, and a thread that comes there waits for the link. A released request is *obsolete*
//! (S6), and is unlinked by a passing thread when there are enough of them.
//!
//! # Invariants
//!
//! * I1  Requests are in the chain in the order of their exchanges of the tail.
//! * I2  A request without a linked successor is not unlinked. So no thread links behind a request
//!   that has been taken out.
//! * I3  Only the thread that set `cleaning` unlinks requests.
//! * I4  A thread that goes to the queue has walked to its own request: all earlier ones are
//!   linked.
//!
//! # Why L1 holds
//!
//! Of two requests of one name whose modes conflict, one exchanged the tail later (I1) and walked
//! past the other, or past the place where it had been. While the other is asking, active or
//! waiting, the later one goes to the queue. There, under the latch, it is granted only when no
//! asking or active request conflicts. No earlier one does, because it sees them all (I4). No later
//! one does, because those see it, and come to the same latch.
//!
//! # Why no wake-up is lost
//!
//! As in `chain_stack`: the waiter changes the word (`announce`), then reads the states; the
//! releasing thread marks its request, then changes the word and reads there whether there are
//! waiters. The paper has full fences in these places (S2 to S7) and walks the rest of the chain
//! for waiters. A read-modify-write of one word costs as much as a fence, and saves the walk when
//! there are no waiters.
//!
//! # Orderings
//!
//! * O1  linking (Release) to walking (Acquire): a thread that finds a request reads it whole.
//! * O2  the exchange of the tail (Release) to the next (Acquire): a thread that links from a
//!   predecessor comes after that was written.
//! * O3  marking obsolete (Release) to reading the state (Acquire): a thread that passes an
//!   obsolete request comes after everything its owner did while it held the lock.
//! * O4  `release` (Release) to `announce` (Acquire), on the word: a thread that announces a wait
//!   after a release finds the request obsolete.
//! * O5  the end of cleaning (Release) to its next beginning (Acquire): a thread that unlinks comes
//!   after all earlier unlinking.
//!
//! # Differences from the paper
//!
//! A request that is not yet known to be granted is *asking* instead of *active*, so that `inspect`
//! does not show it as a holder. One thread at a time unlinks obsolete requests, instead of a
//! compare-and-exchange on each link, because two threads that unlink neighbours at once would
//! bring one of them back.

use super::{
    chain::{
        Chains, Holder, Holders, NewRequest, NotGranted, ReleasedRequest, assert_compatible, holder,
    },
    lock_index::{LockIndex, RetiredRequests},
    request::{ChainRequest, ChainRequestState},
};
use crate::{mode::Set, name::Name, owner::owner_table::ReservedRequests};
use foxton_sync::{
    backoff::Backoff,
    cache_line::{CachePadded, prefetch_to_write},
    shim::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    site::{Component, Pattern, Site},
    worker::Worker,
};
use std::ptr;

static CHAIN: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock chain");

/// Number of dead requests that a chain may have before it is cleaned.
const TOLERATED: u64 = if cfg!(loom) { 1 } else { 8 };

/// Position of the modes waited for in a chain's word. Below it is the number of ended requests,
/// which only grows: a decrement that comes too early would borrow from the modes.
const WAITING: u32 = 56;

#[derive(Debug, Default)]
struct TailChain {
    head: AtomicU32,
    tail: AtomicU32,
    word: AtomicU64,
    /// Number of ended requests when the chain was last cleaned.
    cleaned: AtomicU64,
    cleaning: AtomicBool,
}

/// All chains.
#[derive(Debug)]
pub struct TailChains(Box<[CachePadded<TailChain>]>);

impl TailChain {
    /// Puts a written request at the tail.
    fn insert(&self, index: &LockIndex, number: u32) {
        let before = self.tail.swap(number, Ordering::AcqRel); // O2, I1
        if before == 0 {
            self.head.store(number, Ordering::Release); // O1
        } else {
            let before = index.request(before);
            // Checked only by the model, which has no other way to see two stores in the wrong
            // order.
            assert!(!cfg!(loom) || before.is_written(), "O2");
            before.set_next(number, Ordering::Release); // O1
        }
    }

    /// Returns the first request of a chain that is not empty, or is about to be not empty.
    fn first(&self) -> u32 {
        wait_for_link(|| self.head.load(Ordering::Acquire)) // O1
    }

    /// Returns the requests that are linked now. The caller is pinned.
    fn linked<'i>(&self, index: &'i LockIndex) -> impl Iterator<Item = (u32, &'i ChainRequest)> {
        let mut at = self.head.load(Ordering::Acquire); // O1
        std::iter::from_fn(move || {
            let number = (at != 0).then_some(at)?;
            let request = index.request(number);
            at = request.next(Ordering::Acquire); // O1
            Some((number, request))
        })
    }

    /// Unlinks obsolete requests, unless another thread does.
    #[cold]
    #[inline(never)]
    fn clean(&self, index: &LockIndex, retired: &mut RetiredRequests<'_>) {
        let is_cleaned = self.cleaning.swap(true, Ordering::Acquire); // O5
        if is_cleaned {
            return; // I3
        }
        let ended = count_ended(self.word.load(Ordering::Relaxed));
        let mut kept = None;
        let mut at = self.head.load(Ordering::Acquire); // O1
        while at != 0 {
            let request = index.request(at);
            let next = request.next(Ordering::Acquire); // O1
            let is_obsolete = request.state(Ordering::Acquire) == ChainRequestState::Obsolete; // O3
            if is_obsolete && next != 0 {
                match kept {
                    // A thread that comes this way reaches the next one as by the old link.
                    None => self.head.store(next, Ordering::Release), // O1
                    Some(kept) => index.request(kept).set_next(next, Ordering::Release), // O1
                }
                retired.add(at);
            } else {
                kept = Some(at);
            }
            at = next;
        }
        // Relaxed: it only decides when to clean again.
        self.cleaned.store(ended, Ordering::Relaxed);
        self.cleaning.store(false, Ordering::Release); // O5
    }

    fn waiting_modes(&self) -> Set {
        // Relaxed: changed only under the latch.
        Set::from_bits((self.word.load(Ordering::Relaxed) >> WAITING) as u8)
    }

    /// Marks a request obsolete and counts it. Returns the former word.
    fn end(&self, index: &LockIndex, number: u32) -> u64 {
        index
            .request(number)
            .set_state(ChainRequestState::Obsolete, Ordering::Release); // O3
        self.word.fetch_add(1, Ordering::Release) // O4
    }
}

fn count_ended(word: u64) -> u64 {
    word << 8 >> 8
}

/// Waits until a link is there that another thread is about to store.
fn wait_for_link(link: impl Fn() -> u32) -> u32 {
    let mut backoff = Backoff::new();
    loop {
        let found = link();
        if found != 0 {
            return found;
        }
        backoff.snooze();
    }
}

impl TailChains {
    #[inline]
    fn chain(&self, hash: u32) -> &TailChain {
        &self.0[hash as usize & (self.0.len() - 1)]
    }
}

impl Chains for TailChains {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| CachePadded::default()).collect())
    }

    #[inline]
    fn prefetch(&self, hash: u32) {
        prefetch_to_write(ptr::from_ref(self.chain(hash)).cast());
    }

    fn acquire(
        &self,
        index: &LockIndex,
        worker: &Worker,
        new: &NewRequest,
        _: &mut ReservedRequests,
    ) -> Result<u32, NotGranted> {
        worker.account().passed(&CHAIN);
        let number = index.take_shared(worker, 1).ok_or(NotGranted::Full)?;
        let request = index.request(number);
        request.write(&new.name, new.owner, new.mode, ChainRequestState::Asking);
        let chain = self.chain(new.hash);
        let _pinned = index.pin(worker);
        chain.insert(index, number);
        let conflicts = new.mode.conflicts();
        let (mut at, mut is_blocked) = (chain.first(), false);
        let mut is_contended = false;
        // All the way, even after a conflicting request was found (I4).
        while at != number {
            let earlier = index.request(at);
            is_blocked |= earlier.mode().set().intersects(conflicts)
                && earlier.is_for(&new.name)
                && earlier.state(Ordering::Acquire) != ChainRequestState::Obsolete // O3
                && earlier.owner().index() != new.owner.index();
            // Relaxed: counted only to show which locks are hot.
            is_contended |= earlier.state(Ordering::Relaxed) == ChainRequestState::Asking;
            at = wait_for_link(|| earlier.next(Ordering::Acquire)); // O1
        }
        if is_contended {
            worker.record_contention();
        }
        if is_blocked {
            // Relaxed: the announcement follows (O4), and until then it blocks others for nothing.
            request.set_state(ChainRequestState::Waiting, Ordering::Relaxed);
            return Err(NotGranted::Blocked(number));
        }
        request.set_state(ChainRequestState::Active, Ordering::Relaxed);
        if let Some(former) = new.replaces {
            chain.end(index, former);
        }
        Ok(number)
    }

    fn release(
        &self,
        index: &LockIndex,
        worker: &Worker,
        released: ReleasedRequest,
        retired: &mut RetiredRequests<'_>,
    ) -> bool {
        worker.account().passed(&CHAIN);
        let chain = self.chain(released.hash);
        let word = chain.end(index, released.request);
        let dead = count_ended(word).saturating_sub(chain.cleaned.load(Ordering::Relaxed));
        if dead >= TOLERATED {
            chain.clean(index, retired);
        }
        word >> WAITING != 0
    }

    fn announce(&self, hash: u32, mode: Set) {
        let mode = u64::from(mode.bits()) << WAITING;
        self.chain(hash).word.fetch_or(mode, Ordering::Acquire); // O4
    }

    fn set_waiting_modes(&self, hash: u32, waiting_modes: Set) {
        let chain = self.chain(hash);
        let changed = chain.waiting_modes().bits() ^ waiting_modes.bits();
        // Relaxed: `announce` has told the holders that must find a waiter.
        chain
            .word
            .fetch_xor(u64::from(changed) << WAITING, Ordering::Relaxed);
    }

    fn holders(&self, index: &LockIndex, hash: u32, name: &Name) -> Holders {
        let holds = |request: &ChainRequest| {
            let state = request.state(Ordering::Acquire); // O3
            matches!(state, ChainRequestState::Asking | ChainRequestState::Active)
                && request.is_for(name)
        };
        let linked = self.chain(hash).linked(index);
        linked
            .filter(|(_, request)| holds(request))
            .map(|(number, request)| holder(number, request))
            .collect()
    }

    fn grant(&self, index: &LockIndex, new: &NewRequest, number: u32, waiting_modes: Set) {
        index
            .request(number)
            .set_state(ChainRequestState::Active, Ordering::Relaxed);
        if let Some(former) = new.replaces {
            self.chain(new.hash).end(index, former);
        }
        self.set_waiting_modes(new.hash, waiting_modes);
    }

    fn write(&self, index: &LockIndex, new: &NewRequest, number: u32) {
        let request = index.request(number);
        request.write(&new.name, new.owner, new.mode, ChainRequestState::Active);
        self.chain(new.hash).insert(index, number);
    }

    fn withdraw(&self, index: &LockIndex, hash: u32, number: u32, _: &mut RetiredRequests<'_>) {
        // It is in the chain, and goes when that is cleaned.
        self.chain(hash).end(index, number);
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn is_empty(&self, at: usize) -> bool {
        // Relaxed: about this moment.
        self.0[at].head.load(Ordering::Relaxed) == 0
    }

    fn all(&self, index: &LockIndex, at: usize, each: &mut dyn FnMut(&Name, Holder)) {
        // O3
        let is_held =
            |request: &ChainRequest| request.state(Ordering::Acquire) == ChainRequestState::Active;
        let held: Vec<(u32, &ChainRequest)> = self.0[at]
            .linked(index)
            .filter(|(_, request)| is_held(request))
            .collect();
        // A holder at the beginning may have released before a holder at the end was granted. Those
        // that hold even now held at the moment between.
        for (number, request) in held.into_iter().filter(|(_, request)| is_held(request)) {
            each(&request.name(), holder(number, request));
        }
    }

    fn verify(&self, index: &LockIndex, at: usize, waiting_modes: Set) {
        assert_eq!(self.0[at].waiting_modes(), waiting_modes, "chain {at}");
        let mut found: Vec<(Name, Holder)> = Vec::new();
        self.all(index, at, &mut |name, holder| found.push((*name, holder)));
        assert_compatible(&found);
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }
}
