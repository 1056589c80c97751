//! Checkpoints: the committed state in a form other than the log, so that the log can be short.
//!
//! # The idea
//!
//! The log contains committed transactions and nothing else, in commit order. So a checkpoint is
//! made from the log and not from the tables. A thread reads the durable log, keeps only the last
//! change of each row, sorts these changes and writes them as a *layer*. Layers are stacked. An
//! entry of a newer layer replaces the older layers' entries for its row; if it is a patch, it is
//! applied to them. From time to time several layers are merged into one (`builder` says when). A
//! manifest names the layers and the LSN up to which they contain the log, `checkpoint_lsn`.
//! Restart loads the layers and replays the log from there.
//!
//! # What this gives
//!
//! * A checkpoint cannot contain uncommitted values, because they are only in the tables, which it
//!   does not read.
//! * A checkpoint is exactly the database after the last commit that ends at or before
//!   `checkpoint_lsn`. It is not fuzzy, and yet it stops no transaction.
//! * Writers do not wait: making a checkpoint takes no lock, no latch and no log space that a
//!   transaction uses. It does share the processor and the device with them. So it is spread over
//!   the time in which the log for the next one is written (`pacing`), or limited to a set rate.
//!   Only commits that write faster than a checkpoint can be made wait for one, holding nothing
//!   (`throttle`), because otherwise the disk would fill up.
//! * The bytes written depend on the number of changes, not on the size of the database.
//! * A checkpoint does not depend on how tables, records or locks work, nor on when locks are
//!   released.
//!
//! The price: committed changes are read once more, usually from the page cache, and sorted.
//!
//! # State
//!
//! | | |
//! |---|---|
//! | `checkpoint` | the manifest ([`manifest`]) |
//! | `layer-NUMBER` | the layers ([`layer`]) |
//! | the log from `redo from` | later commits, and the parts of transactions that may yet commit |
//!
//! # Invariants
//!
//! * I1 Layers plus the log from `redo from`, without the transactions that end at or before
//!   `checkpoint_lsn`, are the database.
//! * I2 The log is durable up to `checkpoint_lsn` before a manifest says so. So the log never ends
//!   before the checkpoint, and one that does is damaged.
//! * I3 At every moment the files of any manifest that a power failure could leave are all there
//!   and durable (`builder` has the order of the calls).
//! * I4 A transaction that is written in parts and had not ended at `checkpoint_lsn` retains the
//!   log from its first part on.
//! * I5 A layer's entry for a row, applied to the layers below, is the row after the last commit
//!   that the layer contains. A layer contains everything committed between two checkpoint LSNs,
//!   and nothing else. A patch in it was made for the value that all earlier changes left
//!   (`redo::record`, I2).
//!
//! # Why replay is right
//!
//! Take a row and the last durable transaction T that changed it. If T's last record ends at or
//! before `checkpoint_lsn`, T's change is the topmost entry of the row in the layers. That follows
//! from I1 of `redo::record` and because a newer layer takes precedence. No replayed transaction
//! changes the row. If T's last record ends later, T is replayed, and no later replayed transaction
//! changes the row. Both hold however often restart was begun before, because a restart changes no
//! file of a checkpoint.
//!
//! If T's change is a patch, replay also needs every earlier change of the row, each exactly once.
//! Those up to `checkpoint_lsn` are in the layers (I5), later ones are replayed in order, and none
//! is in both: the end of a transaction's last record decides on which side of `checkpoint_lsn` it
//! is. A patch contains the checksum of its result, so every resulting row is one that was
//! committed.

/// Errors of a checkpoint.
mod error;

/// Layers: sorted files of rows.
pub(crate) mod layer;

/// Manifest: the list of layers.
pub(crate) mod manifest;

/// Throttling of writers that outrun checkpoints.
mod throttle;

/// Pacing of checkpoints.
mod pacing;

/// Composition of the changes of one row.
mod compose;

/// Sort key of a change.
mod sort_key;

/// Buffer of changes read from the log.
mod change_buffer;

/// Merging layers.
pub(crate) mod merge;

/// Loading layers at restart.
pub(crate) mod load;

