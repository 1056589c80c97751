//! Lock index: allocation and reuse of requests.
//!
//! # State
//!
//! ```text
//!            take                   all flags clear
//! ready ring -----> in use, by 64s ----------------> dead stack
//!   ^                                                     |
//!   |  flags set                                          v
//!   +---------------- epoch has passed <------------- dead queue, by age
//!   +---------------- made new
//! ```
//!
//! The *ready ring* is an array of words, each a segment or 0; `put_at` and `take_at` are the
//! positions of the next segment to put and to take. The thread that clears a segment's last flag
//! pushes it on a *dead stack*. A *dead queue* keeps dead segments in order until their epoch has
//! passed. There is a stack and a queue for each of `LANES` lanes; the number of a segment
//! chooses its lane.
//!
//! Work is done in bulk and by turns: a thread that takes a segment and leaves fewer than
//! `LOW_WATER` in the ring refills it, from the dead queues that no other thread is using. No
//! thread waits for another: one that finds too few segments makes one. There are several lanes,
//! because a thread that is descheduled in a dead queue keeps the others from its segments until
//! its next turn. A background thread would have to be started, stopped and waited for, and would
//! save only a short walk through a dead queue for some hundreds of locks.
//!
//! # Segments that wait for reuse
//!
//! A dead segment can be reused two epochs later, and the epoch cannot advance past a thread that
//! was descheduled while it read a chain. Three things keep the number of waiting segments small:
//!
//! * The epochs are those of short walks (`foxton_sync::worker::Worker::walker`), in which no
//!   thread stays pinned while it reads rows. A request without conflicts reads no chain.
//! * The epoch is tried as soon as a `BATCH` of segments is dead.
//! * If more than `DEAD_LIMIT` are dead and none can be reused, some thread sleeps in a walk. A
//!   thread that needs a segment then yields its processor a few times before it makes one. All
//!   running threads come here every 64 locks, so the sleeper's turn comes soon. No thread waits
//!   for it without bound.
//!
//! The number of requests is limited, and a request beyond the limit is refused
//! ([`RefusalReason::Full`](crate::request::RefusalReason::Full)).
//!
//! # Invariants
//!
//! * I1  A segment is in one place: in use, on its stack, in its dead queue or in the ring.
//! * I2  A segment leaves the dead queue only when no thread can read its requests: its epoch,
//!   taken after the last of them was unlinked, has passed.
//! * I3  All threads that read requests of one manager pin in one domain, that of short walks.
//!
//! # Orderings
//!
//! * O1  `put` (Release) to `take_ready` (Acquire): a thread that takes a segment finds its flags
//!   set.
//! * O2  `push_dead` (Release) to `take_dead` (Acquire): a thread that finds a segment on the stack
//!   finds its epoch, and the segments below it. Pushes are read-modify-writes, so those below are
//!   visible, too.
//! * O3  `install` (Release) to `take_shared` (Acquire): a thread that takes a request of the
//!   shared segment finds the segment's flags set.
//!
//! # Differences from the paper
//!
//! Segments in use are not in the ring, so it needs only as many places as the water marks ask for,
//! and a stalled transaction does not block it. Any passing thread allocates in advance. The paper
//! takes one lock at a time from a shared counter: that is `take_shared`. Otherwise an owner takes
//! a segment for itself, and its next 64 locks touch nothing shared to get a request. Workers with
//! late ids take a few requests at a time from the shared segment, because a segment for each of a
//! hundred thousand transactions would take hundreds of megabytes.
//!
//! The older rule (*oldest*) reuses a segment only when every running transaction has begun after
//! the segment died. Epochs are kept as well, so this rule only waits longer, and is never less
//! safe. A transaction runs from its first request until it neither waits for nor holds anything of
//! its own. So a transaction whose requests were all refused does not run any more, and locks that
//! a session retains between its transactions (`Owner::retain`) belong to no running one. A held
//! lock needs no running transaction to keep its request from reuse: its flag is set, so its
//! segment has not died.

