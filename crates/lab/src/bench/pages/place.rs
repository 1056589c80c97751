//! A loaded directory, and the databases that are opened in it one after the other.

use std::{path::PathBuf, time::Instant};

use foxton::{Database, Durability};
use foxton_sync::shim::{Arc, AtomicU64, Ordering::Relaxed};

use super::{
    Settings,
    bare::file_error,
    metered::{DeviceMode, Meter, MeteredDevice, PAGE_FILE},
};
use crate::{
    bench::{
        directory::ScratchDirectory,
        error::BenchError,
        measured::Measured,
        rows::{ROWS, RowClient, Rows, Skew, UPDATE, options},
    },
    driver::Client,
    progress::Audience,
    random::Random,
    report::number::bytes,
};

/// Disk that an experiment may take, as a multiple of the data.
const DISK: u64 = 4;

/// A directory with a database of loaded rows.
pub(super) struct Place<'s> {
    pub(super) settings: &'s Settings,
    pub(super) rows: Rows,
    /// Committed updates of all clients, which the rows must count.
    commits: Arc<[AtomicU64; 2]>,
    scratch: ScratchDirectory,
    parent: PathBuf,
    /// Number of the next client, which is its seed.
    next_client: AtomicU64,
}

/// A database, and the counts of its device.
pub(super) struct OpenPlace {
    pub(super) db: Database,
    pub(super) meter: Arc<Meter>,
}

impl<'s> Place<'s> {
    /// Makes a directory and loads its rows.
    ///
    /// # Errors
    ///
    /// If the disk is too small, or the engine refuses.
    pub(super) fn new(
        settings: &'s Settings,
        audience: Audience,
        measured: &mut Measured,
    ) -> Result<Place<'s>, BenchError> {
        let parent = settings.directory.clone();
        let parent = parent.unwrap_or_else(std::env::temp_dir);
        let rows = Rows::of(settings.data, settings.row_bytes);
        let disk = rustix::fs::statvfs(&parent);
        let disk = disk.map_err(|error| file_error(&parent)(error.into()))?;
        let (free, needed) = (disk.f_bavail * disk.f_frsize, DISK * rows.bytes());
        if free < needed {
            return Err(BenchError::Settings(format!(
                "{} has {} free, and this may take {}; name another directory with --dir, or \
                 less with --data",
                parent.display(),
                bytes(free),
                bytes(needed)
            )));
        }
        let scratch = ScratchDirectory::new(&parent).map_err(file_error(&parent))?;
        let place = Place {
            settings,
            rows,
            commits: Arc::default(),
            scratch,
            parent,
            next_client: AtomicU64::new(0),
        };
        let began = Instant::now();
        let open = place.open_with(true, Durability::None)?;
        let progress = audience.count("loading", rows.count, "rows");
        rows.load(&open.db, &ROWS, &progress)?;
        place.close(open)?;
        drop(progress);
        measured.notes.push(format!(
            "{} rows of {} bytes ({}) were loaded in {:.0} s.",
            rows.count,
            rows.row_bytes,
            bytes(rows.bytes()),
            began.elapsed().as_secs_f64()
        ));
        measured.notes.push(format!(
            "Memory for pages: {}; page file: {}; {} s after {} s; durability {}.",
            bytes(settings.page_memory() as u64),
            if settings.is_cached {
                "page cache"
            } else {
                "O_DIRECT"
            },
            settings.window.as_secs_f64(),
            settings.ramp.as_secs_f64(),
            settings.durability
        ));
        Ok(place)
    }

    /// Opens the database.
    ///
    /// # Errors
    ///
    /// If the engine refuses.
    pub(super) fn open(&self, has_doublewrite: bool) -> Result<OpenPlace, BenchError> {
        self.open_with(has_doublewrite, self.settings.durability)
    }

    fn open_with(
        &self,
        has_doublewrite: bool,
        durability: Durability,
    ) -> Result<OpenPlace, BenchError> {
        let mode = DeviceMode {
            is_direct: !self.settings.is_cached,
            has_doublewrite,
        };
        let path = self.scratch.database();
        let device = MeteredDevice::new(&path, mode).map_err(file_error(&path))?;
        let meter = device.meter();
        let options = options(self.settings.page_memory(), durability);
        let db = Database::open_on(std::sync::Arc::new(device), options);
        let db = db.map_err(BenchError::engine("opening the database"))?;
        Ok(OpenPlace { db, meter })
    }

    /// Closes the database, which writes all its pages.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub(super) fn close(&self, open: OpenPlace) -> Result<(), BenchError> {
        let closed = open.db.close();
        closed.map_err(BenchError::engine("closing the database"))
    }

    /// The page file.
    pub(super) fn page_file(&self) -> PathBuf {
        self.scratch.database().join(PAGE_FILE)
    }

    /// A path beside the database.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        let database = self.scratch.database();
        database.parent().unwrap_or(&self.parent).join(name)
    }

    /// Returns the seed of another client.
    pub(super) fn random(&self) -> Random {
        let client = self.next_client.fetch_add(1, Relaxed);
        Random::seeded(&[self.settings.seed, client])
    }

    /// So many clients, of whose transactions `updates` of a hundred update a row.
    pub(super) fn clients(
        &self,
        open: &OpenPlace,
        count: u32,
        updates: u32,
        skew: Skew,
    ) -> Vec<Box<dyn Client>> {
        let client = |_| {
            Box::new(RowClient {
                db: open.db.clone(),
                rows: self.rows,
                updates,
                skew,
                random: self.random(),
                commits: self.commits.clone(),
            }) as Box<dyn Client>
        };
        (0..count).map(client).collect()
    }

    /// Commits of all clients so far, of this kind.
    pub(super) fn commits(&self, kind: usize) -> u64 {
        self.commits[kind].load(Relaxed)
    }

    /// Reads every row.
    ///
    /// # Errors
    ///
    /// If a row is not as it was written, or an update is lost.
    pub(super) fn check(
        &self,
        audience: Audience,
        measured: &mut Measured,
    ) -> Result<(), BenchError> {
        let open = self.open(true)?;
        let progress = audience.count("checking", self.rows.count, "rows");
        let updates = self.commits(UPDATE);
        self.rows.check(&open.db, updates, &progress)?;
        self.close(open)?;
        measured.notes.push(format!(
            "Afterwards every row was read and {updates} updates were found."
        ));
        Ok(())
    }
}
