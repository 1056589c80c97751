//! Pacing: how fast a checkpoint is made, its progress, and whether it must stop.
//!
//! A checkpoint that no caller waits for is spread over the time in which the log for the next one
//! is written. At full speed it would take as much processor time as several clients for a second
//! or two, and again a few seconds later. On two processors that is a fifth of the throughput. As
//! with PostgreSQL's `checkpoint_completion_target`, progress is measured by the log, which
//! reflects how much is written, and not by the clock. Where little is written, the checkpoint
//! takes a small share of one processor.
//!
//! All shared state is counters and flags that guard no memory, so Relaxed is enough: a flag seen a
//! moment late stops or hurries the checkpoint one block later.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use foxton_log::Lsn;
use foxton_sync::shim::{AtomicBool, AtomicU64, Ordering};
use foxton_sync::worker::Worker;

use super::error::CheckpointError;
use super::throttle::{LogBudget, Throttle};

/// Time between two checks, during a wait, whether to stop.
const NAP: Duration = Duration::from_millis(10);
/// Bytes read and written between two checks of the log and the clock.
const LOOK: u64 = 64 << 10;
/// Bytes that are read and written per byte of log: the log itself, the remaining changes, and the
/// older layers that they are merged with, which are about as large.
const MOVED: u64 = 3;
/// While no log is written, the checkpoint sleeps this many times as long as it works.
const REST: u32 = 7;

/// Progress of the current checkpoint, and requests to it.
#[derive(Debug, Default)]
pub(crate) struct CheckpointProgress {
    /// Bytes read.
    pub(crate) done: AtomicU64,
    /// Bytes to read; 0 if no checkpoint is in progress.
    pub(crate) total: AtomicU64,
    /// Whether to stop.
    pub(crate) stop: AtomicBool,
    /// Whether a caller waits for the checkpoint: then it runs at full speed.
    pub(crate) hurry: AtomicBool,
    /// Whether commits have had to wait for the checkpoint: then it runs at full speed until it is
    /// done.
    pub(super) pressed: AtomicBool,
}

impl CheckpointProgress {
    /// True if a caller waits for the builder, or the database is being closed.
    pub(super) fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.hurry.load(Ordering::Relaxed)
    }
}

/// Speed of a checkpoint.
#[derive(Clone, Copy)]
pub(crate) enum Rate<'g> {
    /// Full speed.
    Full,
    /// At most this many bytes read and written per second.
    Bytes(u64),
    /// Done when this many bytes of log have been written; the function returns how many have been,
    /// since the checkpoint began.
    Log(u64, &'g dyn Fn() -> u64),
}

/// The throttle of writers, and its budget during the checkpoint.
#[derive(Clone, Copy)]
pub(super) struct Writers<'g> {
    pub(super) throttle: &'g Throttle,
    pub(super) worker: &'g Worker,
    /// End of the log when the checkpoint began.
    pub(super) from: Lsn,
    pub(super) budget: LogBudget,
}

/// Paces one checkpoint.
pub(crate) struct Pacer<'g> {
    progress: &'g CheckpointProgress,
    rate_limit: Rate<'g>,
    writers: Writers<'g>,
    begun: Instant,
    slept: Cell<Duration>,
    /// Bytes of log that it reads.
    log: u64,
    /// Bytes read and written.
    moved: Cell<u64>,
    /// Value of `moved` at the last check.
    looked: Cell<u64>,
    /// Estimate of the final value of `moved`.
    whole: Cell<u64>,
    /// Share done according to that estimate; it never decreases.
    share: Cell<f64>,
}

