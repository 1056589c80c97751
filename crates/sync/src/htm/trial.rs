//! Whether trying pays, found by trying.
//!
//! A transaction that commits costs more than a latch that is free and that this processor had last, and more than
//! a line that comes from another processor for what lies on it in any case; one that aborts costs more still. What elision
//! saves, a wait or a line that nobody writes, cannot be told from what a single pass sees. So all passes go one way
//! for a while, then the other way, and what is faster is kept.
//!
//! # How it goes
//!
//! ```text
//!              some turns of one worker                   24 turns of all workers
//!   going, one way ----------------> timing, the same way -----------------------> comparing, the other way
//!         ^                                                                               |
//!         +-------- the faster way; if it is the old one, twice as long as before --------+
//! ```
//!
//! It goes by *site*: all latches that are the same place in the code (the buckets of a lock table, the accounts
//! of a bank) are tried together, by all workers, since a pass can be elided beside others that are elided, and not beside those
//! who take the latch. A worker looks which way to go when a *turn* of passes is over, 64 of them in a trial, 512 otherwise, so
//! that a pass reads and writes nothing for it that belongs to others.
//!
//! What is compared is the time of whole turns, with all that a worker does between its passes, since that is what
//! a program's time is made of. Of 24 turns the first 8 are not counted: others may still go the old way. Of the other 16
//! the 12 shortest count, since a thread that lost its processor says nothing. Elision must
//! be faster by a tenth. Otherwise the latch is taken, and while it is, its passes are those of the latch underneath, waiting
//! included.
//!
//! # What it costs
//!
//! * Where the latch is taken: a count for each pass; the trials, some 1,500 passes of 4,096 of one worker at the beginning,
//!   of half a million once it has been found right seven times in a row.
//! * Where it is elided: the same.
//! * A change is noticed after half a million passes at worst.
//!
//! One latch of a site that is wanted by all, among others that are not, makes its own passes rest: after a pass that
//! gave up the next fifteen of this latch take it.
//!
//! # State
//!
//! Of a site, for all workers ([`Trials`]): the phase, how many turns ended in it, and their times, each way. Of a worker
//! and a site: the passes left of its turn ([`Tally`](crate::htm::Tally)), and when and in which phase that began ([`Turn`]).
//!
//! While no site is tried or elided a worker's turns are *calm*: one counter of passes for all sites, on the worker's own
//! lines. The number of the site lies beside the latch, and where that line comes from another processor, a count that has
//! to wait for it makes the exchange on the latch wait twice.
//!
//! # Orderings
//!
//! None: all of it is a hint. A time that is written late counts for the wrong way, one of twelve. Only the phase has to
//! go on: whoever ends a turn after the last that counts ends the phase, if somebody else has not (I1).
//!
//! * I1  A phase is ended by an exchange of exactly that phase, tried again at each later turn of it: so it is
//!   ended once, whoever sleeps.

use crate::cache_line::CachePadded;
use crate::shim::untold::{AtomicU32, Ordering};
use std::cell::Cell;

/// Numbers of sites. Those that have the same are tried together.
pub(crate) const SITES: usize = if cfg!(loom) { 1 } else { 64 };

/// Passes of a turn while nothing is tried, and in a trial.
const LONG: i32 = if cfg!(loom) { 1 } else { 512 };
const SHORT: i32 = if cfg!(loom) { 1 } else { 64 };
/// Turns of a trial that do not count, those that do, and how many of these at the most.
const EARLY: usize = if cfg!(loom) { 0 } else { 8 };
const COUNTED: usize = if cfg!(loom) { 1 } else { 16 };
const SHORTEST: usize = if cfg!(loom) { 1 } else { 12 };
/// Turns of one worker between trials, after a change.
const FEWEST: u32 = if cfg!(loom) { 1 } else { 8 };
/// How often that is doubled.
const MOST_PATIENCE: u32 = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Going,
    Timing,
    Comparing,
}

/// A phase: which of all since the beginning, how patient, the stage, and whether passes are elided in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Phase(u32);

