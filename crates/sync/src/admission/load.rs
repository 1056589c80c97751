//! Whether so many are at work that fewer would do more.
//!
//! Seats are worth their price where most of those at work are asleep behind each other's locks while the
//! processors are busy with putting them to sleep and waking them; and where nobody blocks, but so many take turns
//! on the processors that each finds its memory gone from the caches, and whoever loses the processor has a latch or a
//! place in a queue that others come to. They do harm where transactions
//! wait for people or for the network: then the processors are idle, and whoever could run has to be let in. And they
//! do harm where those who block are few beside those who do not: a line is a switch between threads, too. All
//! these look alike from within, so it is *tried*: while many are blocked, or many are there, and the processors busy,
//! commits are counted without seats and with them, in turn, and the seats stay for a term if they have done more ([`policy`](super::policy)).
//!
//! How many are *there* is known without a word that every transaction writes: time is cut into windows, whose number stands
//! beside what everybody reads anyway, and a client that meets a number for the first time adds one to those of that window.
//!
//! Counting blocked transactions and stopping to admit when they are most of all is *half and half* (M. J. Carey,
//! S. Krishnamurthi, M. Livny: *Load Control for Locking*, PODS 1990), climbing by what came of it is
//! H.-U. Heiss's and R. Wagner's (*Adaptive Load Control in Transaction Processing Systems*, VLDB 1991); the processors'
//! use takes the place of the count of all, which would be one more thing that every transaction writes.
//!
//! # Invariants
//!
//! * I1  Who is counted as blocked is taken off the count when it goes on, however its wait ended.
//! * I2  `word` is written under the rule's mutex only. Others read it as a hint: who goes by an old value waits for
//!   a seat, or does not, for one transaction, or counts a few commits, or itself, to the wrong side.

use std::time::{Duration, Instant};

use super::policy::{Look, Rule, Stage, Usage};
use crate::cache_line::CachePadded;
use crate::shim::{self, AtomicU32, AtomicU64, Mutex, Ordering};

/// So many for each processor, blocked or there, are no crowd yet.
const FEW: u32 = 8;
/// So long a window is, at least.
const WINDOW: Duration = Duration::from_millis(100);
/// Who comes looks every so many times whether the window is over.
const TURNS: u32 = 64;
/// Commits that a client counts by itself before all may see them.
const BY_ITSELF: u32 = 16;
/// After so many of all it is looked whether the trial is over: where nobody blocks, nobody else does.
const LOOKS: u64 = 1024;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Crowd {
    blocked: CachePadded<AtomicU32>,
    commits: CachePadded<AtomicU64>,
    /// Who came in this window.
    there: CachePadded<AtomicU32>,
    /// The stage's word, and the window's number. What is read at each begin and end, and written ten times a second.
    word: CachePadded<AtomicU32>,
    processors: u32,
    rule: Mutex<Guide>,
}

/// What one client counts by itself.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Commits that were not added to those of all.
    commits: u32,
    /// How often it came.
    turns: u32,
    /// The window that it was counted in last.
    window: u32,
    /// When it looked last.
    looked: Option<Instant>,
}

impl Own {
    /// Whether it is time for this client to look: in a trial or a term always, else once in a window.
    #[cold]
    fn has_to_look(&mut self, word: u32) -> bool {
        let at = crate::clock::now();
        let is_late = |looked| at.saturating_duration_since(looked) >= WINDOW;
        let has_to = Stage::counts(word) || self.looked.is_none_or(is_late);
        if has_to {
            self.looked = Some(at);
        }
        has_to
    }
}

/// What changes under the mutex.
#[derive(Debug, Default)]
struct Guide {
    rule: Rule,
    /// The window's number, and since when it is.
    window: u32,
    since: Option<Instant>,
    /// How many came in the one before.
    there: u32,
}

impl Guide {
    /// Ends the window if it is time to. Those who came in it are in `there`, which is none afterwards.
    fn turn(&mut self, at: Instant, there: &AtomicU32) {
        let since = *self.since.get_or_insert(at);
        if at.saturating_duration_since(since) >= WINDOW {
            self.there = there.swap(0, Ordering::Relaxed);
            self.window = (self.window + 1) & WINDOWS;
            self.since = Some(at);
        }
    }