impl<'g> Pacer<'g> {
    /// Starts pacing a checkpoint that reads `total` bytes of log and will probably move `whole`
    /// bytes.
    pub(super) fn new(
        progress: &'g CheckpointProgress,
        rate_limit: Rate<'g>,
        total: u64,
        whole: u64,
        writers: Writers<'g>,
    ) -> Pacer<'g> {
        progress.done.store(0, Ordering::Relaxed);
        progress.total.store(total.max(1), Ordering::Relaxed);
        let pacer = Pacer {
            progress,
            rate_limit,
            writers,
            begun: Instant::now(),
            slept: Cell::default(),
            log: total,
            moved: Cell::new(0),
            looked: Cell::new(0),
            whole: Cell::new(whole),
            share: Cell::new(0.0),
        };
        // In this order: a commit that begins to wait in between sets the flag after this.
        progress.pressed.store(false, Ordering::Relaxed);
        pacer.extend_budget();
        if writers.throttle.waits().now > 0 {
            progress.pressed.store(true, Ordering::Relaxed);
        }
        pacer
    }

    /// Adds bytes of layers that will be read and rewritten to the total.
    pub(crate) fn expect(&self, bytes: u64) {
        self.progress.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The rest of the work is to merge `bytes` of layers with `left` bytes of changes.
    pub(super) fn set_last_merge(&self, bytes: u64, left: u64) {
        self.whole.set(self.moved.get() + 2 * bytes + left);
    }

    /// Extends the budget of writers to the share of the checkpoint that is done.
    fn extend_budget(&self) {
        let share = self.moved.get() as f64 / self.whole.get().max(1) as f64;
        self.share.set(share.clamp(self.share.get(), 1.0));
        let Writers {
            throttle,
            worker,
            from,
            budget,
        } = self.writers;
        throttle.allow(worker, from.plus(budget.at(self.share.get())));
    }

    /// Records that `bytes` more bytes were read.
    pub(crate) fn spend(&self, bytes: u64) -> Result<(), CheckpointError> {
        // Only this thread writes it.
        let done = self.progress.done.load(Ordering::Relaxed);
        self.progress.done.store(done + bytes, Ordering::Relaxed);
        self.moved(bytes)
    }

    /// Records that `bytes` more bytes were written.
    pub(crate) fn wrote(&self, bytes: u64) -> Result<(), CheckpointError> {
        self.moved(bytes)
    }

    /// Adds to the bytes moved, and waits until they are due.
    #[inline]
    fn moved(&self, bytes: u64) -> Result<(), CheckpointError> {
        let moved = self.moved.get() + bytes;
        self.moved.set(moved);
        let is_time = moved - self.looked.get() >= LOOK;
        if is_time {
            self.looked.set(moved);
            self.extend_budget();
        }
        if is_time || matches!(self.rate_limit, Rate::Bytes(_)) {
            self.wait(moved);
        }
        match self.progress.stop.load(Ordering::Relaxed) {
            true => Err(CheckpointError::Stopped),
            false => Ok(()),
        }
    }

    fn wait(&self, moved: u64) {
        let is_over =
            || self.progress.is_interrupted() || self.progress.pressed.load(Ordering::Relaxed);
        while !is_over() {
            let early = self.early(moved, self.begun.elapsed());
            // Short waits accumulate, because a sleep takes longer than requested.
            if early < NAP {
                return;
            }
            let asleep = Instant::now();
            thread::sleep(early.min(NAP));
            self.slept.set(self.slept.get() + asleep.elapsed());
        }
    }

    /// Returns how long to wait until more is due, `elapsed` after the beginning.
    fn early(&self, moved: u64, elapsed: Duration) -> Duration {
        match self.rate_limit {
            Rate::Full => Duration::ZERO,
            Rate::Bytes(rate) => {
                let due = Duration::from_secs_f64(moved as f64 / rate.max(1) as f64);
                due.saturating_sub(elapsed)
            }
            Rate::Log(bytes, written) => {
                let done = moved as f64 / (self.log * MOVED).max(1) as f64;
                let due = written() as f64 / bytes.max(1) as f64;
                let slept = self.slept.get();
                let worked = elapsed.saturating_sub(slept);
                match done.min(1.0) > due && slept < worked * REST {
                    true => NAP,
                    false => Duration::ZERO,
                }
            }
        }
    }
}

