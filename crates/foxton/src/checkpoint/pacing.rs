//! How fast a checkpoint is made, how far it is, and whether it is to stop.
//!
//! One that nobody waits for is spread over the time in which the log for the next one comes: made as fast as it goes it
//! takes as much of the processors as several clients for a second or two, a fifth of the throughput on two
//! processors, and the same again a few seconds later. As PostgreSQL does with its `checkpoint_completion_target`, it is measured by the log, which knows
//! how much is written, and not by the clock; where little is written it takes a small share of one processor.
//!
//! All of it is plain counting and flags that lead to no memory, so Relaxed is enough: a flag seen a
//! moment late stops or hurries the checkpoint a block later.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use foxton_log::Lsn;
use foxton_sync::shim::{AtomicBool, AtomicU64, Ordering};
use foxton_sync::worker::Worker;

use super::error::CheckpointError;
use super::throttle::{LogBudget, Throttle};

/// While it waits, it looks so often whether it is to stop.
const NAP: Duration = Duration::from_millis(10);
/// Bytes read and written between two looks at the log and the clock.
const LOOK: u64 = 64 << 10;
/// Bytes that are read and written for a byte of log: the log itself, what is left of it, and older layers that it is
/// merged with, which are as much again.
const MOVED: u64 = 3;
/// Where no log comes, it sleeps so many times as long as it works.
const REST: u32 = 7;

/// How far the checkpoint at hand is, for whoever wants to see it.
#[derive(Debug, Default)]
pub(crate) struct CheckpointProgress {
    /// Bytes read.
    pub(crate) done: AtomicU64,
    /// Bytes to be read; 0 if no checkpoint is being made.
    pub(crate) total: AtomicU64,
    /// Whether to give up.
    pub(crate) stop: AtomicBool,
    /// Whether somebody waits for it: then it is made as fast as it goes.
    pub(crate) hurry: AtomicBool,
    /// Whether commits have had to wait for it: then, too, until it is done.
    pub(super) pressed: AtomicBool,
}

impl CheckpointProgress {
    /// Whether somebody else wants the maker, or the end of it all.
    pub(super) fn is_not_cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.hurry.load(Ordering::Relaxed)
    }
}

/// How fast it is to be.
#[derive(Clone, Copy)]
pub(crate) enum Rate<'g> {
    /// As fast as it goes.
    Full,
    /// So many bytes read and written in a second, at most.
    Bytes(u64),
    /// So that it is done when so many bytes of log have come; and how many have, since it began.
    Log(u64, &'g dyn Fn() -> u64),
}

/// Who else writes the log meanwhile, and how far they may.
#[derive(Clone, Copy)]
pub(super) struct Writers<'g> {
    pub(super) throttle: &'g Throttle,
    pub(super) worker: &'g Worker,
    /// Where the log ended when the checkpoint began.
    pub(super) from: Lsn,
    pub(super) terms: LogBudget,
}

/// The pace of one checkpoint.
pub(crate) struct Pacer<'g> {
    gauge: &'g CheckpointProgress,
    speed: Rate<'g>,
    writers: Writers<'g>,
    begun: Instant,
    slept: Cell<Duration>,
    /// Bytes of log that it reads.
    log: u64,
    /// Bytes read and written.
    moved: Cell<u64>,
    /// How many these were when it looked last.
    looked: Cell<u64>,
    /// How many they will probably be.
    whole: Cell<u64>,
    /// The share that is done, by that; it never goes back.
    share: Cell<f64>,
}

