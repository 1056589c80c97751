//! Random transactions over both components.
//!
//! Each client has keys of its own, so no request waits for a lock, and the rows after each commit
//! are known. Now and then all transactions end, and the rows are compared while the database runs.

use super::{
    LATER, PAGE_BYTES, Rows, Setting, TABLES, check_indexes, difference, read, table, without_panic,
};
use crate::ledger::mix;
use foxton::{Database, Durability, Error, Savepoint, Transaction};
use foxton_log::device::fault::{FaultDevice, Recording};
use std::fmt;

/// Number of clients.
const CLIENTS: u64 = 3;
/// Number of keys of each table.
const KEYS: u64 = 90;
/// Number of steps after which all transactions end.
const ROUND: usize = 50;
/// Number of changes that a client makes at once, now and then.
const BURST: u64 = 40;

/// Random numbers from a seed.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(mix(seed))
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % limit
    }
}

/// The end of a run.
#[derive(Debug)]
pub enum Trouble {
    /// An error of the database.
    Database(Error),
    /// Rows that differ from those expected.
    Wrong(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Database(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Database(error) => write!(f, "{} ({error})", error.code()),
            Trouble::Wrong(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Trouble {}

/// The commits of a run: what may be found after it.
#[derive(Debug, Clone)]
pub struct Commits {
    /// The rows in the beginning, and after each commit.
    states: Vec<Rows>,
    /// Number of recorded changes when each commit began.
    begun: Vec<usize>,
    /// Commits that were acknowledged as durable, and the number of changes then.
    acknowledged: Vec<(usize, usize)>,
}

impl Commits {
    /// Returns the commits of a run that begins with `rows`.
    pub fn new(rows: Rows) -> Commits {
        Commits {
            states: vec![rows],
            begun: Vec::new(),
            acknowledged: Vec::new(),
        }
    }

    /// Returns the rows after the last commit.
    pub fn last(&self) -> &Rows {
        self.states.last().expect("there is one in the beginning")
    }

    /// Returns the rows that may be found after `cut` changes.
    pub fn expected(&self, cut: usize) -> &[Rows] {
        let acknowledged = self.acknowledged.iter().filter(|(_, at)| *at <= cut);
        let must = acknowledged.map(|(commit, _)| *commit).max().unwrap_or(0);
        let may = self.begun.partition_point(|begun| *begun < cut);
        &self.states[must..=may.max(must)]
    }

    /// Returns the rows that may be found after `cut` changes if no promise is kept.
    pub fn possible(&self, cut: usize) -> &[Rows] {
        &self.states[..=self.begun.partition_point(|begun| *begun < cut)]
    }
}

/// A recorded run.
#[derive(Debug)]
pub struct Run {
    pub(super) setting: Setting,
    pub(super) recording: Recording,
    pub(super) commits: Commits,
}

impl Run {
    /// Records a run on an empty directory. Some databases are closed in the end.
    ///
    /// # Errors
    ///
    /// If anything fails, or the rows are wrong.
    pub fn record(setting: Setting) -> Result<Run, Trouble> {
        let device = FaultDevice::new();
        device.record();
        let mut commits = Commits::new(Rows::new());
        let db = setting.open(device.clone())?;
        play(&db, &device, setting, &mut commits)?;
        let recording = || device.recording().expect("it was recording");
        let recording = match setting.seed % 2 {
            0 => recording(),
            _ => {
                db.close()?;
                recording()
            }
        };
        Ok(Run {
            setting,
            recording,
            commits,
        })
    }

    /// Number of changes that were recorded.
    pub fn changes(&self) -> usize {
        self.recording.len()
    }
}

/// Plays the clients of `setting` on an open database, and records their commits.
///
/// # Errors
///
/// If anything fails, or the rows are wrong. Transactions that are open are rolled back.
pub fn play(
    db: &Database,
    device: &FaultDevice,
    setting: Setting,
    commits: &mut Commits,
) -> Result<(), Trouble> {
    let mut player = Player {
        db,
        device,
        commits,
        random: Random::new(setting.seed),
        clients: (0..CLIENTS).map(|_| Client::default()).collect(),
        later: 0,
        is_failing: setting.is_failing,
    };
    // Transactions that make a table wait for each other.
    player.begin_tables(0..TABLES.len())?;
    player.shrink_beside_splits()?;
    for step in 1..=setting.steps {
        player.step()?;
        if step % ROUND == 0 {
            player.end_round()?;
        }
    }
    Ok(())
}

/// A row, and its value if it has one.
type Change = ((usize, Vec<u8>), Option<Vec<u8>>);

#[derive(Default)]
struct Client {
    transaction: Option<Transaction>,
    done: Vec<Change>,
    savepoints: Vec<(Savepoint, usize)>,
}

struct Player<'p> {
    db: &'p Database,
    device: &'p FaultDevice,
    commits: &'p mut Commits,
    random: Random,
    clients: Vec<Client>,
    /// Number of tables that were made later.
    later: usize,
    is_failing: bool,
}

/// Returns a key of a page's size: some share a long prefix, and some are long.
fn key(number: u64) -> Vec<u8> {
    match number % 5 {
        0 => format!("a long prefix that a fifth of all keys have in common/{number:03}").into(),
        1 => vec![b'z'; 1 + number as usize],
        _ => format!("{number:03}").into(),
    }
}

impl Player<'_> {
    fn begin_tables(&mut self, numbers: std::ops::Range<usize>) -> Result<(), Trouble> {
        let changes: Vec<Change> = numbers
            .map(|number| ((number, key(2)), Some(b"first".to_vec())))
            .collect();
        let mut transaction = self.db.begin()?;
        for (key, value) in &changes {
            apply(&mut transaction, key, value.as_deref())?;
        }
        self.commit(transaction, changes)
    }

    /// Leaves a transaction open that made rows short, in pages that others have split and filled
    /// since. Its undo needs the space that the rows had.
    fn shrink_beside_splits(&mut self) -> Result<(), Trouble> {
        const TABLE: usize = 1;
        let write = |player: &mut Self, client: usize, bytes: usize| -> Result<(), Trouble> {
            // Neighbours in the tree.
            let numbers = (client as u64..KEYS).step_by(CLIENTS as usize);
            for number in numbers.filter(|number| number % 5 > 1) {
                player.put_or_delete(client, (TABLE, key(number)), Some(vec![9; bytes]))?;
            }
            Ok(())
        };
        write(self, 0, PAGE_BYTES / 4 - 100)?;
        self.end(0, false)?;
        write(self, 0, 0)?;
        for client in 1..CLIENTS as usize {
            write(self, client, PAGE_BYTES / 4 - 100)?;
            self.end(client, false)?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Trouble> {
        let client = self.random.below(CLIENTS) as usize;
        match self.random.below(100) {
            0..2 => drop(self.db.checkpoint()?),
            2..4 => {
                self.db.sync()?;
                self.acknowledge();
            }
            4..10 => {
                let client = &mut self.clients[client];
                if let Some(transaction) = &mut client.transaction {
                    let savepoint = transaction.savepoint()?;
                    client.savepoints.push((savepoint, client.done.len()));
                }
            }
            10..14 => self.roll_back_to(client)?,
            14..21 => self.end(client, false)?,
            21..24 => self.end(client, true)?,
            24 => {
                // Values get short, and their undo needs the space that they had. Or they get long,
                // and need space.
                let table = self.random.below(TABLES.len() as u64) as usize;
                let bytes = [0, PAGE_BYTES / 4 - 100][self.random.below(2) as usize];
                for _ in 0..BURST {
                    let value = vec![7; bytes];
                    self.change(client, table, Some(value))?;
                }
            }
            _ => self.change_any(client)?,
        }
        Ok(())
    }

    fn change_any(&mut self, client: usize) -> Result<(), Trouble> {
        let table = self.random.below((TABLES.len() + self.later) as u64) as usize;
        let draw = self.random.below(100);
        // The longest have parts in several pages.
        let bytes = match self.random.below(40) {
            0..2 => 1 + self.random.below(4 * PAGE_BYTES as u64),
            2..15 => self.random.below((PAGE_BYTES / 4 - 100) as u64),
            15..22 => 0,
            _ => self.random.below(100),
        };
        let value = (draw >= 25).then(|| vec![draw as u8; bytes as usize]);
        self.change(client, table, value)
    }

    fn change(
        &mut self,
        client: usize,
        table: usize,
        value: Option<Vec<u8>>,
    ) -> Result<(), Trouble> {
        let number = self.random.below(KEYS / CLIENTS) * CLIENTS + client as u64;
        self.put_or_delete(client, (table, key(number)), value)
    }

    fn put_or_delete(
        &mut self,
        client: usize,
        key: (usize, Vec<u8>),
        value: Option<Vec<u8>>,
    ) -> Result<(), Trouble> {
        let client = &mut self.clients[client];
        let transaction = match &mut client.transaction {
            Some(transaction) => transaction,
            none => none.insert(self.db.begin()?),
        };
        apply(transaction, &key, value.as_deref())?;
        client.done.push((key, value));
        Ok(())
    }

    fn roll_back_to(&mut self, client: usize) -> Result<(), Trouble> {
        let client = &mut self.clients[client];
        let count = client.savepoints.len() as u64;
        let (Some(transaction), 1..) = (&mut client.transaction, count) else {
            return Ok(());
        };
        let index = self.random.below(count) as usize;
        transaction.rollback_to(&client.savepoints[index].0)?;
        client.done.truncate(client.savepoints[index].1);
        client.savepoints.truncate(index + 1);
        Ok(())
    }

    /// Ends a transaction: undoes it, or commits it.
    fn end(&mut self, client: usize, undoes: bool) -> Result<(), Trouble> {
        let Client {
            transaction, done, ..
        } = std::mem::take(&mut self.clients[client]);
        match transaction {
            Some(transaction) if undoes => {
                transaction.rollback();
                Ok(())
            }
            Some(transaction) => self.commit(transaction, done),
            None => Ok(()),
        }
    }

    fn commit(&mut self, mut transaction: Transaction, done: Vec<Change>) -> Result<(), Trouble> {
        let durability = Durability::ALL[self.random.below(3) as usize];
        transaction.set_durability(durability);
        let mut rows = self.commits.last().clone();
        for (key, value) in done {
            match value {
                Some(value) => rows.insert(key, value),
                None => rows.remove(&key),
            };
        }
        // One that changes nothing does not wait for those before it.
        let waits = durability == Durability::Sync && rows != *self.commits.last();
        self.commits.begun.push(self.device.recorded());
        self.commits.states.push(rows);
        transaction.commit()?;
        if waits {
            self.acknowledge();
        }
        Ok(())
    }

    /// Records that all commits are durable.
    fn acknowledge(&mut self) {
        let last = self.commits.states.len() - 1;
        let now = self.device.recorded();
        self.commits.acknowledged.push((last, now));
    }

    /// Ends all transactions, compares the rows, verifies every tree, and makes a table.
    fn end_round(&mut self) -> Result<(), Trouble> {
        for client in 0..self.clients.len() {
            let undoes = self.random.below(3) == 0;
            self.end(client, undoes)?;
        }
        let found = read(self.db)?;
        if found != *self.commits.last() {
            let differs = difference(&found, self.commits.last());
            return Err(Trouble::Wrong(format!("while it runs: {differs}")));
        }
        check_indexes(self.db, &found)?.map_err(Trouble::Wrong)?;
        if !self.is_failing {
            let verified = without_panic(|| {
                self.db.verify();
                Ok(())
            });
            verified.map_err(Trouble::Wrong)?;
        }
        if self.later < LATER.len() {
            let next = TABLES.len() + self.later;
            self.begin_tables(next..next + 1)?;
            self.later += 1;
        }
        Ok(())
    }
}

/// Puts or deletes a row.
pub(super) fn apply(
    transaction: &mut Transaction,
    (number, key): &(usize, Vec<u8>),
    value: Option<&[u8]>,
) -> foxton::Result<()> {
    match value {
        Some(value) => transaction.put(table(*number), key, value),
        None => transaction.delete(table(*number), key).map(drop),
    }
}
