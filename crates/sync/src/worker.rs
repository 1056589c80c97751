//! Worker: everything that belongs to one thread, passed explicitly.
//!
//! A `Worker` has what other engines keep in thread-locals and globals: an identity, a random
//! number generator, an epoch participant, an account. Here it is a value with an owner. A
//! transaction that moves to another thread takes its worker along or borrows another; two
//! databases in one process share nothing.

use crate::cache_line::CachePadded;
use crate::clock::Clock;
use crate::epoch::{Domain, Guard, Participant};
use crate::failpoint::Failpoints;
use crate::htm::{AttemptTimer, ElisionStats, ElisionTrials, Elisions, WorkerTurns};
use crate::process::ProcessStamp;
use crate::shim::{Arc, Mutex, lock};
use crate::site::{Account, AccountSummary, Component, Pattern, Site};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// Site: taking a worker, and returning it.
static REGISTRY: Site = Site::new(Component::Metadata, Pattern::Unbounded, "worker registry");

/// The side that a worker works for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerRole {
    /// The caller.
    Caller,
    /// No caller that waits for each of its steps: background threads of the engine, and
    /// inspection.
    Background,
}

#[derive(Debug, Default)]
struct WorkerRegistry {
    // Per worker and role, the part that others may read. It stays when the worker is dropped, and
    // serves the next worker of its id and role.
    accounts: Vec<[Arc<Account>; 2]>,
    // Likewise, for both roles together.
    elision_stats: Vec<Arc<CachePadded<ElisionStats>>>,
    // The smallest free id goes first, so that ids stay dense.
    free: BinaryHeap<Reverse<u32>>,
}

#[derive(Debug)]
struct WorkersInner {
    domain: Domain,
    short_domain: Domain,
    registry: Mutex<WorkerRegistry>,
    failpoints: Failpoints,
    clock: Clock,
    elision_trials: ElisionTrials,
    process: ProcessStamp,
    seed: u64,
}

/// Makes the workers of one database. Cheap to clone; all clones are one.
///
/// ```
/// use foxton_sync::worker::Workers;
///
/// let workers = Workers::new();
/// let first = workers.worker();
/// let second = workers.worker();
/// assert_eq!((first.id(), second.id()), (0, 1));
/// drop(first);
/// assert_eq!(workers.worker().id(), 0);
/// ```
#[derive(Clone)]
pub struct Workers(Arc<WorkersInner>);

impl Default for Workers {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("domain", &self.0.domain)
            .finish_non_exhaustive()
    }
}

impl Workers {
    /// Returns a set without workers; their random numbers differ from run to run.
    pub fn new() -> Self {
        Self::with_seed(RandomState::new().hash_one(0))
    }

    /// Returns a set without workers; worker `id` draws the same random numbers whenever `seed` is
    /// the same.
    pub fn with_seed(seed: u64) -> Self {
        Self(Arc::new(WorkersInner {
            domain: Domain::new(),
            short_domain: Domain::new(),
            registry: Mutex::default(),
            failpoints: Failpoints::default(),
            clock: Clock::default(),
            elision_trials: ElisionTrials::default(),
            process: ProcessStamp::new(),
            seed,
        }))
    }

    /// Returns a new worker for the caller, with the smallest free id.
    pub fn worker(&self) -> Worker {
        self.worker_for(WorkerRole::Caller)
    }

    /// As [`worker`](Self::worker), for a thread that works for the engine and not for one caller,
    /// or that only inspects. Its passages are counted apart, so that those of callers can be read
    /// while others work.
    ///
    /// ```
    /// use foxton_sync::site::{Component, Pattern, Site};
    /// use foxton_sync::worker::Workers;
    ///
    /// static TAIL: Site = Site::new(Component::Log, Pattern::Unbounded, "log buffer tail");
    ///
    /// let workers = Workers::new();
    /// workers.background_worker().account().passed(&TAIL);
    /// assert_eq!(workers.account().count(Component::Log, Pattern::Unbounded), 0);
    /// ```
    pub fn background_worker(&self) -> Worker {
        self.worker_for(WorkerRole::Background)
    }

