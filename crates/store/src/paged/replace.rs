//! Replacement: which page gives up its frame when another page needs one.
//!
//! # Policy
//!
//! ```text
//!   read ──▶ queue, a tenth of the frames ──no further use──▶ evicted ──▶ eviction history
//!                │                                                             │
//!                └──used again──▶ clock, the other frames ◀──read again────────┘
//! ```
//!
//! * A page that is read enters a first-in first-out queue, and moves to the clock if it was used
//!   again until it is the oldest. So a scan displaces few pages of the clock.
//! * The clock's hand takes one use from each page that it passes, and stops at a page without. A
//!   page is given at most three uses, so the hand stops after four rounds at the latest.
//! * A page that was evicted not long ago and is read again enters the clock at once, unless a scan
//!   reads it. Branches enter the clock at once.
//!
//! * If all pages of the queue or of the clock are in use, the other is tried.
//!
//! The counters of uses are outside, in the frames: most uses write nothing, and none calls this.
//!
//! # Invariants
//!
//! * I1  A frame with an admitted page is in the queue or in the clock. A frame of the queue is in
//!   it once, or is a candidate that one thread is trying to evict.
//! * I2  The eviction history has as many pages as there are frames, at most: the latest evicted.
//!
//! The history also notices lost writes, because it remembers the LSN of each page.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use foxton_log::Lsn;

use super::PageId;

/// Counters of uses, one for each frame.
pub trait UseCounters {
    /// Returns the number of uses that frame `frame` has left.
    fn uses(&self, frame: usize) -> u8;

    /// Sets that number.
    fn set_uses(&self, frame: usize, uses: u8);
}

/// Kind of a page, as far as replacement treats it differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageClass {
    /// It may be used again.
    Normal,
    /// A scan reads it, and will not read it again.
    ReadOnce,
    /// A branch: it leads to many pages.
    Branch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Residence {
    None,
    Queue,
    Clock,
}

/// A frame that should be evicted next.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a candidate is evicted or retained"]
pub struct EvictionCandidate {
    frame: usize,
    generation: u64,
    is_from_queue: bool,
}

impl EvictionCandidate {
    /// Returns the frame.
    pub fn frame(&self) -> usize {
        self.frame
    }
}

/// The policy: queue, clock and eviction history.
///
/// ```
/// use std::cell::Cell;
/// use foxton_log::Lsn;
/// use foxton_store::paged::PageId;
/// use foxton_store::paged::replace::{PageClass, Replacement, UseCounters};
///
/// struct Uses([Cell<u8>; 2]);
///
/// impl UseCounters for Uses {
///     fn uses(&self, frame: usize) -> u8 {
///         self.0[frame].get()
///     }
///     fn set_uses(&self, frame: usize, uses: u8) {
///         self.0[frame].set(uses);
///     }
/// }
///
/// let (mut replacement, uses) = (Replacement::new(2), Uses([Cell::new(0), Cell::new(0)]));
/// replacement.admit(0, PageId(10), PageClass::Normal);
/// replacement.admit(1, PageId(11), PageClass::Normal);
/// uses.set_uses(0, 1);
/// // Page 10 came first, but it was used again.
/// let candidate = replacement.candidate(&uses).expect("a page without uses");
/// assert_eq!(candidate.frame(), 1);
/// replacement.evicted(candidate, PageId(11), Lsn::ZERO);
/// ```
pub struct Replacement {
    residences: Vec<Residence>,
    /// For each frame, the number of pages that were admitted to it or evicted from it.
    generations: Vec<u64>,
    queue: VecDeque<usize>,
    in_clock: usize,
    hand: usize,
    /// Number of frames that may be used now. Those beyond are being emptied, or never were used.
    limit: usize,
    /// Frames from this one on never had a page.
    span: usize,
    /// Candidates that were retained since a page was evicted: of the queue, and of the clock.
    retained: [usize; 2],
    history: EvictionHistory,
}

/// Candidates of the queue, or of the clock, that are retained one after the other before the
/// other of both is tried.
const MOST_RETAINED: usize = 64;

impl fmt::Debug for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replacement")
            .field("frames", &self.residences.len())
            .field("in_queue", &self.queue.len())
            .field("in_clock", &self.in_clock)
            .finish_non_exhaustive()
    }
}

