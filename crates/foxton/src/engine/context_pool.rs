//! Pool of the boxes that transactions work with, between one transaction and the next.
//!
//! A transaction needs a worker, an owner of locks and some buffers. Making them for each
//! transaction would cost more than the transaction. They are kept in cells, each in its own cache
//! lines. A thread derives from the address of its stack which cell it tries first: there is no
//! thread-local, no global, and no counter that all threads write. In the steady state a thread
//! finds in its cell the box that it left there.
//!
//! # State
//!
//! `cells`, each a [`BoxSlot`]; `overflow` for boxes whose cell is occupied, and the number of all
//! boxes.
//!
//! # Trimming
//!
//! A peak of open transactions leaves as many boxes. Each has memory, a worker and an owner, which
//! others look at. So the background thread drops the boxes that were not needed lately. Once in a
//! [`PERIOD`] these are the boxes in the overflow that no thread took since the last time, and
//! those that lay in their cells all the time. [`KEPT`] boxes stay in any case. A transaction never
//! drops a box that it returns, because a program that often has many open would make them again
//! each time.
//!
//! Some boxes are *late*: those of a peak, whose workers have late ids. They are slower than
//! others, and every walk over workers and owners goes up to the last one. So when fewer boxes
//! exist than there are early ids, the background thread drops the late ones, even those that are
//! needed all the time, whenever it finds them in the pool. The boxes made in their place have
//! early ids.
//!
//! # Invariants
//!
//! * I1  No thread uses a box that is in the pool.
//! * I2  A closed cell or overflow accepts nothing any more. A box in the pool may keep the pool
//!   alive; closing breaks that cycle, and nothing forms it again afterwards.
//! * I3  Boxes that are being trimmed are dropped under the mutex `trimming`, which closing takes.
//!   So when the pool is closed, the background thread has no box, and what the boxes keep alive
//!   can go.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use foxton_sync::cache_line::CachePadded;
use foxton_sync::shim::{self, Arc, Mutex};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use super::slot::{BoxSlot, PutRefused};

/// A cell: the threads whose stacks lead to it, few or one.
static CELL: Site = Site::new(Component::Transaction, Pattern::Fixed, "pool cell");
/// The overflow: every thread that found no box in its cells. If there is none either, the thread
/// counts this with the box that it makes.
pub(crate) static OVERFLOW: Site =
    Site::new(Component::Transaction, Pattern::Unbounded, "pool overflow");

/// Number of cells; a power of two. A thread tries `NEAR` of them.
const CELLS: usize = 512;
const NEAR: usize = 4;

/// Number of boxes that are not trimmed.
const KEPT: usize = 64;
/// Time between two trims, and how long a box must not have been needed. Short, so that little is
/// left soon after a peak, and long against the time in which a box is made: some microseconds.
pub(crate) const PERIOD: Duration = Duration::from_millis(200);
/// Time between two trims while all boxes are in use.
const LONG_PERIOD: Duration = Duration::from_secs(1);
/// Number of boxes dropped before closing may intervene.
const BATCH: usize = 64;
/// Number of boxes dropped at once, in some milliseconds. The background thread has other work, so
/// it goes on with the next ones after [`SHORT_PERIOD`].
const STEP: usize = 1024;
const SHORT_PERIOD: Duration = Duration::from_millis(1);
/// Number of boxes dropped after which free memory is returned to the system.
const MANY: usize = 256;

// Returning a box clones the `Arc` of its cell. The count lies beside the cell, so it is as private
// to the thread as the cell is.
type Cell<T> = CachePadded<BoxSlot<T>>;
type Cells<T> = Arc<[Arc<Cell<T>>]>;

/// Boxes whose cells are occupied, and the number of all.
struct Overflow<T> {
    cells: Cells<T>,
    is_late: fn(&T) -> bool,
    content: Mutex<OverflowContent<T>>,
    trimming: Mutex<()>,
}

