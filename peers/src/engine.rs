//! The engines: how each is filled, and how it is read.
//!
//! Every one has the settings that it has if nothing is said, but for sizes of files, where their
//! usual ones are meant for more than a few rows. A commit is durable when it returns, in each of
//! them.

use crate::{
    Outcome, locked,
    rows::{COMMITS, KEYS, Rows, changes},
};
use heed::{
    CommitOrAbort, EnvOpenOptions,
    byteorder::BigEndian,
    types::{Bytes, U64},
};
use redb::{ReadableDatabase, ReadableTable};
use std::path::Path;

/// An engine, and whether it is asked to look for damage before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Ours. Half the transactions are in a checkpoint, the rest in the log.
    Foxton,
    /// redb.
    Redb,
    /// redb, `check_integrity` first.
    RedbChecked,
    /// LMDB, by heed.
    Lmdb,
    /// SQLite.
    Sqlite,
    /// SQLite, `PRAGMA integrity_check` first.
    SqliteChecked,
}

/// Rows that a reader saw: by a scan, and each by its key.
pub(crate) struct Seen {
    pub(crate) scanned: Vec<(u64, Vec<u8>)>,
    pub(crate) got: Vec<(u64, Vec<u8>)>,
}

impl Engine {
    pub(crate) const ALL: [Engine; 6] = [
        Engine::Foxton,
        Engine::Redb,
        Engine::RedbChecked,
        Engine::Lmdb,
        Engine::Sqlite,
        Engine::SqliteChecked,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Engine::Foxton => "foxton",
            Engine::Redb => "redb",
            Engine::RedbChecked => "redb-checked",
            Engine::Lmdb => "lmdb",
            Engine::Sqlite => "sqlite",
            Engine::SqliteChecked => "sqlite-checked",
        }
    }

    /// Which version is compiled in.
    pub(crate) fn version(self) -> String {
        match self {
            Engine::Foxton => "of this repository".to_owned(),
            Engine::Redb | Engine::RedbChecked => format!("redb {}", locked("redb")),
            Engine::Lmdb => {
                let lmdb = heed::lmdb_version().string;
                format!("{lmdb}, by heed {}", locked("heed"))
            }
            Engine::Sqlite | Engine::SqliteChecked => format!("SQLite {}", rusqlite::version()),
        }
    }

    /// Makes a database in `folder`, which is empty, runs the transactions and closes it.
    pub(crate) fn fill(self, folder: &Path, seed: u64) -> Outcome {
        match self {
            Engine::Foxton => fill_foxton(folder, seed),
            Engine::Redb | Engine::RedbChecked => fill_redb(folder, seed),
            Engine::Lmdb => fill_lmdb(folder, seed),
            Engine::Sqlite | Engine::SqliteChecked => fill_sqlite(folder, seed),
        }
    }

    /// Opens the database in `folder` and reads all of it, twice.
    ///
    /// # Errors
    ///
    /// The first thing that any call refuses.
    pub(crate) fn read(self, folder: &Path) -> Outcome<Seen> {
        match self {
            Engine::Foxton => read_foxton(folder),
            Engine::Redb => read_redb(folder, false),
            Engine::RedbChecked => read_redb(folder, true),
            Engine::Lmdb => read_lmdb(folder),
            Engine::Sqlite => read_sqlite(folder, false),
            Engine::SqliteChecked => read_sqlite(folder, true),
        }
    }
}

const FOXTON: foxton::Table<u64, [u8]> = foxton::Table::new("rows");

fn open_foxton(folder: &Path) -> foxton::Result<foxton::Database> {
    let mut options = foxton::Options::default();
    options.log_segment_bytes = 1 << 20;
    options.restart_threads = 1;
    foxton::Database::open_with(folder, options)
}

fn fill_foxton(folder: &Path, seed: u64) -> Outcome {
    let db = open_foxton(folder)?;
    for commit in 0..COMMITS {
        if commit == COMMITS / 2 {
            db.checkpoint()?;
        }
        db.run(|tx| {
            changes(seed, commit).try_for_each(|(key, value)| match value {
                Some(value) => tx.put(&FOXTON, &key, &value),
                None => tx.delete(&FOXTON, &key).map(|_| ()),
            })
        })?;
    }
    Ok(())
}

fn read_foxton(folder: &Path) -> Outcome<Seen> {
    let db = open_foxton(folder)?;
    let scanned = db.run(|tx| tx.range(&FOXTON, ..).collect())?;
    let mut got = Vec::new();
    for key in 0..KEYS {
        let value = db.run(|tx| tx.get(&FOXTON, &key))?;
        got.extend(value.map(|value| (key, value)));
    }
    Ok(Seen { scanned, got })
}

const REDB: redb::TableDefinition<u64, &[u8]> = redb::TableDefinition::new("rows");

fn fill_redb(folder: &Path, seed: u64) -> Outcome {
    let db = redb::Database::create(folder.join("rows.redb"))?;
    for commit in 0..COMMITS {
        let tx = db.begin_write()?;
        {
            let mut table = tx.open_table(REDB)?;
            for (key, value) in changes(seed, commit) {
                match value {
                    Some(value) => _ = table.insert(key, value.as_slice())?,
                    None => _ = table.remove(key)?,
                }
            }
        }
        tx.commit()?;
    }
    Ok(())
}