    fn worker_for(&self, side: WorkerRole) -> Worker {
        let mut registry = lock(&self.0.registry);
        let id = match registry.free.pop() {
            Some(Reverse(id)) => id,
            None => {
                registry.accounts.push(Default::default());
                registry.elision_stats.push(Default::default());
                u32::try_from(registry.accounts.len() - 1).expect("fewer than 2^32 workers")
            }
        };
        let account = registry.accounts[id as usize][side as usize].clone();
        let elision_stats = registry.elision_stats[id as usize].clone();
        drop(registry);
        account.passed(&REGISTRY);
        let in_domain = |domain: &Domain| {
            domain.participant_counting_in(account.clone(), self.0.failpoints.clone())
        };
        Worker {
            id,
            random: Cell::new(mix(self.0.seed ^ mix(u64::from(id) + 1))),
            contentions: Cell::new(0),
            elision_stats,
            worker_turns: WorkerTurns::default(),
            participant: in_domain(&self.0.domain),
            short_participant: in_domain(&self.0.short_domain),
            workers: self.clone(),
        }
    }

    /// Maximum number of workers that existed at once: every id is below it.
    pub fn capacity(&self) -> usize {
        lock(&self.0.registry).accounts.len()
    }

    /// The domain in which these workers reclaim.
    pub fn domain(&self) -> &Domain {
        &self.0.domain
    }

    /// Another domain, for short reads only; see [`Worker::short_participant`].
    pub fn short_domain(&self) -> &Domain {
        &self.0.short_domain
    }

    /// The clock by which these workers wait for intervals and timers.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Actions of tests at the points that these workers pass.
    #[inline]
    pub fn failpoints(&self) -> &Failpoints {
        &self.0.failpoints
    }

    /// Returns the passages of all callers' workers so far, dropped ones included. Empty without
    /// the feature `account`.
    pub fn account(&self) -> AccountSummary {
        self.account_of(WorkerRole::Caller)
    }

    /// The same for all [background workers](Self::background_worker).
    pub fn background_account(&self) -> AccountSummary {
        self.account_of(WorkerRole::Background)
    }

    /// Returns the results of elision in all latches that these workers passed, dropped ones
    /// included.
    ///
    /// Reading aborts transactions that are counting meanwhile, so it is not for every millisecond.
    pub fn elisions(&self) -> Elisions {
        let mut sum = Elisions::default();
        for one in self.elisions_by_worker() {
            sum.add(&one);
        }
        sum
    }

    /// The same by worker, in the order of their ids.
    pub fn elisions_by_worker(&self) -> Vec<Elisions> {
        let of = |elision_stats: &Arc<CachePadded<ElisionStats>>| {
            let mut sum = Elisions::default();
            elision_stats.add_to(&mut sum);
            sum
        };
        lock(&self.0.registry)
            .elision_stats
            .iter()
            .map(of)
            .collect()
    }

    fn account_of(&self, side: WorkerRole) -> AccountSummary {
        let mut summary = AccountSummary::default();
        for accounts in &lock(&self.0.registry).accounts {
            summary.add(&accounts[side as usize]);
        }
        summary
    }
}

/// Everything that belongs to one thread. It may move between threads, but not be shared:
///
/// ```
/// fn assert_send<T: Send>() {}
/// assert_send::<foxton_sync::worker::Worker>();
/// ```
///
/// ```compile_fail,E0277
/// fn assert_sync<T: Sync>() {}
/// assert_sync::<foxton_sync::worker::Worker>();
/// ```
///
/// While it is pinned it may not even move:
///
/// ```compile_fail,E0505
/// let worker = foxton_sync::worker::Workers::new().worker();
/// let guard = worker.pin();
/// std::thread::spawn(move || drop(worker));
/// drop(guard);
/// ```
#[derive(Debug)]
pub struct Worker {
    id: u32,
    random: Cell<u64>,
    contentions: Cell<u64>,
    elision_stats: Arc<CachePadded<ElisionStats>>,
    worker_turns: WorkerTurns,
    participant: Participant,
    short_participant: Participant,
    workers: Workers,
}

impl Worker {
    /// Returns its number: below [`Workers::capacity`], and no other present worker of the same
    /// [`Workers`] has it.
    #[inline]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The account of its passages.
    #[inline]
    pub fn account(&self) -> &Account {
        self.participant.account()
    }

    /// Actions of tests at the points that it passes.
    #[inline]
    pub fn failpoints(&self) -> &Failpoints {
        self.participant.failpoints()
    }

