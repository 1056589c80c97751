//! Detached visits: what a visit keeps between two attempts, without its borrows.
//!
//! A thread keeps its visit and waits. An operation that is attempted anew from its beginning, or
//! whose task yields, cannot: so it detaches the visit, waits, and attaches it again. A detached
//! visit keeps its pages in their frames, as the visit did.

use std::mem;
use std::sync::Arc;

use foxton_sync::worker::Worker;
use smallvec::SmallVec;

use super::PagedTree;
use super::error::TreeError;
use super::visit::{Need, PendingSplit, TreeVisit};
use crate::paged::PageId;
use crate::paged::pool::DetachedReservation;

/// A visit without its borrows.
#[derive(Debug)]
pub struct DetachedVisit {
    tree: Arc<PagedTree>,
    reservation: Option<DetachedReservation>,
    /// Free pages that the operation has claimed.
    allocations: SmallVec<[PageId; 2]>,
    need: Need,
    pending_split: Option<Box<PendingSplit>>,
    lost: Option<PageId>,
    is_log_full: bool,
}

impl TreeVisit<'_> {
    /// Detaches the visit from its borrows, for a wait. `tree` is its tree.
    ///
    /// # Panics
    ///
    /// If it is another tree.
    pub fn detach(self, tree: &Arc<PagedTree>) -> DetachedVisit {
        assert!(std::ptr::eq(self.tree, &**tree), "a visit of another tree");
        let allocations = self.allocations.into_iter();
        DetachedVisit {
            tree: tree.clone(),
            reservation: self.reservation.map(|kept| kept.detach(&tree.pool)),
            allocations: allocations.map(|claim| claim.detach()).collect(),
            need: self.need,
            pending_split: self.pending_split,
            lost: self.lost,
            is_log_full: self.is_log_full,
        }
    }
}

impl DetachedVisit {
    /// True if it is a visit of `tree`.
    pub fn is_of(&self, tree: &PagedTree) -> bool {
        std::ptr::eq(tree, &*self.tree)
    }

    /// Attaches the visit to borrows.
    ///
    /// # Panics
    ///
    /// If it is a visit of another tree.
    pub fn attach<'t>(mut self, tree: &'t PagedTree, worker: &'t Worker) -> TreeVisit<'t> {
        assert!(self.is_of(tree), "a visit of another tree");
        let pool = &*tree.pool;
        let mut visit = tree.visit(worker);
        visit.reservation = self
            .reservation
            .take()
            .map(|kept| Box::new(kept.attach(pool)));
        let allocations = mem::take(&mut self.allocations);
        visit.allocations = allocations
            .into_iter()
            .map(|page| pool.space().attach(page))
            .collect();
        visit.need = mem::take(&mut self.need);
        visit.pending_split = self.pending_split.take();
        visit.lost = self.lost;
        visit.is_log_full = self.is_log_full;
        visit
    }

    /// Gives up the pages that it keeps in their frames.
    pub fn release(&mut self) {
        self.reservation = None;
    }

    /// As [`TreeVisit::wait`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn wait(self, worker: &Worker) -> Result<DetachedVisit, TreeError> {
        let tree = self.tree.clone();
        let mut visit = self.attach(&tree, worker);
        visit.wait()?;
        Ok(visit.detach(&tree))
    }
}

impl Drop for DetachedVisit {
    fn drop(&mut self) {
        for page in self.allocations.drain(..) {
            self.tree.pool.space().release(page);
        }
    }
}
