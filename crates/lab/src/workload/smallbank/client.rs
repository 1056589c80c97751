//! The client: one transaction after another, drawn by weight.

use std::sync::{Arc, Mutex, PoisonError};

use foxton::{Database, Transaction};

use super::{
    Smallbank,
    procedure::{Done, KINDS, Procedure},
};
use crate::{
    driver::Client,
    measure::outcome::{Ended, Outcome},
    random::Random,
    workload::{
        attempt::{until_committed, until_read},
        ledger::Notes,
    },
};

/// A client of smallbank.
#[derive(Debug)]
pub struct SmallbankClient {
    db: Database,
    bank: Smallbank,
    random: Random,
    done: Done,
    penalised: u64,
    all_penalised: Arc<Mutex<u64>>,
    notes: Notes,
}

impl SmallbankClient {
    /// Client `number`. When it is dropped, it adds the checks it was charged a penalty for to
    /// `all_penalised`.
    pub fn new(
        db: Database,
        bank: Smallbank,
        number: u32,
        all_penalised: Arc<Mutex<u64>>,
        notes: Notes,
    ) -> SmallbankClient {
        let name = u64::from_be_bytes(*b"smallbnk");
        SmallbankClient {
            db,
            bank,
            random: Random::seeded(&[bank.seed, name, u64::from(number), 1]),
            done: Done::default(),
            penalised: 0,
            all_penalised,
            notes,
        }
    }
}

impl Client for SmallbankClient {
    fn transaction(&mut self) -> Ended {
        let procedure = Procedure::draw(&mut self.random, &self.bank);
        let (kind, done) = ((KINDS, procedure.kind()), &mut self.done);
        let (random, run) = (&mut self.random, |tx: &mut Transaction| {
            procedure.run(tx, done)
        });
        let ended = match procedure {
            Procedure::Balance(_) => until_read(&self.db, kind, random, run),
            _ => until_committed(&self.db, kind, random, run),
        };
        if ended.outcome == Outcome::Ok {
            self.penalised += u64::from(done.penalised);
            for &(row, change) in &done.changes {
                self.notes.add(row, change);
            }
        }
        ended
    }
}

impl Drop for SmallbankClient {
    fn drop(&mut self) {
        let mut all = self
            .all_penalised
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *all += self.penalised;
    }
}