/// Log that pages need.
pub(crate) mod needed_log;

/// Building a checkpoint.
mod builder;

use std::fmt;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use foxton_log::format::superblock;
use foxton_log::{Log, Lsn};
use foxton_sync::shim::{self, Condvar, Mutex, MutexGuard, Ordering};
use foxton_sync::worker::Worker;

use builder::BuildSteps;
pub(crate) use builder::CheckpointBuilder;
pub(crate) use error::CheckpointError;
use pacing::{CheckpointProgress, Pacer, Rate, Writers};
use throttle::{LogBudget, StallDecision, Throttle, ThrottleGuard};
pub(crate) use throttle::{WriteCredit, WriteStall};

use crate::status::LogHolder;

/// The file whose exclusive lock a checkpoint holds while it removes files. Readers that open files
/// of a database in use share the lock.
pub(crate) const REMOVAL_LOCK: &str = superblock::FILE;

/// Bytes of changes that a step holds in memory.
const STEP_BYTES: u64 = 64 << 20;
/// Maximum number of steps of a checkpoint that is far behind, unless each would exceed
/// [`STEP_BYTES`]. Each step writes a layer and a manifest with all layers, and lists the
/// directory. With many small steps a checkpoint would be slower the further it is behind.
const STEPS: u64 = 64;
/// The rate limit is ignored once this many times the usual log between checkpoints has been
/// written.
const PATIENCE: u64 = 2;
/// A checkpoint that no caller waits for is spread over this many quarters of the log for the next
/// one.
const SPREAD: u64 = 3;

/// Result of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The checkpoint contains everything committed up to here.
    pub checkpoint_lsn: Lsn,
    /// Where the next restart begins to read the log: at `checkpoint_lsn`, or earlier if a
    /// transaction written in parts had not ended there.
    pub redo_from: Lsn,
    /// Number of files with rows.
    pub layers: usize,
    /// Bytes in these files.
    pub bytes: u64,
    /// Bytes written for this checkpoint.
    pub written_bytes: u64,
    /// Number of log files removed because they are not needed any more.
    pub segments_removed: usize,
    /// Time taken.
    pub took: Duration,
}

/// Statistics of checkpoints since the database was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CheckpointStats {
    /// Number of checkpoints made.
    pub made: u64,
    /// Number of checkpoints that failed. After a failure the previous checkpoint stays valid and
    /// the log keeps growing.
    pub failed: u64,
    /// Error of the last failure, if any.
    pub last_failure: Option<String>,
    /// The last checkpoint made.
    pub last: Option<Checkpoint>,
    /// LSN of the checkpoint on the device, which may be older than the opening of the database.
    pub checkpoint_lsn: Lsn,
    /// Bytes written for all checkpoints.
    pub written_bytes: u64,
    /// Bytes read by the checkpoint in progress, and bytes it has to read in total.
    pub progress: Option<(u64, u64)>,
    /// Number of commits that wait because checkpoints fall behind.
    pub waiting: u64,
    /// Number of commits that have waited or wait.
    pub throttled: u64,
    /// Total time of completed waits.
    pub throttled_for: Duration,
    /// The open transaction that keeps the most log from being removed, if there is one.
    pub log_holder: Option<LogHolder>,
}

/// Checkpoints of one open database.
pub(crate) struct CheckpointControl {
    builder: Mutex<CheckpointBuilder>,
    /// Locked before `builder`, and only until that is locked.
    turn: Mutex<()>,
    /// Bytes of log after which a checkpoint is due.
    every: u64,
    rate: Option<u64>,
    throttle: Throttle,
    progress: CheckpointProgress,
    stats: Mutex<CheckpointStats>,
    /// Wakes the checkpoint thread. A commit that makes a checkpoint due sets it.
    wakeup: Mutex<Wakeup>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Wakeup {
    requested: bool,
    stop: bool,
}

impl fmt::Debug for CheckpointControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoints")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

impl CheckpointControl {
    /// Creates the state. A checkpoint is due after every `every` bytes of log. One that no caller
    /// waits for reads and writes at most `rate` bytes per second; without a rate it follows the
    /// log.
    pub(crate) fn new(
        builder: CheckpointBuilder,
        every: u64,
        rate: Option<u64>,
    ) -> CheckpointControl {
        let checkpoint_lsn = builder.manifest().checkpoint_lsn;
        let due = checkpoint_lsn.plus(every);
        CheckpointControl {
            builder: Mutex::new(builder),
            turn: Mutex::new(()),
            every,
            rate,
            throttle: Throttle::new(due, every),
            progress: CheckpointProgress::default(),
            stats: Mutex::new(CheckpointStats {
                checkpoint_lsn,
                ..CheckpointStats::default()
            }),
            wakeup: Mutex::new(Wakeup::default()),
            news: Condvar::new(),
        }
    }

