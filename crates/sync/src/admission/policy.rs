//! Admission policy: tries whether more is committed with slots than without.
//!
//! ```text
//!            busy, and many are                     slots
//!            blocked or running                     gained
//!  unlimited ------------------> trial -------------------------> limited
//!   ^                             |  ^                              |
//!   |   slots gained nothing, or  |  |      the limit's time is     |
//!   |   the overload is over      |  |      over                    |
//!   +-----------------------------+  +------------------------------+
//!   ^                                                               |
//!   +------ few clients are blocked, wait for slots, or run --------+
//! ```
//!
//! Where many transactions are blocked by each other, they may be waiting for one row, and one
//! processor is all that they can use. So there the use of one processor counts, and elsewhere that
//! of all.
//!
//! * *Unlimited*: no slots. Ends when more clients are blocked or running than usual, and the
//!   process has used three fifths of the processors for [`SAMPLE_PERIOD`].
//! * *Trial*: first without slots, then with them. Each half lasts [`TRIAL_HALF`], or a little
//!   longer where no thread checked in time; the commits after [`SETTLE_TIME`] count. The trial is
//!   lost at once if, with slots, the process used less than two fifths of the processors in
//!   [`SAMPLES_TO_END`] samples in a row, or if almost nothing was committed by [`HOPELESS_AFTER`].
//! * *Limited*: slots. Ends after [`SHORTEST_STAGE`], and after twice as long for each trial won in
//!   a row, up to [`LONGEST_LIMITED`]. Ends earlier if the process used less than two fifths of the
//!   processors in [`SAMPLES_TO_END`] samples in a row. Ends earlier if almost nothing was
//!   committed in [`PROGRESS_PERIOD`], because the slot holders may wait for something else. Also
//!   ends if no more clients are blocked, queued or running than usual.
//!
//! After a lost trial the next may not begin for [`SHORTEST_STAGE`], then for twice that, up to
//! [`LONGEST_BACKOFF`], or [`LONGEST_HOPELESS_BACKOFF`].
//!
//! Noise from the host of a virtual machine in half a second may be worth more than slots are. So
//! one trial does not decide alone: the gain of the trials before it counts for as much, as long as
//! the overload is the same.
//!
//! An overload does not come about at once. The first tenth of a second without slots commits more
//! than any after it, and the first with slots less, while lock holders without a slot are still
//! working. Hence the settle time; with shorter phases, slots lost where they gained a third.

use std::time::{Duration, Instant};

/// Minimum share of the processors, or of one, that is used when a trial begins: processors of
/// threads that wake each other are idle in between. Below the second share slots are of no use.
const BUSY_SHARE: f64 = 0.6;
const IDLE_SHARE: f64 = 0.4;
/// The use of the processors is measured over this time.
const SAMPLE_PERIOD: Duration = Duration::from_millis(4);
/// Number of samples in a row that show idle processors or the end of an overload. One may be a
/// moment in which other processes had the processors.
const SAMPLES_TO_END: u32 = 6;
/// An older sample says nothing about now.
const MAX_SAMPLE_AGE: Duration = Duration::from_millis(100);
// So the first sample after a backoff starts anew.
const _: () = assert!(SHORTEST_STAGE.as_millis() > MAX_SAMPLE_AGE.as_millis());
/// An observation that took longer, because its thread was descheduled, mixes different times.
const MAX_OBSERVATION_TIME: Duration = Duration::from_millis(1);
/// Length of each half of a trial, and of its beginning, which does not count.
const TRIAL_HALF: Duration = Duration::from_millis(250);
const SETTLE_TIME: Duration = Duration::from_millis(100);
/// Minimum factor by which more must be committed with slots than without. Little above 1, because
/// slots often gain a few hundredths only; more than 1, because transactions that wait for slots
/// take long.
const MIN_GAIN: f64 = 1.03;
/// The same where few transactions are blocked. Either slots gain much there, or the host's noise
/// made it look so.
const MIN_GAIN_FEW_BLOCKED: f64 = 1.08;
/// Slots gain no more than this factor. A larger one comes from a host that gave processors back.
const MAX_GAIN: f64 = 2.0;
/// Slots with which, after this time, less than this share of the other half was committed have
/// lost: the slot holders wait for something else.
const HOPELESS_AFTER: Duration = Duration::from_millis(30);
const HOPELESS_SHARE: f64 = 0.3;
/// Under a limit it is checked over this time whether anything is committed.
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);
const SHORTEST_STAGE: Duration = Duration::from_secs(2);
const LONGEST_LIMITED: Duration = Duration::from_secs(8);
/// A lost trial costs a part of a quarter of a second. A trial lost by chance costs the gain of
/// slots for as long as this.
const LONGEST_BACKOFF: Duration = LONGEST_LIMITED;
/// A backoff never takes so long while an overload lasts.
const GAIN_EXPIRY: Duration = LONGEST_BACKOFF.saturating_mul(2);
/// The same where a trial was hopeless: hardly two in a row are so by chance.
const LONGEST_HOPELESS_BACKOFF: Duration = Duration::from_secs(64);

