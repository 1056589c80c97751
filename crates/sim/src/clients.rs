//! Random transactions of many clients, with every answer recorded.
//!
//! * Point reads, of one key and of many at once, and reads of ranges: shared, for update and
//!   exclusive. They wait, are refused instead of waiting, or skip locked rows. Ranges go upwards
//!   and downwards, whole and with a limit.
//! * The same reads by two indexes, one of them unique.
//! * Writes of every kind, some of them on keys that were just read or just deleted.
//! * Savepoints that are rolled back to or released. One transaction of ten is rolled back.
//! * Rows of one table, or the odd ones in a table of pages (`is_split`).
//! * Transactions of other levels, and reads at handles of snapshots (`Levels`). Half of the
//!   handles are shared by all clients, and are older than the transactions that read there.
//!
//! A range that is locked at `Snapshot` shows the rows of the snapshot, and each of them stays as
//! it is to the end. So both are recorded.
//!
//! Few keys make conflicts; many keys make gaps, and leaves that split and disappear.

use crate::{
    history::{By, End, History, Kept, Labels, Record, Scan, Step, Version, Written},
    ledger::mix,
    level::{kept, kept_of_found},
};
use foxton::error::{ConflictReason, Request};
use foxton::{
    Database, Error, Index, Isolation, Lock, LockOptions, LockWait, Options, Result, Savepoint,
    Snapshot, Table, Transaction,
};
use foxton_log::Lsn;
use foxton_sync::shim::{self, Mutex};
use source::Source;
use std::time::{Duration, Instant};
use std::{collections::BTreeMap, thread};

/// Sources of reads.
mod source;

/// A version and its labels: a name plus 1, or 0 for none, and a group.
type Row = (u64, u64, u64);

const ROWS: Table<u64, Row> = Table::new("rows");
const ODD_ROWS: Table<u64, Row> = Table::new("odd_rows").paged();
const NAMES: Index<u64, u64, Row> = Index::unique("rows_by_name", &ROWS, |_, row, keys| {
    if row.1 > 0 {
        keys.add(&(row.1 - 1));
    }
});
const GROUPS: Index<u64, u64, Row> =
    Index::new("rows_by_group", &ROWS, |_, row, keys| keys.add(&row.2));

/// Declares the indexes that clients read by, if their [`Plan`] says so.
pub fn declare(options: &mut Options) {
    options.indexes.add(&NAMES).add(&GROUPS);
}

/// Parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Seed of every choice.
    pub seed: u64,
    /// Number of threads; at most 4,000.
    pub clients: u16,
    /// Number of transactions of each client that commit.
    pub count: u64,
    /// Keys are below this.
    pub keys: u64,
    /// Largest number of operations of a transaction.
    pub steps: u64,
    /// Largest number of keys between the ends of a range; of names and groups, no more than 12.
    pub width: u64,
    /// A client yields before one step of this many; 0 for never. With more threads than cores,
    /// transactions would otherwise run one after the other most of the time.
    pub yields: u64,
    /// True if rows are found by indexes, too, which the database must [have](declare).
    pub indexed: bool,
    /// True if the rows with odd keys are in a table of pages of their own. Indexes do not find
    /// them.
    pub is_split: bool,
    /// Levels of the transactions.
    pub levels: Levels,
}

/// Levels of the transactions of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Levels {
    /// The database's.
    One,
    /// The database's. One transaction of four only reads, at the handle of a snapshot.
    Readers,
    /// Each transaction draws its own, or only reads, at the handle of a snapshot.
    Mixed,
}

/// The handle of a snapshot, and a moment before it began.
type Handle = (Snapshot, u64);

impl Plan {
    fn labels(&self) -> Labels {
        match self.indexed {
            true => Labels::for_keys(self.keys),
            false => Labels::None,
        }
    }

    /// Returns the table of a key.
    fn table(&self, key: u64) -> Table<u64, Row> {
        match self.is_split && key % 2 == 1 {
            true => ODD_ROWS,
            false => ROWS,
        }
    }

    fn tables(&self) -> &'static [Table<u64, Row>] {
        match self.is_split {
            true => &[ROWS, ODD_ROWS],
            false => &[ROWS],
        }
    }
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct Ran {
    /// Every answer.
    pub history: History,
    /// Rows afterwards.
    pub end: BTreeMap<u64, Version>,
    /// Number of transactions that a deadlock ended.
    pub deadlocks: u64,
    /// Number of transactions that took as long as a lock may be waited for. With such short
    /// transactions, that means a lost wake-up, or a deadlock that was not found.
    pub stalled: u64,
}

