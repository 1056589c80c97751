//! Table directory: from a table to its tree.
//!
//! The directory is a tree itself, of table 0, with its root at page 1. Its rows lead from a table
//! to the table's *partition page*. That page has pairs of a low key and a root: one pair, until
//! tables are partitioned.
//!
//! ```text
//!   row of the directory   key: table, u64, big-endian; value: partition page, u64, little-endian
//! ```
//!
//! A table is created by one SMO: its row, its partition page, its empty root, and their bits.
//! Partition page and root may be [relocated](super::relocate) later. A table that was dropped may
//! leave a row with the partition page 0, which stands for none ([`free`](super::free)).

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use foxton_sync::shim::{self, AtomicU64, Mutex};
use foxton_sync::worker::Worker;
use smallvec::smallvec;

use super::descend::TreeTarget;
use super::error::TreeError;
use super::read::{ScanDirection, ScanRange};
use super::smo::{LatchedPages, child_row};
use super::visit::{PageList, Step, TreeAttempt, TreeVisit};
use super::{PagedTree, SharedRoot};
use crate::paged::PageId;
use crate::paged::page::{KeyBytes, LeafRows, OperationError, PageKind, PageOperation, RowFlags};
use crate::paged::pool::{BufferPool, PageRequest, PageView};
use crate::paged::space::DIRECTORY_PAGE;

/// Value of the row of a table that has no tree any more.
pub(super) const NO_TREE: [u8; 8] = [0; 8];

/// The trees of a page file.
#[derive(Debug)]
pub struct TableDirectory {
    tree: Arc<PagedTree>,
    /// Numbers of the roots of the trees that were opened (I9 of the tree).
    roots: Mutex<HashMap<u64, SharedRoot>>,
}

impl TableDirectory {
    /// Returns the directory of the file of `pool`.
    pub fn new(pool: Arc<BufferPool>) -> TableDirectory {
        TableDirectory {
            tree: Arc::new(PagedTree::new(pool, 0, DIRECTORY_PAGE)),
            roots: Mutex::new(HashMap::new()),
        }
    }

    /// Returns the tree of `table`, whose root was `root` at some moment. Only a tree that was
    /// opened before can have been relocated since, and then the number of its root is known here.
    fn tree_of(&self, table: u64, root: PageId) -> PagedTree {
        // Site: "page translation": once when a tree is opened.
        let mut roots = shim::lock(&self.roots);
        let shared = roots.entry(table);
        let shared = shared.or_insert_with(|| Arc::new(AtomicU64::new(root.0)));
        PagedTree::sharing(self.tree.pool.clone(), table, shared.clone())
    }

    /// Returns the tree of the directory itself.
    pub fn tree(&self) -> &Arc<PagedTree> {
        &self.tree
    }

    /// Returns the tree of `table`, or `None` if there is none. Waits for pages.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged.
    pub fn open(&self, worker: &Worker, table: u64) -> Result<Option<PagedTree>, TreeError> {
        let mut visit = self.tree.visit(worker);
        visit.run(|visit| self.attempt_open(visit, table))
    }

    /// Returns the numbers of the tables in `range` that have a row: a tree, or what is left of one
    /// that was [freed](Self::free_last). Waits for pages, but not for those of the trees.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged.
    pub fn numbers(
        &self,
        worker: &Worker,
        range: RangeInclusive<u64>,
    ) -> Result<Vec<u64>, TreeError> {
        let (mut numbers, mut rows) = (Vec::new(), LeafRows::default());
        let (mut from, end) = (*range.start(), range.end().to_be_bytes());
        let mut is_excluded = false;
        loop {
            let key = from.to_be_bytes();
            let part = ScanRange {
                direction: ScanDirection::Forward,
                from: Some(&key),
                is_excluded,
                end: Some(&end),
                most: usize::MAX,
            };
            let mut visit = self.tree.visit(worker);
            visit.run(|visit| visit.scan(part, &mut rows))?;
            for row in 0..rows.len() {
                from = table_of(rows.key(row))?;
                match range.contains(&from) {
                    true => numbers.push(from),
                    false => return Ok(numbers),
                }
            }
            if rows.is_empty() {
                return Ok(numbers);
            }
            is_excluded = true;
        }
    }

