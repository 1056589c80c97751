//! When trying pays: what a latch learns from the passes that take it.
//!
//! A transaction that commits costs more than a latch that is free and that this thread had last, so where
//! nobody else comes elision only costs; and where transactions abort it costs more still. Neither can be
//! seen from inside a transaction. It can be seen by who takes the real latch, and may be written down
//! there, since nobody else has the latch's line in a transaction that will commit.
//!
//! # How it goes
//!
//! ```text
//!            moved seldom                             credit gone: rest doubles, credit halves
//!         +--------------+                         +------------------------------------------+
//!         v              |                         |                                          |
//!   rest, some passes -> look, 16 passes -- moved often --> try: elided, but for one pass in 2,048
//!         ^                  ^                                |                               |
//!         |                  +-------- that one: it paid -----+                               |
//!         +-----------------------------------------------------------------------------------+
//! ```
//!
//! *Look.* Sixteen passes take the latch, and count how often it *moved*: another worker than the last one has
//! it. Each move is a cache line sent from core to core, or a wait, and that is all that elision can save.
//! Waiting would be too late a sign: short sections hardly ever meet. At fewer than two moves of sixteen the
//! latch rests for 240 passes, and looks again.
//!
//! *Try.* Each pass begins a transaction. One that gives up pays one from the credit. When that is gone, trying
//! did not pay: the latch rests, each time twice as long as the time before, up to 4,095 passes, and the next
//! trial has half the credit, down to two. One pass in 2,048, drawn by each worker, takes the latch instead:
//! that the trial got there shows that it pays, so credit and rest are as good as can be again; and it looks
//! again, as those for whom it tried may be gone.
//!
//! # What it costs
//!
//! * Used by one thread: nothing is ever tried. A pass decrements one word on the line that it has taken.
//! * Used by many, where transactions abort: at worst two passes of 4,097 give up, each after three attempts.
//! * Used by many, where they commit: 17 passes of 2,064 are not elided.
//! * When a thread stays behind alone, it tries some 2,048 passes more.
//!
//! # State
//!
//! ```text
//! 31    26 25   22 21   17 16   12 11         0
//! +--------+-------+-------+-------+-----------+
//! | credit | moved |  who  | losses|   rest    |
//! +--------+-------+-------+-------+-----------+
//! ```
//!
//! `rest` passes are left that do not try; the last sixteen of them look. `who` is the last holder, by the low
//! bits of its id: two workers that look the same make a latch rest too long, and no harm. `losses` is how often in a
//! row trying did not pay. The other policies use `rest` alone.

/// One pass in so many of those that could try takes the latch.
pub(super) const PROBE: u64 = 2_048;

/// Passes that look whether the latch moves. Few in a model, in which there are few.
pub(super) const LOOK: u32 = if cfg!(loom) { 1 } else { 16 };
/// From so many moves among them on, trying may pay.
pub(super) const MOVES: u32 = if cfg!(loom) { 1 } else { 2 };
/// Passes until a latch that did not move looks again, that look included.
pub(super) const IDLE: u32 = 256;
/// The rest after the first loss.
const SHORTEST: u32 = 64;
/// Losses after which the rest is no longer, and the credit no smaller.
const MOST_LOSSES: u32 = 6;
/// Passes that may give up in a trial after one that paid.
const MOST_CREDIT: u32 = 63;
const LEAST_CREDIT: u32 = 2;
/// As many losses a latch begins with: the first trial is short.
const FIRST_LOSSES: u32 = 3;

/// Why a pass took the latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The latch rests.
    Resting,
    /// To have a look, while it tries.
    Probe,
    /// Its transactions aborted.
    GaveUp,
    /// It was held for long.
    Waited,
}

/// See above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u32);

const REST: (u32, u32) = (0, 12);
const LOSSES: (u32, u32) = (12, 5);
const WHO: (u32, u32) = (17, 5);
const MOVED: (u32, u32) = (22, 4);
const CREDIT: (u32, u32) = (26, 6);

const fn mask((_, bits): (u32, u32)) -> u32 {
    (1 << bits) - 1
}

impl State {
    /// Where a latch begins that adapts.
    pub(super) const LOOKING: Self = Self(0)
        .with(REST, LOOK)
        .with(LOSSES, FIRST_LOSSES)
        .with(CREDIT, credit(FIRST_LOSSES));

    /// With nothing but a rest.
    pub(super) const fn plain(rest: u32) -> Self {
        Self(rest)
    }

    pub(super) const fn of_word(word: u32) -> Self {
        Self(word)
    }

    pub(super) const fn word(self) -> u32 {
        self.0
    }

    /// How many passes are not to try.
    #[inline(always)]
    pub(super) const fn rest(self) -> u32 {
        self.get(REST)
    }

    const fn get(self, field: (u32, u32)) -> u32 {
        self.0 >> field.0 & mask(field)
    }

    const fn with(self, field: (u32, u32), value: u32) -> Self {
        let most = mask(field);
        let value = if value > most { most } else { value };
        Self(self.0 & !(most << field.0) | value << field.0)
    }