/// Runs `plan` on `db`, whose rows are `start`, and whose clients have run `before` transactions
/// each.
///
/// # Errors
///
/// Any error of the database but conflicts, whose transactions are run again.
///
/// # Panics
///
/// If the plan has both indexes and split rows.
pub fn run(db: &Database, plan: Plan, start: BTreeMap<u64, Version>, before: u64) -> Result<Ran> {
    assert!(!(plan.indexed && plan.is_split), "indexes are of one table");
    let zero = Instant::now();
    let shared = Mutex::new(None);
    let shared = &shared;
    let clients = thread::scope(|scope| {
        let clients: Vec<_> = (0..plan.clients)
            .map(|id| {
                let record = Record::new(id, before);
                let random = Random(mix(plan.seed) ^ mix(u64::from(id) + (before << 12)));
                let client = Client {
                    db,
                    plan,
                    zero,
                    shared,
                    random,
                    record,
                    labels: plan.labels(),
                    level: db.options().isolation,
                    saved: Vec::new(),
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
    ran.history.labels = plan.labels();
    for client in clients {
        ran.deadlocks += client.deadlocks;
        ran.stalled += client.stalled;
        ran.history.records.push(client.record);
    }
    Ok(ran)
}

/// Returns the rows of `db`.
///
/// # Errors
///
/// Any error of the database.
pub fn rows(db: &Database) -> Result<BTreeMap<u64, Version>> {
    let tables = [ROWS, ODD_ROWS].iter();
    let rows = db.run(|tx| {
        tables
            .clone()
            .map(|table| tx.range(table, ..).collect())
            .collect()
    })?;
    let rows: Vec<Vec<(u64, Row)>> = rows;
    Ok(rows
        .into_iter()
        .flatten()
        .map(|(key, (value, ..))| (key, Version::from_value(value)))
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
    /// The handle that all clients share, if there is one at the moment.
    shared: &'a Mutex<Option<Handle>>,
    random: Random,
    record: Record,
    labels: Labels,
    /// Level of the current transaction.
    level: Isolation,
    saved: Vec<Savepoint>,
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

    /// Draws the level of the next transaction; `None` for the handle of a snapshot.
    fn draw_level(&mut self) -> Option<Isolation> {
        let own = self.db.options().isolation;
        match self.plan.levels {
            Levels::One => Some(own),
            Levels::Readers => (self.random.below(4) > 0).then_some(own),
            Levels::Mixed => match self.random.below(6) as usize {
                4 => Some(Isolation::Snapshot),
                drawn => Isolation::LOCKING.get(drawn).copied(),
            },
        }
    }

    fn transaction(&mut self) -> Result<End> {
        let Some(level) = self.draw_level() else {
            return self.read_at_handle();
        };
        let mut tx = self.db.begin()?;
        self.level = level;
        tx.set_isolation(level)?;
        self.saved.clear();
        let count = 1 + self.random.below(self.plan.steps);
        (0..count).try_for_each(|_| self.step(&mut tx))?;
        if self.random.below(10) == 0 {
            tx.rollback();
            return Ok(End::RolledBack);
        }
        self.record.at_snapshot(tx.snapshot_lsn().map(Lsn::bytes));
        Ok(End::Committed(tx.commit_at()?.bytes()))
    }

    /// Returns a handle of a snapshot: a new one, or the one that is shared.
    fn handle(&mut self) -> Result<Handle> {
        if self.random.below(2) == 0 {
            let now = self.now();
            return Ok((self.db.snapshot()?, now));
        }
        let renews = self.random.below(8) == 0;
        let mut shared = shim::lock(self.shared);
        if let Some(handle) = shared.as_ref().filter(|_| !renews) {
            return Ok(handle.clone());
        }
        let now = self.now();
        let handle = (self.db.snapshot()?, now);
        let former = shared.replace(handle.clone());
        drop((shared, former));
        Ok(handle)
    }

    /// A transaction that only reads, at the handle of a snapshot.
    fn read_at_handle(&mut self) -> Result<End> {
        let (snapshot, begun) = self.handle()?;
        self.level = Isolation::Snapshot;
        self.record.begin(begun);
        let count = 1 + self.random.below(self.plan.steps);
        for _ in 0..count {
            self.pause();
            let key = self.random.below(self.plan.keys);
            let source = &mut Source::Snapshot(&snapshot);
            match self.random.below(if self.plan.indexed { 8 } else { 4 }) {
                0 => self.get_many(source, key)?,
                1 => self.get(source, key, Lock::Shared.into())?,
                2 | 3 => self.scan(source, By::Key)?,
                4 => self.get_by(source)?,
                5 | 6 => self.scan(source, By::Name)?,
                _ => self.scan(source, By::Group)?,
            }
        }
        let place = snapshot.lsn().bytes();
        self.record.at_snapshot(Some(place));
        snapshot.end()?;
        Ok(End::Committed(place))
    }

    fn pause(&mut self) {
        if self.plan.yields > 0 && self.random.below(self.plan.yields) == 0 {
            thread::yield_now();
        }
    }

    fn step(&mut self, tx: &mut Transaction) -> Result<()> {
        self.pause();
        let key = self.random.below(self.plan.keys);
        let choice = self.random.below(if self.plan.indexed { 20 } else { 15 });
        let source = &mut Source::Transaction(tx);
        match choice {
            0 => return self.get_many(source, key),
            1 => return self.get(source, key, Lock::Shared.into()),
            2 => {
                let lock = self.lock();
                return self.get(source, key, lock);
            }
            3..=5 => return self.scan(source, By::Key),
            6 => self.get(source, key, Lock::Shared.into())?,
            15 => return self.get_by(source),
            16 | 17 => return self.scan(source, By::Name),
            18.. => return self.scan(source, By::Group),
            _ => {}
        }
        match choice {
            6 => self.put(tx, key),
            7 => self.put(tx, key),
            8 | 9 => self.insert(tx, key),
            10 | 11 => self.delete(tx, key),
            12 => {
                self.delete(tx, key)?;
                self.insert(tx, key)
            }
            _ => self.savepoint(tx),
        }
    }

    /// Draws options of a lock, mostly the default ones.
    fn lock(&mut self) -> LockOptions {
        let lock = match self.random.below(8) {
            0..5 => Lock::Shared,
            5 | 6 => Lock::Update,
            _ => Lock::Exclusive,
        };
        match self.random.below(8) {
            0 => lock.nowait(),
            1 => lock.skip_locked(),
            _ => lock.into(),
        }
    }

    /// Records a read unless it shows nothing: because it was refused instead of waiting, or
    /// because it found nothing and may have skipped something.
    fn note_read<T>(&mut self, read: Result<T>, note: impl FnOnce(&mut Self, T)) -> Result<()> {
        match read {
            Ok(found) => {
                note(self, found);
                Ok(())
            }
            Err(Error::Conflict(conflict)) if conflict.reason() == ConflictReason::Busy => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn get(&mut self, source: &mut Source<'_>, key: u64, lock: LockOptions) -> Result<()> {
        let kept = kept(self.level, lock);
        let found = source.get(&self.plan.table(key), key, lock);
        self.note_read(found, |client, found| {
            if found.is_some() || lock.wait != LockWait::Skip {
                let saw = found.map(|row| Version::from_value(row.0));
                client.record.note(Step::Get(key, saw, kept));
            }
        })
    }

    /// Reads some keys at once, fewer or more than are prefetched together.
    fn get_many(&mut self, source: &mut Source<'_>, first: u64) -> Result<()> {
        let more = self.random.below(20);
        let more = (0..more).map(|_| self.random.below(self.plan.keys));
        let keys: Vec<u64> = std::iter::once(first).chain(more).collect();
        let lock = self.lock();
        let kept = kept(self.level, lock);
        let mut found = Ok(Vec::new());
        for table in self.plan.tables() {
            let of_table = |key: &u64| self.plan.table(*key).name() == table.name();
            let keys: Vec<u64> = keys.iter().copied().filter(of_table).collect();
            found = found.and_then(|mut found: Vec<_>| {
                let read = source.get_many(table, &keys, lock)?;
                found.extend(keys.into_iter().zip(read));
                Ok(found)
            });
        }
        self.note_read(found, |client, found| {
            for (key, found) in found {
                if found.is_some() || lock.wait != LockWait::Skip {
                    let saw = found.map(|row| Version::from_value(row.0));
                    client.record.note(Step::Get(key, saw, kept));
                }
            }
        })
    }

    fn get_by(&mut self, source: &mut Source<'_>) -> Result<()> {
        let Labels::Drawn { names, .. } = self.labels else {
            return Ok(());
        };
        // Names that some row is likely to have.
        let name = match self.random.below(3) {
            0 => self.random.below(names),
            _ => self.random.below(self.plan.keys),
        };
        let lock = self.lock();
        let kept = kept_of_found(self.level, lock);
        let found = source.get_by(name, lock);
        let saw = found.and_then(|found| {
            found.map_or(Ok(None), |(key, row)| {
                let version = self.checked(By::Name, name, key, row, kept)?;
                Ok(Some((key, version)))
            })
        });
        self.note_read(saw, |client, saw| {
            if saw.is_some() || lock.wait != LockWait::Skip {
                client.record.note(Step::GetBy(name, saw, kept));
            }
            client.note_locked(saw, source, lock);
        })
    }

    /// Returns the version of a row that was found by `found`, if it has that label. Without locks
    /// a row may have changed after its entry was read.
    fn checked(&self, by: By, found: u64, key: u64, row: Row, kept: Kept) -> Result<Version> {
        let version = Version::from_value(row.0);
        let is_there = self.labels.position(by, key, version);
        match is_there.is_some_and(|(place, _)| place == found) || kept == Kept::Dirty {
            true => Ok(version),
            false => Err(Error::other(format!(
                "row {key} was found by {} {found} at {:?}, but its version {version} has another",
                by.word(),
                self.level,
            ))),
        }
    }

    fn row(&self, key: u64, version: Version) -> Row {
        let (name, group) = self.labels.of(key, version);
        (version.value(), name.map_or(0, |name| name + 1), group)
    }

    /// Returns the result of a write.
    fn written(wrote: Result<()>) -> Result<Written> {
        match wrote {
            Ok(()) => Ok(Written::Done),
            Err(Error::Request(Request::KeyExists)) => Ok(Written::Exists),
            Err(error) => match error.key_taken() {
                Some(taken) => Ok(Written::Taken(taken.row_as::<u64>()?)),
                None => Err(error),
            },
        }
    }

    fn put(&mut self, tx: &mut Transaction, key: u64) -> Result<()> {
        let version = self.record.version();
        let written = Self::written(tx.put(&self.plan.table(key), &key, &self.row(key, version)))?;
        self.record.note(Step::Put(key, version, written));
        Ok(())
    }

    fn insert(&mut self, tx: &mut Transaction, key: u64) -> Result<()> {
        let version = self.record.version();
        let written =
            Self::written(tx.insert(&self.plan.table(key), &key, &self.row(key, version)))?;
        self.record.note(Step::Insert(key, version, written));
        Ok(())
    }

    fn delete(&mut self, tx: &mut Transaction, key: u64) -> Result<()> {
        let existed = tx.delete(&self.plan.table(key), &key)?;
        self.record.note(Step::Delete(key, existed));
        Ok(())
    }

    /// Sets a savepoint, or rolls back to an open one, or releases one.
    fn savepoint(&mut self, tx: &mut Transaction) -> Result<()> {
        let open = self.saved.len() as u64;
        if open == 0 || self.random.below(3) == 0 {
            self.saved.push(tx.savepoint()?);
            self.record.note(Step::Save);
            return Ok(());
        }
        let at = self.random.below(open) as usize;
        if self.random.below(4) == 0 {
            tx.release_savepoint(&self.saved[at])?;
            self.saved.truncate(at);
            self.record.note(Step::Release(at as u16));
        } else {
            tx.rollback_to(&self.saved[at])?;
            self.saved.truncate(at + 1);
            self.record.note(Step::Back(at as u16));
        }
        Ok(())
    }

    fn scan(&mut self, source: &mut Source<'_>, by: By) -> Result<()> {
        let below = match (by, &self.labels) {
            (By::Group, Labels::Drawn { groups, .. }) => *groups,
            _ => self.plan.keys,
        };
        let width = match by {
            By::Key => self.plan.width,
            By::Name | By::Group => self.plan.width.min(12),
        };
        let from = self.random.below(below);
        let lock = self.lock();
        let scan = Scan {
            reversed: self.random.below(2) == 0,
            limit: [3, u64::MAX][self.random.below(2) as usize],
            skips: lock.wait == LockWait::Skip,
            kept: kept_of_found(self.level, lock),
            ..Scan::of(by, from, from + self.random.below(1 + width))
        };
        let rows = self.rows(source, scan, lock);
        self.note_read(rows, |client, rows| {
            client.record.scan(scan);
            for &(key, version) in &rows {
                client.record.row(key, version);
            }
            client.note_locked(rows, source, lock);
        })
    }

    /// Records that rows which were found at a snapshot, and locked, stay as they are.
    fn note_locked(
        &mut self,
        rows: impl IntoIterator<Item = (u64, Version)>,
        source: &Source<'_>,
        lock: LockOptions,
    ) {
        let is_locked = matches!(source, Source::Transaction(_)) && lock.lock != Lock::Shared;
        if self.level == Isolation::Snapshot && is_locked {
            for (key, version) in rows {
                self.record.note(Step::Get(key, Some(version), Kept::Rows));
            }
        }
    }

    /// Reads the rows of `scan`.
    fn rows(
        &self,
        source: &mut Source<'_>,
        scan: Scan,
        lock: LockOptions,
    ) -> Result<Vec<(u64, Version)>> {
        let rows = source.rows(self.plan.tables(), &scan, lock)?.into_iter();
        rows.map(|(found, key, row)| Ok((key, self.checked(scan.by, found, key, row, scan.kept)?)))
            .collect()
    }
}
