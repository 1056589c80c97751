//! Whether seats do more than none: trial and term.
//!
//! ```text
//!       busy, and many are blocked or there    seats did more
//!   rest ----------------------------> trial -----------------> term
//!    ^                                  |  ^                     |
//!    |     seats did not, or it is over |  |   the term is over  |
//!    +----------------------------------+  +---------------------+
//!    ^                                                           |
//!    +--------- few are blocked, wait for seats, or are there ---+
//! ```
//!
//! | stage | seats | until |
//! | --- | --- | --- |
//! | rest | none | more are blocked or there than usual, and the process has used three fifths of the processors for [`SAMPLE`] |
//! | trial | none, then some | each has been so for [`PHASE`], or a little longer where nobody looked in time, of which the commits after [`SETTLE`] count; or with seats the process has used less than two fifths of the processors in [`SAMPLES`] in a row, or by [`FIRST`] next to nothing was done, and seats have lost |
//! | term | some | after [`SHORTEST`], twice as long after each trial that is won again, up to [`LONGEST_TERM`]; or in [`SAMPLES`] in a row the process has used less than two fifths of the processors, or in [`SPELL`] next to nothing was done, since the seats may be held by who waits for something else; or no more are blocked and in line, or there, than usual |
//!
//! After a trial that was lost the next may not begin for [`SHORTEST`], then for twice that, up to [`LONGEST_REST`], or
//! [`LONGEST_OF_HOPELESS`].
//!
//! A crowd does not come about at once: the first tenth of a second without seats does more than any after it, and the
//! first with them less, while those who have locks and no seat are still at work. Hence the time to settle; phases
//! that were shorter had seats lose where they did a third more.

use std::time::{Duration, Instant};

/// What share of the processors a crowd uses at least when a trial begins: the processors of threads that wake each
/// other are idle in between, a quarter of the time as it was measured; and below what share seats are of no use.
const BUSY: f64 = 0.6;
const IDLE: f64 = 0.4;
/// Over so long the use of the processors is measured.
const SAMPLE: Duration = Duration::from_millis(4);
/// So many tell that the processors are idle, or the crowd gone: one may be nothing but a moment in which others had
/// the processors.
const SAMPLES: u32 = 6;
/// An older measurement says nothing of now.
const STALE: Duration = Duration::from_millis(100);
/// Who lost the processor for so long while it looked has seen things of different times.
const TORN: Duration = Duration::from_millis(1);
/// How long each half of a trial takes, and how much of it passes before anything is counted.
const PHASE: Duration = Duration::from_millis(250);
const SETTLE: Duration = Duration::from_millis(100);
/// What is done with seats is to be more than what is done without by this factor. Little, since crowds are often worth a few
/// hundredths only; more than nothing, since transactions that wait for seats take long.
const WORTH: f64 = 1.03;
/// The same where few are blocked: either the whole crowd does much more, or the host's noise made it look so.
const WORTH_OF_LONG: f64 = 1.08;
/// Seats that after so long have done less than this share of what was done without are lost: those who have them wait for
/// something else.
const FIRST: Duration = Duration::from_millis(30);
const HOPELESS: f64 = 0.3;
/// Of so long it is seen in a term whether anything is done.
const SPELL: Duration = Duration::from_millis(500);
const SHORTEST: Duration = Duration::from_secs(2);
const LONGEST_TERM: Duration = Duration::from_secs(8);
/// A trial that is lost costs a part of a quarter of a second; one that was lost by chance costs what seats are worth for
/// as long as this.
const LONGEST_REST: Duration = LONGEST_TERM;
/// And where it was hopeless: hardly two in a row are by chance.
const LONGEST_OF_HOPELESS: Duration = Duration::from_secs(64);

/// The processor time that this process has used, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    at: Instant,
    cpu: Duration,
}

impl Usage {
    pub(super) fn at(at: Instant) -> Usage {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        // Neither is ever negative.
        let (seconds, nanos) = (cpu.tv_sec as u64, cpu.tv_nsec as u32);
        Usage {
            at,
            cpu: Duration::new(seconds, nanos),
        }
    }

    /// What share of so many processors was used since `earlier`.
    fn share_since(&self, earlier: &Usage, processors: u32) -> f64 {
        let used = self.cpu.saturating_sub(earlier.cpu).as_secs_f64();
        let there = self.at.duration_since(earlier.at).as_secs_f64() * f64::from(processors);
        used / there.max(1e-9)
    }
}