impl Phase {
    const ELIDES: u32 = 1;
    const STAGE: u32 = 1;
    const PATIENCE: u32 = 3;
    const NUMBER: u32 = 6;
    /// What is set where passes are elided, or timed.
    const LOUD: u32 = Self::ELIDES | 3 << Self::STAGE;

    /// Models have few passes: they begin in the middle of a trial.
    const FIRST: Self = match cfg!(loom) {
        false => Self::of(0, 0, Stage::Going, false),
        true => Self::of(0, 0, Stage::Comparing, true),
    };
    /// No latch is ever in it.
    const NONE: Self = Self(u32::MAX);

    const fn of(number: u32, patience: u32, stage: Stage, elides: bool) -> Self {
        Self(
            number << Self::NUMBER
                | patience << Self::PATIENCE
                | (stage as u32) << Self::STAGE
                | elides as u32,
        )
    }

    fn elides(self) -> bool {
        self.0 & Self::ELIDES != 0
    }

    fn stage(self) -> Stage {
        match self.0 >> Self::STAGE & 3 {
            0 => Stage::Going,
            1 => Stage::Timing,
            _ => Stage::Comparing,
        }
    }

    fn patience(self) -> u32 {
        self.0 >> Self::PATIENCE & 7
    }

    /// The one after it; `pays` says whether elision does, once both ways were timed.
    fn next(self, pays: impl FnOnce() -> bool) -> Self {
        let number = (self.0 >> Self::NUMBER).wrapping_add(1) << Self::NUMBER >> Self::NUMBER;
        let (patience, elides) = (self.patience(), self.elides());
        match self.stage() {
            Stage::Going => Self::of(number, patience, Stage::Timing, elides),
            Stage::Timing => Self::of(number, patience, Stage::Comparing, !elides),
            Stage::Comparing => {
                let pays = pays();
                let confirmed = pays != elides;
                let patience = if confirmed {
                    (patience + 1).min(MOST_PATIENCE)
                } else {
                    0
                };
                Self::of(number, patience, Stage::Going, pays)
            }
        }
    }

    /// Passes of a turn in it: below 0 if they are to be elided.
    fn passes(self) -> i32 {
        let passes = match self.stage() {
            Stage::Going => LONG,
            Stage::Timing | Stage::Comparing => SHORT,
        };
        if self.elides() { -passes } else { passes }
    }
}

/// What is known of the latches of one site.
#[derive(Debug, Default)]
struct Trial {
    /// Turns of a trial that have ended.
    ended: AtomicU32,
    /// Ticks of turns of a trial: of those that took the latch, and those that were elided.
    times: [[AtomicU32; COUNTED]; 2],
}

