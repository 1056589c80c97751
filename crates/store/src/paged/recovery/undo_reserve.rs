//! Undo reserve: space of the device that the log keeps for the undo of open transactions.
//!
//! [`space`](super::space) bounds the log by a number. This makes the device have the bytes: before
//! a transaction changes a page, the log keeps as much for it as undoing and ending it may take. So
//! a full device refuses changes, and no rollback. A transaction takes its bytes from this reserve,
//! which grows when it has too few, and is small again after the peak.
//!
//! # Invariants
//!
//! * I1  The log keeps `free` bytes and those that transactions have taken.
//! * I2  A transaction whose owner asks before each change has taken at least its `undo_space`. A
//!   compensation, ABORT, END, and COMMIT without a tail may use them, and then it has fewer.
//! * I3  Growing waits for the device, so its caller holds no latch and no fix. Taking never waits.
//!
//! # Orderings
//!
//! None: the number leads to no memory.

use foxton_log::{Log, LogError};
use foxton_sync::shim::{AtomicU64, Ordering::Relaxed};
use foxton_sync::worker::Worker;

/// Bytes by which it grows, if the device has them, and which it has after a peak.
const STEP: u64 = 64 << 10;
/// Bytes beyond which it gives space back.
const MOST_FREE: u64 = 1 << 20;
/// Bytes that a transaction takes at once, if there are as many.
const PIECE: u64 = 1 << 10;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct UndoReserve {
    free: AtomicU64,
}

impl UndoReserve {
    /// Takes `bytes`, or more if there are; returns how many. `None`: it has to
    /// [grow](Self::grow). `taken` is what the transaction has already.
    pub(super) fn take(&self, bytes: u64, taken: u64) -> Option<u64> {
        // A large transaction takes seldom.
        let piece = bytes.max((taken / 4).clamp(PIECE, STEP));
        let wished = |free: u64| if free >= piece { piece } else { bytes };
        let before = self.free.fetch_update(Relaxed, Relaxed, |free| {
            free.checked_sub(wished(free)) // Site: "log output", passed when it grows.
        });
        before.ok().map(wished)
    }

    /// Makes the log keep `bytes` more, at least.
    ///
    /// # Errors
    ///
    /// If the device is full, or the log has failed.
    pub(super) fn grow(&self, log: &Log, worker: &Worker, bytes: u64) -> Result<(), LogError> {
        let mut kept = bytes.max(STEP);
        match log.keep_space(worker, kept) {
            Err(LogError::NotInserted(_)) if bytes < kept => {
                kept = bytes;
                log.keep_space(worker, kept)?;
            }
            other => other?,
        }
        // Site: "log output", passed above.
        self.free.fetch_add(kept, Relaxed);
        Ok(())
    }

    /// Takes back what a transaction has left.
    pub(super) fn give(&self, log: &Log, worker: &Worker, bytes: u64) {
        if bytes == 0 {
            return;
        }
        // Site: "log output", passed when it grew.
        let free = self.free.fetch_add(bytes, Relaxed) + bytes;
        if free > MOST_FREE {
            self.shrink(log, worker);
        }
    }

    #[cold]
    fn shrink(&self, log: &Log, worker: &Worker) {
        let keep = |free: u64| (free > STEP).then_some(STEP);
        // Site: "log output", passed below.
        if let Ok(before) = self.free.fetch_update(Relaxed, Relaxed, keep) {
            log.release_kept_space(worker, before - STEP);
        }
    }
}
