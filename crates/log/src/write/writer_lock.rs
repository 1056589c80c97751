//! The way out, which one thread at a time has, and who waits for what it takes out.
//!
//! Whoever needs its bytes written takes the outlet and writes them, and everybody's that are there. Whoever finds it
//! taken does not wait for the outlet, only for its bytes: who has the outlet has perhaps lost the processor, and where
//! dozens stand in line for a mutex, each is woken to find that it was written for long ago, and to wake the next. So who
//! waits is noted with the [`Waiters`], and woken by whoever has written it.
//!
//! # State
//!
//! What the outlet leads to, behind a mutex, and the waiters.
//!
//! # Invariants
//!
//! * I1 Who gives the outlet back looks, *after* that, at who waits: it ends the waits that are reached, and takes the
//!   outlet again for the others, or has the flusher asked for them. A guard that is dropped, by a panic too, does so at
//!   once; of one that is let go ([`WriterGuard::release`]) the caller is told that it is still to be done ([`PendingWakeups`]).
//! * I2 Who is to wait enters with the waiters and *then* tries the outlet once more. It sleeps only if that is taken.
//!
//! # Why nobody waits for ever
//!
//! Let E have entered, found the outlet taken and gone to sleep; let H be who had it when E tried. Entering and looking
//! are both under the latch of the waiters, so one is first. If E entered before H looked, H ends its wait or sees to it
//! (I1). If H looked before E entered, then it had given the outlet back before, and the latch tells E so: then it was
//! not H who had it when E tried. Each guard ends, and each that ends is looked after. Who looks may have lost the
//! processor in between; then whoever has the outlet next looks for all.
//!
//! # Orderings
//!
//! None: the mutex and the latch order everything here.

use std::ops::{Deref, DerefMut};

use foxton_sync::park::WAKING;
use foxton_sync::shim::{Mutex, MutexGuard, hint, lock, try_lock};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::format::error::LogError;
use crate::format::lsn::Lsn;
use crate::write::waiters::{Milestone, REACHED, Waiters};

static OUTPUT: Site = Site::new(Component::Log, Pattern::Cooperative, "log output");

/// How often who wants to write looks for the outlet before it lets its locks go, or sleeps.
const ATTEMPTS: u32 = if cfg!(loom) { 1 } else { 100 };
/// How often who has written goes on for those who have come meanwhile, before it is the flusher's guard.
const ROUNDS: u32 = if cfg!(loom) { 1 } else { 2 };

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct WriterLock<T> {
    state: Mutex<T>,
}

/// What whoever has the outlet has until it gives it back.
pub(crate) struct WriterGuard<'a, T, O: WriterHost<T>> {
    state: Option<MutexGuard<'a, T>>,
    host: &'a O,
    worker: &'a Worker,
}

/// Whose outlet it is, which leads to `T`.
pub(crate) trait WriterHost<T> {
    fn waiters(&self) -> &Waiters;
    /// Writes what is complete, and publishes how far that is.
    fn write_ready(&self, worker: &Worker, state: &mut T) -> Result<(), LogError>;
    /// Writes what is complete, and at least up to `upto`.
    fn write_up_to(&self, worker: &Worker, state: &mut T, upto: Lsn) -> Result<(), LogError>;
    /// Has the flusher see to those who wait, up to here.
    fn request_write(&self, worker: &Worker, left: Lsn);
    /// Where the last record ends: what nobody has inserted is not waited for.
    fn end(&self, worker: &Worker) -> Lsn;
    /// The error that everybody gets once something has failed.
    fn check(&self, worker: &Worker) -> Result<(), LogError>;
    /// Whether nothing more will be written.
    fn is_over(&self, worker: &Worker) -> bool;
}

/// Who had the outlet and has let go of it owes those who wait a [`wake_waiters`](WriterLock::wake_waiters).
#[derive(Debug)]
#[must_use = "others may wait for long"]
pub struct PendingWakeups {
    /// False if nothing was written, because it had been written before.
    any: bool,
}

impl<T> WriterLock<T> {
    pub(crate) fn new(state: T) -> WriterLock<T> {
        WriterLock {
            state: Mutex::new(state),
        }
    }

