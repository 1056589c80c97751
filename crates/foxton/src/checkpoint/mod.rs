//! Checkpoints: what was committed, kept in another form than the log, so that the log can be short.
//!
//! # The idea
//!
//! The log holds committed transactions and nothing else, in the order of their commits. So a
//! checkpoint is made from the log and not from the tables: a thread reads what is durable, forgets
//! all changes of a row but the last, and writes the rest down in order, as a *layer*. Layers lie on
//! top of each other; what a newer one says of a row replaces what an older one says, or, where it has
//! only a patch, is made of it. Now and then
//! some are merged into one (`builder` says when). A manifest names the layers and the place in the log
//! up to which they go, its *image*. Restart loads the layers and replays the log from there on.
//!
//! # What this gives
//!
//! * Uncommitted values cannot get into a checkpoint: they are in the tables, and nobody looks there.
//! * The image is exactly the database after the last commit that ends at or before `checkpoint_lsn`, and not
//!   a picture smeared over the time it took. Yet nobody was stopped for it.
//! * Writers wait for nothing: making a checkpoint takes no lock, no latch and no place in the log
//!   that a transaction takes. They share with it the processor and the device, and so it is spread over the time in which
//!   the log for the next one comes (`pacing`); or the rate can be set. Only who writes faster than one can be made waits,
//!   holding nothing (`throttle`), since there is no other end to it than a full disk.
//! * What is written goes by what was changed, not by what there is.
//! * It does not depend on how tables, records or locks work, nor on when locks are given back.
//!
//! The price: committed changes are read once more, from the page cache as a rule, and sorted.
//!
//! # State
//!
//! | | |
//! |---|---|
//! | `checkpoint` | the manifest ([`manifest`]) |
//! | `layer-NUMBER` | the layers ([`layer`]) |
//! | the log from `redo from` | what was committed since, and the parts of what may yet be |
//!
//! # Invariants
//!
//! * I1 Layers plus the log from `redo from`, read with transactions that end at `checkpoint_lsn` or before
//!   passed over, are the database.
//! * I2 The log is durable up to `checkpoint_lsn` before a manifest says so. So the log never ends before the
//!   checkpoint, and one that does is damaged.
//! * I3 At every moment the files of the manifest that a power cut would leave are all there, and
//!   durable (`builder` has the order of the calls).
//! * I4 A transaction that is written in parts and had not ended at `checkpoint_lsn` keeps the log from its
//!   first part on.
//! * I5 What a layer says of a row, applied to what the layers below it say, is the row after the last
//!   commit that went into the layer. A layer is made of everything committed between two images, and
//!   nothing else, and a patch was made for what all before it left (`redo::record`, I2).
//!
//! # Why replay is right
//!
//! Take a row and the last transaction T that changed it and is durable. If T's last record ends at
//! `checkpoint_lsn` or before, the layers have T's change on top, by I1 of `redo::record` and since a newer layer goes
//! before an older one; and nobody changes the row in what is replayed. If it ends later, it is
//! replayed, and after it nothing that changes the row. Both do not depend on how often restart was
//! begun before: it changes no file of a checkpoint.
//!
//! If T's change is a patch, more is needed: every change of the row before it, each once. Those up to
//! `checkpoint_lsn` are in the layers (I5), those behind it are replayed, in order, and none is both: a
//! transaction is on this side of `checkpoint_lsn` or on that by where its last record ends. A patch has the
//! checksum of what it makes, so a row that comes out is one that was committed.

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

/// Building a checkpoint.
mod builder;

use std::fmt;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use foxton_log::{Log, Lsn};
use foxton_sync::shim::{self, Condvar, Mutex, MutexGuard, Ordering};
use foxton_sync::worker::Worker;

use builder::BuildSteps;
pub(crate) use builder::CheckpointBuilder;
pub(crate) use error::CheckpointError;
use pacing::{CheckpointProgress, Pacer, Rate, Writers};
use throttle::{LogBudget, StallDecision, Throttle, ThrottleGuard};
pub(crate) use throttle::{WriteCredit, WriteStall};

/// Bytes of changes that a step holds in memory.
const STEP_BYTES: u64 = 64 << 20;
/// So many steps are enough for a checkpoint that is far behind, unless they would hold more than that: each writes a layer, a
/// manifest that names them all, and lists the directory, so with many small ones it would be the slower the further it is behind.
const STEPS: u64 = 64;
/// When so many times as much log as usual has come, the rate is forgotten.
const PATIENCE: u64 = 2;
/// One that nobody waits for is made while so much of the log for the next one comes, in quarters.
const SPREAD: u64 = 3;

/// What making a checkpoint came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Everything committed up to here is in the checkpoint.
    pub checkpoint_lsn: Lsn,
    /// Where the next restart begins to read the log: at `checkpoint_lsn`, or before it if a transaction
    /// written in parts had not ended there.
    pub redo_from: Lsn,
    /// Files that hold rows.
    pub layers: usize,
    /// Bytes in these files.
    pub bytes: u64,
    /// Bytes written for this checkpoint.
    pub written_bytes: u64,
    /// Files of the log that were removed, since nobody needs them any more.
    pub segments_removed: usize,
    /// How long it took.
    pub took: Duration,
}

