//! Writer lock: one thread at a time moves records from the buffer to the device, for all threads.
//!
//! A thread that needs its bytes written acquires the lock and writes everything that is complete,
//! its own bytes and those of other threads. A thread that finds the lock taken does not queue for
//! the lock: it waits for its LSN. The holder may have been descheduled. If dozens of threads
//! queued for a mutex, each would be woken only to find that its bytes were written long ago, and
//! to wake the next. So a thread that has to wait enters the
//! [`LogWaiters`](crate::write::waiters::LogWaiters), and the thread that writes its bytes wakes
//! it.
//!
//! # State
//!
//! The holder's state for writing (`T`), behind a mutex; the waiters; the requests to the flusher.
//!
//! The lock does not know how to write: its callers pass a function that does. The log passes one
//! that moves bytes from the ring to segment files. The model passes one that only raises a number,
//! because loom could not explore the ring as well. So the model runs all of the code in this file.
//!
//! # Invariants
//!
//! * I1 *After* a holder has released the lock, the waiters are inspected. Waits whose LSN is
//!   written are completed. If waits are left, the lock is acquired again for them, or the flusher
//!   is requested to write. A guard that is dropped does this at once, after a panic too. A guard
//!   that is [released](WriterGuard::release) leaves it to the caller, who gets [`PendingWakeups`].
//! * I2 A thread that has to wait enters the waiters and *then* tries the lock once more. It sleeps
//!   only if the lock is taken.
//!
//! # Why no thread waits for ever
//!
//! Let E be a thread that has entered the waiters, found the lock taken and gone to sleep. Let H be
//! the holder at the moment when E tried. Entering and inspecting both happen under the latch of
//! the waiters, so one of them is first:
//!
//! * If E entered before H inspected, H completes the wait of E or requests the write (I1).
//! * If H inspected before E entered, H had released the lock before, and the latch makes the
//!   release visible to E. So H was not the holder when E tried, which contradicts the choice of H.
//!
//! Each holder releases the lock, and each release is followed by an inspection. The inspecting
//! thread may be descheduled in between; then the next holder inspects the waiters for all.
//!
//! # Orderings
//!
//! None: the mutex and the latch order everything here.

use std::ops::{Deref, DerefMut};

use foxton_sync::latch;
use foxton_sync::park::WAKING;
use foxton_sync::shim::{Mutex, MutexGuard, hint, lock, try_lock};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::format::error::LogError;
use crate::format::lsn::Lsn;
use crate::write::flush_requests::FlushRequests;
use crate::write::waiters::{LogWaiters, Milestone, REACHED};

static OUTPUT: Site = Site::new(Component::Log, Pattern::Cooperative, "log output");

/// Number of times a thread tries the lock before it releases its own locks, or sleeps.
const ATTEMPTS: u32 = if cfg!(loom) { 1 } else { 100 };
/// Number of rounds a writer adds for threads that came meanwhile, before the flusher takes over.
const ROUNDS: u32 = if cfg!(loom) { 1 } else { 2 };

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct WriterLock<T> {
    state: Mutex<T>,
    /// How far the log is written and durable, and the threads that wait for more.
    pub(crate) waiters: LogWaiters,
    pub(crate) requests: FlushRequests,
}

/// Right to write; dropping it releases the lock and inspects the waiters (I1).
pub(crate) struct WriterGuard<'a, T> {
    state: Option<MutexGuard<'a, T>>,
    lock: &'a WriterLock<T>,
    worker: &'a Worker,
}

/// A duty of [`Log::try_written`](crate::Log::try_written)'s caller: threads may wait for what it
/// wrote, and [`Log::wake_waiters`](crate::Log::wake_waiters) wakes them.
#[derive(Debug)]
#[must_use = "other threads may wait for long"]
pub struct PendingWakeups {
    /// False if another thread had written the bytes before; then that thread wakes the waiters.
    any: bool,
}

impl<T> WriterLock<T> {
    /// `end`: the log is written and durable up to here.
    pub(crate) fn new(latch: latch::Kind, end: Lsn, state: T) -> WriterLock<T> {
        WriterLock {
            state: Mutex::new(state),
            waiters: LogWaiters::new(latch, end),
            requests: FlushRequests::default(),
        }
    }

    /// Acquires the lock; waits for it.
    pub(crate) fn acquire<'a>(&'a self, worker: &'a Worker) -> WriterGuard<'a, T> {
        worker.account().passed(&OUTPUT);
        WriterGuard {
            state: Some(lock(&self.state)),
            lock: self,
            worker,
        }
    }

    /// Acquires the lock, unless it is taken.
    pub(crate) fn try_acquire<'a>(&'a self, worker: &'a Worker) -> Option<WriterGuard<'a, T>> {
        let state = try_lock(&self.state)?;
        worker.account().passed(&OUTPUT);
        Some(WriterGuard {
            state: Some(state),
            lock: self,
            worker,
        })
    }

