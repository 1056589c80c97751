//! Slot: a place for one box, which is either in the slot or with one user.
//!
//! Three kinds of slot hold the box of a transaction while nothing is done with it:
//!
//! * a *pool cell*, between transactions: any thread takes the box;
//! * a *session slot*, between the transactions of a session: a session and its transaction are two
//!   values, either may be dropped first, and the box is with one of them or here;
//! * an *idle slot*, between operations, with
//!   [`Options::idle_timeout`](crate::Options::idle_timeout): so a thread can end a transaction
//!   that is idle for too long.
//!
//! # State
//!
//! | | where the box is |
//! |---|---|
//! | `Out` | with a user, or nowhere yet |
//! | `In`, idle since a time | here; in an idle slot, or in a pool cell that was not used lately |
//! | `In`, not idle | here; in an idle slot, of a transaction that was ended unknown to its owner |
//! | `Ending` | with the thread that ends it; only in an idle slot |
//! | `Closed` | the slot accepts no box. An idle slot: as `Ending`, and the owner has left |
//!
//! # Invariants
//!
//! * I1  A closed slot has no box and accepts none: a user that returns one gets it back.
//!
//! # Why no operation meets its end
//!
//! The box of a transaction is in one place. Owner and thread take it under the mutex, so the
//! second one finds that it is not there.
//!
//! * *The operation is first.* The thread finds `Out` and does nothing. When the operation returns
//!   the box, its idle time begins anew.
//! * *The thread is first.* The operation finds `Ending` and is refused at once, without waiting
//!   for changes to be undone. Later operations are refused as well, because the thread returns a
//!   transaction that has ended.
//! * *The owner leaves for good while the thread has the box*, by commit, rollback or drop. It
//!   finds `Ending` and leaves `Closed`. The thread finds `Closed` when it is done, and recycles
//!   the box in the owner's place. Both change the state under the mutex, so exactly one of them
//!   recycles it.
//! * *The owner is forgotten* (`mem::forget`). The box is here, and the thread ends it as any
//!   other.
//!
//! The user that has the box undoes changes and releases locks, outside the mutex.

use std::mem;
use std::time::Instant;

use foxton_sync::shim::{self, Mutex};
use foxton_sync::site::{Component, Pattern, Site};

/// Session slots: a session and its transaction. A slot knows no worker, so its users count.
pub(crate) static SESSION_SLOT: Site =
    Site::new(Component::Transaction, Pattern::Fixed, "session slot");

/// Idle slots: a transaction, and the idle timeout thread. A slot knows no worker, so its users
/// count.
pub(crate) static IDLE_SLOT: Site = Site::new(Component::Transaction, Pattern::Fixed, "idle slot");

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct BoxSlot<T>(Mutex<Content<T>>);

#[derive(Debug)]
enum Content<T> {
    Out,
    In(Box<T>, Option<Instant>),
    Ending,
    Closed,
}

/// Why a box was not put into a slot.
#[derive(Debug)]
pub(super) enum PutRefused<T> {
    /// There is another box, or another thread uses the slot.
    Occupied(Box<T>),
    Closed(Box<T>),
}

/// Why there is nothing to end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotIdle {
    /// It is idle since then, which is not long enough.
    Since(Instant),
    /// It is in use, or has been ended.
    InUse,
}

impl NotIdle {
    /// Returns since when it is idle, if it is.
    pub(crate) fn since(self) -> Option<Instant> {
        match self {
            NotIdle::Since(since) => Some(since),
            NotIdle::InUse => None,
        }
    }
}

impl<T> Content<T> {
    /// Takes the box, if it is here.
    #[inline]
    fn take(&mut self) -> Option<Box<T>> {
        match mem::replace(self, Content::Out) {
            Content::In(content, _) => Some(content),
            other => {
                *self = other;
                None
            }
        }
    }
}

impl<T> BoxSlot<T> {
    /// A slot whose box is with a user.
    pub(crate) fn new() -> BoxSlot<T> {
        BoxSlot(Mutex::new(Content::Out))
    }

    /// Takes the box, if it is here.
    pub(crate) fn take(&self) -> Option<Box<T>> {
        shim::lock(&self.0).take()
    }

    /// As [`take`](Self::take), if no other thread uses the slot right now.
    #[inline]
    pub(super) fn try_take(&self) -> Option<Box<T>> {
        shim::try_lock(&self.0)?.take()
    }

    /// As [`try_take`](Self::try_take), if the box is one that is `wanted`.
    pub(super) fn try_take_if(&self, wanted: fn(&T) -> bool) -> Option<Box<T>> {
        let mut slot = shim::try_lock(&self.0)?;
        match &*slot {
            Content::In(content, _) if wanted(content) => slot.take(),
            _ => None,
        }
    }

    /// Puts the box back, idle since then or not idle. Returns it if the slot is closed.
    pub(crate) fn put(&self, content: Box<T>, idle_since: Option<Instant>) -> Option<Box<T>> {
        let mut slot = shim::lock(&self.0);
        match *slot {
            Content::Closed => Some(content), // I1
            _ => {
                *slot = Content::In(content, idle_since);
                None
            }
        }
    }

    /// Puts a box here if there is none, calling `before` first.
    #[inline]
    pub(super) fn try_put(
        &self,
        content: Box<T>,
        before: impl FnOnce(&T),
    ) -> Result<(), PutRefused<T>> {
        if let Some(mut slot) = shim::try_lock(&self.0) {
            match *slot {
                Content::Out => {
                    before(&content);
                    *slot = Content::In(content, None);
                    return Ok(());
                }
                Content::Closed => return Err(PutRefused::Closed(content)), // I1
                Content::In(..) | Content::Ending => {}
            }
        }
        Err(PutRefused::Occupied(content))
    }

