//! Power cuts of databases with resident and paged tables, at every moment.
//!
//! One thread plays several clients, whose transactions are open at once. They put and delete rows
//! of resident and paged tables, set savepoints, roll back and commit, with every durability. Some
//! values are longer than a page. A table of each component has two secondary indexes, one of them
//! unique. Pages have 1 KiB and the pool has few frames, so pages are split, stolen and evicted all
//! the time. In between, tables are made and checkpoints are requested. The cleaner and the
//! checkpoint thread work besides.
//!
//! All changes of files are recorded. After each of them the power is cut, and the rows that a
//! restart finds must be those after some commit that may be the last one, by each index too. The
//! restart is cut, too, with the transactions behind it, and the restart of that.
//!
//! Everything that the clients do follows from a seed, which a failure prints. The threads of the
//! database do not, so a recording is not the same each time. A failure has the image.

/// Random transactions over both components, recorded.
pub mod load;

/// Power cuts at every moment of a recorded run.
pub mod cuts;

use crate::ledger::mix;
use crate::victim::{self, FRAMES, set_small_pages};
use foxton::{Database, Index, Options, Table};
use foxton_log::device::Device;
use foxton_sync::failpoint::Failpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Tables that every run begins with.
const TABLES: [Table<[u8], [u8]>; 3] = [
    Table::new("paged").paged(),
    Table::new("other").paged(),
    Table::new("resident").resident(),
];
/// Table numbers of [`Rows`] that have indexes: one of each component.
const INDEXED: [usize; 2] = [0, 2];
/// The length of the value and its first byte, so that most changes move the entry.
type ValueIndex = Index<(u32, u8), [u8], [u8]>;
/// By value, a large one too.
const BY_VALUE: [ValueIndex; 2] = [
    Index::new("paged by value", &TABLES[INDEXED[0]], |_, value, keys| {
        keys.add(&value_key(value));
    }),
    Index::new(
        "resident by value",
        &TABLES[INDEXED[1]],
        |_, value, keys| {
            keys.add(&value_key(value));
        },
    ),
];
/// By the key, backwards.
const BY_END: [Index<[u8], [u8], [u8]>; 2] = [
    Index::unique("paged by end", &TABLES[INDEXED[0]], |key, _, keys| {
        keys.add(&end_key(key)[..]);
    }),
    Index::unique("resident by end", &TABLES[INDEXED[1]], |key, _, keys| {
        keys.add(&end_key(key)[..]);
    }),
];
/// Tables that are made later.
const LATER: [Table<[u8], [u8]>; 4] = [
    Table::new("later 1").paged(),
    Table::new("later 2").resident(),
    Table::new("later 3").paged(),
    Table::new("later 4").paged(),
];
/// Bytes of a page.
const PAGE_BYTES: usize = 1 << 10;

/// How often the cleaner yields before it syncs the pages that it has written.
#[cfg(feature = "hooks")]
const YIELDS: u32 = 20;

/// Rows by table and key.
pub type Rows = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

/// Parameters of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Seed of every choice.
    pub seed: u64,
    /// Number of steps of all clients together.
    pub steps: usize,
    /// The injected fault, if any. It needs the feature `hooks`.
    pub fault: Option<Failpoint>,
    /// True if calls of the device may fail. Then no tree is verified while the run lasts.
    pub is_failing: bool,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting {
            seed, steps, fault, ..
        } = self;
        write!(f, "run {seed} of {steps} steps")?;
        fault.map_or(Ok(()), |fault| write!(f, ", fault {fault}"))
    }
}

impl Setting {
    /// Opens a database on `device`, with options drawn from the seed.
    ///
    /// # Errors
    ///
    /// Any error of the database.
    pub fn open(&self, device: impl Device + 'static) -> foxton::Result<Database> {
        Database::open_on(Arc::new(device), self.options())
    }

