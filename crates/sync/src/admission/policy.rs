//! Whether seats do more than none: trial and term.
//!
//! ```text
//!       busy, and many are blocked or there    seats did more
//!   backoff ----------------------------> trial -----------------> limited_time
//!    ^                                  |  ^                     |
//!    |     seats did not, or it is over |  |   the limited_time is over  |
//!    +----------------------------------+  +---------------------+
//!    ^                                                           |
//!    +--------- calm_samples are blocked, wait for seats, or are there ---+
//! ```
//!
//! | stage | seats | until |
//! | --- | --- | --- |
//! | rest | none | more are blocked or there than usual, and the process has used three fifths of the processors for [`SAMPLE_PERIOD`] |
//! | trial | none, then some | each has been so for [`TRIAL_HALF`], or a little longer where nobody looked in time, of which the commits after [`SETTLE_TIME`] count; or with seats the process has used less than two fifths of the processors in [`SAMPLES_TO_END`] in a row, or by [`HOPELESS_AFTER`] next to nothing was done, and seats have lost |
//! | term | some | after [`SHORTEST_STAGE`], twice as long after each trial that is won again, up to [`LONGEST_LIMITED`]; or in [`SAMPLES_TO_END`] in a row the process has used less than two fifths of the processors, or in [`PROGRESS_PERIOD`] next to nothing was done, since the seats may be held by who waits for something else; or no more are blocked and in line, or there, than usual |
//!
//! After a trial that was lost the next may not begin for [`SHORTEST_STAGE`], then for twice that, up to [`LONGEST_BACKOFF`], or
//! [`LONGEST_HOPELESS_BACKOFF`].
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
const BUSY_SHARE: f64 = 0.6;
const IDLE_SHARE: f64 = 0.4;
/// Over so long the use of the processors is measured.
const SAMPLE_PERIOD: Duration = Duration::from_millis(4);
/// So many tell that the processors are idle, or the crowd gone: one may be nothing but a moment in which others had
/// the processors.
const SAMPLES_TO_END: u32 = 6;
/// An older measurement says nothing of now.
const MAX_SAMPLE_AGE: Duration = Duration::from_millis(100);
/// Who lost the processor for so long while it looked has seen things of different times.
const MAX_OBSERVATION_TIME: Duration = Duration::from_millis(1);
/// How long each half of a trial takes, and how much of it passes before anything is counted.
const TRIAL_HALF: Duration = Duration::from_millis(250);
const SETTLE_TIME: Duration = Duration::from_millis(100);
/// What is done with seats is to be more than what is done without by this factor. Little, since crowds are often worth a few
/// hundredths only; more than nothing, since transactions that wait for seats take long.
const MIN_GAIN: f64 = 1.03;
/// The same where few are blocked: either the whole crowd does much more, or the host's noise made it look so.
const MIN_GAIN_FEW_BLOCKED: f64 = 1.08;
/// Seats do no more than by this factor: what says so is a host that gave its processors back.
const MAX_GAIN: f64 = 2.0;
/// Seats that after so long have done less than this share of what was done without are lost: those who have them wait for
/// something else.
const HOPELESS_AFTER: Duration = Duration::from_millis(30);
const HOPELESS_SHARE: f64 = 0.3;
/// Of so long it is seen in a term whether anything is done.
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);
const SHORTEST_STAGE: Duration = Duration::from_secs(2);
const LONGEST_LIMITED: Duration = Duration::from_secs(8);
/// A trial that is lost costs a part of a quarter of a second; one that was lost by chance costs what seats are worth for
/// as long as this.
const LONGEST_BACKOFF: Duration = LONGEST_LIMITED;
/// Where a crowd stays, no rest takes so long.
const GAIN_EXPIRY: Duration = LONGEST_BACKOFF.saturating_mul(2);
/// And where it was hopeless: hardly two in a row are by chance.
const LONGEST_HOPELESS_BACKOFF: Duration = Duration::from_secs(64);

