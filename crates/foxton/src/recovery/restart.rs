//! Restart: rebuilds the tables from the files. They then contain what was committed and nothing
//! else.
//!
//! Restart loads the checkpoint, if there is one, and then reads the log once, from the position
//! that the checkpoint names. No transaction uses the tables yet, so restart takes no locks.
//!
//! One thread reads the log. If the log is long, other threads apply the changes. A hash of a row's
//! key assigns each row to one of them, and each thread gets its changes in log order. So the
//! changes of one row are applied in commit order. The order between different rows does not
//! matter, because no transaction reads them before all changes are applied.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use foxton_log::device::Device;
use foxton_log::format::segment;
use foxton_log::read::durable_reader::ReadError;
use foxton_log::read::reader;
use foxton_log::read::record_reader::RecordReader;
use foxton_log::{Failure, Log, LogOptions, LogSummary, Lsn, OpenError, RecordView, Start};
use foxton_store::memory::{NewRecord, Next};
use foxton_store::paged::recovery::Analysis;
use foxton_sync::worker::{Worker, Workers};

use crate::catalog::resident_memory::{ResidentMemory, counted_bytes};
use crate::catalog::table_store::TableStore;
use crate::catalog::{Catalog, OpenTable};
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::{CheckpointError, load};
use crate::options::Options;
use crate::options::progress::{OpenPhase, ProgressMeter};
use crate::redo::parts::{PartCursor, PartError};
use crate::redo::patch;
use crate::redo::record::{Effect, RowChange, next_change};
use crate::redo::replay::{InvalidRecord, Replay, ReplayEvent};
use crate::types::codec::Value;
use crate::types::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// Bytes of changes that the reading thread applies itself; further ones go to other threads.
const INLINE_BYTES: u64 = 64 << 10;
/// Bytes of changes in one batch.
const BATCH_BYTES: usize = 32 << 10;
/// Maximum number of batches queued for one thread; the reading thread waits at this limit.
const BATCHES: usize = 8;

/// The findings of a restart.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Rows loaded from the checkpoint; 0 if there was none.
    pub checkpoint_rows: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Time taken to load them.
    pub checkpoint_time: Duration,
    /// Committed transactions in the log after the checkpoint.
    pub transactions: u64,
    /// Changes that they made.
    pub changes: u64,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// Time taken to read and apply the log.
    pub log_time: Duration,
    /// LSN at which the log ends, in bytes.
    pub log_end: Lsn,
    /// How the log ended, and what was done about it, in readable form.
    pub log: String,
}

impl RecoveryReport {
    /// The report of a new database in memory.
    pub(crate) fn in_memory() -> RecoveryReport {
        RecoveryReport {
            checkpoint_rows: 0,
            checkpoint_bytes: 0,
            checkpoint_time: Duration::ZERO,
            transactions: 0,
            changes: 0,
            log_bytes: 0,
            log_time: Duration::ZERO,
            log_end: Lsn::ZERO,
            log: "none, because the database is in memory".to_owned(),
        }
    }
}

/// Why a restart failed.
pub(crate) enum RestartError {
    Log(OpenError<InvalidRecord>),
    Checkpoint(CheckpointError),
}

impl From<CheckpointError> for RestartError {
    fn from(error: CheckpointError) -> RestartError {
        RestartError::Checkpoint(error)
    }
}

/// Restores the tables of the database `identity` into an empty catalog, and opens its log for
/// writing. Returns the log and the manifest of the checkpoint.
pub(crate) fn restart(
    device: &Arc<dyn Device>,
    identity: [u8; 16],
    options: &Options,
    log_options: LogOptions,
    catalog: &Catalog,
    workers: &Workers,
    analysis: Option<&mut Analysis>,
) -> Result<(Log, Manifest, RecoveryReport), RestartError> {
    let target = (catalog, workers, analysis);
    let open = |start, visit: Visit<'_>, finish: Finish<'_>| {
        let device = device.clone();
        let (log, opened) = Log::open_from(device, log_options, identity, start, visit, finish)?;
        Ok((opened.to_string(), opened.summary, log))
    };
    restore(&**device, &identity, options, target, open)
}

/// As [`restart`], but only reads: it changes no file and opens no log.
pub(crate) fn read(
    device: &dyn Device,
    identity: &[u8; 16],
    options: &Options,
    catalog: &Catalog,
    workers: &Workers,
    analysis: Option<&mut Analysis>,
) -> Result<RecoveryReport, RestartError> {
    let target = (catalog, workers, analysis);
    let read = |start, visit: Visit<'_>, finish: Finish<'_>| {
        let summary = reader::read(device, identity, start, visit)?;
        finish()?;
        Ok((summary.to_string(), summary, ()))
    };
    let ((), _, recovered) = restore(device, identity, options, target, read)?;
    Ok(recovered)
}

