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
use crate::index_allocator::IndexAllocator;
use crate::process::ProcessStamp;
use crate::shim::{Arc, Mutex, lock};
use crate::site::{Account, AccountSummary, Component, Pattern, Site};
use std::cell::Cell;
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

/// Number of ids whose counts stay apart when their worker is dropped. Those of later ids are added
/// up then, so that a peak of workers leaves little behind.
const KEPT_IDS: u32 = Worker::EARLY_IDS;

/// The part of the workers with one id that others may read. It serves one worker after the other.
#[derive(Debug, Default)]
struct WorkerRecord {
    /// By role.
    accounts: [Arc<Account>; 2],
    /// For both roles together.
    elision_stats: Arc<CachePadded<ElisionStats>>,
}

#[derive(Debug, Default)]
struct WorkerRegistry {
    // The smallest free id goes first, so that ids stay dense.
    ids: IndexAllocator,
    // By id.
    records: Vec<Option<WorkerRecord>>,
    capacity: usize,
    // Counts of workers with later ids that are gone.
    gone_accounts: [AccountSummary; 2],
    gone_elisions: Elisions,
}

impl WorkerRegistry {
    /// Returns an id, and the accounts and counters of the workers with that id.
    fn acquire(&mut self) -> (u32, &WorkerRecord) {
        let id = self.ids.acquire();
        let at = id as usize;
        self.capacity = self.capacity.max(at + 1);
        if self.records.len() <= at {
            self.records.resize_with(at + 1, || None);
        }
        (id, self.records[at].get_or_insert_default())
    }

    /// Frees the id of a worker that counts nothing any more.
    fn release(&mut self, id: u32) {
        self.ids.release(id);
        if id < KEPT_IDS {
            return;
        }
        if let Some(record) = self.records[id as usize].take() {
            for (gone, account) in self.gone_accounts.iter_mut().zip(&record.accounts) {
                gone.add(account);
            }
            record.elision_stats.add_to(&mut self.gone_elisions);
        }
        let kept = self.ids.bound().max(KEPT_IDS as usize);
        self.records.truncate(kept);
        if self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to(2 * kept);
        }
    }

    fn records(&self) -> impl Iterator<Item = &WorkerRecord> {
        self.records.iter().flatten()
    }
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
        Self::with_failpoints(Failpoints::default())
    }

    /// Returns a set without workers; worker `id` draws the same random numbers whenever `seed` is
    /// the same.
    pub fn with_seed(seed: u64) -> Self {
        Self::with(seed, Failpoints::default())
    }

    /// As [`new`](Self::new), with failpoints that a test has made.
    pub fn with_failpoints(failpoints: Failpoints) -> Self {
        Self::with(RandomState::new().hash_one(0), failpoints)
    }

    fn with(seed: u64, failpoints: Failpoints) -> Self {
        Self(Arc::new(WorkersInner {
            domain: Domain::new(),
            short_domain: Domain::new(),
            registry: Mutex::default(),
            failpoints,
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
        let (id, record) = registry.acquire();
        let account = record.accounts[side as usize].clone();
        let elision_stats = record.elision_stats.clone();
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
        lock(&self.0.registry).capacity
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

    /// The same by worker, in the order of their ids. The last entry is of the dropped workers with
    /// ids from 512 on together, if there were any.
    pub fn elisions_by_worker(&self) -> Vec<Elisions> {
        let of = |record: &WorkerRecord| {
            let mut sum = Elisions::default();
            record.elision_stats.add_to(&mut sum);
            sum
        };
        let registry = lock(&self.0.registry);
        let gone = Some(registry.gone_elisions).filter(|gone| *gone != Elisions::default());
        registry.records().map(of).chain(gone).collect()
    }

    fn account_of(&self, side: WorkerRole) -> AccountSummary {
        let registry = lock(&self.0.registry);
        let mut summary = registry.gone_accounts[side as usize].clone();
        for record in registry.records() {
            summary.add(&record.accounts[side as usize]);
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
    /// Number of ids for which everything is kept apart. A worker with a later id shares counters
    /// and requests with others, and is slower for that.
    pub const EARLY_IDS: u32 = 512;

    /// True if its id is late: not among the first [`EARLY_IDS`](Self::EARLY_IDS).
    pub fn is_late(&self) -> bool {
        self.id >= Self::EARLY_IDS
    }

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
        lock(&self.workers.0.registry).release(self.id);
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
