//! Chains that grow at the front: one word decides, and nobody waits for anybody.
//!
//! # State
//!
//! A word for each chain (`word`), and the requests, from the newest to the oldest. Who asks writes a
//! request, lets it point at the top it has seen, and exchanges the word: with that one step the
//! request is in the chain, counted, and known to conflict with nobody. So there is no moment at which
//! a request is half in, and nobody behind it to be held up by a thread that lost its processor there.
//!
//! ```text
//!   word: awaited X | granted IS S | live 3 | dead 1 | top
//!                                                       |
//!        t9 orders IS --> t7 orders IS (obsolete) --> t4 lines/7 S --> t2 orders IS
//! ```
//!
//! A mode that conflicts with nothing in *granted* and *awaited* is granted without looking at any
//! request, whatever their names. Otherwise the chain is walked for the name; if nobody in it is in the
//! way, the word is exchanged all the same, and the exchange fails if anybody came meanwhile. So names
//! that hash alike cost each other a walk and no more.
//!
//! How requests leave is `leaving`.
//!
//! # Invariants
//!
//! Numbered together with those of `leaving`, which has I3 and I5.
//!
//! * I1  Every live request is in its chain, and its mode is in *granted*. (A conversion is put in
//!   before what it replaces becomes obsolete.)
//! * I2  What is put in conflicts, at that moment, with no live request of its name but its owner's.
//! * I4  The top is changed by putting something in and by taking out what is on top, never by cleaning.
//!   So while somebody is pinned, a word that is as it was stands for a chain of which nothing that was
//!   added since is live.
//!
//! # Why L1 holds
//!
//! Everything put in changes the word, so additions to a chain are in one order. Let B be put in
//! after A, in a mode that conflicts with A's, of one name and by another owner, while A is live. By I1
//! the word that B's exchange replaced had A's mode in *granted*. If B came without a walk, it saw no
//! conflict there: contradiction. If it walked, it walked the chain of that very word (I4), which has A
//! in it, live or obsolete; A was live. If it was granted from the line (C3), it had announced its mode
//! by a change of the word, and then walked. A was put in before the announcement: then the walk found
//! it, since the walk's load of the word comes after the announcement. Or after: then A's exchange
//! replaced a word with B's mode in *awaited*, and only a request that conflicts with nothing awaited
//! gets past that.
//!
//! # Why no wake-up is lost (the five schedules of the paper's Figure 7)
//!
//! The waiter announces (S2), then looks at the states (S3, S4); the releaser marks its request
//! obsolete (S6), then exchanges the word and reads there whether anybody waits (S7). Both steps on the
//! word are read-modify-writes, so one of them is first. If the releaser's is, the waiter's comes after
//! the mark by O2, and finds the request obsolete: schedules (1) to (3). If the waiter's is, the
//! releaser reads that somebody waits, takes the latch of the line, and either finds the waiter in it
//! and grants it, or comes before it under that latch, and the waiter then finds the mark: (4) and
//! (5). No fence is needed, because the two meet in one word. Who takes out the newest does S6 and S7 in
//! one exchange: a waiter who announced before is read there, and one who announces after does not find it.
//!
//! # Orderings
//!
//! Numbered together with those of `leaving`, which has O4 and the other ends of O2, O3 and O5.
//!
//! * O1  `put` (Release) to `look` (Acquire): who finds a request finds what it says. Every change of
//!   the word is a read-modify-write, so all that were put in before come along.
//! * O2  `mark_and_count` (Release) to `announce`, and to the release or the end of cleaning that empties
//!   (Acquire): who finds that a request is not counted as live any more finds it obsolete.
//! * O3  `unlink_exchange` and `mark_and_count` (Release) to `put` (Acquire): who is granted a lock comes after
//!   everything that those did who held it before.
//! * O5  marking obsolete, and linking past what is (Release), to walking, and to taking it out with the
//!   newest (Acquire): who goes past a request that is obsolete, or does not meet it any more, comes after
//!   everything its owner did while it held the lock. The word does not say so: the releaser may not have
//!   come to it yet.
//!
//! # Differences from the paper
//!
//! There a request is put in at the tail by an exchange, and linked from its predecessor by a second step;
//! in between, everybody behind it waits. Every request walks the whole chain, of all names. Its
//! state is *active* before it is known to be granted, so two requests may see each other and both wait.
//! `tail` is that form.

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

/// How often a walk is repeated because somebody came in between.
const TRIES: usize = 2;