    /// Records in `write_credit` that a log record of `bytes` bytes ends at `end`.
    #[inline]
    pub(crate) fn note(&self, write_credit: &mut WriteCredit, end: Lsn, bytes: u64) {
        self.throttle.note(write_credit, end, bytes);
    }

    /// For a commit that has exceeded its write credit and holds nothing any more: requests a
    /// checkpoint, or returns a stall to wait for.
    pub(crate) fn pass(
        &self,
        worker: &Worker,
        write_credit: &mut WriteCredit,
        end: Lsn,
    ) -> Option<WriteStall> {
        match self.throttle.pass(worker, write_credit, end) {
            StallDecision::Nothing => None,
            StallDecision::Ask => {
                self.wake_thread();
                None
            }
            StallDecision::Wait(held) => {
                self.progress.pressed.store(true, Ordering::Relaxed); // Relaxed: see `pacing`.
                Some(held)
            }
        }
    }

    /// For a transaction that cannot wait: requests a checkpoint if one is due.
    pub(crate) fn ask(&self, worker: &Worker, end: Lsn) {
        if self.throttle.asks(worker, end) {
            self.wake_thread();
        }
    }

    /// For an open transaction, whose last record ends at `end`: requests a checkpoint if one is
    /// due. It never waits.
    #[inline]
    pub(crate) fn note_open(&self, worker: &Worker, write_credit: &mut WriteCredit, end: Lsn) {
        if self.throttle.may_be_due(write_credit, end) {
            self.ask(worker, end);
        }
    }

    /// Requests a checkpoint, if a transaction has ended that kept as much log as makes one due.
    pub(crate) fn ask_after(&self, kept_bytes: u64) {
        if kept_bytes >= self.every {
            self.wake_thread();
        }
    }

    fn wake_thread(&self) {
        shim::lock(&self.wakeup).requested = true; // Site: "checkpoint due".
        self.news.notify_all();
    }

    /// Sleeps until a checkpoint is due. Returns false when the thread must stop.
    pub(crate) fn await_due(&self) -> bool {
        let wakeup = shim::lock(&self.wakeup);
        let waited = self
            .news
            .wait_while(wakeup, |wakeup| !wakeup.requested && !wakeup.stop);
        let mut wakeup = waited.unwrap_or_else(PoisonError::into_inner);
        wakeup.requested = false;
        !wakeup.stop
    }

    /// Ends the waits of commits and the checkpoint in progress.
    pub(crate) fn stop(&self) {
        self.progress.stop.store(true, Ordering::Relaxed); // Relaxed: see `pacing`.
        shim::lock(&self.wakeup).stop = true;
        self.news.notify_all();
    }

    /// Locks the builder.
    fn hold(&self) -> MutexGuard<'_, CheckpointBuilder> {
        // `turn` is held while waiting for the builder. So back-to-back checkpoints cannot overtake
        // a caller that came between them.
        let _turn = shim::lock(&self.turn);
        self.progress.hurry.store(true, Ordering::Relaxed); // Relaxed: see `pacing`.
        let builder = shim::lock(&self.builder);
        self.progress.hurry.store(false, Ordering::Relaxed);
        builder
    }

