//! Berkeley DB: strict two-phase locking of pages; and its lock subsystem alone.

use super::{
    Durability,
    berkeley_calls::{Answer, Environment, Locker, Transaction, version},
    locks,
};
use crate::{
    Outcome,
    speed::contract::{Attempt, Client, Job, ROW_BYTES, ROWS, Store, increment, mark, row},
};
use std::path::Path;

/// Rows of one transaction while loading.
const AT_ONCE: u64 = 1_000;

pub(crate) struct Berkeley(Environment);

fn number(durability: Durability) -> (i32, &'static str) {
    match durability {
        Durability::None => (0, "DB_TXN_NOSYNC"),
        Durability::Buffered => (1, "DB_TXN_WRITE_NOSYNC"),
        Durability::Sync => (2, "synced"),
    }
}

pub(crate) fn settings(durability: Durability) -> String {
    format!(
        "{}; B-tree whose pages are locked, DB_PRIVATE, cache 256 MiB, log buffer 4 MiB, deadlocks looked for at \
         each wait, DB_RMW for rows to be updated, {}",
        version(),
        number(durability).1
    )
}

pub(crate) fn lock_settings() -> String {
    format!(
        "{}; DB_INIT_LOCK alone, DB_PRIVATE, lock partitions as by default, deadlocks looked for at each wait, all \
         released by one lock_vec",
        version()
    )
}

fn bytes(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

impl Berkeley {
    pub(crate) fn load(folder: &Path, durability: Durability) -> Outcome<Berkeley> {
        let env = Environment::open(folder, number(durability).0)?;
        for first in (0..ROWS).step_by(AT_ONCE as usize) {
            let mut tx = env.begin()?;
            for key in first..ROWS.min(first + AT_ONCE) {
                tx.put(bytes(key), &row(key))?;
            }
            tx.commit()?;
        }
        Ok(Berkeley(env))
    }
}

impl Store for Berkeley {
    fn client(&self) -> Outcome<Box<dyn Client + '_>> {
        Ok(Box::new(Session(&self.0)))
    }

    fn each(&self, see: &mut dyn FnMut(u64, &[u8])) -> Outcome {
        let mut row = [0; ROW_BYTES];
        for key in 0..ROWS {
            let mut tx = self.0.begin()?;
            tx.get(bytes(key), &mut row, false)?;
            tx.commit()?;
            see(key, &row);
        }
        Ok(())
    }
}

struct Session<'s>(&'s Environment);

impl Client for Session<'_> {
    fn attempt(&mut self, job: &Job) -> Outcome<Attempt> {
        let mut tx = self.0.begin()?;
        let Some(marks) = body(&mut tx, job)? else {
            return Ok(Attempt::Refused);
        };
        Ok(match tx.commit()? {
            Answer::Done => Attempt::Committed(marks),
            Answer::GaveWay => Attempt::Refused,
        })
    }
}

/// Returns the sum read, or `None` if it was refused.
fn body(tx: &mut Transaction<'_>, job: &Job) -> Outcome<Option<u64>> {
    let (mut row, mut marks) = ([0; ROW_BYTES], 0_u64);
    for &key in &job.reads {
        if let Answer::GaveWay = tx.get(bytes(key), &mut row, false)? {
            return Ok(None);
        }
        marks = marks.wrapping_add(mark(&row));
    }
    for &key in job.updates.iter().flatten() {
        if let Answer::GaveWay = tx.get(bytes(key), &mut row, true)? {
            return Ok(None);
        }
        marks = marks.wrapping_add(mark(&row));
        increment(&mut row);
        if let Answer::GaveWay = tx.put(bytes(key), &row)? {
            return Ok(None);
        }
    }
    Ok(Some(marks))
}

/// The lock subsystem alone.
pub(crate) struct Locks(Environment);

impl Locks {
    pub(crate) fn open(folder: &Path) -> Outcome<Locks> {
        Ok(Locks(Environment::open_locks(folder)?))
    }
}

impl locks::Locks for Locks {
    type Session<'s> = Locker<'s>;

    fn session(&self) -> Outcome<Locker<'_>> {
        self.0.locker()
    }
}

impl locks::Session for Locker<'_> {
    fn begin(&mut self, writes: bool) -> Outcome<bool> {
        let answer = Locker::lock(self, bytes(ROWS), writes, true)?;
        Ok(matches!(answer, Answer::Done))
    }

    fn lock(&mut self, key: u64, writes: bool) -> Outcome<bool> {
        let answer = Locker::lock(self, bytes(key), writes, false)?;
        Ok(matches!(answer, Answer::Done))
    }

    fn release(&mut self) -> Outcome {
        Locker::release(self)
    }
}