    /// Returns all trees but its own. Waits for pages.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged.
    pub fn trees(&self, worker: &Worker) -> Result<Vec<PagedTree>, TreeError> {
        let (mut trees, mut rows) = (Vec::new(), LeafRows::default());
        let mut last: Option<[u8; 8]> = None;
        loop {
            let range = ScanRange {
                direction: ScanDirection::Forward,
                from: last.as_ref().map(|key| &key[..]),
                is_excluded: last.is_some(),
                end: None,
                most: usize::MAX,
            };
            let mut visit = self.tree.visit(worker);
            visit.run(|visit| visit.scan(range, &mut rows))?;
            if rows.is_empty() {
                return Ok(trees);
            }
            for row in 0..rows.len() {
                let table = table_of(rows.key(row))?;
                last = Some(table.to_be_bytes());
                trees.extend(self.open(worker, table)?);
            }
        }
    }

    /// Returns the tree of `table`, which is created if there is none. Waits for pages.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged, there is no free page, or the change cannot be
    /// logged.
    ///
    /// # Panics
    ///
    /// If `table` is 0.
    pub fn create(&self, worker: &Worker, table: u64) -> Result<PagedTree, TreeError> {
        let mut visit = self.tree.visit(worker);
        visit.run(|visit| self.attempt_create(visit, table))
    }

    /// Attempts to return the tree of `table`, or `None` if there is none. `visit` is a visit of
    /// the directory's [tree](Self::tree).
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn attempt_open(
        &self,
        visit: &mut TreeVisit<'_>,
        table: u64,
    ) -> Result<TreeAttempt<Option<PagedTree>>, TreeError> {
        let tree = |root| self.tree_of(table, root);
        Ok(match visit.root_of(table)? {
            TreeAttempt::Done(root) => TreeAttempt::Done(root.map(tree)),
            TreeAttempt::Wait => TreeAttempt::Wait,
        })
    }

    /// Attempts to return the tree of `table`, which is created if there is none. `visit` is a
    /// visit of the directory's [tree](Self::tree).
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    ///
    /// # Panics
    ///
    /// If `table` is 0.
    pub fn attempt_create(
        &self,
        visit: &mut TreeVisit<'_>,
        table: u64,
    ) -> Result<TreeAttempt<PagedTree>, TreeError> {
        assert!(table > 0, "table 0 is the directory");
        loop {
            match self.attempt_open(visit, table)? {
                TreeAttempt::Done(Some(tree)) => return Ok(TreeAttempt::Done(tree)),
                TreeAttempt::Done(None) => {}
                TreeAttempt::Wait => return Ok(TreeAttempt::Wait),
            }
            if visit.create_table(table)? == TreeAttempt::Wait {
                return Ok(TreeAttempt::Wait);
            }
        }
    }
}

/// Returns the table that the key of a row stands for.
fn table_of(key: &[u8]) -> Result<u64, TreeError> {
    let number = <[u8; 8]>::try_from(key);
    let table = number.map(u64::from_be_bytes);
    table.map_err(|_| TreeError::field(DIRECTORY_PAGE, "table", 0))
}

impl<'t> TreeVisit<'t> {
    /// Attempts to find the root of a table.
    fn root_of(&mut self, table: u64) -> Result<TreeAttempt<Option<PageId>>, TreeError> {
        self.attempt(|visit| {
            let Some((_, _, partitions)) = visit.partitions_of(table)? else {
                return Ok(None);
            };
            let (page, root) = (partitions.page(), partitions.read().child(0));
            let root = root.filter(|root| root.tablespace() == 0);
            match (root, partitions.is_valid()) {
                (_, false) => visit.busy(page),
                (Some(root), true) => Ok(Some(root)),
                (None, true) => Err(TreeError::field(page, "partitions", table).into()),
            }
        })
    }

