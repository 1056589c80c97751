//! RocksDB's TransactionDB: strict two-phase locking of keys. Those that only read lock what they
//! read, or see a snapshot, which keeps them serializable as well: who updates holds all locks
//! until it has committed.

use super::Durability;
use crate::{
    Outcome, locked,
    speed::contract::{Attempt, Client, Job, ROWS, Store, increment, mark, row},
};
use rust_rocksdb::{
    Error, ErrorKind, Options, SingleThreaded, Transaction, TransactionDB, TransactionDBOptions,
    TransactionOptions, WriteOptions,
};
use std::path::Path;

/// Rows of one transaction while loading.
const AT_ONCE: u64 = 1_000;
const STRIPES: usize = 4_096;
const CACHE_MB: u64 = 256;

type Database = TransactionDB<SingleThreaded>;

pub(crate) struct Rocks {
    db: Database,
    writes: WriteOptions,
    transactions: TransactionOptions,
    snapshot: bool,
}

pub(crate) fn settings(durability: Durability, snapshot: bool) -> String {
    let crate_version = locked("rust-rocksdb");
    // The library's version follows the plus in the version of its binding.
    let bound = locked("rust-librocksdb-sys");
    let version = bound.split_once('+').map_or("?", |(_, version)| version);
    format!(
        "RocksDB {version} (rust-rocksdb {crate_version}); {STRIPES} lock stripes, deadlock detection, \
         optimize_for_point_lookup with a cache of {CACHE_MB} MiB, {}, {}",
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
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_manual_wal_flush(durability == Durability::None);
        options.optimize_for_point_lookup(CACHE_MB);
        let mut of_transactions = TransactionDBOptions::new();
        of_transactions.set_num_stripes(STRIPES);
        let db = Database::open(&options, &of_transactions, folder.join("rocks"))?;
        let mut writes = WriteOptions::default();
        writes.set_sync(durability == Durability::Sync);
        let mut transactions = TransactionOptions::new();
        transactions.set_deadlock_detect(true);
        let rocks = Rocks {
            db,
            writes,
            transactions,
            snapshot,
        };
        for first in (0..ROWS).step_by(AT_ONCE as usize) {
            let tx = rocks.begin();
            for key in first..ROWS.min(first + AT_ONCE) {
                tx.put(bytes(key), row(key))?;
            }
            tx.commit()?;
        }
        // Into a sorted file.
        rocks.db.flush()?;
        Ok(rocks)
    }

    /// Dropping an uncommitted transaction undoes it.
    fn begin(&self) -> Transaction<'_, Database> {
        self.db.transaction_opt(&self.writes, &self.transactions)
    }

    /// The values read under locks and changed.
    fn locking(&self, job: &Job) -> Result<u64, Error> {
        let (tx, mut marks) = (self.begin(), 0_u64);
        for &key in &job.reads {
            let row = tx.get_pinned_for_update(bytes(key), false)?;
            marks = marks.wrapping_add(row.map_or(0, |row| mark(&row)));
        }
        for &key in job.updates.iter().flatten() {
            let found = tx.get_pinned_for_update(bytes(key), true)?;
            let mut row = found.map(|row| row.to_vec()).unwrap_or_default();
            marks = marks.wrapping_add(mark(&row));
            increment(&mut row);
            tx.put(bytes(key), &row)?;
        }
        tx.commit()?;
        Ok(marks)
    }

    /// The committed value, read without locks.
    fn seen(&self, keys: &[u64]) -> Result<u64, Error> {
        let (snapshot, mut marks) = (self.db.snapshot(), 0_u64);
        let view = snapshot.read_options();
        for &key in keys {
            let row = view.get_pinned(bytes(key))?;
            marks = marks.wrapping_add(row.map_or(0, |row| mark(&row)));
        }
        Ok(marks)
    }
}

impl Store for Rocks {
    fn client(&self) -> Outcome<Box<dyn Client + '_>> {
        Ok(Box::new(Session(self)))
    }

    fn each(&self, see: &mut dyn FnMut(u64, &[u8])) -> Outcome {
        for key in 0..ROWS {
            let row = self.db.get_pinned(bytes(key))?;
            see(key, row.as_deref().unwrap_or_default());
        }
        Ok(())
    }
}

struct Session<'s>(&'s Rocks);

impl Client for Session<'_> {
    fn attempt(&mut self, job: &Job) -> Outcome<Attempt> {
        let rocks = self.0;
        let came = match rocks.snapshot && job.updates.is_none() {
            true => rocks.seen(&job.reads),
            false => rocks.locking(job),
        };
        match came {
            Ok(marks) => Ok(Attempt::Committed(marks)),
            Err(error) if gave_way(&error) => Ok(Attempt::Refused),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether another transaction was in the way: a deadlock, or a lock not had in time.
fn gave_way(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain
    )
}
