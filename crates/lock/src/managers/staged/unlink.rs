//! Removal of requests from a chain that grows at the front: at once, with the obsolete ones below,
//! or by marking, counting and unlinking later.
//!
//! # State
//!
//! The chain and its word are those of `chain_stack`.
//!
//! A release of the newest request takes it out with one exchange, together with obsolete ones
//! below it. A release of the last live request takes out the whole chain. These are the ordinary
//! cases: a lock with one holder, and a lock that hundreds share while as many threads run as there
//! are processors. Every other release marks the request obsolete and counts it in the word. When
//! obsolete requests are about as many as live ones, the middle of the chain is cleaned in one
//! walk, by the thread that notices, unless another thread is cleaning.
//!
//! Cleaning is the only step here in which a descheduled thread keeps others from doing something.
//! With hundreds of clients on two processors, and no other way to unlink, a hot chain would have a
//! descheduled cleaner most of the time, and grow meanwhile. Because the newest request is taken
//! out at once, cleaning is left with requests of threads that were descheduled while they held the
//! lock.
//!
//! # Invariants
//!
//! Numbered together with those of `chain_stack`, which has I1, I2 and I4.
//!
//! * I3  A request is unlinked by the thread that set *cleaning*, or by a thread that changed the
//!   top of a word without *cleaning*. So one thread unlinks at a time, and each request only once.
//! * I5  A frozen link is not changed while its request is in the chain. So the request that it
//!   leads to is in the chain for as long.
//!
//! # Why taking out the newest does not collide with cleaning
//!
//! A, on top, is released. Its owner freezes A's link, which leads to B. If B is obsolete, it
//! freezes B's link, and so on up to the first request that is not. None of these can be unlinked
//! by others before A is (I5). And A can be unlinked only by its owner: it is live, so the chain is
//! not emptied, and it is not marked. So without a pin, no request is read that could already
//! belong to another owner. Then the word is exchanged, if it is unchanged and no thread cleans: a
//! thread that began to clean since has changed it. If a thread has cleaned from beginning to end
//! in between, and the word has become what it was, then that thread has left the frozen links as
//! they are.
//!
//! # Orderings
//!
//! Numbered together with those of `chain_stack`, which has O1 and the other ends of O2, O3 and O5.
//!
//! * O2  `mark_and_count` (Release) to `announce`, and to the release or the end of cleaning that
//!   empties the chain (Acquire). A thread that finds that a request is not counted as live any
//!   more finds it obsolete.
//! * O3  `unlink_exchange` and `mark_and_count` (Release) to `put` (Acquire): an owner that is
//!   granted a lock comes after everything that earlier holders did.
//! * O4  the end of cleaning (Release) to the next beginning of it, and to the release that empties
//!   the chain or takes out the newest (Acquire). A thread that unlinks does not find what was
//!   unlinked before.
//! * O5  marking a request obsolete, and linking past it (Release), to walking, and to taking it
//!   out with the newest (Acquire). A thread that passes an obsolete request, or does not find it
//!   any more, comes after everything its owner did while it held the lock. The word does not
//!   ensure that, because the releasing thread may not have changed it yet.

use super::{
    chain_word::{ChainWord, change},
    lock_index::{LockIndex, RetiredRequests},
    request::ChainRequestState,
};
use crate::mode::Set;
use foxton_sync::shim::{AtomicU64, Ordering, thread};

/// Dead requests that are tolerated, in addition to as many as are live.
const TOLERATED: u32 = if cfg!(loom) { 1 } else { 16 };
/// Most dead requests that the word can count.
const MOST_DEAD: u32 = 255;

/// Ends a request that is not alone in its chain, or has waiters, and returns true if there are
/// waiters.
#[inline(never)]
pub(crate) fn release_among(
    index: &LockIndex,
    word: &AtomicU64,
    number: u32,
    retired: &mut RetiredRequests<'_>,
) -> bool {
    let mut seen = ChainWord(word.load(Ordering::Relaxed));
    while seen.top() == number && !seen.is_cleaning() {
        match remove_newest(index, word, seen, number, retired) {
            Ok(after) => return !after.waiting_modes().is_empty(),
            Err(now) => seen = now,
        }
    }
    mark_and_count(index, word, seen, number, retired)
}

/// Ends a request that is not the newest, and returns true if there are waiters.
fn mark_and_count(
    index: &LockIndex,
    word: &AtomicU64,
    mut seen: ChainWord,
    number: u32,
    retired: &mut RetiredRequests<'_>,
) -> bool {
    // From here on another thread may take it out.
    index
        .request(number)
        .set_state(ChainRequestState::Obsolete, Ordering::Release); // O5
    let after = loop {
        let after = seen.released();
        let exchanged = word.compare_exchange_weak(
            seen.0,
            after.0,
            Ordering::AcqRel, // O2, O3, O4
            Ordering::Relaxed,
        );
        match exchanged {
            Ok(_) => break after,
            Err(now) => seen = ChainWord(now),
        }
    };
    if after.top() == 0 {
        retire_until(index, seen.top(), 0, retired);
    } else if is_cluttered(after) {
        clean(index, word, retired);
    }
    !after.waiting_modes().is_empty()
}

