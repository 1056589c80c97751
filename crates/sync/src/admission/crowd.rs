//! Whether so many are at work that fewer would do more.
//!
//! Seats are worth their price where most of those at work are asleep behind each other's locks while the
//! processors are busy with putting them to sleep and waking them. They do harm where transactions
//! wait for people or for the network: then the processors are idle, and whoever could run has to be let in. And they
//! do harm where those who block are few beside those who do not: a line is a switch between threads, too. The
//! three look alike from within, so it is *tried*: while many are blocked and the processors busy, commits are
//! counted without seats and with them, in turn, and the seats stay for a term if they have done more ([`rule`]).
//!
//! Counting blocked transactions and stopping to admit when they are most of all is *half and half* (M. J. Carey,
//! S. Krishnamurthi, M. Livny: *Load Control for Locking*, PODS 1990), climbing by what came of it is
//! H.-U. Heiss's and R. Wagner's (*Adaptive Load Control in Transaction Processing Systems*, VLDB 1991); the processors'
//! use takes the place of the count of all, which would be one more thing that every transaction writes.
//!
//! # Invariants
//!
//! * I1  Who is counted as blocked is taken off the count when it goes on, however its wait ended.
//! * I2  `stage` is written under the rule's mutex only. Others read it as a hint: who goes by an old value waits for
//!   a seat, or does not, for one transaction, or counts a few commits to the wrong side.

mod rule;

use crate::cache_line::CachePadded;
use crate::shim::{self, AtomicU32, AtomicU64, Mutex, Ordering};
use rule::{Look, Rule, Stage, Usage};

/// Blocked transactions for each processor that are no crowd yet.
const BLOCKED: u32 = 8;
/// Commits that a client counts by itself before all may see them.
const BY_ITSELF: u32 = 8;
/// After so many of all it is looked whether the trial is over: where nobody blocks, nobody else does.
const LOOKS: u64 = 1024;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Crowd {
    blocked: CachePadded<AtomicU32>,
    commits: CachePadded<AtomicU64>,
    /// What is read at each begin and end, and written a few times a second at most.
    stage: CachePadded<AtomicU32>,
    processors: u32,
    rule: Mutex<Rule>,
}

impl Crowd {
    pub(super) fn new(processors: u32) -> Crowd {
        Crowd {
            blocked: CachePadded::new(AtomicU32::new(0)),
            commits: CachePadded::new(AtomicU64::new(0)),
            stage: CachePadded::new(AtomicU32::new(Stage::REST)),
            processors,
            rule: Mutex::new(Rule::default()),
        }
    }

