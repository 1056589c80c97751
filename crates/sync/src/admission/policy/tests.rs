//! What becomes of seats, by what they do.

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

/// Loses or wins one trial, with seats that do so many times as much, and is at what follows.
fn try_once(process: &mut Process, gain: f64) -> Stage {
    process.until(Stage::TrialWithout);
    process.rates = [1e5, 1e5 * gain];
    process.until(Stage::TrialWith);
    while process.run(STEP) == Stage::TrialWith {}
    process.rule.stage
}

#[test]
fn one_trial_by_chance_decides_nothing_and_two_do() {
    let mut process = Process::new(1e5, 1e5);
    assert_eq!(try_once(&mut process, 1.2), Stage::Term);
    assert_eq!(try_once(&mut process, 0.9), Stage::Term);
    assert_eq!(try_once(&mut process, 0.9), Stage::Rest);
    assert_eq!(try_once(&mut process, 1.08), Stage::Rest);
    assert_eq!(try_once(&mut process, 1.08), Stage::Term);
}

#[test]
fn a_trial_that_the_host_has_spoilt_is_forgotten_soon() {
    for (spoilt, stage, gain) in [(50.0, Stage::Rest, 0.9), (0.31, Stage::Term, 1.3)] {
        let mut process = Process::new(1e5, 1e5);
        try_once(&mut process, spoilt);
        assert!((0..4).any(|_| try_once(&mut process, gain) == stage));
    }
}

#[test]
fn what_was_found_of_one_crowd_says_nothing_of_the_next() {
    let mut process = Process::new(1e5, 1e5);
    assert_eq!(try_once(&mut process, 2.0), Stage::Term);
    process.is_crowded = false;
    process.until(Stage::Rest);
    process.is_crowded = true;
    assert_eq!(try_once(&mut process, 0.9), Stage::Rest);
    // Also where it went while there were no seats.
    process.is_crowded = false;
    process.run(LONG_AGO + STEP);
    process.is_crowded = true;
    assert_eq!(try_once(&mut process, 1.1), Stage::Term);
    process.is_crowded = false;
    process.until(Stage::Rest);
    process.is_crowded = true;
    // Nor what was found while all were at work of those who wait for something else.
    assert_eq!(try_once(&mut process, 2.0), Stage::Term);
    assert_eq!(try_once(&mut process, 0.1), Stage::Rest);
    assert_eq!(try_once(&mut process, 0.9), Stage::Rest);
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
