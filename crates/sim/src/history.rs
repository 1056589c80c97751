//! Histories: every request of each client and its answer, recorded for checkers.
//!
//! Every value that is written is unique and names its writer: a
//! [`Version`](crate::history::Version) is a client, the number of its transaction, and a step in
//! that. So a reader of a value knows which transaction wrote it, and whether that committed, was
//! rolled back, or wrote another value in its place later.
//!
//! # How it is recorded
//!
//! Each client has a [`Record`](crate::history::Record) of its own: three lists that only grow, of
//! transactions, of steps, and of rows that scans returned. Nothing is shared and nothing is
//! allocated for a step. So recording costs the clients a few stores, and two readings of the clock
//! for each transaction.
//!
//! # The order
//!
//! A committed transaction has a *place*: where its record ends in the log
//! ([`commit_at`](foxton::Transaction::commit_at)). A transaction that only read has the place
//! where the log ended then. Places are drawn while every lock is held, so conflicting transactions
//! have them in the order of their locks. One that only read at a snapshot has the place of that.
//! [`History::order`](crate::history::History::order) is all
//! transactions by place, at one place writers before readers.

use std::{collections::BTreeMap, fmt, num::NonZeroU64, ops::Range};

/// Keys of rows in indexes.
mod labels;

pub(crate) use labels::Position;
pub use labels::{By, Label, Labels};

/// Histories from a few lines of text.
#[cfg(test)]
pub(crate) mod sketch;

/// Writer of a value: a client, and the number of its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writer {
    /// Below 4,095.
    pub client: u16,
    /// Below 2^36.
    pub number: u64,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.number)
    }
}

/// A value that was written once, by one step of one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(NonZeroU64);

// `Option<Version>` fits into one word.
const _: () = assert!(size_of::<Option<Version>>() == 8);

impl Version {
    /// Returns the version that `step` of a transaction of `writer` writes.
    pub fn new(writer: Writer, step: u16) -> Self {
        let Writer { client, number } = writer;
        debug_assert!(client < 4095 && number < 1 << 36);
        let bits = (u64::from(client) + 1) << 52 | number << 16 | u64::from(step);
        Self(NonZeroU64::new(bits).expect("the client's part is not zero"))
    }

    /// Decodes the value of a row. A value that no client can have written is one of client 4,094.
    pub fn from_value(value: u64) -> Self {
        Self(NonZeroU64::new(value).unwrap_or(NonZeroU64::MAX))
    }

    /// Encodes the version as the value of a row.
    pub fn value(self) -> u64 {
        self.0.get()
    }

    /// Returns its writer.
    pub fn writer(self) -> Writer {
        let bits = self.0.get();
        Writer {
            client: ((bits >> 52) as u16).wrapping_sub(1),
            number: bits >> 16 & ((1 << 36) - 1),
        }
    }

    /// Returns its step in the transaction.
    pub fn step(self) -> u16 {
        self.0.get() as u16
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.writer(), self.step())
    }
}

/// How long the result of a read must stay as it was, by the level of the transaction or by its
/// lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kept {
    /// Not even committed.
    Dirty,
    /// While it is read.
    Briefly,
    /// To the end: the rows that were found, and the absence of a row that was asked for by its key
    /// or name.
    Rows,
    /// To the end, and so is the absence of rows in a range.
    Range,
    /// For ever: the result is that of the transaction's snapshot, wherever the transaction
    /// commits.
    Snapshot,
}

/// Result of writing a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The key has the value.
    Done,
    /// The key had a value already.
    Exists,
    /// The row would have had a name that this other row has.
    Taken(u64),
}

/// An operation and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The value of a key, or that it is absent.
    Get(u64, Option<Version>, Kept),
    /// The row with a name, or that there is none.
    GetBy(u64, Option<(u64, Version)>, Kept),
    /// The rows of a range.
    Scan(Scan),
    /// A value was written under a key.
    Put(u64, Version, Written),
    /// A value was written under a key if it had none.
    Insert(u64, Version, Written),
    /// A key was deleted; true if it was there.
    Delete(u64, bool),
    /// A savepoint was set, after those that are open.
    Save,
    /// Changes since this one of the open savepoints were undone, and the later savepoints are
    /// gone.
    Back(u16),
    /// This one of the open savepoints and the later ones are gone.
    Release(u16),
}

/// A range that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    /// Order of the rows.
    pub by: By,
    /// Smallest key, name or group.
    pub from: u64,
    /// Largest key, name or group.
    pub to: u64,
    /// True if the largest came first.
    pub reversed: bool,
    /// Largest number of rows read.
    pub limit: u64,
    /// True if rows that others had locked were skipped.
    pub skips: bool,
    /// How long the result must stay as it was.
    pub kept: Kept,
    pub(crate) first_row: u32,
    pub(crate) end_row: u32,
}

