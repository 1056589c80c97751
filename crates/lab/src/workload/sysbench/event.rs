//! The transaction: eighteen statements, in eight groups. Each group draws its table, each
//! statement its row.

use std::{hint::black_box, ops::RangeInclusive};

use foxton::{Isolation, Table, Transaction};

use super::{
    Sysbench, TABLE_COUNT, TABLES,
    choice::Chooser,
    row::{self, C_BYTES},
};
use crate::{
    random::Random,
    workload::{attempt::Failure, ledger::Ledger},
};

/// Statements of a transaction.
pub const STATEMENTS: u32 = 18;
const POINT_READS: usize = 10;
const RANGE_ROWS: i32 = 100;

/// State of a client for its transactions, and the changes of the last one.
#[derive(Debug)]
pub struct Event {
    chooser: Chooser,
    rows: i32,
    log_k: bool,
    /// True if rows may be missing while others write.
    is_dirty: bool,
    isolation: Isolation,
    texts: Vec<[u8; C_BYTES]>,
    /// A row, by [`row_of`], and the addition to its k; it counts if the transaction commits.
    pub changes: Vec<(u64, i64)>,
}

/// A ledger with a place for each row of every table.
pub fn ledger(workload: &Sysbench) -> Ledger {
    Ledger::new(row_of(TABLE_COUNT - 1, workload.rows as i32) as usize + 1)
}

/// The number of a row of a table: no two rows have one.
pub fn row_of(table: usize, id: i32) -> u64 {
    id as u64 * TABLE_COUNT as u64 + table as u64
}

impl Event {
    /// For this workload.
    pub fn new(workload: &Sysbench) -> Event {
        Event {
            chooser: Chooser::new(workload.choice, workload.rows),
            rows: workload.rows as i32,
            log_k: workload.log_k,
            is_dirty: workload.isolation == Isolation::ReadUncommitted,
            isolation: workload.isolation,
            texts: Vec::with_capacity(RANGE_ROWS as usize),
            changes: Vec::new(),
        }
    }

    /// Runs the statements of one transaction, drawn from `random`. Does not commit.
    ///
    /// # Errors
    ///
    /// If the engine refuses an operation, or a row is missing or damaged.
    pub fn run(&mut self, tx: &mut Transaction, random: &mut Random) -> Result<(), Failure> {
        self.changes.clear();
        tx.set_isolation(self.isolation)?;
        self.point_reads(tx, random)?;
        self.read_range(tx, random)?;
        self.sum_range(tx, random)?;
        self.sort_range(tx, random, false)?;
        self.sort_range(tx, random, true)?;
        self.update_k(tx, random)?;
        self.update_c(tx, random)?;
        self.replace(tx, random)
    }

    fn point_reads(&mut self, tx: &mut Transaction, random: &mut Random) -> Result<(), Failure> {
        let (_, table) = draw_table(random);
        for _ in 0..POINT_READS {
            let id = self.chooser.id(random);
            let found = tx.get_with(table, &id, |row| black_box(row::c(row).copied()))?;
            match found {
                Some(Some(_)) => {}
                // It may be between its delete and its insert, for readers of uncommitted data.
                None if self.is_dirty => {}
                Some(None) => return Err(damaged(table, id)),
                None => return Err(gone(table, id)),
            }
        }
        Ok(())
    }

    fn read_range(&mut self, tx: &mut Transaction, random: &mut Random) -> Result<(), Failure> {
        self.gather(tx, random)?;
        black_box(&self.texts);
        Ok(())
    }

    fn sum_range(&mut self, tx: &mut Transaction, random: &mut Random) -> Result<(), Failure> {
        let mut sum = 0;
        self.range(tx, random, |row| {
            sum += row::k(row).map_or(0, i64::from);
        })?;
        black_box(sum);
        Ok(())
    }