/// What checkpoints have come to since the database was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CheckpointStats {
    /// How many were made.
    pub made: u64,
    /// How many failed. The one before stood, and the log went on growing.
    pub failed: u64,
    /// Why the last one failed, if one did.
    pub last_failure: Option<String>,
    /// The last one that was made.
    pub last: Option<Checkpoint>,
    /// Everything committed up to here is in the checkpoint that is on the device, which may be from before the database was opened.
    pub checkpoint_lsn: Lsn,
    /// Bytes written for all of them.
    pub written_bytes: u64,
    /// If one is being made: how many bytes it has read, of how many.
    pub progress: Option<(u64, u64)>,
    /// Commits that wait for it now, since more is written than it can keep up with.
    pub waiting: u64,
    /// Commits that have waited for one, or do.
    pub throttled: u64,
    /// How long those did that have waited, together.
    pub throttled_for: Duration,
}

/// Checkpoints of one open database.
pub(crate) struct CheckpointControl {
    maker: Mutex<CheckpointBuilder>,
    /// Taken before `maker`, and only until that is had.
    turn: Mutex<()>,
    /// Bytes of log after which one is begun.
    every: u64,
    rate: Option<u64>,
    throttle: Throttle,
    gauge: CheckpointProgress,
    stats: Mutex<CheckpointStats>,
    /// Whose commit makes one due rings it for the thread that makes them.
    bell: Mutex<Wakeup>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Wakeup {
    rung: bool,
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
    /// `every` so many bytes of log one is due; one whom nobody waits for reads and writes at most
    /// `rate` bytes a second, or goes with the log.
    pub(crate) fn new(
        maker: CheckpointBuilder,
        every: u64,
        rate: Option<u64>,
    ) -> CheckpointControl {
        let checkpoint_lsn = maker.manifest().checkpoint_lsn;
        let due = checkpoint_lsn.plus(every);
        CheckpointControl {
            maker: Mutex::new(maker),
            turn: Mutex::new(()),
            every,
            rate,
            throttle: Throttle::new(due, every),
            gauge: CheckpointProgress::default(),
            stats: Mutex::new(CheckpointStats {
                checkpoint_lsn,
                ..CheckpointStats::default()
            }),
            bell: Mutex::new(Wakeup::default()),
            news: Condvar::new(),
        }
    }

    /// Notes in `write_credit` that the log has come to `end`, by a record of so many bytes.
    #[inline]
    pub(crate) fn note(&self, write_credit: &mut WriteCredit, end: Lsn, bytes: u64) {
        self.throttle.note(write_credit, end, bytes);
    }

    /// For whoever is ahead by its permit and holds nothing any more: asks for a checkpoint, or says what to wait for.
    pub(crate) fn pass(
        &self,
        worker: &Worker,
        write_credit: &mut WriteCredit,
        end: Lsn,
    ) -> Option<WriteStall> {
        match self.throttle.pass(worker, write_credit, end) {
            StallDecision::Nothing => None,
            StallDecision::Ask => {
                self.ring();
                None
            }
            StallDecision::Wait(held) => {
                self.gauge.pressed.store(true, Ordering::Relaxed); // Relaxed: see `pacing`.
                Some(held)
            }
        }
    }

    /// For whoever is ahead and nobody can wait for: asks for a checkpoint if one is due.
    pub(crate) fn ask(&self, worker: &Worker, end: Lsn) {
        if self.throttle.asks(worker, end) {
            self.ring();
        }
    }

    fn ring(&self) {
        shim::lock(&self.bell).rung = true; // Site: "checkpoint due".
        self.news.notify_all();
    }

    /// Sleeps until a checkpoint is due. False: to stop.
    pub(crate) fn await_due(&self) -> bool {
        let bell = shim::lock(&self.bell);
        let waited = self.news.wait_while(bell, |bell| !bell.rung && !bell.stop);
        let mut bell = waited.unwrap_or_else(PoisonError::into_inner);
        bell.rung = false;
        !bell.stop
    }

    /// Ends whoever waits, and the checkpoint that is being made.
    pub(crate) fn stop(&self) {
        self.gauge.stop.store(true, Ordering::Relaxed); // Relaxed: see `pacing`.
        shim::lock(&self.bell).stop = true;
        self.news.notify_all();
    }

    /// Keeps every file of the checkpoint, and the log from `redo_from`, where they are, for as long
    /// as what is returned lives.
    pub(crate) fn hold(&self) -> MutexGuard<'_, CheckpointBuilder> {
        // Whoever waits for the maker keeps the turn: checkpoints made one right after the other do not
        // go before somebody who came in between.
        let _turn = shim::lock(&self.turn);
        self.gauge.hurry.store(true, Ordering::Relaxed); // Relaxed: see `pacing`.
        let maker = shim::lock(&self.maker);
        self.gauge.hurry.store(false, Ordering::Relaxed);
        maker
    }