    /// Makes a checkpoint of everything committed now, at full speed, because the caller waits for
    /// it.
    pub(crate) fn make(&self, log: &Log, worker: &Worker) -> Result<Checkpoint, CheckpointError> {
        let mut builder = self.hold();
        let mut guard = self.throttle.guard(worker);
        self.make_with(&mut builder, Rate::Full, log, worker, &mut guard)
    }

    /// Makes the checkpoint that is due, and further ones while they are due.
    pub(crate) fn make_due(&self, log: &Log, worker: &Worker) -> Result<(), CheckpointError> {
        let mut builder = self.hold();
        let mut guard = self.throttle.guard(worker);
        loop {
            let backlog = log.end(worker).since(builder.manifest().checkpoint_lsn);
            let begin = log.written();
            let written = || log.written().since(begin);
            let rate_limit = match self.rate {
                _ if backlog / PATIENCE >= self.every => Rate::Full,
                Some(rate) => Rate::Bytes(rate),
                None => Rate::Log(self.every / 4 * SPREAD, &written),
            };
            self.make_with(&mut builder, rate_limit, log, worker, &mut guard)?;
            // A caller that waits for the builder may hold it for long, and commits do not wait for
            // that.
            let is_over = self.progress.is_interrupted() || guard.due() > log.end(worker);
            if is_over {
                return Ok(());
            }
        }
    }

    fn make_with(
        &self,
        builder: &mut CheckpointBuilder,
        rate_limit: Rate<'_>,
        log: &Log,
        worker: &Worker,
        guard: &mut ThrottleGuard<'_>,
    ) -> Result<Checkpoint, CheckpointError> {
        let begun = Instant::now();
        let end = log.end(worker);
        // After a failure, the next attempt comes after this much log.
        guard.set_due(end.plus(self.every));
        let mut made = Checkpoint::default();
        let outcome = self.make_up_to(builder, end, rate_limit, log, worker, &mut made);
        let manifest = builder.manifest();
        made.checkpoint_lsn = manifest.checkpoint_lsn;
        made.redo_from = manifest.redo_from;
        made.layers = manifest.layers.len();
        made.bytes = manifest.bytes();
        made.took = begun.elapsed();
        let mut stats = shim::lock(&self.stats);
        stats.written_bytes += made.written_bytes;
        // A failed checkpoint may have completed some of its steps.
        stats.checkpoint_lsn = made.checkpoint_lsn;
        match &outcome {
            Ok(()) => {
                stats.made += 1;
                stats.last = Some(made);
                guard.set_due(made.checkpoint_lsn.plus(self.every));
            }
            Err(error) => {
                stats.failed += 1;
                stats.last_failure = Some(error.to_string());
            }
        }
        drop(stats);
        outcome.map(|()| made)
    }

