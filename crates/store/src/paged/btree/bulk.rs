//! Bulk load: rows that come in the order of their keys, as full leaves at the right end of a tree.
//!
//! ```text
//!     parent [ .. | a ]                      parent [ .. | a | k ]
//!                   |            append                    |   |
//!        [a, ∞): f, g                        [a, k): f .. j    [k, ∞): k
//! ```
//!
//! Rows are collected until the next one would make their leaf too full. Then the last leaf gets
//! all of them and its upper fence, and a new last leaf begins with the next row: one record, as
//! that of a split. So each row is logged once, in the image of its leaf, and the prefix that both
//! fences share is not stored. Parents that are full are split at their right end, which leaves
//! the left part full. Leaves are filled to fifteen sixteenths, so a few rows find space later.
//!
//! # Who may load
//!
//! A load is of no transaction, so nothing undoes it. The caller has the whole tree locked, or it
//! is the only one that knows it, and it makes sure that the tree of an unfinished load is not used
//! and becomes empty again. A tree is whole after each record, and may be looked at and compacted.
//! If a [compaction](super::compact) has moved rows of the last leaf, the load goes on with what it
//! finds there.

use smallvec::smallvec;

use super::descend::TreeTarget;
use super::error::TreeError;
use super::smo::{LatchedPages, child_row, common};
use super::visit::{PageList, Step, TreeAttempt, TreeVisit};
use super::write::slot16;
use crate::paged::page::{
    KeyBytes, OperationError, OwnedRow, PageKind, PageOperation, PageSize, PageWords, RowFlags,
    SlottedPage,
};
use crate::paged::pool::{PageRequest, PageView};

/// Rows of a load that are not in a full leaf yet.
#[derive(Debug)]
pub struct BulkLoad {
    size: PageSize,
    /// Lower fence of the last leaf.
    low: KeyBytes,
    /// The rows that the last leaf will have, and the next ones.
    rows: Vec<OwnedRow>,
    /// Number of `rows`, from the first on, that the last leaf has already.
    stored: usize,
    /// Number of `rows` that were looked at, and their bytes with slots and whole keys.
    seen: usize,
    seen_bytes: usize,
    /// Number of rows that fill the last leaf, once it is certain.
    full: Option<usize>,
}

impl BulkLoad {
    fn new(size: PageSize) -> BulkLoad {
        BulkLoad {
            size,
            low: KeyBytes::new(),
            rows: Vec::new(),
            stored: 0,
            seen: 0,
            seen_bytes: 0,
            full: None,
        }
    }

    /// Adds a row behind all others. If the load [is due](Self::is_due) afterwards, a leaf is
    /// appended before the next row comes.
    ///
    /// # Panics
    ///
    /// If the key is not above the last one, or the row is too long for a leaf.
    pub fn push(&mut self, key: &[u8], value: Vec<u8>, flags: RowFlags) {
        let is_above = self.rows.last().is_none_or(|last| &last.key[..] < key);
        assert!(is_above, "keys of a load ascend");
        let is_short = key.len() <= self.size.max_key_bytes()
            && key.len() + value.len() <= self.size.max_row_bytes();
        assert!(is_short, "a row of a load fits a leaf");
        self.rows.push(OwnedRow {
            key: KeyBytes::from_slice(key),
            reserved_bytes: value.len(),
            value,
            flags,
        });
        self.look_on();
    }

    /// True if a leaf is to be appended.
    pub fn is_due(&self) -> bool {
        self.full.is_some()
    }

    /// Looks at rows until it is certain which of them fill the leaf.
    fn look_on(&mut self) {
        while self.full.is_none() && self.seen < self.rows.len() {
            let before = (self.seen, self.seen_bytes);
            if before.0 > 1 && !self.fit(before) {
                self.full = Some(before.0 - 1);
                return;
            }
            let row = &self.rows[self.seen];
            self.seen_bytes += row_bytes(row);
            self.seen += 1;
        }
    }

    /// True if the first `count` rows, of so many bytes, are not too many for a leaf that ends
    /// before the next one.
    fn fit(&self, (count, bytes): (usize, usize)) -> bool {
        let next = &self.rows[count].key;
        let most = self.size.bytes() * 15 / 16;
        let header = |high: usize| (64 + self.low.len() + high).next_multiple_of(8);
        if header(next.len()) + bytes <= most {
            return true;
        }
        let high = self.separator(count);
        header(high.len()) + bytes - count * common(&self.low, high) <= most
    }

