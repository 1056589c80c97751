//! Lock managers alone: a table that is an array, and transactions that lock before they look.
//!
//! A transaction takes an intention lock on the table and a lock on each row that it reads or
//! updates, and gives all back at once. The counters are increased by a load and a store with
//! nothing between them but the lock, so that a manager which let two at one row would lose
//! increments, and the run would fail.

use crate::{
    Outcome, locked,
    rows::mix,
    speed::contract::{Attempt, Client, Job, ROWS, Store, row},
};
use foxton_lock::{
    any::{AnyManager, ManagerKind, Options},
    manager::LockManager,
    mode::Mode,
    name::{KeyHasher, Name},
    owner::Owner,
};
use foxton_sync::worker::{Worker, Workers};
use lock_db::{LockManager as Table, LockMode, ResourceId, TxnId};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A lock manager.
pub(crate) trait Locks: Sync {
    /// The session of one thread.
    type Session<'s>: Session
    where
        Self: 's;

    fn session(&self) -> Outcome<Self::Session<'_>>;
}

/// A thread's transactions, one after the other.
pub(crate) trait Session {
    /// Begins the next transaction, with its intention on the table.
    fn begin(&mut self, writes: bool) -> Outcome<bool>;

    /// Locks a row, for reading or writing. `false`: it has to give way.
    fn lock(&mut self, key: u64, writes: bool) -> Outcome<bool>;

    /// Gives everything back.
    fn release(&mut self) -> Outcome;
}

/// An array whose elements are touched only under their locks.
pub(crate) struct Guarded<L> {
    locks: L,
    /// Each row: its counter, its mark.
    rows: Vec<[AtomicU64; 2]>,
}

impl<L: Locks> Guarded<L> {
    pub(crate) fn new(locks: L) -> Guarded<L> {
        let fresh = |key| [AtomicU64::new(0), AtomicU64::new(mix(key))];
        let rows = (0..ROWS).map(fresh).collect();
        Guarded { locks, rows }
    }
}

impl<L: Locks> Store for Guarded<L> {
    fn client(&self) -> Outcome<Box<dyn Client + '_>> {
        let session = self.locks.session()?;
        let rows = &self.rows;
        Ok(Box::new(Under { session, rows }))
    }

    fn each(&self, see: &mut dyn FnMut(u64, &[u8])) -> Outcome {
        for (key, [counter, _]) in (0..).zip(&self.rows) {
            let mut row = row(key);
            // Relaxed: the clients have been joined.
            row[..8].copy_from_slice(&counter.load(Relaxed).to_le_bytes());
            see(key, &row);
        }
        Ok(())
    }
}

struct Under<'s, S> {
    session: S,
    rows: &'s [[AtomicU64; 2]],
}

impl<S: Session> Client for Under<'_, S> {
    fn attempt(&mut self, job: &Job) -> Outcome<Attempt> {
        let done = self.locked(job)?;
        self.session.release()?;
        Ok(done.map_or(Attempt::Refused, Attempt::Committed))
    }
}

impl<S: Session> Under<'_, S> {
    /// Returns the sum that `job` reads, or `None` if it was refused and changed nothing.
    fn locked(&mut self, job: &Job) -> Outcome<Option<u64>> {
        if !self.session.begin(job.updates.is_some())? {
            return Ok(None);
        }
        let mut marks = 0_u64;
        // Relaxed, because the test asks whether the locks alone order the accesses.
        for &key in &job.reads {
            if !self.session.lock(key, false)? {
                return Ok(None);
            }
            marks = marks.wrapping_add(self.rows[key as usize][1].load(Relaxed));
        }
        for &key in job.updates.iter().flatten() {
            if !self.session.lock(key, true)? {
                return Ok(None);
            }
            marks = marks.wrapping_add(self.rows[key as usize][1].load(Relaxed));
        }
        for &key in job.updates.iter().flatten() {
            let counter = &self.rows[key as usize][0];
            counter.store(counter.load(Relaxed) + 1, Relaxed);
        }
        Ok(Some(marks))
    }
}

const SPACE: u32 = 1;

/// One of Foxton's, through the crate of the lock managers alone.
pub(crate) struct Ours {
    locks: AnyManager,
    workers: Workers,
    hasher: KeyHasher,
}

