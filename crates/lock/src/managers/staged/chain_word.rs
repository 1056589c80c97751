//! Word of a chain, which decides whether a request is granted at once.
//!
//! ```text
//! bits   8        8        1         8       13      26
//!        waiting  granted  cleaning  dead    live    top
//! ```
//!
//! *Top* is the newest request. *Live* counts requests that are not obsolete. Once it has reached
//! its maximum it stays there, and the chain is never empty again: its last request stays. *Dead*
//! counts those that became obsolete since the chain was last cleaned, up to its maximum. *Granted*
//! has at least the components of every live request, and *waiting* exactly those that the queue in
//! front of the chain waits for. *Cleaning* says that a thread takes obsolete requests out of the
//! middle.

use super::request::NUMBER_BITS;
use crate::mode::Set;
use foxton_sync::shim::{AtomicU64, Ordering};

const LIVE: u32 = NUMBER_BITS;
const DEAD: u32 = LIVE + 13;
const CLEANING: u64 = 1 << 47;
const GRANTED: u32 = 48;
pub(crate) const WAITING: u32 = 56;

/// Number of live requests from which on they are not counted.
pub(crate) const MANY: u32 = (1 << 13) - 1;
const MANY_DEAD: u32 = (1 << 8) - 1;

const _: () = assert!(DEAD + 8 == 47);

/// Word of one chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainWord(pub(crate) u64);

impl ChainWord {
    /// No holder and no waiter.
    pub(crate) const EMPTY: Self = Self(0);

    /// Returns the word with one request alone, and no waiter.
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

    /// True if a new request with these conflicts may be blocked.
    #[inline]
    pub(crate) const fn conflicts_with(self, conflicts: Set) -> bool {
        self.granted()
            .union(self.waiting_modes())
            .intersects(conflicts)
    }

    /// Returns the word with one more request, on top.
    #[inline]
    pub(crate) const fn pushed(self, top: u32, mode: Set) -> Self {
        let live = if self.live() == MANY { 0 } else { 1 << LIVE };
        Self(self.with_field(0, NUMBER_BITS, top).0 + live).and_granted(mode)
    }

    /// Returns the word with a request on top that replaces one, which becomes obsolete.
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

    /// Returns the word with one more obsolete request; a chain without live ones becomes empty,
    /// unless it is being cleaned.
    #[inline]
    pub(crate) const fn released(self) -> Self {
        if self.live() == 1 && !self.is_cleaning() {
            return self.emptied();
        }
        let live = if self.live() == MANY { 0 } else { 1 << LIVE };
        Self(self.0 - live).one_more_dead()
    }

    /// Returns the word without the newest request and the `run` obsolete ones below it, for a
    /// chain with other live ones. `rest` is the new top.
    #[inline]
    pub(crate) const fn popped(self, rest: u32, run: u32) -> Self {
        debug_assert!(self.live() != 1 && !self.is_cleaning());
        let live = if self.live() == MANY { 0 } else { 1 << LIVE };
        let word = Self(self.with_field(0, NUMBER_BITS, rest).0 - live);
        word.with_field(DEAD, 8, self.dead().saturating_sub(run))
    }

    /// Returns the word without requests. Waiters stay.
    pub(crate) const fn emptied(self) -> Self {
        Self(self.0 >> WAITING << WAITING)
    }

    pub(crate) const fn with_waiting(self, waiting_modes: Set) -> Self {
        Self(self.0 << 8 >> 8 | (waiting_modes.bits() as u64) << WAITING)
    }

    /// Returns the word with *granted* set to `granted`.
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

/// Exchanges a word for the result of `to`, with retries; returns the former and the new word, or
/// `None` if `to` returns `None`.
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
        // A request may be marked and not uncounted yet; then there is no top.
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
