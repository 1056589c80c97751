//! Analysis: from the records of the log to the tables of active transactions and dirty pages.
//!
//! Restart shows it the records from the last complete checkpoint on; a checkpoint shows it those
//! since the one before. So there is one way to the tables, and a checkpoint is what restart would
//! have found.
//!
//! # Invariants
//!
//! * I1  The tables are those of `at`: they contain every record that ends there or before, and no
//!   other.
//! * I2  The records of a transaction follow each other without gaps, as their `prev` says. One
//!   that does not follow is an error: a record in between is missing.

use foxton_log::device::Device;
use foxton_log::format::segment;
use foxton_log::read::record_reader::RecordReader;
use foxton_log::{Lsn, RecordView, Start};

use super::anchor::Anchor;
use super::error::RecoveryError;
use super::progress::{PhaseMeter, RestartCallback, RestartPhase};
use super::record::{Link, MARK_BYTES, Malformed, RecoveryRecord, Update};
use super::tables::{Tables, TransactionEntry, TransactionState};
use crate::paged::PageId;

/// Bytes that a transaction reserves when it begins, for its end: ABORT and END, or COMMIT.
pub(super) const ENDING_BYTES: u64 = 2 * MARK_BYTES;

/// The first of three passes: finds the transactions that were active when the log ended.
#[derive(Debug)]
pub struct Analysis {
    pub(super) tables: Tables,
    pub(super) anchor: Option<Anchor>,
    /// End of the last record that it was shown.
    pub(super) at: Lsn,
    /// Number of records of changes and transactions that it was shown.
    pub(super) records: u64,
    meter: PhaseMeter,
}

impl Analysis {
    /// Begins with the tables of the last complete checkpoint of the database `identity`, if there
    /// is one. The directory must be the caller's alone.
    ///
    /// # Errors
    ///
    /// If the checkpoint cannot be read, or is malformed.
    pub fn begin<E>(
        device: &dyn Device,
        identity: &[u8; 16],
        progress: Option<&RestartCallback>,
    ) -> Result<Analysis, RecoveryError<E>> {
        let anchor = Anchor::read(device, identity)?;
        let (tables, at) = match &anchor {
            Some(anchor) => (tables_at(device, identity, anchor)?, anchor.begin),
            None => (Tables::default(), Lsn::ZERO),
        };
        let total = progress.map_or(0, |_| segment::files_end(device).since(at));
        Ok(Analysis {
            tables,
            anchor,
            at,
            records: 0,
            meter: PhaseMeter::new(progress, RestartPhase::Analysis, total),
        })
    }

    /// Begins at `at`, where a record of the log ends. No record before it changes a page.
    pub fn begin_new(at: Lsn) -> Analysis {
        Analysis {
            tables: Tables::default(),
            anchor: None,
            at,
            records: 0,
            meter: PhaseMeter::new(None, RestartPhase::Analysis, 0),
        }
    }

    /// Returns the last complete checkpoint, if there is one.
    pub fn anchor(&self) -> Option<&Anchor> {
        self.anchor.as_ref()
    }

    /// True if each page of the page file is as the log says, and no transaction is to be undone.
    pub fn is_clean(&self) -> bool {
        self.tables.pages.is_empty() && self.tables.transactions.is_empty()
    }

    /// True if the log has changes that the page file may lack of `page`.
    pub fn may_lack_changes(&self, page: PageId) -> bool {
        self.tables.pages.contains_key(&page)
    }

    /// Returns the end of the last record that it was shown.
    pub fn log_end(&self) -> Lsn {
        self.at
    }

    /// True if redo makes all changes of `page` behind `lsn`.
    pub fn redoes(&self, page: PageId, lsn: Lsn) -> bool {
        let recovery = self.tables.pages.get(&page);
        recovery.is_some_and(|recovery| *recovery <= lsn)
    }

    /// Returns where reading the log must begin, and how far it was durable.
    pub fn start(&self) -> Start {
        self.anchor.map_or(Start::default(), |anchor| Start {
            from: anchor.begin,
            durable: anchor.durable,
        })
    }