/// All chains.
#[derive(Debug)]
pub struct StackChains(Box<[AtomicU64]>);

impl StackChains {
    #[inline]
    fn word(&self, hash: u32) -> &AtomicU64 {
        &self.0[hash as usize & (self.0.len() - 1)]
    }

    /// The way into a chain in which there is something already, or was a moment ago.
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

    /// The slow way in: looks at the requests of the name. `false` if one of them is in the way, or
    /// somebody waits.
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
            let seen = look(word);
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

    // Always: what is here is the way into an empty chain. What is asked is copied for the rest, so that it
    // need not be in memory here.
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
        // Relaxed: nothing is looked at but the word itself, and the exchange fails if it is outdated.
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

    // Always: what is here is the way out of a chain that is empty then.
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
        // Relaxed: who is to find somebody waiting was told by `announce`.
        let told = change(self.word(hash), Ordering::Relaxed, |word| {
            Some(word.with_waiting(waiting_modes))
        });
        debug_assert!(told.is_some());
    }

    fn holders(&self, index: &LockIndex, hash: u32, name: &Name) -> Holders {
        let seen = look(self.word(hash));
        let live = live(index, seen.top());
        live.filter(|(_, request)| request.is_for(name))
            .map(|(number, request)| holder(number, request))
            .collect()
    }

    fn grant(&self, index: &LockIndex, new: &NewRequest, number: u32, waiting_modes: Set) {
        let request = index.request(number);
        let word = self.word(new.hash);
        let mut seen = ChainWord(word.load(Ordering::Relaxed));
        // Nobody who comes meanwhile is in the way: the mode is announced.
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
        // Relaxed: at about this moment.
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
        let seen = look(&self.0[at]);
        for (number, request) in live(index, seen.top()) {
            each(&request.name(), holder(number, request));
        }
    }

    fn verify(&self, index: &LockIndex, at: usize, waiting_modes: Set) {
        let seen = look(&self.0[at]);
        let found: Vec<(Name, Holder)> = live(index, seen.top())
            .map(|(number, request)| (request.name(), holder(number, request)))
            .collect();
        let now = look(&self.0[at]);
        if now != seen {
            return; // Others are at work; what was found may belong to two moments.
        }
        assert_eq!(seen.waiting_modes(), waiting_modes, "chain {at}");
        let granted = found
            .iter()
            .fold(Set::NONE, |all, (_, holder)| all.union(holder.mode.set()));
        assert_eq!(granted.minus(seen.granted()), Set::NONE, "I1 of chain {at}");
        // Whoever releases marks first and counts then.
        let counted = seen.live() == MANY || found.len() <= seen.live() as usize;
        assert!(counted, "{} live of {found:?} in chain {at}", seen.live());
        assert_compatible(&found);
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }
}

impl StackChains {
    /// What a conversion has replaced is obsolete now (I1).
    #[inline]
    fn finish(&self, index: &LockIndex, new: &NewRequest) {
        if let Some(former) = new.replaces {
            index
                .request(former)
                .set_state(ChainRequestState::Obsolete, Ordering::Relaxed);
        }
    }
}

/// The word, and with it all that it leads to.
fn look(word: &AtomicU64) -> ChainWord {
    ChainWord(word.load(Ordering::Acquire)) // O1
}

/// Whether what is asked cannot be granted without a walk, if at all.
#[inline]
fn is_blocked(word: ChainWord, new: &NewRequest) -> bool {
    let conflicts = new.mode.conflicts();
    match new.replaces {
        None => word.conflicts_with(conflicts),
        // Alone in its chain, a conversion has nobody in its way.
        Some(_) => {
            word.waiting_modes().intersects(conflicts)
                || word.live() != 1 && word.granted().intersects(conflicts)
        }
    }
}

/// Puts a request on top of what was seen.
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

/// The word with what is asked on top.
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
    // Relaxed: the exchange makes it known, with the rest of the request.
    request.set_next(seen.top(), Ordering::Relaxed);
    let exchanged = word.compare_exchange(
        seen.0,
        with.0,
        Ordering::AcqRel, // O1, O3
        Ordering::Relaxed,
    );
    exchanged.map(|_| ()).map_err(ChainWord)
}

/// The requests from `top` on that are not obsolete. The caller is pinned.
fn live(index: &LockIndex, top: u32) -> impl Iterator<Item = (u32, &ChainRequest)> {
    let is_live =
        |request: &ChainRequest| request.state(Ordering::Acquire) != ChainRequestState::Obsolete; // O5
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
