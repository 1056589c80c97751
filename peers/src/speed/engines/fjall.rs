//! fjall: readers see a snapshot. Either one writer at a time, or many that are told at commit whether what
//! they read has changed meanwhile.

use super::Durability;
use crate::{
    Outcome, locked,
    speed::contract::{Attempt, Client, Job, ROWS, Store, increment, mark, row},
};
use fjall::{
    Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode,
    Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace, Snapshot,
};
use std::path::Path;

const CACHE_BYTES: u64 = 1 << 30;

fn persist(durability: Durability) -> Option<PersistMode> {
    match durability {
        Durability::None => None,
        Durability::Buffered => Some(PersistMode::Buffer),
        Durability::Sync => Some(PersistMode::SyncData),
    }
}

pub(crate) fn settings(durability: Durability, optimistic: bool) -> String {
    format!(
        "fjall {}, {}; durability {:?}, cache 1 GiB",
        locked("fjall"),
        match optimistic {
            true => "optimistic",
            false => "single writer",
        },
        persist(durability)
    )
}

/// A key's bytes.
fn bytes(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

fn read(snapshot: &impl Readable, rows: impl AsRef<Keyspace>, keys: &[u64]) -> fjall::Result<u64> {
    let mut marks = 0_u64;
    for &key in keys {
        let row = snapshot.get(rows.as_ref(), bytes(key))?;
        marks = marks.wrapping_add(row.map_or(0, |row| mark(&row)));
    }
    Ok(marks)
}

fn each(
    snapshot: &Snapshot,
    rows: impl AsRef<Keyspace>,
    see: &mut dyn FnMut(u64, &[u8]),
) -> Outcome {
    for row in snapshot.iter(rows) {
        let (key, row) = row.into_inner()?;
        see(u64::from_be_bytes((*key).try_into()?), &row);
    }
    Ok(())
}

/// One writer at a time.
pub(crate) struct Fjall {
    db: SingleWriterTxDatabase,
    rows: SingleWriterTxKeyspace,
    persist: Option<PersistMode>,
}

impl Fjall {
    pub(crate) fn load(folder: &Path, durability: Durability) -> Outcome<Fjall> {
        let builder = SingleWriterTxDatabase::builder(folder);
        let db = builder.cache_size(CACHE_BYTES).open()?;
        let rows = db.keyspace("rows", KeyspaceCreateOptions::default)?;
        for key in 0..ROWS {
            rows.insert(bytes(key), row(key))?;
        }
        let persist = persist(durability);
        Ok(Fjall { db, rows, persist })
    }
}

impl Store for Fjall {
    fn client(&self) -> Outcome<Box<dyn Client + '_>> {
        Ok(Box::new(InTurn(self)))
    }

    fn each(&self, see: &mut dyn FnMut(u64, &[u8])) -> Outcome {
        each(&self.db.read_tx(), &self.rows, see)
    }
}

struct InTurn<'s>(&'s Fjall);

impl Client for InTurn<'_> {
    fn attempt(&mut self, job: &Job) -> Outcome<Attempt> {
        let Fjall { db, rows, persist } = self.0;
        let Some(updates) = &job.updates else {
            let marks = read(&db.read_tx(), rows, &job.reads)?;
            return Ok(Attempt::Committed(marks));
        };
        let mut tx = db.write_tx().durability(*persist);
        let mut marks = read(&tx, rows, &job.reads)?;
        for &key in updates {
            let mut row = tx
                .get(rows, bytes(key))?
                .map_or(Vec::new(), |row| row.to_vec());
            marks = marks.wrapping_add(mark(&row));
            increment(&mut row);
            tx.insert(rows, bytes(key), row);
        }
        tx.commit()?;
        Ok(Attempt::Committed(marks))
    }
}

/// Many writers, of which some are refused.
pub(crate) struct Optimistic {
    db: OptimisticTxDatabase,
    rows: OptimisticTxKeyspace,
    persist: Option<PersistMode>,
}

impl Optimistic {
    pub(crate) fn load(folder: &Path, durability: Durability) -> Outcome<Optimistic> {
        let builder = OptimisticTxDatabase::builder(folder);
        let db = builder.cache_size(CACHE_BYTES).open()?;
        let rows = db.keyspace("rows", KeyspaceCreateOptions::default)?;
        for key in 0..ROWS {
            rows.insert(bytes(key), row(key))?;
        }
        let persist = persist(durability);
        Ok(Optimistic { db, rows, persist })
    }
}

impl Store for Optimistic {
    fn client(&self) -> Outcome<Box<dyn Client + '_>> {
        Ok(Box::new(AtOnce(self)))
    }

    fn each(&self, see: &mut dyn FnMut(u64, &[u8])) -> Outcome {
        each(&self.db.read_tx(), &self.rows, see)
    }
}

struct AtOnce<'s>(&'s Optimistic);

impl Client for AtOnce<'_> {
    fn attempt(&mut self, job: &Job) -> Outcome<Attempt> {
        let Optimistic { db, rows, persist } = self.0;
        let Some(updates) = &job.updates else {
            let marks = read(&db.read_tx(), rows, &job.reads)?;
            return Ok(Attempt::Committed(marks));
        };
        let mut tx = db.write_tx()?.durability(*persist);
        let mut marks = read(&tx, rows, &job.reads)?;
        for &key in updates {
            let mut row = tx
                .get(rows, bytes(key))?
                .map_or(Vec::new(), |row| row.to_vec());
            marks = marks.wrapping_add(mark(&row));
            increment(&mut row);
            tx.insert(rows, bytes(key), row);
        }
        match tx.commit()? {
            Ok(()) => Ok(Attempt::Committed(marks)),
            Err(fjall::Conflict) => Ok(Attempt::Refused),
        }
    }
}
