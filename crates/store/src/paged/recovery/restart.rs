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
use super::checkpoint::{Checkpointed, Checkpointer};
use super::error::RecoveryError;
use super::pages::Pages;
use super::progress::{Meter, RestartCall, RestartPhase};
use super::redo::{Redone, redo};
use super::space::Space;
use super::tables::{Entry, State, Tables};
use super::transaction::{Chain, Recovery};

/// How a restart goes about it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RestartOptions {
    /// How many threads repeat history. Default 2, at least 1.
    pub threads: usize,
    /// Where the log may grow to (`space`). Default: anywhere.
    pub limit: Lsn,
    /// Who hears how far it is. Default: nobody.
    pub progress: Option<RestartCall>,
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
pub struct Restarted {
    /// Records of transactions that analysis read.
    pub analysed: u64,
    /// Where redo began.
    pub redo_from: Lsn,
    /// Bytes of log that it read.
    pub redo_bytes: u64,
    /// Changes that it made again.
    pub redone: u64,
    /// Changes that pages had, of those it looked at.
    pub had: u64,
    /// How long it took.
    pub redo_time: Duration,
    /// Transactions that were taken back.
    pub losers: usize,
    /// Compensations that were written.
    pub undone: u64,
    /// How long that took.
    pub undo_time: Duration,
    /// The checkpoint at the end, if there was reason and room for one.
    pub checkpoint: Option<Checkpointed>,
}

impl fmt::Display for Restarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} records analysed; {} changes made again, {} found made, in {} bytes of log; {} transactions \
             taken back, {} changes",
            self.analysed, self.redone, self.had, self.redo_bytes, self.losers, self.undone
        )
    }
}

/// What a restart hands out.
#[derive(Debug)]
pub struct Recovered {
    /// For transactions.
    pub recovery: Recovery,
    /// For checkpoints.
    pub checkpointer: Checkpointer,
    /// What was done.
    pub restarted: Restarted,
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
) -> Result<Recovered, RecoveryError<P::Error>> {
    analysis.end();
    let Analysis {
        tables,
        at,
        records,
        ..
    } = analysis;
    let credit = tables.transactions.values().map(|entry| entry.room);
    let credit = credit.fold(0, u64::saturating_add);
    let space = Space::new(log.end(worker), credit, options.limit);
    let recovery = Recovery {
        device,
        identity,
        log,
        space,
    };
    let mut restarted = Restarted {
        analysed: records,
        ..Restarted::default()
    };
    recovery.repeat(&tables, at, pages, options, &mut restarted)?;
    recovery.take_back(worker, &tables, at, pages, options, &mut restarted)?;
    let is_needed = records > 0 || !tables.transactions.is_empty();
    let mut checkpointer = Checkpointer { tables, at };
    if is_needed {
        restarted.checkpoint = match checkpointer.checkpoint(&recovery, worker, pages) {
            Ok(checkpoint) => Some(checkpoint),
            Err(RecoveryError::NoRoom(_)) => None, // I2
            Err(error) => return Err(error),
        };
    }
    Ok(Recovered {
        recovery,
        checkpointer,
        restarted,
    })
}

impl Recovery {
    /// Redo.
    fn repeat<P: Pages>(
        &self,
        tables: &Tables,
        at: Lsn,
        pages: &P,
        options: &RestartOptions,
        restarted: &mut Restarted,
    ) -> Result<(), RecoveryError<P::Error>> {
        let begun = Instant::now();
        let from = tables.redo_from(at);
        let bytes = at.since(from);
        let meter = Meter::new(options.progress.as_ref(), RestartPhase::Redo, bytes);
        if bytes > 0 {
            let follower = DurableReader::open(&*self.device, &self.identity, from, at)?;
            let Redone { made, had } = redo(follower, tables, pages, options.threads, &meter)?;
            (restarted.redone, restarted.had) = (made, had);
        }
        meter.end();
        (restarted.redo_from, restarted.redo_bytes) = (from, bytes);
        restarted.redo_time = begun.elapsed();
        Ok(())
    }

    /// Undo; and END for winners that lack it.
    fn take_back<P: Pages>(
        &self,
        worker: &Worker,
        tables: &Tables,
        at: Lsn,
        pages: &P,
        options: &RestartOptions,
        restarted: &mut Restarted,
    ) -> Result<(), RecoveryError<P::Error>> {
        let begun = Instant::now();
        let is_loser = |entry: &Entry| entry.state != State::Committed;
        let found = |(begin, entry): (&Lsn, &Entry)| Chain::found(*begin, *entry);
        for entry in tables.transactions.iter().filter(|(_, e)| !is_loser(e)) {
            self.end(worker, &mut found(entry))?;
        }
        let losers = tables.transactions.iter().filter(|(_, e)| is_loser(e));
        let mut losers: Vec<Chain> = losers.map(found).collect();
        let room = losers.iter().map(|loser| loser.room);
        let room = room.fold(0, u64::saturating_add);
        let meter = Meter::new(options.progress.as_ref(), RestartPhase::Undo, room);
        if let Some(oldest) = losers.first().map(|loser| loser.begin) {
            let mut fetcher = RecordReader::open(&*self.device, &self.identity, oldest, at)?;
            // The last record of all that are left, and whose it is.
            let next = |index: usize, losers: &[Chain]| (losers[index].undo_next, index);
            let mut heap: BinaryHeap<_> = (0..losers.len()).map(|i| next(i, &losers)).collect();
            while let Some((undo_next, index)) = heap.pop() {
                let loser = &mut losers[index];
                let before = loser.room;
                if undo_next <= loser.begin {
                    self.end(worker, loser)?;
                    meter.advance(before);
                    continue;
                }
                self.undo_one(worker, &mut fetcher, loser, pages)?;
                restarted.undone += u64::from(loser.room < before);
                meter.advance(before - loser.room);
                heap.push(next(index, &losers));
            }
        }
        meter.end();
        restarted.losers = losers.len();
        restarted.undo_time = begun.elapsed();
        Ok(())
    }
}
