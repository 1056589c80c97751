//! A database of loaded rows, and its clients.

use foxton::Database;
use foxton_sync::shim::{Arc, AtomicU64, Ordering::Relaxed};

use super::{
    Settings,
    client::{Commits, LevelClient, Mixture},
};
use crate::{
    bench::{
        error::BenchError,
        rows::{ROWS, Rows, UPDATE},
        scratch::Scratch,
    },
    driver::Client,
    progress::{Audience, Progress},
    random::Random,
    system::System,
};

/// A database of loaded rows.
pub(super) struct LoadedRows {
    pub(super) rows: Rows,
    scratch: Scratch,
    seed: u64,
    /// Commits of the clients that have ended.
    commits: Commits,
    /// Number of the next client, which is its seed.
    next_client: AtomicU64,
}

impl LoadedRows {
    /// Makes a database of `system` with `count` rows.
    ///
    /// # Errors
    ///
    /// If the engine refuses.
    pub(super) fn new(
        settings: &Settings,
        system: &System,
        count: u64,
        audience: Audience,
    ) -> Result<LoadedRows, BenchError> {
        let progress = audience.count(&format!("loading {system}"), count, "rows");
        LoadedRows::load(settings, system, count, &progress)
    }

    /// As [`new`](Self::new), beside the bar of a measurement.
    pub(super) fn again(
        settings: &Settings,
        system: &System,
        count: u64,
    ) -> Result<LoadedRows, BenchError> {
        let nobody = Audience::Nobody.count("", 0, "");
        LoadedRows::load(settings, system, count, &nobody)
    }

    fn load(
        settings: &Settings,
        system: &System,
        count: u64,
        progress: &Progress,
    ) -> Result<LoadedRows, BenchError> {
        let (system, parent) = (system.clone(), settings.directory.as_deref());
        let scratch = Scratch::new(system, settings.durability, parent, None)?;
        let row_bytes = settings.row_bytes;
        let rows = Rows { count, row_bytes };
        rows.load(&scratch.db, &ROWS, progress)?;
        Ok(LoadedRows {
            rows,
            scratch,
            seed: settings.seed,
            commits: Arc::default(),
            next_client: AtomicU64::new(0),
        })
    }

    pub(super) fn db(&self) -> &Database {
        &self.scratch.db
    }

    /// So many clients.
    pub(super) fn clients(&self, count: u32, mixture: Mixture) -> Vec<Box<dyn Client>> {
        let client = |_| {
            let number = self.next_client.fetch_add(1, Relaxed);
            let random = Random::seeded(&[self.seed, number]);
            let (db, commits) = (self.db().clone(), self.commits.clone());
            Box::new(LevelClient::new(db, self.rows, mixture, random, commits)) as Box<dyn Client>
        };
        (0..count).map(client).collect()
    }

    /// Rows read, or updated, by clients that have ended; a row counts once for each transaction.
    pub(super) fn commits(&self, kind: usize) -> u64 {
        self.commits[kind].load(Relaxed)
    }

    /// Records `updates` that no client has made.
    pub(super) fn count_updates(&self, updates: u64) {
        self.commits[UPDATE].fetch_add(updates, Relaxed);
    }

    /// Reads every row.
    ///
    /// # Errors
    ///
    /// If a row is not as it was written, or an update is lost.
    pub(super) fn check(&self) -> Result<(), BenchError> {
        let nobody = Audience::Nobody.count("", 0, "");
        self.rows.check(self.db(), self.commits(UPDATE), &nobody)
    }
}
