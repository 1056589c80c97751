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
//! `cells`, each a [`BoxSlot`]; `overflow` for boxes whose cell is occupied.
//!
//! # Invariants
//!
//! * I1  No thread uses a box that is in the pool.
//! * I2  A closed cell or overflow accepts nothing any more. A box in the pool may keep the pool
//!   alive; closing breaks that cycle, and nothing forms it again afterwards.

use std::fmt;

use foxton_sync::cache_line::CachePadded;
use foxton_sync::shim::{self, Arc, Mutex};
use foxton_sync::site::{Component, Pattern, Site};

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

// Returning a box clones the `Arc` of its cell. The count lies beside the cell, so it is as private
// to the thread as the cell is.
type Cell<T> = CachePadded<BoxSlot<T>>;
type Overflow<T> = Mutex<Option<Vec<Box<T>>>>;

/// See the [module](self).
pub(crate) struct ContextPool<T> {
    cells: Box<[Arc<Cell<T>>]>,
    overflow: Arc<Overflow<T>>,
}

/// Where a box is returned to.
pub(crate) struct PoolCell<T> {
    cell: Arc<Cell<T>>,
    overflow: Arc<Overflow<T>>,
}

impl<T> fmt::Debug for ContextPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextPool").finish_non_exhaustive()
    }
}

impl<T> ContextPool<T> {
    pub(crate) fn new() -> ContextPool<T> {
        let cell = |_| Arc::new(CachePadded::new(BoxSlot::new()));
        ContextPool {
            cells: (0..CELLS).map(cell).collect(),
            overflow: Arc::new(Mutex::new(Some(Vec::new()))),
        }
    }

    /// A pool that is closed, without cells. Nothing may be taken from it.
    pub(crate) fn closed() -> ContextPool<T> {
        ContextPool {
            cells: Box::default(),
            overflow: Arc::new(Mutex::new(None)),
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
        let left_over = shim::lock(&self.overflow).as_mut().and_then(Vec::pop);
        left_over
            .map(|content| (content, &OVERFLOW))
            .ok_or_else(|| PoolCell {
                cell: self.cells[home & (CELLS - 1)].clone(),
                overflow: self.overflow.clone(),
            })
    }

    /// Empties and closes the pool. A box that is returned later is given back.
    pub(crate) fn close(&self) {
        // Dropped outside the mutexes, because a box may refer to the pool.
        let contents: Vec<_> = self.cells.iter().map(|cell| cell.close()).collect();
        let left_over = shim::lock(&self.overflow).take();
        drop((contents, left_over));
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
    match &mut *shim::lock(&overflow) {
        Some(contents) => {
            contents.push(content);
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
        let pool = ContextPool::new();
        assert!(put_back(take(&pool, 1)).is_none());
        assert_eq!(take(&pool, 2).number, 1);
        assert_eq!(take(&pool, 3).number, 3);
    }

    #[test]
    fn a_box_that_finds_its_cell_occupied_is_not_lost() {
        let pool = ContextPool::new();
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
        let pool = ContextPool::new();
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
        assert!(put_back(late).is_some());
        drop(pool);
        assert_eq!(overflow.strong_count(), 0);
    }
}