/// Replays one record of the log.
type Visit<'v> = &'v mut dyn FnMut(RecordView<'_>) -> Result<(), InvalidRecord>;

/// Waits until every record is replayed.
type Finish<'f> = &'f mut dyn FnMut() -> Result<(), Unfit>;

/// Restores the tables. `analysis` of pages is shown the log too, from where it begins. `read_log`
/// reads the log, replays it, and returns a description of it, its
/// summary, and what it has opened.
fn restore<T>(
    device: &dyn Device,
    identity: &[u8; 16],
    options: &Options,
    (catalog, workers, mut analysis): (&Catalog, &Workers, Option<&mut Analysis>),
    read_log: impl FnOnce(Start, Visit<'_>, Finish<'_>) -> Result<(String, LogSummary, T), Unfit>,
) -> Result<(T, Manifest, RecoveryReport), RestartError> {
    let call = options.progress.as_ref();
    let threads = options.threads_for_restart();
    let manifest = Manifest::read(device, identity)?;
    for table in &manifest.tables {
        if !catalog.restore(table.clone()) {
            let what = "it holds two tables with one number or name";
            return Err(
                CheckpointError::damaged(crate::checkpoint::manifest::FILE, 0, what).into(),
            );
        }
    }
    let begun = Instant::now();
    let meter = ProgressMeter::new(call, OpenPhase::Checkpoint, manifest.bytes());
    let rows = load::load(
        device, identity, &manifest, catalog, workers, threads, &meter,
    )?;
    meter.end();
    let checkpoint_time = begun.elapsed();

    let begun = Instant::now();
    let mut start = Start {
        from: manifest.redo_from,
        durable: manifest.checkpoint_lsn,
    };
    if let Some(analysis) = &analysis {
        let Start { from, durable } = analysis.start();
        // Replay skips what the checkpoint has, wherever reading begins.
        (start.from, start.durable) = (start.from.min(from), start.durable.max(durable));
    }
    let log_bytes = match call {
        Some(_) => segment::files_end(device).since(start.from),
        None => 0,
    };
    let meter = ProgressMeter::new(call, OpenPhase::Log, log_bytes);
    let (log, summary, opened, counts) = thread::scope(|scope| {
        let files = LogFiles {
            device,
            identity,
            from: start.from,
        };
        let redo = Redo::new(
            scope,
            catalog,
            workers,
            threads,
            files,
            manifest.checkpoint_lsn,
        );
        let redo = RefCell::new(redo);
        let mut visit = |record: RecordView<'_>| {
            meter.advance(record.end.since(record.lsn));
            if let Some(analysis) = analysis.as_deref_mut() {
                let taken = analysis.take(record);
                taken.map_err(|malformed| InvalidRecord(malformed.expected))?;
            }
            redo.borrow_mut().visit(record)
        };
        let (log, summary, opened) =
            read_log(start, &mut visit, &mut || redo.borrow_mut().finish())
                .map_err(|error| redo.borrow_mut().finish().err().unwrap_or(error))?;
        Ok((log, summary, opened, redo.into_inner().counts))
    })
    .map_err(RestartError::Log)?;
    meter.end();
    let recovered = RecoveryReport {
        checkpoint_rows: rows,
        checkpoint_bytes: manifest.bytes(),
        checkpoint_time,
        transactions: counts.transactions,
        changes: counts.changes,
        log_bytes: summary.end.since(start.from),
        log_time: begun.elapsed(),
        log_end: summary.end,
        log,
    };
    Ok((opened, manifest, recovered))
}

/// Counts of what was replayed.
#[derive(Debug, Clone, Copy, Default)]
struct ReplayCounts {
    transactions: u64,
    changes: u64,
}

/// The files of the log, to read parts of transactions again.
#[derive(Clone, Copy)]
struct LogFiles<'d> {
    device: &'d dyn Device,
    identity: &'d [u8; 16],
    /// Where restart begins to read.
    from: Lsn,
}

impl<'d> LogFiles<'d> {
    fn open(self) -> Result<RecordReader<'d>, ReadError> {
        let LogFiles {
            device,
            identity,
            from,
        } = self;
        RecordReader::open_all(device, identity, from).map(RecordReader::forwards)
    }
}

/// Replays the log.
struct Redo<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    catalog: &'env Catalog,
    workers: &'env Workers,
    replay_worker: ReplayWorker<'env>,
    threads: usize,
    files: LogFiles<'env>,
    /// Reader of parts, once there were any.
    part_log: Option<RecordReader<'env>>,
    /// Why parts could not be read again.
    unread: Option<Unfit>,
    replay: Replay,
    tables: Vec<Arc<OpenTable>>,
    counts: ReplayCounts,
    /// Bytes of changes so far.
    bytes: u64,
    appliers: Vec<Applier<'scope>>,
}

