//! The transaction table and the dirty page table.
//!
//! Both are derived from the log alone: `analysis` makes them from the records that it is shown. So
//! they are exact at each position of the log, there is no list of running transactions, and
//! nothing is counted when one begins or ends.

use std::collections::{BTreeMap, HashMap};

use foxton_log::Lsn;

use super::bytes::ByteReader;
use crate::paged::PageId;

/// State of a transaction that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum TransactionState {
    /// It may still commit.
    Active = 0,
    /// It has begun to undo all its changes.
    Aborting = 1,
}

impl TransactionState {
    fn of(number: u64) -> Option<TransactionState> {
        [TransactionState::Active, TransactionState::Aborting]
            .into_iter()
            .find(|state| *state as u64 == number)
    }
}

/// A transaction that has not ended, as its records show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionEntry {
    /// Start of its last record.
    pub last: Lsn,
    /// Start of the record with which undo would continue; `None` if nothing is left to undo.
    pub undo_next: Option<Lsn>,
    /// Maximum bytes of log for undoing and ending it.
    pub undo_space: u64,
    /// Its state.
    pub state: TransactionState,
}

/// Active transactions and dirty pages at one position in the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tables {
    /// The transactions, by their names: the starts of their first records.
    pub transactions: BTreeMap<Lsn, TransactionEntry>,
    /// The pages, each with its *recovery LSN*: the start of the first record that may be missing
    /// from the page's durable state.
    pub pages: HashMap<PageId, Lsn>,
}

impl Tables {
    /// Returns the start of the first record that restart needs, if these are the tables at `at`.
    pub fn needed_from(&self, at: Lsn) -> Lsn {
        let oldest = self.transactions.keys().next().copied();
        oldest.unwrap_or(at).min(self.redo_from(at))
    }

    /// Returns the position where redo begins, if these are the tables at `at`.
    pub fn redo_from(&self, at: Lsn) -> Lsn {
        self.pages.values().min().copied().unwrap_or(at).min(at)
    }

    /// Passes the numbers of the tables to `put`, in the order of their encoding.
    pub(super) fn encode(&self, put: &mut dyn FnMut(u64)) {
        for (begin, entry) in &self.transactions {
            put(begin.bytes());
            put(entry.last.bytes());
            put(entry.undo_next.unwrap_or(Lsn::MAX).bytes());
            put(entry.undo_space);
            put(entry.state as u64);
        }
        let mut pages: Vec<_> = self.pages.iter().collect();
        pages.sort_unstable();
        for (page, recovery) in pages {
            put(page.0);
            put(recovery.bytes());
        }
    }

    /// Decodes so many transactions and pages from `bytes`. All their positions are before `at`,
    /// and both ascend.
    pub(super) fn decode(
        at: Lsn,
        transactions: u32,
        pages: u32,
        bytes: &mut ByteReader<'_>,
    ) -> Option<Tables> {
        let expected = u64::from(transactions) * 40 + u64::from(pages) * 16;
        if bytes.0.len() as u64 != expected {
            return None;
        }
        let mut tables = Tables::default();
        for _ in 0..transactions {
            let begin = Lsn::new(bytes.u64()?);
            let entry = TransactionEntry {
                last: Lsn::new(bytes.u64()?),
                undo_next: Some(Lsn::new(bytes.u64()?)).filter(|next| *next != Lsn::MAX),
                undo_space: bytes.u64()?,
                state: TransactionState::of(bytes.u64()?)?,
            };
            let last_begin = tables.transactions.keys().next_back();
            let ascends = last_begin.is_none_or(|last| *last < begin);
            let is_within = |next| begin <= next && next <= entry.last;
            let backwards = entry.undo_next.is_none_or(is_within) && entry.last < at;
            (ascends && begin <= entry.last && backwards).then_some(())?;
            tables.transactions.insert(begin, entry);
        }
        let mut last = None;
        for _ in 0..pages {
            let (page, recovery) = (PageId(bytes.u64()?), Lsn::new(bytes.u64()?));
            (last < Some(page) && recovery < at).then_some(())?;
            last = Some(page);
            tables.pages.insert(page, recovery);
        }
        Some(tables)
    }
}
