//! The stages of the policy, by the commits of a simulated process.

use super::*;

const STEP: Duration = Duration::from_millis(5);

/// A process, with its commits a second without slots and with them.
struct Process {
    policy: AdmissionPolicy,
    start: Instant,
    now: Duration,
    cpu: Duration,
    commits: f64,
    rates: [f64; 2],
    share: f64,
    is_overloaded: bool,
    many_blocked: bool,
    processors: u32,
    duration: Duration,
}

impl Process {
    fn new(rate_unlimited: f64, with: f64) -> Process {
        Process {
            policy: AdmissionPolicy::default(),
            start: Instant::now(),
            now: Duration::ZERO,
            cpu: Duration::ZERO,
            commits: 0.0,
            rates: [rate_unlimited, with],
            share: 1.0,
            is_overloaded: true,
            many_blocked: true,
            // So many can be used by many blocked transactions.
            processors: 1,
            duration: Duration::ZERO,
        }
    }

    /// Runs for `time`, and takes a step.
    fn run(&mut self, time: Duration) -> PolicyStage {
        let word = self.policy.stage.word();
        self.commits += self.rates[usize::from(PolicyStage::has_slots(word))] * time.as_secs_f64();
        self.now += time;
        self.cpu += time.mul_f64(self.share * f64::from(self.processors));
        let at = self.start + self.now;
        if !self.policy.is_due(at) {
            return self.policy.stage;
        }
        self.policy.step(&Observation {
            usage: CpuUsage { at, cpu: self.cpu },
            duration: self.duration,
            commits: self.commits as u64,
            is_overloaded: self.is_overloaded,
            many_blocked: self.many_blocked,
            processors: self.processors,
        })
    }

