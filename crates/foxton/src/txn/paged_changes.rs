//! Undo of changes of paged tables: that of the last ones in memory, and older ones in the log.
//!
//! A transaction may change more than fits memory. Each change is in the log together with its
//! undo. So a transaction keeps the undo of its last changes, and forgets older undo once it has
//! more than [`MOST_BYTES`]. A rollback that comes to forgotten undo reads it from the log, in
//! batches. The read is a wait between two attempts, as that for a missing page: it holds no latch
//! and no fix, and a task yields meanwhile.
//!
//! Without a log all undo stays in memory.
//!
//! # State
//!
//! ```text
//!   first change                                                        last change
//!   |─────────── count - recent.len() ───────────|────── recent.len() ──────|
//!                                      older ────┘
//! ```
//!
//! # Invariants
//!
//! * I1  `count` is the number of changes that the transaction has logged and not undone. Its last
//!   ones are `recent`, in order.
//! * I2  If `recent` has fewer, `older` is where the undo of the change before them is in the log.
//! * I3  After [`forget`](PagedChanges::forget) undo takes at most [`MOST_BYTES`], if there is a
//!   log. A batch that is read has at most half of that, and one change.

use std::ops::Range;

use foxton_store::paged::page::RowFlags;
use foxton_store::paged::page_log::{RowBefore, RowUndo};
use foxton_store::paged::recovery::{PageTransaction, UndoBatch, UndoCursor, UndoPosition};

/// Maximum number of bytes of undo that a transaction with a log keeps.
const MOST_BYTES: usize = 64 << 10;
/// Bytes that stay when older undo is forgotten, and bytes that are read at once.
pub(crate) const BATCH_BYTES: usize = MOST_BYTES / 2;
const DECODED: &str = "it was decoded, or encoded here";

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct PagedChanges {
    recent: Vec<RecentUndo>,
    /// Encoded undo of `recent`.
    bytes: Vec<u8>,
    older: Option<UndoCursor>,
    count: usize,
    /// True if there was a change, even if all are undone.
    has_begun: bool,
}

/// A change whose undo is in memory.
#[derive(Debug)]
struct RecentUndo {
    /// Index of the table among the cached tables.
    table: usize,
    start: usize,
    end: usize,
    /// The change in the log; `None` if the database has no log.
    position: Option<UndoPosition>,
}

/// The change that is undone next.
pub(super) enum NextUndo<'a> {
    Recent {
        /// Place of the change among those in memory.
        at: usize,
        table: usize,
        undo: RowUndo<'a>,
        position: Option<UndoPosition>,
    },
    /// It has to be read.
    InLog(UndoCursor),
    /// The log does not have it.
    Missing,
}

/// True if undoing the change leaves a ghost.
pub(super) fn leaves_ghost(before: RowBefore<'_>) -> bool {
    match before {
        RowBefore::Absent => true,
        RowBefore::Row(flags, _) => flags.has(RowFlags::GHOST),
        RowBefore::Flags(flags) => flags.has(RowFlags::GHOST),
        RowBefore::Value(_) => false,
    }
}

/// True if the change itself has left a ghost.
pub(super) fn is_delete(before: RowBefore<'_>) -> bool {
    matches!(before, RowBefore::Flags(flags) if !flags.has(RowFlags::GHOST))
}

impl PagedChanges {
    /// Records a change that has just been made. `table` is its index among the cached tables.
    pub(super) fn record(
        &mut self,
        table: usize,
        undo: &RowUndo<'_>,
        position: Option<UndoPosition>,
    ) {
        let start = self.bytes.len();
        undo.encode_to(&mut self.bytes);
        let end = self.bytes.len();
        self.recent.push(RecentUndo {
            table,
            start,
            end,
            position,
        });
        self.count += 1;
        self.has_begun = true;
    }

    /// Number of changes that are not undone.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Number of changes whose undo is in memory.
    #[inline]
    pub(super) fn recent_count(&self) -> usize {
        self.recent.len()
    }

    /// True if a change was made, even if all are undone.
    #[inline]
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// True if the undo of every change is in memory.
    pub(super) fn is_whole(&self) -> bool {
        self.recent.len() == self.count
    }

    /// Number of bytes of undo in memory.
    #[inline]
    pub(super) fn memory_bytes(&self) -> usize {
        self.recent.len() * size_of::<RecentUndo>() + self.bytes.len()
    }

