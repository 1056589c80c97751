//! Integrity check of a database or a backup: every file of it, and the tables built from them.
//!
//! # Coverage
//!
//! | | |
//! |---|---|
//! | superblock, or label of a backup | magic, version, checksum |
//! | checkpoint | the manifest's checksum |
//! | each layer | header, index, each block, order of the rows |
//! | log | headers and sequence of the segments |
//! | each log record | header, payload, position, from where the checkpoint needs the log on |
//! | pages | as after a restart: [`foxton_store::paged::check`] |
//! | tables | loaded as on opening: order and structure of the index, each row found by its key |
//!
//! # Invariants
//!
//! * I1  The check changes nothing, not even what opening would repair. It reports a torn end as
//!   the end of the log, not as a finding.
//! * I2  If there are no findings, the database can be opened, or the backup restored.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use foxton_log::device::Device;
use foxton_log::device::file::FileDevice;
use foxton_log::format::superblock::{self, Superblock, SuperblockError};
use foxton_log::read::audit::audit;
use foxton_log::{Failure, OpenError, RecordView, Start};
use foxton_store::paged::check::{CheckPagesError, PagesReport, check_pages};
use foxton_store::paged::recovery::error::AnchorError;
use foxton_store::paged::recovery::{ANCHOR_FILE, Analysis, RecoveryError};
use foxton_store::paged::space::{PageFileError, PageSource};
use foxton_sync::worker::Workers;

use crate::admin::backup::{self, CheckpointPair, CopyProgress, Label};
use crate::catalog::conversions::CONVERSIONS;
use crate::catalog::index_catalog::is_index_table;
use crate::catalog::{Catalog, OpenTable};
use crate::checkpoint::CheckpointError;
use crate::checkpoint::layer::{self, LayerReader};
use crate::checkpoint::manifest::{self, Manifest};
use crate::engine::page_store;
use crate::error::{Error, Result, Storage};
use crate::options::Options;
use crate::recovery::open_error::{no_superblock, not_locked, not_read};
use crate::recovery::restart::{self, RestartError};
use crate::redo::record::next_change;
use crate::types::component::TableComponent;
use crate::types::limits::BACKUP_FILE;

/// Maximum number of findings; further ones are only counted.
const MOST: usize = 1_000;

/// A defect.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The file or table that contains it.
    pub place: String,
    /// Position in the file, in bytes.
    pub offset: Option<u64>,
    /// A description of the defect.
    pub what: String,
}