/// Takes out the newest request, which is not marked, and the obsolete ones below it. Returns the
/// new word; or the current word, if it was not `seen`.
fn remove_newest(
    index: &LockIndex,
    word: &AtomicU64,
    seen: ChainWord,
    number: u32,
    retired: &mut RetiredRequests<'_>,
) -> Result<ChainWord, ChainWord> {
    let is_last = seen.live() == 1;
    let (rest, after) = if is_last {
        (0, seen.emptied())
    } else {
        below(index, seen, number)
    };
    unlink_exchange(word, seen, after)?;
    retire_newest(index, number, rest, retired);
    Ok(after)
}

/// Exchanges the word to take out the newest request.
#[inline(always)]
pub(crate) fn unlink_exchange(
    word: &AtomicU64,
    seen: ChainWord,
    after: ChainWord,
) -> Result<(), ChainWord> {
    let exchanged = word.compare_exchange(
        seen.0,
        after.0,
        Ordering::AcqRel, // O2, O3, O4
        Ordering::Relaxed,
    );
    exchanged.map(|_| ()).map_err(ChainWord)
}

/// Frees what was taken out with the newest request: itself, and the requests below it down to
/// `rest`.
#[inline(always)]
pub(crate) fn retire_newest(
    index: &LockIndex,
    number: u32,
    rest: u32,
    retired: &mut RetiredRequests<'_>,
) {
    // Before it is retired, because then it may belong to another owner at once.
    let next = index.request(number).next(Ordering::Relaxed);
    retired.add(number);
    if next != rest {
        retire_until(index, next, rest, retired);
    }
}

/// Returns the request that will be on top without the newest, while others are live; and the word
/// then.
#[inline(never)]
fn below(index: &LockIndex, seen: ChainWord, newest: u32) -> (u32, ChainWord) {
    let mut rest = index.request(newest).freeze();
    let mut run = 0;
    while rest != 0 {
        let request = index.request(rest); // I5
        let is_live = request.state(Ordering::Acquire) != ChainRequestState::Obsolete; // O5
        if is_live {
            break;
        }
        rest = request.freeze();
        run += 1;
    }
    (rest, seen.popped(rest, run))
}

/// Takes obsolete requests out of the middle, unless another thread does.
#[cold]
#[inline(never)]
fn clean(index: &LockIndex, word: &AtomicU64, retired: &mut RetiredRequests<'_>) {
    // O4
    let begun = change(word, Ordering::Acquire, |word| {
        let needed = !word.is_cleaning() && is_cluttered(word);
        needed.then(|| word.cleaning())
    });
    let Some((_, start)) = begun else {
        if ChainWord(word.load(Ordering::Relaxed)).dead() == MOST_DEAD {
            // The cleaning thread was descheduled, perhaps for this one.
            thread::yield_now();
        }
        return;
    };
    let mut granted = Set::NONE;
    let mut kept = start.top();
    let mut at = kept;
    while at != 0 {
        let request = index.request(at);
        let next = request.next(Ordering::Relaxed);
        let is_live = request.state(Ordering::Acquire) != ChainRequestState::Obsolete; // O5
        if is_live {
            granted = granted.union(request.mode().set());
        }
        let goes = !is_live
            && at != start.top()
            && index.request(kept).relink(at, next, Ordering::Release); // O5, I5
        if goes {
            // A thread that still follows the old link is pinned, and finds the same requests as
            // before.
            retired.add(at); // I3
        } else {
            kept = at;
        }
        at = next;
    }
    // O2, O4
    let released = change(word, Ordering::AcqRel, |word| {
        let mut end = word.cleaned();
        if word == start {
            // No request came. Live requests are not counted anew: one may be marked and not yet
            // uncounted, and would then be uncounted twice.
            end = end.with_granted(granted);
        }
        Some(if end.live() == 0 { end.emptied() } else { end })
    });
    let (before, after) = released.expect("a word can always be cleaned");
    if after.top() == 0 {
        retire_until(index, before.top(), 0, retired);
    }
}

/// True if there are so many dead requests that cleaning is worth it.
#[inline]
fn is_cluttered(word: ChainWord) -> bool {
    word.dead() >= (TOLERATED + word.live()).min(MOST_DEAD)
}

/// Frees what was taken out (I3): from `first` up to `end`.
#[inline(never)]
fn retire_until(index: &LockIndex, first: u32, end: u32, retired: &mut RetiredRequests<'_>) {
    let mut at = first;
    while at != end {
        let request = index.request(at);
        let state = request.state(Ordering::Relaxed);
        assert_eq!(
            state,
            ChainRequestState::Obsolete,
            "I1: of what was taken out"
        );
        // Before it is retired, because then it may belong to another owner at once.
        let next = request.next(Ordering::Relaxed);
        retired.add(at);
        at = next;
    }
}
