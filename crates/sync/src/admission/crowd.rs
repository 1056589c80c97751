//! Whether so many are at work that fewer would do more.
//!
//! Seats are worth their price where most of those at work are asleep behind each other's locks while the
//! processors are busy with putting them to sleep and waking them. They do harm where transactions
//! wait for people or for the network: then the processors are idle, and whoever could run has to be let in.
//! So two things are looked at, and only when transactions block: how many are blocked, and how busy
//! this process keeps the processors.
//!
//! | a crowd | when |
//! | --- | --- |
//! | begins | more than [`BLOCKED`] transactions for each processor are blocked, and for [`SAMPLE`] the process has used three fifths of the processors |
//! | ends | after a [`TERM`]; if there still is one, the next begins in a few milliseconds |
//! | ends | as soon as the process has used less than two fifths of the processors in [`IDLE_SAMPLES`] in a row: the seats are held by who waits for something else. The next one may not begin for a second, then for two, up to a minute |
//!
//! Counting blocked transactions and stopping to admit when they are most of all is *half and half* (M. J. Carey,
//! S. Krishnamurthi, M. Livny: *Load Control for Locking*, PODS 1990); the processors' use takes the place of
//! the count of all, which would be one more thing that every transaction writes.
//!
//! # Invariants
//!
//! * I1  Who is counted as blocked is taken off the count when it goes on, however its wait ended.
//! * I2  `is_on` is written under the rule's mutex only. Others read it as a hint: who goes by an old value waits for
//!   a seat, or does not, for one transaction.

use std::time::{Duration, Instant};

use crate::cache_line::CachePadded;
use crate::shim::{self, AtomicBool, AtomicU32, Mutex, Ordering};

/// What share of the processors a crowd uses at least when it begins: the processors of threads that wake each other
/// are idle in between, a quarter of the time as it was measured; and below what share seats are of no use.
const BUSY: f64 = 0.6;
const IDLE: f64 = 0.4;
/// Over so long the use of the processors is measured.
const SAMPLE: Duration = Duration::from_millis(4);
/// So many tell that the processors are idle: one may be nothing but a moment in which others had them.
const IDLE_SAMPLES: u32 = 6;
/// An older measurement says nothing of now.
const STALE: Duration = Duration::from_millis(100);
/// A crowd is over after so long, to see whether there is one without seats.
const TERM: Duration = Duration::from_secs(1);
/// Until the next crowd may begin, if seats were of no use.
const QUIET: Duration = Duration::from_secs(1);
const LONGEST_QUIET: Duration = Duration::from_mins(1);
/// Blocked transactions for each processor that are no crowd yet.
const BLOCKED: u32 = 8;

/// The processor time that this process has used, and when.
#[derive(Debug, Clone, Copy)]
struct Usage {
    at: Instant,
    cpu: Duration,
}

