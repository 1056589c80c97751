//! Where transactions may be found idle.
//!
//! A place is noted once, when what a worker's transactions work with is made, and not when one begins: so
//! also with [`Options::idle_timeout`](crate::Options::idle_timeout) transactions do not meet here.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use foxton_lock::owner::OwnerId;
use foxton_sync::shim::{self, Mutex};

/// Somewhere a transaction may lie idle.
pub(crate) trait Idler: Send + Sync {
    /// Ends it if it is idle and `is_long` says that it has been for too long; else says since when it is, if
    /// it is.
    fn end_if(&self, is_long: &dyn Fn(Instant) -> bool) -> Option<Instant>;

    /// Who is idle here, and since when.
    fn idle(&self) -> Option<(OwnerId, Instant)>;
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Idlers(Mutex<Vec<Weak<dyn Idler>>>);

impl fmt::Debug for Idlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idlers").finish_non_exhaustive()
    }
}

impl Idlers {
    /// Notes a place, for as long as it is there.
    pub(crate) fn note(&self, place: &Arc<impl Idler + 'static>) {
        let place: Weak<dyn Idler> = Arc::downgrade(&(place.clone() as Arc<dyn Idler>));
        shim::lock(&self.0).push(place);
    }

    /// The places that are there; nobody waits while they are looked at.
    fn places(&self) -> Vec<Arc<dyn Idler>> {
        let mut places = Vec::new();
        shim::lock(&self.0).retain(|place| {
            let place = place.upgrade();
            let is_there = place.is_some();
            places.extend(place);
            is_there
        });
        places
    }

    /// Ends those that have been idle for too long, and says since when the longest of the others is.
    pub(crate) fn end(&self, is_long: &dyn Fn(Instant) -> bool) -> Option<Instant> {
        let places = self.places();
        places
            .iter()
            .filter_map(|place| place.end_if(is_long))
            .min()
    }

    /// Who is idle, and since when.
    pub(crate) fn all(&self) -> Vec<(OwnerId, Instant)> {
        let places = self.places();
        places.iter().filter_map(|place| place.idle()).collect()
    }
}
