//! Foxton, called in the process: no server, no socket.

use super::{
    Durability,
    contract::{Ask, Came, Engine, Rows, Session, Shape, Step, Stop, Totals, one},
};
use crate::Outcome;
use foxton::{Database, Index, Table, Transaction};
use std::path::Path;

macro_rules! tables {
    ($($name:literal)*) => {
        static TABLES: &[Table<u64, [u8]>] = &[$(Table::new($name)),*];
        static INDEXES: &[Index<i64, u64, [u8]>] = &[$(
            Index::new(concat!($name, "_n"), &Table::new($name), |_, row, keys| {
                keys.add(&number(row));
            })
        ),*];
    };
}

tables!("t1" "t2" "t3" "t4" "t5" "t6" "t7" "t8");

const NUMBER: usize = 8;
/// Rows of one transaction while loading.
const AT_ONCE: u64 = 1_000;

fn number(row: &[u8]) -> i64 {
    let bytes = row.get(..NUMBER).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, i64::from_le_bytes)
}

fn bytes(number: i64, text: &str) -> Vec<u8> {
    [&number.to_le_bytes()[..], text.as_bytes()].concat()
}

pub(crate) struct Ours(Database);

pub(crate) fn settings(durability: Durability) -> String {
    let options = durability.options();
    format!(
        "of this repository, called in the process; options as they are by default (lock manager {}), durability {}",
        options.lock_manager, options.durability
    )
}

impl Ours {
    pub(crate) fn load(
        folder: &Path,
        durability: Durability,
        shapes: &[Shape],
        row: &Rows<'_>,
    ) -> Outcome<Ours> {
        let mut options = durability.options();
        for (index, _) in INDEXES
            .iter()
            .zip(shapes)
            .filter(|(_, shape)| shape.indexed)
        {
            options.indexes.add(index);
        }
        let db = Database::open_with(folder, options)?;
        for (table, shape) in shapes.iter().enumerate() {
            for first in (1..=shape.rows).step_by(AT_ONCE as usize) {
                db.run(|tx| {
                    let mut ids = first..=(first + AT_ONCE - 1).min(shape.rows);
                    ids.try_for_each(|id| {
                        let (number, text) = row(table, id);
                        tx.insert(&TABLES[table], &id, &bytes(number, &text))
                    })
                })?;
            }
        }
        Ok(Ours(db))
    }
}

impl Engine for Ours {
    fn session(&self) -> Outcome<Box<dyn Session + '_>> {
        Ok(Box::new(InProcess {
            db: &self.0,
            tx: None,
        }))
    }

    fn totals(&self, table: usize) -> Outcome<Totals> {
        let mut all = Totals::default();
        let mut tx = self.0.begin()?;
        tx.range(&TABLES[table], ..).for_each(|id, row: Vec<u8>| {
            let first = all.rows == 0;
            all.least_id = if first { id } else { all.least_id.min(id) };
            all.greatest_id = all.greatest_id.max(id);
            all.rows += 1;
            all.sum += number(&row);
            all.letters += (row.len() - NUMBER) as u64;
        })?;
        tx.commit()?;
        Ok(all)
    }
}

struct InProcess<'d> {
    db: &'d Database,
    /// Only while there is one: an idle client holds nothing, not even a seat.
    tx: Option<Transaction>,
}

fn step<T>(done: foxton::Result<T>) -> Step<T> {
    done.map_err(|error| match error.is_retryable() {
        true => Stop::GaveWay,
        false => Stop::Failed(error.into()),
    })
}

fn no_transaction() -> Stop {
    Stop::Failed("there is no transaction".into())
}

impl InProcess<'_> {
    fn tx(&mut self) -> Step<&mut Transaction> {
        self.tx.as_mut().ok_or_else(no_transaction)
    }

    fn for_update(&mut self, table: usize, id: u64) -> Step<Vec<u8>> {
        let row = step(self.tx()?.get_for_update(&TABLES[table], &id))?;
        one(row.iter().len() as u64, table, id)?;
        Ok(row.unwrap_or_default())
    }
}

impl Session for InProcess<'_> {
    fn begin(&mut self) -> Step {
        self.tx = Some(step(self.db.begin())?);
        Ok(())
    }

    fn commit(&mut self) -> Step {
        step(self.tx.take().ok_or_else(no_transaction)?.commit())
    }

    fn undo(&mut self) -> Outcome {
        self.tx = None;
        Ok(())
    }

    fn read(&mut self, table: usize, id: u64) -> Step<i64> {
        let row: Option<Vec<u8>> = step(self.tx()?.get(&TABLES[table], &id))?;
        one(row.iter().len() as u64, table, id)?;
        Ok(number(&row.unwrap_or_default()))
    }

    fn range(&mut self, ask: Ask, table: usize, first: u64, last: u64) -> Step<Came> {
        let (mut came, mut texts) = (Came::default(), Vec::new());
        let rows = self.tx()?.range(&TABLES[table], first..=last);
        step(rows.for_each(|_, row: Vec<u8>| {
            came.rows += 1;
            came.sum += number(&row);
            if ask != Ask::Sum {
                texts.push(row);
            }
        }))?;
        if matches!(ask, Ask::Ordered | Ask::Distinct) {
            texts.sort_unstable_by(|one, other| one[NUMBER..].cmp(&other[NUMBER..]));
        }
        if ask == Ask::Distinct {
            texts.dedup_by(|one, other| one[NUMBER..] == other[NUMBER..]);
            came.rows = texts.len() as u64;
        }
        std::hint::black_box(texts);
        Ok(came)
    }

    fn add(&mut self, table: usize, id: u64, amount: i64) -> Step {
        let mut row = self.for_update(table, id)?;
        let sum = number(&row) + amount;
        row[..NUMBER].copy_from_slice(&sum.to_le_bytes());
        step(self.tx()?.put(&TABLES[table], &id, &row))
    }

    fn set(&mut self, table: usize, id: u64, text: &str) -> Step {
        let row = self.for_update(table, id)?;
        step(
            self.tx()?
                .put(&TABLES[table], &id, &bytes(number(&row), text)),
        )
    }

    fn delete(&mut self, table: usize, id: u64) -> Step {
        let was_there = step(self.tx()?.delete(&TABLES[table], &id))?;
        one(u64::from(was_there), table, id)
    }

    fn insert(&mut self, table: usize, id: u64, number: i64, text: &str) -> Step {
        step(self.tx()?.insert(&TABLES[table], &id, &bytes(number, text)))
    }
}