    /// Returns the leaf and the slot with the row of a table, and its partition page. `None`: there
    /// is no such table. The caller validates what it reads.
    pub(super) fn partitions_of(
        &mut self,
        table: u64,
    ) -> Step<Option<(PageView<'t>, usize, PageView<'t>)>> {
        let key = table.to_be_bytes();
        let leaf = self.descend(TreeTarget::At(&key), 0)?;
        let page = leaf.read();
        let row = page.search(&key).ok().map(|slot| (slot, page.value(slot)));
        if !leaf.is_valid() {
            return self.busy(leaf.page());
        }
        let Some((slot, number)) = row else {
            return Ok(None);
        };
        let Ok(number) = <[u8; 8]>::try_from(&number[..]) else {
            return Err(TreeError::field(leaf.page(), "partition page", table).into());
        };
        if number == NO_TREE {
            return Ok(None);
        }
        self.want(leaf.page());
        let partitions = PageId(u64::from_le_bytes(number));
        if partitions.tablespace() != 0 {
            return Err(TreeError::field(leaf.page(), "partition page", table).into());
        }
        let view = self.page(partitions)?;
        let page = view.read();
        let is_right = page.kind() == Some(PageKind::Partitions) && page.table() == table;
        // It may have been relocated. While the leaf was as it is, the page was the table's.
        match (is_right, view.is_valid() && leaf.is_valid()) {
            (_, false) => self.busy(partitions),
            (true, true) => Ok(Some((leaf, slot, view))),
            (false, true) => Err(TreeError::field(partitions, "partitions", table).into()),
        }
    }

    /// Attempts to create a table. Returns false if it is there.
    fn create_table(&mut self, table: u64) -> Result<TreeAttempt<bool>, TreeError> {
        let key = table.to_be_bytes();
        self.attempt(|visit| {
            let leaf = visit.descend(TreeTarget::At(&key), 0)?;
            visit.allocate(2, leaf.page())?;
            let (partitions, root) = (visit.allocations[0].page(), visit.allocations[1].page());
            let number = partitions.0.to_le_bytes();
            let place = leaf.read().search(&key);
            let emptied = place
                .ok()
                .filter(|slot| leaf.read().value(*slot)[..] == NO_TREE);
            let insert = match emptied {
                Some(slot) => PageOperation::Replace {
                    slot: slot as u16,
                    value: &number,
                },
                None => PageOperation::Insert {
                    slot: place.unwrap_or_else(|slot| slot) as u16,
                    key: &key,
                    value: &number,
                    reserved: 8,
                    flags: RowFlags::NONE,
                },
            };
            let checked = insert.check(&leaf.read(), leaf.page());
            let lsn = leaf.read().lsn();
            if !leaf.is_valid() {
                return visit.busy(leaf.page());
            }
            match checked {
                _ if place.is_ok() && emptied.is_none() => return Ok(false),
                Ok(()) => {}
                Err(OperationError::Full(_)) => {
                    visit.split(&key, 0, (leaf.page(), lsn))?;
                    return visit.busy(leaf.page());
                }
                Err(OperationError::Mismatch(field)) => {
                    return Err(TreeError::field(leaf.page(), field, table).into());
                }
            }
            let mut pages: PageList = smallvec![PageRequest::read(leaf.page())];
            pages.extend(visit.new_pages(2));
            visit.require(pages)?;
            let space = visit.log_space(visit.tree.size().bytes())?;
            let leaf_writer = visit.try_lock(&leaf)?;
            let format = |kind, rows| PageOperation::Format {
                kind,
                level: 0,
                table,
                low: KeyBytes::new(),
                high: None,
                rows,
            };
            let mut latched: LatchedPages<'_, '_> = smallvec![(leaf_writer, insert)];
            let list = format(PageKind::Partitions, vec![child_row(b"", root)]);
            latched.push((visit.lock(partitions), list));
            latched.push((visit.lock(root), format(PageKind::Leaf, Vec::new())));
            visit.finish_structure(space, latched, 2)?;
            Ok(true)
        })
    }
}