    /// Adds the next record of the log. Records of kinds that are not recovery's are skipped, and
    /// so are those before the last checkpoint.
    ///
    /// # Errors
    ///
    /// If it is malformed, by itself or behind those before it (I2).
    pub fn take(&mut self, view: RecordView<'_>) -> Result<(), Malformed> {
        if view.lsn < self.at {
            return Ok(());
        }
        let record = RecoveryRecord::decode(&view)?;
        if let Some(record) = &record {
            let is_counted = record.transaction(view.lsn).is_some() || !record.changes().is_empty();
            self.records += u64::from(is_counted);
            take(&mut self.tables, view.lsn, record)?;
        }
        self.at = view.end; // I1
        self.meter.advance(view.end.since(view.lsn));
        Ok(())
    }

    pub(super) fn end(&self) {
        self.meter.end();
    }
}

/// Reads the tables of the checkpoint that `anchor` names.
fn tables_at<E>(
    device: &dyn Device,
    identity: &[u8; 16],
    anchor: &Anchor,
) -> Result<Tables, RecoveryError<E>> {
    let mut reader = RecordReader::open(device, identity, anchor.end_at, anchor.durable)?;
    let view = reader.record(anchor.end_at)?;
    match RecoveryRecord::decode(&view)? {
        Some(RecoveryRecord::CheckpointEnd(begin, tables)) if begin == anchor.begin => Ok(tables),
        _ => Err(RecoveryError::Damaged(Malformed {
            lsn: anchor.end_at,
            expected: "the end of the last checkpoint",
        })),
    }
}

/// Adds one record to the tables.
pub(super) fn take(
    tables: &mut Tables,
    lsn: Lsn,
    record: &RecoveryRecord<'_>,
) -> Result<(), Malformed> {
    take_link(tables, lsn, record)?;
    for change in record.changes() {
        tables.pages.entry(change.page).or_insert(lsn);
    }
    Ok(())
}

/// Adds one record to the table of transactions.
fn take_link(tables: &mut Tables, lsn: Lsn, record: &RecoveryRecord<'_>) -> Result<(), Malformed> {
    let expected = "what the transaction's records before it let expect";
    let malformed = Malformed { lsn, expected };
    if let RecoveryRecord::Update(update @ Update { link: None, .. }) = record {
        let began = began(lsn, update);
        tables.transactions.insert(lsn, began.ok_or(malformed)?);
        return Ok(());
    }
    let Some(link) = record.link() else {
        return Ok(());
    };
    let entry = entry(tables, lsn, link)?;
    entry.last = lsn;
    let is_active = entry.state == TransactionState::Active;
    let sound = match record {
        RecoveryRecord::Update(update) => {
            let before = entry.undo_space.checked_add(u64::from(update.reserve));
            entry.undo_next = Some(lsn);
            entry.undo_space = update.undo_space;
            before == Some(update.undo_space) && is_active
        }
        RecoveryRecord::Compensation(compensation) => {
            let shrinks = compensation.undo_space <= entry.undo_space;
            (entry.undo_space, entry.undo_next) = (compensation.undo_space, compensation.undo_next);
            shrinks
        }
        RecoveryRecord::Abort(_) => {
            entry.undo_space = entry.undo_space.saturating_sub(MARK_BYTES);
            entry.state = TransactionState::Aborting;
            is_active
        }
        RecoveryRecord::Commit(..) => is_active,
        // END. Of one that a restart undid there is no ABORT before it.
        _ => true,
    };
    if matches!(record, RecoveryRecord::Commit(..) | RecoveryRecord::End(_)) {
        tables.transactions.remove(&link.transaction);
    }
    sound.then_some(()).ok_or(malformed)
}

/// Returns the transaction that begins with `update`, if a transaction can.
fn began(lsn: Lsn, update: &Update<'_>) -> Option<TransactionEntry> {
    let is_sound = update.undo_space == ENDING_BYTES + u64::from(update.reserve);
    is_sound.then_some(TransactionEntry {
        last: lsn,
        undo_next: Some(lsn),
        undo_space: update.undo_space,
        state: TransactionState::Active,
    })
}

/// Returns the transaction that the record at `lsn` continues (I2).
fn entry(tables: &mut Tables, lsn: Lsn, link: Link) -> Result<&mut TransactionEntry, Malformed> {
    let expected = "the next record of a transaction that is under way";
    let entry = tables.transactions.get_mut(&link.transaction);
    entry
        .filter(|entry| entry.last == link.prev)
        .ok_or(Malformed { lsn, expected })
}
