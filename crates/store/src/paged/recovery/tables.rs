//! The transaction table and the dirty page table.
//!
//! Both are derived from the log alone: `analysis` makes them of the records that it is shown. So at a place in
//! the log they are exact, nobody keeps a list of transactions while they run, and nothing is counted when one
//! begins or ends.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use foxton_log::Lsn;

use super::bytes::ByteReader;

/// What a page is called. What the bits mean is its owner's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u64);

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How far a transaction that has not ended has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum TransactionState {
    /// It may yet commit.
    Active = 0,
    /// It has begun to take back all that it did.
    Aborting = 1,
    /// It is committed, and only its END is missing.
    Committed = 2,
}

impl TransactionState {
    fn of(number: u64) -> Option<TransactionState> {
        [
            TransactionState::Active,
            TransactionState::Aborting,
            TransactionState::Committed,
        ]
        .into_iter()
        .find(|state| *state as u64 == number)
    }
}

/// A transaction that has not ended, as its records tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionEntry {
    /// Where its last record begins.
    pub last: Lsn,
    /// Where the record begins with which taking back would go on.
    pub undo_next: Lsn,
    /// Bytes of log that taking back and ending it can take.
    pub undo_space: u64,
    /// How far it has come.
    pub state: TransactionState,
}

/// Who is under way, and which pages differ from what the device has, at one place in the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tables {
    /// The transactions, by where they begin.
    pub transactions: BTreeMap<Lsn, TransactionEntry>,
    /// The pages, and where the first record begins that may be missing from what is durable of each: its
    /// *recovery LSN*.
    pub pages: HashMap<PageId, Lsn>,
}

impl Tables {
    /// Where the first record begins that restart needs, if these are the tables at `at`.
    pub fn needed_from(&self, at: Lsn) -> Lsn {
        let oldest = self.transactions.keys().next().copied();
        oldest.unwrap_or(at).min(self.redo_from(at))
    }

    /// Where redo begins, if these are the tables at `at`.
    pub fn redo_from(&self, at: Lsn) -> Lsn {
        self.pages.values().min().copied().unwrap_or(at).min(at)
    }

    /// Gives out the numbers of which the tables consist, in the order in which they are written down.
    pub(super) fn encode(&self, put: &mut dyn FnMut(u64)) {
        for (begin, entry) in &self.transactions {
            put(begin.bytes());
            put(entry.last.bytes());
            put(entry.undo_next.bytes());
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

    /// Takes so many transactions and pages off `bytes`. Everything in them lies before `at`, and both ascend.
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
                undo_next: Lsn::new(bytes.u64()?),
                undo_space: bytes.u64()?,
                state: TransactionState::of(bytes.u64()?)?,
            };
            let last_begin = tables.transactions.keys().next_back();
            let ascends = last_begin.is_none_or(|last| *last < begin);
            let backwards =
                begin <= entry.undo_next && entry.undo_next <= entry.last && entry.last < at;
            (ascends && backwards).then_some(())?;
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