/// The processor time that this process has used, and when it was read.
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

    /// Returns the share of `processors` processors that was used since `earlier`.
    fn share_since(&self, earlier: &CpuUsage, processors: u32) -> f64 {
        let used = self.cpu.saturating_sub(earlier.cpu).as_secs_f64();
        let there = self.at.duration_since(earlier.at).as_secs_f64() * f64::from(processors);
        used / there.max(1e-9)
    }
}

/// Input of one step of the policy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation {
    pub(super) usage: CpuUsage,
    /// Time that collecting it took.
    pub(super) duration: Duration,
    /// Commits so far, without those in unlimited stages.
    pub(super) commits: u64,
    /// True if more clients are blocked, queued or running than usual.
    pub(super) is_overloaded: bool,
    /// True if more transactions are blocked than usual.
    pub(super) many_blocked: bool,
    pub(super) processors: u32,
}

/// State of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyStage {
    Unlimited,
    /// The half of a trial without slots, and the half with them.
    TrialUnlimited,
    TrialLimited,
    Limited,
}

impl PolicyStage {
    /// The word of an unlimited stage.
    pub(super) const UNLIMITED: u32 = 0;
    const SLOTS: u32 = 1;
    const TRIAL: u32 = 2;
    /// If few transactions are blocked, a client keeps its slot for longer
    /// ([`AdmissionPolicy::few_blocked`]).
    pub(super) const LONG_QUANTUM: u32 = 4;
    /// Number of bits of a word that belong to the stage.
    pub(super) const BITS: u32 = 3;

    /// Returns what other threads need to know of it.
    pub(super) fn word(self) -> u32 {
        match self {
            PolicyStage::Unlimited => Self::UNLIMITED,
            PolicyStage::TrialUnlimited => Self::TRIAL,
            PolicyStage::TrialLimited => Self::TRIAL | Self::SLOTS,
            PolicyStage::Limited => Self::SLOTS,
        }
    }

    /// True if slots limit in the stage of this word.
    #[inline]
    pub(super) fn has_slots(word: u32) -> bool {
        word & Self::SLOTS != 0
    }

    /// True if commits are counted in it: in all but unlimited stages.
    #[inline]
    pub(super) fn counts_commits(word: u32) -> bool {
        word & (Self::SLOTS | Self::TRIAL) != Self::UNLIMITED
    }