impl Trial {
    /// A turn of `ticks` has begun and ended in `phase`. Says whether that is over.
    fn ended(&self, phase: Phase, ticks: u64) -> bool {
        // Site: "trial of elision".
        let before = self.ended.fetch_add(1, Ordering::Relaxed) as usize;
        let times = &self.times[usize::from(phase.elides())];
        if let Some(time) = before.checked_sub(EARLY).and_then(|turn| times.get(turn)) {
            time.store(u32::try_from(ticks).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
        before + 1 >= EARLY + COUNTED
    }

    /// Whether turns that were elided took less than nine tenths of those that were not. By a twentieth less, sixteen turns each
    /// way were too few to tell, and a fifth of passes went the slower way.
    fn pays(&self) -> bool {
        let [taken, elided] = self.times.each_ref().map(|times| {
            let mut times = times.each_ref().map(|time| time.load(Ordering::Relaxed));
            times.sort_unstable();
            times[..SHORTEST]
                .iter()
                .copied()
                .map(u64::from)
                .sum::<u64>()
        });
        elided * 10 < taken * 9
    }
}

/// What is known of the latches of all sites, by all workers of a database.
#[derive(Debug)]
pub(crate) struct Trials {
    /// Beside each other, since whoever wants to know whether all are calm reads them all; they hardly ever change.
    phases: CachePadded<[AtomicU32; SITES]>,
    sites: [CachePadded<Trial>; SITES],
}

impl Default for Trials {
    fn default() -> Self {
        let first = |_| AtomicU32::new(Phase::FIRST.0);
        Self {
            phases: CachePadded::new(std::array::from_fn(first)),
            sites: std::array::from_fn(|_| CachePadded::default()),
        }
    }
}

impl Trials {
    fn phase(&self, site: usize) -> Phase {
        Phase(self.phases[site].load(Ordering::Relaxed))
    }

    /// Whether latches are taken at all sites, and nothing is tried.
    pub(crate) fn are_calm(&self) -> bool {
        let loud = |all, phase: &AtomicU32| all | phase.load(Ordering::Relaxed) & Phase::LOUD;
        self.phases.iter().fold(0, loud) == 0
    }

    /// A turn of `ticks` of a trial has begun and ended in `phase`.
    fn ended(&self, site: usize, phase: Phase, ticks: u64) {
        if self.sites[site].ended(phase, ticks) {
            self.go_on(site, phase);
        }
    }

    /// Ends `phase`, unless somebody did.
    fn go_on(&self, site: usize, phase: Phase) {
        let trial = &self.sites[site];
        let next = phase.next(|| trial.pays());
        // Before the exchange, so that no turn of the next phase is taken for its last.
        trial.ended.store(0, Ordering::Relaxed);
        let from = &self.phases[site];
        // Site: "trial of elision".
        let ended = from.compare_exchange(phase.0, next.0, Ordering::Relaxed, Ordering::Relaxed);
        let _somebody_else_was_first = ended.is_err(); // I1
    }
}

/// The turn that a worker is in, at one site.
#[derive(Debug, Clone, Copy)]
struct Turn {
    phase: Phase,
    since: u64,
    /// How many have ended, if nothing is tried.
    turns: u32,
}

/// Those of one worker.
#[derive(Debug)]
pub(crate) struct Turns(Box<[Cell<Turn>; SITES]>);

impl Default for Turns {
    fn default() -> Self {
        let none = Turn {
            phase: Phase::NONE,
            since: 0,
            turns: 0,
        };
        Self(Box::new(std::array::from_fn(|_| Cell::new(none))))
    }
}

impl Trials {
    /// Begins the next turn of a worker's passes at the site of that number, `now` being the clock's. Says which way they
    /// go: their number, below 0 if they are to be elided.
    pub(crate) fn next_turn(&self, turns: &Turns, site: usize, now: u64) -> i32 {
        let cell = &turns.0[site];
        let mut turn = cell.get();
        if turn.phase == self.phase(site) {
            match turn.phase.stage() {
                Stage::Going => {
                    turn.turns += 1;
                    if turn.turns >= FEWEST << turn.phase.patience() {
                        self.go_on(site, turn.phase);
                    }
                }
                Stage::Timing | Stage::Comparing => {
                    self.ended(site, turn.phase, now.saturating_sub(turn.since));
                }
            }
        }
        let phase = self.phase(site);
        if turn.phase != phase {
            (turn.phase, turn.turns) = (phase, 0);
        }
        turn.since = now;
        cell.set(turn);
        phase.passes()
    }
}

const _: () = assert!(MOST_PATIENCE < 8 && SHORTEST <= COUNTED);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What all workers know, and what some of them do each.
    fn some(count: usize) -> (Trials, Vec<Turns>) {
        let turns = (0..count).map(|_| Turns::default());
        (Trials::default(), turns.collect())
    }

    /// Turns of workers one after the other, until `passes` have passed: how many of them were elided. A pass takes
    /// so many ticks.
    fn passed(
        (trials, workers): &(Trials, Vec<Turns>),
        passes: u64,
        ticks: impl Fn(bool) -> u64,
        now: &mut u64,
    ) -> u64 {
        let (mut done, mut elided) = (0, 0);
        for worker in workers.iter().cycle() {
            let turn = trials.next_turn(worker, 0, *now);
            let length = u64::from(turn.unsigned_abs());
            *now += length * ticks(turn < 0);
            done += length;
            elided += if turn < 0 { length } else { 0 };
            if done >= passes {
                break;
            }
        }
        elided
    }

    const PASSES: u64 = 50_000_000;

    #[test]
    fn the_faster_way_is_gone() {
        let one = some(1);
        let mut now = 0;
        let elided = passed(
            &one,
            PASSES,
            |elided| if elided { 20 } else { 15 },
            &mut now,
        );
        assert!(elided > 0 && elided * 200 < PASSES, "{elided}");
        // And the other one, once that has changed.
        let elided = passed(
            &one,
            PASSES,
            |elided| if elided { 20 } else { 90 },
            &mut now,
        );
        assert!((PASSES - elided) * 50 < PASSES, "{elided}");
        let elided = passed(&one, PASSES, |_| 20, &mut now);
        assert!(elided * 50 < PASSES, "as fast is not enough: {elided}");
    }

    #[test]
    fn a_change_is_noticed_within_so_many_passes() {
        let one = some(1);
        let mut now = 0;
        passed(
            &one,
            PASSES,
            |elided| if elided { 20 } else { 15 },
            &mut now,
        );
        let most = 600_000;
        passed(&one, most, |elided| if elided { 20 } else { 90 }, &mut now);
        let elided = passed(&one, 4_000, |elided| if elided { 20 } else { 90 }, &mut now);
        assert!(elided >= 4_000, "{elided}");
    }

    /// Turns of one worker that are a thousand times as long as they should be: it lost its processor.
    #[test]
    fn a_quarter_of_the_turns_may_be_of_any_length() {
        let one = some(1);
        let (mut now, mut elided, mut done, mut turns) = (0, 0, 0, 0u64);
        while done < PASSES {
            let turn = one.0.next_turn(&one.1[0], 0, now);
            let length = u64::from(turn.unsigned_abs());
            turns += 1;
            let lost = if turns.is_multiple_of(4) { 1_000 } else { 1 };
            now += length * if turn < 0 { 20 } else { 90 * lost };
            done += length;
            elided += if turn < 0 { length } else { 0 };
        }
        assert!((PASSES - elided) * 20 < PASSES, "{elided}");
    }

    /// All go the same way but for the turn that they are in.
    #[test]
    fn workers_of_one_site_go_the_same_way() {
        let many = some(8);
        let mut now = 0;
        let elided = passed(
            &many,
            PASSES,
            |elided| if elided { 20 } else { 90 },
            &mut now,
        );
        assert!((PASSES - elided) * 50 < PASSES, "{elided}");
        let ways: Vec<bool> = many
            .1
            .iter()
            .map(|turns| many.0.next_turn(turns, 0, now) < 0)
            .collect();
        assert!(
            ways.iter().filter(|elided| **elided).count() >= 7,
            "{ways:?}"
        );
    }

    #[test]
    fn sites_know_nothing_of_each_other() {
        let one = some(1);
        passed(&one, PASSES, |elided| if elided { 20 } else { 90 }, &mut 0);
        assert_eq!(one.0.next_turn(&one.1[0], 1, 0), LONG);
    }

    /// Neither he who counted the last turn of a phase and then sleeps keeps it from ending, nor he whose turn was of the
    /// phase before.
    #[test]
    fn a_phase_ends_whoever_sleeps() {
        let trials = Trials::default();
        trials.go_on(0, trials.phase(0));
        let timing = trials.phase(0);
        assert!(!trials.are_calm());
        for _ in 0..EARLY + COUNTED - 1 {
            trials.ended(0, timing, 1);
        }
        let _the_last = trials.sites[0].ended(timing, 1);
        assert_eq!(trials.phase(0), timing);
        trials.ended(0, timing, 1);
        let comparing = trials.phase(0);
        assert_eq!(comparing.stage(), Stage::Comparing);
        for _ in 0..EARLY + COUNTED - 1 {
            trials.ended(0, comparing, 1);
        }
        trials.ended(0, timing, 1);
        assert_eq!(trials.phase(0), comparing);
        for _ in 0..EARLY + COUNTED {
            trials.ended(0, comparing, 1);
        }
        assert_ne!(trials.phase(0), comparing);
        assert!(trials.are_calm());
    }

    /// Where one site is elided, passes at another are not calm, or those at the first would be taken.
    #[test]
    fn nobody_is_calm_beside_a_site_that_is_elided() {
        let one = some(1);
        assert!(one.0.are_calm());
        passed(&one, PASSES, |elided| if elided { 20 } else { 90 }, &mut 0);
        assert!(!one.0.are_calm());
    }
}