use super::{
    free_flags::DoneFlags,
    request::{
        ChainRequest, FIRST_CHUNK as FIRST, RequestSegment, RequestSlab, SEGMENT, first_of, flag_of,
    },
};
use crate::owner::owner_table::{OwnerTable, ReservedRequests};
use foxton_sync::{
    cache_line::CachePadded,
    epoch::{Domain, Guard, Stamp},
    shim::{Arc, AtomicU32, AtomicU64, Mutex, Ordering, thread, try_lock},
    site::{Component, Pattern, Site},
    worker::Worker,
};
use std::{collections::VecDeque, sync::OnceLock};

/// The ring, the dead stack, and the dead queue: once for each segment.
static SEGMENTS: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock segments");
/// The shared segment: once for each lock.
static SHARED: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock identifier");

/// Places of the ring.
const RING: usize = if cfg!(loom) { 2 } else { 16 };
/// Number of ready segments below which the ring is refilled.
const LOW_WATER: u64 = if cfg!(loom) { 1 } else { 4 };
/// Number of ready segments up to which it is refilled from the dead queues.
const HIGH_WATER: u64 = if cfg!(loom) { 2 } else { 12 };
/// Number of dead segments that make it worth trying the epoch, which reads every worker.
const BATCH: u32 = 64;
/// Number of refills before the epoch is tried again after it did not advance.
const RETRY_AFTER: u32 = 8;
/// Number of dead but not reusable segments above which threads yield, so that a sleeper leaves its
/// walk.
const DEAD_LIMIT: u32 = 256;
/// Most yields for one segment.
const YIELDS: u32 = 32;
/// Number of requests that a late worker takes at once. Others take a segment for themselves: they
/// are more than there are threads in most programs. Further transactions are mostly tasks, and
/// hold few locks.
const FEW: u32 = 4;
/// Number of lanes. More than there are threads descheduled in one at a time.
const LANES: usize = if cfg!(loom) { 1 } else { 64 };

/// Rule for the reuse of a dead segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReuseRule {
    /// When its epoch has passed.
    Epoch,
    /// When in addition every running transaction has begun since it died.
    Oldest,
}

/// Dead segments whose numbers leave the same remainder.
#[derive(Debug, Default)]
struct Lane {
    dead_stack: AtomicU32,
    dead_queue: Mutex<VecDeque<u32>>,
}

/// All requests of one manager.
#[derive(Debug)]
pub(crate) struct LockIndex {
    slab: RequestSlab,
    ring: [AtomicU32; RING],
    put_at: CachePadded<AtomicU64>,
    take_at: CachePadded<AtomicU64>,
    lanes: [CachePadded<Lane>; LANES],
    /// Number of segments on the stacks and in the dead queues.
    dead_count: CachePadded<AtomicU32>,
    /// Number of refills before the epoch is tried again.
    retry_countdown: AtomicU32,
    /// Epoch in which the first of the dead segments died: until it has passed, none can be reused.
    oldest_epoch: AtomicU64,
    /// Segment and number of its requests used, if all owners take from one segment.
    shared: CachePadded<AtomicU64>,
    rule: ReuseRule,
    /// Number of dead segments so far: the clock of the older rule.
    moment: AtomicU64,
    owners: Arc<OwnerTable>,
    domain: OnceLock<Domain>,
}

impl LockIndex {
    /// Returns an index without requests, limited to `limit` of them.
    pub(crate) fn new(rule: ReuseRule, limit: u32, owners: Arc<OwnerTable>) -> Self {
        Self {
            slab: RequestSlab::new(limit),
            ring: std::array::from_fn(|_| AtomicU32::new(0)),
            put_at: CachePadded::new(AtomicU64::new(0)),
            take_at: CachePadded::new(AtomicU64::new(0)),
            lanes: std::array::from_fn(|_| CachePadded::default()),
            dead_count: CachePadded::new(AtomicU32::new(0)),
            retry_countdown: AtomicU32::new(0),
            oldest_epoch: AtomicU64::new(0),
            shared: CachePadded::new(AtomicU64::new(0)),
            rule,
            moment: AtomicU64::new(0),
            owners,
            domain: OnceLock::new(),
        }
    }

