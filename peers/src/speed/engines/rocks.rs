//! RocksDB's TransactionDB: strict two-phase locking of keys. Those that only read lock what they read, or
//! see a snapshot, which keeps them serializable as well: who updates holds all locks until it has committed.

use super::{
    Durability,
    rocks_calls::{Answer, Database, Setup, Transaction},
};
use crate::{
    Outcome,
    speed::contract::{Attempt, Client, Job, ROWS, Store, increment, mark, row},
};
use std::path::Path;

/// Rows of one transaction while loading.
const AT_ONCE: u64 = 1_000;
const STRIPES: usize = 4_096;
const CACHE_MB: u64 = 256;

pub(crate) struct Rocks {
    db: Database,
    snapshot: bool,
}

pub(crate) fn settings(durability: Durability, snapshot: bool) -> String {
    format!(
        "RocksDB (librocksdb of the system); {STRIPES} lock stripes, deadlock detection, optimize_for_point_lookup with \
         a cache of {CACHE_MB} MiB, {}, {}",
        match snapshot {
            true => "transactions that only read see a snapshot",
            false => "every read is a GetForUpdate, shared where nothing is updated",
        },
        match durability {
            Durability::None => "log kept in the process (manual_wal_flush)",
            Durability::Buffered => "log written at commit, not synced",
            Durability::Sync => "log synced at commit",
        }
    )
}

fn bytes(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

impl Rocks {
    pub(crate) fn load(folder: &Path, durability: Durability, snapshot: bool) -> Outcome<Rocks> {
        let setup = Setup {
            manual_log: durability == Durability::None,
            sync: durability == Durability::Sync,
            stripes: STRIPES,
            cache_mb: CACHE_MB,
        };
        let db = Database::open(&folder.join("rocks"), &setup)?;
        for first in (0..ROWS).step_by(AT_ONCE as usize) {
            let mut tx = db.begin();
            for key in first..ROWS.min(first + AT_ONCE) {
                tx.put(bytes(key), &row(key))?;
            }
            tx.commit()?;
        }
        db.flush()?;
        Ok(Rocks { db, snapshot })
    }
}

impl Store for Rocks {
    fn client(&self) -> Outcome<Box<dyn Client + '_>> {
        Ok(Box::new(Session(self)))
    }

    fn each(&self, see: &mut dyn FnMut(u64, &[u8])) -> Outcome {
        let view = self.db.view();
        (0..ROWS).try_for_each(|key| view.get(bytes(key), |row| see(key, row)))
    }
}

struct Session<'s>(&'s Rocks);

impl Client for Session<'_> {
    fn attempt(&mut self, job: &Job) -> Outcome<Attempt> {
        let Rocks { db, snapshot } = self.0;
        if *snapshot && job.updates.is_none() {
            let view = db.view();
            let mut marks = 0_u64;
            for &key in &job.reads {
                marks = marks.wrapping_add(view.get(bytes(key), mark)?);
            }
            return Ok(Attempt::Committed(marks));
        }
        let mut tx = db.begin();
        let Some(marks) = body(&mut tx, job)? else {
            return Ok(Attempt::Refused);
        };
        Ok(match tx.commit()? {
            Answer::Done(()) => Attempt::Committed(marks),
            Answer::GaveWay => Attempt::Refused,
        })
    }
}

/// What was read, or `None` if it had to give way.
fn body(tx: &mut Transaction<'_>, job: &Job) -> Outcome<Option<u64>> {
    let mut marks = 0_u64;
    for &key in &job.reads {
        let Answer::Done(mark) = tx.get(bytes(key), false, mark)? else {
            return Ok(None);
        };
        marks = marks.wrapping_add(mark);
    }
    for &key in job.updates.iter().flatten() {
        let Answer::Done(mut row) = tx.get(bytes(key), true, <[u8]>::to_vec)? else {
            return Ok(None);
        };
        marks = marks.wrapping_add(mark(&row));
        increment(&mut row);
        let Answer::Done(()) = tx.put(bytes(key), &row)? else {
            return Ok(None);
        };
    }
    Ok(Some(marks))
}
