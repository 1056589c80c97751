//! Compaction: a page of a tree takes rows from its right neighbour until it is full.
//!
//! ```text
//!        [ .. | a | c | e | .. ]                [ .. | a | d | e | .. ]
//!             /    |    \         compaction          /    |    \
//!        [a, c) [c, e)  [e, ..)                  [a, d) [d, e)  [e, ..)
//! ```
//!
//! If the rows of both fit one page, the pages are [merged](super::merge). Otherwise a leaf takes
//! as many rows as fit: one record for the parent, which gets another separator, and both leaves.
//! A walk from the first key to the last leaves full pages behind, but for the last child of each
//! parent. So a file whose pages were left half empty can be cut by about that half.
//!
//! A thread that is asked to shrink the file does this. Others merge only sparse pages, because the
//! next row splits a full one.

use smallvec::smallvec;

use super::descend::TreeTarget;
use super::error::TreeError;
use super::merge::Reason;
use super::smo::{LatchedPages, common, format_bytes};
use super::visit::{Step, TreeAttempt, TreeVisit};
use crate::paged::page::{
    KeyBytes, OperationError, OwnedRow, PageKind, PageOperation, PageWords, SlottedPage,
};
use crate::paged::pool::PageView;

/// Result of an attempt to compact a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// True if the page has more rows now.
    pub has_changed: bool,
    /// The first key behind the page; `None` if there is none.
    pub next: Option<KeyBytes>,
}

/// True if rows of so many bytes fill a page well, and leave it some space.
pub(super) fn fills(page: &SlottedPage<impl PageWords>, bytes: usize) -> bool {
    let all = page.used_bytes() + page.free_bytes();
    bytes * 32 <= all * 31
}

/// The rows of two leaves, divided anew.
struct ShiftedRows {
    separator: KeyBytes,
    left: Vec<OwnedRow>,
    right: Vec<OwnedRow>,
}

impl ShiftedRows {
    /// Divides the rows so that the left leaf is full. `None`: it gets no row more.
    fn of(
        left: &SlottedPage<impl PageWords>,
        right: &SlottedPage<impl PageWords>,
        size: usize,
    ) -> Option<ShiftedRows> {
        let (low, mut rows) = (left.low_fence(), left.all_rows());
        let before = rows.len();
        rows.extend(right.all_rows());
        let separator = |cut: usize| {
            let (last, first) = (&rows[cut - 1].key, &rows[cut].key);
            &first[..common(last, first) + 1]
        };
        let fits = |cut: &usize| {
            let high = separator(*cut);
            let prefix = common(&low, high);
            let bytes = rows[..*cut]
                .iter()
                .map(|row| 16 + row.key.len() - prefix + row.reserved_bytes);
            let header = (64 + low.len() + high.len()).next_multiple_of(8);
            (header + bytes.sum::<usize>()) * 32 <= size * 31
        };
        // An empty leaf has no separator before its rows, and is the only one of its tree.
        let cut = (before.max(1) + 1..rows.len()).take_while(fits).last()?;
        let separator = KeyBytes::from_slice(separator(cut));
        let right = rows.split_off(cut);
        Some(ShiftedRows {
            separator,
            left: rows,
            right,
        })
    }
}

impl<'t> TreeVisit<'t> {
    /// Attempts to fill the page of `key` in level `level` from its right neighbour under the same
    /// parent. It changes no row, so locks do not matter.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged, or the change cannot be logged.
    pub fn compact(&mut self, key: &[u8], level: u8) -> Result<TreeAttempt<Compaction>, TreeError> {
        self.is_scan = false;
        self.attempt(|visit| {
            let top = visit.root()?;
            let (page, levels) = (top.page(), top.read().level());
            if !top.is_valid() {
                return visit.busy(page);
            }
            if level >= levels {
                let (has_changed, next) = (false, None);
                return Ok(Compaction { has_changed, next });
            }
            let parent = visit.descend(TreeTarget::At(key), level + 1)?;
            let content = parent.read();
            let (slot, count) = (content.child_of(key).0, content.slot_count());
            let next = match slot + 1 < count {
                true => Some(content.key(slot + 1)),
                false => content.high_fence(),
            };
            if !parent.is_valid() {
                return visit.busy(parent.page());
            }
            visit.want(parent.page());
            let has_changed = slot + 1 < count && visit.compact_pair(&parent, slot)?;
            Ok(Compaction { has_changed, next })
        })
    }

    fn compact_pair(&mut self, parent: &PageView<'t>, slot: usize) -> Step<bool> {
        self.admit_change(None)?;
        let left = self.child_at(parent, slot)?;
        self.want(left.page());
        let right = self.child_at(parent, slot + 1)?;
        self.want(right.page());
        let (one, other) = (left.read(), right.read());
        let (bytes, free) = (one.used_bytes() + other.used_bytes(), one.free_bytes());
        let (fit, is_leaf) = (fills(&one, bytes), one.level() == 0);
        let most = format_bytes(&one) + format_bytes(&other) + format_bytes(&parent.read());
        if !left.is_valid() || !right.is_valid() {
            return self.busy(left.page());
        }
        let most = most.min(12 * self.tree.size().bytes());
        if fit && self.merge_pair(parent, slot, Reason::Compaction)? {
            return Ok(true);
        }
        // A branch has many children, and a leaf that is nearly full gets no row more.
        if !is_leaf || free * 16 < self.tree.size().bytes() {
            return Ok(false);
        }
        self.shift_rows(parent, slot, [&left, &right], most)
    }

    /// Moves rows of the right leaf to the left one, as many as fit.
    fn shift_rows(
        &mut self,
        parent: &PageView<'t>,
        slot: usize,
        leaves: [&PageView<'t>; 2],
        most: usize,
    ) -> Step<bool> {
        let size = self.tree.size();
        let space = self.log_space(most + size.max_key_bytes())?;
        let parent = self.try_lock(parent)?;
        let left = self.try_lock(leaves[0])?;
        let right = self.try_lock(leaves[1])?;
        let Some(shifted) = ShiftedRows::of(&left.read(), &right.read(), size.bytes()) else {
            return Ok(false);
        };
        let ShiftedRows {
            separator,
            left: left_rows,
            right: right_rows,
        } = shifted;
        let table = self.tree.table;
        let leaf = |low: &[u8], high, rows| PageOperation::Format {
            kind: PageKind::Leaf,
            level: 0,
            table,
            low: KeyBytes::from_slice(low),
            high,
            rows,
        };
        let fuller = leaf(&left.read().low_fence(), Some(separator.clone()), left_rows);
        let emptier = leaf(&separator, right.read().high_fence(), right_rows);
        let renamed = {
            let content = parent.read();
            let mut rows = content.all_rows();
            rows[slot + 1].key = separator;
            PageOperation::Format {
                kind: PageKind::Branch,
                level: content.level(),
                table,
                low: content.low_fence(),
                high: content.high_fence(),
                rows,
            }
        };
        let mut latched: LatchedPages<'_, '_> =
            smallvec![(parent, renamed), (left, fuller), (right, emptier)];
        for (writer, operation) in &latched {
            match operation.check(&writer.read(), writer.page()) {
                Ok(()) => {}
                // A longer separator or a shorter prefix.
                Err(OperationError::Full(_)) => return Ok(false),
                Err(OperationError::Mismatch(field)) => {
                    return Err(TreeError::field(writer.page(), field, table).into());
                }
            }
        }
        self.change_structure(space, &mut latched)?;
        Ok(true)
    }
}