/// The processor time that this process has used, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuUsage {
    at: Instant,
    cpu: Duration,
}

impl CpuUsage {
    pub(super) fn at(at: Instant) -> CpuUsage {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        // Neither is ever negative.
        let (seconds, nanos) = (cpu.tv_sec as u64, cpu.tv_nsec as u32);
        CpuUsage {
            at,
            cpu: Duration::new(seconds, nanos),
        }
    }

    /// What share of so many processors was used since `earlier`.
    fn share_since(&self, earlier: &CpuUsage, processors: u32) -> f64 {
        let used = self.cpu.saturating_sub(earlier.cpu).as_secs_f64();
        let there = self.at.duration_since(earlier.at).as_secs_f64() * f64::from(processors);
        used / there.max(1e-9)
    }
}

/// What the rule goes by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation {
    pub(super) usage: CpuUsage,
    /// How long it took to look.
    pub(super) duration: Duration,
    /// Commits so far, but those in rests.
    pub(super) commits: u64,
    /// Whether more are blocked or in line, or there, than usual.
    pub(super) is_overloaded: bool,
    /// Whether more are blocked than usual.
    pub(super) many_blocked: bool,
    pub(super) processors: u32,
}

/// What the rule has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyStage {
    Unlimited,
    /// The half of a trial without seats, and the one with them.
    TrialUnlimited,
    TrialLimited,
    Limited,
}

impl PolicyStage {
    /// The word of a rest.
    pub(super) const UNLIMITED: u32 = 0;
    const SLOTS: u32 = 1;
    const TRIAL: u32 = 2;
    /// Where nobody is blocked, who has a seat keeps it for longer ([`AdmissionPolicy::few_blocked`]).
    pub(super) const LONG_QUANTUM: u32 = 4;
    /// So many bits of a word are the stage's.
    pub(super) const BITS: u32 = 3;

    /// What others have to know of it.
    pub(super) fn word(self) -> u32 {
        match self {
            PolicyStage::Unlimited => Self::UNLIMITED,
            PolicyStage::TrialUnlimited => Self::TRIAL,
            PolicyStage::TrialLimited => Self::TRIAL | Self::SLOTS,
            PolicyStage::Limited => Self::SLOTS,
        }
    }

    /// Whether seats count in the stage of this word.
    #[inline]
    pub(super) fn has_slots(word: u32) -> bool {
        word & Self::SLOTS != 0
    }

    /// Whether commits are counted in it: in any but a rest.
    #[inline]
    pub(super) fn counts_commits(word: u32) -> bool {
        word & (Self::SLOTS | Self::TRIAL) != Self::UNLIMITED
    }