impl Usage {
    fn at(at: Instant) -> Usage {
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

/// What is decided on.
#[derive(Debug)]
struct Rule {
    sample: Option<Usage>,
    since: Option<Instant>,
    not_before: Option<Instant>,
    quiet: Duration,
    /// Idle samples in a row.
    idle: u32,
}

impl Default for Rule {
    fn default() -> Self {
        Rule {
            sample: None,
            since: None,
            not_before: None,
            quiet: QUIET,
            idle: 0,
        }
    }
}

impl Rule {
    /// Whether it is worth while to ask how busy the processors are.
    fn wants(&self, at: Instant) -> bool {
        let may = self.not_before.is_none_or(|not_before| at >= not_before);
        let is_due = |sample: &Usage| at.saturating_duration_since(sample.at) >= SAMPLE;
        may && self.sample.as_ref().is_none_or(is_due)
    }

    /// The use of the processors over the last sample, which this begins anew.
    fn share(&mut self, usage: Usage, processors: u32) -> Option<f64> {
        let earlier = self.sample.replace(usage)?;
        let is_of_now = usage.at.saturating_duration_since(earlier.at) < STALE;
        is_of_now.then(|| usage.share_since(&earlier, processors))
    }

    /// Many are blocked: whether this is a crowd.
    fn begins(&mut self, usage: Usage, processors: u32) -> bool {
        let begins = self
            .share(usage, processors)
            .is_some_and(|share| share >= BUSY);
        if begins {
            self.since = Some(usage.at);
            self.idle = 0;
        }
        begins
    }

    /// There is a crowd: whether it is over.
    fn ends(&mut self, usage: Usage, processors: u32) -> bool {
        let share = self.share(usage, processors);
        self.idle = match share {
            Some(share) if share < IDLE => self.idle + 1,
            _ => 0,
        };
        let is_idle = self.idle >= IDLE_SAMPLES;
        let has_lasted = self
            .since
            .is_none_or(|since| usage.at.saturating_duration_since(since) >= TERM);
        if is_idle {
            self.not_before = Some(usage.at + self.quiet);
            self.quiet = (self.quiet * 2).min(LONGEST_QUIET);
        } else if has_lasted {
            self.quiet = QUIET;
        }
        if is_idle || has_lasted {
            self.sample = None;
        }
        is_idle || has_lasted
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Crowd {
    blocked: CachePadded<AtomicU32>,
    is_on: CachePadded<AtomicBool>,
    processors: u32,
    rule: Mutex<Rule>,
}

impl Crowd {
    pub(super) fn new(processors: u32) -> Crowd {
        Crowd {
            blocked: CachePadded::new(AtomicU32::new(0)),
            is_on: CachePadded::new(AtomicBool::new(false)),
            processors,
            rule: Mutex::new(Rule::default()),
        }
    }

    /// Whether there is one.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed) // I2
    }

    /// How many are blocked.
    pub(super) fn blocked(&self) -> u32 {
        self.blocked.load(Ordering::Relaxed)
    }

    /// One more is blocked.
    pub(super) fn blocks(&self) {
        let blocked = self.blocked.fetch_add(1, Ordering::Relaxed) + 1; // A count.
        if blocked <= BLOCKED * self.processors || self.is_on() {
            return;
        }
        // Somebody else is looking, then.
        let Some(mut rule) = shim::try_lock(&self.rule) else {
            return;
        };
        let at = crate::clock::now();
        if rule.wants(at) && rule.begins(Usage::at(at), self.processors) {
            self.is_on.store(true, Ordering::Relaxed); // I2
        }
    }

    /// One goes on (I1).
    pub(super) fn goes_on(&self) {
        self.blocked.fetch_sub(1, Ordering::Relaxed);
    }

    /// Looks whether it is over, or has been.
    pub(super) fn is_over(&self) -> bool {
        // What depends on time is nothing for a model checker, which sets it itself.
        if !cfg!(loom)
            && let Some(mut rule) = shim::try_lock(&self.rule)
        {
            let at = crate::clock::now();
            if self.is_on() && rule.wants(at) && rule.ends(Usage::at(at), self.processors) {
                self.is_on.store(false, Ordering::Relaxed); // I2
            }
        }
        !self.is_on()
    }

    /// Begins or ends one, whatever the rule says.
    #[cfg(any(test, loom))]
    pub(super) fn set(&self, is_on: bool) {
        let mut rule = shim::lock(&self.rule);
        *rule = Rule {
            since: Some(crate::clock::now()),
            ..Rule::default()
        };
        self.is_on.store(is_on, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const PROCESSORS: u32 = 2;

    /// A process that uses `share` of its processors, looked at every 5 ms from `from` to `to`.
    struct Process {
        start: Instant,
        now: Duration,
        cpu: Duration,
    }

    impl Process {
        fn new() -> Process {
            Process {
                start: Instant::now(),
                now: Duration::ZERO,
                cpu: Duration::ZERO,
            }
        }

        fn run(&mut self, time: Duration, share: f64) -> Usage {
            self.now += time;
            self.cpu += time.mul_f64(share * f64::from(PROCESSORS));
            Usage {
                at: self.start + self.now,
                cpu: self.cpu,
            }
        }
    }

    const STEP: Duration = Duration::from_millis(5);

    #[test]
    fn a_crowd_begins_where_the_processors_are_busy_and_nowhere_else() {
        let (mut process, mut rule) = (Process::new(), Rule::default());
        assert!(!rule.begins(process.run(STEP, 1.0), PROCESSORS), "one look");
        assert!(!rule.begins(process.run(STEP, 0.55), PROCESSORS), "idle");
        assert!(
            !rule.begins(process.run(Duration::from_secs(1), 1.0), PROCESSORS),
            "too long ago"
        );
        assert!(rule.begins(process.run(STEP, 0.65), PROCESSORS));
        assert!(!rule.wants(process.run(STEP / 5, 1.0).at), "just looked");
    }

    #[test]
    fn it_ends_after_its_term_and_may_begin_again_at_once() {
        let (mut process, mut rule) = (Process::new(), Rule::default());
        for _ in 0..3 {
            rule.begins(process.run(STEP, 1.0), PROCESSORS);
            assert!(rule.begins(process.run(STEP, 1.0), PROCESSORS));
            let lasted = (1..).find(|_| rule.ends(process.run(STEP, 1.0), PROCESSORS));
            assert_eq!(lasted, Some(200), "a second");
            assert!(rule.wants(process.run(STEP, 1.0).at));
        }
    }

    #[test]
    fn where_seats_idle_the_processors_it_ends_soon_and_stays_away_longer_each_time() {
        let (mut process, mut rule) = (Process::new(), Rule::default());
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            rule.begins(process.run(STEP, 1.0), PROCESSORS);
            assert!(rule.begins(process.run(STEP, 1.0), PROCESSORS));
            for share in [0.1, 0.1, 0.1, 0.1, 0.1, 0.45, 0.35, 0.35, 0.35, 0.35, 0.35] {
                assert!(!rule.ends(process.run(STEP, share), PROCESSORS));
            }
            assert!(rule.ends(process.run(STEP, 0.35), PROCESSORS));
            let quiet = Duration::from_secs(seconds);
            assert!(!rule.wants(process.run(quiet - STEP, 1.0).at));
            assert!(rule.wants(process.run(STEP, 1.0).at));
        }
    }

    #[test]
    fn the_processors_are_looked_at_when_more_are_blocked_than_is_usual() {
        let crowd = Crowd::new(PROCESSORS);
        let has_looked = || shim::lock(&crowd.rule).sample.is_some();
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
}
