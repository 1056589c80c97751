//! All that decides whether a request is granted at once, in one word.
//!
//! ```text
//! bits   8        8        1         8       13      26
//!        awaited  granted  cleaning  dead    live    top
//! ```
//!
//! *Top* is the request that was put in last. *Live* counts requests that are not obsolete; once it
//! has reached its end it stays there, and the chain is never empty again: its last request stays. *Dead* counts those that became obsolete
//! since the chain was last cleaned, as far as it can. *Granted* has at least the components of every
//! live request, *awaited* exactly those that the line in front of the chain waits for. *Cleaning*
//! says that somebody takes obsolete requests out of the middle.

use super::request::NUMBER_BITS;
use crate::mode::Set;
use foxton_sync::shim::{AtomicU64, Ordering};

const LIVE: u32 = NUMBER_BITS;
const DEAD: u32 = LIVE + 13;
const CLEANING: u64 = 1 << 47;
const GRANTED: u32 = 48;
pub(crate) const WAITING: u32 = 56;

/// Live requests that are not counted any further.
pub(crate) const MANY: u32 = (1 << 13) - 1;
const MANY_DEAD: u32 = (1 << 8) - 1;

const _: () = assert!(DEAD + 8 == 47);

/// The word of one chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainWord(pub(crate) u64);

impl ChainWord {
    /// Nobody holds or awaits anything.
    pub(crate) const EMPTY: Self = Self(0);

    /// One request alone, and nobody waits.
    #[inline(always)]
    pub(crate) const fn alone(request: u32, mode: Set) -> Self {
        Self(request as u64 | 1 << LIVE | (mode.bits() as u64) << GRANTED)
    }

    const fn field(self, shift: u32, bits: u32) -> u32 {
        ((self.0 >> shift) & ((1 << bits) - 1)) as u32
    }

    const fn with_field(self, shift: u32, bits: u32, value: u32) -> Self {
        let mask = ((1 << bits) - 1) << shift;
        Self(self.0 & !mask | (value as u64) << shift)
    }

    #[inline]
    pub(crate) const fn top(self) -> u32 {
        self.field(0, NUMBER_BITS)
    }

    #[inline]
    pub(crate) const fn live(self) -> u32 {
        self.field(LIVE, 13)
    }

    #[inline]
    pub(crate) const fn dead(self) -> u32 {
        self.field(DEAD, 8)
    }

    #[inline]
    pub(crate) const fn is_cleaning(self) -> bool {
        self.0 & CLEANING != 0
    }

    #[inline]
    pub(crate) const fn granted(self) -> Set {
        Set::from_bits((self.0 >> GRANTED) as u8)
    }

    #[inline]
    pub(crate) const fn waiting_modes(self) -> Set {
        Set::from_bits((self.0 >> WAITING) as u8)
    }

    /// Whether a new request of a mode with these conflicts passes for free.
    #[inline]
    pub(crate) const fn conflicts_with(self, conflicts: Set) -> bool {
        self.granted()
            .union(self.waiting_modes())
            .intersects(conflicts)
    }

    /// With one request more, on top.
    #[inline]
    pub(crate) const fn pushed(self, top: u32, mode: Set) -> Self {
        let live = if self.live() == MANY { 0 } else { 1 << LIVE };
        Self(self.with_field(0, NUMBER_BITS, top).0 + live).and_granted(mode)
    }

    /// With a request on top in the place of one that is obsolete from now on.
    #[inline]
    pub(crate) const fn replaced(self, top: u32, mode: Set) -> Self {
        self.with_field(0, NUMBER_BITS, top)
            .and_granted(mode)
            .one_more_dead()
    }

    const fn and_granted(self, mode: Set) -> Self {
        Self(self.0 | (mode.bits() as u64) << GRANTED)
    }

    const fn one_more_dead(self) -> Self {
        let more = if self.dead() == MANY_DEAD {
            0
        } else {
            1 << DEAD
        };
        Self(self.0 + more)
    }

    /// With one request obsolete; a chain without live ones is empty, unless it is being cleaned.
    #[inline]
    pub(crate) const fn released(self) -> Self {
        if self.live() == 1 && !self.is_cleaning() {
            return self.emptied();
        }
        let live = if self.live() == MANY { 0 } else { 1 << LIVE };
        Self(self.0 - live).one_more_dead()
    }

