//! fjall: readers see a snapshot. Either one writer at a time, or many that are told at commit
//! whether what they read has changed meanwhile.

use super::Durability;
use crate::{
    Outcome, locked,
    speed::contract::{Attempt, Client, Job, ROWS, Store, increment, mark, row},
};
use fjall::{
    Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx,
    PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace, SingleWriterWriteTx,
    Snapshot, UserKey, UserValue,
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

/// The operations that both kinds of database have, in different types.
pub(crate) trait Kind: Sized + Sync {
    type Rows: AsRef<Keyspace> + Sync;
    /// A transaction that updates.
    type Writing<'d>: Readable
    where
        Self: 'd;

    fn open(folder: &Path) -> fjall::Result<Self>;
    fn rows(&self) -> fjall::Result<Self::Rows>;
    fn see(&self) -> Snapshot;
    fn write(&self, persist: Option<PersistMode>) -> fjall::Result<Self::Writing<'_>>;
    fn put(tx: &mut Self::Writing<'_>, rows: &Self::Rows, key: UserKey, row: UserValue);
    /// Whether it did, or had to give way.
    fn commit(tx: Self::Writing<'_>) -> fjall::Result<bool>;
}

/// One writer at a time.
impl Kind for SingleWriterTxDatabase {
    type Rows = SingleWriterTxKeyspace;
    type Writing<'d> = SingleWriterWriteTx<'d>;

    fn open(folder: &Path) -> fjall::Result<Self> {
        Self::builder(folder).cache_size(CACHE_BYTES).open()
    }

    fn rows(&self) -> fjall::Result<Self::Rows> {
        self.keyspace("rows", KeyspaceCreateOptions::default)
    }

    fn see(&self) -> Snapshot {
        self.read_tx()
    }

    fn write(&self, persist: Option<PersistMode>) -> fjall::Result<Self::Writing<'_>> {
        Ok(self.write_tx().durability(persist))
    }

    fn put(tx: &mut Self::Writing<'_>, rows: &Self::Rows, key: UserKey, row: UserValue) {
        tx.insert(rows, key, row);
    }

    fn commit(tx: Self::Writing<'_>) -> fjall::Result<bool> {
        tx.commit().map(|()| true)
    }
}

/// Many writers, of which some are refused.
impl Kind for OptimisticTxDatabase {
    type Rows = OptimisticTxKeyspace;
    type Writing<'d> = OptimisticWriteTx;

    fn open(folder: &Path) -> fjall::Result<Self> {
        Self::builder(folder).cache_size(CACHE_BYTES).open()
    }

    fn rows(&self) -> fjall::Result<Self::Rows> {
        self.keyspace("rows", KeyspaceCreateOptions::default)
    }

    fn see(&self) -> Snapshot {
        self.read_tx()
    }

    fn write(&self, persist: Option<PersistMode>) -> fjall::Result<OptimisticWriteTx> {
        Ok(self.write_tx()?.durability(persist))
    }

    fn put(tx: &mut OptimisticWriteTx, rows: &Self::Rows, key: UserKey, row: UserValue) {
        tx.insert(rows, key, row);
    }

    fn commit(tx: OptimisticWriteTx) -> fjall::Result<bool> {
        Ok(tx.commit()?.is_ok())
    }
}

/// A database of either kind, with its rows.
pub(crate) struct Fjall<D: Kind> {
    db: D,
    rows: D::Rows,
    persist: Option<PersistMode>,
}

pub(crate) type SingleWriter = Fjall<SingleWriterTxDatabase>;
pub(crate) type Optimistic = Fjall<OptimisticTxDatabase>;

impl<D: Kind> Fjall<D> {
    pub(crate) fn load(folder: &Path, durability: Durability) -> Outcome<Fjall<D>> {
        let db = D::open(folder)?;
        let rows = db.rows()?;
        for key in 0..ROWS {
            rows.as_ref().insert(bytes(key), row(key))?;
        }
        let persist = persist(durability);
        Ok(Fjall { db, rows, persist })
    }

    fn read(&self, from: &impl Readable, keys: &[u64]) -> fjall::Result<u64> {
        let mut marks = 0_u64;
        for &key in keys {
            let row = from.get(&self.rows, bytes(key))?;
            marks = marks.wrapping_add(row.map_or(0, |row| mark(&row)));
        }
        Ok(marks)
    }
}

impl<D: Kind> Store for Fjall<D> {
    fn client(&self) -> Outcome<Box<dyn Client + '_>> {
        Ok(Box::new(Session(self)))
    }

    fn each(&self, see: &mut dyn FnMut(u64, &[u8])) -> Outcome {
        for row in self.db.see().iter(&self.rows) {
            let (key, row) = row.into_inner()?;
            see(u64::from_be_bytes((*key).try_into()?), &row);
        }
        Ok(())
    }
}

struct Session<'s, D: Kind>(&'s Fjall<D>);

impl<D: Kind> Client for Session<'_, D> {
    fn attempt(&mut self, job: &Job) -> Outcome<Attempt> {
        let Fjall { db, rows, persist } = self.0;
        let Some(updates) = &job.updates else {
            let marks = self.0.read(&db.see(), &job.reads)?;
            return Ok(Attempt::Committed(marks));
        };
        let mut tx = db.write(*persist)?;
        let mut marks = self.0.read(&tx, &job.reads)?;
        for &key in updates {
            let row = tx.get(rows, bytes(key))?;
            let mut row = row.map_or(Vec::new(), |row| row.to_vec());
            marks = marks.wrapping_add(mark(&row));
            increment(&mut row);
            D::put(&mut tx, rows, bytes(key).into(), row.into());
        }
        Ok(match D::commit(tx)? {
            true => Attempt::Committed(marks),
            false => Attempt::Refused,
        })
    }
}
