//! Load monitor: decides whether so many clients work that fewer would do more.
//!
//! Slots are worth their price in two cases. In the first, most running transactions sleep behind
//! each other's locks while the processors are busy with putting them to sleep and waking them. In
//! the second no transaction blocks, but too many take turns on the processors. Each finds its
//! memory gone from the caches, and a descheduled thread holds a latch or a queue position that
//! others need.
//!
//! Slots do harm where transactions wait for people or for the network: then the processors are
//! idle, and every thread that could run must be admitted. They also do harm where few transactions
//! block, because a queue is a switch between threads, too. All these cases look alike from within,
//! so slots are *tried*: while many are blocked, or many are running, and the processors are busy,
//! commits are counted without slots and with them, in turn. Slots stay for a time if more was
//! committed with them ([`policy`](super::policy)).
//!
//! The number of *running* clients is known without a word that every transaction writes. Time is
//! cut into windows, whose number is beside what each transaction reads anyway; a client that sees
//! a number for the first time adds one to the count of that window.
//!
//! Counting blocked transactions, and admitting no more when they are the majority, is *half and
//! half* (M. J. Carey, S. Krishnamurthi, M. Livny: *Load Control for Locking*, PODS 1990). Climbing
//! by the measured result is H.-U. Heiss's and R. Wagner's (*Adaptive Load Control in Transaction
//! Processing Systems*, VLDB 1991). The use of the processors takes the place of a count of all
//! transactions, which would be one more thing that every transaction writes.
//!
//! # Invariants
//!
//! * I1  A transaction that is counted as blocked is subtracted when it continues, however its wait
//!   ended.
//! * I2  `word` is written under the policy's mutex only. Others read it as a hint: a client that
//!   acts on an old value waits for a slot, or does not, for one transaction, or counts a few
//!   commits, or itself, to the wrong side.

use std::time::{Duration, Instant};

use super::policy::{AdmissionPolicy, CpuUsage, Observation, PolicyStage};
use crate::cache_line::CachePadded;
use crate::shim::{self, AtomicU32, AtomicU64, Mutex, Ordering};

/// So many clients for each processor, blocked or running, are no overload yet.
const USUAL_PER_PROCESSOR: u32 = 8;
/// Minimum length of a window.
const WINDOW: Duration = Duration::from_millis(100);
/// Arrivals of one client between two checks whether the window is over.
const ARRIVALS_PER_CHECK: u32 = 64;
/// Number of commits that a thread counts locally before it adds them to the shared count. A task
/// counts none locally: many thousands of tasks commit once in a while, on a few threads.
const LOCAL_COMMITS: u32 = 16;
/// Number of commits of all clients between two checks whether a trial is over: where no
/// transaction blocks, only commits lead to a check.
const COMMITS_PER_CHECK: u64 = 1024;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct LoadMonitor {
    blocked: CachePadded<AtomicU32>,
    commits: CachePadded<AtomicU64>,
    /// Clients that arrived in this window.
    arrived: CachePadded<AtomicU32>,
    /// The stage's word and the window's number: read at each begin and end, written ten times a
    /// second.
    word: CachePadded<AtomicU32>,
    processors: u32,
    policy: Mutex<MonitorState>,
}

/// Counts of one client.
#[derive(Debug, Default)]
pub(super) struct LocalCounts {
    /// Commits that were not added to the shared count.
    commits: u32,
    /// True if the client is a task.
    pub(super) is_task: bool,
    /// Number of arrivals.
    arrivals: u32,
    /// The window that it was counted in last.
    window: u32,
    /// Time of its last check.
    last_check: Option<Instant>,
}

impl LocalCounts {
    /// True if this client must check now: in a trial or under a limit always, otherwise once in a
    /// window.
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

/// State that changes under the mutex.
#[derive(Debug, Default)]
struct MonitorState {
    policy: AdmissionPolicy,
    /// The window's number and its start.
    window: u32,
    since: Option<Instant>,
    /// Number of clients that arrived in the previous window.
    arrived: u32,
}

impl MonitorState {
    /// Ends the window if it is time to. Takes the number of its clients from `arrived`, which
    /// becomes 0.
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

/// Windows are numbered from 0 to this.
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

    /// True if slots limit.
    #[inline]
    pub(super) fn is_limiting(&self) -> bool {
        PolicyStage::has_slots(self.word.load(Ordering::Relaxed)) // I2
    }

    /// Records an arriving client. Returns whether it must check ([`has_ended`](Self::has_ended)).
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

    /// True if the quantum is longer than usual.
    #[inline]
    pub(super) fn has_long_quantum(&self) -> bool {
        self.word.load(Ordering::Relaxed) & PolicyStage::LONG_QUANTUM != 0 // I2
    }

