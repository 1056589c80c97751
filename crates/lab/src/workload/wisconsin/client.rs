//! The client: one operation after another, drawn by its share.

use std::sync::{Arc, Mutex, PoisonError};

use foxton::{Database, Transaction};

use super::{
    Wisconsin,
    mix::KINDS,
    operation::{Operation, Work},
};
use crate::{
    driver::Client,
    measure::outcome::{Ended, Outcome},
    random::Random,
    workload::attempt::{Failure, until_committed, until_read},
};

/// A client of wisconsin.
#[derive(Debug)]
pub(super) struct WisconsinClient {
    db: Database,
    workload: Wisconsin,
    random: Random,
    work: Work,
    all_left: Arc<Mutex<Vec<u32>>>,
}

impl WisconsinClient {
    /// Client `number`. When it is dropped, it adds the tuple that it has left to `all_left`.
    pub(super) fn new(
        db: Database,
        workload: Wisconsin,
        number: u32,
        all_left: Arc<Mutex<Vec<u32>>>,
    ) -> WisconsinClient {
        let seeded = |of: u64| {
            let name = u64::from_be_bytes(*b"wisconsn");
            Random::seeded(&[workload.seed, name, u64::from(number), 1, of])
        };
        WisconsinClient {
            db,
            workload,
            random: seeded(0),
            work: Work::new(workload.rows, workload.rows + number, seeded(1)),
            all_left,
        }
    }
}

impl Client for WisconsinClient {
    fn transaction(&mut self) -> Ended {
        let kind = self.workload.mix.draw(&mut self.random);
        let (operation, work) = (Operation::TYPES[kind], &mut self.work);
        work.draw(operation);
        let run = |tx: &mut Transaction| {
            let met = work.run(tx, operation)?;
            match met.is_right() {
                true => Ok(()),
                false => Err(Failure::Wrong(format!(
                    "{} found {} tuples, and {} of the load are there",
                    operation.name(),
                    met.found,
                    met.loaded
                ))),
            }
        };
        let (kind, random) = ((KINDS, kind), &mut self.random);
        let ended = match operation.is_scan() {
            true => until_read(&self.db, kind, random, run),
            false => until_committed(&self.db, kind, random, run),
        };
        if ended.outcome == Outcome::Ok {
            work.committed(operation);
        }
        ended
    }
}

impl Drop for WisconsinClient {
    fn drop(&mut self) {
        let mut all = self.all_left.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(self.work.has_left());
    }
}