fn read_redb(folder: &Path, check: bool) -> Outcome<Seen> {
    let mut db = redb::Database::open(folder.join("rows.redb"))?;
    if check && !db.check_integrity()? {
        return Err("check_integrity answers that it had to repair the database".into());
    }
    let table = db.begin_read()?.open_table(REDB)?;
    let mut scanned = Vec::new();
    for row in table.iter()? {
        let (key, value) = row?;
        scanned.push((key.value(), value.value().to_vec()));
    }
    let mut got = Vec::new();
    for key in 0..KEYS {
        let value = table.get(key)?;
        got.extend(value.map(|value| (key, value.value().to_vec())));
    }
    Ok(Seen { scanned, got })
}

type Lmdb<'e> = heed::Database<'e, U64<BigEndian>, Bytes>;

fn open_lmdb(folder: &Path) -> heed::Result<heed::Env> {
    let mut options = EnvOpenOptions::new();
    options.map_size(16 << 20);
    // SAFETY: nobody else maps or changes these files while this process has them open. That their
    // bytes are sound is what is being asked: the process does nothing else, and may die.
    unsafe { options.open(folder) }
}

fn fill_lmdb(folder: &Path, seed: u64) -> Outcome {
    let env = open_lmdb(folder)?;
    let made = env.create_databases_and_commit(env.write_txn()?, |open, tx| {
        let made = open.create_database(tx, None);
        made.map(CommitOrAbort::<Lmdb<'_>, ()>::Commit)
    });
    let db = made?.unwrap_commit();
    for commit in 0..COMMITS {
        let mut tx = env.write_txn()?;
        for (key, value) in changes(seed, commit) {
            match value {
                Some(value) => db.put(&mut tx, &key, &value)?,
                None => _ = db.delete(&mut tx, &key)?,
            }
        }
        tx.commit()?;
    }
    Ok(())
}

fn read_lmdb(folder: &Path) -> Outcome<Seen> {
    let env = open_lmdb(folder)?;
    let found = env.open_databases_and_commit(env.read_txn()?, |open, tx| {
        let found = open.open_database(tx, None);
        found.map(CommitOrAbort::<Option<Lmdb<'_>>, ()>::Commit)
    });
    let db = found?.unwrap_commit().ok_or("there is no table")?;
    let tx = env.read_txn()?;
    let mut scanned = Vec::new();
    for row in db.iter(&tx)? {
        let (key, value) = row?;
        scanned.push((key, value.to_vec()));
    }
    let mut got = Vec::new();
    for key in 0..KEYS {
        let value = db.get(&tx, &key)?;
        got.extend(value.map(|value| (key, value.to_vec())));
    }
    Ok(Seen { scanned, got })
}

fn fill_sqlite(folder: &Path, seed: u64) -> Outcome {
    let mut db = rusqlite::Connection::open(folder.join("rows.sqlite"))?;
    db.execute_batch("CREATE TABLE rows (key INTEGER PRIMARY KEY, value BLOB NOT NULL)")?;
    for commit in 0..COMMITS {
        let tx = db.transaction()?;
        for (key, value) in changes(seed, commit) {
            let key = i64::try_from(key)?;
            match value {
                Some(value) => {
                    let put = "INSERT OR REPLACE INTO rows VALUES (?1, ?2)";
                    tx.execute(put, (key, value))?
                }
                None => tx.execute("DELETE FROM rows WHERE key = ?1", [key])?,
            };
        }
        tx.commit()?;
    }
    db.close().map_err(|(_, error)| error.into())
}

fn read_sqlite(folder: &Path, check: bool) -> Outcome<Seen> {
    let db = rusqlite::Connection::open(folder.join("rows.sqlite"))?;
    if check {
        let answer = db.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))?;
        if answer != "ok" {
            return Err(answer.into());
        }
    }
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let pair = |(key, value): (i64, Vec<u8>)| (key as u64, value);
    let mut all = db.prepare("SELECT key, value FROM rows ORDER BY key")?;
    let scanned: Result<Vec<_>, _> = all.query_map([], row)?.collect();
    let mut one = db.prepare("SELECT key, value FROM rows WHERE key = ?1")?;
    let mut got = Vec::new();
    for key in 0..KEYS {
        let found: Result<Vec<_>, _> = one.query_map([key as i64], row)?.collect();
        got.extend(found?.into_iter().map(pair));
    }
    Ok(Seen {
        scanned: scanned?.into_iter().map(pair).collect(),
        got,
    })
}

impl Seen {
    /// Whether both ways to read say exactly `rows`.
    pub(crate) fn is(&self, rows: &Rows) -> bool {
        let is = |seen: &[(u64, Vec<u8>)]| {
            seen.len() == rows.len()
                && seen
                    .iter()
                    .zip(rows)
                    .all(|(seen, row)| (&seen.0, &seen.1) == row)
        };
        is(&self.scanned) && is(&self.got)
    }
}