    /// True if it is half of a trial.
    pub(super) fn is_trial(word: u32) -> bool {
        word & Self::TRIAL != 0
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct AdmissionPolicy {
    stage: PolicyStage,
    /// When the stage was entered.
    since: Option<Instant>,
    /// The last sample of the processors' use.
    sample: Option<CpuUsage>,
    /// When this half of a trial had settled, or the last progress period of a limit ended, and the
    /// commits until then.
    settled: Option<(Instant, u64)>,
    /// Commits when the stage was entered.
    commits_at_start: u64,
    /// Commits a second in the half without slots.
    rate_unlimited: f64,
    /// Gain of slots in the trials of this overload so far. Each trial counts for as much as all
    /// before it.
    gain: Option<f64>,
    /// True if few transactions were blocked without slots.
    few_blocked: bool,
    next_trial: Option<Instant>,
    backoff: Duration,
    limited_time: Duration,
    /// Samples in a row that found the processors idle, and few clients.
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
    /// Returns a policy that enters `stage` now.
    #[cfg(any(test, loom))]
    pub(super) fn in_stage(stage: PolicyStage, now: Instant) -> AdmissionPolicy {
        AdmissionPolicy {
            stage,
            since: Some(now),
            ..AdmissionPolicy::default()
        }
    }

    /// The same, and few transactions are blocked without slots.
    #[cfg(test)]
    pub(super) fn with_few_blocked(self) -> AdmissionPolicy {
        AdmissionPolicy {
            few_blocked: true,
            ..self
        }
    }

    /// True if the processors' use was sampled.
    #[cfg(test)]
    pub(super) fn has_sampled(&self) -> bool {
        self.sample.is_some()
    }

    /// True if few transactions were blocked without slots. Then the switch from one client to the
    /// next costs, not the locks of threads that do not run.
    pub(super) fn few_blocked(&self) -> bool {
        self.few_blocked
    }

    /// True if it is time for a step.
    pub(super) fn is_due(&self, at: Instant) -> bool {
        let may = self.next_trial.is_none_or(|next_trial| at >= next_trial);
        let is_due = |sample: &CpuUsage| at.saturating_duration_since(sample.at) >= SAMPLE_PERIOD;
        may && self.sample.as_ref().is_none_or(is_due)
    }

    /// Takes one step, and returns the stage it is in now. A torn observation changes nothing; the
    /// next one decides.
    pub(super) fn step(&mut self, observation: &Observation) -> PolicyStage {
        if observation.duration > MAX_OBSERVATION_TIME {
            return self.stage;
        }
        let share = self.share(observation);
        match self.stage {
            PolicyStage::Unlimited => {
                if observation.is_overloaded && share.is_some_and(|share| share >= BUSY_SHARE) {
                    if self.elapsed(observation) > GAIN_EXPIRY {
                        self.gain = None; // This is another overload.
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

    /// Returns the use of the processors since the last sample, and starts a new sample.
    fn share(&mut self, observation: &Observation) -> Option<f64> {
        let earlier = self.sample.replace(observation.usage)?;
        let is_of_now = observation.usage.at.saturating_duration_since(earlier.at) < MAX_SAMPLE_AGE;
        let many_blocked = match self.stage {
            PolicyStage::Unlimited => observation.many_blocked,
            _ => !self.few_blocked, // Slots let few be blocked.
        };
        let processors = if many_blocked {
            1
        } else {
            observation.processors
        };
        is_of_now.then(|| observation.usage.share_since(&earlier, processors))
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

    /// True if the processors have been idle for so long that slots are of no use.
    fn is_idle(&mut self, share: Option<f64>) -> bool {
        self.idle_samples = match share {
            Some(share) if share < IDLE_SHARE => self.idle_samples + 1,
            _ => 0,
        };
        self.idle_samples >= SAMPLES_TO_END
    }

    /// True if almost nothing has been committed since this half of a trial began.
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
        if self.stage == PolicyStage::TrialLimited
            && (self.is_idle(share) | self.is_hopeless(observation))
        {
            self.gain = None;
            return self.reject_limit(LONGEST_HOPELESS_BACKOFF, observation);
        }
        if elapsed >= TRIAL_HALF + MAX_SAMPLE_AGE {
            // No thread has checked for long.
            return self.enter_stage(PolicyStage::Unlimited, observation);
        }
        let Some((from, commits)) = self.settled else {
            if elapsed >= SETTLE_TIME {
                self.settled = Some((at, observation.commits));
            }
            return;
        };
        // A late first observation starts the count, which takes as long as usual.
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

    /// Updates and returns the gain of slots over all trials so far, given the commits a second of
    /// this one.
    fn update_gain(&mut self, rate: f64) -> f64 {
        let latest = (rate / self.rate_unlimited.max(1.0)).min(MAX_GAIN);
        let gain = self.gain.map_or(latest, |before| (before + latest) / 2.0);
        self.gain = Some(gain);
        gain
    }

    /// True if a progress period of this limit is over in which almost nothing was committed.
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

    /// Ends a trial in which slots gained nothing.
    fn reject_limit(&mut self, longest: Duration, observation: &Observation) {
        self.enter_stage(PolicyStage::Unlimited, observation);
        let backoff = self.backoff.min(longest);
        self.next_trial = Some(observation.usage.at + backoff);
        self.backoff = backoff * 2;
        self.limited_time = SHORTEST_STAGE;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