impl Replacement {
    /// Bytes that it takes for each frame.
    pub const FRAME_BYTES: usize = size_of::<Residence>() + size_of::<u64>();

    /// Bytes that the eviction history takes for each frame that may be used: an entry, and two
    /// in the order of age. Tables grow by doubling.
    pub const HISTORY_BYTES: usize =
        2 * (size_of::<(PageId, (Lsn, u64))>() + 1) + 2 * 2 * size_of::<(PageId, u64)>();

    /// Returns the policy for `frames` frames without pages.
    pub fn new(frames: usize) -> Replacement {
        Replacement {
            residences: vec![Residence::None; frames],
            generations: vec![0; frames],
            queue: VecDeque::new(),
            in_clock: 0,
            hand: 0,
            limit: frames,
            span: 0,
            retained: [0, 0],
            history: EvictionHistory::new(frames),
        }
    }

    /// Changes the number of frames that may be used, up to that of [`new`](Self::new). The queue
    /// gets its share of them, and the eviction history as many pages.
    pub fn set_limit(&mut self, frames: usize) {
        self.limit = frames.min(self.residences.len());
        self.history.set_capacity(self.limit);
    }

    /// Returns the LSN that `page` had when it was evicted, if that was not long ago.
    pub fn evicted_at(&self, page: PageId) -> Option<Lsn> {
        self.history.lsn(page)
    }

    /// Adds a page that was loaded into `frame`.
    ///
    /// # Panics
    ///
    /// If the frame has a page already, or there is no such frame.
    pub fn admit(&mut self, frame: usize, page: PageId, class: PageClass) {
        assert!(
            self.residences[frame] == Residence::None,
            "a frame has one page"
        );
        self.generations[frame] += 1;
        self.span = self.span.max(frame + 1);
        let was_evicted = self.history.remove(page);
        let to_clock = match class {
            PageClass::Branch => true,
            PageClass::Normal => was_evicted,
            PageClass::ReadOnce => false,
        };
        if to_clock {
            self.enter_clock(frame);
        } else {
            self.residences[frame] = Residence::Queue;
            self.queue.push_back(frame);
        }
    }

    fn enter_clock(&mut self, frame: usize) {
        self.residences[frame] = Residence::Clock;
        self.in_clock += 1;
    }

    /// Returns the frame that should be evicted next; `None` if no frame has a page that may be.
    pub fn candidate(
        &mut self,
        counters: &(impl UseCounters + ?Sized),
    ) -> Option<EvictionCandidate> {
        while self.is_queue_next() {
            let frame = self.queue.pop_front()?;
            if counters.uses(frame) == 0 {
                return Some(self.candidate_of(frame, true));
            }
            counters.set_uses(frame, 0);
            self.enter_clock(frame);
        }
        // Each round takes a use from each page, so the hand stops, unless other threads use all
        // pages meanwhile.
        for _ in 0..5 * self.span {
            let frame = self.hand;
            self.hand = (self.hand + 1) % self.span;
            if self.residences[frame] != Residence::Clock {
                continue;
            }
            match counters.uses(frame) {
                0 => return Some(self.candidate_of(frame, false)),
                uses => counters.set_uses(frame, uses - 1),
            }
        }
        None
    }

    /// True if the next candidate comes from the queue, and false if it comes from the clock. If
    /// all pages of one are in use, the other is tried, whatever their sizes are.
    fn is_queue_next(&mut self) -> bool {
        if self.queue.is_empty() || self.in_clock == 0 {
            return self.in_clock == 0;
        }
        let in_use = |retained: usize, pages: usize| retained >= pages.min(MOST_RETAINED);
        let queue_in_use = in_use(self.retained[0], self.queue.len());
        let clock_in_use = in_use(self.retained[1], self.in_clock);
        if queue_in_use && clock_in_use {
            self.retained = [0, 0];
        } else if queue_in_use || clock_in_use {
            return clock_in_use;
        }
        self.queue.len() > self.limit / 10
    }

    fn candidate_of(&self, frame: usize, is_from_queue: bool) -> EvictionCandidate {
        EvictionCandidate {
            frame,
            generation: self.generations[frame],
            is_from_queue,
        }
    }