    /// What comes after a pass that took the latch.
    #[inline(always)]
    pub(super) const fn taken(self, worker: u32, why: Why) -> Self {
        match why {
            // Nearly always: one subtraction, and the field does not borrow.
            Why::Resting if self.rest() > LOOK => Self(self.0 - 1),
            Why::Resting => self.looked(worker),
            Why::Probe => self
                .with(REST, LOOK)
                .with(LOSSES, 0)
                .with(CREDIT, credit(0))
                .with(MOVED, 0),
            Why::GaveUp => self.gave_up(),
            // A holder that stayed for long, or is not running: nothing to learn from.
            Why::Waited => self,
        }
    }

    const fn looked(self, worker: u32) -> Self {
        let who = worker & mask(WHO);
        let moved = self.get(MOVED) + (self.get(WHO) != who) as u32;
        let next = Self(self.0 - 1).with(WHO, who).with(MOVED, moved);
        if next.rest() > 0 {
            return next;
        }
        // The look is over.
        let next = next.with(MOVED, 0);
        if moved < MOVES {
            next.with(REST, IDLE)
        } else {
            next
        }
    }

    const fn gave_up(self) -> Self {
        let left = self.get(CREDIT).saturating_sub(1);
        if left > 0 {
            return self.with(CREDIT, left);
        }
        let losses = self.get(LOSSES);
        let more = if losses < MOST_LOSSES {
            losses + 1
        } else {
            losses
        };
        self.with(REST, SHORTEST << losses)
            .with(LOSSES, more)
            .with(CREDIT, credit(more))
            .with(MOVED, 0)
    }
}

/// Passes that may give up in a trial after so many losses.
const fn credit(losses: u32) -> u32 {
    let credit = (MOST_CREDIT + 1) >> losses;
    if credit > MOST_CREDIT {
        MOST_CREDIT
    } else if credit < LEAST_CREDIT {
        LEAST_CREDIT
    } else {
        credit
    }
}

const _: () = assert!(REST.1 + LOSSES.1 + WHO.1 + MOVED.1 + CREDIT.1 == 32);
const _: () = assert!(IDLE <= mask(REST) && LOOK < IDLE && MOVES <= mask(MOVED));

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Passes of one worker until something is tried, at most `most`.
    fn rests(mut state: State, who: impl Fn(u32) -> u32, most: u32) -> (u32, State) {
        for passed in 0..most {
            if state.rest() == 0 {
                return (passed, state);
            }
            state = state.taken(who(passed), Why::Resting);
        }
        (most, state)
    }

    #[test]
    fn a_latch_that_one_worker_uses_is_never_elided() {
        for worker in [0, 5, 31, 32, 1_000] {
            let (passed, state) = rests(State::LOOKING, |_| worker, 100_000);
            assert_eq!(passed, 100_000);
            assert!(state.rest() > 0);
        }
    }

    #[test]
    fn a_latch_that_moves_is_elided_after_one_look() {
        let (passed, state) = rests(State::LOOKING, |pass| pass / 4, 1_000);
        assert_eq!((passed, state.rest()), (LOOK, 0));
        // Once it had one user for a while, then two: at the next look.
        let (_, idle) = rests(State::LOOKING, |_| 7, LOOK);
        let (passed, _) = rests(idle, |pass| pass % 2, 1_000);
        assert_eq!(passed, IDLE);
    }

    /// One pass of 2,000 and fewer gives up where nothing ever commits, from the seventh trial on.
    #[test]
    fn where_nothing_commits_hardly_anything_is_tried() {
        let (mut state, mut given_up, mut rested) = (State::LOOKING, 0u32, 0);
        for trial in 0..100 {
            let (passed, next) = rests(state, |pass| pass, 1_000_000);
            state = next;
            let mut tried = 0;
            while state.rest() == 0 {
                state = state.taken(0, Why::GaveUp);
                tried += 1;
            }
            if trial >= 7 {
                rested += passed;
                given_up += tried;
            }
        }
        assert!(given_up * 2_000 < rested, "{given_up} of {rested}");
    }

    #[test]
    fn a_trial_that_paid_makes_up_for_those_that_did_not() {
        let mut state = State::LOOKING;
        for _ in 0..50 {
            state = rests(state, |pass| pass, 10_000).1;
            while state.rest() == 0 {
                state = state.taken(0, Why::GaveUp);
            }
        }
        assert_eq!(state.get(LOSSES), MOST_LOSSES);
        state = rests(state, |pass| pass, 10_000).1.taken(1, Why::Probe);
        assert_eq!((state.rest(), state.get(LOSSES)), (LOOK, 0));
        assert_eq!(state.get(CREDIT), MOST_CREDIT);
        // So many passes may give up until the next probe, and the trial goes on.
        let (_, mut state) = rests(state, |pass| pass, 100);
        for _ in 1..MOST_CREDIT {
            state = state.taken(0, Why::GaveUp);
            assert_eq!(state.rest(), 0);
        }
        assert_eq!(state.taken(0, Why::GaveUp).rest(), SHORTEST);
    }

    #[test]
    fn who_waited_for_long_changes_nothing() {
        for word in [0, State::LOOKING.word(), u32::MAX] {
            let state = State::of_word(word);
            assert_eq!(state.taken(3, Why::Waited), state);
        }
    }
}
