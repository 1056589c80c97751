//! Power cuts of databases with resident and paged tables, at every moment.
//!
//! One thread plays several clients, whose transactions are open at once. They put and delete rows
//! of resident and paged tables, set savepoints, roll back and commit, with every durability. Pages
//! have 1 KiB and the pool has few frames, so pages are split, stolen and evicted all the time. In
//! between, tables are made and checkpoints are requested. The cleaner and the checkpoint thread
//! work besides.
//!
//! All changes of files are recorded. After each of them the power is cut, and the rows that a
//! restart finds must be those after some commit that may be the last one. The restart is cut, too,
//! with the transactions behind it, and the restart of that.
//!
//! Everything that the clients do follows from a seed, which a failure prints. The threads of the
//! database do not, so a recording is not the same each time. A failure has the image.

/// Random transactions over both components, recorded.
pub mod load;

/// Power cuts at every moment of a recorded run.
pub mod cuts;

use crate::ledger::mix;
use crate::victim::{self, FRAMES, set_small_pages};
use foxton::{Database, Options, Table};
use foxton_log::device::Device;
use foxton_sync::failpoint::Failpoint;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Tables that every run begins with.
const TABLES: [Table<[u8], [u8]>; 3] = [
    Table::new("paged").paged(),
    Table::new("other").paged(),
    Table::new("resident").resident(),
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
