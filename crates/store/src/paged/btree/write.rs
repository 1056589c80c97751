//! Changes of rows: inserted, replaced, marked as ghosts, purged.
//!
//! A change finds its leaf, checks itself there, reserves log space, and latches the leaf at the
//! version that it has read. If the leaf is too full, it is split first.

use super::descend::TreeTarget;
use super::error::TreeError;
use super::merge::is_sparse;
use super::visit::{Step, TreeAttempt, TreeVisit};
use crate::TooLong;
use crate::paged::frame::order_scans;
use crate::paged::page::{OperationError, PageOperation, RowFlags};
use crate::paged::pool::PageView;

/// Flags and value of a row.
pub type FlaggedValue = (RowFlags, Vec<u8>);

/// The key behind the place of a new one, as its inserter expects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextKey<'k> {
    /// It does not matter.
    Any,
    /// There is none.
    End,
    /// A key, of a row or of a ghost.
    Key(&'k [u8]),
}

/// Result of an insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertReply {
    /// The row was inserted.
    Inserted,
    /// The key is there already, with these flags: it may be a ghost.
    Exists(RowFlags),
    /// The next key is another than was expected. Nothing was changed.
    NextChanged,
}

/// Result of a purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeReply {
    /// The ghost was removed.
    Removed,
    /// There is no such row, or it is no ghost.
    NoGhost,
    /// It is the only row of its leaf, and no neighbour of the leaf has space for its range.
    OnlyRow,
}

/// Plan of a change in a leaf.
enum Plan<'a, T> {
    /// Nothing is to be changed.
    Nothing(T),
    /// The operation is to be made, and then there is this result.
    Change(PageOperation<'a>, T),
}

/// The key behind the place of a new one, compared with the expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundNext {
    /// It is the expected one, or any is. It is in the same leaf, or there is no leaf behind.
    Here,
    /// It is the expected one. It is in a leaf behind.
    Behind,
    /// It is another.
    Other,
}

/// Result of an update of a row that is to have certain flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdateReply {
    /// It is updated; its value before.
    Updated(Vec<u8>),
    /// It has other flags, or there is none.
    Other(Option<RowFlags>),
}

pub(super) fn slot16(slot: usize) -> u16 {
    // A page has at most 4,096 slots; more are read only before validation.
    u16::try_from(slot).unwrap_or(u16::MAX)
}

impl<'t> TreeVisit<'t> {
    /// Attempts to insert a row, if its key is not there and the key behind it is `next`. The value
    /// may later grow to `reserved` bytes without a new place.
    ///
    /// The next key is compared under the latch of the leaf. So a caller that locked the gap before
    /// `next` can be sure that the key goes into that gap.
    ///
    /// # Errors
    ///
    /// If the row is too long, a page is damaged, or the change cannot be logged.
    pub fn insert(
        &mut self,
        key: &[u8],
        value: &[u8],
        reserved: usize,
        next: NextKey<'_>,
    ) -> Result<TreeAttempt<InsertReply>, TreeError> {
        self.insert_flagged(key, (value, RowFlags::NONE), reserved, next)
    }

