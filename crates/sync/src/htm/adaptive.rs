//! Adaptive elision: tries whether transactions are faster than the latch.
//!
//! A transaction that commits costs more than a free latch that this processor had last. It costs
//! more than fetching the latch's line from another processor, if that line has needed data anyway.
//! One that aborts costs more still. The gain of elision, a wait avoided or a line that no thread
//! writes, cannot be seen from a single pass. So all passes go one way for a while, then the other
//! way, and the faster way is kept.
//!
//! # How it works
//!
//! ```text
//!       a thread waited, and          8 stages: taken, elided, elided,
//!       the pause is over             taken, and again
//!  calm ------------------------> trial -----------------------------------------.
//!   ^                                                                            |
//!   |-------------- the latch was faster, or almost as fast ---------------------|
//!   |                                                                            v
//!   '------------ trial, the other way first <--------------------------------- elided
//!                                                the pause is over
//! ```
//!
//! Trials go by *site*: all workers together try the latches of one place in the code (the buckets
//! of a lock table, the accounts of a bank). The reason is that a pass can be elided beside others
//! that are elided, and not beside passes that take the latch. Of a site only those latches take
//! part at which threads have waited for each other. The others are *calm*: the latch underneath
//! and nothing else. All latches of a site become calm once the latch was found to be faster.
//!
//! No latch joins in the middle of a trial: the more there are, the more passes count, and each
//! stage would seem faster than the one before. The exception is a trial that made no progress for
//! a second: its participants have gone, and a new thread has to end it.
//!
//! A worker decides which way to go when a *turn* of passes is over: 64 of them in a trial, 512
//! where they are elided. So a single pass reads and writes nothing shared for it. In a trial the
//! worker counts its turn then, for all workers together. A stage is timed once its first turns,
//! and a tenth of a millisecond, are over, until it has had enough turns and nine tenths of a
//! millisecond. That is long enough for threads to sleep and be woken; of several that sleep for
//! each other one runs, and runs fast.
//!
//! The time for each turn, of all workers, is compared, the slowest stage of four left out each
//! way. It contains the program's own work between its passes, and time for which threads are
//! descheduled. Elision must be faster by a tenth.
//!
//! # Costs
//!
//! * Where the latch is taken: nothing for a pass. A trial takes some eight milliseconds, half of
//!   them the other way. The next comes after eight times as long, twice as much each time that the
//!   same way wins, up to 256 times or a second.
//! * Where it is elided: the same, and a count for each pass.
//! * A change is noticed as late as that, at worst.
//! * Many latches that all threads pass, and that are hardly ever held when a thread comes, are not
//!   tried. If they are only read, elision would gain there, too.
//!
//! If one latch of a site is contended, among others that are not, it makes its own passes skip
//! elision: after a pass that gave up the next fifteen of this latch take it.
//!
//! # State
//!
//! * Per site, for all workers ([`ElisionTrials`]): the phase, the number of turns that ended in
//!   this stage and the time since which they count, the times each way, and the time of the next
//!   trial.
//! * Per worker and site: the passes left of its turn ([`ElisionStats`](crate::htm::ElisionStats)),
//!   and the phase in which that began ([`WorkerTurns`]).
//! * Per latch: whether it is calm, and how often threads have waited for it (`latch/elided.rs`).
//!
//! # Orderings
//!
//! None: all of it is a hint. A time that is written late counts for the wrong stage, or lets a
//! trial begin early. Only the phase has to advance: a thread that ends a turn after the last that
//! counts ends the phase, if no other has (I1).
//!
//! * I1  A phase is ended by an exchange of exactly that phase, tried again at each later turn of
//!   it: so it is ended once, even if a thread sleeps.

use crate::cache_line::CachePadded;
use crate::shim::unmodelled::{AtomicU32, AtomicU64, Ordering};
use std::cell::Cell;

/// Number of sites. Sites with the same number are tried together.
pub(crate) const SITES: usize = if cfg!(loom) { 1 } else { 64 };