    #[inline]
    pub(crate) fn request(&self, number: u32) -> &ChainRequest {
        self.slab.request(number)
    }

    /// True under the older rule, which needs to know since when transactions run.
    #[inline]
    pub(crate) fn tracks_active(&self) -> bool {
        self.rule == ReuseRule::Oldest
    }

    /// Returns the present moment, for the older rule.
    pub(crate) fn moment(&self) -> u64 {
        // Relaxed: epochs make the reuse safe.
        self.moment.load(Ordering::Relaxed)
    }

    /// Pins, so that no request that is found is reused.
    ///
    /// # Panics
    ///
    /// If the manager's other workers reclaim in another domain (I3).
    #[inline]
    pub(crate) fn pin<'w>(&self, worker: &'w Worker) -> Guard<'w> {
        let guard = worker.short_participant().pin();
        self.assert_domain(worker);
        guard
    }

    #[inline]
    fn assert_domain(&self, worker: &Worker) {
        let domain = self
            .domain
            .get_or_init(|| worker.workers().short_domain().clone());
        assert!(
            domain == worker.workers().short_domain(),
            "the workers of one manager are of one family"
        );
    }

    /// Takes a request reserved for an owner; reserves another segment if there is none left.
    #[inline]
    pub(crate) fn take(&self, worker: &Worker, reserved: &mut ReservedRequests) -> Option<u32> {
        if reserved.next == reserved.end {
            self.reserve_requests(worker, reserved, 1)?;
        }
        let request = reserved.next;
        reserved.next += 1;
        Some(request)
    }

    /// Ensures that `count` requests, of one segment at most, are reserved for an owner.
    pub(crate) fn reserve(
        &self,
        worker: &Worker,
        reserved: &mut ReservedRequests,
        count: u32,
    ) -> Option<()> {
        if reserved.end - reserved.next < count {
            let mut left = *reserved;
            self.reserve_requests(worker, reserved, count)?;
            self.give_back(worker, &mut left);
        }
        Some(())
    }

    /// Frees the requests that are reserved for an owner.
    pub(crate) fn give_back(&self, worker: &Worker, reserved: &mut ReservedRequests) {
        let ReservedRequests { next, end } = std::mem::take(reserved);
        let mut retired = self.retire(worker);
        (next..end).for_each(|request| retired.add(request));
    }

    #[cold]
    #[inline(never)]
    fn reserve_requests(
        &self,
        worker: &Worker,
        reserved: &mut ReservedRequests,
        count: u32,
    ) -> Option<()> {
        let (next, count) = match worker.is_late() {
            true => (self.take_shared(worker, count.max(FEW))?, count.max(FEW)),
            false => (first_of(self.take_segment(worker)?), SEGMENT),
        };
        *reserved = ReservedRequests {
            next,
            end: next + count,
        };
        Some(())
    }

    /// Takes `count` requests of the segment that all owners share, and returns the first.
    pub(crate) fn take_shared(&self, worker: &Worker, count: u32) -> Option<u32> {
        loop {
            worker.account().passed(&SHARED);
            let taken = self.shared.fetch_add(count.into(), Ordering::Acquire); // O3
            let (segment, used) = ((taken >> 32) as u32, taken as u32);
            if segment != 0 && used < SEGMENT {
                // Checked only by the model: otherwise other threads may have cleared theirs.
                let flags = &self.slab.segment(segment).flags;
                assert!(!cfg!(loom) || !flags.is_clear(), "O3");
                let first = first_of(segment);
                if used + count <= SEGMENT {
                    return Some(first + used);
                }
                let (next, end) = (first + used, first + SEGMENT);
                self.give_back(worker, &mut ReservedRequests { next, end });
            }
            if let Some(request) = self.install(worker, segment, count)? {
                return Some(request);
            }
        }
    }

    /// Puts a segment in place of the one used up, and takes its first `count` requests.
    /// `Some(None)`: another thread was first. `None`: there is no segment.
    #[cold]
    fn install(&self, worker: &Worker, used_up: u32, count: u32) -> Option<Option<u32>> {
        let segment = self.take_segment(worker)?;
        let mut shared = self.shared.load(Ordering::Relaxed);
        while (shared >> 32) as u32 == used_up {
            let installed = self.shared.compare_exchange(
                shared,
                u64::from(segment) << 32 | u64::from(count),
                Ordering::Release, // O3
                Ordering::Relaxed,
            );
            match installed {
                Ok(_) => return Some(Some(first_of(segment))),
                Err(other) => shared = other,
            }
        }
        if !self.put(segment) {
            // The ring is full: as if all its requests had been used.
            let mut retired = self.retire(worker);
            (first_of(segment)..first_of(segment) + SEGMENT)
                .for_each(|request| retired.add(request));
        }
        Some(None)
    }

    /// Returns a segment for the caller alone, with all flags set. `None`: the limit is reached.
    fn take_segment(&self, worker: &Worker) -> Option<u32> {
        worker.account().passed(&SEGMENTS);
        if let Some(segment) = self.take_ready() {
            assert!(self.slab.segment(segment).flags.is_full(), "O1");
            if self.ready() < LOW_WATER {
                self.fill_ring(worker);
            }
            return Some(segment);
        }
        let mut yields = 0;
        loop {
            self.fill_ring(worker);
            // None even now: another thread refills the ring, or took them, or all dead ones wait.
            if let Some(segment) = self.take_ready() {
                return Some(segment);
            }
            let may_yield = yields < YIELDS;
            if (!may_yield || !self.is_held_up())
                && let Some(segment) = self.make()
            {
                return Some(segment);
            }
            if !may_yield {
                return None;
            }
            thread::yield_now();
            yields += 1;
        }
    }

    fn make(&self) -> Option<u32> {
        let segment = self.slab.add()?;
        self.slab.segment(segment).flags.fill();
        Some(segment)
    }

    /// True if many segments are dead. If none is ready even so, a thread sleeps in a walk.
    fn is_held_up(&self) -> bool {
        // Relaxed: see `is_worth_advancing`. Under the older rule a transaction holds up reuse,
        // which no yield ends; and a model never has so many.
        !cfg!(loom)
            && self.rule == ReuseRule::Epoch
            && self.dead_count.load(Ordering::Relaxed) > DEAD_LIMIT
    }

    /// Returns about how many segments are ready.
    fn ready(&self) -> u64 {
        // Relaxed, here and in the ring: only where to look first, and when to refill. The words
        // decide.
        let take_at = self.take_at.load(Ordering::Relaxed);
        self.put_at.load(Ordering::Relaxed).saturating_sub(take_at)
    }

    fn take_ready(&self) -> Option<u32> {
        let take_at = self.take_at.load(Ordering::Relaxed) as usize;
        let places = (take_at..take_at + RING).map(|at| &self.ring[at % RING]);
        for place in places {
            if place.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let segment = place.swap(0, Ordering::Acquire); // O1
            if segment != 0 {
                self.take_at.fetch_add(1, Ordering::Relaxed);
                return Some(segment);
            }
        }
        None
    }

    /// Puts a segment into the ring. Returns false if the ring is full.
    fn put(&self, segment: u32) -> bool {
        let put_at = self.put_at.load(Ordering::Relaxed) as usize;
        let mut places = (put_at..put_at + RING).map(|at| &self.ring[at % RING]);
        let found = places.any(|place| {
            // O1
            let put = place.compare_exchange(0, segment, Ordering::Release, Ordering::Relaxed);
            put.is_ok()
        });
        if found {
            self.put_at.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Refills the ring from the dead queues that no other thread is using.
    fn fill_ring(&self, worker: &Worker) {
        self.fill_from_dead_queues(worker);
        if self.ready() < LOW_WATER && self.is_worth_advancing() {
            // Twice, because requests unlinked in one epoch are free two epochs later.
            worker.short_participant().advance();
            worker.short_participant().advance();
            self.fill_from_dead_queues(worker);
            let failed = self.ready() < LOW_WATER;
            self.retry_countdown
                .store(if failed { RETRY_AFTER } else { 0 }, Ordering::Relaxed);
        }
        while self.ready() < LOW_WATER && !self.is_held_up() {
            match self.make() {
                Some(segment) if self.put(segment) => {}
                Some(segment) => {
                    self.slab.segment(segment).flags.empty();
                    return self.retire_segment(worker, segment);
                }
                None => return,
            }
        }
    }

    /// True if the epoch should be tried. That reads every worker, so it should free some segments,
    /// and not fail each time.
    fn is_worth_advancing(&self) -> bool {
        if self.is_held_up() {
            return true;
        }
        // Relaxed: it only decides when to try. Of two threads at once one may lose a step.
        let retry_countdown = self
            .retry_countdown
            .load(Ordering::Relaxed)
            .saturating_sub(1);
        self.retry_countdown
            .store(retry_countdown, Ordering::Relaxed);
        let dead = self.dead_count.load(Ordering::Relaxed);
        let is_much = dead >= BATCH || dead >= self.slab.used() / 4;
        retry_countdown == 0 && is_much && u64::from(dead) >= LOW_WATER
    }

    fn fill_from_dead_queues(&self, worker: &Worker) {
        let oldest = match self.rule {
            ReuseRule::Epoch => u64::MAX,
            ReuseRule::Oldest => self.oldest_running(),
        };
        let walker = worker.short_participant();
        // Relaxed: it only decides whether to look. An outdated value is smaller, and costs a look
        // too many.
        let oldest_epoch = Stamp::from_epoch(self.oldest_epoch.load(Ordering::Relaxed));
        if !walker.has_passed(oldest_epoch) {
            return;
        }
        // Segments that die from here on die in this epoch or later.
        let mut oldest_epoch = walker.stamp().epoch();
        // Relaxed: only where to look first.
        let first = self.put_at.load(Ordering::Relaxed);
        // Few segments are in few lanes, because they are numbered as they are made.
        let lanes = LANES.min(self.slab.used() as usize);
        for at in 0..lanes {
            if self.ready() >= HIGH_WATER {
                return;
            }
            let number = FIRST as usize + (first as usize + at) % lanes;
            let lane = &self.lanes[number % LANES];
            match try_lock(&lane.dead_queue) {
                Some(mut dead_queue) => {
                    self.take_dead(lane, &mut dead_queue);
                    oldest_epoch =
                        oldest_epoch.min(self.fill_from(worker, &mut dead_queue, oldest));
                }
                None => oldest_epoch = 0,
            }
        }
        self.oldest_epoch.store(oldest_epoch, Ordering::Relaxed);
    }

    /// Puts reusable segments of a dead queue into the ring, those that died last first: they are
    /// in the caches, and after a peak of locks there are very many others. Returns the epoch in
    /// which the first of the rest died.
    fn fill_from(&self, worker: &Worker, dead_queue: &mut VecDeque<u32>, oldest: u64) -> u64 {
        let is_reusable = |number: u32| {
            let segment = self.slab.segment(number);
            // Relaxed: they came with the segment (O2).
            let epoch = segment.epoch.load(Ordering::Relaxed);
            let moment = segment.moment.load(Ordering::Relaxed);
            let walker = worker.short_participant();
            walker.has_passed(Stamp::from_epoch(epoch)) && moment < oldest
        };
        while let Some(&front) = dead_queue.front() {
            let epoch = self.slab.segment(front).epoch.load(Ordering::Relaxed);
            // If the first is not reusable, hardly any other is.
            if self.ready() >= HIGH_WATER || !is_reusable(front) {
                return epoch;
            }
            // By age, or nearly: one reader that has run for long keeps many of the younger ones,
            // and they are not visited one by one.
            let behind = dead_queue.partition_point(|&number| is_reusable(number));
            let at = behind.saturating_sub(1);
            let found = dead_queue.get(at).copied();
            let Some(number) = found.filter(|&number| is_reusable(number)) else {
                return epoch; // I2
            };
            dead_queue.remove(at);
            let segment = self.slab.segment(number);
            segment.flags.fill();
            if !self.put(number) {
                // Other threads filled the ring meanwhile. The dead queue takes no filled segments.
                segment.flags.empty();
                dead_queue.insert(at, number);
                return epoch;
            }
            // Relaxed: see `is_worth_advancing`.
            self.dead_count.fetch_sub(1, Ordering::Relaxed);
        }
        u64::MAX
    }

    /// Returns when the oldest running transaction began.
    fn oldest_running(&self) -> u64 {
        let since = self.owners.records().map(|record| record.active_since());
        since.min().unwrap_or(u64::MAX)
    }

    /// Collects requests that have been unlinked, or were never linked.
    pub(crate) fn retire<'i>(&'i self, worker: &'i Worker) -> RetiredRequests<'i> {
        RetiredRequests {
            index: self,
            worker,
            word: 0,
            done: DoneFlags::default(),
        }
    }

    #[cold]
    #[inline(never)]
    fn retire_segment(&self, worker: &Worker, number: u32) {
        self.assert_domain(worker);
        worker.account().passed(&SEGMENTS);
        let segment = self.slab.segment(number);
        // All requests were unlinked before their flags were cleared, and all flags are cleared
        // (I2).
        let stamp = worker.short_participant().stamp();
        segment.epoch.store(stamp.epoch(), Ordering::Relaxed);
        if self.tracks_active() {
            let moment = self.moment.fetch_add(1, Ordering::Relaxed);
            segment.moment.store(moment, Ordering::Relaxed);
        }
        self.push_dead(number, segment);
    }

    fn push_dead(&self, number: u32, segment: &RequestSegment) {
        // Relaxed: see `is_worth_advancing`. Before it can be taken, so that the count never falls
        // below 0.
        self.dead_count.fetch_add(1, Ordering::Relaxed);
        let dead_stack = &self.lanes[number as usize % LANES].dead_stack;
        let mut top = dead_stack.load(Ordering::Relaxed);
        loop {
            segment.below.store(top, Ordering::Relaxed);
            let pushed = dead_stack.compare_exchange(
                top,
                number,
                Ordering::Release, // O2
                Ordering::Relaxed,
            );
            match pushed {
                Ok(_) => return,
                Err(other) => top = other,
            }
        }
    }

    /// Moves all segments of a dead stack into its dead queue, those that died first in front.
    fn take_dead(&self, lane: &Lane, dead_queue: &mut VecDeque<u32>) {
        // Relaxed: an empty stack has nothing to take.
        if lane.dead_stack.load(Ordering::Relaxed) == 0 {
            return;
        }
        // All at once, so that no number can come back between reading and taking.
        let mut number = lane.dead_stack.swap(0, Ordering::Acquire); // O2
        let first = dead_queue.len();
        while number != 0 {
            dead_queue.push_back(number);
            assert!(self.slab.segment(number).flags.is_clear(), "O2");
            number = self.slab.segment(number).below.load(Ordering::Relaxed);
        }
        dead_queue.make_contiguous()[first..].reverse();
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.slab.memory_bytes()
    }
}

/// Requests that one call has retired. Their flags are cleared a word at a time, the last when this
/// is dropped.
#[derive(Debug)]
pub(crate) struct RetiredRequests<'i> {
    index: &'i LockIndex,
    worker: &'i Worker,
    word: u32,
    done: DoneFlags,
}

impl RetiredRequests<'_> {
    /// Adds a request that no thread can find any more.
    #[inline]
    pub(crate) fn add(&mut self, request: u32) {
        let (_, _, byte) = flag_of(request);
        let word = request - byte;
        if word != self.word {
            self.clear();
            self.word = word;
        }
        self.done.add(byte);
    }

    #[inline]
    fn clear(&mut self) {
        if self.word == 0 {
            return;
        }
        let (number, leaf, _) = flag_of(self.word);
        let done = std::mem::take(&mut self.done);
        if self.index.slab.segment(number).flags.clear(leaf, done) {
            self.index.retire_segment(self.worker, number);
        }
    }
}

impl Drop for RetiredRequests<'_> {
    #[inline]
    fn drop(&mut self) {
        self.clear();
    }
}
