//! Rows of no transaction: stored and erased by structure modifications, which nothing undoes.
//!
//! Parts of large values are such rows, and they may fill a page. So a leaf that has no space for
//! one is divided in the record that stores the row. A split of its own would leave a leaf without
//! rows, if a leaf has to end just before the new row or behind it.

use smallvec::smallvec;

use super::descend::TreeTarget;
use super::error::TreeError;
use super::smo::{CHILD_BYTES, LatchedPages, child_row};
use super::visit::{PageList, Step, TreeAttempt, TreeVisit};
use super::write::{PurgeReply, slot16};
use crate::paged::page::{
    KeyBytes, OperationError, OwnedRow, PageKind, PageOperation, PageWords, RowFlags, SlottedPage,
};
use crate::paged::pool::{PageRequest, PageView};

/// Bytes of a page beside a row of its own: header, fences, slot and key.
pub(in crate::paged) const BESIDE_PART: usize = 128;

/// The rows of a leaf and a new one, divided.
struct DividedRows {
    left: Vec<OwnedRow>,
    right: Vec<OwnedRow>,
    /// True if the new row is one of the left ones.
    is_left: bool,
}

impl DividedRows {
    /// Divides the rows of a leaf and a new one, so that each part fits a page of `size` bytes.
    /// `None`: none of both ways to divide them beside the new row does.
    fn of(page: &SlottedPage<impl PageWords>, new: OwnedRow, size: usize) -> Option<DividedRows> {
        let mut rows = page.all_rows();
        let at = rows.partition_point(|row| row.key < new.key);
        rows.insert(at, new);
        let (low, high) = (page.low_fence(), page.high_fence());
        let fits = |low: &[u8], high: &[u8], rows: &[OwnedRow]| {
            let header = (64 + low.len() + high.len()).next_multiple_of(8);
            let bytes = rows
                .iter()
                .map(|row| 16 + row.key.len() + row.reserved_bytes);
            !rows.is_empty() && header + bytes.sum::<usize>() <= size
        };
        // Rows that ascend leave full leaves behind.
        let cut = [at, at + 1].into_iter().find(|cut| {
            let (left, right) = rows.split_at(*cut);
            let separator = right.first().map_or(&b""[..], |row| &row.key);
            fits(&low, separator, left) && fits(separator, high.as_deref().unwrap_or(b""), right)
        })?;
        let right = rows.split_off(cut);
        let (left, is_left) = (rows, at < cut);
        Some(DividedRows {
            left,
            right,
            is_left,
        })
    }
}

impl<'t> TreeVisit<'t> {
    /// Attempts to store a row that no transaction changes. Returns false if the key is there.
    ///
    /// # Errors
    ///
    /// If a page is damaged, there is no free page, or the change cannot be logged.
    ///
    /// # Panics
    ///
    /// If the value is longer than [`max_part_bytes`], or the key than 16 bytes.
    ///
    /// [`max_part_bytes`]: crate::paged::values::max_part_bytes
    pub fn store(&mut self, key: &[u8], value: &[u8]) -> Result<TreeAttempt<bool>, TreeError> {
        let most = self.tree.size().bytes() - BESIDE_PART;
        assert!(
            key.len() <= 16 && value.len() <= most,
            "a row that fits a page"
        );
        self.is_scan = false;
        self.attempt(|visit| {
            let leaf = visit.descend(TreeTarget::At(key), 0)?;
            let (page, content) = (leaf.page(), leaf.read());
            let (found, lsn) = (content.search(key), content.lsn());
            let operation = PageOperation::Insert {
                slot: slot16(found.unwrap_or_else(|slot| slot)),
                key,
                value,
                reserved: slot16(value.len()),
                flags: RowFlags::NONE,
            };
            let checked = operation.check(&content, page);
            if !leaf.is_valid() {
                return visit.busy(page);
            }
            match (found, checked) {
                (Ok(_), _) => Ok(false),
                (Err(_), Ok(())) => {
                    let space = visit.log_space(visit.tree.size().bytes())?;
                    let writer = visit.try_lock(&leaf)?;
                    visit.change_structure(space, &mut [(writer, operation)])?;
                    Ok(true)
                }
                (Err(_), Err(OperationError::Mismatch(field))) => {
                    Err(TreeError::field(page, field, lsn.bytes()).into())
                }
                (Err(_), Err(OperationError::Full(_))) => {
                    visit.store_beside(&leaf, key, value)?;
                    Ok(true)
                }
            }
        })
    }

    /// Attempts to remove a row that no transaction has locked or will look for.
    ///
    /// # Errors
    ///
    /// If a page is damaged, or the change cannot be logged.
    pub fn erase(&mut self, key: &[u8]) -> Result<TreeAttempt<PurgeReply>, TreeError> {
        self.remove_row(key, |_| true)
    }

