//! Chains that grow at the tail: the document's form.
//!
//! # State
//!
//! For each hash bucket a chain of requests from the oldest to the newest, of whatever names; its head,
//! its tail, and a word that says what is awaited in front of it and how many of its requests were ended.
//!
//! ```text
//!   head --> t2 X (obsolete) --> t4 X active --> t7 X waiting --> t9 S asking <-- tail
//! ```
//!
//! Who asks writes a request in state *asking*, exchanges the tail for it (S1), and links it from its
//! predecessor. Then it walks the chain from the head to itself. A request that is not obsolete, of the
//! same name and in the way, makes it *waiting* (S2) and sends it to the line; otherwise it is
//! *active*. Between the exchange and the link the chain is torn: whoever comes to the tear waits there
//! until it is mended. Released, a request is *obsolete* (S6), and is unlinked by whoever passes when
//! there are enough of them.
//!
//! # Invariants
//!
//! * I1  Requests are in the chain in the order of their exchanges of the tail.
//! * I2  A request whose successor is not linked is not unlinked. So nobody links behind what has been
//!   taken out.
//! * I3  Requests are unlinked by whoever set `cleaning`.
//! * I4  Who goes to the line has walked to its own request: all that came before it are linked.
//!
//! # Why L1 holds
//!
//! Of two requests of one name whose modes conflict, one exchanged the tail later (I1) and walked past the
//! other, or past the place where it had been. While the other is asking, active or waiting, the later
//! one goes to the line. There, under the latch, it is granted only when nobody asking or active is in its
//! way: nobody before it, since it sees them all (I4); and nobody behind it, since they see it, and come
//! to the same latch.
//!
//! # Why no wake-up is lost
//!
//! As in `stack`: the waiter changes the word (`announce`), then looks at the states; the releaser marks
//! its request, then changes the word and reads there whether anybody waits. The document has full
//! fences in these places (S2 to S7) and walks the rest of the chain for waiters; a read-modify-write of
//! one word costs as much as a fence, and saves the walk when nobody waits.
//!
//! # Orderings
//!
//! * O1  linking (Release) to walking (Acquire): who finds a request finds what it says.
//! * O2  the exchange of the tail (Release) to the next (Acquire): who links a predecessor comes after it
//!   was written.
//! * O3  marking obsolete (Release) to reading the state (Acquire): who goes past an obsolete request
//!   comes after everything its owner did while it held the lock.
//! * O4  `release` (Release) to `announce` (Acquire), on the word: who announces a wait after a release
//!   finds the request obsolete.
//! * O5  the end of cleaning (Release) to its next beginning (Acquire): who unlinks comes after all that
//!   was unlinked before.
//!
//! # Differences from the document
//!
//! A request that does not know yet whether it is granted is *asking* instead of *active*, so that
//! whoever inspects does not take it for a holder. Obsolete requests are unlinked by one at a time
//! rather than with a compare-and-exchange on each link: two that unlink neighbours at once would
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

/// Dead requests that a chain may have before it is cleaned.
const TOLERATED: u64 = if cfg!(loom) { 1 } else { 8 };

/// In a chain's word, where the set of what is awaited stands; below it the count of requests ended, which
/// only grows: subtracted from by one who comes early, it would borrow from the set.
const WAITING: u32 = 56;

#[derive(Debug, Default)]
struct TailChain {
    head: AtomicU32,
    tail: AtomicU32,
    word: AtomicU64,
    /// How many had been ended when the chain was cleaned last.
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
            // Checked by the model alone: it has no other way to see two stores in the wrong order.
            assert!(!cfg!(loom) || before.is_written(), "O2");
            before.set_next(number, Ordering::Release); // O1
        }
    }

    /// The first request; of a chain that is not empty, or about not to be.
    fn first(&self) -> u32 {
        wait_for_link(|| self.head.load(Ordering::Acquire)) // O1
    }

    /// The requests that can be reached now. The caller is pinned.
    fn linked<'i>(&self, index: &'i LockIndex) -> impl Iterator<Item = (u32, &'i ChainRequest)> {
        let mut at = self.head.load(Ordering::Acquire); // O1
        std::iter::from_fn(move || {
            let number = (at != 0).then_some(at)?;
            let request = index.request(number);
            at = request.next(Ordering::Acquire); // O1
            Some((number, request))
        })
    }

    /// Unlinks what is obsolete, unless somebody does.
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
                    // Who comes this way comes to the next as if by the old link.
                    None => self.head.store(next, Ordering::Release), // O1
                    Some(kept) => index.request(kept).set_next(next, Ordering::Release), // O1
                }
                retired.add(at);
            } else {
                kept = Some(at);
            }
            at = next;
        }
        // Relaxed: when to clean again.
        self.cleaned.store(ended, Ordering::Relaxed);
        self.cleaning.store(false, Ordering::Release); // O5
    }

    fn waiting_modes(&self) -> Set {
        // Relaxed: changed under the latch only.
        Set::from_bits((self.word.load(Ordering::Relaxed) >> WAITING) as u8)
    }

    /// Marks a request obsolete and counts it. What the word was.
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

/// Waits until a link is there that somebody is about to store.
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
        let number = index.take_shared(worker).ok_or(NotGranted::Full)?;
        let request = index.request(number);
        request.write(&new.name, new.owner, new.mode, ChainRequestState::Asking);
        let chain = self.chain(new.hash);
        let _pinned = index.pin(worker);
        chain.insert(index, number);
        let conflicts = new.mode.conflicts();
        let (mut at, mut is_blocked) = (chain.first(), false);
        let mut meets_somebody = false;
        // All the way, even when somebody in the way has been found (I4).
        while at != number {
            let earlier = index.request(at);
            is_blocked |= earlier.mode().set().intersects(conflicts)
                && earlier.is_for(&new.name)
                && earlier.state(Ordering::Acquire) != ChainRequestState::Obsolete // O3
                && earlier.owner().index() != new.owner.index();
            // Relaxed: counted for whoever wants to know what is hot.
            meets_somebody |= earlier.state(Ordering::Relaxed) == ChainRequestState::Asking;
            at = wait_for_link(|| earlier.next(Ordering::Acquire)); // O1
        }
        if meets_somebody {
            worker.record_contention();
        }
        if is_blocked {
            // Relaxed: the announcement follows (O4), and until then it is in the way for nothing.
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
        // Relaxed: who is to find somebody waiting was told by `announce`.
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
        // Relaxed: at about this moment.
        self.0[at].head.load(Ordering::Relaxed) == 0
    }

    fn all(&self, index: &LockIndex, at: usize, each: &mut dyn FnMut(&Name, Holder)) {
        let is_held =
            |request: &ChainRequest| request.state(Ordering::Acquire) == ChainRequestState::Active; // O3
        let held: Vec<(u32, &ChainRequest)> = self.0[at]
            .linked(index)
            .filter(|(_, request)| is_held(request))
            .collect();
        // Who held at the beginning may have released before who holds at the end was granted. Those who
        // hold even now did so at the moment between.
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