    /// Records that the frame of a candidate was emptied: its page, and the LSN that the page had.
    /// The page may be another than the candidate's, if other threads evict and load pages.
    pub fn evicted(&mut self, candidate: EvictionCandidate, page: PageId, lsn: Lsn) {
        let frame = candidate.frame;
        let is_current = candidate.generation == self.generations[frame];
        match self.residences[frame] {
            Residence::None => {}
            Residence::Clock => self.in_clock -= 1,
            Residence::Queue if candidate.is_from_queue && is_current => {}
            Residence::Queue => self.queue.retain(|&other| other != frame),
        }
        self.residences[frame] = Residence::None;
        self.generations[frame] += 1;
        self.retained = [0, 0];
        self.history.insert(page, lsn);
    }

    /// Records that `frame` was emptied though it was no candidate, because it is beyond the limit:
    /// its page, and the LSN that the page had.
    pub fn emptied(&mut self, frame: usize, page: PageId, lsn: Lsn) {
        self.evicted(
            EvictionCandidate {
                frame,
                generation: self.generations[frame],
                is_from_queue: false,
            },
            page,
            lsn,
        );
    }

    /// Records that a candidate stays: it is dirty, or in use. It becomes the newest of the queue,
    /// or waits for the clock's next round.
    pub fn retain(&mut self, candidate: EvictionCandidate) {
        let frame = candidate.frame;
        self.retained[usize::from(!candidate.is_from_queue)] += 1;
        // Another thread may have emptied the frame meanwhile.
        if candidate.is_from_queue && candidate.generation == self.generations[frame] {
            self.queue.push_back(frame);
        }
    }
}

/// The latest evicted pages, with their LSNs.
struct EvictionHistory {
    capacity: usize,
    entries: HashMap<PageId, (Lsn, u64)>,
    /// Oldest first. An entry whose number is not that of the map is outdated.
    order: VecDeque<(PageId, u64)>,
    next: u64,
}