    /// Returns the shortest key that divides the first `count` rows from the next one.
    fn separator(&self, count: usize) -> &[u8] {
        let (last, next) = (&self.rows[count - 1].key, &self.rows[count].key);
        &next[..common(last, next) + 1]
    }

    /// Returns the number of rows that fill a leaf, if all would not fit the last one. Its fences
    /// share no prefix.
    fn overflow(&self) -> Option<usize> {
        let header = (64 + self.low.len()).next_multiple_of(8);
        let fits = header + self.seen_bytes <= self.size.bytes();
        (!fits).then(|| self.rows.len() - 1)
    }

    /// Begins the next leaf, which has the first row.
    fn begin_leaf(&mut self, low: KeyBytes, stored: usize) {
        self.low = low;
        self.stored = stored;
        (self.seen, self.seen_bytes, self.full) = (0, 0, None);
        self.look_on();
    }

    /// True if the leaf has what the load knows of it.
    fn knows(&self, leaf: &SlottedPage<impl PageWords>) -> bool {
        let Some(last) = self.stored.checked_sub(1) else {
            // Ghosts of rows that were there before are given up.
            return leaf.slot_count() == leaf.ghost_count() && leaf.has_low_fence(b"");
        };
        leaf.has_low_fence(&self.low)
            && leaf.slot_count() == self.stored
            && leaf.has_key(last, &self.rows[last].key)
    }

    /// Goes on with the rows that the last leaf has now.
    fn adopt(&mut self, low: KeyBytes, mut found: Vec<OwnedRow>) {
        let stored = found.len();
        let is_new = |row: &OwnedRow| found.last().is_none_or(|last| last.key < row.key);
        let known = self.rows.iter().position(is_new);
        found.extend(self.rows.drain(known.unwrap_or(self.rows.len())..));
        self.rows = found;
        self.begin_leaf(low, stored);
    }

    /// Returns how many bytes a record with the first `count` rows has, at most.
    fn record_bytes(&self, count: usize) -> usize {
        let rows: usize = self.rows[..count].iter().map(row_bytes).sum();
        rows + 3 * self.size.max_key_bytes() + self.size.max_row_bytes()
    }
}

/// Bytes of a row in a leaf, with its whole key, and at most as many as in a record.
fn row_bytes(row: &OwnedRow) -> usize {
    16 + row.key.len() + row.reserved_bytes
}

impl<'t> TreeVisit<'t> {
    /// Attempts to begin a load. `None`: the tree has rows, or ghosts in several leaves.
    ///
    /// # Errors
    ///
    /// If a page is damaged.
    pub fn begin_load(&mut self) -> Result<TreeAttempt<Option<BulkLoad>>, TreeError> {
        self.is_scan = false;
        self.attempt(|visit| {
            let leaf = visit.descend_from_top(TreeTarget::Below(None), 0)?;
            let load = BulkLoad::new(visit.tree.size());
            let is_empty = load.knows(&leaf.read());
            match leaf.is_valid() {
                true => Ok(is_empty.then_some(load)),
                false => visit.busy(leaf.page()),
            }
        })
    }

    /// Attempts to append a leaf of a load, if it [is due](BulkLoad::is_due). After an error the
    /// load cannot go on.
    ///
    /// # Errors
    ///
    /// If a page is damaged, there is no free page, or the change cannot be logged.
    pub fn append_leaf(&mut self, load: &mut BulkLoad) -> Result<TreeAttempt<()>, TreeError> {
        self.is_scan = false;
        self.attempt(|visit| {
            let leaf = visit.last_leaf(load)?;
            match load.full {
                Some(count) => visit.append_full(&leaf, load, count),
                None => Ok(()),
            }
        })
    }

    /// Attempts to store all rows of a load, those that do not fill a leaf too. Others may come
    /// afterwards.
    ///
    /// # Errors
    ///
    /// As [`append_leaf`](Self::append_leaf).
    pub fn store_last_leaf(&mut self, load: &mut BulkLoad) -> Result<TreeAttempt<()>, TreeError> {
        self.is_scan = false;
        self.attempt(|visit| {
            let leaf = visit.last_leaf(load)?;
            if load.stored == load.rows.len() {
                return Ok(());
            }
            if let Some(count) = load.full.or_else(|| load.overflow()) {
                visit.append_full(&leaf, load, count)?;
                // Another round stores the others.
                return visit.busy(leaf.page());
            }
            visit.want(leaf.page());
            visit.admit_change(Some(&leaf))?;
            let space = visit.log_space(load.record_bytes(load.rows.len()))?;
            let writer = visit.try_lock(&leaf)?;
            let format = visit.leaf_format(load.low.clone(), None, load.rows.clone());
            visit.change_structure(space, &mut [(writer, format)])?;
            load.stored = load.rows.len();
            Ok(())
        })
    }