    fn make_up_to(
        &self,
        builder: &mut CheckpointBuilder,
        end: Lsn,
        rate_limit: Rate<'_>,
        log: &Log,
        worker: &Worker,
        made: &mut Checkpoint,
    ) -> Result<(), CheckpointError> {
        let left = end.since(builder.at());
        let memory = self.every.max(left / STEPS).min(STEP_BYTES);
        let expected = builder.expected(left, memory);
        let writers = Writers {
            throttle: &self.throttle,
            worker,
            from: end,
            budget: LogBudget::new(self.every, left, expected.older),
        };
        let pacer = Pacer::new(&self.progress, rate_limit, left, expected.moved, writers);
        log.wait_durable(worker, end)
            .map_err(CheckpointError::Failed)?; // I2
        let device = builder.device();
        let mut steps = BuildSteps::new(&*device, end);
        loop {
            match builder.step(memory, &mut steps, &pacer) {
                Ok(Some(step)) => {
                    made.written_bytes += step.written_bytes;
                    made.segments_removed += step.segments_removed;
                }
                Ok(None) => return Ok(()),
                Err(CheckpointError::Directory(failure)) => {
                    // The log's files are in that directory.
                    return Err(CheckpointError::Failed(log.fail(worker, failure)));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the statistics, including the progress of the checkpoint in progress.
    pub(crate) fn stats(&self) -> CheckpointStats {
        let mut stats = shim::lock(&self.stats).clone();
        let total = self.progress.total.load(Ordering::Relaxed);
        let done = self.progress.done.load(Ordering::Relaxed);
        stats.progress = (total > 0).then(|| (done.min(total), total));
        let waits = self.throttle.waits();
        stats.waiting = waits.now;
        stats.throttled = waits.begun;
        stats.throttled_for = waits.waited;
        stats
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use foxton_log::device::memory::MemoryDevice;

    use super::*;
    use crate::{Admission, Database, Durability, Options, Table};

    const ROWS: Table<u32, u32> = Table::new("rows");
    const BULK: Table<u32, [u8]> = Table::new("bulk");

    /// Makes a checkpoint in steps of `memory` bytes. Returns the memory, in bytes, of its buffer,
    /// and what the builder keeps afterwards.
    fn memory_of_checkpoint(db: &Database, memory: u64) -> (usize, u64) {
        let engine = db.engine();
        let logged = engine.logged().unwrap();
        let (control, log) = (&logged.checkpoints, &logged.log);
        let worker = engine.workers.background_worker();
        let mut builder = control.hold();
        let end = log.end(&worker);
        log.wait_durable(&worker, end).unwrap();
        let writers = Writers {
            throttle: &control.throttle,
            worker: &worker,
            from: end,
            budget: LogBudget::new(control.every, 0, 0),
        };
        let pacer = Pacer::new(&control.progress, Rate::Full, 0, 0, writers);
        let device = builder.device();
        let mut steps = BuildSteps::new(&*device, end);
        while builder.step(memory, &mut steps, &pacer).unwrap().is_some() {}
        (steps.buffer_bytes(), builder.held_bytes())
    }

    #[test]
    fn a_large_transaction_costs_a_checkpoint_no_more_memory_than_a_step() {
        const STEP: u64 = 64 << 10;
        let device = Arc::new(MemoryDevice::new());
        let mut options = Options::tiny();
        (options.redo_part_bytes, options.checkpoint_log_bytes) = (8 << 10, u64::MAX);
        let db = Database::open_on(device.clone(), options.clone()).unwrap();
        let value = |key: u32| {
            (0..1000)
                .map(|at| (key * 7 + at * at) as u8)
                .collect::<Vec<_>>()
        };
        db.run(|tx| (0..9).try_for_each(|key| tx.put(&BULK, &key, &[1; 1000])))
            .unwrap();
        memory_of_checkpoint(&db, STEP);
        let mut large = db.begin().unwrap();
        for key in (0..4_000).chain(0..9) {
            large.put(&BULK, &key, &value(key)).unwrap();
            if key % 500 == 0 {
                db.run(|tx| tx.put(&ROWS, &key, &key)).unwrap();
                let (buffer, kept) = memory_of_checkpoint(&db, STEP);
                assert!(buffer < STEP as usize, "{buffer} bytes beside it");
                assert!(kept < 16 << 10, "{kept} bytes kept for it");
            }
        }
        large.delete(&BULK, &17).unwrap();
        large.commit().unwrap();
        db.run(|tx| tx.put(&BULK, &18, &[2; 10])).unwrap();
        // A part is at most one row longer than its limit, and a buffer grows to twice its need.
        let (buffer, kept) = memory_of_checkpoint(&db, STEP);
        assert!(
            buffer < 4 * STEP as usize,
            "{buffer} bytes after its commit"
        );
        assert!(kept < 16 << 10, "{kept} bytes kept after its commit");
        let check = |db: &Database, restored: bool| {
            let rows = db.run(|tx| tx.range(&BULK, ..).collect()).unwrap();
            assert_eq!(rows.len(), 3_999, "{restored}");
            let expected = |key| if key == 18 { vec![2; 10] } else { value(key) };
            assert!(
                rows.iter().all(|(key, found)| *found == expected(*key)),
                "{restored}"
            );
            assert_eq!(
                db.run(|tx| tx.range(&ROWS, ..).count()).unwrap(),
                8,
                "{restored}"
            );
        };
        check(&db, false);
        drop(db);
        let db = Database::open_on(device, options).unwrap();
        assert_eq!(db.recovered().transactions, 0, "the checkpoint has it");
        check(&db, true);
    }

    #[test]
    fn the_transaction_that_keeps_the_most_log_is_named() {
        let mut options = Options::tiny();
        options.checkpoint_log_bytes = u64::MAX;
        let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
        let keeps = || {
            let holder = db.checkpoints().log_holder;
            assert_eq!(
                holder.as_ref().map(|holder| &holder.owner),
                db.status()
                    .checkpoints
                    .log_holder
                    .map(|holder| holder.owner)
                    .as_ref()
            );
            holder.map(|holder| (holder.label, holder.log_bytes))
        };
        let mut small = db.begin().unwrap();
        small.put(&BULK, &1_000, &[1; 10]).unwrap();
        assert_eq!(keeps(), None);
        let (mut load, mut other) = (db.begin().unwrap(), db.begin().unwrap());
        load.set_label("load");
        for key in 0..100 {
            load.put(&BULK, &key, &[1; 1_000]).unwrap();
            other.put(&BULK, &(key + 100), &[1; 100]).unwrap();
        }
        db.sync().unwrap();
        let (label, bytes) = keeps().unwrap();
        assert!(
            label == "load" && (110_000..150_000).contains(&bytes),
            "{label} {bytes}"
        );
        db.checkpoint().unwrap();
        load.commit().unwrap();
        let (label, bytes) = keeps().unwrap();
        assert!(label.is_empty() && bytes > 100_000, "{label} {bytes}");
        drop(other);
        assert_eq!(keeps(), None);
        small.commit().unwrap();
    }

    #[test]
    fn a_restart_reads_the_parts_of_a_transaction_again() {
        let device = Arc::new(MemoryDevice::new());
        let mut options = Options::tiny();
        options.checkpoint_log_bytes = u64::MAX;
        let db = Database::open_on(device.clone(), options.clone()).unwrap();
        let (mut one, mut other) = (db.begin().unwrap(), db.begin().unwrap());
        for key in 0..300 {
            one.put(&BULK, &key, &[1; 100]).unwrap();
            other.put(&BULK, &(key + 1000), &[2; 100]).unwrap();
            if key == 150 {
                db.checkpoint().unwrap();
            }
        }
        one.commit().unwrap();
        db.run(|tx| tx.put(&BULK, &7, &[3; 10])).unwrap();
        drop(other);
        drop(db);
        for threads in [1, 4] {
            options.restart_threads = threads;
            let db = Database::open_on(device.clone(), options.clone()).unwrap();
            assert!(db.recovered().transactions >= 2);
            let rows = db.run(|tx| tx.range(&BULK, ..).collect()).unwrap();
            assert_eq!(rows.len(), 300);
            let expected = |key| if key == 7 { vec![3; 10] } else { vec![1; 100] };
            assert!(rows.iter().all(|(key, value)| *value == expected(*key)));
        }
    }

    #[test]
    fn a_waiting_commit_has_no_slot_and_a_reader_does_not_wait() {
        let mut options = Options::tiny();
        options.admission = Admission::Fixed(1.try_into().unwrap());
        options.durability = Durability::None;
        let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
        let engine = db.engine();
        let throttle = &engine.logged().expect("it has a log").checkpoints.throttle;
        let waits = || throttle.waits().begun;
        thread::scope(|scope| {
            let worker = engine.workers.background_worker();
            let first = throttle.guard(&worker);
            throttle.allow(&worker, Lsn::ZERO);
            let writing = scope.spawn(|| {
                db.run(|tx| tx.put(&ROWS, &1, &1)).unwrap();
                let worker = engine.workers.background_worker();
                let _second = throttle.guard(&worker);
                throttle.allow(&worker, Lsn::ZERO);
                db.run(|tx| tx.get(&ROWS, &1)).unwrap()
            });
            while waits() == 0 {
                thread::yield_now();
            }
            assert_eq!(engine.admission.as_ref().unwrap().free(), 1);
            assert!(!writing.is_finished());
            drop(first);
            assert_eq!(writing.join().unwrap(), Some(1));
        });
        assert_eq!(waits(), 1);
    }
}