struct OverflowContent<T> {
    /// Those returned last are behind. `None`: closed.
    boxes: Option<VecDeque<Box<T>>>,
    /// Smallest number of boxes here since the last trim.
    fewest: usize,
    /// Number of boxes that exist, here and elsewhere.
    count: usize,
    /// Number of those that are late.
    late: usize,
    /// True if the background thread will trim.
    is_scheduled: bool,
    /// Number of boxes dropped whose memory has not been returned to the system.
    dropped: usize,
}

impl<T> OverflowContent<T> {
    fn pop(&mut self) -> Option<Box<T>> {
        let boxes = self.boxes.as_mut()?;
        let content = boxes.pop_back();
        self.fewest = self.fewest.min(boxes.len());
        content
    }

    fn surplus(&self) -> usize {
        self.count.saturating_sub(KEPT)
    }

    /// True if some boxes have to go sooner or later.
    fn has_surplus(&self) -> bool {
        self.surplus() > 0 || self.late > 0
    }

    /// Records that boxes, so many of them late, are about to be dropped.
    fn remove(&mut self, count: usize, late: usize) {
        self.count -= count;
        self.late -= late;
        self.dropped += count;
    }
}

/// See the [module](self).
pub(crate) struct ContextPool<T> {
    cells: Cells<T>,
    overflow: Arc<Overflow<T>>,
}

/// Where a box is returned to.
pub(crate) struct PoolCell<T> {
    cell: Arc<Cell<T>>,
    overflow: Arc<Overflow<T>>,
}

/// Trims the pool whenever it is called; returns how long to wait until the next time. After many
/// boxes were dropped it calls the function that it is called with.
pub(crate) type Trimmer = Box<dyn FnMut(&dyn Fn()) -> Option<Duration> + Send>;

impl<T> fmt::Debug for ContextPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextPool").finish_non_exhaustive()
    }
}

impl<T> ContextPool<T> {
    /// Returns an empty pool for boxes that are late if `is_late` says so.
    pub(crate) fn new(is_late: fn(&T) -> bool) -> ContextPool<T> {
        let cell = |_| Arc::new(CachePadded::new(BoxSlot::new()));
        let cells = (0..CELLS).map(cell).collect();
        ContextPool::over(cells, Some(VecDeque::new()), is_late)
    }

    /// A pool that is closed, without cells. Nothing may be taken from it.
    pub(crate) fn closed() -> ContextPool<T> {
        ContextPool::over(Cells::default(), None, |_| false)
    }

    fn over(
        cells: Cells<T>,
        boxes: Option<VecDeque<Box<T>>>,
        is_late: fn(&T) -> bool,
    ) -> ContextPool<T> {
        let content = OverflowContent {
            boxes,
            fewest: 0,
            count: 0,
            late: 0,
            is_scheduled: false,
            dropped: 0,
        };
        let overflow = Overflow {
            cells: cells.clone(),
            is_late,
            content: Mutex::new(content),
            trimming: Mutex::default(),
        };
        ContextPool {
            cells,
            overflow: Arc::new(overflow),
        }
    }

    /// Takes a box, and returns it with its site. If there is none, returns the cell for a box that
    /// the caller makes.
    #[inline]
    pub(crate) fn take(&self) -> Result<(Box<T>, &'static Site), PoolCell<T>> {
        let home = near_stack();
        for near in 0..NEAR {
            let cell = &self.cells[(home + near) & (CELLS - 1)];
            if let Some(content) = cell.try_take() {
                return Ok((content, &CELL));
            }
        }
        let mut content = shim::lock(&self.overflow.content);
        content
            .pop()
            .map(|found| (found, &OVERFLOW))
            .ok_or_else(|| {
                content.count += 1;
                PoolCell {
                    cell: self.cells[home & (CELLS - 1)].clone(),
                    overflow: self.overflow.clone(),
                }
            })
    }

    /// Empties and closes the pool. A box that is returned later is given back.
    pub(crate) fn close(&self) {
        // Dropped outside the mutexes, because a box may refer to the pool.
        let contents: Vec<_> = self.cells.iter().map(|cell| cell.close()).collect();
        let left_over = shim::lock(&self.overflow.content).boxes.take();
        drop(shim::lock(&self.overflow.trimming)); // I3
        drop((contents, left_over));
    }
}