    /// Attempts to insert a row that no transaction changes, anywhere. Returns false if the key is
    /// there. It has no undo, so the rules for a load hold.
    ///
    /// # Errors
    ///
    /// As [`append_leaf`](Self::append_leaf), and if the row is too long.
    pub fn add_row(&mut self, key: &[u8], value: &[u8]) -> Result<TreeAttempt<bool>, TreeError> {
        self.check_row(key, value.len())?;
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
                    visit.want(page);
                    visit.admit_change(Some(&leaf))?;
                    let space = visit.log_space(visit.tree.size().max_row_bytes())?;
                    let writer = visit.try_lock(&leaf)?;
                    visit.change_structure(space, &mut [(writer, operation)])?;
                    Ok(true)
                }
                (Err(_), Err(OperationError::Mismatch(field))) => {
                    Err(TreeError::field(page, field, lsn.bytes()).into())
                }
                (Err(_), Err(OperationError::Full(_))) => {
                    visit.admit_change(None)?;
                    visit.split(key, 0, (page, lsn))?;
                    visit.busy(page)
                }
            }
        })
    }

    /// Returns the last leaf, of which the load knows the rows.
    fn last_leaf(&mut self, load: &mut BulkLoad) -> Step<PageView<'t>> {
        let leaf = self.descend_from_top(TreeTarget::Below(None), 0)?;
        let content = leaf.read();
        let found = match load.knows(&content) {
            true => None,
            false => Some((content.low_fence(), content.all_rows())),
        };
        if !leaf.is_valid() {
            return self.busy(leaf.page());
        }
        if let Some((low, rows)) = found {
            load.adopt(low, rows);
        }
        Ok(leaf)
    }

    fn leaf_format(
        &self,
        low: KeyBytes,
        high: Option<KeyBytes>,
        rows: Vec<OwnedRow>,
    ) -> PageOperation<'static> {
        PageOperation::Format {
            kind: PageKind::Leaf,
            level: 0,
            table: self.tree.table,
            low,
            high,
            rows,
        }
    }

    /// Gives the last leaf its rows and its upper fence, and begins the next one.
    fn append_full(&mut self, leaf: &PageView<'t>, load: &mut BulkLoad, count: usize) -> Step<()> {
        let is_root = self.is_root(leaf)?;
        self.want(leaf.page());
        self.admit_change(None)?;
        let parent = match is_root {
            true => None,
            false => Some(self.parent_with_space(leaf, &load.rows[0].key)?),
        };
        let new = 1 + usize::from(is_root);
        self.allocate(new, leaf.page())?;
        let known = parent.iter().map(PageView::page).chain([leaf.page()]);
        let mut pages: PageList = known.map(PageRequest::read).collect();
        pages.extend(self.new_pages(new));
        self.require(pages)?;
        let space = self.log_space(load.record_bytes(count))?;
        let parent = match &parent {
            Some(parent) => Some(self.try_lock(parent)?),
            None => None,
        };
        let writer = self.try_lock(leaf)?;
        let separator = KeyBytes::from_slice(load.separator(count));
        let next = load.rows[count].clone();
        let rows = load.rows.drain(..count).collect();
        let full = self.leaf_format(load.low.clone(), Some(separator.clone()), rows);
        let next = self.leaf_format(separator.clone(), None, vec![next]);
        let last = self.allocations[new - 1].page();
        let number = last.0.to_le_bytes();
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
                latched.push((writer, full));
                latched.push((self.lock(last), next));
                self.finish_structure(space, latched, new)?;
            }
            None => {
                let left = self.allocations[0].page();
                let root = PageOperation::Format {
                    kind: PageKind::Branch,
                    level: 1,
                    table: self.tree.table,
                    low: KeyBytes::new(),
                    high: None,
                    rows: vec![child_row(b"", left), child_row(&separator, last)],
                };
                latched.push((writer, root));
                latched.push((self.lock(left), full));
                latched.push((self.lock(last), next));
                self.finish_structure(space, latched, new)?;
            }
        }
        load.begin_leaf(separator, 1);
        Ok(())
    }
}
