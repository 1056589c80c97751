//! Requests of a client, and their outcomes.

use super::contract::{Attempt, Client, Job, READS, ROWS, UPDATES};
use crate::{
    Outcome,
    driver::{Draw, Worker},
};

/// A client, and what it runs.
pub(crate) struct Asked<'s> {
    client: Box<dyn Client + 's>,
    draw: Draw,
    /// Transactions of a hundred that update.
    updating: u64,
    job: Job,
}

impl<'s> Asked<'s> {
    pub(crate) fn new(client: Box<dyn Client + 's>, draw: Draw, updating: u64) -> Asked<'s> {
        Asked {
            client,
            draw,
            updating,
            job: Job {
                reads: [0; READS],
                updates: None,
            },
        }
    }

    fn distinct(&mut self) -> [u64; UPDATES] {
        loop {
            let mut keys = [0; UPDATES];
            keys.fill_with(|| self.draw.below(ROWS));
            keys.sort_unstable();
            if keys.is_sorted_by(|one, next| one < next) {
                return keys;
            }
        }
    }
}

impl Worker for Asked<'_> {
    fn draw(&mut self) {
        let updates = self.draw.below(100) < self.updating;
        let mut reads = [0; READS];
        reads.fill_with(|| self.draw.below(ROWS));
        let updates = updates.then(|| self.distinct());
        self.job = Job { reads, updates };
    }

    fn attempt(&mut self) -> Outcome<Option<u64>> {
        match self.client.attempt(&self.job)? {
            Attempt::Committed(marks) if marks == self.job.marks() => {
                let increments = self.job.updates.map_or(0, |keys| keys.len() as u64);
                Ok(Some(increments))
            }
            Attempt::Committed(_) => Err("a transaction read something else".into()),
            Attempt::Refused => Ok(None),
        }
    }
}
