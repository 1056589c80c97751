//! Structure modifications: splits, and growth of the root.
//!
//! A split needs space for a separator in the parent. If there may be too little, the parent is
//! split first, and the split is begun again. Each is one record and holds four or five latches.

use foxton_log::Lsn;
use smallvec::{SmallVec, smallvec};

use super::descend::TreeTarget;
use super::error::TreeError;
use super::visit::{PageList, PendingSplit, Step, TreeStop, TreeVisit};
use crate::failpoint;
use crate::paged::PageId;
use crate::paged::page::{
    KeyBytes, OwnedRow, PageKind, PageOperation, PageWords, RowFlags, SlottedPage,
};
use crate::paged::pool::{PageRequest, PageView, PageWriter};
use crate::paged::reserve::MAX_RESERVED;

/// Bytes of a child in a branch, beside its key: the slot and the page number.
pub(super) const CHILD_BYTES: usize = 16 + 8;

/// The latched pages of an SMO, each with its change.
pub(super) type LatchedPages<'w, 'a> =
    SmallVec<[(PageWriter<'w>, PageOperation<'a>); MAX_RESERVED]>;

/// A page in two parts.
struct Halves {
    separator: KeyBytes,
    /// Slot with which the right part begins.
    slot: usize,
    right: Vec<OwnedRow>,
}

impl Halves {
    /// Divides a page in which there is too little space for `key`. `None`: it has one slot.
    fn of(page: &SlottedPage<impl PageWords>, key: &[u8]) -> Option<Halves> {
        let insert_at = match page.search(key) {
            Ok(slot) if page.level() > 0 => slot + 1,
            Ok(slot) | Err(slot) => slot,
        };
        let slot = page.split_point(insert_at)?;
        Some(Halves {
            separator: page.separator(slot),
            slot,
            right: page.owned_rows(slot..page.slot_count()),
        })
    }
}

/// Returns the row of a branch that leads to `page`.
pub(super) fn child_row(key: &[u8], page: PageId) -> OwnedRow {
    OwnedRow {
        key: KeyBytes::from_slice(key),
        value: page.0.to_le_bytes().to_vec(),
        reserved_bytes: 8,
        flags: RowFlags::NONE,
    }
}

impl<'t> TreeVisit<'t> {
    /// Splits the page of level `level` for `key`, or one above it if that is too full. `full` is
    /// the page that was found to be full, with its LSN. If another thread changes it first,
    /// nothing is split: it may have space now, or a single slot.
    pub(super) fn split(&mut self, key: &[u8], level: u8, full: (PageId, Lsn)) -> Step<()> {
        self.pending_split = Some(Box::new(PendingSplit {
            key: KeyBytes::from_slice(key),
            level,
            full,
        }));
        self.continue_split()
    }

    /// Goes on with a split that waited. An attempt begins with it, because the pages of the split
    /// are all that the visit keeps: a descent to the leaf would give them up again.
    pub(super) fn continue_split(&mut self) -> Step<()> {
        let Some(PendingSplit { key, level, full }) = self.pending_split.as_deref().cloned() else {
            return Ok(());
        };
        self.want_nothing();
        let node = self.descend(TreeTarget::At(&key), level)?;
        let now = (node.page(), node.read().lsn());
        if !node.is_valid() {
            return self.busy(node.page());
        }
        if now != full {
            // Another thread was here, so the page need not be full any more.
            self.pending_split = None;
            return Ok(());
        }
        if self.is_root(&node)? {
            return self.grow_root(&node, &key);
        }
        self.want(node.page());
        let parent = self.descend(TreeTarget::At(&key), level + 1)?;
        let content = parent.read();
        let child = content.child_of(&key).1;
        let has_space = content.free_bytes() >= CHILD_BYTES + self.tree.size().max_key_bytes();
        let now = (parent.page(), content.lsn());
        if !parent.is_valid() || child != Some(node.page()) {
            return self.busy(parent.page());
        }
        match has_space {
            true => self.split_below(&parent, &node, &key),
            false => self.split(&key, level + 1, now),
        }
    }

    /// True if the page is the root, at the version of the view (I9).
    pub(super) fn is_root(&mut self, view: &PageView<'t>) -> Step<bool> {
        let is_root = view.page() == self.tree.root();
        match view.is_valid() {
            true => Ok(is_root),
            false => self.busy(view.page()),
        }
    }

    fn split_below(&mut self, parent: &PageView<'t>, node: &PageView<'t>, key: &[u8]) -> Step<()> {
        self.allocate(1, node.page())?;
        let right = self.allocations[0].page();
        let mut pages: PageList = smallvec![
            PageRequest::read(parent.page()),
            PageRequest::read(node.page()),
        ];
        pages.extend(self.new_pages(1));
        self.require(pages)?;
        let space = self.log_space(2 * self.tree.size().bytes())?;
        let parent_writer = self.try_lock(parent)?;
        let node_writer = self.try_lock(node)?;
        let content = node_writer.read();
        let halves = Halves::of(&content, key).ok_or_else(|| one_slot(node.page()))?;
        let format = PageOperation::Format {
            kind: kind(&content),
            level: content.level(),
            table: self.tree.table,
            low: halves.separator.clone(),
            high: content.high_fence(),
            rows: self.trimmed(halves.right),
        };
        let truncate = PageOperation::Truncate {
            slot: halves.slot as u16,
            high: halves.separator.clone(),
        };
        let number = right.0.to_le_bytes();
        let place = parent_writer.read().search(&halves.separator);
        let insert = PageOperation::Insert {
            // A separator that is there already is refused by the check.
            slot: place.unwrap_or_else(|slot| slot) as u16,
            key: &halves.separator,
            value: &number,
            reserved: 8,
            flags: RowFlags::NONE,
        };
        let mut latched: LatchedPages<'_, '_> =
            smallvec![(parent_writer, insert), (node_writer, truncate)];
        latched.push((self.lock(right), format));
        self.finish_structure(space, latched, 1)
    }