    fn word(&self, stage: Stage) -> u32 {
        let pace = if self.rule.is_long() { Stage::LONG } else { 0 };
        stage.word() | pace | self.window << Stage::BITS
    }
}

/// Windows' numbers are from 0 to this.
const WINDOWS: u32 = u32::MAX >> Stage::BITS;

impl Crowd {
    pub(super) fn new(processors: u32) -> Crowd {
        Crowd {
            blocked: CachePadded::new(AtomicU32::new(0)),
            commits: CachePadded::new(AtomicU64::new(0)),
            there: CachePadded::new(AtomicU32::new(0)),
            word: CachePadded::new(AtomicU32::new(Stage::REST)),
            processors,
            rule: Mutex::new(Guide::default()),
        }
    }

    /// Whether seats count.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        Stage::has_seats(self.word.load(Ordering::Relaxed)) // I2
    }

    /// A client comes. Says whether it is to look ([`is_over`](Self::is_over)).
    #[inline]
    pub(super) fn comes(&self, own: &mut Own) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let window = word >> Stage::BITS;
        if window != own.window {
            own.window = window;
            self.there.fetch_add(1, Ordering::Relaxed); // A count.
        }
        own.turns = own.turns.wrapping_add(1);
        own.turns.is_multiple_of(TURNS) && own.has_to_look(word)
    }

    /// Whether seats are kept longer than usual.
    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.word.load(Ordering::Relaxed) & Stage::LONG != 0 // I2
    }

    /// How many are blocked.
    pub(super) fn blocked(&self) -> u32 {
        self.blocked.load(Ordering::Relaxed)
    }

    /// One more is blocked.
    pub(super) fn blocks(&self) {
        let blocked = self.blocked.fetch_add(1, Ordering::Relaxed) + 1; // A count.
        if self.is_crowded(blocked) || Stage::is_trial(self.word.load(Ordering::Relaxed)) {
            self.look(0);
        }
    }

    /// One goes on (I1).
    pub(super) fn goes_on(&self) {
        self.blocked.fetch_sub(1, Ordering::Relaxed);
    }

    /// One has committed, whose commits that nobody knows of are `own`. Says how often what all share was passed.
    #[inline]
    pub(super) fn commits(&self, own: &mut Own) -> u64 {
        if !Stage::counts(self.word.load(Ordering::Relaxed)) {
            return 0; // I2
        }
        own.commits += 1;
        if own.commits < BY_ITSELF {
            return 0;
        }
        let fresh = u64::from(std::mem::take(&mut own.commits));
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
        there > FEW * self.processors
    }

    /// Goes on with the rule, if it is time to, and nobody else does.
    fn look(&self, waiting: u32) {
        // What depends on time is nothing for a model checker, which sets it itself.
        if cfg!(loom) {
            return;
        }
        let Some(mut guide) = shim::try_lock(&self.rule) else {
            return;
        };
        let at = crate::clock::now();
        if !guide.rule.is_due(at) {
            return;
        }
        let commits = self.commits.load(Ordering::Relaxed);
        let usage = Usage::at(at);
        let took = crate::clock::now() - at;
        guide.turn(at, &self.there);
        let blocked = self.blocked();
        let behind = blocked.saturating_add(waiting);
        let look = Look {
            usage,
            took,
            commits,
            is_crowded: self.is_crowded(behind.max(guide.there)),
            is_blocked: self.is_crowded(blocked),
            processors: self.processors,
        };
        let stage = guide.rule.step(&look);
        self.word.store(guide.word(stage), Ordering::Relaxed); // I2
    }

    /// Begins or ends one, whatever the rule says.
    #[cfg(any(test, loom))]
    pub(super) fn set(&self, is_on: bool) {
        let stage = match is_on {
            true => Stage::Term,
            false => Stage::Rest,
        };
        self.begin(stage, crate::clock::now());
    }

    /// Has seats that are kept for long.
    #[cfg(test)]
    pub(super) fn set_long(&self) {
        let mut guide = shim::lock(&self.rule);
        guide.rule = Rule::at(Stage::Term, crate::clock::now()).long();
        self.word.store(guide.word(Stage::Term), Ordering::Relaxed);
    }

    /// Is in `stage`, and has been since then.
    #[cfg(any(test, loom))]
    fn begin(&self, stage: Stage, since: Instant) {
        let mut guide = shim::lock(&self.rule);
        guide.rule = Rule::at(stage, since);
        self.word.store(guide.word(stage), Ordering::Relaxed);
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
        let has_looked = || shim::lock(&crowd.rule).rule.has_looked();
        for _ in 0..FEW * PROCESSORS {
            crowd.blocks();
        }
        assert!(!has_looked());
        // Who loses the processor while it looks leaves it to the next.
        while !has_looked() {
            crowd.blocks();
            assert!(crowd.blocked() < 1_000);
        }
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
        let (crowd, mut own) = (Crowd::new(PROCESSORS), Own::default());
        let long_ago = Instant::now() - Duration::from_millis(900);
        crowd.begin(Stage::TrialWithout, long_ago);
        let word = || crowd.word.load(Ordering::Relaxed);
        let mut commits = 0;
        while word() == Stage::TrialWithout.word() {
            crowd.commits(&mut own);
            commits += 1;
        }
        assert_eq!(word(), Stage::REST);
        // Who loses the processor while it looks leaves it to the next.
        assert!((LOOKS..LOOKS * 100).contains(&commits), "{commits}");
    }

    #[test]
    fn commits_are_counted_during_a_trial_and_a_few_at_a_time() {
        let (crowd, mut own) = (Crowd::new(PROCESSORS), Own::default());
        let counted = || crowd.commits.load(Ordering::Relaxed);
        assert_eq!((crowd.commits(&mut own), own.commits, counted()), (0, 0, 0));
        crowd.begin(Stage::TrialWithout, Instant::now());
        let passed: u64 = (0..BY_ITSELF * 3 + 1)
            .map(|_| crowd.commits(&mut own))
            .sum();
        assert_eq!(
            (passed, own.commits, counted()),
            (3, 1, u64::from(BY_ITSELF * 3))
        );
    }

    /// Ends the window that there is, and says who came in it.
    fn end_window(crowd: &Crowd) -> u32 {
        let window = shim::lock(&crowd.rule).window;
        loop {
            std::thread::sleep(Duration::from_millis(10)); // The rule looks no more often.
            shim::lock(&crowd.rule).since = Some(Instant::now() - WINDOW);
            crowd.look(0);
            let guide = shim::lock(&crowd.rule);
            if guide.window != window {
                return guide.there;
            }
        }
    }

    #[test]
    fn who_comes_is_counted_once_in_a_window() {
        let crowd = Crowd::new(PROCESSORS);
        let mut all: Vec<Own> = (0..20).map(|_| Own::default()).collect();
        let mut come = |crowd: &Crowd, count| {
            let clients = all.iter_mut().take(count);
            for own in clients {
                (0..10).for_each(|_| assert!(!crowd.comes(own), "it is not its turn"));
            }
        };
        end_window(&crowd);
        for count in [20, 7, 0, 13] {
            come(&crowd, count);
            assert_eq!(end_window(&crowd), u32::try_from(count).unwrap());
        }
    }

    #[test]
    fn a_trial_begins_where_many_are_there_though_nobody_is_blocked() {
        let tries = |clients: u32| {
            let crowd = Crowd::new(1);
            let mut all: Vec<Own> = (0..clients).map(|_| Own::default()).collect();
            let begun = Instant::now();
            // This thread keeps one processor busy, unless others have it.
            while begun.elapsed() < Duration::from_secs(if clients > FEW { 60 } else { 1 }) {
                for own in &mut all {
                    if crowd.comes(own) {
                        crowd.is_over(0);
                    }
                }
                if Stage::counts(crowd.word.load(Ordering::Relaxed)) {
                    return true;
                }
            }
            false
        };
        assert!(!tries(FEW));
        assert!(tries(FEW + 1));
    }
}
