//! Loading layers into the tables at restart, on several threads.
//!
//! The rows are divided into ranges at first keys of blocks of the largest layer. Each thread takes
//! the next range, reads all layers of it as one, and inserts the rows into the tables. Every row
//! is in one range and comes once, so threads never use the same row, and no row is inserted twice.

use std::cmp::Ordering;
use std::thread;

use foxton_log::device::Device;
use foxton_store::memory::{NewRecord, Next};
use foxton_sync::shim::{self, Mutex};
use foxton_sync::worker::{Worker, Workers};

use super::error::CheckpointError;
use super::layer::{self, LayerReader, order};
use super::manifest::Manifest;
use super::merge::{Below, Merge};
use crate::catalog::Catalog;
use crate::catalog::resident_memory::counted_bytes;
use crate::catalog::table_store::TableStore;
use crate::options::progress::ProgressMeter;
use crate::redo::record::Effect;

/// Ranges per thread, so that a thread whose ranges are quick takes more of them.
const RANGES: usize = 8;
/// Rows inserted under one epoch pin, so that loading does not delay reclamation.
const ROWS_PER_PIN: usize = 256;
/// Bytes of layers that justify another thread.
const BYTES_PER_THREAD: u64 = 64 << 10;

type Place<'k> = Option<(u32, &'k [u8])>;

/// Inserts the rows of the checkpoint into the empty tables of `catalog`, on up to `threads`
/// threads. Returns the number of rows.
pub(crate) fn load(
    device: &dyn Device,
    identity: &[u8; 16],
    manifest: &Manifest,
    catalog: &Catalog,
    workers: &Workers,
    threads: usize,
    meter: &ProgressMeter<'_>,
) -> Result<u64, CheckpointError> {
    let readers = manifest
        .layers
        .iter()
        .map(|&layer| LayerReader::open(device, identity, layer))
        .collect::<Result<Vec<_>, _>>()?;
    let useful = usize::try_from(manifest.bytes() / BYTES_PER_THREAD).unwrap_or(usize::MAX);
    let threads = threads.min(useful).max(1);
    let largest = readers.iter().max_by_key(|reader| reader.layer().bytes);
    let cuts: Vec<(u32, &[u8])> = largest.map_or(Vec::new(), |largest| {
        let keys = largest.first_keys();
        let step = keys.len().div_ceil(threads * RANGES).max(1);
        keys.step_by(step).skip(1).collect()
    });
    let from = std::iter::once(None).chain(cuts.iter().copied().map(Some));
    let to = cuts.iter().copied().map(Some).chain(std::iter::once(None));
    let ranges = Mutex::new(from.zip(to));
    let job = Job {
        readers: &readers,
        catalog,
        meter,
    };
    let work = || {
        let (worker, mut rows) = (workers.worker(), 0);
        loop {
            let next = shim::lock(&ranges).next();
            let Some((from, to)) = next else {
                return Ok(rows);
            };
            rows += job.load_range(&worker, from, to)?;
        }
    };
    thread::scope(|scope| {
        // If a thread cannot be started, this one does its work.
        let started = |_| {
            let name = "foxton-load".to_owned();
            thread::Builder::new()
                .name(name)
                .spawn_scoped(scope, work)
                .ok()
        };
        let others: Vec<_> = (1..threads).filter_map(started).collect();
        let mut rows = work()?;
        for other in others {
            rows += other.join().expect("loading does not panic")?;
        }
        Ok(rows)
    })
}

/// State shared by all threads.
struct Job<'j> {
    readers: &'j [LayerReader],
    catalog: &'j Catalog,
    meter: &'j ProgressMeter<'j>,
}

impl Job<'_> {
    /// Loads the rows from `from` up to but not including `to`.
    fn load_range(
        &self,
        worker: &Worker,
        from: Place<'_>,
        to: Place<'_>,
    ) -> Result<u64, CheckpointError> {
        let mut merge = Merge::new(self.readers, None, Below::Nothing, from)?;
        let tables = self.catalog.tables();
        let (mut rows, mut counted) = (0, 0);
        loop {
            let guard = worker.pin();
            for _ in 0..ROWS_PER_PIN {
                self.meter.advance(merge.take_read());
                let row = merge.advance()?;
                let inside =
                    row.filter(|&row| to.is_none_or(|to| order(row, to) == Ordering::Less));
                let Some(row) = inside else {
                    self.catalog.resident.add(counted, worker);
                    return Ok(rows);
                };
                let Effect::Put(value) = row.effect else {
                    continue; // Gone: there are no patches above nothing.
                };
                let put = || {
                    let table = tables.get(row.table as usize)?;
                    let record = NewRecord::new(row.key, Some(value))
                        .ok()?
                        .with_free_anchor();
                    let TableStore::Resident(rows) = &table.store else {
                        return None;
                    };
                    rows.insert(&guard, record, Next::Any).ok().map(drop)
                };
                if put().is_none() {
                    return Err(self.invalid());
                }
                rows += 1;
                counted += counted_bytes(row.key, Some(value));
            }
        }
    }

    fn invalid(&self) -> CheckpointError {
        let newest = self
            .readers
            .last()
            .map_or(0, |reader| reader.layer().number);
        let what = "it or an earlier layer contains a row twice, a row of no table, or one over the limits";
        CheckpointError::damaged(&layer::name(newest), 0, what)
    }
}