    fn options(&self) -> Options {
        let mut options = victim::options(self.seed);
        let more = mix(self.seed ^ 11) as usize % FRAMES;
        set_small_pages(&mut options, FRAMES + more);
        for (by_value, by_end) in BY_VALUE.iter().zip(&BY_END) {
            options.indexes.add(by_value).add(by_end);
        }
        options.page_batch = [3, 8, 128][(mix(self.seed ^ 13) % 3) as usize];
        options.restart_threads = 1 + (mix(self.seed ^ 12) % 2) as usize;
        #[cfg(feature = "hooks")]
        {
            let failpoints = foxton_sync::failpoint::Failpoints::default();
            self.fault.inspect(|fault| failpoints.arm(fault));
            // So that rows change before the sync.
            failpoints.set(&foxton_store::failpoint::PAGES_WRITTEN, |_| {
                (0..YIELDS).for_each(|_| std::thread::yield_now());
                Ok(())
            });
            options.failpoints = Some(failpoints);
        }
        options
    }
}

fn value_key(value: &[u8]) -> (u32, u8) {
    (value.len() as u32, value.first().copied().unwrap_or(0))
}

fn end_key(key: &[u8]) -> Vec<u8> {
    key.iter().rev().copied().collect()
}

/// Compares the indexes with `rows`, which are those of the database.
///
/// # Errors
///
/// Any error of the database, and the first index with other rows.
pub fn check_indexes(db: &Database, rows: &Rows) -> foxton::Result<Result<(), String>> {
    if let Some(finding) = db.check_indexes()?.first() {
        return Ok(Err(format!("an index differs from its table: {finding}")));
    }
    db.run(|tx| {
        for (at, number) in INDEXED.into_iter().enumerate() {
            let of_table = || rows.iter().filter(|((table, _), _)| *table == number);
            let found = tx.range_by(&BY_VALUE[at], ..).collect()?.into_iter();
            let found: BTreeSet<_> = found.map(|(key, row, _)| (key, row)).collect();
            let expected = of_table().map(|((_, row), value)| (value_key(value), row.clone()));
            if found != expected.collect() {
                return Ok(Err(format!("{} has other rows", BY_VALUE[at].name())));
            }
            let found = tx.range_by(&BY_END[at], ..).collect()?.into_iter();
            let found = found.collect::<BTreeSet<_>>();
            let expected =
                of_table().map(|((_, row), value)| (end_key(row), row.clone(), value.clone()));
            if found != expected.collect() {
                return Ok(Err(format!("{} has other rows", BY_END[at].name())));
            }
        }
        Ok(Ok(()))
    })
}

/// Returns the declaration of a table, by its number in [`Rows`].
fn table(number: usize) -> &'static Table<[u8], [u8]> {
    TABLES
        .get(number)
        .unwrap_or_else(|| &LATER[number - TABLES.len()])
}

/// Returns all rows, read in one transaction.
///
/// # Errors
///
/// Any error of the database.
pub fn read(db: &Database) -> foxton::Result<Rows> {
    db.run(|tx| {
        let mut rows = Rows::new();
        for number in 0..TABLES.len() + LATER.len() {
            let found = tx.range(table(number), ..).collect()?;
            rows.extend(found.into_iter().map(|(key, value)| ((number, key), value)));
        }
        Ok(rows)
    })
}

/// Says in a few words how the rows that were found differ.
fn difference(found: &Rows, expected: &Rows) -> String {
    let name = |(number, key): &(usize, Vec<u8>)| {
        let key = String::from_utf8_lossy(&key[..key.len().min(60)]).into_owned();
        format!("{} {key}", table(*number).name())
    };
    let lost = expected
        .iter()
        .find(|(key, value)| found.get(*key) != Some(*value));
    let extra = found.keys().find(|key| !expected.contains_key(*key));
    let (lost, extra) = (lost.map(|(key, _)| name(key)), extra.map(name));
    format!("lost or different {lost:?}, unexpected {extra:?}")
}

/// Calls `body`; a panic is an error.
fn without_panic<R>(body: impl FnOnce() -> Result<R, String>) -> Result<R, String> {
    let result = catch_unwind(AssertUnwindSafe(body));
    result.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| {
            payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
        });
        Err(format!("it panicked: {}", text.unwrap_or_default()))
    })
}
