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

use super::policy::{AdmissionPolicy, CpuUsage, Observation, PolicyStage};
use crate::cache_line::CachePadded;
use crate::shim::{self, AtomicU32, AtomicU64, Mutex, Ordering};

/// So many for each processor, blocked or there, are no crowd yet.
const USUAL_PER_PROCESSOR: u32 = 8;
/// So long a window is, at least.
const WINDOW: Duration = Duration::from_millis(100);
/// Who comes looks every so many times whether the window is over.
const ARRIVALS_PER_CHECK: u32 = 64;
/// Commits that a client counts by itself before all may see them.
const LOCAL_COMMITS: u32 = 16;
/// After so many of all it is looked whether the trial is over: where nobody blocks, nobody else does.
const COMMITS_PER_CHECK: u64 = 1024;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct LoadMonitor {
    blocked: CachePadded<AtomicU32>,
    commits: CachePadded<AtomicU64>,
    /// Who came in this window.
    arrived: CachePadded<AtomicU32>,
    /// The stage's word, and the window's number. What is read at each begin and end, and written ten times a second.
    word: CachePadded<AtomicU32>,
    processors: u32,
    policy: Mutex<MonitorState>,
}

/// What one client counts by itself.
#[derive(Debug, Default)]
pub(super) struct LocalCounts {
    /// Commits that were not added to those of all.
    commits: u32,
    /// How often it came.
    arrivals: u32,
    /// The window that it was counted in last.
    window: u32,
    /// When it looked last.
    last_check: Option<Instant>,
}

impl LocalCounts {
    /// Whether it is time for this client to look: in a trial or a term always, else once in a window.
    #[cold]
    fn must_check(&mut self, word: u32) -> bool {
        let at = crate::clock::now();
        let is_late = |last_check| at.saturating_duration_since(last_check) >= WINDOW;
        let must_check = PolicyStage::counts_commits(word) || self.last_check.is_none_or(is_late);
        if must_check {
            self.last_check = Some(at);
        }
        must_check
    }
}

/// What changes under the mutex.
#[derive(Debug, Default)]
struct MonitorState {
    policy: AdmissionPolicy,
    /// The window's number, and since when it is.
    window: u32,
    since: Option<Instant>,
    /// How many came in the one before.
    arrived: u32,
}

impl MonitorState {
    /// Ends the window if it is time to. Those who came in it are in `arrived`, which is none afterwards.
    fn end_window(&mut self, at: Instant, arrived: &AtomicU32) {
        let since = *self.since.get_or_insert(at);
        if at.saturating_duration_since(since) >= WINDOW {
            self.arrived = arrived.swap(0, Ordering::Relaxed);
            self.window = (self.window + 1) & LAST_WINDOW;
            self.since = Some(at);
        }
    }

    fn word(&self, stage: PolicyStage) -> u32 {
        let quantum = if self.policy.few_blocked() {
            PolicyStage::LONG_QUANTUM
        } else {
            0
        };
        stage.word() | quantum | self.window << PolicyStage::BITS
    }
}

/// Windows' numbers are from 0 to this.
const LAST_WINDOW: u32 = u32::MAX >> PolicyStage::BITS;

impl LoadMonitor {
    pub(super) fn new(processors: u32) -> LoadMonitor {
        LoadMonitor {
            blocked: CachePadded::new(AtomicU32::new(0)),
            commits: CachePadded::new(AtomicU64::new(0)),
            arrived: CachePadded::new(AtomicU32::new(0)),
            word: CachePadded::new(AtomicU32::new(PolicyStage::UNLIMITED)),
            processors,
            policy: Mutex::new(MonitorState::default()),
        }
    }

    /// Whether seats count.
    #[inline]
    pub(super) fn is_limiting(&self) -> bool {
        PolicyStage::has_slots(self.word.load(Ordering::Relaxed)) // I2
    }

