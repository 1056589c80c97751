//! Clients that have a database each, or fewer than a database each: the engine without locks runs
//! one transaction at a time, so two clients without locks need two databases.

use super::{loaded::Loaded, sweep::Subject};
use crate::driver::Client;

/// One system, loaded as often as there may be clients, or once if it locks.
pub(super) struct Apart(Vec<Loaded>);

impl Apart {
    /// # Panics
    ///
    /// If there is none.
    pub(super) fn new(all: Vec<Loaded>) -> Apart {
        assert!(!all.is_empty(), "clients need a database");
        Apart(all)
    }
}

impl Subject for Apart {
    fn names(&self) -> (String, String) {
        self.0[0].names()
    }

    fn note(&self) -> String {
        self.0[0].note()
    }

    fn largest_mpl(&self) -> u32 {
        let largest = self.0.iter().map(Subject::largest_mpl);
        largest.fold(0, u32::saturating_add)
    }

    fn kinds(&self) -> &'static [&'static str] {
        self.0[0].kinds()
    }

    fn clients(&mut self, mpl: u32) -> Vec<Box<dyn Client>> {
        let (count, mut clients) = (self.0.len() as u32, Vec::new());
        for (at, one) in (0..).zip(&mut self.0) {
            // As many more for the first ones as there are left over.
            let share = mpl / count + u32::from(at < mpl % count);
            if share > 0 {
                clients.extend(one.clients(share));
            }
        }
        clients
    }

    fn check(&mut self) -> Result<(), String> {
        self.0.iter_mut().try_for_each(Subject::check)
    }

    fn diagnose(&self) -> String {
        self.0.iter().map(Subject::diagnose).collect()
    }
}