/// Passes of a turn where they are elided, and in a trial.
const ELIDED_TURN: i32 = if cfg!(loom) { 1 } else { 512 };
const TRIAL_TURN: i32 = if cfg!(loom) { 1 } else { 64 };
/// Number of rounds of a trial, each of which goes both ways.
const ROUNDS: usize = if cfg!(loom) { 1 } else { 4 };
/// Number of rounds, the fastest, that are compared.
const COMPARED_ROUNDS: usize = if cfg!(loom) { 1 } else { 3 };
/// Turns of a stage that are not timed; minimum and maximum number that are timed.
const SETTLING_TURNS: u32 = 8;
const MIN_TIMED_TURNS: u32 = 16;
const MAX_TURNS: u32 = 1 << 16;
/// Minimum ticks of a stage, before it is timed and while it is: a tenth of a millisecond and
/// almost one.
const SETTLING_TICKS: u64 = 1 << 18;
const STAGE_TICKS: u64 = 1 << 21;
/// Factor by which the pause after a trial is longer than the trial, after a change; and how often
/// that is doubled at most.
const PAUSE_FACTOR: u64 = 8;
const MAX_STREAK: u32 = 5;
/// Maximum ticks of a pause: about a second. A trial can take as long as threads have nothing to
/// do.
const MAX_PAUSE_TICKS: u64 = 1 << 32;

/// A phase: its number since the beginning, the streak of trials won by one way, the stage of a
/// trial, and whether passes are elided in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TrialPhase(u32);

impl TrialPhase {
    const ELIDES: u32 = 1;
    const STAGE: u32 = 1;
    const STREAK: u32 = 5;
    const NUMBER: u32 = 8;

    /// No stage of a trial.
    const SETTLED: u32 = 0;
    const LAST: u32 = 2 * ROUNDS as u32;

    /// Models have few passes: they begin in the middle of a trial.
    const FIRST: Self = match cfg!(loom) {
        false => Self::of(0, 0, Self::SETTLED, false),
        true => Self::of(0, 0, Self::LAST, true),
    };
    /// A phase that no latch is ever in.
    const NONE: Self = Self(u32::MAX);

    const fn of(number: u32, streak: u32, stage: u32, elides: bool) -> Self {
        Self(number << Self::NUMBER | streak << Self::STREAK | stage << Self::STAGE | elides as u32)
    }

    fn elides(self) -> bool {
        self.0 & Self::ELIDES != 0
    }

    fn stage(self) -> u32 {
        self.0 >> Self::STAGE & 15
    }

    fn is_settled(self) -> bool {
        self.stage() == Self::SETTLED
    }

    /// True if latches are taken, and nothing is tried.
    fn is_calm(self) -> bool {
        self.is_settled() && !self.elides()
    }

    /// True if a calm latch stops being calm in it. Not in the middle of a trial, which would seem
    /// to go faster and faster.
    fn admits_latches(self) -> bool {
        self.stage() == 1 || self.is_settled() && self.elides()
    }

    /// Index of the round of a trial.
    fn round(self) -> usize {
        (self.stage().saturating_sub(1) / 2) as usize
    }

    fn streak(self) -> u32 {
        self.0 >> Self::STREAK & 7
    }

    /// Returns the next phase; `pays` says whether elision does, once all stages are over.
    fn next(self, pays: impl FnOnce() -> bool) -> Self {
        let number = (self.0 >> Self::NUMBER).wrapping_add(1) << Self::NUMBER >> Self::NUMBER;
        let (stage, streak, elides) = (self.stage(), self.streak(), self.elides());
        if stage == Self::SETTLED {
            return Self::of(number, streak, 1, elides);
        }
        if stage < Self::LAST {
            let other = stage % 2 == 1;
            return Self::of(number, streak, stage + 1, elides != other);
        }
        let pays = pays();
        let before = elides != (ROUNDS % 2 == 1);
        let streak = match pays == before {
            true => (streak + 1).min(MAX_STREAK),
            false => 0,
        };
        Self::of(number, streak, Self::SETTLED, pays)
    }