    /// Takes the box of a pool cell if it has been here since the last call. Skips a cell that is
    /// in use.
    pub(super) fn take_unused(&self, now: Instant) -> Option<Box<T>> {
        let mut slot = shim::try_lock(&self.0)?;
        match &mut *slot {
            Content::In(_, Some(_)) => slot.take(),
            Content::In(_, seen) => {
                *seen = Some(now);
                None
            }
            _ => None,
        }
    }

    /// Closes the slot, and returns the box if it is here.
    pub(crate) fn close(&self) -> Option<Box<T>> {
        match mem::replace(&mut *shim::lock(&self.0), Content::Closed) {
            Content::In(content, _) => Some(content),
            _ => None,
        }
    }

    /// Takes the box for good; the slot can be used again. Returns `None` if the thread has the
    /// box: it then recycles it.
    pub(crate) fn leave(&self) -> Option<Box<T>> {
        let mut slot = shim::lock(&self.0);
        if let Content::Ending = *slot {
            *slot = Content::Closed;
        }
        slot.take()
    }

    /// Takes the box to end its transaction, if `is_long` says so of the time since when it is
    /// idle.
    pub(crate) fn take_idle(&self, is_long: impl Fn(Instant) -> bool) -> Result<Box<T>, NotIdle> {
        let mut slot = shim::lock(&self.0);
        match *slot {
            Content::In(_, Some(since)) if !is_long(since) => Err(NotIdle::Since(since)),
            Content::In(_, Some(_)) => match mem::replace(&mut *slot, Content::Ending) {
                Content::In(content, _) => Ok(content),
                _ => unreachable!("matched above"),
            },
            _ => Err(NotIdle::InUse),
        }
    }

    /// Puts back the box of a transaction that was ended. Returns it to be recycled if its owner
    /// has left.
    pub(crate) fn put_ended(&self, content: Box<T>) -> Option<Box<T>> {
        let mut slot = shim::lock(&self.0);
        match *slot {
            Content::Closed => {
                *slot = Content::Out;
                Some(content)
            }
            _ => {
                *slot = Content::In(content, None);
                None
            }
        }
    }

    /// Passes the box to `inspect` if it is idle, and since when.
    pub(crate) fn inspect<R>(&self, inspect: impl FnOnce(&T, Instant) -> R) -> Option<R> {
        match &*shim::lock(&self.0) {
            Content::In(content, Some(since)) => Some(inspect(content, *since)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Every order in which owner and thread can come to the mutex.
    #[test]
    fn owner_and_thread_never_both_have_an_idle_box_and_one_recycles_it() {
        let begun = Instant::now();
        let is_long = |since: Instant| since == begun;
        let slot = BoxSlot::new();
        let rest = |content, since| assert_eq!(slot.put(Box::new(content), Some(since)), None);
        // The owner has it.
        assert_eq!(slot.take_idle(is_long), Err(NotIdle::InUse));
        let later = begun + Duration::from_secs(1);
        rest(1, later);
        assert_eq!(slot.take_idle(is_long), Err(NotIdle::Since(later)));
        // The owner first.
        assert_eq!(slot.take(), Some(Box::new(1)));
        rest(2, begun);
        let seen = slot.inspect(|content, since| (*content, since));
        assert_eq!(seen, Some((2, begun)));
        // The thread first; the owner comes while the thread has it, and afterwards.
        let ending = slot.take_idle(is_long).unwrap();
        assert_eq!((slot.take(), slot.inspect(|_, _| ())), (None, None));
        assert_eq!(slot.take_idle(is_long), Err(NotIdle::InUse));
        assert_eq!(slot.put_ended(ending), None);
        assert_eq!(slot.take_idle(is_long), Err(NotIdle::InUse), "only once");
        assert_eq!(slot.leave(), Some(Box::new(2)));
        // The owner leaves while the thread has it.
        rest(3, begun);
        let ending = slot.take_idle(is_long).unwrap();
        assert_eq!(slot.leave(), None);
        assert_eq!(slot.put_ended(ending), Some(Box::new(3)));
        // And the slot is as at first.
        rest(4, begun);
        assert_eq!(slot.leave(), Some(Box::new(4)));
        assert_eq!(slot.take_idle(is_long), Err(NotIdle::InUse));
    }

    #[test]
    fn a_box_comes_back_once_and_not_into_a_closed_slot() {
        let slot = BoxSlot::new();
        assert!(slot.take().is_none());
        assert!(slot.put(Box::new(1), None).is_none());
        assert_eq!(slot.take(), Some(Box::new(1)));
        assert!(slot.take().is_none());
        assert!(slot.put(Box::new(2), None).is_none());
        assert_eq!(slot.close(), Some(Box::new(2)));
        assert_eq!(slot.put(Box::new(3), None), Some(Box::new(3)));
        assert!(slot.close().is_none());
    }

    #[test]
    fn a_pool_cell_has_one_box_and_refuses_a_second() {
        let slot = BoxSlot::new();
        assert!(slot.try_put(Box::new(1), |_| {}).is_ok());
        let refused = slot.try_put(Box::new(2), |_| unreachable!());
        assert!(matches!(refused, Err(PutRefused::Occupied(two)) if *two == 2));
        assert_eq!(slot.try_take(), Some(Box::new(1)));
        assert_eq!(slot.try_take(), None);
        assert!(slot.close().is_none());
        let refused = slot.try_put(Box::new(3), |_| unreachable!());
        assert!(matches!(refused, Err(PutRefused::Closed(three)) if *three == 3));
    }
}
