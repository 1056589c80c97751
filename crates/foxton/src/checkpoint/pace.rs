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

use foxton_sync::shim::{AtomicBool, AtomicU64, Ordering};

use super::trouble::Trouble;

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
pub(crate) struct Gauge {
    /// Bytes read.
    pub(crate) done: AtomicU64,
    /// Bytes to be read; 0 if no checkpoint is being made.
    pub(crate) total: AtomicU64,
    /// Whether to give up.
    pub(crate) stop: AtomicBool,
    /// Whether somebody waits for it: then it is made as fast as it goes.
    pub(crate) hurry: AtomicBool,
}

/// How fast it is to be.
#[derive(Clone, Copy)]
pub(crate) enum Speed<'g> {
    /// As fast as it goes.
    Full,
    /// So many bytes read and written in a second, at most.
    Bytes(u64),
    /// So that it is done when so many bytes of log have come; and how many have, since it began.
    Log(u64, &'g dyn Fn() -> u64),
}

/// The pace of one checkpoint.
pub(crate) struct Pace<'g> {
    gauge: &'g Gauge,
    speed: Speed<'g>,
    begun: Instant,
    slept: Cell<Duration>,
    /// Bytes of log that it reads.
    log: u64,
    /// Bytes read and written.
    moved: Cell<u64>,
    /// How many these were when it looked last.
    looked: Cell<u64>,
}

impl<'g> Pace<'g> {
    /// A checkpoint that reads `total` bytes of log.
    pub(crate) fn new(gauge: &'g Gauge, speed: Speed<'g>, total: u64) -> Pace<'g> {
        gauge.done.store(0, Ordering::Relaxed);
        gauge.total.store(total.max(1), Ordering::Relaxed);
        Pace {
            gauge,
            speed,
            begun: Instant::now(),
            slept: Cell::default(),
            log: total,
            moved: Cell::new(0),
            looked: Cell::new(0),
        }
    }

    /// So many bytes more will be read.
    pub(crate) fn expect(&self, bytes: u64) {
        self.gauge.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes more were read.
    pub(crate) fn spend(&self, bytes: u64) -> Result<(), Trouble> {
        // Nobody else writes it.
        let done = self.gauge.done.load(Ordering::Relaxed);
        self.gauge.done.store(done + bytes, Ordering::Relaxed);
        self.moved(bytes)
    }

    /// So many bytes more were written.
    pub(crate) fn wrote(&self, bytes: u64) -> Result<(), Trouble> {
        self.moved(bytes)
    }

    /// Waits until so many bytes are due.
    #[inline]
    fn moved(&self, bytes: u64) -> Result<(), Trouble> {
        let moved = self.moved.get() + bytes;
        self.moved.set(moved);
        let is_slow = matches!(self.speed, Speed::Bytes(_));
        if is_slow || moved - self.looked.get() >= LOOK {
            self.looked.set(moved);
            self.wait(moved);
        }
        match self.gauge.stop.load(Ordering::Relaxed) {
            true => Err(Trouble::Stopped),
            false => Ok(()),
        }
    }

    fn wait(&self, moved: u64) {
        let is_over =
            || self.gauge.stop.load(Ordering::Relaxed) || self.gauge.hurry.load(Ordering::Relaxed);
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
            Speed::Full => Duration::ZERO,
            Speed::Bytes(rate) => {
                let due = Duration::from_secs_f64(moved as f64 / rate.max(1) as f64);
                due.saturating_sub(elapsed)
            }
            Speed::Log(bytes, come) => {
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

impl Drop for Pace<'_> {
    fn drop(&mut self) {
        self.gauge.total.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_goes_with_the_log_sleeps_while_it_is_ahead_of_it_and_has_not_slept_much() {
        let gauge = Gauge::default();
        let come = Cell::new(0);
        let log = || come.get();
        let pace = Pace::new(&gauge, Speed::Log(1_000, &log), 900);
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
    }

    #[test]
    fn one_that_is_waited_for_does_not_sleep_and_one_that_is_stopped_ends() {
        let gauge = Gauge::default();
        let pace = Pace::new(&gauge, Speed::Log(1, &|| 0), 1);
        gauge.hurry.store(true, Ordering::Relaxed);
        for _ in 0..1_000 {
            pace.wrote(LOOK).unwrap();
        }
        assert!(pace.slept.get().is_zero());
        gauge.hurry.store(false, Ordering::Relaxed);
        gauge.stop.store(true, Ordering::Relaxed);
        assert!(matches!(pace.spend(1), Err(Trouble::Stopped)));
        assert!(pace.slept.get().is_zero());
    }
}