impl EvictionHistory {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            entries: HashMap::with_capacity(capacity),
            order: VecDeque::new(),
            next: 0,
        }
    }

    fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.trim();
        self.entries.shrink_to(capacity);
        self.order.shrink_to(2 * capacity);
    }

    fn lsn(&self, page: PageId) -> Option<Lsn> {
        self.entries.get(&page).map(|(lsn, _)| *lsn)
    }

    fn remove(&mut self, page: PageId) -> bool {
        self.entries.remove(&page).is_some()
    }

    fn insert(&mut self, page: PageId, lsn: Lsn) {
        self.entries.insert(page, (lsn, self.next));
        self.order.push_back((page, self.next));
        self.next += 1;
        self.trim();
    }

    fn trim(&mut self) {
        // Outdated entries are bounded too.
        while self.entries.len() > self.capacity || self.order.len() > 2 * self.capacity {
            let Some((page, number)) = self.order.pop_front() else {
                return;
            };
            if self
                .entries
                .get(&page)
                .is_some_and(|entry| entry.1 == number)
            {
                self.entries.remove(&page);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Uses(Vec<Cell<u8>>);

    impl UseCounters for Uses {
        fn uses(&self, frame: usize) -> u8 {
            self.0[frame].get()
        }

        fn set_uses(&self, frame: usize, uses: u8) {
            self.0[frame].set(uses);
        }
    }

    /// A pool of frames without threads.
    struct Cache {
        policy: Replacement,
        uses: Uses,
        pages: Vec<Option<PageId>>,
        frames: HashMap<PageId, usize>,
        misses: usize,
    }

    impl Cache {
        fn new(frames: usize) -> Cache {
            Cache {
                policy: Replacement::new(frames),
                uses: Uses((0..frames).map(|_| Cell::new(0)).collect()),
                pages: vec![None; frames],
                frames: HashMap::new(),
                misses: 0,
            }
        }

        fn get(&mut self, page: PageId, class: PageClass) {
            if let Some(&frame) = self.frames.get(&page) {
                if class != PageClass::ReadOnce {
                    self.uses
                        .set_uses(frame, (self.uses.uses(frame) + 1).min(3));
                }
                return;
            }
            self.misses += 1;
            let free = self.pages.iter().position(Option::is_none);
            let frame = free.unwrap_or_else(|| {
                let candidate = self.policy.candidate(&self.uses).expect("some page");
                let frame = candidate.frame();
                let old = self.pages[frame].take().expect("it has one");
                self.frames.remove(&old);
                self.policy.evicted(candidate, old, Lsn::new(old.0));
                frame
            });
            self.pages[frame] = Some(page);
            self.uses.set_uses(frame, 0);
            self.frames.insert(page, frame);
            self.policy.admit(frame, page, class);
        }
    }

    #[test]
    fn a_scan_does_not_displace_pages_that_are_used_again() {
        let mut cache = Cache::new(100);
        for _ in 0..10 {
            (0..80).for_each(|page| cache.get(PageId(page), PageClass::Normal));
        }
        (1000..3000).for_each(|page| cache.get(PageId(page), PageClass::ReadOnce));
        let before = cache.misses;
        (0..80).for_each(|page| cache.get(PageId(page), PageClass::Normal));
        assert!(
            cache.misses - before <= 8,
            "{} pages displaced",
            cache.misses - before
        );
    }

    #[test]
    fn a_page_that_returns_soon_enters_the_clock() {
        let mut cache = Cache::new(20);
        // A loop a little larger than the queue, and pages used once between.
        let mut once = 1000;
        for _ in 0..50 {
            for page in 0..10 {
                cache.get(PageId(page), PageClass::Normal);
                for _ in 0..2 {
                    once += 1;
                    cache.get(PageId(once), PageClass::Normal);
                }
            }
        }
        let before = cache.misses;
        (0..10).for_each(|page| cache.get(PageId(page), PageClass::Normal));
        assert_eq!(cache.misses, before);
    }

    #[test]
    fn a_retained_candidate_is_not_lost() {
        let mut cache = Cache::new(8);
        (0..8).for_each(|page| cache.get(PageId(page), PageClass::Normal));
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..8 {
            let candidate = cache.policy.candidate(&cache.uses).expect("eight pages");
            seen.insert(candidate.frame());
            cache.policy.retain(candidate);
        }
        assert_eq!(seen.len(), 8);
    }

    #[test]
    fn the_only_page_that_may_go_is_found_wherever_it_is() {
        for frame in 0..20 {
            let mut cache = Cache::new(20);
            // Half of the pages are in the clock.
            (0..10).for_each(|page| cache.get(PageId(page), PageClass::Branch));
            (10..20).for_each(|page| cache.get(PageId(page), PageClass::Normal));
            let found = (0..40).any(|_| {
                let candidate = cache.policy.candidate(&cache.uses).expect("some page");
                let is_it = candidate.frame() == frame;
                cache.policy.retain(candidate);
                is_it
            });
            assert!(found, "frame {frame}");
        }
    }

    #[test]
    fn a_candidate_that_another_thread_evicts_is_retained_for_nothing() {
        let mut cache = Cache::new(9);
        (0..9).for_each(|page| cache.get(PageId(page), PageClass::Branch));
        let (policy, uses) = (&mut cache.policy, &cache.uses);
        let first = policy.candidate(uses).expect("nine pages");
        let frame = first.frame();
        // The hand comes round to the same frame.
        let others: Vec<_> = (0..9).filter_map(|_| policy.candidate(uses)).collect();
        let (same, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|one| one.frame() == frame);
        others.into_iter().for_each(|one| policy.retain(one));
        policy.evicted(first, PageId(frame as u64), Lsn::ZERO);
        // Read again, and evicted by a thread that chose the frame long ago.
        policy.admit(frame, PageId(77), PageClass::Normal);
        let queued = policy.candidate(uses).expect("the queue is full");
        assert!(queued.frame() == frame && queued.is_from_queue);
        same.into_iter()
            .for_each(|one| policy.evicted(one, PageId(77), Lsn::ZERO));
        policy.retain(queued);
        assert!(policy.queue.is_empty());
        assert_eq!(
            (policy.residences[frame], policy.in_clock),
            (Residence::None, 8)
        );
    }

    #[test]
    fn the_history_is_bounded_and_remembers_lsns() {
        let mut cache = Cache::new(10);
        for round in 0..1000_u64 {
            cache.get(PageId(round * 7919 % 25), PageClass::Normal);
            let history = &cache.policy.history;
            assert!(history.entries.len() <= 10 && history.order.len() <= 20);
            for page in (0..25).map(PageId) {
                let evicted = cache.policy.evicted_at(page);
                assert!(evicted.is_none_or(|lsn| lsn == Lsn::new(page.0)));
                assert!(evicted.is_none() || !cache.frames.contains_key(&page));
            }
        }
    }
}
