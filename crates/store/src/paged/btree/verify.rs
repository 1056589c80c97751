//! Check of a whole tree: every page, every fence, every key.

use std::collections::BTreeSet;

use foxton_sync::worker::Worker;

use super::PagedTree;
use super::error::TreeError;
use crate::paged::PageId;
use crate::paged::page::{KeyBytes, PageKind};
use crate::paged::pool::PageRequest;

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeSummary {
    /// Number of rows, ghosts included.
    pub rows: u64,
    /// Number of ghosts.
    pub ghosts: u64,
    /// Number of levels; 1 if the root is a leaf.
    pub levels: u8,
    /// The pages.
    pub pages: BTreeSet<PageId>,
}

/// A page that is to be checked, as its parent describes it.
struct ExpectedPage {
    page: PageId,
    /// `None` for the root.
    level: Option<u8>,
    low: KeyBytes,
    high: Option<KeyBytes>,
}

impl PagedTree {
    /// Checks that pages, fences and separators agree, and that each page is in one place. Slow,
    /// and only while no thread changes the tree; for tests and simulation.
    ///
    /// # Errors
    ///
    /// The first fault that was found.
    ///
    /// # Panics
    ///
    /// If a thread changes a page meanwhile.
    pub fn verify(&self, worker: &Worker) -> Result<TreeSummary, TreeError> {
        let (mut summary, root) = (TreeSummary::default(), self.root());
        let mut stack = vec![ExpectedPage {
            page: root,
            level: None,
            low: KeyBytes::new(),
            high: None,
        }];
        while let Some(expected) = stack.pop() {
            let page = expected.page;
            let fault = |field| TreeError::field(page, field, self.table);
            let reservation = self.pool.reserve(worker, &[PageRequest::read(page)])?;
            let view = reservation.pages()[0].view_now(worker);
            let content = view.read();
            let checked = content.verify();
            checked.map_err(|fault| {
                TreeError::Damaged(crate::paged::page::PageError { page, fault })
            })?;
            let level = content.level();
            let kind = match level {
                0 => PageKind::Leaf,
                _ => PageKind::Branch,
            };
            let is_root_leaf = level == 0 && page == root;
            let checks = [
                ("number", content.page() == page),
                ("table", content.table() == self.table),
                ("kind", content.kind() == Some(kind)),
                (
                    "level",
                    expected.level.is_none_or(|expected| expected == level),
                ),
                ("low fence", content.has_low_fence(&expected.low)),
                (
                    "high fence",
                    content.has_high_fence(expected.high.as_deref()),
                ),
                ("slots", is_root_leaf || content.slot_count() > 0),
                ("second place", summary.pages.insert(page)),
            ];
            if let Some((field, _)) = checks.iter().find(|(_, is_right)| !is_right) {
                return Err(fault(field));
            }
            if expected.level.is_none() {
                summary.levels = level + 1;
            }
            if level == 0 {
                summary.rows += content.slot_count() as u64;
                summary.ghosts += content.ghost_count() as u64;
                continue;
            }
            for slot in 0..content.slot_count() {
                let high = match slot + 1 < content.slot_count() {
                    true => Some(content.key(slot + 1)),
                    false => expected.high.clone(),
                };
                stack.push(ExpectedPage {
                    page: content.child(slot).ok_or_else(|| fault("child"))?,
                    level: Some(level - 1),
                    low: content.key(slot),
                    high,
                });
            }
        }
        Ok(summary)
    }
}
