//! The transactions, and the client that runs one after another.
//!
//! A client owns everything it writes: its generator, its buffers, its records. The sums it
//! compares with are shared and never written.

use std::{hint::black_box, sync::Arc, time::Instant};

use foxton::{Database, Transaction};

use super::{
    Shape, TABLES,
    row::{self, FIELD_BYTES, FIELDS, ROW_BYTES, Sums},
    stamp::{self, Notes, Update},
};
use crate::{
    driver::Client,
    measure::outcome::{Ended, Outcome},
    random::Random,
    workload::attempt::{Failure, level, until_committed, until_read},
};

/// The types of transaction, as they are named in results.
pub const KINDS: &[&str] = &["read", "update"];
const READ: usize = 0;
const UPDATE: usize = 1;

/// The writer's stamp: the run and the client, and where its records go.
#[derive(Debug)]
pub struct Stamper {
    /// The run.
    pub run: u16,
    /// The client.
    pub client: u16,
    /// Its records.
    pub notes: Notes,
}

/// A client of txbench.
#[derive(Debug)]
pub struct TxbenchClient {
    db: Database,
    shape: Arc<Shape>,
    sums: Arc<Sums>,
    random: Random,
    stamper: Option<Stamper>,
    sequence: u32,
    keys: Vec<u32>,
    text: Box<[u8; FIELD_BYTES]>,
}

impl TxbenchClient {
    /// Client `number` of run `run`; no two of the same run share a generator.
    pub fn new(
        db: Database,
        shape: Arc<Shape>,
        sums: Arc<Sums>,
        (run, number): (u64, u64),
        stamper: Option<Stamper>,
    ) -> TxbenchClient {
        // "txbench" separates this workload's draws from another's with the same seed.
        let workload = u64::from_be_bytes(*b"_txbench");
        let random = Random::seeded(&[shape.seed, workload, run, number]);
        TxbenchClient {
            keys: Vec::with_capacity(shape.written()),
            text: Box::new([b'x'; FIELD_BYTES]),
            sequence: 0,
            db,
            shape,
            sums,
            random,
            stamper,
        }
    }

    /// Draws the rows to update and the data to write: distinct keys, one string of the row, one
    /// text.
    fn draw_update(&mut self) -> usize {
        let reach = u64::from(self.shape.reach());
        self.keys.clear();
        while self.keys.len() < self.shape.written() {
            let key = self.random.uniform(1, reach) as u32;
            if !self.keys.contains(&key) {
                self.keys.push(key);
            }
        }
        if !self.shape.unordered {
            self.keys.sort_unstable();
        }
        self.random.fill_alphanumeric(&mut self.text[..]);
        if let Some(stamper) = &self.stamper {
            self.sequence += 1;
            let stamp = stamp::stamp(stamper.run, stamper.client, self.sequence);
            stamp::write(&mut self.text, stamp);
        }
        self.random.uniform(0, FIELDS as u64 - 1) as usize
    }

    fn read(&mut self, range: Range) -> Ended {
        let isolation = level(&self.db, self.shape.isolation);
        let TxbenchClient {
            db, sums, random, ..
        } = self;
        until_read(db, (KINDS, READ), random, |tx| {
            tx.set_isolation(isolation)?;
            range.check(tx, sums)
        })
    }

    fn update(&mut self, range: Range) -> Ended {
        let table = (range.table + 1) % TABLES.len();
        let field = self.draw_update();
        let isolation = level(&self.db, self.shape.isolation);
        let TxbenchClient {
            db,
            sums,
            random,
            keys,
            text,
            ..
        } = self;
        let mut began = Instant::now();
        let ended = until_committed(db, (KINDS, UPDATE), random, |tx| {
            began = Instant::now();
            tx.set_isolation(isolation)?;
            range.check(tx, sums)?;
            keys.iter()
                .try_for_each(|&key| write(tx, table, key, field, text))
        });
        if let Some(stamper) = self
            .stamper
            .as_mut()
            .filter(|_| ended.outcome == Outcome::Ok)
        {
            stamper.notes.note(Update {
                stamp: stamp::stamp(stamper.run, stamper.client, self.sequence),
                began,
                ended: Instant::now(),
                table,
                field,
                keys: self.keys.clone(),
            });
        }
        ended
    }
}

impl Client for TxbenchClient {
    fn transaction(&mut self) -> Ended {
        let range = Range::draw(&mut self.random, &self.shape);
        let updates = self.shape.updates > 0 && self.random.percent(self.shape.updates);
        if updates {
            self.update(range)
        } else {
            self.read(range)
        }
    }
}

/// The rows a transaction reads: keys `after` + 1 ..= `to`.
#[derive(Debug, Clone, Copy)]
struct Range {
    table: usize,
    after: u32,
    to: u32,
    factor: i64,
}

impl Range {
    fn draw(random: &mut Random, shape: &Shape) -> Range {
        let table = random.uniform(0, TABLES.len() as u64 - 1) as usize;
        let after = random.uniform(0, u64::from(shape.reach() - shape.size)) as u32;
        let factor = random.uniform(1, 1_000) as i64;
        Range {
            table,
            after,
            to: after + shape.size,
            factor,
        }
    }

    /// Reads the rows and compares their sum with the one known.
    fn check(self, tx: &mut Transaction, sums: &Sums) -> Result<(), Failure> {
        let (mut sum, mut rows) = (0, 0);
        tx.range(&TABLES[self.table], self.after + 1..=self.to)
            .for_each_bytes(|_, row| {
                if let Some(value) = row::value(row) {
                    sum += i64::from(value);
                    rows += 1;
                }
            })?;
        let expected = sums.between(self.table, self.after, self.to);
        if sum != expected || rows != self.to - self.after {
            return Err(Failure::Wrong(format!(
                "rows {}..={} of {} add up to {sum} over {rows} rows, not to {expected} over {}",
                self.after + 1,
                self.to,
                TABLES[self.table].name(),
                self.to - self.after
            )));
        }
        // The workload multiplies the sum by a random number; the product is not needed.
        black_box(sum * self.factor);
        Ok(())
    }
}

fn write(
    tx: &mut Transaction,
    table: usize,
    key: u32,
    field: usize,
    text: &[u8; FIELD_BYTES],
) -> Result<(), Failure> {
    let found = tx.get_for_update(&TABLES[table], &key)?;
    let Some(mut row) = found.filter(|row| row.len() == ROW_BYTES) else {
        return Err(Failure::Wrong(format!(
            "row {key} of {} is gone",
            TABLES[table].name()
        )));
    };
    row::set_field(&mut row, field, text);
    Ok(tx.put(&TABLES[table], &key, &row)?)
}