    /// Whether seats count.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        Stage::has_seats(self.stage.load(Ordering::Relaxed)) // I2
    }

    /// How many are blocked.
    pub(super) fn blocked(&self) -> u32 {
        self.blocked.load(Ordering::Relaxed)
    }

    /// One more is blocked.
    pub(super) fn blocks(&self) {
        let blocked = self.blocked.fetch_add(1, Ordering::Relaxed) + 1; // A count.
        if self.is_crowded(blocked) || Stage::counts(self.stage.load(Ordering::Relaxed)) {
            self.look(0);
        }
    }

    /// One goes on (I1).
    pub(super) fn goes_on(&self) {
        self.blocked.fetch_sub(1, Ordering::Relaxed);
    }

    /// One has committed, whose commits that nobody knows of are `own`. Says how often what all share was passed.
    #[inline]
    pub(super) fn commits(&self, own: &mut u32) -> u64 {
        if !Stage::counts(self.stage.load(Ordering::Relaxed)) {
            return 0; // I2
        }
        *own += 1;
        if *own < BY_ITSELF {
            return 0;
        }
        let fresh = u64::from(std::mem::take(own));
        // A count.
        let before = self.commits.fetch_add(fresh, Ordering::Relaxed);
        if before / LOOKS != (before + fresh) / LOOKS {
            self.look(0);
        }
        1
    }

    /// Looks whether it is over, or has been, while so many wait for a seat.
    pub(super) fn is_over(&self, waiting: usize) -> bool {
        self.look(u32::try_from(waiting).unwrap_or(u32::MAX));
        !self.is_on()
    }

    fn is_crowded(&self, there: u32) -> bool {
        there > BLOCKED * self.processors
    }

    /// Goes on with the rule, if it is time to, and nobody else does.
    fn look(&self, waiting: u32) {
        // What depends on time is nothing for a model checker, which sets it itself.
        if cfg!(loom) {
            return;
        }
        let Some(mut rule) = shim::try_lock(&self.rule) else {
            return;
        };
        let at = crate::clock::now();
        if rule.is_due(at) {
            let look = Look {
                usage: Usage::at(at),
                commits: self.commits.load(Ordering::Relaxed),
                is_crowded: self.is_crowded(self.blocked().saturating_add(waiting)),
                processors: self.processors,
            };
            let stage = rule.step(&look);
            self.stage.store(stage.word(), Ordering::Relaxed); // I2
        }
    }

    /// Begins or ends one, whatever the rule says.
    #[cfg(any(test, loom))]
    pub(super) fn set(&self, is_on: bool) {
        let mut rule = shim::lock(&self.rule);
        let stage = match is_on {
            true => Stage::Term,
            false => Stage::Rest,
        };
        *rule = Rule::at(stage, crate::clock::now());
        self.stage.store(stage.word(), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::{Admission, Claim};
    use super::*;
    use std::time::{Duration, Instant};

    const PROCESSORS: u32 = 2;

    #[test]
    fn the_processors_are_looked_at_when_more_are_blocked_than_is_usual() {
        let crowd = Crowd::new(PROCESSORS);
        let has_looked = || shim::lock(&crowd.rule).has_looked();
        for _ in 0..BLOCKED * PROCESSORS {
            crowd.blocks();
        }
        assert!(!has_looked());
        crowd.blocks();
        assert!(has_looked());
    }

    #[test]
    fn who_is_blocked_is_counted_until_it_goes_on() {
        let crowd = Crowd::new(PROCESSORS);
        for _ in 0..1_000 {
            crowd.blocks();
        }
        for _ in 0..1_000 {
            crowd.goes_on();
        }
        assert_eq!(crowd.blocked(), 0);
    }

    #[test]
    fn who_is_left_alone_after_a_crowd_finds_out_that_it_is_over() {
        let admission = Admission::new(1).only_in_crowds(1);
        admission.crowd.as_ref().unwrap().set(true);
        let (mut claim, begun) = (Claim::default(), Instant::now());
        while admission.is_on() {
            admission.enter(&mut claim);
            admission.leave(&mut claim);
            assert!(begun.elapsed() < Duration::from_mins(2), "nobody looked");
        }
        assert_eq!(admission.free(), 1);
    }

    #[test]
    fn a_trial_in_which_nobody_blocks_any_more_is_over_after_some_commits() {
        let (crowd, mut own) = (Crowd::new(PROCESSORS), 0);
        let long_ago = Instant::now() - Duration::from_millis(900);
        *shim::lock(&crowd.rule) = Rule::at(Stage::TrialWithout, long_ago);
        let trial = Stage::TrialWithout.word();
        crowd.stage.store(trial, Ordering::Relaxed);
        for _ in 0..LOOKS {
            assert_eq!(crowd.stage.load(Ordering::Relaxed), trial);
            crowd.commits(&mut own);
        }
        assert_eq!(crowd.stage.load(Ordering::Relaxed), Stage::REST);
    }

    #[test]
    fn commits_are_counted_during_a_trial_and_a_few_at_a_time() {
        let (crowd, mut own) = (Crowd::new(PROCESSORS), 0);
        let counted = || crowd.commits.load(Ordering::Relaxed);
        assert_eq!((crowd.commits(&mut own), own, counted()), (0, 0, 0));
        let trial = Stage::TrialWithout.word();
        crowd.stage.store(trial, Ordering::Relaxed);
        let passed: u64 = (0..BY_ITSELF * 3 + 1)
            .map(|_| crowd.commits(&mut own))
            .sum();
        assert_eq!((passed, own, counted()), (3, 1, u64::from(BY_ITSELF * 3)));
    }
}
