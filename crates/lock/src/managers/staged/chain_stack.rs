//! Chains that grow at the front: one word decides, and no thread waits for another.
//!
//! # State
//!
//! Each chain has a word (`chain_word`), and its requests, from the newest to the oldest. A thread
//! writes a new request, links it to the top that it has read, and exchanges the word. With that
//! one step the request is in the chain, counted, and known to have no conflict. So no request is
//! ever half in, and no descheduled thread holds up the requests behind it.
//!
//! ```text
//!   word: waiting X | granted IS S | live 3 | dead 1 | top
//!                                                       |
//!        t9 orders IS --> t7 orders IS (obsolete) --> t4 lines/7 S --> t2 orders IS
//! ```
//!
//! A mode that conflicts with nothing in *granted* and *waiting* is granted without reading any
//! request, whatever the names. Otherwise the chain is searched for the name. If no request in it
//! conflicts, the word is exchanged all the same, and the exchange fails if another request came
//! meanwhile. So names with the same hash cost each other a walk and no more.
//!
//! `unlink` has the ways out of a chain.
//!
//! # Invariants
//!
//! Numbered together with those of `unlink`, which has I3 and I5.
//!
//! * I1  Every live request is in its chain, and its mode is in *granted*. (A conversion is put in
//!   before the request that it replaces becomes obsolete.)
//! * I2  A request that is put in conflicts, at that moment, with no live request of its name but
//!   its owner's.
//! * I4  Only putting a request in, and taking out the top, changes the top; cleaning never does.
//!   So for a pinned thread, an unchanged word means that no request added since is live.
//!
//! # Why L1 holds
//!
//! Every addition changes the word, so additions to a chain are in one order. Let B be put in after
//! A, in a mode that conflicts with A's, of one name and by another owner, while A is live. By I1
//! the word that B's exchange replaced had A's mode in *granted*. If B came without a walk, it saw
//! no conflict there: contradiction. If it walked, it walked the chain of that very word (I4),
//! which has A in it, live or obsolete; and A was live. If it was granted from the queue (C3), it
//! had announced its mode by a change of the word, and then walked. Either A was put in before the
//! announcement: then the walk found it, because the walk loads the word after the announcement. Or
//! after: then A's exchange replaced a word with B's mode in *waiting*, and only a request that
//! conflicts with no waiting mode is granted then.
//!
//! # Why no wake-up is lost (the five schedules of the paper's Figure 7)
//!
//! The waiter announces (S2), then reads the states (S3, S4). The releasing thread marks its
//! request obsolete (S6), then exchanges the word and reads there whether there are waiters (S7).
//! Both steps on the word are read-modify-writes, so one of them is first. If the release is first,
//! the waiter comes after the mark by O2, and finds the request obsolete: schedules (1) to (3). If
//! the waiter is first, the releasing thread reads that there is a waiter, and takes the latch of
//! the queue. Either it finds the waiter in the queue and grants it, or it has the latch before the
//! waiter, which then finds the mark: (4) and (5). No fence is needed, because the two meet in one
//! word. A release of the newest request does S6 and S7 in one exchange: it reads a waiter that
//! announced before, and a waiter that announces after does not find the request.
//!
//! # Orderings
//!
//! Numbered together with those of `unlink`, which has O4 and the other ends of O2, O3 and O5.
//!
//! * O1  `put` (Release) to `load_word` (Acquire): a thread that finds a request reads it whole.
//!   Every change of the word is a read-modify-write, so all requests put in before are visible,
//!   too.
//! * O2  `mark_and_count` (Release) to `announce`, and to the release or the end of cleaning that
//!   empties the chain (Acquire). A thread that finds that a request is not counted as live any
//!   more finds it obsolete.
//! * O3  `unlink_exchange` and `mark_and_count` (Release) to `put` (Acquire): an owner that is
//!   granted a lock comes after everything that earlier holders did.
//! * O5  marking a request obsolete, and linking past it (Release), to walking, and to taking it
//!   out with the newest (Acquire). A thread that passes an obsolete request, or does not find it
//!   any more, comes after everything its owner did while it held the lock. The word does not
//!   ensure that, because the releasing thread may not have changed it yet.
//!
//! # Differences from the paper
//!
//! There a request is put in at the tail by an exchange, and linked from its predecessor by a
//! second step; in between, all requests behind it wait. Every request walks the whole chain, of
//! all names. Its state is *active* before it is known to be granted, so two requests may see each
//! other and both wait. `chain_tail` is that form.

use super::{
    chain::{
        Chains, Holder, Holders, NewRequest, NotGranted, ReleasedRequest, assert_compatible, holder,
    },
    chain_word::{ChainWord, MANY, WAITING, change},
    lock_index::{LockIndex, RetiredRequests},
    request::{ChainRequest, ChainRequestState},
    unlink::{release_among, retire_newest, unlink_exchange},
};
use crate::{mode::Set, name::Name, owner::owner_table::ReservedRequests};
use foxton_sync::{
    cache_line::prefetch_to_write,
    shim::{AtomicU64, Ordering},
    site::{Component, Pattern, Site},
    worker::Worker,
};
use std::ptr;

