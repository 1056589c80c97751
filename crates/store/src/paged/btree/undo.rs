//! Undo of a row's change, where the row is now.
//!
//! Undo may descend, because the row may have moved. It neither splits nor allocates: the space of
//! each earlier value is where the row is (I4 of the page). It makes a page dirty however many are,
//! because the transaction holds locks that others wait for.

use super::TreeVisit;
use super::descend::TreeTarget;
use super::error::TreeError;
use super::visit::TreeAttempt;
use crate::paged::page_log::{LoggedChange, PageEntry, RowUndo};

impl TreeVisit<'_> {
    /// Attempts to undo a change of a row of this tree. `log` logs the change that undoes it, under
    /// the latch of its page, at most once. If it returns `None`, nothing is changed.
    ///
    /// # Errors
    ///
    /// If a page is damaged, or has no such row, or no space for it. Then nothing was logged.
    pub fn undo(
        &mut self,
        undo: &RowUndo<'_>,
        log: &mut dyn FnMut(&PageEntry<'_>) -> Option<LoggedChange>,
    ) -> Result<TreeAttempt<()>, TreeError> {
        self.is_scan = false;
        self.attempt(|visit| {
            let leaf = visit.descend(TreeTarget::At(undo.key), 0)?;
            let (page, content) = (leaf.page(), leaf.read());
            let previous = content.lsn();
            let slot = content.search(undo.key).ok();
            let operation = slot.map(|slot| undo.operation(slot as u16));
            let checked = operation.map(|operation| {
                let checked = operation.check(&content, page);
                checked.map(|()| operation)
            });
            if !leaf.is_valid() {
                return visit.busy(page);
            }
            let field = match checked {
                Some(Ok(operation)) => {
                    visit.want(page);
                    let space = visit.log_space_of_undo(visit.tree.size().max_row_bytes())?;
                    let mut writer = visit.try_lock(&leaf)?;
                    let entry = PageEntry {
                        page,
                        previous,
                        operation,
                    };
                    if let Some(logged) = log(&entry) {
                        writer.change(logged, |content| entry.operation.apply(content, page));
                    }
                    drop(space);
                    return Ok(());
                }
                Some(Err(_)) => "space for undo",
                None => "row that is undone",
            };
            Err(TreeError::field(page, field, previous.bytes()).into())
        })
    }
}