impl Finding {
    pub(crate) fn new(place: String, what: String) -> Finding {
        Finding {
            place,
            offset: None,
            what,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// Result of a check.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Report {
    /// The defects, in the order in which opening would find them, at most a thousand. Empty if the
    /// database is intact.
    pub findings: Vec<Finding>,
    /// Number of further defects.
    pub left_out: u64,
    /// True if it is a backup.
    pub is_backup: bool,
    /// Number of files of the checkpoint with rows.
    pub layers: u64,
    /// Number of entries in those files.
    pub entries: u64,
    /// Number of segment files of the log.
    pub segments: u64,
    /// Number of valid records in the log, from where the checkpoint needs it.
    pub records: u64,
    /// How the log ends, in readable form; empty if it is damaged.
    pub log: String,
    /// Number of pages in the page file.
    pub pages: u64,
    /// The tables and their numbers of rows, if they could be loaded. Those of paged tables include
    /// changes of transactions that had not ended.
    pub tables: Vec<(String, u64)>,
}

impl Report {
    fn note(&mut self, place: &str, offset: Option<u64>, what: impl Into<String>) {
        let (place, what) = (place.to_owned(), what.into());
        self.add(Finding {
            place,
            offset,
            what,
        });
    }

    /// Adds a defect.
    pub(super) fn add(&mut self, finding: Finding) {
        match self.findings.len() < MOST {
            true => self.findings.push(finding),
            false => self.left_out += 1,
        }
    }

    /// Records a defect of a checkpoint. Returns an error if the checkpoint could not be read.
    fn error(&mut self, error: CheckpointError, path: &Path) -> Result<()> {
        match error {
            CheckpointError::Damaged { file, offset, what } => self.note(&file, Some(offset), what),
            other => return Err(other.into_error(path)),
        }
        Ok(())
    }
}

/// Checks the database or backup in the directory `path`, which no process may have open.
///
/// ```
/// use foxton::{Database, Table, check::check};
///
/// # let path = std::env::temp_dir().join(format!("foxton-check-{}", std::process::id()));
/// # fn main_(path: &std::path::Path) -> foxton::Result<()> {
/// let db = Database::open(path)?;
/// db.run(|tx| tx.put(&Table::<str, u32>::new("ages"), "ada", &36))?;
/// drop(db);
/// let report = check(path)?;
/// assert!(report.findings.is_empty());
/// assert_eq!(report.tables, [("ages".to_owned(), 1)]);
/// # Ok(()) }
/// # main_(&path)?;
/// # std::fs::remove_dir_all(&path).unwrap();
/// # Ok::<(), foxton::Error>(())
/// ```
///
/// # Errors
/// A storage error if there is no database, a process has it open, a later version wrote it, or it
/// cannot be read. Damage is a finding, not an error.
pub fn check(path: impl AsRef<Path>) -> Result<Report> {
    check_directory(path.as_ref(), None)
}

/// Like [`check`], with a progress callback: bytes read, and the approximate total.
///
/// # Errors
/// As for [`check`].
pub fn check_with(path: impl AsRef<Path>, progress: CopyProgress<'_>) -> Result<Report> {
    check_directory(path.as_ref(), Some(progress))
}

fn check_directory(path: &Path, progress: Option<CopyProgress<'_>>) -> Result<Report> {
    let device = FileDevice::open(path).map_err(|error| not_read(path, error))?;
    let held = device.lock_shared();
    held.map_err(|error| not_locked(path, error).in_passing())?;
    check_on_at(&device, path, progress).map_err(Error::in_passing)
}

/// Like [`check`], on a device of your own.
///
/// # Errors
/// As for [`check`].
pub fn check_on(device: &dyn Device) -> Result<Report> {
    check_on_at(device, Path::new("the device"), None).map_err(Error::in_passing)
}

fn check_on_at(
    device: &dyn Device,
    path: &Path,
    mut progress: Option<CopyProgress<'_>>,
) -> Result<Report> {
    let mut report = Report::default();
    let (mut done, total) = (0, progress.as_ref().map_or(0, |_| backup::about(device)));
    let mut advance = |bytes: u64| {
        done += bytes;
        if let Some(progress) = &mut progress {
            progress(done.min(total), total);
        }
    };
    let Some((identity, label)) = identity(device, path, &mut report)? else {
        return Ok(report);
    };
    let manifest = match Manifest::read(device, &identity) {
        Ok(manifest) => manifest,
        Err(error) => {
            report.error(error, path)?;
            let what =
                "the log was not checked, because the checkpoint does not say where it begins";
            report.note(manifest::FILE, None, what);
            return Ok(report);
        }
    };
    let checkpoints = match backup::checkpoints_of(manifest, device, &identity, path)? {
        Ok(checkpoints) => checkpoints,
        Err(what) => {
            report.note(ANCHOR_FILE, Some(0), what);
            return Ok(report);
        }
    };
    let manifest = &checkpoints.manifest;
    if label.is_some_and(|label| !label.is_of(&checkpoints)) {
        report.note(BACKUP_FILE, Some(0), Label::STRANGE);
    }
    for &layer in &manifest.layers {
        report.layers += 1;
        // The manifest may contain any number that its checksum covers.
        report.entries = report.entries.saturating_add(layer.entries);
        look_at_layer(device, &identity, layer, (&mut report, path))?;
        advance(layer.bytes);
    }
    let start = Start {
        from: checkpoints.needed_from(),
        // A backup has all of the log that its label names (I2).
        durable: label.map_or(checkpoints.durable(), |label| {
            label.end.max(checkpoints.durable())
        }),
    };
    let mut analysis = analysis(device, &identity, &checkpoints, (&mut report, path))?;
    let mut malformed = None;
    let mut visit = |record: RecordView<'_>| {
        advance(record.end.since(record.lsn));
        if let (Some(analysis), None) = (&mut analysis, &malformed) {
            malformed = analysis.take(record).err();
        }
    };
    let audited = audit(device, &identity, start, &mut visit).map_err(|error| match error {
        OpenError::Device(failure) => not_looked_at(failure, path),
        other => Storage::FutureFormat {
            found: other.to_string(),
        },
    })?;
    report.segments = audited.segments as u64;
    report.records = audited.records;
    report.log = audited
        .summary
        .map_or(String::new(), |summary| summary.to_string());
    report.left_out += audited.left_out;
    for found in audited.findings {
        let behind = match found.good_again {
            Some(good) => format!("; {} bytes of log are lost there", good.since(found.lsn)),
            None => String::new(),
        };
        let what = format!("{} (log position {}){behind}", found.what, found.lsn);
        report.note(&found.file, Some(found.offset), what);
    }
    if let Some(malformed) = malformed {
        report.note("the log", None, malformed.to_string());
    }
    let is_log_whole = report.findings.is_empty();
    let catalog = match report.findings.is_empty() {
        true => tables(device, &identity, path, &mut report)?,
        false => None,
    };
    let has_pages = catalog.as_ref().is_none_or(Catalog::has_paged_tables);
    match analysis {
        Some(analysis) if has_pages && is_log_whole => {
            let checked = pages(
                device,
                &identity,
                &analysis,
                (&mut report, path),
                &mut advance,
            )?;
            if let (Some(checked), Some(catalog)) = (checked, &catalog) {
                name_trees(&checked, catalog, &mut report);
            }
        }
        None if catalog.is_some() && has_pages && checkpoints.anchor.is_none() => {
            let what = "it is missing; it locates the last checkpoint of pages";
            report.note(ANCHOR_FILE, None, what);
        }
        _ => {}
    }
    Ok(report)
}

/// Begins the analysis of pages, if there are any. A damaged checkpoint is recorded.
fn analysis(
    device: &dyn Device,
    identity: &[u8; 16],
    checkpoints: &CheckpointPair,
    (report, path): (&mut Report, &Path),
) -> Result<Option<Analysis>> {
    if checkpoints.anchor.is_none() {
        return Ok(None);
    }
    match Analysis::begin::<PageFileError>(device, identity, None) {
        Ok(analysis) => Ok(Some(analysis)),
        Err(RecoveryError::Read(error)) => match *error {
            OpenError::Device(failure) => Err(not_looked_at(failure, path).into()),
            // The audit of the log says where.
            _ => Ok(None),
        },
        Err(RecoveryError::Anchor(AnchorError::Device { operation, source }))
            if source.kind() != io::ErrorKind::NotFound =>
        {
            let failure = Failure {
                operation,
                file: ANCHOR_FILE.to_owned(),
                source,
            };
            Err(not_looked_at(failure, path).into())
        }
        Err(error) => {
            report.note(ANCHOR_FILE, Some(0), error.to_string());
            Ok(None)
        }
    }
}

/// Checks the pages, and records each defect. Returns `None` if they could not be read.
fn pages(
    device: &dyn Device,
    identity: &[u8; 16],
    analysis: &Analysis,
    (report, path): (&mut Report, &Path),
    advance: &mut dyn FnMut(u64),
) -> Result<Option<PagesReport>> {
    let source = PageSource {
        directory: device,
        file: page_store::FILE,
        doublewrite: page_store::DOUBLEWRITE_FILE,
        identity: *identity,
    };
    let checked = check_pages(&source, analysis, advance, &mut |found| {
        report.note(page_store::FILE, Some(found.offset), found.to_string());
    });
    let failed = match checked {
        Ok(checked) => {
            report.pages = checked.pages;
            return Ok(Some(checked));
        }
        Err(CheckPagesError::Log(RecoveryError::Read(error))) => match *error {
            OpenError::Device(failure) => return Err(not_looked_at(failure, path).into()),
            other => other.to_string(),
        },
        Err(CheckPagesError::File(error) | CheckPagesError::Log(RecoveryError::Pages(error))) => {
            match error {
                PageFileError::Device { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                    "it is missing".to_owned()
                }
                PageFileError::Device { call, error, .. }
                | PageFileError::Double { call, error } => {
                    let failure = Failure {
                        operation: call,
                        file: page_store::FILE.to_owned(),
                        source: error,
                    };
                    return Err(not_looked_at(failure, path).into());
                }
                other => other.to_string(),
            }
        }
        Err(other) => other.to_string(),
    };
    report.note(page_store::FILE, None, failed);
    Ok(None)
}

/// Records the number of rows of each paged table.
fn name_trees(checked: &PagesReport, catalog: &Catalog, report: &mut Report) {
    for table in catalog.tables() {
        let name = &table.record.name;
        let number = page_store::tree_number(&table);
        let rows = checked.trees.iter().find(|(tree, _)| *tree == number);
        let is_paged = table.record.component == TableComponent::Paged;
        if is_paged && !table.is_former() && !is_index_table(name) {
            report
                .tables
                .push((name.clone(), rows.map_or(0, |(_, rows)| *rows)));
        }
    }
}

/// Error: the device failed, which says nothing about the data on it.
fn not_looked_at(failure: Failure, path: &Path) -> Storage {
    let file = path.join(&failure.file);
    let doing = format!("{} {}", failure.operation, file.display());
    Storage::from_io(path, doing, failure.source)
}

/// Returns the identity of the database, from the superblock or a label, and the label if there is
/// one.
fn identity(
    device: &dyn Device,
    path: &Path,
    report: &mut Report,
) -> Result<Option<([u8; 16], Option<Label>)>> {
    match Superblock::read(device) {
        Ok(superblock) => Ok(Some((superblock.identity, None))),
        Err(SuperblockError::Damaged(what)) => {
            report.note(superblock::FILE, Some(0), what);
            Ok(None)
        }
        Err(SuperblockError::Missing) => match backup::label_of(device, path)? {
            Some(Ok(label)) => {
                report.is_backup = true;
                Ok(Some((label.identity, Some(label))))
            }
            Some(Err(what)) => {
                report.is_backup = true;
                report.note(BACKUP_FILE, Some(0), what);
                Ok(None)
            }
            None => Err(no_superblock(device, path, SuperblockError::Missing)),
        },
        Err(error) => Err(no_superblock(device, path, error)),
    }
}

/// Checks every block of a layer and records each defect.
fn look_at_layer(
    device: &dyn Device,
    identity: &[u8; 16],
    layer: layer::Layer,
    (report, path): (&mut Report, &Path),
) -> Result<()> {
    let reader = match LayerReader::open(device, identity, layer) {
        Ok(reader) => reader,
        Err(error) => return report.error(error, path),
    };
    let name = layer::name(layer.number);
    let (mut rows, mut bytes, mut is_whole) = (LayerOrder::default(), Vec::new(), true);
    for index in 0.. {
        let Some(offset) = reader.block_at(index) else {
            break;
        };
        let looked = match reader.block(index, &mut bytes) {
            Ok(()) => rows.take(&bytes),
            Err(CheckpointError::Damaged { what, .. }) => Err(what),
            Err(other) => return Err(other.into_error(path)),
        };
        if let Err(what) = looked {
            is_whole = false;
            report.note(&name, Some(offset), what);
        }
    }
    if is_whole && rows.count != layer.entries {
        let what = "it has more or fewer rows than the manifest says";
        report.note(&name, Some(0), what);
    }
    Ok(())
}

/// Checks the order of the rows of a layer, block by block.
#[derive(Debug, Default)]
struct LayerOrder {
    last: Option<(u32, Vec<u8>)>,
    count: u64,
}

impl LayerOrder {
    /// Processes the entries of a block. Returns a description if they are invalid.
    fn take(&mut self, mut entries: &[u8]) -> Result<(), &'static str> {
        while !entries.is_empty() {
            let row = next_change(&mut entries);
            let row = row.map_err(|_| "a block contains an invalid entry")?;
            let last = self.last.as_ref().map(|(table, key)| (*table, &key[..]));
            if last.is_some_and(|last| last >= (row.table, row.key)) {
                return Err("its rows are not in order");
            }
            self.last = Some((row.table, row.key.to_vec()));
            self.count += 1;
        }
        Ok(())
    }
}