    /// Whether it is a part of a trial.
    pub(super) fn is_trial(word: u32) -> bool {
        word & Self::TRIAL != 0
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct AdmissionPolicy {
    stage: PolicyStage,
    /// Since when.
    since: Option<Instant>,
    /// The use of the processors, when it was looked at last.
    sample: Option<CpuUsage>,
    /// When this half of a trial had settled, or the last spell of a term was over, and how many commits there were.
    settled: Option<(Instant, u64)>,
    /// How many commits there were when it began.
    commits_at_start: u64,
    /// Commits a second in the half that is over.
    rate_unlimited: f64,
    /// How many times as much seats did in the trials so far of this crowd, each of which counts for as much as all before it.
    gain: Option<f64>,
    /// Whether few were blocked then.
    few_blocked: bool,
    next_trial: Option<Instant>,
    backoff: Duration,
    limited_time: Duration,
    /// Samples in a row that found the processors idle, and few there.
    idle_samples: u32,
    calm_samples: u32,
}

impl Default for AdmissionPolicy {
    fn default() -> Self {
        AdmissionPolicy {
            stage: PolicyStage::Unlimited,
            since: None,
            sample: None,
            settled: None,
            commits_at_start: 0,
            rate_unlimited: 0.0,
            gain: None,
            few_blocked: false,
            next_trial: None,
            backoff: SHORTEST_STAGE,
            limited_time: SHORTEST_STAGE,
            idle_samples: 0,
            calm_samples: 0,
        }
    }
}

impl AdmissionPolicy {
    /// One that is in `stage` from now on.
    #[cfg(any(test, loom))]
    pub(super) fn in_stage(stage: PolicyStage, now: Instant) -> AdmissionPolicy {
        AdmissionPolicy {
            stage,
            since: Some(now),
            ..AdmissionPolicy::default()
        }
    }

    /// The same, and few are blocked without seats.
    #[cfg(test)]
    pub(super) fn with_few_blocked(self) -> AdmissionPolicy {
        AdmissionPolicy {
            few_blocked: true,
            ..self
        }
    }

    /// Whether the processors' use was ever looked at.
    #[cfg(test)]
    pub(super) fn has_sampled(&self) -> bool {
        self.sample.is_some()
    }

    /// Whether few were blocked without seats. Then it is the change from one client to the next that costs, not the locks
    /// of those who do not run.
    pub(super) fn few_blocked(&self) -> bool {
        self.few_blocked
    }

    /// Whether it is worth while to look.
    pub(super) fn is_due(&self, at: Instant) -> bool {
        let may = self.next_trial.is_none_or(|next_trial| at >= next_trial);
        let is_due = |sample: &CpuUsage| at.saturating_duration_since(sample.at) >= SAMPLE_PERIOD;
        may && self.sample.as_ref().is_none_or(is_due)
    }

    /// Looks, and says what stage it is in from now on. A torn look says nothing, and is left to the next.
    pub(super) fn step(&mut self, observation: &Observation) -> PolicyStage {
        if observation.duration > MAX_OBSERVATION_TIME {
            return self.stage;
        }
        let share = self.share(observation);
        match self.stage {
            PolicyStage::Unlimited => {
                if observation.is_overloaded && share.is_some_and(|share| share >= BUSY_SHARE) {
                    if self.elapsed(observation) > GAIN_EXPIRY {
                        self.gain = None; // It was another crowd.
                    }
                    self.enter_stage(PolicyStage::TrialUnlimited, observation);
                }
            }
            PolicyStage::TrialUnlimited | PolicyStage::TrialLimited => {
                self.step_trial(share, observation)
            }
            PolicyStage::Limited => self.step_limited(share, observation),
        }
        self.stage
    }

    /// The use of the processors over the last sample, which this begins anew.
    fn share(&mut self, observation: &Observation) -> Option<f64> {
        let earlier = self.sample.replace(observation.usage)?;
        let is_of_now = observation.usage.at.saturating_duration_since(earlier.at) < MAX_SAMPLE_AGE;
        is_of_now.then(|| {
            observation
                .usage
                .share_since(&earlier, observation.processors)
        })
    }

    fn enter_stage(&mut self, stage: PolicyStage, observation: &Observation) {
        self.stage = stage;
        self.since = Some(observation.usage.at);
        self.settled = None;
        self.commits_at_start = observation.commits;
        (self.idle_samples, self.calm_samples) = (0, 0);
    }

    fn elapsed(&self, observation: &Observation) -> Duration {
        let since = self.since.unwrap_or(observation.usage.at);
        observation.usage.at.saturating_duration_since(since)
    }

    /// Whether the processors have been idle for so long that seats are of no use.
    fn is_idle(&mut self, share: Option<f64>) -> bool {
        self.idle_samples = match share {
            Some(share) if share < IDLE_SHARE => self.idle_samples + 1,
            _ => 0,
        };
        self.idle_samples >= SAMPLES_TO_END
    }

    /// Whether next to nothing has been done since this half of a trial began.
    fn is_hopeless(&self, observation: &Observation) -> bool {
        let (elapsed, done) = (
            self.elapsed(observation),
            observation.commits - self.commits_at_start,
        );
        elapsed >= HOPELESS_AFTER
            && (done as f64) < self.rate_unlimited * HOPELESS_SHARE * elapsed.as_secs_f64()
    }

    fn step_trial(&mut self, share: Option<f64>, observation: &Observation) {
        let (at, elapsed) = (observation.usage.at, self.elapsed(observation));
        let is_lost = self.is_idle(share) | self.is_hopeless(observation);
        if is_lost && self.stage == PolicyStage::TrialLimited {
            self.gain = None;
            return self.reject_limit(LONGEST_HOPELESS_BACKOFF, observation);
        }
        if elapsed >= TRIAL_HALF + MAX_SAMPLE_AGE {
            return self.enter_stage(PolicyStage::Unlimited, observation); // Nobody has looked for long.
        }
        let Some((from, commits)) = self.settled else {
            if elapsed >= SETTLE_TIME {
                self.settled = Some((at, observation.commits));
            }
            return;
        };
        // Who looked late counts from there, for as long.
        let time = at.saturating_duration_since(from);
        if time < TRIAL_HALF - SETTLE_TIME {
            return;
        }
        let rate = (observation.commits - commits) as f64 / time.as_secs_f64();
        if self.stage == PolicyStage::TrialUnlimited {
            self.rate_unlimited = rate;
            self.few_blocked = !observation.many_blocked;
            self.enter_stage(PolicyStage::TrialLimited, observation);
        } else if self.update_gain(rate)
            > if self.few_blocked {
                MIN_GAIN_FEW_BLOCKED
            } else {
                MIN_GAIN
            }
        {
            self.backoff = SHORTEST_STAGE;
            self.enter_stage(PolicyStage::Limited, observation);
        } else {
            self.reject_limit(LONGEST_BACKOFF, observation);
        }
    }

    /// What seats are worth, by all trials so far and this one, in which so much was done with them in a second.
    fn update_gain(&mut self, rate: f64) -> f64 {
        let latest = (rate / self.rate_unlimited.max(1.0)).min(MAX_GAIN);
        let gain = self.gain.map_or(latest, |before| (before + latest) / 2.0);
        self.gain = Some(gain);
        gain
    }

    /// Whether next to nothing was done in a spell of this term that is over now.
    fn made_no_progress(&mut self, observation: &Observation) -> bool {
        let at = observation.usage.at;
        let (from, commits) = *self.settled.get_or_insert((at, observation.commits));
        let elapsed = at.saturating_duration_since(from);
        if elapsed < PROGRESS_PERIOD {
            return false;
        }
        self.settled = Some((at, observation.commits));
        ((observation.commits - commits) as f64)
            < self.rate_unlimited * HOPELESS_SHARE * elapsed.as_secs_f64()
    }

    fn step_limited(&mut self, share: Option<f64>, observation: &Observation) {
        let is_idle = self.is_idle(share) | self.made_no_progress(observation);
        self.calm_samples = if observation.is_overloaded {
            0
        } else {
            self.calm_samples + 1
        };
        if self.calm_samples >= SAMPLES_TO_END {
            self.gain = None;
            self.enter_stage(PolicyStage::Unlimited, observation);
        } else if is_idle {
            self.gain = None;
            self.limited_time = SHORTEST_STAGE;
            self.enter_stage(PolicyStage::TrialUnlimited, observation);
        } else if self.elapsed(observation) >= self.limited_time {
            self.limited_time = (self.limited_time * 2).min(LONGEST_LIMITED);
            self.enter_stage(PolicyStage::TrialUnlimited, observation);
        }
    }

    /// Seats do no more than none.
    fn reject_limit(&mut self, longest: Duration, observation: &Observation) {
        self.enter_stage(PolicyStage::Unlimited, observation);
        let backoff = self.backoff.min(longest);
        self.next_trial = Some(observation.usage.at + backoff);
        self.backoff = backoff * 2;
        self.limited_time = SHORTEST_STAGE;
        self.sample = None;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