    /// True in a forked child, if the set was made before the fork.
    pub fn is_inherited(&self) -> bool {
        self.workers.0.process.is_inherited()
    }

    /// The set that it belongs to.
    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Returns a random number, good enough for picking and jitter, in about a nanosecond.
    #[inline]
    pub fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(GOLDEN);
        self.random.set(state);
        mix(state)
    }

    /// Returns a random number below `bound`, which must not be 0. The bias is below `bound` /
    /// 2^64.
    #[inline]
    pub fn random_below(&self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "nothing is below 0");
        ((u128::from(self.random()) * u128::from(bound)) >> 64) as u64
    }

    /// Number of times that it found another thread in a place for one. Its growth during a call
    /// shows whether the call met another thread: contention that was seen, not guessed.
    #[inline]
    pub fn contentions(&self) -> u64 {
        self.contentions.get()
    }

    /// Records that it found another thread in a place for one. For latches, and for all else that
    /// makes a thread wait or retry because of another.
    #[cold]
    pub fn record_contention(&self) {
        self.contentions.set(self.contentions.get().wrapping_add(1));
    }

    /// Its counters for elided latches.
    #[inline]
    pub(crate) fn elision_stats(&self) -> &ElisionStats {
        &self.elision_stats
    }

    /// Its position in the trials of elision.
    pub(crate) fn worker_turns(&self) -> &WorkerTurns {
        &self.worker_turns
    }

    /// Findings of all workers of the set about elision.
    pub(crate) fn elision_trials(&self) -> &ElisionTrials {
        &self.workers.0.elision_trials
    }

    /// Timer of its attempts at elision, if they are timed.
    #[inline(always)]
    pub(crate) fn attempt_timer(&self) -> AttemptTimer<'_> {
        AttemptTimer::of(&self.elision_stats)
    }

    /// Pins the epoch; see [`Participant::pin`].
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        self.participant.pin()
    }

    /// True if a guard of this worker exists.
    pub fn is_pinned(&self) -> bool {
        self.participant.is_pinned()
    }

    /// Frees `garbage` once no thread can look at it any more; see [`Participant::retire`].
    pub fn retire<T: Send + 'static>(&self, garbage: Box<T>) {
        self.participant.retire(garbage);
    }

    /// Calls `free(address)` once no thread can look at it any more; `bytes` is its approximate
    /// size.
    ///
    /// # Safety
    ///
    /// That of [`Participant::retire_raw`].
    pub unsafe fn retire_raw(&self, address: *mut (), bytes: usize, free: unsafe fn(*mut ())) {
        // SAFETY: passed on to the caller.
        unsafe { self.participant.retire_raw(address, bytes, free) }
    }

    /// Frees what can be freed; see [`Participant::collect`].
    pub fn collect(&self) {
        self.participant.collect();
    }

    /// Its epoch participant.
    pub fn participant(&self) -> &Participant {
        &self.participant
    }

    /// Its participant in the domain of short reads ([`Workers::short_domain`]).
    ///
    /// A thread that is descheduled while pinned holds up its whole domain until it runs again.
    /// Threads that read rows are pinned most of the time, so with more threads than processors
    /// nearly always one sleeps pinned. Memory that is reused thousands of times a second cannot
    /// wait for that. It is reclaimed in this domain, where a pin covers a walk over a few cache
    /// lines.
    ///
    /// ```
    /// use foxton_sync::worker::Workers;
    ///
    /// let workers = Workers::new();
    /// let (reader, short_participant) = (workers.worker(), workers.worker());
    /// let _reads_rows = reader.pin();
    /// let stamp = short_participant.short_participant().stamp();
    /// short_participant.short_participant().advance();
    /// short_participant.short_participant().advance();
    /// assert!(short_participant.short_participant().has_passed(stamp));
    /// ```
    #[inline]
    pub fn short_participant(&self) -> &Participant {
        &self.short_participant
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.is_inherited() {
            return; // A thread of the parent may have locked the registry.
        }
        self.account().passed(&REGISTRY);
        // Last: once the id is free, the account may have another writer.
        lock(&self.workers.0.registry).free.push(Reverse(self.id));
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finisher of SplitMix64 (Steele, Lea and Flood, 2014): every bit depends on every bit.
#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