impl<T: Send + 'static> ContextPool<T> {
    /// Returns what trims the pool if it has to be trimmed from now on: call it after [`PERIOD`]
    /// in the background, and as often as it says. To be asked for whenever a box has been made.
    pub(crate) fn trimmer(&self, made: &T) -> Option<Trimmer> {
        let mut content = shim::lock(&self.overflow.content);
        content.late += usize::from((self.overflow.is_late)(made));
        if content.is_scheduled || !content.has_surplus() {
            return None;
        }
        content.is_scheduled = true;
        let overflow = Arc::downgrade(&self.overflow);
        Some(Box::new(move |dropped_many| {
            overflow.upgrade()?.trim(dropped_many)
        }))
    }
}

impl<T> Overflow<T> {
    /// Drops boxes that were not needed since the last time. Returns how long to wait until the
    /// next time; `None` if there are few, or the pool is closed.
    fn trim(&self, dropped_many: &dyn Fn()) -> Option<Duration> {
        let _trimming = shim::lock(&self.trimming); // I3
        let mut dropped = self.trim_overflow();
        if dropped == STEP {
            return Some(SHORT_PERIOD);
        }
        dropped += self.trim_cells();
        dropped += self.trim_late();
        let mut content = shim::lock(&self.content);
        let has_surplus = content.has_surplus();
        let boxes = content.boxes.as_mut()?;
        let is_empty = boxes.is_empty();
        boxes.shrink_to(2 * boxes.len());
        content.fewest = boxes.len();
        content.is_scheduled = has_surplus;
        if content.dropped >= MANY {
            content.dropped = 0;
            drop(content);
            dropped_many();
        }
        let pause = match is_empty && dropped == 0 {
            true => LONG_PERIOD,
            false => PERIOD,
        };
        has_surplus.then_some(pause)
    }

    /// Drops boxes of the overflow that none took, the longest unused first and at most [`STEP`];
    /// returns their number.
    fn trim_overflow(&self) -> usize {
        let mut dropped = 0;
        while dropped < STEP {
            let mut content = shim::lock(&self.content);
            let count = content.fewest.min(content.surplus()).min(BATCH);
            let Some(boxes) = &mut content.boxes else {
                break;
            };
            let batch: Vec<_> = boxes.drain(..count).collect();
            content.fewest -= count;
            content.remove(count, self.late_among(&batch));
            drop(content);
            if count == 0 {
                break;
            }
            dropped += count;
            drop(batch);
        }
        dropped
    }

    /// Drops the boxes that lay in their cells since the last time; returns their number.
    fn trim_cells(&self) -> usize {
        let mut dropped = 0;
        let now = Instant::now();
        for cell in self.cells.iter() {
            if shim::lock(&self.content).surplus() == 0 {
                break;
            }
            if let Some(unused) = cell.take_unused(now) {
                let late = usize::from((self.is_late)(&unused));
                shim::lock(&self.content).remove(1, late);
                dropped += 1;
                drop(unused);
            }
        }
        dropped
    }

    /// Drops the late boxes that are in the pool, if few boxes exist; returns their number.
    fn trim_late(&self) -> usize {
        let mut content = shim::lock(&self.content);
        if content.late == 0 || content.count > Worker::EARLY_IDS as usize {
            return 0;
        }
        let Some(boxes) = &mut content.boxes else {
            return 0;
        };
        let all = boxes.drain(..);
        let (mut late, others): (VecDeque<_>, _) = all.partition(|content| (self.is_late)(content));
        *boxes = others;
        let left = boxes.len();
        content.fewest = content.fewest.min(left);
        drop(content);
        let of_cells = self.cells.iter();
        late.extend(of_cells.filter_map(|cell| cell.try_take_if(self.is_late)));
        shim::lock(&self.content).remove(late.len(), late.len());
        late.len()
    }

