//! Checkpoints: positions from which restart may begin.
//!
//! A checkpoint is made while transactions run, and no transaction waits for it. It puts a mark
//! into the log, reads the durable log up to the mark, and so knows which transactions were active
//! there and which pages had been changed. It leaves out pages that are durable meanwhile. Its
//! result goes into the log, and the position of that into the anchor.
//!
//! So it asks no transaction for anything. The price is that the log is read once more, usually
//! from the cache of the operating system.
//!
//! # Invariants
//!
//! * I1  The tables that are written are those of the mark, except for pages that are durable with
//!   every change before the mark, and for changes behind a page's recovery LSN.
//! * I2  The anchor is written when both records are durable. A crash before leaves the checkpoint
//!   before.
//!
//! # Differences from the paper
//!
//! Mohan et al., "ARIES", 1992, §5.4, collects both tables from memory between the two records. So
//! they are not those of any one position, and analysis must allow for that. It also removes pages
//! from the table at analysis when the log shows that they were written. Here the tables are exact
//! at the mark, and the checkpoint asks the owner of the pages.

use foxton_log::Lsn;
use foxton_log::read::durable_reader::DurableReader;
use foxton_sync::worker::Worker;

use super::analysis;
use super::anchor::Anchor;
use super::error::RecoveryError;
use super::pages::Pages;
use super::record::{RecordPosition, RecoveryRecord};
use super::tables::Tables;
use super::transaction::Recovery;

/// Makes checkpoints: has the tables of some position in the log, and reads on from there.
#[derive(Debug)]
pub struct PageCheckpointer {
    pub(super) tables: Tables,
    /// The tables are those of this position.
    pub(super) at: Lsn,
}

/// Result of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointSummary {
    /// Its position.
    pub anchor: Anchor,
    /// Number of active transactions.
    pub transactions: usize,
    /// Number of pages that differed from their durable state.
    pub pages: usize,
}

impl PageCheckpointer {
    /// Makes a checkpoint. Afterwards recovery needs no segments before its `needed_from`.
    ///
    /// # Errors
    ///
    /// If there is no space for it in the log, or the log, the anchor or the pages fail. The
    /// checkpoint before remains.
    pub fn checkpoint<P: Pages>(
        &mut self,
        recovery: &Recovery,
        worker: &Worker,
        pages: &P,
    ) -> Result<CheckpointSummary, RecoveryError<P::Error>> {
        let mark = recovery.insert_alone(worker, &RecoveryRecord::CheckpointBegin)?;
        recovery.log.wait_durable(worker, mark.end)?;
        self.read_to(recovery, mark)?;
        let dirty = self.tables.pages.keys().copied().collect::<Vec<_>>();
        for page in dirty {
            let behind = pages.recovery_lsn(page).map_err(RecoveryError::Pages)?;
            match behind.filter(|behind| *behind < mark.begin) {
                None => self.tables.pages.remove(&page),
                Some(behind) => {
                    let known = self.tables.pages[&page];
                    self.tables.pages.insert(page, known.max(behind))
                }
            };
        }
        let end = RecoveryRecord::CheckpointEnd(mark.begin, self.tables.clone());
        let end = recovery.insert_alone(worker, &end)?;
        recovery.log.wait_durable(worker, end.end)?;
        let anchor = Anchor {
            begin: mark.begin,
            end_at: end.begin,
            durable: end.end,
            needed_from: self.tables.needed_from(mark.begin),
        };
        anchor.write(&*recovery.device, &recovery.identity)?; // I2
        Ok(CheckpointSummary {
            anchor,
            transactions: self.tables.transactions.len(),
            pages: self.tables.pages.len(),
        })
    }

    /// Adds the log's records before the mark.
    fn read_to<E>(
        &mut self,
        recovery: &Recovery,
        mark: RecordPosition,
    ) -> Result<(), RecoveryError<E>> {
        let device = &*recovery.device;
        let mut reader = DurableReader::open(device, &recovery.identity, self.at, mark.end)?;
        while let Some(view) = reader.next()? {
            if let Some(record) = RecoveryRecord::decode(&view)? {
                analysis::take(&mut self.tables, view.lsn, &record)?;
            }
            self.at = view.end;
        }
        Ok(())
    }
}
