//! After a crash: analysis, redo, undo, checkpoint.
//!
//! Opening the log shows its records to `analysis` and makes its end durable; only then are pages touched, since one
//! that goes out before could tell of records that the disk does not have. Redo repeats history (`redo`). Undo takes
//! back what losers left: always the last record of all that are left, so that each page is changed in the reverse of
//! the order in which it was changed, and the log is read backwards once. A checkpoint ends it.
//!
//! # Invariants
//!
//! * I1 Cut short anywhere and begun again, it ends the same: redo makes what is missing, and undo goes on behind the last
//!   compensation in the log (`undo`, I1).
//! * I2 What it writes was set aside before the crash, but for the checkpoint, which is left out if there is no
//!   room.

use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foxton_log::device::Device;
use foxton_log::read::durable_reader::DurableReader;
use foxton_log::read::record_reader::RecordReader;
use foxton_log::{Log, Lsn};
use foxton_sync::worker::Worker;

use super::analysis::Analysis;
use super::checkpoint::{CheckpointSummary, PageCheckpointer};
use super::error::RecoveryError;
use super::pages::Pages;
use super::progress::{PhaseMeter, RestartCallback, RestartPhase};
use super::redo::{RedoStats, redo};
use super::space::UndoSpace;
use super::tables::{Tables, TransactionEntry, TransactionState};
use super::transaction::{RecordChain, Recovery};

/// How a restart goes about it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RestartOptions {
    /// How many threads repeat history. Default 2, at least 1.
    pub threads: usize,
    /// Where the log may grow to (`space`). Default: anywhere.
    pub limit: Lsn,
    /// Who hears how far it is. Default: nobody.
    pub progress: Option<RestartCallback>,
}

impl Default for RestartOptions {
    fn default() -> Self {
        RestartOptions {
            threads: 2,
            limit: Lsn::MAX,
            progress: None,
        }
    }
}

/// What a restart found and did.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RestartSummary {
    /// Records of transactions that analysis read.
    pub analysed: u64,
    /// Where redo began.
    pub redo_from: Lsn,
    /// Bytes of log that it read.
    pub redo_bytes: u64,
    /// Changes that it made again.
    pub redone: u64,
    /// Changes that pages had, of those it looked at.
    pub present: u64,
    /// How long it took.
    pub redo_time: Duration,
    /// Transactions that were taken back.
    pub losers: usize,
    /// Compensations that were written.
    pub undone: u64,
    /// How long that took.
    pub undo_time: Duration,
    /// The checkpoint at the end, if there was reason and room for one.
    pub checkpoint: Option<CheckpointSummary>,
}

impl fmt::Display for RestartSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} records analysed; {} changes applied again, {} chain_of applied, in {} bytes of log; {} transactions \
             taken back, {} changes",
            self.analysed, self.redone, self.present, self.redo_bytes, self.losers, self.undone
        )
    }
}

/// What a restart hands out.
#[derive(Debug)]
pub struct RestartResult {
    /// For transactions.
    pub recovery: Recovery,
    /// For checkpoints.
    pub checkpointer: PageCheckpointer,
    /// What was done.
    pub summary: RestartSummary,
}

