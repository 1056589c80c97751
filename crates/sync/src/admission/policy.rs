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
//! What the host of a virtual machine does in half a second may be worth more than seats are. So a trial does not decide by
//! itself: what seats were worth in the trials before it counts for as much, as long as the crowd is the same.
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
/// Seats do no more than by this factor: what says so is a host that gave its processors back.
const CHANCE: f64 = 2.0;
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
/// Where a crowd stays, no rest takes so long.
const LONG_AGO: Duration = LONGEST_REST.saturating_mul(2);
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
    /// How many times as much seats did in the trials so far of this crowd, each of which counts for as much as all before it.
    gain: Option<f64>,
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
            gain: None,
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
                    if self.lasts(look) > LONG_AGO {
                        self.gain = None; // It was another crowd.
                    }
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
            self.gain = None;
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
        if self.stage == Stage::TrialWithout {
            self.without = rate;
            self.is_long = !look.is_blocked;
            self.enter(Stage::TrialWith, look);
        } else if self.learn(rate) > if self.is_long { WORTH_OF_LONG } else { WORTH } {
            self.rest = SHORTEST;
            self.enter(Stage::Term, look);
        } else {
            self.give_up(LONGEST_REST, look);
        }
    }

    /// What seats are worth, by all trials so far and this one, in which so much was done with them in a second.
    fn learn(&mut self, rate: f64) -> f64 {
        let latest = (rate / self.without.max(1.0)).min(CHANCE);
        let gain = self.gain.map_or(latest, |before| (before + latest) / 2.0);
        self.gain = Some(gain);
        gain
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
            self.gain = None;
            self.enter(Stage::Rest, look);
        } else if is_idle {
            self.gain = None;
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
mod tests;
