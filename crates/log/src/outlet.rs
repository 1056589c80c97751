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
//! * I1 Who gives the outlet back looks, *after* that, at who waits: it ends the waits that are reached, and has the
//!   flusher asked for the others, or takes the outlet again for them ([`Turn::let_go`]). A turn that is dropped, by a
//!   panic too, does so at once.
//! * I2 Who is to wait enters with the waiters and *then* tries the outlet once more. It sleeps only if that is taken.
//!
//! # Why nobody waits for ever
//!
//! Let E have entered, found the outlet taken and gone to sleep; let H be the last who had it when E tried. Entering and
//! looking are both under the latch of the waiters, so one is first. If E entered before H looked, H ends its wait or
//! sees to it (I1). If H looked before E entered, then H had given the outlet back
//! before that (I1), and the latch tells E so: what E found taken was not H's turn, but a later one, whose owner looks
//! after E has entered, or whose look comes before, in which case the same holds for that one. Each turn ends.
//!
//! # Orderings
//!
//! None: the mutex and the latch order everything here.

use std::ops::{Deref, DerefMut};

use foxton_sync::shim::{Mutex, MutexGuard, lock, try_lock};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::lsn::Lsn;
use crate::waiters::{Reach, Waiters};

static OUTPUT: Site = Site::new(Component::Log, Pattern::Cooperative, "log output");

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Outlet<T> {
    inside: Mutex<T>,
}

/// What whoever has the outlet has until it gives it back.
pub(crate) struct Turn<'a, T, O: Owner> {
    inside: Option<MutexGuard<'a, T>>,
    owner: &'a O,
    worker: &'a Worker,
}

/// Whose outlet it is.
pub(crate) trait Owner {
    fn waiters(&self) -> &Waiters;
    /// Has the flusher see to those who wait, up to here.
    fn ask_for(&self, worker: &Worker, left: Lsn);
}

impl<T> Outlet<T> {
    pub(crate) fn new(inside: T) -> Outlet<T> {
        Outlet {
            inside: Mutex::new(inside),
        }
    }

    /// Takes the outlet; waits for it.
    pub(crate) fn take<'a, O: Owner>(&'a self, owner: &'a O, worker: &'a Worker) -> Turn<'a, T, O> {
        worker.account().passed(&OUTPUT);
        Turn {
            inside: Some(lock(&self.inside)),
            owner,
            worker,
        }
    }

    /// Takes the outlet, unless somebody else has it.
    pub(crate) fn try_take<'a, O: Owner>(
        &'a self,
        owner: &'a O,
        worker: &'a Worker,
    ) -> Option<Turn<'a, T, O>> {
        worker.account().passed(&OUTPUT);
        Some(Turn {
            inside: Some(try_lock(&self.inside)?),
            owner,
            worker,
        })
    }
}

impl<T, O: Owner> Turn<'_, T, O> {
    /// Gives the outlet back. To look at who waits is the caller's then (I1).
    pub(crate) fn let_go(mut self) {
        self.inside = None;
    }

    /// Up to where those wait who are left, if it had the outlet still.
    fn end(&mut self) -> Option<Lsn> {
        drop(self.inside.take()?);
        let waiters = self.owner.waiters();
        waiters.reached(self.worker, Reach::Written, waiters.far(Reach::Written)) // I1
    }
}

impl<T, O: Owner> Drop for Turn<'_, T, O> {
    fn drop(&mut self) {
        if let Some(left) = self.end() {
            self.owner.ask_for(self.worker, left);
        }
    }
}

impl<T, O: Owner> Deref for Turn<'_, T, O> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inside.as_ref().expect("given back by what ends it")
    }
}

impl<T, O: Owner> DerefMut for Turn<'_, T, O> {
    fn deref_mut(&mut self) -> &mut T {
        self.inside.as_mut().expect("given back by what ends it")
    }
}