    /// Takes the outlet; waits for it.
    pub(crate) fn acquire<'a, O: WriterHost<T>>(
        &'a self,
        host: &'a O,
        worker: &'a Worker,
    ) -> WriterGuard<'a, T, O> {
        worker.account().passed(&OUTPUT);
        WriterGuard {
            state: Some(lock(&self.state)),
            host,
            worker,
        }
    }

    /// Takes the outlet, unless somebody else has it.
    pub(crate) fn try_acquire<'a, O: WriterHost<T>>(
        &'a self,
        host: &'a O,
        worker: &'a Worker,
    ) -> Option<WriterGuard<'a, T, O>> {
        let state = try_lock(&self.state)?;
        worker.account().passed(&OUTPUT);
        Some(WriterGuard {
            state: Some(state),
            host,
            worker,
        })
    }

    /// Sees to it that what is complete is written, up to `lsn` at least, or to the end if that is less.
    pub(crate) fn write_to<O: WriterHost<T>>(
        &self,
        host: &O,
        worker: &Worker,
        lsn: Lsn,
    ) -> Result<(), LogError> {
        if let Some(wakeups) = self.try_write_to(host, worker, lsn)? {
            self.wake_waiters(host, worker, wakeups);
            return Ok(());
        }
        let (waiters, lsn) = (host.waiters(), lsn.min(host.end(worker)));
        let is_over = || host.is_over(worker);
        let Some((parker, ticket)) = waiters.enqueue(worker, Milestone::Written, lsn, is_over)
        else {
            return wait_result(host, worker, waiters.position(Milestone::Written) >= lsn);
        };
        // Whoever had the outlet may have given it back before anybody could see us wait (I2).
        if let Some(mut guard) = self.try_acquire(host, worker) {
            parker.disarm(ticket);
            return match waiters.position(Milestone::Written) < lsn {
                true => host.write_up_to(worker, &mut guard, lsn),
                false => Ok(()),
            };
        }
        worker.account().passed(&WAKING);
        let verdict = parker.wait(ticket, None);
        wait_result(host, worker, verdict == Some(REACHED))
    }

    /// As `write_to`, unless somebody else keeps the outlet, or has a place before `lsn` and has not copied yet: `None`
    /// then. Else those who wait are to be told.
    pub(crate) fn try_write_to<O: WriterHost<T>>(
        &self,
        host: &O,
        worker: &Worker,
        lsn: Lsn,
    ) -> Result<Option<PendingWakeups>, LogError> {
        let is_written = || host.waiters().position(Milestone::Written) >= lsn;
        for _ in 0..ATTEMPTS {
            if is_written() {
                return Ok(Some(PendingWakeups { any: false }));
            }
            let Some(mut guard) = self.try_acquire(host, worker) else {
                hint::spin_loop();
                continue;
            };
            if !is_written() {
                host.check(worker)?;
                host.write_ready(worker, &mut guard)?;
            }
            if !is_written() {
                break;
            }
            guard.release();
            return Ok(Some(PendingWakeups { any: true }));
        }
        Ok(None)
    }

    /// Tells those who wait, and goes on for those who came meanwhile.
    pub(crate) fn wake_waiters<O: WriterHost<T>>(
        &self,
        host: &O,
        worker: &Worker,
        wakeups: PendingWakeups,
    ) {
        if !wakeups.any {
            return;
        }
        for _ in 0..ROUNDS {
            if complete_reached(host, worker).is_none() {
                return;
            }
            // Who has it now, if anybody has, sees to them.
            let Some(mut guard) = self.try_acquire(host, worker) else {
                return;
            };
            if host.write_ready(worker, &mut guard).is_err() {
                return; // Everybody was told.
            }
            guard.release();
        }
        if let Some(left) = complete_reached(host, worker) {
            host.request_write(worker, left);
        }
    }
}

/// Ends the waits that are reached, and says up to where those wait who are left (I1).
fn complete_reached<T, O: WriterHost<T>>(host: &O, worker: &Worker) -> Option<Lsn> {
    let waiters = host.waiters();
    waiters.complete_waits(
        worker,
        Milestone::Written,
        waiters.position(Milestone::Written),
    )
}

/// What came of a wait.
pub(crate) fn wait_result<T, O: WriterHost<T>>(
    host: &O,
    worker: &Worker,
    is_reached: bool,
) -> Result<(), LogError> {
    match is_reached {
        true => Ok(()),
        false => host.check(worker).and(Err(LogError::Closed)),
    }
}

impl<T, O: WriterHost<T>> WriterGuard<'_, T, O> {
    /// Gives the outlet back. To look at who waits is the caller's then (I1).
    fn release(mut self) {
        self.state = None;
    }
}

impl<T, O: WriterHost<T>> Drop for WriterGuard<'_, T, O> {
    fn drop(&mut self) {
        if self.state.take().is_none() {
            return; // It was let go.
        }
        if let Some(left) = complete_reached(self.host, self.worker) {
            self.host.request_write(self.worker, left);
        }
    }
}

impl<T, O: WriterHost<T>> Deref for WriterGuard<'_, T, O> {
    type Target = T;

    fn deref(&self) -> &T {
        self.state
            .as_ref()
            .expect("it is taken until the guard ends")
    }
}

impl<T, O: WriterHost<T>> DerefMut for WriterGuard<'_, T, O> {
    fn deref_mut(&mut self) -> &mut T {
        self.state
            .as_mut()
            .expect("it is taken until the guard ends")
    }
}