    /// Makes a checkpoint of everything that is committed now, as fast as it goes, with somebody
    /// waiting for it.
    pub(crate) fn make(&self, log: &Log, worker: &Worker) -> Result<Checkpoint, CheckpointError> {
        let mut maker = self.hold();
        let mut shut = self.throttle.shut(worker);
        self.make_with(&mut maker, Rate::Full, log, worker, &mut shut)
    }

    /// Makes one that was due, and the next if that is due by then.
    pub(crate) fn make_due(&self, log: &Log, worker: &Worker) -> Result<(), CheckpointError> {
        let mut maker = self.hold();
        let mut shut = self.throttle.shut(worker);
        loop {
            let backlog = log.end(worker).since(maker.manifest().checkpoint_lsn);
            let begin = log.written();
            let come = || log.written().since(begin);
            let speed = match self.rate {
                _ if backlog / PATIENCE >= self.every => Rate::Full,
                Some(rate) => Rate::Bytes(rate),
                None => Rate::Log(self.every / 4 * SPREAD, &come),
            };
            self.make_with(&mut maker, speed, log, worker, &mut shut)?;
            // Who waits for the maker may keep it for long, and who writes does not wait for that.
            let is_over = self.gauge.is_not_cancelled() || shut.due() > log.end(worker);
            if is_over {
                return Ok(());
            }
        }
    }

    fn make_with(
        &self,
        maker: &mut CheckpointBuilder,
        speed: Rate<'_>,
        log: &Log,
        worker: &Worker,
        shut: &mut ThrottleGuard<'_>,
    ) -> Result<Checkpoint, CheckpointError> {
        let begun = Instant::now();
        let end = log.end(worker);
        // If it fails, not at once again.
        shut.until(end.plus(self.every));
        let mut made = Checkpoint::default();
        let outcome = self.make_up_to(maker, end, speed, log, worker, &mut made);
        let manifest = maker.manifest();
        made.checkpoint_lsn = manifest.checkpoint_lsn;
        made.redo_from = manifest.redo_from;
        made.layers = manifest.layers.len();
        made.bytes = manifest.bytes();
        made.took = begun.elapsed();
        let mut stats = shim::lock(&self.stats);
        stats.written_bytes += made.written_bytes;
        // Some of its steps may have been made if it failed.
        stats.checkpoint_lsn = made.checkpoint_lsn;
        match &outcome {
            Ok(()) => {
                stats.made += 1;
                stats.last = Some(made);
                shut.until(made.checkpoint_lsn.plus(self.every));
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
        maker: &mut CheckpointBuilder,
        end: Lsn,
        speed: Rate<'_>,
        log: &Log,
        worker: &Worker,
        made: &mut Checkpoint,
    ) -> Result<(), CheckpointError> {
        let left = end.since(maker.at());
        let memory = self.every.max(left / STEPS).min(STEP_BYTES);
        let expected = maker.expected(left, memory);
        let writers = Writers {
            throttle: &self.throttle,
            worker,
            from: end,
            terms: LogBudget::new(self.every, left, expected.older),
        };
        let pace = Pacer::new(&self.gauge, speed, left, expected.moved, writers);
        log.wait_durable(worker, end)
            .map_err(CheckpointError::Failed)?; // I2
        let device = maker.device();
        let mut steps = BuildSteps::new(&*device, end);
        loop {
            match maker.step(memory, &mut steps, &pace) {
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

    /// What there was so far, and how far the one at hand is.
    pub(crate) fn stats(&self) -> CheckpointStats {
        let mut stats = shim::lock(&self.stats).clone();
        let total = self.gauge.total.load(Ordering::Relaxed);
        let done = self.gauge.done.load(Ordering::Relaxed);
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
    use std::thread;

    use super::*;
    use crate::{Admission, Database, Durability, Options, Table};

    const ROWS: Table<u32, u32> = Table::new("rows");

    #[test]
    fn who_waits_has_no_seat_and_does_not_wait_again_for_what_it_only_reads() {
        let mut options = Options::tiny();
        options.admission = Admission::Fixed(1.try_into().unwrap());
        options.durability = Durability::None;
        let db = Database::in_memory(options).unwrap();
        let engine = db.engine();
        let throttle = &engine.checkpoints.throttle;
        let waits = || throttle.waits().begun;
        thread::scope(|scope| {
            let worker = engine.workers.background_worker();
            let first = throttle.shut(&worker);
            throttle.allow(&worker, Lsn::ZERO);
            let writing = scope.spawn(|| {
                db.run(|tx| tx.put(&ROWS, &1, &1)).unwrap();
                let worker = engine.workers.background_worker();
                let _second = throttle.shut(&worker);
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
