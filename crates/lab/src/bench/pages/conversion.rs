//! Conversions of a table between memory and pages, and loading with secondary indexes.
//!
//! * A table is converted to memory and back to pages, in each pass. Nothing else runs.
//! * A new table is filled in the order of its keys, in transactions of a thousand rows, in either
//!   component, with no index, one and two. Index keys look random. It has an eighth of the rows,
//!   because entries at random places of an index beyond memory are read and written one by one.
//! * Both indexes of a filled table are built by sorting. An import by a program that does not
//!   declare them ends in this way, too.

use std::time::Instant;

use foxton::{Database, Durability, Index, Options, TableComponent};

use super::{Settings, bare::file_error, place::Place};
use crate::{
    bench::{
        directory::ScratchDirectory,
        error::BenchError,
        measured::Measured,
        rows::{ROWS, Rows, options},
        runs::room,
    },
    measure::memory,
    progress::{Audience, Progress},
    random::zipfian::scatter,
};

const BY_SCATTERED: Index<u64, u64, [u8]> = Index::new("by_scattered", &ROWS, |&key, _, keys| {
    keys.add(&scatter(key));
});
const BY_LENGTH: Index<(u64, u64), u64, [u8]> =
    Index::new("by_length", &ROWS, |&key, row, keys| {
        keys.add(&(row.len() as u64, scatter(key)));
    });

/// Largest number of indexes.
const INDEXES: usize = 2;
/// The part of the data that is loaded with indexes.
const LOADED: u64 = 8;
/// Number of rows, about, that are looked up by each index.
const CHECKED: u64 = 1_000;
const COMPONENTS: [(TableComponent, &str); 2] = [
    (TableComponent::Resident, "memory"),
    (TableComponent::Paged, "pages"),
];

pub(super) fn run(settings: &Settings, audience: Audience) -> Result<Measured, BenchError> {
    let mut measured = Measured::new(
        "paged-conversion",
        "Conversion of a table, and loading with indexes",
        "How many rows a second are converted, loaded and indexed?",
        &settings.command,
    );
    let rows = Rows::of(settings.data, settings.row_bytes);
    // In memory once, with two indexes, and once more while it is converted.
    let free = memory::available_bytes();
    let free = free.map(|free| free.saturating_sub(settings.page_memory() as u64));
    room(2, rows.count, rows.row_bytes as u64, free)?;
    let place = Place::new(settings, audience, &mut measured)?;
    let progress = audience.count("converting", u64::from(settings.passes), "passes");
    for _ in 0..settings.passes {
        let open = place.open(true)?;
        for (component, name) in COMPONENTS {
            progress.now(&format!("converting to {name}"));
            let done = open.db.convert(&ROWS, component);
            let done = done.map_err(BenchError::engine("converting the table"))?;
            if !done.is_converted || done.rows != rows.count {
                let what = format!("{} rows of {} were converted", done.rows, rows.count);
                return Err(BenchError::Failed(what));
            }
            let (row, seconds) = (format!("conversion to {name}"), done.time.as_secs_f64());
            measured.add(&row, "rows", "1/s", done.rows as f64 / seconds);
            measured.add(&row, "bytes", "MB/s", done.bytes as f64 / seconds / 1e6);
        }
        place.close(open)?;
        progress.advance(1);
    }
    drop(progress);
    place.check(audience, &mut measured)?;
    drop(place);
    let rows = Rows::of(settings.data / LOADED, settings.row_bytes);
    measured
        .notes
        .push(format!("{} rows were loaded with indexes.", rows.count));
    let steps = u64::from(settings.passes) * (COMPONENTS.len() * (INDEXES + 1)) as u64;
    let progress = audience.count("loading with indexes", steps * rows.count, "rows");
    for _ in 0..settings.passes {
        for (component, name) in COMPONENTS {
            let load = IndexedLoad {
                settings,
                rows,
                component,
                name,
            };
            for indexes in 0..=INDEXES {
                load.run(indexes, &mut measured, &progress)?;
            }
        }
    }
    Ok(measured)
}

/// A load of a new table.
struct IndexedLoad<'s> {
    settings: &'s Settings,
    rows: Rows,
    component: TableComponent,
    name: &'static str,
}

impl IndexedLoad<'_> {
    fn options(&self, indexes: usize) -> Options {
        let mut options = options(self.settings.page_memory(), Durability::Buffered);
        options.component = self.component;
        if indexes > 0 {
            options.indexes.add(&BY_SCATTERED);
        }
        if indexes > 1 {
            options.indexes.add(&BY_LENGTH);
        }
        options
    }

    fn run(
        &self,
        indexes: usize,
        measured: &mut Measured,
        progress: &Progress,
    ) -> Result<(), BenchError> {
        let parent = self.settings.directory.clone();
        let parent = parent.unwrap_or_else(std::env::temp_dir);
        let scratch = ScratchDirectory::new(&parent).map_err(file_error(&parent))?;
        let failed = BenchError::engine("loading with indexes");
        let open = |indexes| Database::open_with(scratch.database(), self.options(indexes));
        let db = open(indexes).map_err(&failed)?;
        let began = Instant::now();
        self.rows.load(&db, &ROWS, progress)?;
        let rate = self.rows.count as f64 / began.elapsed().as_secs_f64();
        let row = format!("loading into {}, {indexes} indexes", self.name);
        measured.add(&row, "rows", "1/s", rate);
        self.check(&db, indexes)?;
        // The table without indexes gets them now.
        if indexes == 0 {
            let began = Instant::now();
            db.create_index(&BY_SCATTERED).map_err(&failed)?;
            db.create_index(&BY_LENGTH).map_err(&failed)?;
            let entries = (INDEXES as u64 * self.rows.count) as f64;
            let rate = entries / began.elapsed().as_secs_f64();
            let row = format!("building {INDEXES} indexes in {}", self.name);
            measured.add(&row, "entries", "1/s", rate);
            self.check(&db, INDEXES)?;
        }
        db.close().map_err(&failed)
    }

    /// Checks all rows, and some entries of each index.
    fn check(&self, db: &Database, indexes: usize) -> Result<(), BenchError> {
        let progress = Audience::Nobody.count("", 0, "");
        self.rows.check(db, 0, &progress)?;
        for key in (0..self.rows.count).step_by((self.rows.count / CHECKED).max(1) as usize) {
            let length = self.rows.row_bytes as u64;
            let found = db.run(|tx| {
                let mut found = 0;
                if indexes > 0 {
                    for row in tx.all_by(&BY_SCATTERED, &scatter(key)) {
                        found += usize::from(row?.1 == key);
                    }
                }
                if indexes > 1 {
                    for row in tx.all_by(&BY_LENGTH, &(length, scatter(key))) {
                        found += usize::from(row?.1 == key);
                    }
                }
                Ok(found)
            });
            if found.map_err(BenchError::engine("reading by an index"))? != indexes {
                let what = format!("row {key} is not once in each of {indexes} indexes");
                return Err(BenchError::Failed(what));
            }
        }
        Ok(())
    }
}