/// A thread that applies the changes of its rows. A batch is a sequence of changes, each preceded
/// by the LSN of its record.
struct Applier<'scope> {
    batch: Vec<u8>,
    batches: SyncSender<Vec<u8>>,
    thread: ScopedJoinHandle<'scope, Result<(), Unfit>>,
}

/// Error: a change does not fit its row. It includes the LSN of the record.
type Unfit = OpenError<InvalidRecord>;

impl<'scope, 'env> Redo<'scope, 'env> {
    fn new(
        scope: &'scope Scope<'scope, 'env>,
        catalog: &'env Catalog,
        workers: &'env Workers,
        threads: usize,
        files: LogFiles<'env>,
        checkpoint_lsn: Lsn,
    ) -> Redo<'scope, 'env> {
        Redo {
            scope,
            catalog,
            workers,
            replay_worker: ReplayWorker::new(workers, &catalog.resident),
            threads,
            files,
            part_log: None,
            unread: None,
            replay: Replay::new(checkpoint_lsn),
            tables: catalog.tables(),
            counts: ReplayCounts::default(),
            bytes: 0,
            appliers: Vec::new(),
        }
    }

    /// Processes one record.
    fn visit(&mut self, record: RecordView<'_>) -> Result<(), InvalidRecord> {
        match self.replay.take(record)? {
            ReplayEvent::Nothing => Ok(()),
            ReplayEvent::Table(table) => {
                if !self.catalog.restore(table) {
                    return Err(InvalidRecord("a table with a number and a name of its own"));
                }
                self.tables = self.catalog.tables();
                Ok(())
            }
            ReplayEvent::Committed(changes) => {
                self.counts.transactions += 1;
                self.apply(record.lsn, changes)
            }
            ReplayEvent::InParts(parts) => {
                self.counts.transactions += 1;
                let mut log = match self.part_log.take() {
                    Some(log) => log,
                    None => {
                        let log = self.files.open();
                        log.map_err(|error| self.unread(PartError::Log(error)))?
                    }
                };
                let mut parts = PartCursor::new(parts);
                while let Some((lsn, changes)) =
                    parts.next(&mut log).map_err(|error| self.unread(error))?
                {
                    self.apply(lsn, changes)?;
                }
                self.part_log = Some(log);
                Ok(())
            }
        }
    }

    /// Records why parts could not be read again; `finish` returns it.
    fn unread(&mut self, error: PartError) -> InvalidRecord {
        self.unread = Some(match error {
            PartError::Log(OpenError::Device(failure)) => OpenError::Device(failure),
            PartError::Log(other) => OpenError::Device(Failure {
                operation: "read",
                file: match other {
                    OpenError::Corrupt(corruption) => corruption.file,
                    _ => "the log".to_owned(),
                },
                source: io::Error::other(
                    "two reads of it differ; open it again to see what it holds",
                ),
            }),
            PartError::Invalid(lsn, error) => OpenError::Visit { lsn, error },
        });
        InvalidRecord("parts that can be read again")
    }

    fn apply(&mut self, lsn: Lsn, mut changes: &[u8]) -> Result<(), InvalidRecord> {
        self.bytes += changes.len() as u64;
        if self.threads > 1 && self.appliers.is_empty() && self.bytes > INLINE_BYTES {
            self.start_appliers();
        }
        while !changes.is_empty() {
            let change = next_change(&mut changes)?;
            let Some(table) = self.tables.get(change.table as usize) else {
                return Err(InvalidRecord("a change to a table that is known"));
            };
            let value_bytes = match change.effect {
                Effect::Put(value) => value.len(),
                // The size of a patched value is checked when it is known.
                Effect::Delete | Effect::Patch(_) => 0,
            };
            if change.key.len() > MAX_KEY_BYTES || value_bytes > MAX_VALUE_BYTES {
                return Err(InvalidRecord("a key and a value within their limits"));
            }
            self.counts.changes += 1;
            if self.appliers.is_empty() {
                self.replay_worker.redo(table, change)?;
                continue;
            }
            let hash = crc32c::crc32c_append(change.table, change.key);
            let count = self.appliers.len();
            let applier = &mut self.appliers[hash as usize % count];
            applier.batch.extend_from_slice(&lsn.bytes().to_le_bytes());
            change.encode(&mut applier.batch);
            if applier.batch.len() >= BATCH_BYTES && !applier.submit() {
                // `finish` returns the cause.
                return Err(InvalidRecord("changes that could be applied"));
            }
        }
        Ok(())
    }