    /// As [`insert`](Self::insert), with flags.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn insert_flagged(
        &mut self,
        key: &[u8],
        (value, flags): (&[u8], RowFlags),
        reserved: usize,
        next: NextKey<'_>,
    ) -> Result<TreeAttempt<InsertReply>, TreeError> {
        let reserved = reserved.max(value.len());
        self.check_row(key, reserved)?;
        self.is_scan = false;
        self.attempt(|visit| {
            let leaf = visit.descend(TreeTarget::At(key), 0)?;
            let found = visit.find_next(&leaf, key, next)?;
            if found == FoundNext::Other {
                return Ok(InsertReply::NextChanged);
            }
            let plan = |leaf: &PageView<'t>| {
                let page = leaf.read();
                match page.search(key) {
                    Ok(slot) => {
                        let flags = page.row(slot).map_or(RowFlags::NONE, |row| row.flags);
                        Plan::Nothing(InsertReply::Exists(flags))
                    }
                    Err(slot) => {
                        let operation = PageOperation::Insert {
                            slot: slot16(slot),
                            key,
                            value,
                            reserved: slot16(reserved),
                            flags,
                        };
                        Plan::Change(operation, InsertReply::Inserted)
                    }
                }
            };
            visit.change_leaf(&leaf, key, found == FoundNext::Behind, plan)
        })
    }

    /// Attempts to replace the value of `key`, of a row or of a ghost; returns the value before.
    /// `None`: there is no such row.
    ///
    /// # Errors
    ///
    /// If the row is too long, a page is damaged, or the change cannot be logged.
    pub fn update(
        &mut self,
        key: &[u8],
        value: &[u8],
    ) -> Result<TreeAttempt<Option<Vec<u8>>>, TreeError> {
        self.check_row(key, value.len())?;
        self.is_scan = false;
        self.attempt(|visit| {
            visit.change(key, |leaf| {
                let page = leaf.read();
                match page.search(key) {
                    Err(_) => Plan::Nothing(None),
                    Ok(slot) => {
                        let operation = PageOperation::Replace {
                            slot: slot16(slot),
                            value,
                        };
                        Plan::Change(operation, Some(page.value(slot)))
                    }
                }
            })
        })
    }

    /// As [`update`](Self::update), if the row of `key` has exactly these flags. Otherwise it
    /// changes nothing, and returns the flags that the row has; `None`: there is no such row.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn update_flagged(
        &mut self,
        key: &[u8],
        value: &[u8],
        flags: RowFlags,
    ) -> Result<TreeAttempt<UpdateReply>, TreeError> {
        self.check_row(key, value.len())?;
        self.is_scan = false;
        self.attempt(|visit| {
            visit.change(key, |leaf| {
                let page = leaf.read();
                let Ok(found) = page.search(key) else {
                    return Plan::Nothing(UpdateReply::Other(None));
                };
                let slot = slot16(found);
                match page.row(found).map(|row| row.flags) {
                    Some(other) if other == flags => Plan::Change(
                        PageOperation::Replace { slot, value },
                        UpdateReply::Updated(page.value(found)),
                    ),
                    other => Plan::Nothing(UpdateReply::Other(other)),
                }
            })
        })
    }

    /// Attempts to replace value and flags of `key`, of a row or of a ghost; returns those before.
    /// `None`: there is no such row.
    ///
    /// # Errors
    ///
    /// If the row is too long, a page is damaged, or the change cannot be logged.
    pub fn rewrite(
        &mut self,
        key: &[u8],
        value: &[u8],
        flags: RowFlags,
    ) -> Result<TreeAttempt<Option<FlaggedValue>>, TreeError> {
        self.check_row(key, value.len())?;
        self.is_scan = false;
        self.attempt(|visit| {
            visit.change(key, |leaf| {
                let page = leaf.read();
                match page.search(key) {
                    Err(_) => Plan::Nothing(None),
                    Ok(slot) => {
                        let before = page.row(slot).map(|row| (row.flags, page.value(slot)));
                        let slot = slot16(slot);
                        Plan::Change(PageOperation::Rewrite { slot, value, flags }, before)
                    }
                }
            })
        })
    }

    /// Attempts to replace the flags of `key`; returns those before. `None`: there is no such row.
    /// Setting [`RowFlags::GHOST`] deletes a row and leaves its bytes, so that clearing it is
    /// always possible.
    ///
    /// # Errors
    ///
    /// If a page is damaged, or the change cannot be logged.
    pub fn set_flags(
        &mut self,
        key: &[u8],
        flags: RowFlags,
    ) -> Result<TreeAttempt<Option<RowFlags>>, TreeError> {
        self.is_scan = false;
        self.attempt(|visit| {
            visit.change(key, |leaf| {
                let page = leaf.read();
                match page.search(key) {
                    Err(_) => Plan::Nothing(None),
                    Ok(slot) => {
                        let before = page.row(slot).map(|row| row.flags);
                        let operation = PageOperation::SetFlags {
                            slot: slot16(slot),
                            flags,
                        };
                        Plan::Change(operation, before)
                    }
                }
            })
        })
    }

    /// Attempts to remove the ghost of `key` with all its bytes. It is an SMO: the caller holds the
    /// locks of key and gap alone, under an owner that no transaction shares. If few rows are left
    /// in the leaf, and its neighbours are in memory, it is merged with one.
    ///
    /// # Errors
    ///
    /// If a page is damaged, or the change cannot be logged.
    pub fn purge(&mut self, key: &[u8]) -> Result<TreeAttempt<PurgeReply>, TreeError> {
        self.remove_row(key, |flags| flags.has(RowFlags::GHOST))
    }

    /// Attempts to remove the row of `key`, if its flags say so.
    pub(super) fn remove_row(
        &mut self,
        key: &[u8],
        is_due: impl Fn(RowFlags) -> bool,
    ) -> Result<TreeAttempt<PurgeReply>, TreeError> {
        self.is_scan = false;
        let removed = self.attempt(|visit| {
            // Its parent is needed, too, if it is merged.
            let leaf = visit.descend_from_top(TreeTarget::At(key), 0)?;
            let page = leaf.read();
            let is_due = |slot: &usize| page.row(*slot).is_some_and(|row| is_due(row.flags));
            let slot = page.search(key).ok().filter(is_due);
            let is_only = page.slot_count() == 1 && leaf.page() != visit.tree.root();
            if !leaf.is_valid() {
                return visit.busy(leaf.page());
            }
            let Some(slot) = slot else {
                return Ok((PurgeReply::NoGhost, false));
            };
            if is_only {
                // I8 of the tree.
                return Ok(match visit.remove_with_leaf(key)? {
                    true => (PurgeReply::Removed, true),
                    false => (PurgeReply::OnlyRow, false),
                });
            }
            let operation = PageOperation::Remove { slot: slot16(slot) };
            visit.admit_change(Some(&leaf))?;
            let space = visit.log_space(0)?;
            let writer = visit.try_lock(&leaf)?;
            let mut latched = [(writer, operation)];
            visit.change_structure(space, &mut latched)?;
            let is_sparse = is_sparse(&latched[0].0.read());
            Ok((PurgeReply::Removed, is_sparse))
        })?;
        let TreeAttempt::Done((reply, is_sparse)) = removed else {
            return Ok(TreeAttempt::Wait);
        };
        if is_sparse {
            self.merge_sparse(key)?;
        }
        Ok(TreeAttempt::Done(reply))
    }

    pub(super) fn check_row(&self, key: &[u8], value_bytes: usize) -> Result<(), TreeError> {
        let size = self.tree.size();
        if key.len() > size.max_key_bytes() {
            return Err(TreeError::TooLong(TooLong::Key { bytes: key.len() }));
        }
        let (bytes, most) = (key.len() + value_bytes, size.max_row_bytes());
        match bytes <= most {
            true => Ok(()),
            false => Err(TreeError::RowTooLong { bytes, most }),
        }
    }

    /// Compares the key behind `key`, whose leaf is `leaf`, with the one that is expected. It is
    /// in the same leaf nearly always. The latch of the leaf, at the version of the view, then
    /// covers the whole gap. Otherwise the token has the leaf and those behind it.
    fn find_next(&mut self, leaf: &PageView<'t>, key: &[u8], next: NextKey<'_>) -> Step<FoundNext> {
        let expected = match next {
            NextKey::Any => return Ok(FoundNext::Here),
            NextKey::End => None,
            NextKey::Key(key) => Some(key),
        };
        let page = leaf.read();
        let slot = match page.search(key) {
            Ok(slot) => slot + 1,
            Err(slot) => slot,
        };
        let is_here = slot < page.slot_count();
        let high = match is_here {
            true => None,
            false => page.high_fence(),
        };
        let is_expected = match (expected, is_here) {
            (Some(expected), true) => page.has_key(slot, expected),
            (expected, is_here) => !is_here && expected.is_none(),
        };
        let Some(high) = high else {
            return match (leaf.is_valid(), is_expected) {
                (false, _) => self.busy(leaf.page()),
                (true, true) => Ok(FoundNext::Here),
                (true, false) => Ok(FoundNext::Other),
            };
        };
        self.token.clear();
        self.read_of(leaf)?;
        self.want(leaf.page());
        let found = self.walk_on(high, true)?;
        match found.as_deref() == expected {
            true => Ok(FoundNext::Behind),
            false => Ok(FoundNext::Other),
        }
    }

    /// Changes the leaf of `key` as `plan` says.
    fn change<'a, T>(
        &mut self,
        key: &[u8],
        plan: impl Fn(&PageView<'t>) -> Plan<'a, T>,
    ) -> Step<T> {
        let leaf = self.descend(TreeTarget::At(key), 0)?;
        self.change_leaf(&leaf, key, false, plan)
    }

    /// Changes `leaf`, the leaf of `key`, as `plan` says. `has_walked`: the token has this leaf
    /// and others behind it, which must be as they were read.
    fn change_leaf<'a, T>(
        &mut self,
        leaf: &PageView<'t>,
        key: &[u8],
        has_walked: bool,
        plan: impl Fn(&PageView<'t>) -> Plan<'a, T>,
    ) -> Step<T> {
        let planned = plan(leaf);
        let (page, lsn) = (leaf.page(), leaf.read().lsn());
        let checked = match &planned {
            Plan::Nothing(_) => Ok(()),
            Plan::Change(operation, _) => operation.check(&leaf.read(), page),
        };
        if !leaf.is_valid() {
            return self.busy(page);
        }
        let (operation, result) = match planned {
            Plan::Nothing(result) => return Ok(result),
            Plan::Change(operation, result) => (operation, result),
        };
        match checked {
            Ok(()) => {}
            Err(OperationError::Full(_)) => {
                self.admit_change(None)?;
                self.split(key, 0, (page, lsn))?;
                // Another round finds the place in one of both halves.
                return self.busy(page);
            }
            Err(OperationError::Mismatch(field)) => {
                return Err(TreeError::field(page, field, lsn.bytes()).into());
            }
        }
        self.want(page);
        self.admit_change(Some(leaf))?;
        self.keep_undo_space()?;
        // The record has the row before, or its key, and the row after.
        let space = self.log_space(2 * self.tree.size().max_row_bytes())?;
        let mut writer = self.try_lock(leaf)?;
        if has_walked && !self.is_walk_unchanged() {
            drop(writer);
            return self.busy(page);
        }
        self.change_row(space, &mut writer, operation)?;
        drop(writer);
        self.record_late();
        Ok(result)
    }

    /// True if the leaves behind the first one of the walk, which is latched by now at the version
    /// that was read, are as they were read.
    fn is_walk_unchanged(&self) -> bool {
        order_scans();
        self.tree.are_unchanged(self.token.behind_first())
    }
}
