//! How fast a checkpoint is made, how far it is, and whether it is to stop.
//!
//! All of it is plain counting and flags that lead to no memory, so Relaxed is enough: a flag seen a
//! moment late stops or hurries the checkpoint a block later.

use std::thread;
use std::time::{Duration, Instant};

use foxton_sync::shim::{AtomicBool, AtomicU64, Ordering};

use super::trouble::Trouble;

/// While it waits, it looks so often whether it is to stop.
const NAP: Duration = Duration::from_millis(10);

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

/// The pace of one checkpoint.
#[derive(Debug)]
pub(crate) struct Pace<'g> {
    gauge: &'g Gauge,
    /// Bytes read and written in a second; `None` for as fast as it goes.
    rate: Option<u64>,
    begun: Instant,
    /// Bytes read and written.
    moved: AtomicU64,
}

impl<'g> Pace<'g> {
    /// A checkpoint that reads `total` bytes of log.
    pub(crate) fn new(gauge: &'g Gauge, rate: Option<u64>, total: u64) -> Pace<'g> {
        gauge.done.store(0, Ordering::Relaxed);
        gauge.total.store(total.max(1), Ordering::Relaxed);
        Pace {
            gauge,
            rate,
            begun: Instant::now(),
            moved: AtomicU64::new(0),
        }
    }

    /// So many bytes more will be read.
    pub(crate) fn expect(&self, bytes: u64) {
        self.gauge.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes more were read.
    pub(crate) fn spend(&self, bytes: u64) -> Result<(), Trouble> {
        self.gauge.done.fetch_add(bytes, Ordering::Relaxed);
        self.moved(bytes)
    }

    /// So many bytes more were written.
    pub(crate) fn wrote(&self, bytes: u64) -> Result<(), Trouble> {
        self.moved(bytes)
    }

    /// Waits until so many bytes are due.
    fn moved(&self, bytes: u64) -> Result<(), Trouble> {
        let moved = self.moved.fetch_add(bytes, Ordering::Relaxed) + bytes;
        loop {
            if self.gauge.stop.load(Ordering::Relaxed) {
                return Err(Trouble::Stopped);
            }
            let hurry = self.gauge.hurry.load(Ordering::Relaxed);
            let Some(rate) = self.rate.filter(|_| !hurry) else {
                return Ok(());
            };
            let due = Duration::from_secs_f64(moved as f64 / rate.max(1) as f64);
            let early = due.saturating_sub(self.begun.elapsed());
            // Short waits are gathered: a sleep takes longer than it was asked to.
            if early < NAP {
                return Ok(());
            }
            thread::sleep(early.min(NAP));
        }
    }
}

impl Drop for Pace<'_> {
    fn drop(&mut self) {
        self.gauge.total.store(0, Ordering::Relaxed);
    }
}
