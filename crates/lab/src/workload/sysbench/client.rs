//! The client: one transaction after another. After a deadlock or a timeout it draws another one,
//! as the benchmark's own program does; its time counts from the first attempt.

use foxton::Database;

use super::{Sysbench, event::Event};
use crate::{
    driver::Client,
    measure::outcome::{Ended, Outcome},
    random::Random,
    workload::{
        attempt::{level, until_committed},
        ledger::Notes,
    },
};

/// The types of transaction, as they are named in results.
pub const KINDS: &[&str] = &["read-write"];

/// A client of sysbench.
#[derive(Debug)]
pub struct SysbenchClient {
    db: Database,
    event: Event,
    random: Random,
    pauses: Random,
    notes: Option<Notes>,
}

impl SysbenchClient {
    /// Client `number`.
    pub fn new(
        db: Database,
        workload: Sysbench,
        number: u32,
        notes: Option<Notes>,
    ) -> SysbenchClient {
        let seeded = |of: u64| {
            let name = u64::from_be_bytes(*b"sysbench");
            Random::seeded(&[workload.seed, name, u64::from(number), 1, of])
        };
        let isolation = level(&db, workload.isolation);
        SysbenchClient {
            db,
            event: Event::new(&Sysbench {
                isolation,
                ..workload
            }),
            random: seeded(0),
            pauses: seeded(1),
            notes,
        }
    }
}

impl Client for SysbenchClient {
    fn transaction(&mut self) -> Ended {
        let (event, random) = (&mut self.event, &mut self.random);
        let ended = until_committed(&self.db, (KINDS, 0), &mut self.pauses, |tx| {
            event.run(tx, random)
        });
        if let (Some(notes), Outcome::Ok) = (&mut self.notes, ended.outcome) {
            for &(row, change) in &event.changes {
                notes.add(row, change);
            }
        }
        ended
    }
}