/// Loads the tables and checks them. Returns their catalog, if they could be loaded.
fn tables(
    device: &dyn Device,
    identity: &[u8; 16],
    path: &Path,
    report: &mut Report,
) -> Result<Option<Catalog>> {
    let workers = Workers::new();
    let catalog = Catalog::new(workers.domain().clone(), u64::MAX);
    let options = Options {
        restart_threads: 1,
        ..Options::default()
    };
    match restart::read(device, identity, &options, &catalog, &workers, None) {
        Ok(_) => {}
        Err(RestartError::Checkpoint(error)) => {
            report.error(error, path)?;
            return Ok(None);
        }
        Err(RestartError::Log(OpenError::Visit { lsn, error })) => {
            let what = format!("the record at log position {lsn} does not hold {error}");
            report.note("the log", None, what);
            return Ok(None);
        }
        Err(RestartError::Log(OpenError::Device(failure))) => {
            return Err(not_looked_at(failure, path).into());
        }
        Err(RestartError::Log(error)) => {
            report.note("the log", None, error.to_string());
            return Ok(None);
        }
    }
    let worker = workers.worker();
    if let Err(what) = catalog.recall_conversions(&worker) {
        report.note(&format!("table {}", CONVERSIONS.name()), None, what);
    }
    for table in catalog.tables() {
        let name = &table.record.name;
        let is_for_users = !is_index_table(name) && !table.is_former();
        if table.record.component == TableComponent::Paged {
            continue; // `pages` checks them.
        }
        match catch_unwind(AssertUnwindSafe(|| look_at(&table, &worker.pin()))) {
            Ok(Ok(rows)) if is_for_users => report.tables.push((name.clone(), rows)),
            Ok(Ok(_)) => {}
            Ok(Err(what)) => report.note(&format!("table {name}"), None, what),
            Err(panic) => {
                let words = panic.downcast_ref::<String>().cloned();
                let words = words.or_else(|| panic.downcast_ref::<&str>().map(|&s| s.to_owned()));
                let what = format!(
                    "its index is broken: {}",
                    words.unwrap_or_else(|| "the cause is unknown".to_owned())
                );
                report.note(&format!("table {name}"), None, what);
            }
        }
    }
    drop(worker);
    Ok(Some(catalog))
}

/// Returns the number of rows of a table, after checking that its index is intact and finds each
/// row by its key.
fn look_at(table: &OpenTable, guard: &foxton_sync::epoch::Guard<'_>) -> Result<u64, String> {
    let table = table.resident();
    let indexed = table.verify(guard) as u64;
    let mut rows = table.forward(guard, std::ops::Bound::Unbounded);
    let mut count = 0;
    while let Some(record) = rows.advance().record {
        let found = table.get(guard, record.key());
        if found.is_none_or(|found| !std::ptr::eq(found, record)) {
            return Err(format!("key {:?} is not found by the index", record.key()));
        }
        count += 1;
    }
    if count == indexed {
        Ok(count)
    } else {
        Err(format!(
            "its index has {indexed} rows, and reading it in order finds {count}"
        ))
    }
}