    /// True if undo should be [forgotten](Self::forget).
    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.memory_bytes() > MOST_BYTES
    }

    /// Returns the changes whose undo is in memory, with the indexes of their tables.
    pub(super) fn recent(&self) -> impl Iterator<Item = (usize, RowUndo<'_>)> {
        self.recent_in(0..self.recent.len())
    }

    /// Returns those of [`recent`](Self::recent) that have these places.
    pub(super) fn recent_in(
        &self,
        places: Range<usize>,
    ) -> impl Iterator<Item = (usize, RowUndo<'_>)> {
        let recent = self.recent[places].iter();
        recent.map(|recent| (recent.table, self.undo(recent)))
    }

    fn undo(&self, recent: &RecentUndo) -> RowUndo<'_> {
        RowUndo::decode(&self.bytes[recent.start..recent.end]).expect(DECODED)
    }

    /// Forgets the undo of the oldest changes in memory, if there is much of it, because the log
    /// has it too. Calls `forgotten` for each.
    #[cold]
    pub(super) fn forget(
        &mut self,
        transaction: &PageTransaction,
        mut forgotten: impl FnMut(usize, &RowUndo<'_>),
    ) {
        let count = self.recent.len();
        let memory_from = |first: usize| {
            (count - first) * size_of::<RecentUndo>() + self.bytes.len() - self.recent[first].start
        };
        let first = (0..count).find(|&first| memory_from(first) <= BATCH_BYTES);
        let Some(first) = first.or(count.checked_sub(1)) else {
            return;
        };
        let RecentUndo {
            start, position, ..
        } = self.recent[first];
        // Without a log there is no position.
        let Some(older) = position.and_then(|position| transaction.undo_before(position)) else {
            return;
        };
        for recent in &self.recent[..first] {
            forgotten(recent.table, &self.undo(recent));
        }
        self.older = Some(older); // I2
        self.recent.drain(..first);
        self.bytes.drain(..start);
        for recent in &mut self.recent {
            (recent.start, recent.end) = (recent.start - start, recent.end - start);
        }
    }

    /// Returns the change that is undone next, if more than `down_to` are left. With `in_order`,
    /// which is a fault, that is the first one in memory behind `down_to`.
    pub(super) fn next_undo(&self, down_to: usize, in_order: bool) -> Option<NextUndo<'_>> {
        if self.count <= down_to {
            return None;
        }
        let Some(last) = self.recent.len().checked_sub(1) else {
            return Some(self.older.map_or(NextUndo::Missing, NextUndo::InLog));
        };
        let at = match in_order {
            true => last.saturating_sub(self.count - down_to - 1),
            false => last,
        };
        let recent = &self.recent[at];
        Some(NextUndo::Recent {
            at,
            table: recent.table,
            undo: self.undo(recent),
            position: recent.position,
        })
    }

    /// Records that the change at a place among those in memory is undone.
    pub(super) fn undone(&mut self, at: usize) {
        self.recent.remove(at);
        let end = self.recent.last().map_or(0, |last| last.end);
        self.bytes.truncate(end);
        self.count -= 1;
    }

    /// Records that the last changes, all but `down_to`, are not going to be undone.
    pub(super) fn give_up(&mut self, down_to: usize) {
        while self.count > down_to {
            match self.recent.len().checked_sub(1) {
                Some(last) => self.undone(last),
                None => self.count = down_to,
            }
        }
    }

    /// Adds undo that was read at `cursor`. `table_of` returns the index of the table with the
    /// given number. Returns false if the bytes are no undo of a table of the transaction.
    pub(super) fn add_older(
        &mut self,
        cursor: UndoCursor,
        batch: &UndoBatch,
        table_of: impl Fn(u64) -> Option<usize>,
    ) -> bool {
        if !self.recent.is_empty() || self.older != Some(cursor) {
            return true; // It was read for an operation that was dropped.
        }
        for change in batch.changes.iter().rev() {
            let undo = RowUndo::decode(&change.undo);
            let Some(table) = undo.and_then(|undo| table_of(undo.table)) else {
                return false;
            };
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&change.undo);
            self.recent.push(RecentUndo {
                table,
                start,
                end: self.bytes.len(),
                position: Some(change.position),
            });
        }
        self.older = batch.rest;
        true
    }

    /// Forgets all changes, when the transaction has ended.
    pub(super) fn clear(&mut self) {
        self.recent.clear();
        self.bytes.clear();
        self.recent.shrink_to(MOST_BYTES / size_of::<RecentUndo>());
        self.bytes.shrink_to(MOST_BYTES);
        (self.older, self.count, self.has_begun) = (None, 0, false);
    }
}