static CHAIN: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock chain");

/// Number of walks that are tried, because other requests may come in between.
const TRIES: usize = 2;

/// All chains.
#[derive(Debug)]
pub struct StackChains(Box<[AtomicU64]>);

impl StackChains {
    #[inline]
    fn word(&self, hash: u32) -> &AtomicU64 {
        &self.0[hash as usize & (self.0.len() - 1)]
    }

    /// Puts a request into a chain that has, or had a moment ago, other requests.
    #[inline(never)]
    fn acquire_onto(
        &self,
        index: &LockIndex,
        worker: &Worker,
        new: &NewRequest,
        number: u32,
        mut seen: ChainWord,
    ) -> Result<u32, NotGranted> {
        let (word, request) = (self.word(new.hash), index.request(number));
        while !is_blocked(seen, new) {
            match put(word, seen, request, number, new) {
                Ok(()) => {
                    self.finish(index, new);
                    return Ok(number);
                }
                Err(now) => {
                    worker.record_contention();
                    seen = now;
                }
            }
        }
        if self.acquire_among(index, worker, new, number) {
            self.finish(index, new);
            return Ok(number);
        }
        Err(NotGranted::Blocked(number))
    }

    /// Puts a request in after checking the requests of the name. Returns false if one of them
    /// conflicts, or there is a waiter.
    #[cold]
    #[inline(never)]
    fn acquire_among(
        &self,
        index: &LockIndex,
        worker: &Worker,
        new: &NewRequest,
        request: u32,
    ) -> bool {
        let word = self.word(new.hash);
        let _pinned = index.pin(worker);
        for _ in 0..TRIES {
            worker.account().passed(&CHAIN);
            let seen = load_word(word);
            let blocks = |holder: &ChainRequest| {
                holder.mode().set().intersects(new.mode.conflicts())
                    && holder.is_for(&new.name)
                    && holder.owner().index() != new.owner.index()
            };
            if seen.waiting_modes().intersects(new.mode.conflicts())
                || live(index, seen.top()).any(|(_, holder)| blocks(holder))
            {
                return false;
            }
            if put(word, seen, index.request(request), request, new).is_ok() {
                return true; // I2, I4
            }
        }
        false
    }
}

impl Chains for StackChains {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    fn prefetch(&self, hash: u32) {
        prefetch_to_write(ptr::from_ref(self.word(hash)).cast());
    }

    // Always inlined, because this is the way into an empty chain. The request is copied for the
    // slow path, so that it need not be in memory here.
    #[inline(always)]
    fn acquire(
        &self,
        index: &LockIndex,
        worker: &Worker,
        new: &NewRequest,
        reserved: &mut ReservedRequests,
    ) -> Result<u32, NotGranted> {
        worker.account().passed(&CHAIN);
        let number = index.take(worker, reserved).ok_or(NotGranted::Full)?;
        let request = index.request(number);
        request.write(&new.name, new.owner, new.mode, ChainRequestState::Active);
        let word = self.word(new.hash);
        // Relaxed: only the word itself is read, and the exchange fails if it is outdated.
        let mut seen = ChainWord(word.load(Ordering::Relaxed));
        if seen == ChainWord::EMPTY && new.replaces.is_none() {
            let alone = ChainWord::alone(number, new.mode.set());
            match exchange(word, ChainWord::EMPTY, request, alone) {
                Ok(()) => return Ok(number),
                Err(now) => seen = now,
            }
        }
        let new = *new;
        self.acquire_onto(index, worker, &new, number, seen)
    }

    // Always inlined, because this is the way out of a chain with one request.
    #[inline(always)]
    fn release(
        &self,
        index: &LockIndex,
        worker: &Worker,
        released: ReleasedRequest,
        retired: &mut RetiredRequests<'_>,
    ) -> bool {
        worker.account().passed(&CHAIN);
        let (word, number) = (self.word(released.hash), released.request);
        // Relaxed: as on the way in.
        let seen = ChainWord(word.load(Ordering::Relaxed));
        let alone = ChainWord::alone(number, released.mode.set());
        if seen == alone && unlink_exchange(word, alone, ChainWord::EMPTY).is_ok() {
            retire_newest(index, number, 0, retired);
            return false;
        }
        release_among(index, word, number, retired)
    }

    fn announce(&self, hash: u32, mode: Set) {
        let all = u64::from(mode.bits()) << WAITING;
        self.word(hash).fetch_or(all, Ordering::Acquire); // O2
    }

    fn set_waiting_modes(&self, hash: u32, waiting_modes: Set) {
        // Relaxed: `announce` has told the holders that must find a waiter.
        let changed = change(self.word(hash), Ordering::Relaxed, |word| {
            Some(word.with_waiting(waiting_modes))
        });
        debug_assert!(changed.is_some());
    }

    fn holders(&self, index: &LockIndex, hash: u32, name: &Name) -> Holders {
        let seen = load_word(self.word(hash));
        let live = live(index, seen.top());
        live.filter(|(_, request)| request.is_for(name))
            .map(|(number, request)| holder(number, request))
            .collect()
    }

