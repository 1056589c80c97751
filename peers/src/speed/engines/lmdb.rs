//! LMDB: readers see the last commit and lock nothing; one writer at a time, behind a mutex of
//! LMDB's own.

use super::Durability;
use crate::{
    Outcome, locked,
    speed::contract::{Attempt, Client, Job, ROWS, Store, increment, mark, row},
};
use heed::{
    CommitOrAbort, Env, EnvFlags, EnvOpenOptions, RoTxn,
    byteorder::BigEndian,
    types::{Bytes, U64},
};
use std::path::Path;

type Rows<'e> = heed::Database<'e, U64<BigEndian>, Bytes>;

/// Address space, not memory.
const MAP_BYTES: usize = 64 << 30;
/// Rows of one transaction while loading.
const AT_ONCE: u64 = 100_000;
const MOST_READERS: u32 = 2_048;

self_cell::self_cell!(
    /// The environment, and its one table, which ends with it.
    pub(crate) struct Lmdb {
        owner: Env,
        #[covariant]
        dependent: Rows,
    }
);

pub(crate) fn settings(durability: Durability) -> String {
    let flags = match durability {
        Durability::Sync => "MDB_NORDAHEAD",
        Durability::None | Durability::Buffered => {
            "MDB_NORDAHEAD, MDB_NOSYNC (written at commit, not synced)"
        }
    };
    let lmdb = heed::lmdb_version().string;
    format!("{lmdb}, by heed {}; {flags}", locked("heed"))
}

fn open(folder: &Path, durability: Durability) -> heed::Result<Env> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(MOST_READERS);
    // A row is read at a time: pages around it would displace others when memory is short.
    let mut flags = EnvFlags::NO_READ_AHEAD;
    if durability != Durability::Sync {
        flags |= EnvFlags::NO_SYNC;
    }
    // SAFETY: what may be lost or harmed when the machine stops is thrown away with its folder
    // anyway.
    unsafe { options.flags(flags) };
    // SAFETY: this process made the folder, and no other opens or changes its files.
    unsafe { options.open(folder) }
}

impl Lmdb {
    pub(crate) fn load(folder: &Path, durability: Durability) -> Outcome<Lmdb> {
        let lmdb = Lmdb::open(folder, durability)?;
        lmdb.fill(ROWS, &mut |_| ())?;
        Ok(lmdb)
    }

    /// Opens the environment of the folder, with the rows that it has.
    pub(crate) fn open(folder: &Path, durability: Durability) -> Outcome<Lmdb> {
        Lmdb::try_new(open(folder, durability)?, |env| -> Outcome<Rows<'_>> {
            let made = env.create_databases_and_commit(env.write_txn()?, |open, tx| {
                let made = open.create_database(tx, None);
                made.map(CommitOrAbort::<Rows<'_>, ()>::Commit)
            });
            Ok(made?.unwrap_commit())
        })
    }

    /// Inserts so many rows.
    pub(crate) fn fill(&self, rows: u64, progress: &mut dyn FnMut(u64)) -> Outcome {
        for first in (0..rows).step_by(AT_ONCE as usize) {
            let mut tx = self.borrow_owner().write_txn()?;
            for key in first..rows.min(first + AT_ONCE) {
                self.borrow_dependent().put(&mut tx, &key, &row(key))?;
            }
            tx.commit()?;
            progress(first);
        }
        Ok(())
    }

    /// Reads a row, and adds one to its counter if it is to be updated. Returns its mark.
    pub(crate) fn touch(&self, key: u64, updates: bool) -> Outcome<u64> {
        let (env, rows) = (self.borrow_owner(), self.borrow_dependent());
        if !updates {
            let tx = env.read_txn()?;
            return Ok(self.read(&tx, &[key])?);
        }
        let mut tx = env.write_txn()?;
        let mut row = rows.get(&tx, &key)?.unwrap_or_default().to_vec();
        let found = mark(&row);
        increment(&mut row);
        rows.put(&mut tx, &key, &row)?;
        tx.commit()?;
        Ok(found)
    }

    fn read(&self, tx: &RoTxn<'_>, keys: &[u64]) -> heed::Result<u64> {
        let mut marks = 0_u64;
        for key in keys {
            let row = self.borrow_dependent().get(tx, key)?;
            marks = marks.wrapping_add(row.map_or(0, mark));
        }
        Ok(marks)
    }
}

impl Store for Lmdb {
    fn client(&self) -> Outcome<Box<dyn Client + '_>> {
        Ok(Box::new(Session(self)))
    }

    fn each(&self, see: &mut dyn FnMut(u64, &[u8])) -> Outcome {
        let tx = self.borrow_owner().read_txn()?;
        for row in self.borrow_dependent().iter(&tx)? {
            let (key, row) = row?;
            see(key, row);
        }
        Ok(())
    }
}

struct Session<'s>(&'s Lmdb);

impl Client for Session<'_> {
    fn attempt(&mut self, job: &Job) -> Outcome<Attempt> {
        let (env, rows) = (self.0.borrow_owner(), self.0.borrow_dependent());
        let Some(updates) = &job.updates else {
            let tx = env.read_txn()?;
            return Ok(Attempt::Committed(self.0.read(&tx, &job.reads)?));
        };
        let mut tx = env.write_txn()?;
        let mut marks = self.0.read(&tx, &job.reads)?;
        for key in updates {
            let mut row = rows.get(&tx, key)?.unwrap_or_default().to_vec();
            marks = marks.wrapping_add(mark(&row));
            increment(&mut row);
            rows.put(&mut tx, key, &row)?;
        }
        tx.commit()?;
        Ok(Attempt::Committed(marks))
    }
}