    /// Takes a step every few milliseconds until it is in `stage`, and returns how long that took.
    fn until(&mut self, stage: PolicyStage) -> Duration {
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
    assert_eq!(process.run(STEP), PolicyStage::Unlimited, "one look");
    process.share = 0.55;
    assert_eq!(process.run(STEP), PolicyStage::Unlimited, "idle");
    process.share = 1.0;
    let second = Duration::from_secs(1);
    assert_eq!(process.run(second), PolicyStage::Unlimited, "too long ago");
    process.is_overloaded = false;
    assert_eq!(process.run(STEP), PolicyStage::Unlimited, "few are blocked");
    process.is_overloaded = true;
    assert_eq!(process.run(STEP / 5), PolicyStage::Unlimited, "just looked");
    assert_eq!(process.run(STEP), PolicyStage::TrialUnlimited);
}

#[test]
fn one_busy_processor_of_many_is_enough_where_many_are_blocked_and_not_elsewhere() {
    let mut process = Process::new(1e5, 2e5);
    (process.processors, process.share) = (64, 0.7 / 64.0);
    process.many_blocked = false;
    for _ in 0..1_000 {
        assert_eq!(process.run(STEP), PolicyStage::Unlimited);
    }
    process.many_blocked = true;
    process.until(PolicyStage::TrialLimited);
    // Slots let few be blocked.
    process.many_blocked = false;
    process.until(PolicyStage::Limited);
    let limited_time = process.until(PolicyStage::TrialUnlimited);
    assert_eq!(limited_time, SHORTEST_STAGE);
}

#[test]
fn slots_that_gain_stay_for_ever_longer_periods() {
    let mut process = Process::new(1e5, 1.2e5);
    for seconds in [2, 4, 8, 8] {
        process.until(PolicyStage::TrialUnlimited);
        let trial = process.until(PolicyStage::Limited);
        assert!(trial <= TRIAL_HALF * 2 + STEP * 2, "{trial:?}");
        let limited_time = process.until(PolicyStage::TrialUnlimited);
        assert_eq!(limited_time, Duration::from_secs(seconds));
    }
}

#[test]
fn few_blocked_is_recorded_in_the_half_without_slots() {
    let mut process = Process::new(1e5, 1.2e5);
    for many_blocked in [true, false, true, false] {
        process.until(PolicyStage::TrialUnlimited);
        process.many_blocked = many_blocked;
        process.until(PolicyStage::TrialLimited);
        assert_eq!(process.policy.few_blocked(), !many_blocked);
        // With slots few transactions need be blocked.
        process.many_blocked = false;
        process.until(PolicyStage::Limited);
        assert_eq!(process.policy.few_blocked(), !many_blocked);
    }
}

#[test]
fn slots_that_gain_nothing_are_tried_less_and_less_often() {
    for with in [0.5e5, 1.02e5] {
        let mut process = Process::new(1e5, with);
        for seconds in [2, 4, 8, 8, 8] {
            process.until(PolicyStage::TrialUnlimited);
            let mut stages = vec![process.policy.stage];
            while process.run(STEP) != PolicyStage::Unlimited {
                stages.push(process.policy.stage);
            }
            stages.dedup();
            assert_eq!(
                stages,
                [PolicyStage::TrialUnlimited, PolicyStage::TrialLimited]
            );
            let rested = process.until(PolicyStage::TrialUnlimited);
            let wanted = Duration::from_secs(seconds);
            assert!(
                rested >= wanted && rested <= wanted + STEP * 3,
                "{rested:?}"
            );
        }
    }
}

#[test]
fn commits_before_the_settle_time_do_not_count() {
    let mut process = Process::new(1e6, 1e5);
    process.until(PolicyStage::TrialUnlimited);
    process.run(SETTLE_TIME);
    process.rates = [1e5, 2e5];
    assert_eq!(
        process.until(PolicyStage::TrialLimited),
        TRIAL_HALF - SETTLE_TIME
    );
    process.until(PolicyStage::Limited);
}

#[test]
fn a_late_observation_counts_for_as_long_as_others() {
    let mut process = Process::new(1e5, 2e5);
    process.until(PolicyStage::TrialUnlimited);
    // Nothing, until the phase is almost over; then much in a moment.
    process.rates = [1e6, 2e5];
    process.run(TRIAL_HALF - STEP);
    process.run(STEP);
    assert_eq!(process.run(STEP), PolicyStage::TrialUnlimited);
    process.rates = [1e5, 2e5];
    process.until(PolicyStage::Unlimited); // No check came in time.
    process.until(PolicyStage::TrialUnlimited);
    process.run(SETTLE_TIME + STEP * 10);
    let counted = process.until(PolicyStage::TrialLimited);
    assert_eq!(counted, TRIAL_HALF - SETTLE_TIME);
}

#[test]
fn a_torn_observation_is_ignored() {
    let mut process = Process::new(1e5, 2e5);
    process.duration = MAX_OBSERVATION_TIME * 2;
    for _ in 0..100 {
        assert_eq!(process.run(STEP), PolicyStage::Unlimited);
    }
    process.duration = MAX_OBSERVATION_TIME;
    process.until(PolicyStage::TrialUnlimited);
    process.run(SETTLE_TIME);
    process.duration = MAX_OBSERVATION_TIME * 2;
    assert_eq!(process.run(TRIAL_HALF), PolicyStage::TrialUnlimited);
}

#[test]
fn idle_processors_start_a_new_trial_soon() {
    let mut process = Process::new(1e5, 2e5);
    process.until(PolicyStage::Limited);
    for share in [0.1, 0.1, 0.1, 0.1, 0.1, 0.45, 0.35, 0.35, 0.35, 0.35, 0.35] {
        process.share = share;
        assert_eq!(process.run(STEP), PolicyStage::Limited);
    }
    assert_eq!(process.run(STEP), PolicyStage::TrialUnlimited);
    process.rates = [1e5, 1e4];
    process.until(PolicyStage::Unlimited);
}

#[test]
fn a_trial_with_almost_no_commits_is_lost_at_once_and_repeated_seldom() {
    // The running transactions wait for the network, and other threads keep the processors busy.
    let mut process = Process::new(1e5, 2e4);
    for seconds in [2, 4, 8, 16, 32, 64, 64] {
        process.until(PolicyStage::TrialLimited);
        let lost = process.until(PolicyStage::Unlimited);
        assert!(lost <= HOPELESS_AFTER + STEP, "{lost:?}");
        let rested = process.until(PolicyStage::TrialUnlimited);
        assert_eq!(rested.as_secs(), seconds, "{rested:?}");
    }
    // Slots that gain, or lose only a little, later on, begin with a backoff like any other.
    process.rates = [1e5, 0.9e5];
    process.until(PolicyStage::TrialLimited);
    assert_eq!(process.until(PolicyStage::Unlimited), TRIAL_HALF);
    assert_eq!(process.until(PolicyStage::TrialUnlimited).as_secs(), 8);
}

/// Runs one trial in which slots gain by this factor, and returns the stage that follows.
fn run_trial(process: &mut Process, gain: f64) -> PolicyStage {
    process.until(PolicyStage::TrialUnlimited);
    process.rates = [1e5, 1e5 * gain];
    process.until(PolicyStage::TrialLimited);
    while process.run(STEP) == PolicyStage::TrialLimited {}
    process.policy.stage
}

#[test]
fn one_chance_trial_decides_nothing_and_two_do() {
    let mut process = Process::new(1e5, 1e5);
    assert_eq!(run_trial(&mut process, 1.2), PolicyStage::Limited);
    assert_eq!(run_trial(&mut process, 0.9), PolicyStage::Limited);
    assert_eq!(run_trial(&mut process, 0.9), PolicyStage::Unlimited);
    assert_eq!(run_trial(&mut process, 1.08), PolicyStage::Unlimited);
    assert_eq!(run_trial(&mut process, 1.08), PolicyStage::Limited);
}

#[test]
fn a_trial_spoilt_by_the_host_is_forgotten_soon() {
    for (spoilt, stage, gain) in [
        (50.0, PolicyStage::Unlimited, 0.9),
        (0.31, PolicyStage::Limited, 1.3),
    ] {
        let mut process = Process::new(1e5, 1e5);
        run_trial(&mut process, spoilt);
        assert!((0..4).any(|_| run_trial(&mut process, gain) == stage));
    }
}

#[test]
fn the_gain_of_one_overload_is_not_used_for_the_next() {
    let mut process = Process::new(1e5, 1e5);
    assert_eq!(run_trial(&mut process, 2.0), PolicyStage::Limited);
    process.is_overloaded = false;
    process.until(PolicyStage::Unlimited);
    process.is_overloaded = true;
    assert_eq!(run_trial(&mut process, 0.9), PolicyStage::Unlimited);
    // Also if it went while there were no slots.
    process.is_overloaded = false;
    process.run(GAIN_EXPIRY + STEP);
    process.is_overloaded = true;
    assert_eq!(run_trial(&mut process, 1.1), PolicyStage::Limited);
    process.is_overloaded = false;
    process.until(PolicyStage::Unlimited);
    process.is_overloaded = true;
    // Nor is the gain used that was found while all running transactions waited for something else.
    assert_eq!(run_trial(&mut process, 2.0), PolicyStage::Limited);
    assert_eq!(run_trial(&mut process, 0.1), PolicyStage::Unlimited);
    assert_eq!(run_trial(&mut process, 0.9), PolicyStage::Unlimited);
}

#[test]
fn where_few_are_blocked_slots_must_gain_more() {
    let mut process = Process::new(1e5, 1.05e5);
    process.many_blocked = false;
    process.until(PolicyStage::TrialLimited);
    assert_eq!(process.until(PolicyStage::Unlimited), TRIAL_HALF);
    process.rates = [1e5, 1.1e5];
    process.until(PolicyStage::Limited);
}

#[test]
fn a_trial_whose_slots_leave_the_processors_idle_is_lost_at_once() {
    // The commits do not matter then, nor that the processors are idle without slots.
    let mut process = Process::new(1e4, 1e5);
    process.until(PolicyStage::TrialUnlimited);
    process.share = 0.05;
    process.until(PolicyStage::TrialLimited);
    assert_eq!(process.until(PolicyStage::Unlimited), STEP * SAMPLES_TO_END);
}

#[test]
fn a_limit_under_which_almost_nothing_commits_ends_soon() {
    let mut process = Process::new(1e5, 2e5);
    process.until(PolicyStage::Limited);
    process.run(PROGRESS_PERIOD * 3 / 2);
    // From now on all wait for the network, and other threads keep the processors busy.
    process.rates = [5e4, 1e4];
    let stayed = process.until(PolicyStage::TrialUnlimited);
    assert!(stayed <= PROGRESS_PERIOD * 2 + STEP, "{stayed:?}");
    process.until(PolicyStage::Unlimited);
}

#[test]
fn a_limit_ends_where_few_clients_are_left() {
    let mut process = Process::new(1e5, 2e5);
    process.until(PolicyStage::Limited);
    process.is_overloaded = false;
    process.run(STEP * 4);
    process.is_overloaded = true;
    assert_eq!(process.run(STEP), PolicyStage::Limited);
    process.is_overloaded = false;
    assert_eq!(process.until(PolicyStage::Unlimited), STEP * SAMPLES_TO_END);
    process.is_overloaded = true;
    assert_eq!(process.until(PolicyStage::TrialUnlimited), STEP, "at once");
}

#[test]
fn a_trial_without_observations_ends_and_may_begin_again() {
    let mut process = Process::new(1e5, 2e5);
    process.until(PolicyStage::TrialLimited);
    assert_eq!(process.run(Duration::from_secs(1)), PolicyStage::Unlimited);
    assert_eq!(process.until(PolicyStage::TrialUnlimited), STEP);
}

#[test]
fn each_stage_has_its_word() {
    let all = [
        PolicyStage::Unlimited,
        PolicyStage::TrialUnlimited,
        PolicyStage::TrialLimited,
        PolicyStage::Limited,
    ];
    let words = all.map(PolicyStage::word);
    assert_eq!(
        words.map(PolicyStage::has_slots),
        [false, false, true, true]
    );
    assert_eq!(words.map(PolicyStage::is_trial), [false, true, true, false]);
    assert_eq!(
        words.map(PolicyStage::counts_commits),
        [false, true, true, true]
    );
}