/// What the rule goes by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) usage: Usage,
    /// How long it took to look.
    pub(super) took: Duration,
    /// Commits so far, but those in rests.
    pub(super) commits: u64,
    /// Whether more are blocked or in line, or there, than usual.
    pub(super) is_crowded: bool,
    /// Whether more are blocked than usual.
    pub(super) is_blocked: bool,
    pub(super) processors: u32,
}

/// What the rule has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Rest,
    /// The half of a trial without seats, and the one with them.
    TrialWithout,
    TrialWith,
    Term,
}

impl Stage {
    /// The word of a rest.
    pub(super) const REST: u32 = 0;
    const SEATS: u32 = 1;
    const TRIAL: u32 = 2;
    /// Where nobody is blocked, who has a seat keeps it for longer ([`Rule::is_long`]).
    pub(super) const LONG: u32 = 4;
    /// So many bits of a word are the stage's.
    pub(super) const BITS: u32 = 3;

    /// What others have to know of it.
    pub(super) fn word(self) -> u32 {
        match self {
            Stage::Rest => Self::REST,
            Stage::TrialWithout => Self::TRIAL,
            Stage::TrialWith => Self::TRIAL | Self::SEATS,
            Stage::Term => Self::SEATS,
        }
    }

    /// Whether seats count in the stage of this word.
    #[inline]
    pub(super) fn has_seats(word: u32) -> bool {
        word & Self::SEATS != 0
    }

    /// Whether commits are counted in it: in any but a rest.
    #[inline]
    pub(super) fn counts(word: u32) -> bool {
        word & (Self::SEATS | Self::TRIAL) != Self::REST
    }