impl Scan {
    /// Returns a scan of all of `from..=to` upwards, to the end, without rows yet.
    pub fn of(by: By, from: u64, to: u64) -> Scan {
        Scan {
            by,
            from,
            to,
            reversed: false,
            limit: u64::MAX,
            skips: false,
            kept: Kept::Range,
            first_row: 0,
            end_row: 0,
        }
    }

    /// Number of rows.
    pub fn row_count(&self) -> u64 {
        u64::from(self.end_row - self.first_row)
    }
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It committed, at this place.
    Committed(u64),
    /// It was rolled back: by itself, or by a conflict.
    RolledBack,
}

/// A transaction. Times are in nanoseconds since an instant that all clients of a history share.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// The client that ran it, and its number.
    pub writer: Writer,
    /// A moment before it began.
    pub begun: u64,
    /// A moment after its end was acknowledged.
    pub ended: u64,
    /// How it ended.
    pub end: End,
    /// True if it changed anything.
    pub wrote: bool,
    /// The place of its snapshot, if it has read at one.
    pub snapshot: Option<u64>,
    steps: Range<u32>,
}

/// A write: its step, its key, and the version that the key then has.
pub(crate) type Effect = (u16, u64, Option<Version>);

/// Adds to `into` what `steps`, all of one transaction, wrote and did not undo.
pub(crate) fn effects(steps: &[Step], into: &mut Vec<Effect>) {
    into.clear();
    let mut saved = Vec::new();
    for (step, number) in steps.iter().zip(0..) {
        match *step {
            Step::Put(key, version, Written::Done) | Step::Insert(key, version, Written::Done) => {
                into.push((number, key, Some(version)));
            }
            Step::Delete(key, true) => into.push((number, key, None)),
            Step::Save => saved.push(into.len()),
            Step::Back(at) => {
                into.truncate(saved[usize::from(at)]);
                saved.truncate(usize::from(at) + 1);
            }
            Step::Release(at) => saved.truncate(usize::from(at)),
            Step::Get(..)
            | Step::GetBy(..)
            | Step::Scan(_)
            | Step::Put(..)
            | Step::Insert(..)
            | Step::Delete(..) => {}
        }
    }
}

/// Everything that one client did.
#[derive(Debug, Clone)]
pub struct Record {
    client: u16,
    first: u64,
    transactions: Vec<Transaction>,
    steps: Vec<Step>,
    rows: Vec<(u64, Version)>,
    begun: u64,
    snapshot: Option<u64>,
}

impl Record {
    /// Returns the empty record of a client whose next transaction has the number `first`.
    pub fn new(client: u16, first: u64) -> Self {
        Self {
            client,
            first,
            transactions: Vec::new(),
            steps: Vec::new(),
            rows: Vec::new(),
            begun: 0,
            snapshot: None,
        }
    }

    /// Begins a transaction, at a moment that has passed already. For one that reads at the handle
    /// of a snapshot, that is a moment before the snapshot began.
    pub fn begin(&mut self, now: u64) {
        self.begun = now;
    }

    /// Records the place of the snapshot at which the current transaction reads, if there is one.
    pub fn at_snapshot(&mut self, place: Option<u64>) {
        self.snapshot = place;
    }

    /// Returns where the steps of the current transaction begin.
    fn start(&self) -> u32 {
        let last = self.transactions.last();
        last.map_or(0, |transaction| transaction.steps.end)
    }

    /// Returns the number of the current transaction.
    pub fn number(&self) -> u64 {
        self.first + self.transactions.len() as u64
    }

    /// Returns the version that the current step writes, if it writes.
    pub fn version(&self) -> Version {
        let writer = Writer {
            client: self.client,
            number: self.number(),
        };
        let step = self.steps.len() as u32 - self.start();
        let step = u16::try_from(step).expect("a transaction has fewer than 65,536 steps");
        Version::new(writer, step)
    }

    /// Records a step.
    pub fn note(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Records a scan, without rows yet.
    pub fn scan(&mut self, scan: Scan) {
        let row = self.rows.len() as u32;
        let (first_row, end_row) = (row, row);
        self.note(Step::Scan(Scan {
            first_row,
            end_row,
            ..scan
        }));
    }

    /// Records the next row of the last scan.
    pub fn row(&mut self, key: u64, version: Version) {
        let Some(Step::Scan(scan)) = self.steps.last_mut() else {
            panic!("a row without a scan");
        };
        self.rows.push((key, version));
        scan.end_row += 1;
    }

    /// Ends the current transaction, at a moment that has passed already.
    pub fn end(&mut self, end: End, now: u64) {
        let steps = self.start()..self.steps.len() as u32;
        let writer = Writer {
            client: self.client,
            number: self.number(),
        };
        let mut wrote = Vec::new();
        effects(
            &self.steps[steps.start as usize..steps.end as usize],
            &mut wrote,
        );
        let wrote = !wrote.is_empty();
        self.transactions.push(Transaction {
            writer,
            begun: self.begun,
            ended: now,
            end,
            wrote,
            snapshot: self.snapshot.take(),
            steps,
        });
    }

    /// Returns the client's transactions, in order.
    pub fn transactions(&self) -> &[Transaction] {
        &self.transactions
    }

    /// Returns the steps of `transaction`, which is one of this record.
    pub fn steps(&self, transaction: &Transaction) -> &[Step] {
        let Range { start, end } = transaction.steps;
        &self.steps[start as usize..end as usize]
    }

    /// Returns the rows of `scan`, which is one of this record, in its order.
    pub fn rows(&self, scan: &Scan) -> &[(u64, Version)] {
        &self.rows[scan.first_row as usize..scan.end_row as usize]
    }
}

/// Everything that happened between two moments of rest.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Rows before.
    pub start: BTreeMap<u64, Version>,
    /// One record for each client.
    pub records: Vec<Record>,
    /// For keys whose versions are known, from some other witness, to have another order than by
    /// place: their writers, in order.
    pub orders: BTreeMap<u64, Vec<Writer>>,
    /// The labels by which rows can be found besides their keys.
    pub labels: Labels,
}