/// Brings pages to what was committed, once `analysis` has seen the log, which is open and takes records of nobody else
/// until this is done.
///
/// # Errors
///
/// If the log, the anchor or the pages fail. It may be begun again, from analysis.
pub fn restart<P: Pages>(
    device: Arc<dyn Device>,
    identity: [u8; 16],
    log: Arc<Log>,
    worker: &Worker,
    analysis: Analysis,
    pages: &P,
    options: &RestartOptions,
) -> Result<RestartResult, RecoveryError<P::Error>> {
    analysis.end();
    let Analysis {
        tables,
        at,
        records,
        ..
    } = analysis;
    let credit = tables.transactions.values().map(|entry| entry.undo_space);
    let credit = credit.fold(0, u64::saturating_add);
    let space = UndoSpace::new(log.end(worker), credit, options.limit);
    let recovery = Recovery {
        device,
        identity,
        log,
        space,
    };
    let mut summary = RestartSummary {
        analysed: records,
        ..RestartSummary::default()
    };
    recovery.redo_history(&tables, at, pages, options, &mut summary)?;
    recovery.undo_losers(worker, &tables, at, pages, options, &mut summary)?;
    let is_needed = records > 0 || !tables.transactions.is_empty();
    let mut checkpointer = PageCheckpointer { tables, at };
    if is_needed {
        summary.checkpoint = match checkpointer.checkpoint(&recovery, worker, pages) {
            Ok(checkpoint) => Some(checkpoint),
            Err(RecoveryError::NoLogSpace(_)) => None, // I2
            Err(error) => return Err(error),
        };
    }
    Ok(RestartResult {
        recovery,
        checkpointer,
        summary,
    })
}

impl Recovery {
    /// Redo.
    fn redo_history<P: Pages>(
        &self,
        tables: &Tables,
        at: Lsn,
        pages: &P,
        options: &RestartOptions,
        summary: &mut RestartSummary,
    ) -> Result<(), RecoveryError<P::Error>> {
        let begun = Instant::now();
        let from = tables.redo_from(at);
        let bytes = at.since(from);
        let meter = PhaseMeter::new(options.progress.as_ref(), RestartPhase::Redo, bytes);
        if bytes > 0 {
            let reader = DurableReader::open(&*self.device, &self.identity, from, at)?;
            let RedoStats { applied, present } =
                redo(reader, tables, pages, options.threads, &meter)?;
            (summary.redone, summary.present) = (applied, present);
        }
        meter.end();
        (summary.redo_from, summary.redo_bytes) = (from, bytes);
        summary.redo_time = begun.elapsed();
        Ok(())
    }

    /// Undo; and END for winners that lack it.
    fn undo_losers<P: Pages>(
        &self,
        worker: &Worker,
        tables: &Tables,
        at: Lsn,
        pages: &P,
        options: &RestartOptions,
        summary: &mut RestartSummary,
    ) -> Result<(), RecoveryError<P::Error>> {
        let begun = Instant::now();
        let is_loser = |entry: &TransactionEntry| entry.state != TransactionState::Committed;
        let chain_of =
            |(begin, entry): (&Lsn, &TransactionEntry)| RecordChain::from_entry(*begin, *entry);
        for entry in tables.transactions.iter().filter(|(_, e)| !is_loser(e)) {
            self.end(worker, &mut chain_of(entry))?;
        }
        let losers = tables.transactions.iter().filter(|(_, e)| is_loser(e));
        let mut losers: Vec<RecordChain> = losers.map(chain_of).collect();
        let undo_space = losers.iter().map(|loser| loser.undo_space);
        let undo_space = undo_space.fold(0, u64::saturating_add);
        let meter = PhaseMeter::new(options.progress.as_ref(), RestartPhase::Undo, undo_space);
        if let Some(oldest) = losers.first().map(|loser| loser.begin) {
            let mut reader = RecordReader::open(&*self.device, &self.identity, oldest, at)?;
            // The last record of all that are left, and whose it is.
            let next = |index: usize, losers: &[RecordChain]| (losers[index].undo_next, index);
            let mut heap: BinaryHeap<_> = (0..losers.len()).map(|i| next(i, &losers)).collect();
            while let Some((undo_next, index)) = heap.pop() {
                let loser = &mut losers[index];
                let before = loser.undo_space;
                if undo_next <= loser.begin {
                    self.end(worker, loser)?;
                    meter.advance(before);
                    continue;
                }
                self.undo_one(worker, &mut reader, loser, pages)?;
                summary.undone += u64::from(loser.undo_space < before);
                meter.advance(before - loser.undo_space);
                heap.push(next(index, &losers));
            }
        }
        meter.end();
        summary.losers = losers.len();
        summary.undo_time = begun.elapsed();
        Ok(())
    }
}