    /// A client comes. Says whether it is to look ([`has_ended`](Self::has_ended)).
    #[inline]
    pub(super) fn arrive(&self, counts: &mut LocalCounts) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let window = word >> PolicyStage::BITS;
        if window != counts.window {
            counts.window = window;
            self.arrived.fetch_add(1, Ordering::Relaxed); // A count.
        }
        counts.arrivals = counts.arrivals.wrapping_add(1);
        counts.arrivals.is_multiple_of(ARRIVALS_PER_CHECK) && counts.must_check(word)
    }

    /// Whether seats are kept longer than usual.
    #[inline]
    pub(super) fn has_long_quantum(&self) -> bool {
        self.word.load(Ordering::Relaxed) & PolicyStage::LONG_QUANTUM != 0 // I2
    }

    /// How many are blocked.
    pub(super) fn blocked(&self) -> u32 {
        self.blocked.load(Ordering::Relaxed)
    }

    /// One more is blocked.
    pub(super) fn block(&self) {
        let blocked = self.blocked.fetch_add(1, Ordering::Relaxed) + 1; // A count.
        if self.is_overloaded(blocked) || PolicyStage::is_trial(self.word.load(Ordering::Relaxed)) {
            self.evaluate(0);
        }
    }

    /// One goes on (I1).
    pub(super) fn unblock(&self) {
        self.blocked.fetch_sub(1, Ordering::Relaxed);
    }

    /// One has committed, whose commits that nobody knows of are `counts`. Says how often what all share was passed.
    #[inline]
    pub(super) fn record_commit(&self, counts: &mut LocalCounts) -> u64 {
        if !PolicyStage::counts_commits(self.word.load(Ordering::Relaxed)) {
            return 0; // I2
        }
        counts.commits += 1;
        if counts.commits < LOCAL_COMMITS {
            return 0;
        }
        let fresh = u64::from(std::mem::take(&mut counts.commits));
        // A count.
        let before = self.commits.fetch_add(fresh, Ordering::Relaxed);
        if before / COMMITS_PER_CHECK != (before + fresh) / COMMITS_PER_CHECK {
            self.evaluate(0);
        }
        1
    }

    /// Looks whether it is over, or has been, while so many wait for a seat.
    pub(super) fn has_ended(&self, waiting: usize) -> bool {
        self.evaluate(u32::try_from(waiting).unwrap_or(u32::MAX));
        !self.is_limiting()
    }

    fn is_overloaded(&self, arrived: u32) -> bool {
        arrived > USUAL_PER_PROCESSOR * self.processors
    }

    /// Goes on with the rule, if it is time to, and nobody else does.
    fn evaluate(&self, waiting: u32) {
        // What depends on time is nothing for a model checker, which sets it itself.
        if cfg!(loom) {
            return;
        }
        let Some(mut state) = shim::try_lock(&self.policy) else {
            return;
        };
        let at = crate::clock::now();
        if !state.policy.is_due(at) {
            return;
        }
        let commits = self.commits.load(Ordering::Relaxed);
        let usage = CpuUsage::at(at);
        let duration = crate::clock::now() - at;
        state.end_window(at, &self.arrived);
        let blocked = self.blocked();
        let behind = blocked.saturating_add(waiting);
        let observation = Observation {
            usage,
            duration,
            commits,
            is_overloaded: self.is_overloaded(behind.max(state.arrived)),
            many_blocked: self.is_overloaded(blocked),
            processors: self.processors,
        };
        let stage = state.policy.step(&observation);
        self.word.store(state.word(stage), Ordering::Relaxed); // I2
    }

    /// Begins or ends one, whatever the rule says.
    #[cfg(any(test, loom))]
    pub(super) fn set_limiting(&self, limiting: bool) {
        let stage = match limiting {
            true => PolicyStage::Limited,
            false => PolicyStage::Unlimited,
        };
        self.force(stage, crate::clock::now());
    }

    /// Has seats that are kept for long.
    #[cfg(test)]
    pub(super) fn set_few_blocked(&self) {
        let mut state = shim::lock(&self.policy);
        state.policy =
            AdmissionPolicy::in_stage(PolicyStage::Limited, crate::clock::now()).with_few_blocked();
        self.word
            .store(state.word(PolicyStage::Limited), Ordering::Relaxed);
    }

    /// Is in `stage`, and has been since then.
    #[cfg(any(test, loom))]
    fn force(&self, stage: PolicyStage, since: Instant) {
        let mut state = shim::lock(&self.policy);
        state.policy = AdmissionPolicy::in_stage(stage, since);
        self.word.store(state.word(stage), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::{AdmissionControl, SlotClaim};
    use super::*;
    use std::time::{Duration, Instant};

    const PROCESSORS: u32 = 2;

    #[test]
    fn processor_use_is_sampled_when_more_are_blocked_than_usual() {
        let monitor = LoadMonitor::new(PROCESSORS);
        let has_sampled = || shim::lock(&monitor.policy).policy.has_sampled();
        for _ in 0..USUAL_PER_PROCESSOR * PROCESSORS {
            monitor.block();
        }
        assert!(!has_sampled());
        // Who loses the processor while it looks leaves it to the next.
        while !has_sampled() {
            monitor.block();
            assert!(monitor.blocked() < 1_000);
        }
    }

    #[test]
    fn a_blocked_transaction_is_counted_until_it_is_unblocked() {
        let monitor = LoadMonitor::new(PROCESSORS);
        for _ in 0..1_000 {
            monitor.block();
        }
        for _ in 0..1_000 {
            monitor.unblock();
        }
        assert_eq!(monitor.blocked(), 0);
    }

    #[test]
    fn the_last_client_after_an_overload_notices_its_end() {
        let admission = AdmissionControl::new(1).only_when_overloaded(1);
        admission.monitor.as_ref().unwrap().set_limiting(true);
        let (mut claim, begun) = (SlotClaim::default(), Instant::now());
        while admission.is_limiting() {
            admission.acquire(&mut claim);
            admission.release(&mut claim);
            assert!(begun.elapsed() < Duration::from_mins(2), "nobody looked");
        }
        assert_eq!(admission.free(), 1);
    }

    #[test]
    fn a_trial_without_blocking_ends_after_some_commits() {
        let (monitor, mut counts) = (LoadMonitor::new(PROCESSORS), LocalCounts::default());
        let long_ago = Instant::now() - Duration::from_millis(900);
        monitor.force(PolicyStage::TrialUnlimited, long_ago);
        let word = || monitor.word.load(Ordering::Relaxed);
        let mut commits = 0;
        while word() == PolicyStage::TrialUnlimited.word() {
            monitor.record_commit(&mut counts);
            commits += 1;
        }
        assert_eq!(word(), PolicyStage::UNLIMITED);
        // Who loses the processor while it looks leaves it to the next.
        assert!(
            (COMMITS_PER_CHECK..COMMITS_PER_CHECK * 100).contains(&commits),
            "{commits}"
        );
    }

    #[test]
    fn commits_are_counted_during_a_trial_and_a_few_at_a_time() {
        let (monitor, mut counts) = (LoadMonitor::new(PROCESSORS), LocalCounts::default());
        let counted = || monitor.commits.load(Ordering::Relaxed);
        assert_eq!(
            (
                monitor.record_commit(&mut counts),
                counts.commits,
                counted()
            ),
            (0, 0, 0)
        );
        monitor.force(PolicyStage::TrialUnlimited, Instant::now());
        let passed: u64 = (0..LOCAL_COMMITS * 3 + 1)
            .map(|_| monitor.record_commit(&mut counts))
            .sum();
        assert_eq!(
            (passed, counts.commits, counted()),
            (3, 1, u64::from(LOCAL_COMMITS * 3))
        );
    }

    /// Ends the window that there is, and says who came in it.
    fn finish_window(monitor: &LoadMonitor) -> u32 {
        let window = shim::lock(&monitor.policy).window;
        loop {
            std::thread::sleep(Duration::from_millis(10)); // The rule looks no more often.
            shim::lock(&monitor.policy).since = Some(Instant::now() - WINDOW);
            monitor.evaluate(0);
            let state = shim::lock(&monitor.policy);
            if state.window != window {
                return state.arrived;
            }
        }
    }

    #[test]
    fn an_arriving_client_is_counted_once_per_window() {
        let monitor = LoadMonitor::new(PROCESSORS);
        let mut all: Vec<LocalCounts> = (0..20).map(|_| LocalCounts::default()).collect();
        let mut arrive = |monitor: &LoadMonitor, count| {
            let clients = all.iter_mut().take(count);
            for counts in clients {
                (0..10).for_each(|_| assert!(!monitor.arrive(counts), "it is not its turn"));
            }
        };
        finish_window(&monitor);
        for count in [20, 7, 0, 13] {
            arrive(&monitor, count);
            assert_eq!(finish_window(&monitor), u32::try_from(count).unwrap());
        }
    }

    #[test]
    fn a_trial_begins_where_many_clients_run_though_none_is_blocked() {
        let tries = |clients: u32| {
            let monitor = LoadMonitor::new(1);
            let mut all: Vec<LocalCounts> = (0..clients).map(|_| LocalCounts::default()).collect();
            let begun = Instant::now();
            // This thread keeps one processor busy, unless others have it.
            while begun.elapsed()
                < Duration::from_secs(if clients > USUAL_PER_PROCESSOR { 60 } else { 1 })
            {
                for counts in &mut all {
                    if monitor.arrive(counts) {
                        monitor.has_ended(0);
                    }
                }
                if PolicyStage::counts_commits(monitor.word.load(Ordering::Relaxed)) {
                    return true;
                }
            }
            false
        };
        assert!(!tries(USUAL_PER_PROCESSOR));
        assert!(tries(USUAL_PER_PROCESSOR + 1));
    }
}