    /// Whether it is a part of a trial.
    pub(super) fn is_trial(word: u32) -> bool {
        word & Self::TRIAL != 0
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Rule {
    stage: Stage,
    /// Since when.
    since: Option<Instant>,
    /// The use of the processors, when it was looked at last.
    sample: Option<Usage>,
    /// When this half of a trial had settled, or the last spell of a term was over, and how many commits there were.
    settled: Option<(Instant, u64)>,
    /// How many commits there were when it began.
    at_first: u64,
    /// Commits a second in the half that is over.
    without: f64,
    /// Whether few were blocked then.
    is_long: bool,
    not_before: Option<Instant>,
    rest: Duration,
    term: Duration,
    /// Samples in a row that found the processors idle, and few there.
    idle: u32,
    few: u32,
}

impl Default for Rule {
    fn default() -> Self {
        Rule {
            stage: Stage::Rest,
            since: None,
            sample: None,
            settled: None,
            at_first: 0,
            without: 0.0,
            is_long: false,
            not_before: None,
            rest: SHORTEST,
            term: SHORTEST,
            idle: 0,
            few: 0,
        }
    }
}

impl Rule {
    /// One that is in `stage` from now on.
    #[cfg(any(test, loom))]
    pub(super) fn at(stage: Stage, now: Instant) -> Rule {
        Rule {
            stage,
            since: Some(now),
            ..Rule::default()
        }
    }

    /// The same, and few are blocked without seats.
    #[cfg(test)]
    pub(super) fn long(self) -> Rule {
        Rule {
            is_long: true,
            ..self
        }
    }

    /// Whether the processors' use was ever looked at.
    #[cfg(test)]
    pub(super) fn has_looked(&self) -> bool {
        self.sample.is_some()
    }

    /// Whether few were blocked without seats. Then it is the change from one client to the next that costs, not the locks
    /// of those who do not run.
    pub(super) fn is_long(&self) -> bool {
        self.is_long
    }

    /// Whether it is worth while to look.
    pub(super) fn is_due(&self, at: Instant) -> bool {
        let may = self.not_before.is_none_or(|not_before| at >= not_before);
        let is_due = |sample: &Usage| at.saturating_duration_since(sample.at) >= SAMPLE;
        may && self.sample.as_ref().is_none_or(is_due)
    }

    /// Looks, and says what stage it is in from now on. A torn look says nothing, and is left to the next.
    pub(super) fn step(&mut self, look: &Look) -> Stage {
        if look.took > TORN {
            return self.stage;
        }
        let share = self.share(look);
        match self.stage {
            Stage::Rest => {
                if look.is_crowded && share.is_some_and(|share| share >= BUSY) {
                    self.enter(Stage::TrialWithout, look);
                }
            }
            Stage::TrialWithout | Stage::TrialWith => self.try_on(share, look),
            Stage::Term => self.serve(share, look),
        }
        self.stage
    }

    /// The use of the processors over the last sample, which this begins anew.
    fn share(&mut self, look: &Look) -> Option<f64> {
        let earlier = self.sample.replace(look.usage)?;
        let is_of_now = look.usage.at.saturating_duration_since(earlier.at) < STALE;
        is_of_now.then(|| look.usage.share_since(&earlier, look.processors))
    }

    fn enter(&mut self, stage: Stage, look: &Look) {
        self.stage = stage;
        self.since = Some(look.usage.at);
        self.settled = None;
        self.at_first = look.commits;
        (self.idle, self.few) = (0, 0);
    }

    fn lasts(&self, look: &Look) -> Duration {
        let since = self.since.unwrap_or(look.usage.at);
        look.usage.at.saturating_duration_since(since)
    }

    /// Whether the processors have been idle for so long that seats are of no use.
    fn is_idle(&mut self, share: Option<f64>) -> bool {
        self.idle = match share {
            Some(share) if share < IDLE => self.idle + 1,
            _ => 0,
        };
        self.idle >= SAMPLES
    }

    /// Whether next to nothing has been done since this half of a trial began.
    fn is_hopeless(&self, look: &Look) -> bool {
        let (lasts, done) = (self.lasts(look), look.commits - self.at_first);
        lasts >= FIRST && (done as f64) < self.without * HOPELESS * lasts.as_secs_f64()
    }

    fn try_on(&mut self, share: Option<f64>, look: &Look) {
        let (at, lasts) = (look.usage.at, self.lasts(look));
        let is_lost = self.is_idle(share) | self.is_hopeless(look);
        if is_lost && self.stage == Stage::TrialWith {
            return self.give_up(LONGEST_OF_HOPELESS, look);
        }
        if lasts >= PHASE + STALE {
            return self.enter(Stage::Rest, look); // Nobody has looked for long.
        }
        let Some((from, commits)) = self.settled else {
            if lasts >= SETTLE {
                self.settled = Some((at, look.commits));
            }
            return;
        };
        // Who looked late counts from there, for as long.
        let time = at.saturating_duration_since(from);
        if time < PHASE - SETTLE {
            return;
        }
        let rate = (look.commits - commits) as f64 / time.as_secs_f64();
        let worth = if self.is_long { WORTH_OF_LONG } else { WORTH };
        if self.stage == Stage::TrialWithout {
            self.without = rate;
            self.is_long = !look.is_blocked;
            self.enter(Stage::TrialWith, look);
        } else if rate > self.without * worth {
            self.rest = SHORTEST;
            self.enter(Stage::Term, look);
        } else {
            self.give_up(LONGEST_REST, look);
        }
    }

    /// Whether next to nothing was done in a spell of this term that is over now.
    fn is_empty_spell(&mut self, look: &Look) -> bool {
        let at = look.usage.at;
        let (from, commits) = *self.settled.get_or_insert((at, look.commits));
        let lasts = at.saturating_duration_since(from);
        if lasts < SPELL {
            return false;
        }
        self.settled = Some((at, look.commits));
        ((look.commits - commits) as f64) < self.without * HOPELESS * lasts.as_secs_f64()
    }

    fn serve(&mut self, share: Option<f64>, look: &Look) {
        let is_idle = self.is_idle(share) | self.is_empty_spell(look);
        self.few = if look.is_crowded { 0 } else { self.few + 1 };
        if self.few >= SAMPLES {
            self.enter(Stage::Rest, look);
        } else if is_idle {
            self.term = SHORTEST;
            self.enter(Stage::TrialWithout, look);
        } else if self.lasts(look) >= self.term {
            self.term = (self.term * 2).min(LONGEST_TERM);
            self.enter(Stage::TrialWithout, look);
        }
    }

    /// Seats do no more than none.
    fn give_up(&mut self, longest: Duration, look: &Look) {
        self.enter(Stage::Rest, look);
        let rest = self.rest.min(longest);
        self.not_before = Some(look.usage.at + rest);
        self.rest = rest * 2;
        self.term = SHORTEST;
        self.sample = None;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const PROCESSORS: u32 = 2;
    const STEP: Duration = Duration::from_millis(5);

    /// A process, and what it commits in a second without seats, and with them.
    struct Process {
        rule: Rule,
        start: Instant,
        now: Duration,
        cpu: Duration,
        commits: f64,
        rates: [f64; 2],
        share: f64,
        is_crowded: bool,
        is_blocked: bool,
        took: Duration,
    }

    impl Process {
        fn new(without: f64, with: f64) -> Process {
            Process {
                rule: Rule::default(),
                start: Instant::now(),
                now: Duration::ZERO,
                cpu: Duration::ZERO,
                commits: 0.0,
                rates: [without, with],
                share: 1.0,
                is_crowded: true,
                is_blocked: true,
                took: Duration::ZERO,
            }
        }

        /// Goes on for `time`, and looks.
        fn run(&mut self, time: Duration) -> Stage {
            let word = self.rule.stage.word();
            self.commits += self.rates[usize::from(Stage::has_seats(word))] * time.as_secs_f64();
            self.now += time;
            self.cpu += time.mul_f64(self.share * f64::from(PROCESSORS));
            let at = self.start + self.now;
            if !self.rule.is_due(at) {
                return self.rule.stage;
            }
            self.rule.step(&Look {
                usage: Usage { at, cpu: self.cpu },
                took: self.took,
                commits: self.commits as u64,
                is_crowded: self.is_crowded,
                is_blocked: self.is_blocked,
                processors: PROCESSORS,
            })
        }

        /// Looks every few milliseconds until it is in `stage`, and says how long that took.
        fn until(&mut self, stage: Stage) -> Duration {
            let from = self.now;
            while self.run(STEP) != stage {
                assert!(self.now - from < Duration::from_mins(10), "{stage:?}");
            }
            self.now - from
        }
    }

    #[test]
    fn a_trial_begins_where_many_are_blocked_and_the_processors_busy() {
        let mut process = Process::new(1e5, 1e5);
        assert_eq!(process.run(STEP), Stage::Rest, "one look");
        process.share = 0.55;
        assert_eq!(process.run(STEP), Stage::Rest, "idle");
        process.share = 1.0;
        let second = Duration::from_secs(1);
        assert_eq!(process.run(second), Stage::Rest, "too long ago");
        process.is_crowded = false;
        assert_eq!(process.run(STEP), Stage::Rest, "few are blocked");
        process.is_crowded = true;
        assert_eq!(process.run(STEP / 5), Stage::Rest, "just looked");
        assert_eq!(process.run(STEP), Stage::TrialWithout);
    }

    #[test]
    fn seats_that_do_more_stay_for_terms_that_grow() {
        let mut process = Process::new(1e5, 1.2e5);
        for seconds in [2, 4, 8, 8] {
            process.until(Stage::TrialWithout);
            let trial = process.until(Stage::Term);
            assert!(trial <= PHASE * 2 + STEP * 2, "{trial:?}");
            let term = process.until(Stage::TrialWithout);
            assert_eq!(term, Duration::from_secs(seconds));
        }
    }

    #[test]
    fn seats_are_kept_for_long_where_few_were_blocked_without() {
        let mut process = Process::new(1e5, 1.2e5);
        for is_blocked in [true, false, true, false] {
            process.until(Stage::TrialWithout);
            process.is_blocked = is_blocked;
            process.until(Stage::TrialWith);
            assert_eq!(process.rule.is_long(), !is_blocked);
            // With them nobody need be.
            process.is_blocked = false;
            process.until(Stage::Term);
            assert_eq!(process.rule.is_long(), !is_blocked);
        }
    }

    #[test]
    fn seats_that_do_no_more_are_tried_less_and_less_often() {
        for with in [0.5e5, 1.02e5] {
            let mut process = Process::new(1e5, with);
            for seconds in [2, 4, 8, 8, 8] {
                process.until(Stage::TrialWithout);
                let mut stages = vec![process.rule.stage];
                while process.run(STEP) != Stage::Rest {
                    stages.push(process.rule.stage);
                }
                stages.dedup();
                assert_eq!(stages, [Stage::TrialWithout, Stage::TrialWith]);
                let rested = process.until(Stage::TrialWithout);
                let wanted = Duration::from_secs(seconds);
                assert!(
                    rested >= wanted && rested <= wanted + STEP * 3,
                    "{rested:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_done_before_it_has_settled_does_not_count() {
        let mut process = Process::new(1e6, 1e5);
        process.until(Stage::TrialWithout);
        process.run(SETTLE);
        process.rates = [1e5, 2e5];
        assert_eq!(process.until(Stage::TrialWith), PHASE - SETTLE);
        process.until(Stage::Term);
    }

    #[test]
    fn whoever_looks_late_counts_for_as_long_as_others() {
        let mut process = Process::new(1e5, 2e5);
        process.until(Stage::TrialWithout);
        // Nothing, until the phase is all but over; then much in a moment.
        process.rates = [1e6, 2e5];
        process.run(PHASE - STEP);
        process.run(STEP);
        assert_eq!(process.run(STEP), Stage::TrialWithout);
        process.rates = [1e5, 2e5];
        process.until(Stage::Rest); // It did not look in time.
        process.until(Stage::TrialWithout);
        process.run(SETTLE + STEP * 10);
        let counted = process.until(Stage::TrialWith);
        assert_eq!(counted, PHASE - SETTLE);
    }

    #[test]
    fn a_torn_look_says_nothing() {
        let mut process = Process::new(1e5, 2e5);
        process.took = TORN * 2;
        for _ in 0..100 {
            assert_eq!(process.run(STEP), Stage::Rest);
        }
        process.took = TORN;
        process.until(Stage::TrialWithout);
        process.run(SETTLE);
        process.took = TORN * 2;
        assert_eq!(process.run(PHASE), Stage::TrialWithout);
    }

    #[test]
    fn where_the_processors_become_idle_it_is_tried_again_soon() {
        let mut process = Process::new(1e5, 2e5);
        process.until(Stage::Term);
        for share in [0.1, 0.1, 0.1, 0.1, 0.1, 0.45, 0.35, 0.35, 0.35, 0.35, 0.35] {
            process.share = share;
            assert_eq!(process.run(STEP), Stage::Term);
        }
        assert_eq!(process.run(STEP), Stage::TrialWithout);
        process.rates = [1e5, 1e4];
        process.until(Stage::Rest);
    }

    #[test]
    fn a_trial_in_which_next_to_nothing_is_done_is_lost_at_once_and_tried_seldom() {
        // Those at work wait for the network, and others of the program keep the processors busy.
        let mut process = Process::new(1e5, 2e4);
        for seconds in [2, 4, 8, 16, 32, 64, 64] {
            process.until(Stage::TrialWith);
            let lost = process.until(Stage::Rest);
            assert!(lost <= FIRST + STEP, "{lost:?}");
            let rested = process.until(Stage::TrialWithout);
            assert_eq!(rested.as_secs(), seconds, "{rested:?}");
        }
        // One that does more, or only a little less, later on, begins with a rest like any other.
        process.rates = [1e5, 0.9e5];
        process.until(Stage::TrialWith);
        assert_eq!(process.until(Stage::Rest), PHASE);
        assert_eq!(process.until(Stage::TrialWithout).as_secs(), 8);
    }

    #[test]
    fn where_few_are_blocked_seats_have_to_do_more_to_stay() {
        let mut process = Process::new(1e5, 1.05e5);
        process.is_blocked = false;
        process.until(Stage::TrialWith);
        assert_eq!(process.until(Stage::Rest), PHASE);
        process.rates = [1e5, 1.1e5];
        process.until(Stage::Term);
    }

    #[test]
    fn a_trial_in_which_seats_leave_the_processors_idle_is_lost_at_once() {
        // How much is done then does not matter, nor that they are idle without.
        let mut process = Process::new(1e4, 1e5);
        process.until(Stage::TrialWithout);
        process.share = 0.05;
        process.until(Stage::TrialWith);
        assert_eq!(process.until(Stage::Rest), STEP * SAMPLES);
    }

    #[test]
    fn a_term_in_which_next_to_nothing_is_done_any_more_is_over_soon() {
        let mut process = Process::new(1e5, 2e5);
        process.until(Stage::Term);
        process.run(SPELL * 3 / 2);
        // From now on all wait for the network, and others of the program keep the processors busy.
        process.rates = [5e4, 1e4];
        let stayed = process.until(Stage::TrialWithout);
        assert!(stayed <= SPELL * 2 + STEP, "{stayed:?}");
        process.until(Stage::Rest);
    }

    #[test]
    fn a_term_ends_where_few_are_left() {
        let mut process = Process::new(1e5, 2e5);
        process.until(Stage::Term);
        process.is_crowded = false;
        process.run(STEP * 4);
        process.is_crowded = true;
        assert_eq!(process.run(STEP), Stage::Term);
        process.is_crowded = false;
        assert_eq!(process.until(Stage::Rest), STEP * SAMPLES);
        process.is_crowded = true;
        assert_eq!(process.until(Stage::TrialWithout), STEP, "at once");
    }

    #[test]
    fn a_trial_that_nobody_follows_is_given_up_and_may_begin_again() {
        let mut process = Process::new(1e5, 2e5);
        process.until(Stage::TrialWith);
        assert_eq!(process.run(Duration::from_secs(1)), Stage::Rest);
        assert_eq!(process.until(Stage::TrialWithout), STEP);
    }

    #[test]
    fn what_stages_are_to_others() {
        let all = [
            Stage::Rest,
            Stage::TrialWithout,
            Stage::TrialWith,
            Stage::Term,
        ];
        let words = all.map(Stage::word);
        assert_eq!(words.map(Stage::has_seats), [false, false, true, true]);
        assert_eq!(words.map(Stage::is_trial), [false, true, true, false]);
        assert_eq!(words.map(Stage::counts), [false, true, true, true]);
    }
}
