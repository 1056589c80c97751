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
//!   outlet again for the others, or has the flusher asked for them. A turn that is dropped, by a panic too, does so at
//!   once; of one that is let go ([`Turn::let_go`]) the caller is told that it is still to be done ([`Untold`]).
//! * I2 Who is to wait enters with the waiters and *then* tries the outlet once more. It sleeps only if that is taken.
//!
//! # Why nobody waits for ever
//!
//! Let E have entered, found the outlet taken and gone to sleep; let H be who had it when E tried. Entering and looking
//! are both under the latch of the waiters, so one is first. If E entered before H looked, H ends its wait or sees to it
//! (I1). If H looked before E entered, then it had given the outlet back before, and the latch tells E so: then it was
//! not H who had it when E tried. Each turn ends, and each that ends is looked after. Who looks may have lost the
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
use crate::write::waiters::{REACHED, Reach, Waiters};

static OUTPUT: Site = Site::new(Component::Log, Pattern::Cooperative, "log output");

/// How often who wants to write looks for the outlet before it lets its locks go, or sleeps.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 100 };
/// How often who has written goes on for those who have come meanwhile, before it is the flusher's turn.
const MORE: u32 = if cfg!(loom) { 1 } else { 2 };

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Outlet<T> {
    inside: Mutex<T>,
}

/// What whoever has the outlet has until it gives it back.
pub(crate) struct Turn<'a, T, O: Owner<T>> {
    inside: Option<MutexGuard<'a, T>>,
    owner: &'a O,
    worker: &'a Worker,
}

/// Whose outlet it is, which leads to `T`.
pub(crate) trait Owner<T> {
    fn waiters(&self) -> &Waiters;
    /// Writes what is complete, and publishes how far that is.
    fn take_out(&self, worker: &Worker, inside: &mut T) -> Result<(), LogError>;
    /// Writes what is complete, and at least up to `upto`.
    fn write_out(&self, worker: &Worker, inside: &mut T, upto: Lsn) -> Result<(), LogError>;
    /// Has the flusher see to those who wait, up to here.
    fn ask_for(&self, worker: &Worker, left: Lsn);
    /// Where the last record ends: what nobody has inserted is not waited for.
    fn end(&self, worker: &Worker) -> Lsn;
    /// The error that everybody gets once something has failed.
    fn check(&self, worker: &Worker) -> Result<(), LogError>;
    /// Whether nothing more will be written.
    fn is_over(&self, worker: &Worker) -> bool;
}

/// Who had the outlet and has let go of it owes those who wait a [`tell`](Outlet::tell).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "they may wait for long"]
pub(crate) enum Untold {
    Nobody,
    Perhaps,
}

impl<T> Outlet<T> {
    pub(crate) fn new(inside: T) -> Outlet<T> {
        Outlet {
            inside: Mutex::new(inside),
        }
    }