    /// Returns once everything complete is written up to `lsn`, or to `end` if that is less,
    /// because a record that is not inserted is not waited for.
    ///
    /// `write` writes everything complete and publishes how far that is. If it is given an LSN, it
    /// writes at least up to there and waits for threads that are still copying.
    pub(crate) fn write_to(
        &self,
        worker: &Worker,
        lsn: Lsn,
        end: impl FnOnce() -> Lsn,
        write: impl Fn(&mut T, Option<Lsn>) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        if let Some(wakeups) = self.try_write_to(worker, lsn, &write)? {
            self.wake_waiters(worker, wakeups, &write);
            return Ok(());
        }
        let (waiters, upto) = (&self.waiters, lsn.min(end()));
        let is_written = |lsn| waiters.position(Milestone::Written) >= lsn;
        // A log that failed with nothing left to write gets to `upto`, and never to `lsn`.
        let ended = || match is_written(lsn) {
            true => Ok(()),
            false => waiters.check(worker),
        };
        let Some((parker, ticket)) = waiters.enqueue(worker, Milestone::Written, upto) else {
            return ended().and_then(|()| waiters.wait_result(worker, is_written(upto)));
        };
        // The holder may have released the lock before this thread was visible as a waiter (I2).
        if let Some(mut guard) = self.try_acquire(worker) {
            parker.disarm(ticket);
            return match is_written(upto) {
                true => ended(),
                false => write(&mut guard, Some(upto)),
            };
        }
        worker.account().passed(&WAKING);
        let verdict = parker.wait(ticket, None);
        waiters.wait_result(worker, verdict == Some(REACHED))
    }

    /// As [`write_to`](Self::write_to), but returns `None` where it would have to wait: if another
    /// thread keeps the lock, or is still copying a record before `lsn`.
    pub(crate) fn try_write_to(
        &self,
        worker: &Worker,
        lsn: Lsn,
        write: impl Fn(&mut T, Option<Lsn>) -> Result<(), LogError>,
    ) -> Result<Option<PendingWakeups>, LogError> {
        let is_written = || self.waiters.position(Milestone::Written) >= lsn;
        for _ in 0..ATTEMPTS {
            if is_written() {
                return Ok(Some(PendingWakeups { any: false }));
            }
            let Some(mut guard) = self.try_acquire(worker) else {
                hint::spin_loop();
                continue;
            };
            if !is_written() {
                self.waiters.check(worker)?;
                write(&mut guard, None)?;
            }
            if !is_written() {
                break;
            }
            guard.release();
            return Ok(Some(PendingWakeups { any: true }));
        }
        Ok(None)
    }

    /// Wakes the threads whose bytes are written, and writes for threads that came meanwhile.
    pub(crate) fn wake_waiters(
        &self,
        worker: &Worker,
        wakeups: PendingWakeups,
        write: impl Fn(&mut T, Option<Lsn>) -> Result<(), LogError>,
    ) {
        if !wakeups.any {
            return;
        }
        for _ in 0..ROUNDS {
            if self.complete_written(worker).is_none() {
                return;
            }
            // If another thread holds the lock now, it inspects the waiters later.
            let Some(mut guard) = self.try_acquire(worker) else {
                return;
            };
            if write(&mut guard, None).is_err() {
                return; // The failure has ended all waits.
            }
            guard.release();
        }
        self.inspect_waiters(worker);
    }

    /// Completes the waits whose LSN is written; the flusher writes for those that are left (I1).
    fn inspect_waiters(&self, worker: &Worker) {
        if let Some(left) = self.complete_written(worker) {
            self.requests.request(worker, Milestone::Written, left);
        }
    }

    /// Completes the waits whose LSN is written, and returns the largest LSN that is still waited
    /// for.
    fn complete_written(&self, worker: &Worker) -> Option<Lsn> {
        let written = self.waiters.position(Milestone::Written);
        self.waiters
            .complete_waits(worker, Milestone::Written, written)
    }
}

impl<T> WriterGuard<'_, T> {
    /// Releases the lock; inspecting the waiters is left to the caller (I1).
    fn release(mut self) {
        self.state = None;
    }
}

impl<T> Drop for WriterGuard<'_, T> {
    fn drop(&mut self) {
        if self.state.take().is_some() {
            self.lock.inspect_waiters(self.worker);
        }
    }
}

impl<T> Deref for WriterGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.state
            .as_ref()
            .expect("the guard has its state until it is released")
    }
}

impl<T> DerefMut for WriterGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.state
            .as_mut()
            .expect("the guard has its state until it is released")
    }
}
