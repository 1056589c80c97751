//! redb: readers see the last commit and lock nothing; one writer at a time.

use super::Durability;
use crate::{
    Outcome, locked,
    speed::contract::{Attempt, Client, Job, ROWS, Store, increment, mark, row},
};
use redb::{ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use std::path::Path;

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
const CACHE_BYTES: usize = 1 << 30;

pub(crate) struct Redb {
    db: redb::Database,
    durability: redb::Durability,
}

fn durability(durability: Durability) -> redb::Durability {
    match durability {
        Durability::None | Durability::Buffered => redb::Durability::None,
        Durability::Sync => redb::Durability::Immediate,
    }
}

pub(crate) fn settings(asked: Durability) -> String {
    let less = match asked {
        Durability::Buffered => {
            " (it has nothing between that and Immediate: less than was asked for)"
        }
        Durability::None | Durability::Sync => "",
    };
    format!(
        "redb {}; Durability::{:?}{less}, cache 1 GiB",
        locked("redb"),
        durability(asked)
    )
}

impl Redb {
    pub(crate) fn load(folder: &Path, asked: Durability) -> Outcome<Redb> {
        let path = folder.join("rows.redb");
        let db = redb::Builder::new()
            .set_cache_size(CACHE_BYTES)
            .create(path)?;
        let tx = db.begin_write()?;
        {
            let mut table = tx.open_table(TABLE)?;
            for key in 0..ROWS {
                table.insert(key, row(key).as_slice())?;
            }
        }
        tx.commit()?;
        let durability = durability(asked);
        Ok(Redb { db, durability })
    }

    fn write(&self) -> Outcome<WriteTransaction> {
        let mut tx = self.db.begin_write()?;
        tx.set_durability(self.durability)?;
        Ok(tx)
    }
}

impl Store for Redb {
    fn client(&self) -> Outcome<Box<dyn Client + '_>> {
        Ok(Box::new(Session(self)))
    }

    fn each(&self, see: &mut dyn FnMut(u64, &[u8])) -> Outcome {
        for row in self.db.begin_read()?.open_table(TABLE)?.iter()? {
            let (key, row) = row?;
            see(key.value(), row.value());
        }
        Ok(())
    }
}

struct Session<'s>(&'s Redb);

impl Client for Session<'_> {
    fn attempt(&mut self, job: &Job) -> Outcome<Attempt> {
        let Some(updates) = &job.updates else {
            let table = self.0.db.begin_read()?.open_table(TABLE)?;
            return Ok(Attempt::Committed(read(&table, &job.reads)?));
        };
        let tx = self.0.write()?;
        let mut marks;
        {
            let mut table = tx.open_table(TABLE)?;
            marks = read(&table, &job.reads)?;
            for &key in updates {
                let found = table.get(key)?;
                let mut row = found.map(|row| row.value().to_vec()).unwrap_or_default();
                marks = marks.wrapping_add(mark(&row));
                increment(&mut row);
                table.insert(key, row.as_slice())?;
            }
        }
        tx.commit()?;
        Ok(Attempt::Committed(marks))
    }
}

fn read(table: &impl ReadableTable<u64, &'static [u8]>, keys: &[u64]) -> Outcome<u64> {
    let mut marks = 0_u64;
    for &key in keys {
        let row = table.get(key)?;
        marks = marks.wrapping_add(row.map_or(0, |row| mark(row.value())));
    }
    Ok(marks)
}