    /// Number of passes of a turn in it: below 0 if they are to be elided, 0 if it is calm.
    fn passes(self) -> i32 {
        match (self.is_settled(), self.elides()) {
            (true, false) => 0,
            (true, true) => -ELIDED_TURN,
            (false, false) => TRIAL_TURN,
            (false, true) => -TRIAL_TURN,
        }
    }
}

/// Findings about the latches of one site.
#[derive(Debug, Default)]
struct SiteTrial {
    /// Turns of this stage that have ended; its start; and the time since which they are timed, 0
    /// if they are not.
    turns: AtomicU32,
    stage_start: AtomicU64,
    timed_since: AtomicU64,
    /// Ticks for each turn: of those that took the latch, and those that were elided.
    times: [[AtomicU64; ROUNDS]; 2],
    /// Start of the last trial, and the earliest start of the next.
    trial_start: AtomicU64,
    next_trial: AtomicU64,
}

impl SiteTrial {
    /// Records a turn that began and ended in `phase`. Returns whether the phase is over.
    fn record_turn(&self, phase: TrialPhase, now: u64) -> bool {
        // Site: "trial of elision".
        let turns = self.turns.fetch_add(1, Ordering::Relaxed) + 1;
        let ticks = |since: &AtomicU64| now.saturating_sub(since.load(Ordering::Relaxed));
        if cfg!(loom) {
            return true;
        }
        if self.timed_since.load(Ordering::Relaxed) == 0 {
            if turns >= MAX_TURNS
                || turns >= SETTLING_TURNS && ticks(&self.stage_start) >= SETTLING_TICKS
            {
                self.turns.store(0, Ordering::Relaxed);
                self.timed_since.store(now.max(1), Ordering::Relaxed);
            }
            return false;
        }
        let took = ticks(&self.timed_since);
        if turns < MAX_TURNS && (turns < MIN_TIMED_TURNS || took < STAGE_TICKS) {
            return false;
        }
        let time = &self.times[usize::from(phase.elides())][phase.round()];
        time.store(took / u64::from(turns), Ordering::Relaxed);
        true
    }

    /// True if no thread has ended its stage for so long that its participants will not: their
    /// latches are gone, or no thread passes them any more.
    fn is_abandoned(&self, now: u64) -> bool {
        now.saturating_sub(self.stage_start.load(Ordering::Relaxed)) > MAX_PAUSE_TICKS
    }

    /// Sets the start of the next trial, later for a longer streak.
    fn schedule_next(&self, now: u64, streak: u32) {
        let took = now.saturating_sub(self.trial_start.load(Ordering::Relaxed));
        let rest = took
            .saturating_mul(PAUSE_FACTOR << streak)
            .min(MAX_PAUSE_TICKS);
        self.next_trial
            .store(now.saturating_add(rest), Ordering::Relaxed);
    }

    /// True if elision took less than nine tenths of the time.
    fn pays(&self) -> bool {
        let [taken, elided] = self.times.each_ref().map(|times| {
            let mut times = times.each_ref().map(|time| time.load(Ordering::Relaxed));
            times.sort_unstable();
            times[..COMPARED_ROUNDS].iter().sum::<u64>()
        });
        elided * 10 < taken * 9
    }
}

/// Findings about the latches of all sites, of all workers of a database.
#[derive(Debug)]
pub(crate) struct ElisionTrials {
    /// Adjacent, because a check whether all are calm reads them all; they hardly ever change.
    phases: CachePadded<[AtomicU32; SITES]>,
    sites: [CachePadded<SiteTrial>; SITES],
}

impl Default for ElisionTrials {
    fn default() -> Self {
        let first = |_| AtomicU32::new(TrialPhase::FIRST.0);
        Self {
            phases: CachePadded::new(std::array::from_fn(first)),
            sites: std::array::from_fn(|_| CachePadded::default()),
        }
    }
}