impl History {
    /// Returns the committed transactions with their records, by place; at one place writers before
    /// readers.
    pub fn order(&self) -> Vec<(&Record, &Transaction)> {
        let mut order: Vec<_> = self
            .records
            .iter()
            .flat_map(|record| record.transactions.iter().map(move |each| (record, each)))
            .filter_map(|(record, each)| match each.end {
                End::Committed(place) => Some(((place, !each.wrote, each.ended), record, each)),
                End::RolledBack => None,
            })
            .collect();
        order.sort_by_key(|(key, ..)| *key);
        order
            .into_iter()
            .map(|(_, record, each)| (record, each))
            .collect()
    }

    /// Returns the transaction of `writer`, if it is in this history.
    pub fn find(&self, writer: Writer) -> Option<(&Record, &Transaction)> {
        let record = self
            .records
            .iter()
            .find(|record| record.client == writer.client)?;
        let index = usize::try_from(writer.number.checked_sub(record.first)?).ok()?;
        Some((record, record.transactions.get(index)?))
    }

    /// Returns how many transactions committed, and how many were rolled back.
    pub fn counts(&self) -> (u64, u64) {
        let ends = self
            .records
            .iter()
            .flat_map(|record| &record.transactions)
            .map(|each| each.end);
        ends.fold((0, 0), |(committed, rolled_back), end| match end {
            End::Committed(_) => (committed + 1, rolled_back),
            End::RolledBack => (committed, rolled_back + 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_what_it_was_made_of() {
        let writer = Writer {
            client: 4094,
            number: (1 << 36) - 1,
        };
        let version = Version::new(writer, u16::MAX);
        assert_eq!((version.writer(), version.step()), (writer, u16::MAX));
        assert_eq!(Version::from_value(version.value()), version);
        assert_eq!(Version::from_value(0).writer().client, 4094);
    }

    #[test]
    fn an_undone_write_was_not_written() {
        let mut record = Record::new(0, 0);
        let put = |record: &mut Record, key| {
            let version = record.version();
            record.note(Step::Put(key, version, Written::Done));
        };
        record.begin(0);
        record.note(Step::Save);
        put(&mut record, 1);
        record.note(Step::Save);
        put(&mut record, 2);
        record.note(Step::Release(1));
        put(&mut record, 3);
        let mut found = Vec::new();
        let keys = |found: &[Effect]| found.iter().map(|each| each.1).collect::<Vec<_>>();
        effects(&record.steps, &mut found);
        assert_eq!(keys(&found), [1, 2, 3]);
        record.note(Step::Back(0));
        effects(&record.steps, &mut found);
        assert!(found.is_empty());
        record.end(End::Committed(1), 1);
        assert!(!record.transactions()[0].wrote);
    }

    #[test]
    fn a_writer_comes_before_a_reader_at_the_same_place() {
        let mut records = [Record::new(0, 7), Record::new(1, 0)];
        records[0].begin(0);
        records[0].scan(Scan {
            limit: 9,
            ..Scan::of(By::Key, 0, 9)
        });
        records[0].row(3, Version::from_value(5));
        records[0].end(End::Committed(8), 1);
        records[1].begin(2);
        let version = records[1].version();
        records[1].note(Step::Put(3, version, Written::Done));
        records[1].end(End::Committed(8), 3);
        records[1].end(End::RolledBack, 4);
        let history = History {
            records: records.into(),
            ..History::default()
        };
        let order = history.order();
        let writers: Vec<u16> = order.iter().map(|(_, each)| each.writer.client).collect();
        assert_eq!(writers, [1, 0]);
        let (record, reader) = history.find(order[1].1.writer).unwrap();
        let Step::Scan(scan) = record.steps(reader)[0] else {
            panic!("it scanned");
        };
        assert_eq!(record.rows(&scan), [(3, Version::from_value(5))]);
        assert_eq!(history.counts(), (2, 1));
    }
}
