//! Restart after a crash: analysis, redo, undo, checkpoint.
//!
//! Opening the log shows its records to `analysis` and makes its end durable. Only then are pages
//! touched, because a page that is written before could have changes whose records the disk does
//! not have. Redo repeats history (`redo`). Undo removes the changes of losers: always the last
//! record of all remaining ones, so that each page is changed in reverse order, and the log is read
//! backwards once. A checkpoint ends it.
//!
//! # Invariants
//!
//! * I1  Cut short anywhere and begun again, it ends the same: redo makes the missing changes, and
//!   undo continues behind the last compensation in the log (`undo`, I1).
//! * I2  The space for its writes was reserved before the crash, except for the checkpoint, which
//!   is left out if there is no space.

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
use super::tables::{Tables, TransactionEntry};
use super::transaction::{RecordChain, Recovery};
use super::undo_reserve::UndoReserve;
use crate::failpoint;

/// Options of a restart.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RestartOptions {
    /// Number of threads that redo changes. Default 2, at least 1.
    pub threads: usize,
    /// Position to which the log may grow (`space`). Default: unlimited.
    pub limit: Lsn,
    /// Notified of progress. Default: none.
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

/// Findings and work of a restart.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RestartSummary {
    /// Number of records of changes and transactions that analysis read.
    pub analysed: u64,
    /// Position where redo began.
    pub redo_from: Lsn,
    /// Bytes of log that redo read.
    pub redo_bytes: u64,
    /// Number of changes that redo made again.
    pub redone: u64,
    /// Number of changes that pages already had, of those checked.
    pub present: u64,
    /// Time that redo took.
    pub redo_time: Duration,
    /// Number of transactions that were undone.
    pub losers: usize,
    /// Number of compensations that were written.
    pub undone: u64,
    /// Time that undo took.
    pub undo_time: Duration,
    /// The checkpoint at the end, if there was reason and space for one.
    pub checkpoint: Option<CheckpointSummary>,
}

impl fmt::Display for RestartSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} records analysed; {} changes applied again, {} present, in {} bytes of log; {} transactions \
             taken back, {} changes",
            self.analysed, self.redone, self.present, self.redo_bytes, self.losers, self.undone
        )
    }
}

/// Result of a restart.
#[derive(Debug)]
pub struct RestartResult {
    /// For transactions.
    pub recovery: Arc<Recovery>,
    /// For checkpoints.
    pub checkpointer: PageCheckpointer,
    /// Findings and work.
    pub summary: RestartSummary,
}

/// Brings pages to their committed state, once `analysis` has seen the log, for which `recovery`
/// was made. The log takes records from no other caller until this is done.
///
/// # Errors
///
/// If the log, the anchor or the pages fail. The restart may be begun again, from analysis.
pub fn restart<P: Pages>(
    recovery: Arc<Recovery>,
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

/// Repeats history and does nothing else: makes the changes that `pages` lack of the log in
/// `device`, which `analysis` was shown. For a reader that changes no file.
///
/// # Errors
///
/// If the log or the pages fail.
pub fn repeat_history<P: Pages>(
    device: &dyn Device,
    identity: &[u8; 16],
    analysis: &Analysis,
    pages: &P,
) -> Result<(), RecoveryError<P::Error>> {
    let (tables, at) = (&analysis.tables, analysis.at);
    let from = tables.redo_from(at);
    if from < at {
        let reader = DurableReader::open(device, identity, from, at)?;
        let meter = PhaseMeter::new(None, RestartPhase::Redo, 0);
        redo(reader, tables, pages, 1, &meter)?;
    }
    Ok(())
}

impl Recovery {
    /// Returns the recovery of the pages of the database `identity`, whose open `log` is in
    /// `device` and was shown to `analysis`. Pages are not to be changed before [`restart`] has
    /// returned.
    pub fn new(
        device: Arc<dyn Device>,
        identity: [u8; 16],
        log: Arc<Log>,
        worker: &Worker,
        analysis: &Analysis,
        options: &RestartOptions,
    ) -> Recovery {
        let transactions = analysis.tables.transactions.values();
        let credit = transactions.map(|entry| entry.undo_space);
        let credit = credit.fold(0, u64::saturating_add);
        let space = UndoSpace::new(log.end(worker), credit, options.limit);
        Recovery {
            device,
            identity,
            log,
            space,
            reserve: UndoReserve::default(),
        }
    }

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

    /// Undo.
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
        let chain_of =
            |(begin, entry): (&Lsn, &TransactionEntry)| RecordChain::from_entry(*begin, *entry);
        let mut losers: Vec<RecordChain> = tables.transactions.iter().map(chain_of).collect();
        let undo_space = losers.iter().map(|loser| loser.undo_space);
        let undo_space = undo_space.fold(0, u64::saturating_add);
        let meter = PhaseMeter::new(options.progress.as_ref(), RestartPhase::Undo, undo_space);
        if let Some(oldest) = losers.first().map(|loser| loser.begin) {
            let mut reader = RecordReader::open(&*self.device, &self.identity, oldest, at)?;
            // The last remaining record, and the index of its transaction.
            let next = |index: usize, losers: &[RecordChain]| (losers[index].undo_next, index);
            let mut heap: BinaryHeap<_> = (0..losers.len()).map(|i| next(i, &losers)).collect();
            while let Some((undo_next, index)) = heap.pop() {
                let loser = &mut losers[index];
                let before = loser.undo_space;
                let wins = worker.failpoints().misbehaves(&failpoint::LOSER_WINS);
                if undo_next.is_none() || wins {
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
