//! Where a transaction lies while nothing is asked of it, so that it can be ended if it lies too long.
//!
//! Used only with [`Options::idle_timeout`](crate::Options::idle_timeout); without, a transaction has what it
//! works with at hand all the time, and there is nothing here.
//!
//! # State
//!
//! | | where it is |
//! |---|---|
//! | `Out` | with its owner, who does something with it, or in the rack |
//! | `Resting` | here, since then |
//! | `Ending` | with the thread that ends it |
//! | `Left` | as `Ending`, and its owner has gone |
//! | `Ended` | here; its locks are gone, its owner does not know |
//!
//! # Why no operation meets its end
//!
//! What a transaction works with is one box, which is in one place. Who takes it away, takes it under the
//! mutex, and the other one finds that it is not there.
//!
//! * *The operation comes first.* The thread finds `Out` and passes by. Time begins anew when the operation
//!   lays the box down again.
//! * *The thread comes first.* The operation finds `Ending` and is refused at once; it need not wait for
//!   changes to be undone. Whatever is asked later is refused as well: what the thread lays down is a
//!   transaction that has ended.
//! * *The owner goes for good while the thread is at it*, by commit, rollback or drop. It finds `Ending` and
//!   leaves `Left`; the thread, when it is done, finds that and puts the box away in the owner's place. Both
//!   change the word under the mutex, so exactly one of them puts it away.
//! * *The owner is gone without a word*, forgotten. The box is here, and the thread ends it as any other.
//!
//! Changes are undone and locks given back outside the mutex: by whoever has the box, as always.

use std::mem;
use std::time::Instant;

use foxton_sync::shim::{self, Mutex};

/// See the [module](self).
pub(crate) struct Rest<T>(Mutex<Content<T>>);

enum Content<T> {
    Out,
    Resting(Box<T>, Instant),
    Ending,
    Left,
    Ended(Box<T>),
}

/// Why there is nothing to be ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Not {
    /// It rests since then, which is not long.
    Yet(Instant),
    /// It does something, or it has been ended.
    Idle,
}

impl Not {
    /// Since when it rests, if it does.
    pub(crate) fn yet(self) -> Option<Instant> {
        match self {
            Not::Yet(since) => Some(since),
            Not::Idle => None,
        }
    }
}

impl<T> Rest<T> {
    /// With its owner.
    pub(crate) fn new() -> Rest<T> {
        Rest(Mutex::new(Content::Out))
    }

    /// The owner lays it down.
    pub(crate) fn lay(&self, content: Box<T>, now: Instant) {
        *shim::lock(&self.0) = Content::Resting(content, now);
    }

    /// The owner takes it up; `None` if it is being ended.
    pub(crate) fn take(&self) -> Option<Box<T>> {
        self.take_or(Content::Ending)
    }

    /// The owner goes for good, with it; `None` if it is being ended, and put away by whoever does so.
    pub(crate) fn leave(&self) -> Option<Box<T>> {
        self.take_or(Content::Left)
    }

    fn take_or(&self, ending: Content<T>) -> Option<Box<T>> {
        let mut place = shim::lock(&self.0);
        match mem::replace(&mut *place, Content::Out) {
            Content::Resting(content, _) | Content::Ended(content) => Some(content),
            Content::Out => None,
            Content::Ending | Content::Left => {
                *place = ending;
                None
            }
        }
    }

    /// Takes it to be ended, if it has rested since `at_latest`.
    pub(crate) fn take_idle(&self, is_long: impl Fn(Instant) -> bool) -> Result<Box<T>, Not> {
        let mut place = shim::lock(&self.0);
        match *place {
            Content::Resting(_, since) if !is_long(since) => Err(Not::Yet(since)),
            Content::Resting(..) => match mem::replace(&mut *place, Content::Ending) {
                Content::Resting(content, _) => Ok(content),
                _ => unreachable!("looked at above"),
            },
            _ => Err(Not::Idle),
        }
    }

    /// It has been ended; given back to be put away if its owner has gone.
    pub(crate) fn ended(&self, content: Box<T>) -> Option<Box<T>> {
        let mut place = shim::lock(&self.0);
        match *place {
            Content::Left => {
                *place = Content::Out;
                Some(content)
            }
            _ => {
                *place = Content::Ended(content);
                None
            }
        }
    }

    /// Shows it if it rests, and since when.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T, Instant) -> R) -> Option<R> {
        match &*shim::lock(&self.0) {
            Content::Resting(content, since) => Some(look(content, *since)),
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
    fn exactly_one_of_both_has_it_and_one_puts_it_away() {
        let begun = Instant::now();
        let is_long = |since: Instant| since == begun;
        let rest = Rest::new();
        // The owner has it.
        assert_eq!(rest.take_idle(is_long), Err(Not::Idle));
        rest.lay(Box::new(1), begun + Duration::from_secs(1));
        assert_eq!(
            rest.take_idle(is_long),
            Err(Not::Yet(begun + Duration::from_secs(1)))
        );
        // The owner first.
        assert_eq!(rest.take(), Some(Box::new(1)));
        rest.lay(Box::new(2), begun);
        assert_eq!(
            rest.look(|content, since| (*content, since)),
            Some((2, begun))
        );
        // The thread first; the owner comes while it is at it, and after it.
        let ending = rest.take_idle(is_long).unwrap();
        assert_eq!((rest.take(), rest.look(|_, _| ())), (None, None));
        assert_eq!(rest.take_idle(is_long), Err(Not::Idle));
        assert_eq!(rest.ended(ending), None);
        assert_eq!(rest.take_idle(is_long), Err(Not::Idle), "once is enough");
        assert_eq!(rest.leave(), Some(Box::new(2)));
        // The owner goes while the thread is at it.
        rest.lay(Box::new(3), begun);
        let ending = rest.take_idle(is_long).unwrap();
        assert_eq!(rest.leave(), None);
        assert_eq!(rest.ended(ending), Some(Box::new(3)));
        // And the place is as at first.
        rest.lay(Box::new(4), begun);
        assert_eq!(rest.leave(), Some(Box::new(4)));
        assert_eq!(rest.take_idle(is_long), Err(Not::Idle));
    }
}