impl ElisionTrials {
    fn phase(&self, site: usize) -> TrialPhase {
        TrialPhase(self.phases[site].load(Ordering::Relaxed))
    }

    /// Begins a trial, if there is none and its time has come.
    fn begin_trial(&self, site: usize, phase: TrialPhase, now: u64) {
        if phase.is_settled() && now >= self.sites[site].next_trial.load(Ordering::Relaxed) {
            self.end_phase(site, phase, now);
        }
    }

    /// Ends `phase`, unless another thread did.
    fn end_phase(&self, site: usize, phase: TrialPhase, now: u64) {
        let trial = &self.sites[site];
        let next = phase.next(|| trial.pays());
        // Before the exchange, so that no turn of the next phase counts as its last.
        trial.turns.store(0, Ordering::Relaxed);
        trial.timed_since.store(0, Ordering::Relaxed);
        trial.stage_start.store(now, Ordering::Relaxed);
        if phase.is_settled() {
            trial.trial_start.store(now, Ordering::Relaxed);
        }
        if next.is_settled() {
            trial.schedule_next(now, next.streak());
        }
        let from = &self.phases[site];
        // Site: "trial of elision".
        let ended = from.compare_exchange(phase.0, next.0, Ordering::Relaxed, Ordering::Relaxed);
        let _somebody_else_was_first = ended.is_err(); // I1
    }

    /// True if a calm latch at that site, for which threads wait, is to be calm no longer: because
    /// others at the site are not, or because a trial begins now.
    pub(crate) fn should_leave_calm(&self, site: usize, now: u64) -> bool {
        self.begin_trial(site, self.phase(site), now);
        let phase = self.phase(site);
        phase.admits_latches() || !phase.is_settled() && self.sites[site].is_abandoned(now)
    }
}

/// The phases in which the turns of one worker began, at each site.
#[derive(Debug)]
pub(crate) struct WorkerTurns(Box<[Cell<TrialPhase>; SITES]>);

impl Default for WorkerTurns {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| {
            Cell::new(TrialPhase::NONE)
        })))
    }
}

impl ElisionTrials {
    /// Begins the next turn of a worker's passes at that site, at time `now` of the clock. Returns
    /// their number, below 0 if they are to be elided; 0 if the latch is taken and calm from then
    /// on.
    pub(crate) fn next_turn(&self, turns: &WorkerTurns, site: usize, now: u64) -> i32 {
        let turn = &turns.0[site];
        let phase = self.phase(site);
        if phase.is_calm() {
            // Only a latch for which a thread waits ends it.
        } else if phase.is_settled() {
            self.begin_trial(site, phase, now);
        } else if turn.get() == phase && self.sites[site].record_turn(phase, now) {
            self.end_phase(site, phase, now);
        }
        let phase = self.phase(site);
        turn.set(phase);
        phase.passes()
    }
}

