//! Where what a session works with comes back to when a transaction of it ends.
//!
//! A session and its transaction are two values that go their own ways, and either may be dropped first.
//! What both work with is with one of them, or here. It comes back once for each time that it went out.
//!
//! # Invariants
//!
//! * I1  A closed berth takes nothing and has nothing: whoever comes back to it ends by itself.

use foxton_sync::shim::{self, Mutex};
use foxton_sync::site::{Component, Pattern, Site};

/// A session and its transaction. A berth knows no worker, so who comes back to it counts, and who takes
/// out of it.
pub(crate) static BERTH: Site = Site::new(Component::Transaction, Pattern::Fixed, "session berth");

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Berth<T>(Mutex<Content<T>>);

#[derive(Debug)]
enum Content<T> {
    Out,
    Back(Box<T>),
    Closed,
}

impl<T> Berth<T> {
    /// What belongs to it is out.
    pub(crate) fn new() -> Berth<T> {
        Berth(Mutex::new(Content::Out))
    }

    /// What has come back, if it has.
    pub(crate) fn take(&self) -> Option<Box<T>> {
        self.replace(Content::Out)
    }

    /// Nothing may come back any more; and what has.
    pub(crate) fn close(&self) -> Option<Box<T>> {
        self.replace(Content::Closed)
    }

    /// Comes back, or is given back to the caller if nobody waits for it any more.
    pub(crate) fn put(&self, content: Box<T>) -> Option<Box<T>> {
        let mut berth = shim::lock(&self.0);
        match *berth {
            Content::Closed => Some(content), // I1
            Content::Out | Content::Back(_) => {
                *berth = Content::Back(content);
                None
            }
        }
    }

    fn replace(&self, by: Content<T>) -> Option<Box<T>> {
        match std::mem::replace(&mut *shim::lock(&self.0), by) {
            Content::Back(content) => Some(content),
            Content::Out | Content::Closed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_out_comes_back_once_and_not_to_a_closed_one() {
        let berth = Berth::new();
        assert!(berth.take().is_none());
        assert!(berth.put(Box::new(1)).is_none());
        assert_eq!(berth.take(), Some(Box::new(1)));
        assert!(berth.take().is_none());
        assert!(berth.put(Box::new(2)).is_none());
        assert_eq!(berth.close(), Some(Box::new(2)));
        assert_eq!(berth.put(Box::new(3)), Some(Box::new(3)));
        assert!(berth.close().is_none());
    }
}
