//! SQLite, with a write-ahead log: readers see the last commit, one writer at a time.
//!
//! Each client has a connection and its statements, prepared once. Writers queue at a mutex here,
//! since SQLite's own way to wait is to sleep and try again, which is much slower and serves nobody
//! in turn.

use super::Durability;
use crate::{
    Outcome,
    speed::contract::{Attempt, Client, Job, ROWS, Store, increment, mark, row},
};
use rusqlite::{Connection, ErrorCode, OpenFlags, Statement};
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

const BUSY: Duration = Duration::from_secs(10);

pub(crate) struct Sqlite {
    path: PathBuf,
    durability: Durability,
    writer: Mutex<()>,
}

fn synchronous(durability: Durability) -> &'static str {
    match durability {
        Durability::None | Durability::Buffered => "OFF",
        Durability::Sync => "FULL",
    }
}

pub(crate) fn settings(durability: Durability) -> String {
    format!(
        "SQLite {}; WAL, synchronous={} (written at commit{}), mmap_size 1 GiB, a connection for each client, \
         BEGIN IMMEDIATE for updates behind a mutex of the program",
        rusqlite::version(),
        synchronous(durability),
        match durability {
            Durability::Sync => " and synced",
            Durability::None | Durability::Buffered => ", not synced",
        },
    )
}

impl Sqlite {
    pub(crate) fn load(folder: &Path, durability: Durability) -> Outcome<Sqlite> {
        let sqlite = Sqlite {
            path: folder.join("rows.sqlite"),
            durability,
            writer: Mutex::new(()),
        };
        let mut db = sqlite.connect()?;
        db.execute_batch("CREATE TABLE rows (key INTEGER PRIMARY KEY, value BLOB NOT NULL)")?;
        let tx = db.transaction()?;
        {
            let mut put = tx.prepare("INSERT INTO rows VALUES (?1, ?2)")?;
            for key in 0..ROWS {
                put.execute((key as i64, row(key)))?;
            }
        }
        tx.commit()?;
        db.pragma_update(None, "wal_checkpoint", "TRUNCATE")?;
        Ok(sqlite)
    }

    fn connect(&self) -> Outcome<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&self.path, flags)?;
        db.busy_timeout(BUSY)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", synchronous(self.durability))?;
        db.pragma_update(None, "mmap_size", 1 << 30)?;
        Ok(db)
    }
}

impl Store for Sqlite {
    fn client(&self) -> Outcome<Box<dyn Client + '_>> {
        let prepared = Prepared::try_new(self.connect()?, |db| -> rusqlite::Result<_> {
            Ok(Statements {
                begin: db.prepare("BEGIN")?,
                begin_to_write: db.prepare("BEGIN IMMEDIATE")?,
                commit: db.prepare("COMMIT")?,
                rollback: db.prepare("ROLLBACK")?,
                read: db.prepare("SELECT value FROM rows WHERE key = ?1")?,
                update: db.prepare("UPDATE rows SET value = ?2 WHERE key = ?1")?,
            })
        })?;
        Ok(Box::new(Session {
            prepared,
            writer: &self.writer,
        }))
    }

    fn each(&self, see: &mut dyn FnMut(u64, &[u8])) -> Outcome {
        let db = self.connect()?;
        let mut all = db.prepare("SELECT key, value FROM rows")?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            see(row.get::<_, i64>(0)? as u64, row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }
}

struct Statements<'c> {
    begin: Statement<'c>,
    begin_to_write: Statement<'c>,
    commit: Statement<'c>,
    rollback: Statement<'c>,
    read: Statement<'c>,
    update: Statement<'c>,
}

self_cell::self_cell!(
    /// A connection, and the statements prepared on it.
    struct Prepared {
        owner: Connection,
        #[not_covariant]
        dependent: Statements,
    }
);

struct Session<'s> {
    prepared: Prepared,
    writer: &'s Mutex<()>,
}

impl Client for Session<'_> {
    fn attempt(&mut self, job: &Job) -> Outcome<Attempt> {
        let writes = job.updates.is_some();
        // Nothing that the mutex guards can be left half done: SQLite has it.
        let _turn = writes.then(|| self.writer.lock().unwrap_or_else(PoisonError::into_inner));
        self.prepared.with_dependent_mut(|_, statements| {
            match statements.transaction(job) {
                Ok(marks) => Ok(Attempt::Committed(marks)),
                Err(rusqlite::Error::SqliteFailure(error, _))
                    if error.code == ErrorCode::DatabaseBusy =>
                {
                    // It may have been the BEGIN that failed: then there is nothing to roll back.
                    _ = statements.rollback.execute([]);
                    Ok(Attempt::Refused)
                }
                Err(error) => Err(error.into()),
            }
        })
    }
}

impl Statements<'_> {
    fn transaction(&mut self, job: &Job) -> rusqlite::Result<u64> {
        match job.updates {
            Some(_) => self.begin_to_write.execute([])?,
            None => self.begin.execute([])?,
        };
        let mut marks = 0_u64;
        for &key in &job.reads {
            marks = marks.wrapping_add(self.read(key, mark)?);
        }
        for &key in job.updates.iter().flatten() {
            let mut row = self.read(key, <[u8]>::to_vec)?;
            marks = marks.wrapping_add(mark(&row));
            increment(&mut row);
            self.update.execute((key as i64, row))?;
        }
        self.commit.execute([])?;
        Ok(marks)
    }

    fn read<T>(&mut self, key: u64, see: impl FnOnce(&[u8]) -> T) -> rusqlite::Result<T> {
        self.read
            .query_row([key as i64], |row| Ok(see(row.get_ref(0)?.as_blob()?)))
    }
}
