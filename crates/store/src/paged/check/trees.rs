//! Walk through the trees, from the directory down. Each page is compared with what the page that
//! leads to it says. A page that is not as expected is not followed.

use std::mem;

use super::{PageCheck, PageDefect};
use crate::paged::PageId;
use crate::paged::page::{KeyBytes, PageFault, PageKind, SlottedPage};
use crate::paged::space::{DIRECTORY_PAGE, PageFileError};

/// A page of a tree, as the page that leads to it describes it.
struct ExpectedNode {
    page: PageId,
    parent: PageId,
    /// `None` for a root.
    level: Option<u8>,
    low: KeyBytes,
    high: Option<KeyBytes>,
}

impl PageCheck<'_> {
    /// Walks through the tree of the directory, and through all trees that it leads to.
    pub(super) fn walk_directory(&mut self) -> Result<(), PageFileError> {
        let mut tables = Vec::new();
        let mut strange = Vec::new();
        let directory = ExpectedNode {
            page: DIRECTORY_PAGE,
            parent: PageId(0),
            level: None,
            low: KeyBytes::new(),
            high: None,
        };
        self.walk(0, directory, &mut |page, leaf| {
            for slot in 0..leaf.slot_count() {
                let table = <[u8; 8]>::try_from(&leaf.key(slot)[..]);
                match (table, leaf.child(slot)) {
                    // The table was dropped.
                    (Ok(_), Some(PageId(0))) => {}
                    (Ok(table), Some(partitions)) => {
                        tables.push((u64::from_be_bytes(table), page, partitions));
                    }
                    _ => strange.push((page, slot)),
                }
            }
        })?;
        for (page, slot) in strange {
            let (field, value) = ("row of the directory", 0);
            let fault = PageFault::Slot { slot, field, value };
            self.found(page, PageDefect::Damaged(fault));
            self.is_incomplete = true;
        }
        for (table, leaf, partitions) in tables {
            let mut rows = 0;
            for root in self.roots(table, leaf, partitions)? {
                rows += self.walk(table, root, &mut |_, _| {})?;
            }
            self.report.trees.push((table, rows));
        }
        Ok(())
    }

    /// Returns the roots of a table.
    fn roots(
        &mut self,
        table: u64,
        leaf: PageId,
        partitions: PageId,
    ) -> Result<Vec<ExpectedNode>, PageFileError> {
        let Some(image) = self.read_child(leaf, partitions, None)? else {
            return Ok(Vec::new());
        };
        let content = SlottedPage::new(&image[..]);
        let is_as_expected = self.expect(
            (partitions, leaf),
            &[
                ("kind", content.kind() == Some(PageKind::Partitions)),
                ("table", content.table() == table),
                ("slots", content.slot_count() > 0),
            ],
        );
        let mut roots = Vec::new();
        if is_as_expected {
            self.report.in_trees += 1;
            self.push_children(partitions, &content, None, None, &mut roots);
        } else {
            self.is_incomplete = true;
        }
        self.image = image;
        Ok(roots)
    }

    /// Walks through a tree, and shows each leaf to `leaf`. Returns the number of rows.
    fn walk(
        &mut self,
        table: u64,
        root: ExpectedNode,
        leaf: &mut dyn FnMut(PageId, &SlottedPage<&[u8]>),
    ) -> Result<u64, PageFileError> {
        let mut rows = 0;
        let mut stack = vec![root];
        while let Some(node) = stack.pop() {
            let ExpectedNode {
                page,
                parent,
                level,
                low,
                high,
            } = node;
            let Some(image) = self.read_child(parent, page, level)? else {
                continue;
            };
            let content = SlottedPage::new(&image[..]);
            let found = content.level();
            let kind = match found {
                0 => PageKind::Leaf,
                _ => PageKind::Branch,
            };
            let is_root_leaf = found == 0 && level.is_none();
            let is_as_expected = self.expect(
                (page, parent),
                &[
                    ("kind", content.kind() == Some(kind)),
                    ("table", content.table() == table),
                    ("level", level.is_none_or(|level| level == found)),
                    ("low fence", content.has_low_fence(&low)),
                    ("high fence", content.has_high_fence(high.as_deref())),
                    ("slots", is_root_leaf || content.slot_count() > 0),
                ],
            );
            match is_as_expected {
                false => self.is_incomplete |= level != Some(0) || found > 0,
                true if found == 0 => {
                    rows += (content.slot_count() - content.ghost_count()) as u64;
                    leaf(page, &content);
                }
                true => {
                    self.push_children(page, &content, Some(found - 1), high, &mut stack);
                }
            }
            self.report.in_trees += u64::from(is_as_expected);
            self.image = image;
        }
        Ok(rows)
    }

    /// Reads a page to which `parent` leads, and takes the buffer. `None`: it is reported. Unless
    /// it is a leaf, the pages below it have no known place then; but below a page with two places
    /// they have the first one.
    fn read_child(
        &mut self,
        parent: PageId,
        page: PageId,
        level: Option<u8>,
    ) -> Result<Option<Vec<u8>>, PageFileError> {
        if page.tablespace() != 0 || page.number() >= self.end {
            let (field, value) = ("child", page.0);
            let fault = PageFault::Field { field, value };
            self.found(parent, PageDefect::Damaged(fault));
            self.is_incomplete |= level != Some(0);
            return Ok(None);
        }
        if !self.see(page) {
            self.found(page, PageDefect::SecondPlace { parent });
            return Ok(None);
        }
        let is_read = self.read(page)?;
        self.is_incomplete |= !is_read && level != Some(0);
        Ok(is_read.then(|| mem::take(&mut self.image)))
    }

    /// Reports the fields that are not as the parent says. Returns true if all are.
    fn expect(
        &mut self,
        (page, parent): (PageId, PageId),
        fields: &[(&'static str, bool)],
    ) -> bool {
        for (field, _) in fields.iter().filter(|(_, is_right)| !is_right) {
            self.found(page, PageDefect::NotExpected { field, parent });
        }
        fields.iter().all(|(_, is_right)| *is_right)
    }

    /// Adds the children of a page, the last one first.
    fn push_children(
        &mut self,
        page: PageId,
        content: &SlottedPage<&[u8]>,
        level: Option<u8>,
        last_high: Option<KeyBytes>,
        nodes: &mut Vec<ExpectedNode>,
    ) {
        let mut high = last_high;
        for slot in (0..content.slot_count()).rev() {
            let low = content.key(slot);
            // The structure of the page was checked, so each slot has a child.
            let child = content.child(slot).unwrap_or(PageId(u64::MAX));
            nodes.push(ExpectedNode {
                page: child,
                parent: page,
                level,
                low: low.clone(),
                high: high.replace(low),
            });
        }
    }
}