const _: () = assert!(MAX_STREAK < 8 && TrialPhase::LAST < 16 && COMPARED_ROUNDS <= ROUNDS);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The findings of all workers, and the turns of `count` of them.
    fn some(count: usize) -> (ElisionTrials, Vec<WorkerTurns>) {
        let turns = (0..count).map(|_| WorkerTurns::default());
        (ElisionTrials::default(), turns.collect())
    }

    /// Passes of a calm latch between two waits.
    const CALM: i32 = 16;

    /// Returns the next passes of one worker at a latch that is calm until it is worth it: their
    /// number, below 0 if they are elided.
    fn next((trials, workers): &(ElisionTrials, Vec<WorkerTurns>), worker: usize, now: u64) -> i32 {
        let passes = trials.next_turn(&workers[worker], 0, now);
        if passes == 0 && trials.should_leave_calm(0, now) {
            return trials.next_turn(&workers[worker], 0, now);
        }
        if passes == 0 { CALM } else { passes }
    }

    /// Runs turns of the workers one after the other, until `passes` have passed; returns how many
    /// of them were elided. `ticks` gives the time of a pass.
    fn passed(
        some: &(ElisionTrials, Vec<WorkerTurns>),
        passes: u64,
        ticks: impl Fn(bool) -> u64,
        now: &mut u64,
    ) -> u64 {
        let (mut done, mut elided) = (0, 0);
        for worker in (0..some.1.len()).cycle() {
            let turn = next(some, worker, *now);
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

    fn slow(elided: bool) -> u64 {
        if elided { 2_000 } else { 1_500 }
    }

    fn fast(elided: bool) -> u64 {
        if elided { 2_000 } else { 9_000 }
    }

    #[test]
    fn the_faster_way_is_kept() {
        let one = some(1);
        let mut now = 0;
        let elided = passed(&one, PASSES, slow, &mut now);
        assert!(elided > 0 && elided * 200 < PASSES, "{elided}");
        // And the other way, once that has changed.
        let elided = passed(&one, PASSES, fast, &mut now);
        assert!((PASSES - elided) * 50 < PASSES, "{elided}");
        let elided = passed(&one, PASSES, |_| 2_000, &mut now);
        assert!(elided * 20 < PASSES, "as fast is not enough: {elided}");
    }

    #[test]
    fn a_change_is_noticed_within_so_many_trials() {
        let one = some(1);
        let mut now = 0;
        let most = |ticks| {
            (PAUSE_FACTOR << MAX_STREAK) * TrialPhase::LAST as u64 * (STAGE_TICKS + SETTLING_TICKS)
                / ticks
        };
        passed(&one, PASSES, slow, &mut now);
        passed(&one, most(1_500) * 5 / 4, fast, &mut now);
        let elided = passed(&one, 4_000, fast, &mut now);
        assert!(elided >= 4_000, "{elided}");
        // And back.
        passed(&one, PASSES, fast, &mut now);
        passed(&one, most(2_000) * 5 / 4, slow, &mut now);
        let elided = passed(&one, 4_000, slow, &mut now);
        assert_eq!(elided, 0);
    }

    /// In one round of each trial a thread is descheduled, whichever way it goes.
    #[test]
    fn one_round_may_be_of_any_length() {
        for (stage, pays) in [(3, true), (4, true), (2, false), (5, false)] {
            let one = some(1);
            let (mut now, mut elided, mut done) = (0, 0, 0);
            while done < PASSES {
                let turn = next(&one, 0, now);
                let length = u64::from(turn.unsigned_abs());
                let lost = if one.0.phase(0).stage() == stage {
                    1_000
                } else {
                    1
                };
                let ticks = if pays { fast(turn < 0) } else { slow(turn < 0) };
                now += length * ticks * lost;
                done += length;
                elided += if turn < 0 { length } else { 0 };
            }
            let wrong = if pays { PASSES - elided } else { elided };
            assert!(wrong * 20 < PASSES, "{stage}: {elided}");
        }
    }

    /// All go the same way except for the turn that they are in.
    #[test]
    fn workers_of_one_site_go_the_same_way() {
        let many = some(8);
        let mut now = 0;
        let elided = passed(&many, PASSES, fast, &mut now);
        assert!((PASSES - elided) * 50 < PASSES, "{elided}");
        let ways = (0..8).map(|worker| next(&many, worker, now) < 0);
        assert!(ways.filter(|elided| *elided).count() >= 7);
    }

    #[test]
    fn sites_adapt_independently() {
        let one = some(1);
        passed(&one, PASSES, fast, &mut 0);
        assert_eq!(one.0.next_turn(&one.1[0], 0, 0), -ELIDED_TURN);
        assert_eq!(one.0.next_turn(&one.1[0], 1, 0), 0);
    }

    /// At a site where threads always wait, no trial begins before a pause as long as the last
    /// trial, doubled for each win of the latch. A second is enough, however long a trial took.
    #[test]
    fn a_calm_site_pauses_for_longer_and_longer() {
        let one = some(1);
        let (mut now, mut last, mut rests) = (0, 0, Vec::new());
        while rests.len() < 8 {
            if one.0.should_leave_calm(0, now) {
                rests.push(now - last);
                while !one.0.phase(0).is_calm() {
                    passed(&one, 1, slow, &mut now);
                }
                last = now;
            }
            now += 10_000;
        }
        assert!(rests[1] * 10 < rests[5], "{rests:?}");
        assert!(rests[6].abs_diff(rests[7]) * 8 < rests[7], "{rests:?}");
        let end = now + (1 << 50);
        one.0.end_phase(0, one.0.phase(0), now);
        while !one.0.phase(0).is_calm() {
            one.0.end_phase(0, one.0.phase(0), end);
        }
        assert!(!one.0.should_leave_calm(0, end + MAX_PAUSE_TICKS - 1));
        assert!(one.0.should_leave_calm(0, end + MAX_PAUSE_TICKS));
    }

    /// Otherwise more and more of their passes would count, and each stage seem faster than the one
    /// before.
    #[test]
    fn no_latch_joins_in_the_middle_of_a_trial() {
        let trials = ElisionTrials::default();
        assert!(trials.should_leave_calm(0, 1) && trials.should_leave_calm(0, 1));
        trials.end_phase(0, trials.phase(0), 1);
        while !trials.phase(0).is_settled() {
            assert!(!trials.should_leave_calm(0, 1 + MAX_PAUSE_TICKS));
            trials.end_phase(0, trials.phase(0), 1);
        }
    }

    /// All its latches were dropped in the middle of it.
    #[test]
    fn an_abandoned_trial_is_ended_by_others() {
        let one = some(1);
        let mut now = 1;
        assert!(one.0.should_leave_calm(0, now));
        one.0.end_phase(0, one.0.phase(0), now);
        assert!(!one.0.should_leave_calm(0, now));
        now += MAX_PAUSE_TICKS + 1;
        assert!(one.0.should_leave_calm(0, now));
        passed(&one, PASSES, fast, &mut now);
        assert!(next(&one, 0, now) < 0);
    }

    /// Each way comes first as often as the other, and the last stage is over before either is
    /// kept.
    #[test]
    fn stages_of_a_trial_are_fair() {
        for elides in [false, true] {
            let mut phase = TrialPhase::of(0, 0, TrialPhase::SETTLED, elides);
            let mut ways = Vec::new();
            for _ in 0..TrialPhase::LAST {
                phase = phase.next(|| unreachable!("it is not over"));
                ways.push(phase.elides() != elides);
            }
            assert_eq!(ways, [false, true, true, false, false, true, true, false]);
            for pays in [false, true] {
                let gone = phase.next(|| pays);
                assert!(gone.is_settled() && gone.elides() == pays);
                assert_eq!(gone.streak(), u32::from(pays == elides));
            }
        }
    }

    /// A thread that counted the last turn of a phase and then sleeps does not keep it from ending,
    /// nor does a thread whose turn was of the phase before.
    #[test]
    fn a_phase_ends_even_if_a_thread_sleeps() {
        let trials = ElisionTrials::default();
        let trial = &trials.sites[0];
        let mut now = 1;
        assert!(trials.should_leave_calm(0, now));
        let first = trials.phase(0);
        let mut last = |phase| {
            now += SETTLING_TICKS;
            while !trial.record_turn(phase, now) {
                now += STAGE_TICKS / 2;
            }
            now
        };
        let _he_sleeps = last(first);
        assert_eq!(trials.phase(0), first);
        let later = last(first);
        trials.end_phase(0, first, later);
        let second = trials.phase(0);
        assert_eq!(second.stage(), 2);
        for _ in 0..3 {
            let later = last(second);
            trials.end_phase(0, first, later);
            assert_eq!(trials.phase(0), second);
        }
        let later = last(second);
        trials.end_phase(0, second, later);
        assert_eq!(trials.phase(0).stage(), 3);
    }
}