    fn grant(&self, index: &LockIndex, new: &NewRequest, number: u32, waiting_modes: Set) {
        let request = index.request(number);
        let word = self.word(new.hash);
        let mut seen = ChainWord(word.load(Ordering::Relaxed));
        // No conflicting request comes meanwhile, because the mode is announced.
        let with = |seen| with(seen, number, new).with_waiting(waiting_modes);
        while let Err(now) = exchange(word, seen, request, with(seen)) {
            seen = now;
        }
        self.finish(index, new);
    }

    fn write(&self, index: &LockIndex, new: &NewRequest, number: u32) {
        let request = index.request(number);
        request.write(&new.name, new.owner, new.mode, ChainRequestState::Active);
    }

    fn is_empty(&self, at: usize) -> bool {
        // Relaxed: about this moment.
        self.0[at].load(Ordering::Relaxed) == 0
    }

    fn withdraw(&self, _: &LockIndex, _: u32, number: u32, retired: &mut RetiredRequests<'_>) {
        // It never was in a chain.
        retired.add(number);
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn all(&self, index: &LockIndex, at: usize, each: &mut dyn FnMut(&Name, Holder)) {
        let seen = load_word(&self.0[at]);
        for (number, request) in live(index, seen.top()) {
            each(&request.name(), holder(number, request));
        }
    }

    fn verify(&self, index: &LockIndex, at: usize, waiting_modes: Set) {
        let seen = load_word(&self.0[at]);
        let found: Vec<(Name, Holder)> = live(index, seen.top())
            .map(|(number, request)| (request.name(), holder(number, request)))
            .collect();
        let now = load_word(&self.0[at]);
        if now != seen {
            return; // Other threads go on; the requests may belong to two moments.
        }
        assert_eq!(seen.waiting_modes(), waiting_modes, "chain {at}");
        let granted = found
            .iter()
            .fold(Set::NONE, |all, (_, holder)| all.union(holder.mode.set()));
        assert_eq!(granted.minus(seen.granted()), Set::NONE, "I1 of chain {at}");
        // A releasing thread marks first and counts then.
        let counted = seen.live() == MANY || found.len() <= seen.live() as usize;
        assert!(counted, "{} live of {found:?} in chain {at}", seen.live());
        assert_compatible(&found);
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }
}

impl StackChains {
    /// Marks the request that a conversion has replaced as obsolete (I1).
    #[inline]
    fn finish(&self, index: &LockIndex, new: &NewRequest) {
        if let Some(former) = new.replaces {
            index
                .request(former)
                .set_state(ChainRequestState::Obsolete, Ordering::Relaxed);
        }
    }
}

/// Loads the word, and makes the requests visible that it leads to.
fn load_word(word: &AtomicU64) -> ChainWord {
    ChainWord(word.load(Ordering::Acquire)) // O1
}

/// True if a request cannot be granted without a walk, if at all.
#[inline]
fn is_blocked(word: ChainWord, new: &NewRequest) -> bool {
    let conflicts = new.mode.conflicts();
    match new.replaces {
        None => word.conflicts_with(conflicts),
        // A conversion that is alone in its chain has no conflict.
        Some(_) => {
            word.waiting_modes().intersects(conflicts)
                || word.live() != 1 && word.granted().intersects(conflicts)
        }
    }
}

/// Puts a request on top of the word `seen`.
#[inline]
fn put(
    word: &AtomicU64,
    seen: ChainWord,
    request: &ChainRequest,
    number: u32,
    new: &NewRequest,
) -> Result<(), ChainWord> {
    exchange(word, seen, request, with(seen, number, new))
}

/// Returns the word with a new request on top.
#[inline]
fn with(seen: ChainWord, number: u32, new: &NewRequest) -> ChainWord {
    let mode = new.mode.set();
    match new.replaces {
        None => seen.pushed(number, mode),
        Some(_) => seen.replaced(number, mode),
    }
}

#[inline]
fn exchange(
    word: &AtomicU64,
    seen: ChainWord,
    request: &ChainRequest,
    with: ChainWord,
) -> Result<(), ChainWord> {
    // Relaxed: the exchange publishes it, with the rest of the request.
    request.set_next(seen.top(), Ordering::Relaxed);
    let exchanged = word.compare_exchange(
        seen.0,
        with.0,
        Ordering::AcqRel, // O1, O3
        Ordering::Relaxed,
    );
    exchanged.map(|_| ()).map_err(ChainWord)
}

/// Returns the requests from `top` on that are not obsolete. The caller is pinned.
fn live(index: &LockIndex, top: u32) -> impl Iterator<Item = (u32, &ChainRequest)> {
    // O5
    let is_live =
        |request: &ChainRequest| request.state(Ordering::Acquire) != ChainRequestState::Obsolete;
    all(index, top).filter(move |(_, request)| is_live(request))
}

fn all(index: &LockIndex, top: u32) -> impl Iterator<Item = (u32, &ChainRequest)> {
    let mut at = top;
    std::iter::from_fn(move || {
        let number = (at != 0).then_some(at)?;
        let request = index.request(number);
        at = request.next(Ordering::Acquire); // O5
        Some((number, request))
    })
}