    /// Moves the content of the root to two new children. The root becomes their parent.
    fn grow_root(&mut self, root: &PageView<'t>, key: &[u8]) -> Step<()> {
        self.allocate(2, root.page())?;
        let (left, right) = (self.allocations[0].page(), self.allocations[1].page());
        let mut pages: PageList = smallvec![PageRequest::read(root.page())];
        pages.extend(self.new_pages(2));
        self.require(pages)?;
        let space = self.log_space(2 * self.tree.size().bytes())?;
        let root_writer = self.try_lock(root)?;
        let content = root_writer.read();
        let halves = Halves::of(&content, key).ok_or_else(|| one_slot(root.page()))?;
        let left_rows = self.trimmed(content.owned_rows(0..halves.slot));
        let (kind, level) = (kind(&content), content.level());
        let half = |low: &[u8], high: Option<KeyBytes>, rows| PageOperation::Format {
            kind,
            level,
            table: self.tree.table,
            low: KeyBytes::from_slice(low),
            high,
            rows,
        };
        let left_half = half(b"", Some(halves.separator.clone()), left_rows);
        let right_half = half(&halves.separator, None, self.trimmed(halves.right));
        let parent = PageOperation::Format {
            kind: PageKind::Branch,
            level: level + 1,
            table: self.tree.table,
            low: KeyBytes::new(),
            high: None,
            rows: vec![child_row(b"", left), child_row(&halves.separator, right)],
        };
        let mut latched: LatchedPages<'_, '_> = smallvec![(root_writer, parent)];
        latched.push((self.lock(left), left_half));
        latched.push((self.lock(right), right_half));
        self.finish_structure(space, latched, 2)
    }

    /// Returns the rows as they are. An injected fault gives away their reserved bytes.
    fn trimmed(&self, mut rows: Vec<OwnedRow>) -> Vec<OwnedRow> {
        let failpoints = self.worker.failpoints();
        if failpoints.misbehaves(&failpoint::RESERVE_GIVEN_AWAY) {
            let rows = rows.iter_mut();
            rows.for_each(|row| row.reserved_bytes = row.value.len());
        }
        rows
    }

    /// Returns the pages that an SMO with so many new pages needs for them: they and their maps.
    pub(super) fn new_pages(&self, count: usize) -> PageList {
        let pages = self.allocations[..count].iter().map(|new| new.page());
        let mut list: PageList = pages.clone().map(PageRequest::create).collect();
        for map in pages.map(|page| self.tree.size().map_position(page).map) {
            if list.iter().all(|request| request.page != map) {
                list.push(PageRequest::read(map));
            }
        }
        list
    }

    /// Latches the maps of the first `count` claimed pages, makes the SMO, and ends the claims
    /// (I7).
    pub(super) fn finish_structure(
        &mut self,
        space: crate::paged::page_log::LogSpace<'_>,
        mut latched: LatchedPages<'t, '_>,
        count: usize,
    ) -> Step<()> {
        let size = self.tree.size();
        let positions = self.allocations[..count].iter();
        let mut positions: SmallVec<[_; 2]> =
            positions.map(|new| size.map_position(new.page())).collect();
        // Maps are latched in the order of their numbers.
        positions.sort_unstable_by_key(|position| (position.map, position.index));
        for same_map in positions.chunk_by(|one, other| one.map == other.map) {
            let operation = PageOperation::MapPages {
                indexes: same_map.iter().map(|position| position.index).collect(),
                is_used: true,
            };
            latched.push((self.lock(same_map[0].map), operation));
        }
        if self
            .worker
            .failpoints()
            .misbehaves(&failpoint::ALLOCATION_APART)
        {
            let maps = latched.len()
                - positions
                    .chunk_by(|one, other| one.map == other.map)
                    .count();
            let mut maps: LatchedPages<'_, '_> = latched.drain(maps..).collect();
            let apart = self.log_space(0)?;
            self.change_structure(apart, &mut maps)?;
        }
        self.change_structure(space, &mut latched)?;
        drop(latched);
        self.pending_split = None;
        self.allocations.drain(..count).for_each(|new| new.keep());
        Ok(())
    }
}

pub(super) fn kind(page: &SlottedPage<impl PageWords>) -> PageKind {
    match page.level() {
        0 => PageKind::Leaf,
        _ => PageKind::Branch,
    }
}

/// Number of bytes with which both begin.
pub(super) fn common(one: &[u8], other: &[u8]) -> usize {
    let same = one
        .iter()
        .zip(other)
        .take_while(|(one, other)| one == other);
    same.count()
}

/// Returns how many bytes the record of a page's format has, at most: each row has its whole key,
/// and in the page only what follows the prefix of the fences.
pub(super) fn format_bytes(page: &SlottedPage<impl PageWords>) -> usize {
    let low = page.low_fence();
    let prefix = page.high_fence().map_or(0, |high| common(&low, &high));
    page.used_bytes() + page.slot_count() * prefix + 2 * low.len() + 64
}

/// A page with one slot is never too full, unless it is damaged.
fn one_slot(page: PageId) -> TreeStop {
    TreeError::field(page, "slots of a full page", 1).into()
}