    fn late_among(&self, boxes: &[Box<T>]) -> usize {
        let late = boxes.iter().filter(|content| (self.is_late)(content));
        late.count()
    }
}

/// Returns `content` to its cell or the overflow; gives it back if the pool is closed. Calls
/// `passed` with each site on the way.
#[inline]
pub(crate) fn put<T>(
    content: Box<T>,
    cell: impl Fn(&T) -> &PoolCell<T>,
    passed: impl Fn(&T, &'static Site),
) -> Option<Box<T>> {
    let slot = cell(&content).cell.clone();
    let content = match slot.try_put(content, |content| passed(content, &CELL)) {
        Ok(()) => return None,
        Err(PutRefused::Closed(content)) => return Some(content),
        Err(PutRefused::Occupied(content)) => content,
    };
    passed(&content, &OVERFLOW);
    let overflow = cell(&content).overflow.clone();
    match &mut shim::lock(&overflow.content).boxes {
        Some(boxes) => {
            boxes.push_back(content);
            None
        }
        None => Some(content),
    }
}

/// A number that mostly differs between the stacks of threads that run at the same time.
#[inline]
fn near_stack() -> usize {
    let here = 0u8;
    let address = (&raw const here).addr();
    // Stacks lie megabytes apart; the calls of one thread stay within a few kilobytes.
    let stack = (address >> 16) as u64;
    (stack.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct Thing {
        number: u32,
        cell: PoolCell<Thing>,
    }

    fn take(pool: &ContextPool<Thing>, number: u32) -> Box<Thing> {
        match pool.take() {
            Ok((thing, _)) => thing,
            Err(cell) => Box::new(Thing { number, cell }),
        }
    }

    fn put_back(thing: Box<Thing>) -> Option<Box<Thing>> {
        put(thing, |thing| &thing.cell, |_, _| {})
    }

    #[test]
    fn a_returned_box_is_found_again_by_the_same_thread() {
        let pool = ContextPool::new(|_| false);
        assert!(put_back(take(&pool, 1)).is_none());
        assert_eq!(take(&pool, 2).number, 1);
        assert_eq!(take(&pool, 3).number, 3);
    }

    #[test]
    fn a_box_that_finds_its_cell_occupied_is_not_lost() {
        let pool = ContextPool::new(|_| false);
        let things: Vec<_> = (0..20).map(|number| take(&pool, number)).collect();
        things
            .into_iter()
            .for_each(|thing| assert!(put_back(thing).is_none()));
        let mut found: Vec<u32> = (0..20).map(|_| take(&pool, 99).number).collect();
        found.sort();
        assert_eq!(found, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_closed_pool_drops_its_boxes_and_gives_back_later_ones() {
        let pool = ContextPool::new(|_| false);
        let things: Vec<_> = (0..5).map(|number| take(&pool, number)).collect();
        let late = take(&pool, 9);
        let overflow = Arc::downgrade(&pool.overflow);
        things
            .into_iter()
            .for_each(|thing| assert!(put_back(thing).is_none()));
        pool.close();
        assert_eq!(
            overflow.strong_count(),
            2,
            "the pool itself, and the box that is out"
        );
        assert!(pool.overflow.trim(&|| {}).is_none());
        assert!(put_back(late).is_some());
        drop(pool);
        assert_eq!(overflow.strong_count(), 0);
    }

    /// Number of boxes that exist, counted by those who have them: the test, and the pool.
    fn existing(pool: &ContextPool<Thing>) -> usize {
        shim::lock(&pool.overflow.content).count
    }

    #[test]
    fn boxes_of_a_peak_are_dropped_when_they_were_not_needed_for_a_period() {
        let pool = ContextPool::new(|_| false);
        let few: Vec<_> = (0..KEPT as u32).map(|number| take(&pool, number)).collect();
        let one = take(&ContextPool::new(|_| false), 0);
        assert!(pool.trimmer(&one).is_none(), "so few stay");
        let peak: Vec<_> = (0..10_000).map(|number| take(&pool, number)).collect();
        let mut trim_once = pool.trimmer(&one).expect("there are many");
        let mut trim = || {
            loop {
                match trim_once(&|| {}) {
                    Some(SHORT_PERIOD) => {}
                    pause => return pause,
                }
            }
        };
        assert!(pool.trimmer(&one).is_none(), "scheduled once");
        assert_eq!(trim(), Some(LONG_PERIOD), "all are in use");
        for thing in few.into_iter().chain(peak) {
            assert!(put_back(thing).is_none());
        }
        assert_eq!(trim(), Some(PERIOD), "returned a moment ago");
        assert_eq!(existing(&pool), 10_000 + KEPT);
        // A thousand are needed again within the period.
        let needed: Vec<_> = (0..1_000).map(|_| take(&pool, 0)).collect();
        needed.into_iter().for_each(|thing| drop(put_back(thing)));
        assert_eq!(trim(), Some(PERIOD));
        let left = existing(&pool);
        assert!((990..=1_000 + KEPT).contains(&left), "{left}");
        while trim().is_some() {}
        assert_eq!(existing(&pool), KEPT);
        assert_eq!(
            shim::lock(&pool.overflow.content)
                .boxes
                .as_ref()
                .map(|boxes| boxes.capacity() < 1_000),
            Some(true)
        );
        // And from the beginning.
        let peak: Vec<_> = (0..100).map(|number| take(&pool, number)).collect();
        assert_eq!(existing(&pool), 100);
        assert!(pool.trimmer(&one).is_some());
        drop(peak);
    }

    /// As workers are numbered: by the smallest free numbers.
    #[test]
    fn late_boxes_of_a_peak_give_way_to_early_ones_even_if_they_are_used_all_the_time() {
        let pool = ContextPool::new(|thing: &Thing| thing.number >= Worker::EARLY_IDS);
        let trimmer = RefCell::new(None);
        let make = |number| {
            let thing = take(&pool, number);
            if let Some(found) = pool.trimmer(&thing) {
                *trimmer.borrow_mut() = Some(found);
            }
            thing
        };
        let mut peak: Vec<_> = (0..10_000).map(make).collect();
        // The last one is always in use, or in its cell.
        let mut used = peak.pop().expect("there are many");
        peak.into_iter().for_each(|thing| drop(put_back(thing)));
        let mut trim_once = trimmer.take().expect("there are many");
        let mut periods = 0;
        loop {
            match trim_once(&|| {}) {
                None => break,
                Some(SHORT_PERIOD) => {}
                Some(_) => periods += 1,
            }
            assert!(periods < 20, "late boxes stay");
            assert!(put_back(used).is_none());
            let again = trim_once(&|| {});
            used = take(&pool, 0);
            if again.is_none() {
                break;
            }
        }
        assert!(used.number < Worker::EARLY_IDS, "{} is late", used.number);
        let others = std::iter::from_fn(|| pool.take().ok());
        assert!(others.map(|(thing, _)| thing.number).max() < Some(Worker::EARLY_IDS));
        assert_eq!(shim::lock(&pool.overflow.content).late, 0);
    }

    /// Boxes of threads that are gone lie in cells.
    #[test]
    fn boxes_that_lie_in_cells_for_a_period_are_dropped() {
        let pool = ContextPool::new(|_| false);
        let thing = |at: usize| {
            let (cell, overflow) = (pool.cells[at].clone(), pool.overflow.clone());
            shim::lock(&pool.overflow.content).count += 1;
            Box::new(Thing {
                number: at as u32,
                cell: PoolCell { cell, overflow },
            })
        };
        (0..CELLS).for_each(|at| assert!(put_back(thing(at)).is_none()));
        pool.overflow.trim(&|| {});
        assert_eq!(existing(&pool), CELLS);
        let used = take(&pool, 0);
        let number = used.number;
        assert!(put_back(used).is_none());
        pool.overflow.trim(&|| {});
        assert_eq!(existing(&pool), KEPT);
        assert!(
            pool.cells[number as usize].try_take().is_some(),
            "it was used"
        );
    }
}
