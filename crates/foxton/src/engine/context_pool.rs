//! Where what a transaction works with waits for the next transaction.
//!
//! A transaction needs a worker, an owner of locks and some buffers; making them anew each time
//! would cost more than the transaction. They lie in a rack of places, each in its own cache
//! lines. Which place a thread looks at first follows from where its stack is: no thread-local, no
//! global, no counter that all threads touch, and in the steady state a thread finds at its place
//! what it left there.
//!
//! # State
//!
//! `places`, each empty, full or closed; `overflow` for what finds its place taken.
//!
//! # Invariants
//!
//! * I1  What is in the rack is used by nobody.
//! * I2  A closed place or overflow takes nothing any more. What lies in a rack may keep the rack
//!   alive; closing it breaks that circle, and nothing closes it again afterwards.

use std::fmt;

use foxton_sync::cache_line::CachePadded;
use foxton_sync::shim::{self, Arc, Mutex};
use foxton_sync::site::{Component, Pattern, Site};

/// A place: the threads whose stacks lead there, few or one.
static PLACE: Site = Site::new(Component::Transaction, Pattern::Fixed, "rack place");
/// The overflow: every thread that found no place. Who finds nothing there either counts it with what it
/// makes.
pub(crate) static OVERFLOW: Site =
    Site::new(Component::Transaction, Pattern::Unbounded, "rack overflow");

/// Places in a rack; a power of two. A thread looks at `NEAR` of them.
const PLACES: usize = 512;
const NEAR: usize = 4;

enum Content<T> {
    Empty,
    Full(Box<T>),
    Closed,
}

// Whoever puts something back clones the `Arc` of its place: the count lies beside the place, and
// so is as private to the thread as the place is.
type Place<T> = CachePadded<Mutex<Content<T>>>;
type Overflow<T> = Mutex<Option<Vec<Box<T>>>>;

/// See the [module](self).
pub(crate) struct Rack<T> {
    places: Box<[Arc<Place<T>>]>,
    overflow: Arc<Overflow<T>>,
}

/// Where something belongs.
pub(crate) struct Home<T> {
    place: Arc<Place<T>>,
    overflow: Arc<Overflow<T>>,
}

impl<T> fmt::Debug for Rack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rack").finish_non_exhaustive()
    }
}

impl<T> Rack<T> {
    pub(crate) fn new() -> Rack<T> {
        let place = |_| Arc::new(CachePadded::new(Mutex::new(Content::Empty)));
        Rack {
            places: (0..PLACES).map(place).collect(),
            overflow: Arc::new(Mutex::new(Some(Vec::new()))),
        }
    }

    /// Something that lay near and where it came from, or where to put what the caller makes instead.
    #[inline]
    pub(crate) fn take(&self) -> Result<(Box<T>, &'static Site), Home<T>> {
        let home = near_stack();
        for near in 0..NEAR {
            let place = &self.places[(home + near) & (PLACES - 1)];
            if let Some(mut place) = shim::try_lock(place)
                && let Content::Full(_) = &*place
                && let Content::Full(content) = std::mem::replace(&mut *place, Content::Empty)
            {
                return Ok((content, &PLACE));
            }
        }
        let left_over = shim::lock(&self.overflow).as_mut().and_then(Vec::pop);
        left_over
            .map(|content| (content, &OVERFLOW))
            .ok_or_else(|| Home {
                place: self.places[home & (PLACES - 1)].clone(),
                overflow: self.overflow.clone(),
            })
    }

    /// Empties the rack for good. What is put back from now on is given back.
    pub(crate) fn close(&self) {
        let close =
            |place: &Arc<Place<T>>| std::mem::replace(&mut *shim::lock(place), Content::Closed);
        // Dropped outside the locks: what lies here may know the rack.
        let contents: Vec<Content<T>> = self.places.iter().map(close).collect();
        let left_over = shim::lock(&self.overflow).take();
        drop((contents, left_over));
    }
}

/// Puts `content` where it belongs, or gives it back if the rack is closed. Tells `passed` what is
/// passed on the way.
#[inline]
pub(crate) fn put<T>(
    content: Box<T>,
    home: impl Fn(&T) -> &Home<T>,
    passed: impl Fn(&T, &'static Site),
) -> Option<Box<T>> {
    let place = home(&content).place.clone();
    if let Some(mut place) = shim::try_lock(&place) {
        match *place {
            Content::Empty => {
                passed(&content, &PLACE);
                *place = Content::Full(content);
                return None;
            }
            Content::Closed => return Some(content),
            Content::Full(_) => {}
        }
    }
    passed(&content, &OVERFLOW);
    let overflow = home(&content).overflow.clone();
    match &mut *shim::lock(&overflow) {
        Some(contents) => {
            contents.push(content);
            None
        }
        None => Some(content),
    }
}

/// A number that differs between the stacks of threads that live at the same time, mostly.
#[inline]
fn near_stack() -> usize {
    let here = 0u8;
    let address = (&raw const here).addr();
    // Stacks lie megabytes apart; one thread's calls stay within a few kilobytes of each other.
    let stack = (address >> 16) as u64;
    (stack.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing {
        number: u32,
        home: Home<Thing>,
    }

    fn take(rack: &Rack<Thing>, number: u32) -> Box<Thing> {
        match rack.take() {
            Ok((thing, _)) => thing,
            Err(home) => Box::new(Thing { number, home }),
        }
    }

    fn put_back(thing: Box<Thing>) -> Option<Box<Thing>> {
        put(thing, |thing| &thing.home, |_, _| {})
    }

    #[test]
    fn what_was_put_back_is_found_again_by_the_same_thread() {
        let rack = Rack::new();
        assert!(put_back(take(&rack, 1)).is_none());
        assert_eq!(take(&rack, 2).number, 1);
        assert_eq!(take(&rack, 3).number, 3);
    }

    #[test]
    fn what_finds_its_place_taken_is_not_lost() {
        let rack = Rack::new();
        let things: Vec<_> = (0..20).map(|number| take(&rack, number)).collect();
        things
            .into_iter()
            .for_each(|thing| assert!(put_back(thing).is_none()));
        let mut found: Vec<u32> = (0..20).map(|_| take(&rack, 99).number).collect();
        found.sort();
        assert_eq!(found, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_closed_rack_drops_what_it_has_and_gives_back_what_comes() {
        let rack = Rack::new();
        let things: Vec<_> = (0..5).map(|number| take(&rack, number)).collect();
        let late = take(&rack, 9);
        let overflow = Arc::downgrade(&rack.overflow);
        things
            .into_iter()
            .for_each(|thing| assert!(put_back(thing).is_none()));
        rack.close();
        assert_eq!(
            overflow.strong_count(),
            2,
            "the rack itself, and the one that is out"
        );
        assert!(put_back(late).is_some());
        drop(rack);
        assert_eq!(overflow.strong_count(), 0);
    }
}
