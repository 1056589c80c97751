//! Ours: strict two-phase locking, every read under its lock; or reads at a snapshot, with locks
//! for the rows that are updated. The rows of a transaction are read one after the other, as in the
//! other engines, or asked for in one call.

use super::Durability;
use crate::{
    Outcome,
    speed::contract::{Attempt, Client, Job, ROWS, Store, increment, mark, row},
};
use foxton::{Database, Isolation, Table, Transaction};
use std::path::Path;

const TABLE: Table<u64, [u8]> = Table::new("rows");
/// Rows of one transaction while loading.
const AT_ONCE: u64 = 1_000;

pub(crate) struct Foxton {
    db: Database,
    reading: Reading,
}

/// How a transaction reads its ten rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    OneByOne,
    Many,
    /// All at once, at a snapshot.
    Snapshot,
}

pub(crate) fn settings(durability: Durability, reading: Reading) -> String {
    let options = durability.options();
    format!(
        "of this repository; options as they are by default (lock manager {}), durability {}, {}",
        options.lock_manager,
        options.durability,
        match reading {
            Reading::OneByOne => "rows read one by one",
            Reading::Many => "the ten rows read by one call of get_many",
            Reading::Snapshot =>
                "isolation level snapshot, the ten rows read by one call of get_many",
        }
    )
}

impl Foxton {
    pub(crate) fn load(folder: &Path, durability: Durability, reading: Reading) -> Outcome<Foxton> {
        let db = Database::open_with(folder, durability.options())?;
        for first in (0..ROWS).step_by(AT_ONCE as usize) {
            db.run(|tx| {
                let keys = first..ROWS.min(first + AT_ONCE);
                keys.into_iter()
                    .try_for_each(|key| tx.insert(&TABLE, &key, &row(key)))
            })?;
        }
        Ok(Foxton { db, reading })
    }
}

impl Store for Foxton {
    fn client(&self) -> Outcome<Box<dyn Client + '_>> {
        Ok(Box::new(Session(self)))
    }

    fn each(&self, see: &mut dyn FnMut(u64, &[u8])) -> Outcome {
        let mut tx = self.db.begin()?;
        tx.range(&TABLE, ..)
            .for_each(|key, row: Vec<u8>| see(key, &row))?;
        Ok(tx.commit()?)
    }
}

struct Session<'s>(&'s Foxton);

impl Client for Session<'_> {
    fn attempt(&mut self, job: &Job) -> Outcome<Attempt> {
        let mut tx = self.0.db.begin()?;
        if self.0.reading == Reading::Snapshot {
            tx.set_isolation(Isolation::Snapshot)?;
        }
        let done = body(&mut tx, job, self.0.reading);
        let done = done.and_then(|marks| tx.commit().map(|()| marks));
        match done {
            Ok(marks) => Ok(Attempt::Committed(marks)),
            Err(error) if error.is_retryable() => Ok(Attempt::Refused),
            Err(error) => Err(error.into()),
        }
    }
}

fn body(tx: &mut Transaction, job: &Job, reading: Reading) -> foxton::Result<u64> {
    let mut marks = 0_u64;
    if reading != Reading::OneByOne {
        let add = |_, row: Option<&[u8]>| marks = marks.wrapping_add(row.map_or(0, mark));
        tx.get_many_with(&TABLE, &job.reads, add)?;
    } else {
        for key in &job.reads {
            let read = tx.get_with(&TABLE, key, mark)?;
            marks = marks.wrapping_add(read.unwrap_or(0));
        }
    }
    for key in job.updates.iter().flatten() {
        if let Some(mut row) = tx.get_for_update(&TABLE, key)? {
            marks = marks.wrapping_add(mark(&row));
            increment(&mut row);
            tx.put(&TABLE, key, &row)?;
        }
    }
    Ok(marks)
}