    /// The texts of a range in their order, each once if they are to be distinct.
    fn sort_range(
        &mut self,
        tx: &mut Transaction,
        random: &mut Random,
        distinct: bool,
    ) -> Result<(), Failure> {
        self.gather(tx, random)?;
        self.texts.sort_unstable();
        if distinct {
            self.texts.dedup();
        }
        black_box(&self.texts);
        Ok(())
    }

    fn gather(&mut self, tx: &mut Transaction, random: &mut Random) -> Result<(), Failure> {
        let mut texts = std::mem::take(&mut self.texts);
        texts.clear();
        let read = self.range(tx, random, |row| texts.extend(row::c(row)));
        self.texts = texts;
        read
    }

    /// Passes the rows of a range of ids to `take`. At the upper end the range is shorter.
    fn range(
        &self,
        tx: &mut Transaction,
        random: &mut Random,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Failure> {
        let (_, table) = draw_table(random);
        let ids = self.ids_from(self.chooser.id(random));
        let mut count = 0;
        tx.range(table, ids.clone()).for_each_bytes(|_, row| {
            count += 1;
            take(row);
        })?;
        let expected = ids.end() - ids.start() + 1;
        if count > expected || (count < expected && !self.is_dirty) {
            return Err(Failure::Wrong(format!(
                "rows {} to {} of {} are {count}, not {expected}",
                ids.start(),
                ids.end(),
                table.name()
            )));
        }
        Ok(())
    }

    fn ids_from(&self, first: i32) -> RangeInclusive<i32> {
        first..=first.saturating_add(RANGE_ROWS - 1).min(self.rows)
    }

    fn update_k(&mut self, tx: &mut Transaction, random: &mut Random) -> Result<(), Failure> {
        let ((number, table), id) = (draw_table(random), self.chooser.id(random));
        let mut row = for_update(tx, table, id)?;
        let k = row::k(&row).ok_or_else(|| damaged(table, id))?;
        row::set_k(&mut row, k.wrapping_add(1));
        self.note(number, id, 1);
        Ok(tx.put(table, &id, &row)?)
    }

    fn update_c(&mut self, tx: &mut Transaction, random: &mut Random) -> Result<(), Failure> {
        let ((_, table), id) = (draw_table(random), self.chooser.id(random));
        let mut row = for_update(tx, table, id)?;
        if !row::renew_c(&mut row, random) {
            return Err(damaged(table, id));
        }
        Ok(tx.put(table, &id, &row)?)
    }

    /// Deletes a row and inserts one with its id.
    fn replace(&mut self, tx: &mut Transaction, random: &mut Random) -> Result<(), Failure> {
        let ((number, table), id) = (draw_table(random), self.chooser.id(random));
        let before = match self.log_k {
            true => row::k(&for_update(tx, table, id)?).ok_or_else(|| damaged(table, id))?,
            false => 0,
        };
        if !tx.delete(table, &id)? {
            return Err(gone(table, id));
        }
        let k = self.chooser.id(random);
        tx.insert(table, &id, &row::fresh(k, random)[..])?;
        self.note(number, id, i64::from(k) - i64::from(before));
        Ok(())
    }

    fn note(&mut self, table: usize, id: i32, change: i64) {
        if self.log_k {
            self.changes.push((row_of(table, id), change));
        }
    }
}

fn draw_table(random: &mut Random) -> (usize, &'static Table<i32, [u8]>) {
    let number = random.uniform(0, TABLE_COUNT as u64 - 1) as usize;
    (number, &TABLES[number])
}

fn for_update(tx: &mut Transaction, table: &Table<i32, [u8]>, id: i32) -> Result<Vec<u8>, Failure> {
    tx.get_for_update(table, &id)?
        .ok_or_else(|| gone(table, id))
}

fn gone(table: &Table<i32, [u8]>, id: i32) -> Failure {
    Failure::Wrong(format!("row {id} of {} is gone", table.name()))
}

fn damaged(table: &Table<i32, [u8]>, id: i32) -> Failure {
    Failure::Wrong(format!("row {id} of {} is damaged", table.name()))
}
