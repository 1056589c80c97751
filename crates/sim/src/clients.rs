//! Random transactions of many clients, every answer noted.
//!
//! Point reads and range reads, shared and for update, upwards and downwards, whole and with a limit;
//! writes of every kind, some of what was read just before; one of ten is rolled back. Few keys make
//! conflicts, many make gaps and leaves that split and go.

use crate::{
    history::{End, History, Record, Step, Version},
    ledger::mix,
};
use foxton::error::{ConflictReason, Request};
use foxton::{Database, Error, Result, Table, Transaction};
use std::time::{Duration, Instant};
use std::{collections::BTreeMap, thread};

const ROWS: Table<u64, u64> = Table::new("rows");

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// What every choice is drawn from.
    pub seed: u64,
    /// Threads; at most 4,000.
    pub clients: u16,
    /// Transactions of each that commit.
    pub count: u64,
    /// Keys are below this.
    pub keys: u64,
    /// Operations of a transaction, at most.
    pub steps: u64,
    /// Keys between the ends of a range, at most.
    pub width: u64,
    /// Before one step of so many a client lets others run; 0 for never. Where threads are more than
    /// cores, transactions would otherwise run one after the other most of the time.
    pub yields: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Ran {
    /// Every answer.
    pub history: History,
    /// The rows afterwards.
    pub end: BTreeMap<u64, Version>,
    /// Transactions that a deadlock ended.
    pub deadlocks: u64,
    /// Transactions that took as long as a lock may be waited for: with transactions as short as these, a
    /// wake-up that was lost, or a deadlock that nobody found.
    pub stalled: u64,
}

/// Runs `plan` on `db`, whose rows are `start`, and whose clients have run `before` transactions each.
///
/// # Errors
///
/// Whatever the database answers, except conflicts: those are run again.
pub fn run(db: &Database, plan: Plan, start: BTreeMap<u64, Version>, before: u64) -> Result<Ran> {
    let zero = Instant::now();
    let clients = thread::scope(|scope| {
        let clients: Vec<_> = (0..plan.clients)
            .map(|id| {
                let record = Record::new(id, before);
                let random = Random(mix(plan.seed) ^ mix(u64::from(id) + (before << 12)));
                let client = Client {
                    db,
                    plan,
                    zero,
                    random,
                    record,
                    deadlocks: 0,
                    stalled: 0,
                };
                scope.spawn(move || client.run())
            })
            .collect();
        let clients = clients
            .into_iter()
            .map(|client| client.join().expect("a client panicked"));
        clients.collect::<Result<Vec<Client<'_>>>>()
    })?;
    let mut ran = Ran {
        end: rows(db)?,
        ..Ran::default()
    };
    ran.history.start = start;
    for client in clients {
        ran.deadlocks += client.deadlocks;
        ran.stalled += client.stalled;
        ran.history.records.push(client.record);
    }
    Ok(ran)
}

/// The rows of `db`.
///
/// # Errors
///
/// Whatever the database answers.
pub fn rows(db: &Database) -> Result<BTreeMap<u64, Version>> {
    let rows = db.run(|tx| tx.range(&ROWS, ..).collect())?;
    let rows = rows.into_iter();
    Ok(rows
        .map(|(key, value)| (key, Version::from_value(value)))
        .collect())
}

/// A client's source of choices.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % bound
    }
}

struct Client<'a> {
    db: &'a Database,
    plan: Plan,
    zero: Instant,
    random: Random,
    record: Record,
    deadlocks: u64,
    stalled: u64,
}

impl Client<'_> {
    fn now(&self) -> u64 {
        u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn run(mut self) -> Result<Self> {
        let mut committed = 0;
        while committed < self.plan.count {
            let now = self.now();
            self.record.begin(now);
            let end = match self.transaction() {
                Ok(end) => end,
                Err(Error::Conflict(conflict)) => {
                    self.deadlocks += u64::from(conflict.reason() == ConflictReason::Deadlock);
                    End::RolledBack
                }
                Err(error) => return Err(error),
            };
            committed += u64::from(end != End::RolledBack);
            let (begun, now) = (now, self.now());
            let longest = self.db.options().lock_wait;
            self.stalled += u64::from(Duration::from_nanos(now - begun) >= longest);
            self.record.end(end, now);
        }
        Ok(self)
    }

    fn transaction(&mut self) -> Result<End> {
        let mut tx = self.db.begin()?;
        let count = 1 + self.random.below(self.plan.steps);
        (0..count).try_for_each(|_| self.step(&mut tx))?;
        if self.random.below(10) == 0 {
            tx.rollback();
            return Ok(End::RolledBack);
        }
        Ok(End::Committed(tx.commit_at()?.bytes()))
    }

    fn step(&mut self, tx: &mut Transaction) -> Result<()> {
        if self.plan.yields > 0 && self.random.below(self.plan.yields) == 0 {
            thread::yield_now();
        }
        let key = self.random.below(self.plan.keys);
        let step = match self.random.below(12) {
            0 | 1 => Step::Get(key, tx.get(&ROWS, &key)?.map(Version::from_value)),
            2 => {
                let found = tx.get_for_update(&ROWS, &key)?;
                Step::Get(key, found.map(Version::from_value))
            }
            3..=5 => return self.scan(tx, key),
            6 => {
                let found = tx.get(&ROWS, &key)?;
                self.record
                    .note(Step::Get(key, found.map(Version::from_value)));
                self.put(tx, key)?
            }
            7 => self.put(tx, key)?,
            8 | 9 => {
                let version = self.record.version();
                match tx.insert(&ROWS, &key, &version.value()) {
                    Ok(()) => Step::Insert(key, version, true),
                    Err(Error::Request(Request::KeyExists)) => Step::Insert(key, version, false),
                    Err(error) => return Err(error),
                }
            }
            _ => Step::Delete(key, tx.delete(&ROWS, &key)?),
        };
        self.record.note(step);
        Ok(())
    }

    fn put(&self, tx: &mut Transaction, key: u64) -> Result<Step> {
        let version = self.record.version();
        tx.put(&ROWS, &key, &version.value())?;
        Ok(Step::Put(key, version))
    }

    fn scan(&mut self, tx: &mut Transaction, from: u64) -> Result<()> {
        let to = from + self.random.below(1 + self.plan.width);
        let reversed = self.random.below(2) == 0;
        let limit = if self.random.below(2) == 0 {
            3
        } else {
            u64::MAX
        };
        let range = tx.range(&ROWS, from..=to).limit(limit);
        let range = match reversed {
            true => range.reversed(),
            false => range,
        };
        self.record.scan(from, to, reversed, limit);
        let record = &mut self.record;
        range.for_each(|key, value| record.row(key, Version::from_value(value)))
    }
}