    /// Number of blocked transactions.
    pub(super) fn blocked(&self) -> u32 {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Counts one more blocked transaction.
    pub(super) fn block(&self) {
        let blocked = self.blocked.fetch_add(1, Ordering::Relaxed) + 1; // A count.
        if self.is_overloaded(blocked) || PolicyStage::is_trial(self.word.load(Ordering::Relaxed)) {
            self.evaluate(0);
        }
    }

    /// Counts one blocked transaction less (I1).
    pub(super) fn unblock(&self) {
        self.blocked.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records a commit of the client with `counts`. Returns how often it passed what all clients
    /// share.
    #[inline]
    pub(super) fn record_commit(&self, counts: &mut LocalCounts) -> u64 {
        if !PolicyStage::counts_commits(self.word.load(Ordering::Relaxed)) {
            return 0; // I2
        }
        counts.commits += 1;
        if counts.commits < LOCAL_COMMITS && !counts.is_task {
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

    /// Checks whether the overload is over, or has been, while `waiting` clients wait for a slot.
    pub(super) fn has_ended(&self, waiting: usize) -> bool {
        self.evaluate(u32::try_from(waiting).unwrap_or(u32::MAX));
        !self.is_limiting()
    }

    fn is_overloaded(&self, arrived: u32) -> bool {
        arrived > USUAL_PER_PROCESSOR * self.processors
    }

    /// Runs the policy if it is due and no other client runs it.
    fn evaluate(&self, waiting: u32) {
        // The model checker sets the stage itself, because the policy depends on time.
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
        let usage = CpuUsage::at(at);
        let duration = crate::clock::now() - at;
        state.end_window(at, &self.arrived);
        let observation = self.observe(waiting, state.arrived, (usage, duration));
        let stage = state.policy.step(&observation);
        self.word.store(state.word(stage), Ordering::Relaxed); // I2
    }

    /// `arrived` clients arrived in the last window, and `waiting` clients wait for a slot.
    fn observe(&self, waiting: u32, arrived: u32, cpu: (CpuUsage, Duration)) -> Observation {
        let (usage, duration) = cpu;
        let blocked = self.blocked();
        let behind = blocked.saturating_add(waiting);
        Observation {
            usage,
            duration,
            commits: self.commits.load(Ordering::Relaxed),
            is_overloaded: self.is_overloaded(behind.max(arrived)),
            many_blocked: self.is_overloaded(blocked),
            processors: self.processors,
        }
    }

    /// Begins or ends the limit, whatever the policy decided.
    #[cfg(any(test, loom))]
    pub(super) fn set_limiting(&self, limiting: bool) {
        let stage = match limiting {
            true => PolicyStage::Limited,
            false => PolicyStage::Unlimited,
        };
        self.force(stage, crate::clock::now());
    }

    /// Limits with a long quantum.
    #[cfg(test)]
    pub(super) fn set_few_blocked(&self) {
        let mut state = shim::lock(&self.policy);
        state.policy =
            AdmissionPolicy::in_stage(PolicyStage::Limited, crate::clock::now()).with_few_blocked();
        self.word
            .store(state.word(PolicyStage::Limited), Ordering::Relaxed);
    }

    /// Puts the policy into `stage`, entered at `since`.
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
        // A thread that is descheduled while it checks leaves the check to the next.
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
        // A thread that is descheduled while it checks leaves the check to the next.
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

    #[test]
    fn commits_of_tasks_are_counted_at_once() {
        let monitor = LoadMonitor::new(PROCESSORS);
        monitor.force(PolicyStage::TrialUnlimited, Instant::now());
        for committed in 1..1_000 {
            let mut task = LocalCounts {
                is_task: true,
                ..LocalCounts::default()
            };
            assert_eq!(monitor.record_commit(&mut task), 1);
            assert_eq!(monitor.commits.load(Ordering::Relaxed), committed);
        }
    }

    /// Ends the current window, and returns how many clients arrived in it.
    fn finish_window(monitor: &LoadMonitor) -> u32 {
        let window = shim::lock(&monitor.policy).window;
        loop {
            std::thread::sleep(Duration::from_millis(10)); // The policy checks no more often.
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
    fn many_running_clients_are_an_overload_though_none_is_blocked() {
        for (clients, is_overload) in [
            (USUAL_PER_PROCESSOR, false),
            (USUAL_PER_PROCESSOR + 1, true),
        ] {
            let monitor = LoadMonitor::new(1);
            finish_window(&monitor);
            for _ in 0..clients {
                monitor.arrive(&mut LocalCounts::default());
            }
            let arrived = finish_window(&monitor);
            assert_eq!(arrived, clients);
            let cpu = (CpuUsage::at(Instant::now()), Duration::ZERO);
            let seen = monitor.observe(0, arrived, cpu);
            assert_eq!(
                (seen.is_overloaded, seen.many_blocked),
                (is_overload, false)
            );
        }
    }
}
