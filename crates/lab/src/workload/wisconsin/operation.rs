//! The operations, each a transaction, with the time inside the storage floor and the locks apart.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use foxton::{Database, Durability, Transaction};

use super::{BY_UNIQUE1, TUPLES, tuple};
use crate::random::Random;

/// What a transaction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// T1: scan the table, count all.
    ScanAll,
    /// T2: scan the table, return a tenth.
    ScanTenth,
    /// T3: scan the index, count all.
    IndexAll,
    /// T4: scan a tenth of the index, return it.
    IndexTenth,
    /// T5: fetch, insert or delete one tuple.
    Single,
    /// Fetch two tuples by the index.
    FetchTwo,
    /// Insert one tuple.
    Insert,
}

impl Operation {
    /// T1 to T5.
    pub const TYPES: [Operation; 5] = [
        Operation::ScanAll,
        Operation::ScanTenth,
        Operation::IndexAll,
        Operation::IndexTenth,
        Operation::Single,
    ];

    /// What it does, in a few words.
    pub fn name(self) -> &'static str {
        match self {
            Operation::ScanAll => "T1 table scan, count all",
            Operation::ScanTenth => "T2 table scan, return 10 %",
            Operation::IndexAll => "T3 index scan, count all",
            Operation::IndexTenth => "T4 index scan, return 10 %",
            Operation::Single => "T5 fetch, insert or delete",
            Operation::FetchTwo => "index scan, fetch 2 tuples",
            Operation::Insert => "table and index insert",
        }
    }
}

/// How long a transaction took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Took {
    /// From begin to the end of commit.
    pub service: Duration,
    /// Inside the operations on tables, locks included.
    pub storage: Duration,
}

/// One client.
#[derive(Debug)]
pub struct Session {
    db: Database,
    rows: u32,
    random: Random,
    turn: u32,
    returned: Vec<u8>,
}

impl Session {
    /// A client of a database loaded with so many tuples.
    pub fn new(db: Database, rows: u32) -> Session {
        Session {
            db,
            rows,
            random: Random::seeded(&[u64::from(rows)]),
            turn: 0,
            returned: Vec::new(),
        }
    }

    /// Runs one transaction.
    ///
    /// # Errors
    ///
    /// What the engine refused.
    ///
    /// # Panics
    ///
    /// If it did not meet as many tuples as there are.
    pub fn run(&mut self, operation: Operation) -> foxton::Result<Took> {
        self.returned.clear();
        let took = self.timed(|this, tx| this.work(tx, operation))?;
        if operation == Operation::Insert {
            self.timed(|this, tx| this.delete(tx))?;
        }
        Ok(took)
    }

    /// Leaves the tables as they were loaded.
    ///
    /// # Errors
    ///
    /// What the engine refused.
    pub fn settle(&mut self) -> foxton::Result<()> {
        while !self.turn.is_multiple_of(3) {
            self.run(Operation::Single)?;
        }
        Ok(())
    }

    fn timed(
        &mut self,
        work: impl FnOnce(&mut Session, &mut Transaction) -> foxton::Result<()>,
    ) -> foxton::Result<Took> {
        let began = Instant::now();
        let mut tx = self.db.begin()?;
        // The document's storage component did not log.
        tx.set_durability(Durability::None);
        let inside = Instant::now();
        work(self, &mut tx)?;
        let storage = inside.elapsed();
        tx.commit()?;
        Ok(Took {
            service: began.elapsed(),
            storage,
        })
    }

    fn work(&mut self, tx: &mut Transaction, operation: Operation) -> foxton::Result<()> {
        let rows = self.rows;
        let (met, expected) = match operation {
            Operation::ScanAll => {
                let mut met = 0;
                tx.range(&TUPLES, ..).for_each_bytes(|_, _| met += 1)?;
                (met, rows)
            }
            Operation::ScanTenth => (self.scan_tenth(tx)?, rows / 10),
            Operation::IndexAll => (self.by_index(tx, 0, rows, false)?, rows),
            Operation::IndexTenth => {
                let tenth = rows / 10;
                let from = self.random.uniform(0, u64::from(rows - tenth)) as u32;
                (self.by_index(tx, from, tenth, true)?, tenth)
            }
            Operation::FetchTwo => {
                let from = self.random.uniform(0, u64::from(rows - 2)) as u32;
                (self.by_index(tx, from, 2, true)?, 2)
            }
            Operation::Insert => (self.insert(tx).map(|()| 1)?, 1),
            Operation::Single => {
                // Insert and delete alternate on one key, with a fetch after both.
                self.turn += 1;
                match self.turn % 3 {
                    1 => self.insert(tx)?,
                    2 => self.delete(tx)?,
                    _ => self.fetch(tx)?,
                }
                (1, 1)
            }
        };
        assert_eq!(met, expected, "{} met other tuples", operation.name());
        black_box(&self.returned);
        Ok(())
    }

    fn scan_tenth(&mut self, tx: &mut Transaction) -> foxton::Result<u32> {
        let wanted = self.random.uniform(0, 9) as u32;
        let (mut met, returned) = (0, &mut self.returned);
        tx.range(&TUPLES, ..).for_each_bytes(|_, bytes| {
            if tuple::ten_percent(bytes) == Some(wanted) {
                met += 1;
                returned.extend_from_slice(bytes);
            }
        })?;
        Ok(met)
    }

    fn by_index(
        &mut self,
        tx: &mut Transaction,
        from: u32,
        count: u32,
        wanted: bool,
    ) -> foxton::Result<u32> {
        let mut keys = Vec::with_capacity(count as usize);
        tx.range(&BY_UNIQUE1, from..from + count)
            .for_each(|_, unique2| keys.push(unique2))?;
        let mut met = 0;
        for key in keys {
            let returned = &mut self.returned;
            let found = tx.get_with(&TUPLES, &key, |bytes| {
                if wanted {
                    returned.extend_from_slice(bytes);
                }
            })?;
            met += u32::from(found.is_some());
        }
        Ok(met)
    }

    fn fetch(&mut self, tx: &mut Transaction) -> foxton::Result<()> {
        let key = self.random.uniform(0, u64::from(self.rows - 1)) as u32;
        let returned = &mut self.returned;
        tx.get_with(&TUPLES, &key, |bytes| returned.extend_from_slice(bytes))?;
        Ok(())
    }

    fn insert(&mut self, tx: &mut Transaction) -> foxton::Result<()> {
        let fresh = self.rows;
        tx.insert(&TUPLES, &fresh, &tuple::tuple(fresh, fresh)[..])?;
        tx.insert(&BY_UNIQUE1, &fresh, &fresh)?;
        Ok(())
    }

    fn delete(&mut self, tx: &mut Transaction) -> foxton::Result<()> {
        let fresh = self.rows;
        tx.delete(&TUPLES, &fresh)?;
        tx.delete(&BY_UNIQUE1, &fresh)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxton::Options;

    #[test]
    fn every_operation_meets_the_tuples_it_should_and_leaves_them_as_they_were() {
        let db = Database::in_memory(Options::default()).expect("it opens");
        super::super::load(&db, 200, 1).expect("it loads");
        let mut session = Session::new(db.clone(), 200);
        for operation in Operation::TYPES
            .into_iter()
            .chain([Operation::FetchTwo, Operation::Insert])
        {
            for _ in 0..7 {
                let took = session.run(operation).expect("nobody is in the way");
                assert!(took.storage <= took.service);
            }
            session.settle().expect("nobody is in the way");
        }
        let count = |db: &Database| db.run(|tx| tx.range(&TUPLES, ..).count());
        assert_eq!(count(&db).expect("it counts"), 200);
    }
}