    /// Attempts to make a row a ghost that no transaction has locked or will look for, and that
    /// cannot be [erased](Self::erase) because it is the only one of its leaf.
    ///
    /// # Errors
    ///
    /// As [`erase`](Self::erase).
    pub fn hide(&mut self, key: &[u8]) -> Result<TreeAttempt<()>, TreeError> {
        self.is_scan = false;
        self.attempt(|visit| {
            let leaf = visit.descend(TreeTarget::At(key), 0)?;
            let page = leaf.read();
            let slot = page.search(key).ok();
            let found = slot.and_then(|slot| Some((slot, page.row(slot)?.flags)));
            if !leaf.is_valid() {
                return visit.busy(leaf.page());
            }
            let Some((slot, flags)) = found.filter(|(_, flags)| !flags.has(RowFlags::GHOST)) else {
                return Ok(());
            };
            let operation = PageOperation::SetFlags {
                slot: slot16(slot),
                flags: flags.with(RowFlags::GHOST),
            };
            visit.admit_change(Some(&leaf))?;
            let space = visit.log_space(0)?;
            let writer = visit.try_lock(&leaf)?;
            Ok(visit.change_structure(space, &mut [(writer, operation)])?)
        })
    }

    /// Stores a row for which its leaf has no space.
    fn store_beside(&mut self, leaf: &PageView<'t>, key: &[u8], value: &[u8]) -> Step<()> {
        let (size, is_root) = (self.tree.size().bytes(), self.is_root(leaf)?);
        self.want(leaf.page());
        let parent = match is_root {
            true => None,
            false => Some(self.parent_with_space(leaf, key)?),
        };
        let count = 1 + usize::from(is_root);
        self.allocate(count, leaf.page())?;
        let known = parent.iter().map(PageView::page).chain([leaf.page()]);
        let mut pages: PageList = known.map(PageRequest::read).collect();
        pages.extend(self.new_pages(count));
        self.require(pages)?;
        let space = self.log_space(2 * size)?;
        let parent = match &parent {
            Some(parent) => Some(self.try_lock(parent)?),
            None => None,
        };
        let writer = self.try_lock(leaf)?;
        let (content, table) = (writer.read(), self.tree.table);
        let new = OwnedRow {
            key: KeyBytes::from_slice(key),
            value: value.to_vec(),
            reserved_bytes: value.len(),
            flags: RowFlags::NONE,
        };
        let Some(rows) = DividedRows::of(&content, new, size) else {
            // There are rows on both sides, so there are two.
            let lsn = content.lsn();
            drop((parent, writer));
            self.split(key, 0, (leaf.page(), lsn))?;
            return self.busy(leaf.page());
        };
        let separator = rows.right[0].key.clone();
        let (low, high) = (content.low_fence(), content.high_fence());
        let part = |low, high, rows| PageOperation::Format {
            kind: PageKind::Leaf,
            level: 0,
            table,
            low,
            high,
            rows,
        };
        let slot = slot16(rows.left.len());
        let left = match rows.is_left || is_root {
            true => part(low, Some(separator.clone()), rows.left),
            false => PageOperation::Truncate {
                slot,
                high: separator.clone(),
            },
        };
        let right = part(separator.clone(), high, rows.right);
        let new_page = self.allocations[count - 1].page();
        let number = new_page.0.to_le_bytes();
        let mut latched: LatchedPages<'_, '_> = smallvec![];
        match parent {
            Some(parent) => {
                let place = parent.read().search(&separator);
                let insert = PageOperation::Insert {
                    // A separator that is there already is refused by the check.
                    slot: slot16(place.unwrap_or_else(|slot| slot)),
                    key: &separator,
                    value: &number,
                    reserved: 8,
                    flags: RowFlags::NONE,
                };
                latched.push((parent, insert));
                latched.push((writer, left));
                latched.push((self.lock(new_page), right));
                self.finish_structure(space, latched, count)
            }
            None => {
                let left_page = self.allocations[0].page();
                let root = PageOperation::Format {
                    kind: PageKind::Branch,
                    level: 1,
                    table,
                    low: KeyBytes::new(),
                    high: None,
                    rows: vec![child_row(b"", left_page), child_row(&separator, new_page)],
                };
                latched.push((writer, root));
                latched.push((self.lock(left_page), left));
                latched.push((self.lock(new_page), right));
                self.finish_structure(space, latched, count)
            }
        }
    }

    /// Returns the parent of `leaf`, which has space for another child; splits it otherwise.
    pub(super) fn parent_with_space(
        &mut self,
        leaf: &PageView<'t>,
        key: &[u8],
    ) -> Step<PageView<'t>> {
        let parent = self.descend(TreeTarget::At(key), 1)?;
        let content = parent.read();
        let child = content.child_of(key).1;
        let has_space = content.free_bytes() >= CHILD_BYTES + self.tree.size().max_key_bytes();
        let now = (parent.page(), content.lsn());
        if !parent.is_valid() || child != Some(leaf.page()) {
            return self.busy(parent.page());
        }
        if !has_space {
            self.split(key, 1, now)?;
            return self.busy(parent.page());
        }
        Ok(parent)
    }
}