impl Drop for Pacer<'_> {
    fn drop(&mut self) {
        self.progress.total.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use foxton_sync::worker::Workers;

    use super::super::throttle::WriteCredit;
    use super::*;

    /// Runs `test` with a throttle whose checkpoints come every 100,000 bytes of log.
    fn with_writers(test: impl FnOnce(Writers<'_>)) {
        let throttle = Throttle::new(Lsn::ZERO, 100_000);
        test(Writers {
            throttle: &throttle,
            worker: &Workers::new().background_worker(),
            from: Lsn::new(7),
            budget: LogBudget::new(100_000, 0, 0),
        });
    }

    #[test]
    fn a_checkpoint_that_follows_the_log_sleeps_while_it_is_ahead() {
        let progress = CheckpointProgress::default();
        let written = Cell::new(0);
        let log = || written.get();
        with_writers(|writers| {
            let pacer = Pacer::new(&progress, Rate::Log(1_000, &log), 900, 0, writers);
            let second = Duration::from_secs(1);
            let sleeps = |moved, come_by_now, slept: u32, elapsed: u32| {
                written.set(come_by_now);
                pacer.slept.set(second * slept);
                !pacer.early(moved, second * elapsed).is_zero()
            };
            // A third of 2,700 bytes is moved, which is due when a third of the log has been
            // written.
            assert!(sleeps(900, 333, 0, 1));
            assert!(!sleeps(900, 334, 0, 1));
            // No log is written: an eighth of the time is for work.
            assert!(sleeps(900, 0, 6, 7));
            assert!(!sleeps(900, 0, 7, 8));
            // More is moved than was expected.
            assert!(sleeps(10_000, 999, 0, 1));
            assert!(!sleeps(10_000, 1_000, 0, 1));
        });
    }

    #[test]
    fn the_budget_grows_with_progress_and_never_shrinks() {
        let progress = CheckpointProgress::default();
        with_writers(|writers| {
            let is_ahead = |end| {
                let mut write_credit = WriteCredit::default();
                writers.throttle.note(&mut write_credit, Lsn::new(end), 1);
                write_credit.is_ahead()
            };
            let comes = |until| !is_ahead(until - 1) && is_ahead(until);
            let look = LOOK;
            let pacer = Pacer::new(&progress, Rate::Full, 4 * look, 16 * look, writers);
            assert!(comes(50_007));
            for _ in 0..4 {
                pacer.spend(look).unwrap();
            }
            assert!(comes(75_007), "a quarter is done");
            // There is more to merge than expected: the share done is a fifth, but the budget
            // stays.
            pacer.set_last_merge(8 * look, 0);
            pacer.spend(1).unwrap();
            pacer.extend_budget();
            assert!(comes(75_007));
            for _ in 0..8 {
                pacer.wrote(look).unwrap();
            }
            assert!(comes(110_007), "three fifths");
            // There is less to merge than expected.
            pacer.set_last_merge(0, 0);
            pacer.extend_budget();
            assert!(comes(150_007));
        });
    }

    #[test]
    fn a_checkpoint_with_waiting_commits_does_not_sleep() {
        let progress = CheckpointProgress::default();
        with_writers(|writers| {
            progress.pressed.store(true, Ordering::Relaxed);
            let new = || Pacer::new(&progress, Rate::Bytes(1), 1, 1, writers);
            drop(new());
            assert!(!progress.pressed.load(Ordering::Relaxed), "another one was");
            // Some of these still wait when the next checkpoint begins.
            let guard = writers.throttle.guard(writers.worker);
            writers.throttle.allow(writers.worker, Lsn::ZERO);
            let pass = |_| {
                let write_credit = &mut WriteCredit::default();
                writers
                    .throttle
                    .pass(writers.worker, write_credit, Lsn::new(1))
            };
            let waiting = (0..1_000).map(pass).collect::<Vec<_>>();
            drop(new());
            assert!(progress.pressed.load(Ordering::Relaxed), "some wait");
            drop((guard, waiting));
            let pacer = new();
            progress.pressed.store(true, Ordering::Relaxed);
            for _ in 0..1_000 {
                pacer.wrote(LOOK).unwrap();
            }
            assert!(pacer.slept.get().is_zero());
        });
    }

    #[test]
    fn a_requested_checkpoint_does_not_sleep_and_a_stopped_one_ends() {
        let progress = CheckpointProgress::default();
        with_writers(|writers| {
            let pacer = Pacer::new(&progress, Rate::Log(1, &|| 0), 1, 0, writers);
            progress.hurry.store(true, Ordering::Relaxed);
            for _ in 0..1_000 {
                pacer.wrote(LOOK).unwrap();
            }
            assert!(pacer.slept.get().is_zero());
            progress.hurry.store(false, Ordering::Relaxed);
            progress.stop.store(true, Ordering::Relaxed);
            assert!(matches!(pacer.spend(1), Err(CheckpointError::Stopped)));
            assert!(pacer.slept.get().is_zero());
        });
    }
}
