//! The operations, each a transaction, with the time in storage and the locks counted separately.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use foxton::{Database, Durability, Transaction};

use super::{BY_UNIQUE1, TUPLES, tuple};
use crate::random::Random;

/// The operation of a transaction.
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

    /// True if it only reads, whatever came before: T1 to T4, and fetches of two.
    pub fn is_scan(self) -> bool {
        !matches!(self, Operation::Single | Operation::Insert)
    }

    /// A short description.
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

/// Times of a transaction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Took {
    /// From begin to the end of commit.
    pub service: Duration,
    /// Inside the operations on tables, locks included.
    pub storage: Duration,
}

/// A client's operations, one transaction after another: first it draws, then it works, perhaps
/// more than once.
#[derive(Debug)]
pub struct Work {
    rows: u32,
    /// The tuple it inserts and deletes again.
    own: u32,
    random: Random,
    /// Operations on single tuples that have committed.
    singles: u32,
    drawn: u32,
    returned: Vec<u8>,
}

/// Number of tuples that an operation found, and number of the load's that it had to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Met {
    /// All tuples found.
    pub found: u32,
    /// Those of the load that it had to find.
    pub loaded: u32,
    /// True if there may be others, inserted by clients.
    pub and_others: bool,
}

impl Met {
    /// True if it found those it had to.
    pub fn is_right(self) -> bool {
        match self.and_others {
            true => self.found >= self.loaded,
            false => self.found == self.loaded,
        }
    }
}

impl Work {
    /// The operations of a client of a database loaded with `rows` tuples; `own` is a key of none
    /// of them.
    pub fn new(rows: u32, own: u32, random: Random) -> Work {
        Work {
            rows,
            own,
            random,
            singles: 0,
            drawn: 0,
            returned: Vec::new(),
        }
    }

    /// Draws the inputs of the next transaction.
    pub fn draw(&mut self, operation: Operation) {
        let last = match operation {
            Operation::ScanAll | Operation::IndexAll | Operation::Insert => 0,
            Operation::ScanTenth => 9,
            Operation::IndexTenth => self.rows - self.rows / 10,
            Operation::FetchTwo => self.rows - 2,
            Operation::Single => self.rows - 1,
        };
        self.drawn = self.random.uniform(0, u64::from(last)) as u32;
    }

    /// It has committed.
    pub fn committed(&mut self, operation: Operation) {
        self.singles += u32::from(operation == Operation::Single);
    }

    /// The tuple it has inserted and not deleted again, if there is one.
    pub fn has_left(&self) -> Option<u32> {
        (self.singles % 3 == 1).then_some(self.own)
    }

    /// Runs an operation as it was drawn. Returns the number of tuples it found.
    ///
    /// # Errors
    ///
    /// If the engine refuses an operation.
    pub fn run(&mut self, tx: &mut Transaction, operation: Operation) -> foxton::Result<Met> {
        let (rows, drawn) = (self.rows, self.drawn);
        self.returned.clear();
        let (found, loaded) = match operation {
            Operation::ScanAll => {
                let mut met = 0;
                tx.range(&TUPLES, ..).for_each_bytes(|_, _| met += 1)?;
                (met, rows)
            }
            Operation::ScanTenth => (self.scan_tenth(tx)?, (rows + 9 - drawn) / 10),
            Operation::IndexAll => (self.by_index(tx, 0, rows, false)?, rows),
            Operation::IndexTenth => (self.by_index(tx, drawn, rows / 10, true)?, rows / 10),
            Operation::FetchTwo => (self.by_index(tx, drawn, 2, true)?, 2),
            Operation::Insert => (self.insert(tx).map(|()| 1)?, 1),
            // Insert and delete alternate on one key, with a fetch after both.
            Operation::Single => match self.singles % 3 {
                0 => (self.insert(tx).map(|()| 1)?, 1),
                1 => (u32::from(self.delete(tx)?), 1),
                _ => (u32::from(self.fetch(tx)?), 1),
            },
        };
        black_box(&self.returned);
        Ok(Met {
            found,
            loaded,
            and_others: matches!(operation, Operation::ScanAll | Operation::ScanTenth),
        })
    }

    fn scan_tenth(&mut self, tx: &mut Transaction) -> foxton::Result<u32> {
        let (mut met, wanted, returned) = (0, self.drawn, &mut self.returned);
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

    fn fetch(&mut self, tx: &mut Transaction) -> foxton::Result<bool> {
        let (key, returned) = (self.drawn, &mut self.returned);
        let found = tx.get_with(&TUPLES, &key, |bytes| returned.extend_from_slice(bytes))?;
        Ok(found.is_some())
    }

    fn insert(&mut self, tx: &mut Transaction) -> foxton::Result<()> {
        let own = self.own;
        tx.insert(&TUPLES, &own, &tuple::tuple(own, own)[..])?;
        tx.insert(&BY_UNIQUE1, &own, &own)?;
        Ok(())
    }

    fn delete(&mut self, tx: &mut Transaction) -> foxton::Result<bool> {
        let own = self.own;
        let was = [tx.delete(&TUPLES, &own)?, tx.delete(&BY_UNIQUE1, &own)?];
        Ok(was == [true, true])
    }
}

/// One client alone, which is timed.
#[derive(Debug)]
pub struct Session {
    db: Database,
    work: Work,
}

impl Session {
    /// A client of a database loaded with `rows` tuples.
    pub fn new(db: Database, rows: u32) -> Session {
        let random = Random::seeded(&[u64::from(rows)]);
        Session {
            db,
            work: Work::new(rows, rows, random),
        }
    }

    /// Runs one transaction.
    ///
    /// # Errors
    ///
    /// If the engine refuses an operation.
    ///
    /// # Panics
    ///
    /// If it did not find as many tuples as there are.
    pub fn run(&mut self, operation: Operation) -> foxton::Result<Took> {
        self.work.draw(operation);
        let (took, met) = self.timed(|work, tx| work.run(tx, operation))?;
        assert_eq!(
            met.found,
            met.loaded,
            "{} found other tuples",
            operation.name()
        );
        self.work.committed(operation);
        if operation == Operation::Insert {
            self.timed(|work, tx| work.delete(tx))?;
        }
        Ok(took)
    }

    /// Leaves the tables as they were loaded.
    ///
    /// # Errors
    ///
    /// If the engine refuses an operation.
    pub fn settle(&mut self) -> foxton::Result<()> {
        while !self.work.singles.is_multiple_of(3) {
            self.run(Operation::Single)?;
        }
        Ok(())
    }

    fn timed<T>(
        &mut self,
        work: impl FnOnce(&mut Work, &mut Transaction) -> foxton::Result<T>,
    ) -> foxton::Result<(Took, T)> {
        let began = Instant::now();
        let mut tx = self.db.begin()?;
        // The document's storage component did not log.
        tx.set_durability(Durability::None);
        let inside = Instant::now();
        let done = work(&mut self.work, &mut tx)?;
        let storage = inside.elapsed();
        tx.commit()?;
        let service = began.elapsed();
        Ok((Took { service, storage }, done))
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