impl<'g> Pacer<'g> {
    /// A checkpoint that reads `total` bytes of log, and will probably move `whole`.
    pub(super) fn new(
        gauge: &'g CheckpointProgress,
        speed: Rate<'g>,
        total: u64,
        whole: u64,
        writers: Writers<'g>,
    ) -> Pacer<'g> {
        gauge.done.store(0, Ordering::Relaxed);
        gauge.total.store(total.max(1), Ordering::Relaxed);
        let pace = Pacer {
            gauge,
            speed,
            writers,
            begun: Instant::now(),
            slept: Cell::default(),
            log: total,
            moved: Cell::new(0),
            looked: Cell::new(0),
            whole: Cell::new(whole),
            share: Cell::new(0.0),
        };
        // In this order: whoever comes to wait in between says so after this.
        gauge.pressed.store(false, Ordering::Relaxed);
        pace.let_come();
        if writers.throttle.waits().now > 0 {
            gauge.pressed.store(true, Ordering::Relaxed);
        }
        pace
    }

    /// So many bytes of layers will be read, and written down again.
    pub(crate) fn expect(&self, bytes: u64) {
        self.gauge.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// All that is left is to merge `bytes` of layers with `left` bytes of changes.
    pub(super) fn merges_last(&self, bytes: u64, left: u64) {
        self.whole.set(self.moved.get() + 2 * bytes + left);
    }

    /// Tells those who write how far they may.
    fn let_come(&self) {
        let share = self.moved.get() as f64 / self.whole.get().max(1) as f64;
        self.share.set(share.clamp(self.share.get(), 1.0));
        let Writers {
            throttle,
            worker,
            from,
            terms,
        } = self.writers;
        throttle.allow(worker, from.plus(terms.at(self.share.get())));
    }

    /// So many bytes more were read.
    pub(crate) fn spend(&self, bytes: u64) -> Result<(), CheckpointError> {
        // Nobody else writes it.
        let done = self.gauge.done.load(Ordering::Relaxed);
        self.gauge.done.store(done + bytes, Ordering::Relaxed);
        self.moved(bytes)
    }

    /// So many bytes more were written.
    pub(crate) fn wrote(&self, bytes: u64) -> Result<(), CheckpointError> {
        self.moved(bytes)
    }

    /// Waits until so many bytes are due.
    #[inline]
    fn moved(&self, bytes: u64) -> Result<(), CheckpointError> {
        let moved = self.moved.get() + bytes;
        self.moved.set(moved);
        let is_time = moved - self.looked.get() >= LOOK;
        if is_time {
            self.looked.set(moved);
            self.let_come();
        }
        if is_time || matches!(self.speed, Rate::Bytes(_)) {
            self.wait(moved);
        }
        match self.gauge.stop.load(Ordering::Relaxed) {
            true => Err(CheckpointError::Stopped),
            false => Ok(()),
        }
    }

    fn wait(&self, moved: u64) {
        let is_over =
            || self.gauge.is_not_cancelled() || self.gauge.pressed.load(Ordering::Relaxed);
        while !is_over() {
            let early = self.early(moved, self.begun.elapsed());
            // Short waits are gathered: a sleep takes longer than it was asked to.
            if early < NAP {
                return;
            }
            let asleep = Instant::now();
            thread::sleep(early.min(NAP));
            self.slept.set(self.slept.get() + asleep.elapsed());
        }
    }

    /// For how long nothing more is due, so long after the beginning.
    fn early(&self, moved: u64, elapsed: Duration) -> Duration {
        match self.speed {
            Rate::Full => Duration::ZERO,
            Rate::Bytes(rate) => {
                let due = Duration::from_secs_f64(moved as f64 / rate.max(1) as f64);
                due.saturating_sub(elapsed)
            }
            Rate::Log(bytes, come) => {
                let done = moved as f64 / (self.log * MOVED).max(1) as f64;
                let due = come() as f64 / bytes.max(1) as f64;
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
        self.gauge.total.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use foxton_sync::worker::Workers;

    use super::super::throttle::WriteCredit;
    use super::*;

    /// Runs `test` beside a log that comes every 100,000 bytes, of which a checkpoint is made.
    fn with_writers(test: impl FnOnce(Writers<'_>)) {
        let throttle = Throttle::new(Lsn::ZERO, 100_000);
        test(Writers {
            throttle: &throttle,
            worker: &Workers::new().background_worker(),
            from: Lsn::new(7),
            terms: LogBudget::new(100_000, 0, 0),
        });
    }

    #[test]
    fn one_that_goes_with_the_log_sleeps_while_it_is_ahead_of_it_and_has_not_slept_much() {
        let gauge = CheckpointProgress::default();
        let come = Cell::new(0);
        let log = || come.get();
        with_writers(|writers| {
            let pace = Pacer::new(&gauge, Rate::Log(1_000, &log), 900, 0, writers);
            let second = Duration::from_secs(1);
            let sleeps = |moved, come_by_now, slept: u32, elapsed: u32| {
                come.set(come_by_now);
                pace.slept.set(second * slept);
                !pace.early(moved, second * elapsed).is_zero()
            };
            // Of 2,700 bytes a third is moved, and so is due when a third of the log has come.
            assert!(sleeps(900, 333, 0, 1));
            assert!(!sleeps(900, 334, 0, 1));
            // No log comes: an eighth of the time is for work.
            assert!(sleeps(900, 0, 6, 7));
            assert!(!sleeps(900, 0, 7, 8));
            // More is moved than was expected.
            assert!(sleeps(10_000, 999, 0, 1));
            assert!(!sleeps(10_000, 1_000, 0, 1));
        });
    }

    #[test]
    fn the_further_it_is_the_more_may_come_and_never_less() {
        let gauge = CheckpointProgress::default();
        with_writers(|writers| {
            let is_ahead = |end| {
                let mut write_credit = WriteCredit::default();
                writers.throttle.note(&mut write_credit, Lsn::new(end), 1);
                write_credit.is_ahead()
            };
            let comes = |until| !is_ahead(until - 1) && is_ahead(until);
            let look = LOOK;
            let pace = Pacer::new(&gauge, Rate::Full, 4 * look, 16 * look, writers);
            assert!(comes(50_007));
            for _ in 0..4 {
                pace.spend(look).unwrap();
            }
            assert!(comes(75_007), "a quarter is done");
            // There is more to merge than was thought: it is a fifth, but what was allowed stands.
            pace.merges_last(8 * look, 0);
            pace.spend(1).unwrap();
            pace.let_come();
            assert!(comes(75_007));
            for _ in 0..8 {
                pace.wrote(look).unwrap();
            }
            assert!(comes(110_007), "three fifths");
            // And less than was thought.
            pace.merges_last(0, 0);
            pace.let_come();
            assert!(comes(150_007));
        });
    }

    #[test]
    fn one_for_which_commits_wait_does_not_sleep_until_it_is_done() {
        let gauge = CheckpointProgress::default();
        with_writers(|writers| {
            gauge.pressed.store(true, Ordering::Relaxed);
            let new = || Pacer::new(&gauge, Rate::Bytes(1), 1, 1, writers);
            drop(new());
            assert!(!gauge.pressed.load(Ordering::Relaxed), "another one was");
            // Of so many not all have room as soon as the next begins.
            let shut = writers.throttle.shut(writers.worker);
            writers.throttle.allow(writers.worker, Lsn::ZERO);
            let pass = |_| {
                let write_credit = &mut WriteCredit::default();
                writers
                    .throttle
                    .pass(writers.worker, write_credit, Lsn::new(1))
            };
            let waiting = (0..1_000).map(pass).collect::<Vec<_>>();
            drop(new());
            assert!(gauge.pressed.load(Ordering::Relaxed), "some wait");
            drop((shut, waiting));
            let pace = new();
            gauge.pressed.store(true, Ordering::Relaxed);
            for _ in 0..1_000 {
                pace.wrote(LOOK).unwrap();
            }
            assert!(pace.slept.get().is_zero());
        });
    }

    #[test]
    fn one_that_is_waited_for_does_not_sleep_and_one_that_is_stopped_ends() {
        let gauge = CheckpointProgress::default();
        with_writers(|writers| {
            let pace = Pacer::new(&gauge, Rate::Log(1, &|| 0), 1, 0, writers);
            gauge.hurry.store(true, Ordering::Relaxed);
            for _ in 0..1_000 {
                pace.wrote(LOOK).unwrap();
            }
            assert!(pace.slept.get().is_zero());
            gauge.hurry.store(false, Ordering::Relaxed);
            gauge.stop.store(true, Ordering::Relaxed);
            assert!(matches!(pace.spend(1), Err(CheckpointError::Stopped)));
            assert!(pace.slept.get().is_zero());
        });
    }
}
