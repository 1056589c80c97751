//! How a request leaves a chain that grows at the front: taken out with what is obsolete below it, or
//! marked, counted, and unlinked by somebody later.
//!
//! # State
//!
//! The chain and its word are those of `stack`.
//!
//! Who releases the newest request takes it out with one exchange, and obsolete ones below it with it;
//! who releases the last live one takes the whole chain. Those are the ordinary ends: of a lock that nobody
//! shares, and of one that hundreds share while as many threads run as there are processors. Anybody else
//! marks the request obsolete, and the word counts it so. Where these come to be about as many as the
//! living, the chain is cleaned in the middle: by whoever notices, if nobody does, in one walk.
//!
//! Cleaning is the one thing here that a descheduled thread keeps others from doing. With two hundred
//! clients on two processors, a hot chain cleaned every few hundred releases had somebody asleep in a
//! cleaning most of the time, and grew by tens of thousands meanwhile. Taking out the newest leaves to
//! cleaning only what threads leave behind that lost their processor while they held the lock.
//!
//! # Invariants
//!
//! Numbered together with those of `stack`, which has I1, I2 and I4.
//!
//! * I3  Requests are unlinked by whoever set *cleaning*, or by whoever changed the top of a word without
//!   it. So by one at a time, and each once.
//! * I5  A link that is frozen is not changed while its request is in the chain. So what it leads to is
//!   in the chain for as long.
//!
//! # Why taking out the newest meets no cleaning
//!
//! A, on top, is released. Its owner freezes A's link, which leads to B; if B is obsolete, it freezes B's,
//! and so on up to the first that is not. None of these can be unlinked by others before A is (I5), and A is
//! its owner's to unlink: it is live, so the chain is not emptied, and it is not marked. So no request is
//! looked at that could be another's by now, without a pin. Then the word is exchanged, if it is as it was
//! and nobody cleans: whoever began to clean since has changed it. Had somebody cleaned from beginning to
//! end in between, and the word become what it was, then he has left the frozen links as they are.
//!
//! # Orderings
//!
//! Numbered together with those of `stack`, which has O1 and the other ends of O2, O3 and O5.
//!
//! * O2  `mark_and_count` (Release) to `announce`, and to the release or the end of cleaning that empties
//!   (Acquire): who finds that a request is not counted as live any more finds it obsolete.
//! * O3  `unlink_exchange` and `mark_and_count` (Release) to `put` (Acquire): who is granted a lock comes after
//!   everything that those did who held it before.
//! * O4  the end of cleaning (Release) to the next beginning of it, and to the release that empties or
//!   takes out (Acquire): what was unlinked once is not met again by who unlinks.
//! * O5  marking obsolete, and linking past what is (Release), to walking, and to taking it out with the
//!   newest (Acquire): who goes past a request that is obsolete, or does not meet it any more, comes after
//!   everything its owner did while it held the lock. The word does not say so: the releaser may not have
//!   come to it yet.

use super::{
    chain_word::{ChainWord, change},
    lock_index::{LockIndex, RetiredRequests},
    request::ChainRequestState,
};
use crate::mode::Set;
use foxton_sync::shim::{AtomicU64, Ordering, thread};

/// Dead requests that are no trouble, beside as many as are live.
const TOLERATED: u32 = if cfg!(loom) { 1 } else { 16 };
/// The most that the word can count.
const MOST_DEAD: u32 = 255;

/// Ends a request that is not alone in its chain, or is awaited, and tells whether somebody waits.
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

/// Ends a request that is not the newest, and tells whether somebody waits.
fn mark_and_count(
    index: &LockIndex,
    word: &AtomicU64,
    mut seen: ChainWord,
    number: u32,
    retired: &mut RetiredRequests<'_>,
) -> bool {
    // From here on somebody else may take it out.
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

/// Takes the newest request out, which nobody has marked, and what is obsolete below it. What the word is
/// then; or what it was instead of `seen`.
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

/// The exchange that takes the newest out.
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

/// Gives back what was taken out with the newest: it, and what is below it down to `rest`.
#[inline(always)]
pub(crate) fn retire_newest(
    index: &LockIndex,
    number: u32,
    rest: u32,
    retired: &mut RetiredRequests<'_>,
) {
    // Before it is retired: then it may be another's at once.
    let next = index.request(number).next(Ordering::Relaxed);
    retired.add(number);
    if next != rest {
        retire_until(index, next, rest, retired);
    }
}

/// What comes on top when the newest goes, while others are live; and the word then.
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

/// Takes obsolete requests out of the middle, unless somebody does.
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
            // Who cleans has lost its processor, perhaps to us.
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
            // Who still goes by the old link is pinned, and finds what was always there.
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
            // Nobody came. Who is live is not counted anew: a request may be marked and not yet
            // counted off, and would then be counted off twice.
            end = end.with_granted(granted);
        }
        Some(if end.live() == 0 { end.emptied() } else { end })
    });
    let (before, after) = released.expect("a word can always be cleaned");
    if after.top() == 0 {
        retire_until(index, before.top(), 0, retired);
    }
}

/// Whether the dead are so many that they should go.
#[inline]
fn is_cluttered(word: ChainWord) -> bool {
    word.dead() >= (TOLERATED + word.live()).min(MOST_DEAD)
}

/// Gives back what was taken out (I3): from `first` up to `end`.
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
        // Before it is retired: then it may be another's at once.
        let next = request.next(Ordering::Relaxed);
        retired.add(at);
        at = next;
    }
}