impl Ours {
    /// The default, which remembers locks that nobody conflicts with, or the one that has every
    /// lock in a table that all threads share, as other engines do.
    pub(crate) fn new(shared: bool) -> Ours {
        Ours {
            locks: AnyManager::new(&options(shared)),
            workers: Workers::new(),
            hasher: KeyHasher::new(7),
        }
    }

    pub(crate) fn settings(shared: bool) -> String {
        format!(
            "crate foxton-lock of this repository; manager {}, {}; options else as they are by default",
            options(shared).kind,
            match shared {
                true => "each lock in a table that all threads share",
                false =>
                    "the default: locks that nobody conflicts with are remembered by who took them",
            }
        )
    }
}

fn options(shared: bool) -> Options {
    let mut options = Options::default();
    if shared {
        options.kind = ManagerKind::Bucket;
    }
    options
}

impl Locks for Ours {
    type Session<'s> = OursInUse<'s>;

    fn session(&self) -> Outcome<OursInUse<'_>> {
        Ok(OursInUse {
            ours: self,
            worker: self.workers.worker(),
            owner: self.locks.owner(),
        })
    }
}

pub(crate) struct OursInUse<'s> {
    ours: &'s Ours,
    worker: Worker,
    owner: Owner,
}

impl OursInUse<'_> {
    fn take(&mut self, name: Name, mode: Mode) -> bool {
        let locks = &self.ours.locks;
        let outcome = locks.lock(&self.worker, &mut self.owner, name, mode, None);
        outcome.is_held()
    }
}

impl Session for OursInUse<'_> {
    fn begin(&mut self, writes: bool) -> Outcome<bool> {
        self.owner.begin();
        let mode = if writes { Mode::IX } else { Mode::IS };
        Ok(self.take(Name::table(SPACE), mode))
    }

    fn lock(&mut self, key: u64, writes: bool) -> Outcome<bool> {
        let mode = if writes { Mode::X } else { Mode::S };
        let name = Name::key(SPACE, &key.to_be_bytes(), &self.ours.hasher);
        Ok(self.take(name, mode))
    }

    fn release(&mut self) -> Outcome {
        self.ours.locks.release_all(&self.worker, &mut self.owner);
        Ok(())
    }
}

/// The crate lock-db. It knows no waiting: a transaction that meets a conflict gives way and runs
/// again.
pub(crate) struct LockDb {
    table: Table,
    /// Where the last client begins to number its transactions.
    numbers: Mutex<u64>,
}

/// Transactions of one client.
const NUMBERS: u64 = 1_000_000_000;

impl LockDb {
    pub(crate) fn new() -> LockDb {
        LockDb {
            table: Table::new(),
            numbers: Mutex::new(0),
        }
    }

    pub(crate) fn settings() -> String {
        let shards = Table::new().shards();
        format!(
            "lock-db {}; {shards} shards (its default), try_acquire: whoever meets a conflict gives way at once, \
             since it cannot wait",
            locked("lock-db")
        )
    }
}

impl Locks for LockDb {
    type Session<'s> = LockDbInUse<'s>;

    fn session(&self) -> Outcome<LockDbInUse<'_>> {
        let mut next = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        *next += NUMBERS;
        Ok(LockDbInUse {
            table: &self.table,
            number: *next,
        })
    }
}

pub(crate) struct LockDbInUse<'s> {
    table: &'s Table,
    number: u64,
}

impl LockDbInUse<'_> {
    fn take(&self, id: u64, mode: LockMode) -> Outcome<bool> {
        match self
            .table
            .try_acquire(TxnId::new(self.number), ResourceId::new(id), mode)
        {
            Ok(()) => Ok(true),
            Err(lock_db::LockError::Conflict) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Session for LockDbInUse<'_> {
    fn begin(&mut self, writes: bool) -> Outcome<bool> {
        self.number += 1;
        let mode = match writes {
            true => LockMode::IntentionExclusive,
            false => LockMode::IntentionShared,
        };
        self.take(ROWS, mode)
    }

    fn lock(&mut self, key: u64, writes: bool) -> Outcome<bool> {
        let mode = match writes {
            true => LockMode::Exclusive,
            false => LockMode::Shared,
        };
        self.take(key, mode)
    }

    fn release(&mut self) -> Outcome {
        self.table.release_all(TxnId::new(self.number));
        Ok(())
    }
}