    /// Starts the threads. Changes applied before are in the tables already, so order is kept.
    fn start_appliers(&mut self) {
        for _ in 0..self.threads {
            let (batches, receiver) = sync_channel(BATCHES);
            let catalog = self.catalog;
            let replay_worker = ReplayWorker::new(self.workers, &catalog.resident);
            let spawned = thread::Builder::new()
                .name("foxton-redo".to_owned())
                .spawn_scoped(self.scope, move || {
                    apply_all(&receiver, catalog, replay_worker)
                });
            // Without threads, the reading thread applies the changes.
            let Ok(thread) = spawned else {
                return;
            };
            self.appliers.push(Applier {
                batch: Vec::with_capacity(2 * BATCH_BYTES),
                batches,
                thread,
            });
        }
    }

    /// Waits until everything is applied. An error is about an earlier record than any error of
    /// `visit`.
    fn finish(&mut self) -> Result<(), Unfit> {
        let mut outcome = Ok(());
        for mut applier in self.appliers.drain(..) {
            applier.submit();
            drop(applier.batches);
            let applied = applier.thread.join().expect("redo does not panic");
            outcome = outcome.and(applied);
        }
        outcome.and(self.unread.take().map_or(Ok(()), Err))
    }
}

impl Applier<'_> {
    /// Sends the batch. Returns false if the thread has ended; `finish` then returns the cause.
    fn submit(&mut self) -> bool {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(2 * BATCH_BYTES));
        self.batches.send(batch).is_ok()
    }
}

fn apply_all(
    batches: &Receiver<Vec<u8>>,
    catalog: &Catalog,
    mut replay_worker: ReplayWorker<'_>,
) -> Result<(), Unfit> {
    let mut tables = catalog.tables();
    for batch in batches {
        let mut changes = &batch[..];
        while let Ok(lsn) = u64::decode_part(&mut changes) {
            let change = next_change(&mut changes).expect("it was read before it was handed over");
            if change.table as usize >= tables.len() {
                tables = catalog.tables();
            }
            let redone = replay_worker.redo(&tables[change.table as usize], change);
            redone.map_err(|error| OpenError::Visit {
                lsn: Lsn::new(lsn),
                error,
            })?;
        }
    }
    Ok(())
}

/// State for applying changes.
struct ReplayWorker<'env> {
    worker: Worker,
    memory: &'env ResidentMemory,
    /// Bytes by which it has made rows grow.
    counted: i64,
    /// Buffer for the result of a patch.
    value: Vec<u8>,
}

impl<'env> ReplayWorker<'env> {
    fn new(workers: &Workers, memory: &'env ResidentMemory) -> ReplayWorker<'env> {
        ReplayWorker {
            worker: workers.worker(),
            memory,
            counted: 0,
            value: Vec::new(),
        }
    }

    /// Applies a change, whose key and value are within their limits.
    fn redo(&mut self, table: &OpenTable, change: RowChange<'_>) -> Result<(), InvalidRecord> {
        const WITHIN: &str = "it was checked when it was read";
        let ReplayWorker {
            worker,
            value,
            counted,
            ..
        } = self;
        let guard = worker.pin();
        let TableStore::Resident(rows) = &table.store else {
            return Err(InvalidRecord("changes of tables in memory"));
        };
        let found = rows.get(&guard, change.key);
        let mut hazard = guard.hazard();
        let new = match change.effect {
            Effect::Delete => None,
            Effect::Put(new) => Some(new),
            Effect::Patch(patch) => {
                let old = found.and_then(|record| record.value(&mut hazard));
                let old = old.ok_or(InvalidRecord("a patch for a row that is there"))?;
                value.clear();
                patch::apply(patch, old, value)?;
                Some(&value[..])
            }
        };
        let old = found.and_then(|record| record.value(&mut hazard));
        *counted += counted_bytes(change.key, new) - counted_bytes(change.key, old);
        let Some(record) = found else {
            if new.is_some() {
                let record = NewRecord::new(change.key, new)
                    .expect(WITHIN)
                    .with_free_anchor();
                let inserted = rows.insert(&guard, record, Next::Any);
                assert!(
                    inserted.is_ok(),
                    "nobody else uses the row, and the key is not there"
                );
            }
            return Ok(());
        };
        // Restart never undoes a change, so any recent stamp will do.
        let now = guard.participant().recent_stamp();
        let old = match new {
            Some(new) => record.put(new, &guard, now).expect(WITHIN),
            None => record.swap(None, &guard),
        };
        if let Some(old) = old {
            old.retire(guard.participant());
        }
        if new.is_none() {
            let removed = rows.remove(&guard, record, Next::Any);
            assert!(
                removed.is_ok(),
                "nobody else uses the row, and the record is a ghost"
            );
        }
        Ok(())
    }
}

impl Drop for ReplayWorker<'_> {
    fn drop(&mut self) {
        self.memory.add(self.counted, &self.worker);
    }
}
