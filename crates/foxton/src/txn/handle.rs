//! What a transaction has in its hands: what it works with, and where that lies in between.
//!
//! Usually it is at hand from the beginning to the end. With
//! [`Options::idle_timeout`](crate::Options::idle_timeout) it is taken up for each operation and laid down after
//! it ([`idle_slot`](crate::engine::idle_slot)); then taking it up can fail, since it may have been ended.
//!
//! An operation that is forgotten leaves it at hand until the next one, and a range of which somebody keeps hold
//! does so as long as it is kept: both count as being at it.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use foxton_lock::owner::OwnerId;
use foxton_sync::site::{Component, Pattern, Site};

use super::state::{Phase, State};
use crate::engine::Counter;
use crate::engine::idle_registry::Idler;
use crate::engine::idle_slot::Rest;
use crate::error::{Conflict, Result};
use crate::testing::failpoint;

/// Where a transaction rests: it, and the thread that ends idle ones.
static REST: Site = Site::new(Component::Transaction, Pattern::Fixed, "rest");

/// See the [module](self).
pub(crate) struct Hand {
    /// Here from the beginning to the end without the option, and never with it.
    state: Option<Box<State>>,
    /// `None` without the option.
    resting: Option<Box<Resting>>,
}

/// What is taken up for each operation and laid down after it.
pub(crate) struct Resting {
    rest: Arc<Rest<State>>,
    /// Here while somebody is at it.
    taken: Option<Box<State>>,
}

impl fmt::Debug for Hand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Transaction");
        if let Some(state) = &self.state {
            shown
                .field("owner", &state.owner.id())
                .field("locks", &state.owner.lock_count())
                .field("changes", &state.changes.undo.len());
        }
        shown.finish_non_exhaustive()
    }
}

impl Hand {
    /// A transaction that begins.
    #[inline(always)]
    pub(crate) fn new(state: Box<State>) -> Hand {
        match state.rest {
            None => Hand::busy(state),
            Some(_) => Hand::resting(state),
        }
    }

    #[cold]
    #[inline(never)]
    fn resting(state: Box<State>) -> Hand {
        let Some(rest) = state.rest.clone() else {
            return Hand::busy(state);
        };
        let taken = Some(state);
        let mut resting = Box::new(Resting { rest, taken });
        resting.lay_down();
        Hand {
            state: None,
            resting: Some(resting),
        }
    }

    /// One of the database's own, which is never idle.
    #[inline(always)]
    pub(crate) fn busy(state: Box<State>) -> Hand {
        Hand {
            state: Some(state),
            resting: None,
        }
    }

    /// Takes it up, for as long as what is returned is kept.
    ///
    /// # Errors
    /// That it was idle for too long.
    #[inline(always)]
    pub(crate) fn up(&mut self) -> Result<Up<'_>> {
        match &mut self.state {
            Some(state) => Ok(Up::At(state)),
            None => Hand::take_up(&mut self.resting),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_up(resting: &mut Option<Box<Resting>>) -> Result<Up<'_>> {
        let resting = resting.as_mut().expect(RESTS);
        if resting.taken.is_none() {
            let state = resting.rest.take().ok_or(Conflict::IDLE)?;
            state.worker.account().passed(&REST);
            resting.taken = Some(state);
        }
        Ok(Up::Taken(Taken(resting)))
    }

    /// Takes it up for good.
    ///
    /// # Errors
    /// As for [`up`](Self::up); whoever ends it puts it away.
    #[inline(always)]
    pub(crate) fn end(mut self) -> Result<Box<State>> {
        match self.state.take() {
            Some(state) => {
                // Nothing is left to be dropped: what never rests has no place to rest.
                mem::forget(self);
                Ok(state)
            }
            None => Ok(self.leave().ok_or(Conflict::IDLE)?),
        }
    }

    #[cold]
    #[inline(never)]
    fn leave(mut self) -> Option<Box<State>> {
        self.resting.take().expect(RESTS).leave()
    }

    /// Nobody wants it any more.
    #[inline(never)]
    fn abandon(&mut self) {
        let mut resting = self.resting.take();
        let state = self.state.take();
        if let Some(state) = state.or_else(|| resting.as_mut()?.leave()) {
            State::abandon(state);
        }
    }
}

impl Resting {
    fn leave(&mut self) -> Option<Box<State>> {
        // There, if an operation was forgotten.
        let state = self.taken.take().or_else(|| self.rest.leave())?;
        state.worker.account().passed(&REST);
        Some(state)
    }

    #[cold]
    #[inline(never)]
    fn lay_down(&mut self) {
        let Some(state) = self.taken.take() else {
            return;
        };
        state.worker.account().passed(&REST);
        let now = state.engine.workers.clock().now();
        self.rest.lay(state, now);
    }
}

const RESTS: &str = "it rests where it is not at hand";
/// Why what is described is there to be done.
pub(crate) const UP: &str = "up, since it was prepared";

impl Drop for Hand {
    #[inline(always)]
    fn drop(&mut self) {
        self.abandon();
    }
}

/// A transaction that is taken up, and laid down when this is dropped, unless it is at hand anyway.
pub(crate) enum Up<'h> {
    At(&'h mut State),
    Taken(Taken<'h>),
}

/// What was taken up where it rested, and is laid down there.
pub(crate) struct Taken<'h>(&'h mut Resting);

impl Drop for Taken<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.lay_down();
    }
}

impl Deref for Up<'_> {
    type Target = State;

    #[inline(always)]
    fn deref(&self) -> &State {
        match self {
            Up::At(state) => state,
            Up::Taken(taken) => taken.0.taken.as_deref().expect(UP),
        }
    }
}

impl DerefMut for Up<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut State {
        match self {
            Up::At(state) => state,
            Up::Taken(taken) => taken.0.taken.as_deref_mut().expect(UP),
        }
    }
}

impl<'h> Up<'h> {
    /// What an operation begins with that is described first and done later.
    #[inline(always)]
    pub(crate) fn prepared<T>(
        up: Result<Up<'h>>,
        prepare: impl FnOnce(&mut State) -> Result<T>,
    ) -> (Option<Up<'h>>, Result<T>) {
        match up {
            Ok(mut up) => {
                let prepared = prepare(&mut up);
                (Some(up), prepared)
            }
            Err(error) => (None, Err(error)),
        }
    }
}

impl Idler for Rest<State> {
    fn end_if(&self, is_long: &dyn Fn(Instant) -> bool) -> Option<Instant> {
        let mut state = match self.take_idle(is_long) {
            Ok(state) => state,
            Err(not) => return not.yet(),
        };
        state.worker.failpoints().pass(&failpoint::IDLE);
        state.roll_back();
        state.leave();
        state.phase = Phase::Idle;
        state.count(Counter::IdleEnded);
        if let Some(state) = self.ended(state) {
            State::recycle(state);
        }
        None
    }

    fn idle(&self) -> Option<(OwnerId, Instant)> {
        self.look(|state, since| (state.owner.id(), since))
    }
}