    /// Takes the outlet; waits for it.
    pub(crate) fn take<'a, O: Owner<T>>(
        &'a self,
        owner: &'a O,
        worker: &'a Worker,
    ) -> Turn<'a, T, O> {
        worker.account().passed(&OUTPUT);
        Turn {
            inside: Some(lock(&self.inside)),
            owner,
            worker,
        }
    }

    /// Takes the outlet, unless somebody else has it.
    pub(crate) fn try_take<'a, O: Owner<T>>(
        &'a self,
        owner: &'a O,
        worker: &'a Worker,
    ) -> Option<Turn<'a, T, O>> {
        let inside = try_lock(&self.inside)?;
        worker.account().passed(&OUTPUT);
        Some(Turn {
            inside: Some(inside),
            owner,
            worker,
        })
    }

    /// Sees to it that what is complete is written, up to `lsn` at least, or to the end if that is less.
    pub(crate) fn write_to<O: Owner<T>>(
        &self,
        owner: &O,
        worker: &Worker,
        lsn: Lsn,
    ) -> Result<(), LogError> {
        if let Some(untold) = self.try_write_to(owner, worker, lsn)? {
            self.tell(owner, worker, untold);
            return Ok(());
        }
        let (waiters, lsn) = (owner.waiters(), lsn.min(owner.end(worker)));
        let is_over = || owner.is_over(worker);
        let Some((parker, ticket)) = waiters.enter(worker, Reach::Written, lsn, is_over) else {
            return outcome(owner, worker, waiters.far(Reach::Written) >= lsn);
        };
        // Whoever had the outlet may have given it back before anybody could see us wait (I2).
        if let Some(mut turn) = self.try_take(owner, worker) {
            parker.disarm(ticket);
            return match waiters.far(Reach::Written) < lsn {
                true => owner.write_out(worker, &mut turn, lsn),
                false => Ok(()),
            };
        }
        worker.account().passed(&WAKING);
        let verdict = parker.wait(ticket, None);
        outcome(owner, worker, verdict == Some(REACHED))
    }

    /// As `write_to`, unless somebody else keeps the outlet, or has a place before `lsn` and has not copied yet: `None`
    /// then. Else those who wait are to be told.
    pub(crate) fn try_write_to<O: Owner<T>>(
        &self,
        owner: &O,
        worker: &Worker,
        lsn: Lsn,
    ) -> Result<Option<Untold>, LogError> {
        let is_written = || owner.waiters().far(Reach::Written) >= lsn;
        for _ in 0..LOOKS {
            if is_written() {
                return Ok(Some(Untold::Nobody));
            }
            let Some(mut turn) = self.try_take(owner, worker) else {
                hint::spin_loop();
                continue;
            };
            if !is_written() {
                owner.check(worker)?;
                owner.take_out(worker, &mut turn)?;
            }
            if !is_written() {
                break;
            }
            turn.let_go();
            return Ok(Some(Untold::Perhaps));
        }
        Ok(None)
    }

    /// Tells those who wait, and goes on for those who came meanwhile.
    pub(crate) fn tell<O: Owner<T>>(&self, owner: &O, worker: &Worker, untold: Untold) {
        if untold == Untold::Nobody {
            return;
        }
        for _ in 0..MORE {
            if look(owner, worker).is_none() {
                return;
            }
            // Who has it now, if anybody has, sees to them.
            let Some(mut turn) = self.try_take(owner, worker) else {
                return;
            };
            if owner.take_out(worker, &mut turn).is_err() {
                return; // Everybody was told.
            }
            turn.let_go();
        }
        if let Some(left) = look(owner, worker) {
            owner.ask_for(worker, left);
        }
    }
}

/// Ends the waits that are reached, and says up to where those wait who are left (I1).
fn look<T, O: Owner<T>>(owner: &O, worker: &Worker) -> Option<Lsn> {
    let waiters = owner.waiters();
    waiters.reached(worker, Reach::Written, waiters.far(Reach::Written))
}

/// What came of a wait.
pub(crate) fn outcome<T, O: Owner<T>>(
    owner: &O,
    worker: &Worker,
    is_reached: bool,
) -> Result<(), LogError> {
    match is_reached {
        true => Ok(()),
        false => owner.check(worker).and(Err(LogError::Closed)),
    }
}

impl<T, O: Owner<T>> Turn<'_, T, O> {
    /// Gives the outlet back. To look at who waits is the caller's then (I1).
    fn let_go(mut self) {
        self.inside = None;
    }
}

impl<T, O: Owner<T>> Drop for Turn<'_, T, O> {
    fn drop(&mut self) {
        if self.inside.take().is_none() {
            return; // It was let go.
        }
        if let Some(left) = look(self.owner, self.worker) {
            self.owner.ask_for(self.worker, left);
        }
    }
}

impl<T, O: Owner<T>> Deref for Turn<'_, T, O> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inside
            .as_ref()
            .expect("it is taken until the turn ends")
    }
}

impl<T, O: Owner<T>> DerefMut for Turn<'_, T, O> {
    fn deref_mut(&mut self) -> &mut T {
        self.inside
            .as_mut()
            .expect("it is taken until the turn ends")
    }
}
