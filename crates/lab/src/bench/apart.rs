//! Clients with a database each, or with several clients to a database. Without locks the engine
//! runs one transaction at a time, so two clients without locks need two databases.

use super::{loaded::Loaded, sweep::Subject};
use crate::driver::Client;

/// One system, loaded once for each possible client, or once if it locks.
pub(super) struct Apart(Vec<Loaded>);

impl Apart {
    /// # Panics
    ///
    /// If `all` is empty.
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
            // The first databases get one client more if the division leaves some.
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