    /// With the newest request, and `run` obsolete ones below it, gone from a chain in which others are
    /// live: `rest` is on top.
    #[inline]
    pub(crate) const fn popped(self, rest: u32, run: u32) -> Self {
        debug_assert!(self.live() != 1 && !self.is_cleaning());
        let live = if self.live() == MANY { 0 } else { 1 << LIVE };
        let word = Self(self.with_field(0, NUMBER_BITS, rest).0 - live);
        word.with_field(DEAD, 8, self.dead().saturating_sub(run))
    }

    /// Without requests. Who waits goes on waiting.
    pub(crate) const fn emptied(self) -> Self {
        Self(self.0 >> WAITING << WAITING)
    }

    pub(crate) const fn with_waiting(self, waiting_modes: Set) -> Self {
        Self(self.0 << 8 >> 8 | (waiting_modes.bits() as u64) << WAITING)
    }

    /// With *granted* as somebody has found it.
    pub(crate) const fn with_granted(self, granted: Set) -> Self {
        Self(self.0 & !(0xff << GRANTED)).and_granted(granted)
    }

    pub(crate) const fn cleaning(self) -> Self {
        Self(self.with_field(DEAD, 8, 0).0 | CLEANING)
    }

    pub(crate) const fn cleaned(self) -> Self {
        Self(self.0 & !CLEANING)
    }
}

/// Exchanges a word for what `to` makes of it, as often as it takes; `None` if it makes nothing. What
/// the word was, and what it is.
pub(crate) fn change(
    word: &AtomicU64,
    order: Ordering,
    to: impl Fn(ChainWord) -> Option<ChainWord>,
) -> Option<(ChainWord, ChainWord)> {
    let mut seen = ChainWord(word.load(Ordering::Relaxed));
    loop {
        let after = to(seen)?;
        match word.compare_exchange(seen.0, after.0, order, Ordering::Relaxed) {
            Ok(_) => return Some((seen, after)),
            Err(now) => seen = ChainWord(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::Mode;

    #[test]
    fn one_request_alone_is_what_is_put_into_an_empty_chain() {
        for mode in [Mode::IS, Mode::S, Mode::X] {
            let alone = ChainWord::alone(7, mode.set());
            assert_eq!(ChainWord::EMPTY.pushed(7, mode.set()), alone);
            assert_eq!(alone.released(), ChainWord::EMPTY);
        }
    }

    #[test]
    fn the_last_release_empties_the_chain_and_leaves_who_waits() {
        let word = ChainWord(0)
            .pushed(7, Mode::S.set())
            .pushed(9, Mode::IS.set());
        assert_eq!((word.top(), word.live(), word.dead()), (9, 2, 0));
        let word = word.with_waiting(Mode::X.set()).released();
        assert_eq!((word.top(), word.live(), word.dead()), (9, 1, 1));
        assert_eq!(word.granted(), Mode::S.set().union(Mode::IS.set()));
        assert_eq!(word.released(), ChainWord(0).with_waiting(Mode::X.set()));
        assert!(word.cleaning().released().is_cleaning());
    }

    #[test]
    fn the_newest_goes_and_takes_the_dead_below_along() {
        let word = ChainWord(0).pushed(3, Mode::IS.set());
        let word = word.pushed(7, Mode::S.set()).pushed(9, Mode::IS.set());
        let word = word.released();
        assert_eq!((word.top(), word.live(), word.dead()), (9, 2, 1));
        let word = word.popped(3, 1);
        assert_eq!((word.top(), word.live(), word.dead()), (3, 1, 0));
        assert_eq!(word.released(), ChainWord(0));
        // Somebody may be marked and not counted off yet: then nobody is on top.
        let word = word.pushed(5, Mode::IS.set()).popped(0, 1);
        assert_eq!((word.top(), word.live(), word.dead()), (0, 1, 0));
    }

    #[test]
    fn more_than_can_be_counted_is_not_counted() {
        let mut word = ChainWord(0);
        for _ in 0..MANY + 10 {
            word = word.pushed(1, Mode::S.set());
        }
        assert_eq!(word.live(), MANY);
        for _ in 0..2 * MANY {
            word = word.released();
        }
        assert_eq!((word.live(), word.dead(), word.top()), (MANY, MANY_DEAD, 1));
    }
}
