//! Transfer of the checkpoints, the pages and the log from one directory to another, and
//! verification of the copy.
//!
//! Pages of a database in use are copied while they change ([`PageCopy`] says why a restart makes
//! the copy whole). Its invariants decide the order: the anchor is read first, then come pages,
//! log, and the maps by which the page file has grown.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use foxton_log::copy::{CopyError, CopyRange, CopySummary, copy};
use foxton_log::device::Device;
use foxton_log::format::{clean_shutdown, segment};
use foxton_log::read::reader;
use foxton_log::{Failure, LogEnd, Lsn, OpenError, RecordView, Start};
use foxton_store::paged::recovery::error::RecoveryError;
use foxton_store::paged::recovery::{ANCHOR_FILE, Analysis};
use foxton_store::paged::space::{PageCopy, PageCopyError, PageFileError, PageSource};

use super::CopyProgress;
use super::checkpoint_pair::CheckpointPair;
use super::error::CopyFailure;
use crate::checkpoint::CheckpointError;
use crate::checkpoint::layer::{self, Layer, LayerReader};
use crate::checkpoint::manifest::{self, Manifest};
use crate::checkpoint::merge::{Below, Merge};
use crate::engine::page_store::{self, same_io_error};

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// The part of the log to copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// The log is known to extend to here.
    pub(super) at_least: Lsn,
    /// Records that end later are not copied.
    pub(super) at_most: Lsn,
}

/// Description of the copied log.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopiedLog {
    pub(super) end: Lsn,
    pub(super) records: u64,
    /// No page has a change behind this position; zero if there are no pages.
    pub(super) pages_lsn: Lsn,
}

/// A copy of the database `identity` into an empty directory.
pub(super) struct Transfer<'t> {
    identity: [u8; 16],
    target: &'t Arc<dyn Device>,
    checkpoints: CheckpointPair,
    pages: Option<PageCopy>,
    progress: ByteMeter<'t>,
}

/// Progress of a copy.
struct ByteMeter<'t> {
    done: u64,
    total: u64,
    progress: CopyProgress<'t>,
}

impl ByteMeter<'_> {
    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        (self.progress)(self.done.min(self.total), self.total);
    }
}

/// Returns the files of the pages in `directory`.
fn page_source<'d>(directory: &'d dyn Device, identity: &[u8; 16]) -> PageSource<'d> {
    PageSource {
        directory,
        file: page_store::FILE,
        doublewrite: page_store::DOUBLEWRITE_FILE,
        identity: *identity,
    }
}

impl<'t> Transfer<'t> {
    /// Begins with the checkpoints and the pages of `source`.
    pub(super) fn begin(
        source: &dyn Device,
        identity: &[u8; 16],
        target: &'t Arc<dyn Device>,
        progress: CopyProgress<'t>,
    ) -> Result<Transfer<'t>, CopyFailure> {
        let manifest = Manifest::read(source, identity)?;
        let mut transfer = Transfer {
            identity: *identity,
            target,
            checkpoints: CheckpointPair::read(manifest, source, identity)?,
            pages: None,
            progress: ByteMeter {
                done: 0,
                total: super::about(source),
                progress,
            },
        };
        transfer.copy_layers(source)?;
        if transfer.checkpoints.anchor.is_some() {
            transfer.copy_pages(source)?;
        }
        Ok(transfer)
    }

    pub(super) fn checkpoints(&self) -> &CheckpointPair {
        &self.checkpoints
    }

    fn copy_layers(&mut self, source: &dyn Device) -> Result<(), CopyFailure> {
        let manifest = &self.checkpoints.manifest;
        let progress = &mut self.progress;
        for &layer in &manifest.layers {
            let advance = &mut |bytes| progress.advance(bytes);
            copy_layer(source, &**self.target, layer, advance)?;
        }
        if *manifest != Manifest::default() {
            let whole = manifest.encode(&self.identity);
            put_file(&**self.target, manifest::FILE, &whole)?;
        }
        Ok(())
    }

    fn copy_pages(&mut self, source: &dyn Device) -> Result<(), CopyFailure> {
        let anchor = source.open(ANCHOR_FILE).and_then(|file| {
            let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
            let count = file.read_at(&mut bytes, 0)?;
            bytes.truncate(count);
            Ok(bytes)
        });
        let anchor = anchor.map_err(CopyFailure::source("read", ANCHOR_FILE))?;
        put_file(&**self.target, ANCHOR_FILE, &anchor)?;
        let pages = page_source(source, &self.identity);
        let mut copy = PageCopy::begin(&pages, &**self.target)?;
        copy.copy_pages(&pages, &mut |bytes| self.progress.advance(bytes))?;
        self.pages = Some(copy);
        Ok(())
    }

    /// Copies the log, and verifies the copy. Returns `None` if the copied pages have changes
    /// behind its end, because the page file has grown meanwhile. Then this is repeated with a
    /// later end.
    pub(super) fn copy_log(
        &mut self,
        source: &dyn Device,
        extent: Extent,
    ) -> Result<Option<CopiedLog>, CopyFailure> {
        self.remove_log()?;
        let newest = self.pages.as_ref().map_or(Lsn::ZERO, PageCopy::newest);
        let needed = self.checkpoints.durable().max(newest);
        let span = CopyRange {
            from: self.checkpoints.needed_from(),
            at_least: extent.at_least.max(needed),
            // A checkpoint may have been made since the extent was chosen, and needs the log up to
            // its LSN.
            at_most: extent.at_most.max(needed),
        };
        let progress = &mut self.progress;
        let advance = &mut |bytes| progress.advance(bytes);
        let copied = copy(source, &self.identity, span, self.target, advance)?;
        let mut pages_lsn = Lsn::ZERO;
        if let Some(pages) = &mut self.pages {
            pages.finish(&page_source(source, &self.identity))?;
            if pages.newest() > copied.end {
                return Ok(None);
            }
            let anchor = self
                .checkpoints
                .anchor
                .map_or(Lsn::ZERO, |anchor| anchor.durable);
            pages_lsn = pages.newest().max(anchor);
        }
        let synced = self.target.sync_dir();
        synced.map_err(CopyFailure::target("sync", "the directory"))?;
        self.verify(copied)?;
        Ok(Some(CopiedLog {
            end: copied.end,
            records: copied.records,
            pages_lsn,
        }))
    }

    /// Removes what an earlier attempt has copied of the log.
    fn remove_log(&self) -> Result<(), CopyFailure> {
        let names = self.target.list();
        let names = names.map_err(CopyFailure::target("list", "the directory"))?;
        let is_log =
            |name: &&String| *name == clean_shutdown::FILE || segment::first_of(name).is_some();
        for name in names.iter().filter(is_log) {
            let removed = self.target.remove(name);
            removed.map_err(CopyFailure::target("remove", name))?;
        }
        Ok(())
    }
}

/// Creates a file and syncs it; the caller syncs the directory.
fn put_file(target: &dyn Device, name: &str, bytes: &[u8]) -> Result<(), CopyFailure> {
    let file = target
        .create(name)
        .map_err(CopyFailure::target("create", name))?;
    let written = file.write_at(bytes, 0).and_then(|()| file.sync());
    written.map_err(CopyFailure::target("write", name))
}

/// Copies a layer and syncs it; the caller syncs the directory.
fn copy_layer(
    source: &dyn Device,
    target: &dyn Device,
    layer: Layer,
    advance: &mut dyn FnMut(u64),
) -> Result<(), CopyFailure> {
    let name = &layer::name(layer.number);
    let from = match source.open(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let what = "the manifest names it, but it does not exist";
            return Err(CopyFailure::damaged(name, 0, what));
        }
        opened => opened.map_err(CopyFailure::source("open", name))?,
    };
    let length = from.len().map_err(CopyFailure::source("read", name))?;
    if length != layer.bytes {
        // Checked before copying: the file may be longer than any device.
        let what = "it is not as long as the manifest says";
        return Err(CopyFailure::damaged(name, length, what));
    }
    let to = target
        .create(name)
        .map_err(CopyFailure::target("create", name))?;
    let (mut at, mut chunk) = (0, vec![0; CHUNK]);
    // Copies no further, even if the file grows meanwhile.
    while at < length {
        let wanted = (length - at).min(CHUNK as u64) as usize;
        let count = from.read_at(&mut chunk[..wanted], at);
        let count = count.map_err(CopyFailure::source("read", name))?;
        if count == 0 {
            break;
        }
        let written = to.write_at(&chunk[..count], at);
        written.map_err(CopyFailure::target("write", name))?;
        at += count as u64;
        advance(count as u64);
    }
    to.sync().map_err(CopyFailure::target("sync", name))
}

impl Transfer<'_> {
    /// Verifies the copy: layers row by row, the log record by record, and pages. All have
    /// checksums of their own, so damage in the source is found too.
    fn verify(&self, copied: CopySummary) -> Result<(), CopyFailure> {
        let (target, identity) = (&**self.target, &self.identity);
        let manifest = Manifest::read(target, identity).map_err(CopyFailure::again)?;
        let checkpoints = CheckpointPair::read(manifest, target, identity);
        let checkpoints = checkpoints.map_err(CopyFailure::of_copy)?;
        if checkpoints != self.checkpoints {
            return Err(CopyFailure::Differs(
                "its checkpoint is not what was written".to_owned(),
            ));
        }
        let layers = checkpoints.manifest.layers.iter();
        let readers = layers.map(|&layer| LayerReader::open(target, identity, layer));
        let readers: Vec<LayerReader> = readers
            .collect::<Result<_, _>>()
            .map_err(CopyFailure::again)?;
        let rows = Merge::new(&readers, None, Below::Nothing, None);
        let mut rows = rows.map_err(CopyFailure::again)?;
        while rows.advance().map_err(CopyFailure::again)?.is_some() {}
        let start = Start {
            from: checkpoints.needed_from(),
            durable: checkpoints.durable(),
        };
        let mut analysis = match checkpoints.anchor {
            None => None,
            Some(_) => Some(Analysis::begin(target, identity, None)?),
        };
        let mut take = |record: RecordView<'_>| match &mut analysis {
            None => Ok(()),
            Some(analysis) => analysis.take(record),
        };
        let read = reader::read(target, identity, start, &mut take);
        let found = read.map_err(|error| match error {
            OpenError::Device(failure) => CopyFailure::Target(failure),
            error => CopyFailure::Differs(error.to_string()),
        })?;
        // The log ends with the record that marks it as closed.
        let is_whole = found.ended == LogEnd::Closed && found.records == copied.records;
        if !is_whole || found.end <= copied.end {
            return Err(CopyFailure::Differs(format!("its log has {found}")));
        }
        if let (Some(pages), Some(analysis)) = (&self.pages, analysis) {
            let may_lack = |page| analysis.may_lack_changes(page);
            let copy = page_source(target, identity);
            let failed = |error| CopyFailure::of_pages(error, CopyFailure::Target);
            for repaired in pages.repaired() {
                let page = repaired.page;
                let is_whole = analysis.redoes(page, repaired.lsn)
                    || repaired.was_empty
                        && (may_lack(page) || !copy.is_used(page).map_err(failed)?);
                if !is_whole {
                    let what =
                        format!("page {page} is damaged, and its image is older than the log");
                    return Err(CopyFailure::Damaged(page_store::FILE.to_owned(), what));
                }
            }
            let read = copy.verify(&may_lack, &mut |_| {}).map_err(failed)?;
            if read != (pages.pages(), pages.newest()) {
                let what = "its pages are not what was written".to_owned();
                return Err(CopyFailure::Differs(what));
            }
        }
        Ok(())
    }
}

impl From<PageCopyError> for CopyFailure {
    fn from(error: PageCopyError) -> CopyFailure {
        match error {
            PageCopyError::Source(error) => CopyFailure::of_pages(error, CopyFailure::Source),
            PageCopyError::Target(error) => CopyFailure::of_pages(error, CopyFailure::Target),
        }
    }
}

/// Analysis of the copy's checkpoint.
impl From<RecoveryError<io::Error>> for CopyFailure {
    fn from(error: RecoveryError<io::Error>) -> CopyFailure {
        match error {
            RecoveryError::Anchor(error) => CopyFailure::from(error).of_copy(),
            RecoveryError::Read(error) => match *error {
                OpenError::Device(failure) => CopyFailure::Target(failure),
                error => CopyFailure::Differs(error.to_string()),
            },
            error => CopyFailure::damaged(ANCHOR_FILE, 0, &error.to_string()),
        }
    }
}

impl CopyFailure {
    /// Converts an error of a page file. `failed` says whose device it is.
    fn of_pages(error: PageFileError, failed: impl FnOnce(Failure) -> CopyFailure) -> CopyFailure {
        let failure = |operation, file: &str, source| Failure {
            operation,
            file: file.to_owned(),
            source,
        };
        let file = page_store::FILE;
        match error {
            PageFileError::Device { call, error, .. } => failed(failure(call, file, error)),
            PageFileError::Double { call, error } => {
                failed(failure(call, page_store::DOUBLEWRITE_FILE, error))
            }
            PageFileError::WriteFailed { first } => match &*first {
                PageFileError::Device { call, error, .. } => {
                    failed(failure(call, file, same_io_error(error)))
                }
                other => CopyFailure::Damaged(file.to_owned(), other.to_string()),
            },
            PageFileError::Header { field: "identity" } => CopyFailure::Foreign(file.to_owned()),
            PageFileError::Header { field: "version" } => {
                CopyFailure::Newer(format!("file {file} has another format"))
            }
            other => CopyFailure::Damaged(file.to_owned(), other.to_string()),
        }
    }
}

impl From<CopyError> for CopyFailure {
    fn from(error: CopyError) -> CopyFailure {
        match error {
            CopyError::Target(failure) => CopyFailure::Target(failure),
            CopyError::Source(OpenError::Device(failure)) => CopyFailure::Source(failure),
            CopyError::Source(OpenError::Corrupt(corruption)) => {
                CopyFailure::Damaged(corruption.file.clone(), corruption.to_string())
            }
            CopyError::Source(OpenError::Newer { file, version }) => {
                CopyFailure::Newer(format!("log file {file} has format {version}"))
            }
            CopyError::Source(OpenError::Foreign { file }) => CopyFailure::Foreign(file),
            other => CopyFailure::Damaged(String::new(), other.to_string()),
        }
    }
}

impl CopyFailure {
    /// Converts an error found while verifying the copy.
    fn again(error: CheckpointError) -> CopyFailure {
        CopyFailure::from(error).of_copy()
    }

    /// Returns the failure of the copy that is one of the source when a backup is read.
    fn of_copy(self) -> CopyFailure {
        match self {
            CopyFailure::Source(failure) => CopyFailure::Target(failure),
            other => other,
        }
    }
}

impl From<CheckpointError> for CopyFailure {
    fn from(error: CheckpointError) -> CopyFailure {
        match error {
            CheckpointError::Device(failure) | CheckpointError::Directory(failure) => {
                CopyFailure::Source(failure)
            }
            CheckpointError::Damaged { file, offset, what } => {
                CopyFailure::damaged(&file, offset, what)
            }
            CheckpointError::Newer { file, version } => {
                CopyFailure::Newer(format!("checkpoint file {file} has format {version}"))
            }
            other => CopyFailure::Damaged(String::new(), other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use foxton_log::device::memory::MemoryDevice;

    use super::*;
    use crate::{Database, Options, Table};

    const BULK: Table<u64, [u8]> = Table::new("bulk");
    const NOTES: Table<u64, u64> = Table::new("notes");

    /// A backup that has chosen its extent and then waits for the checkpoint to end may find a
    /// checkpoint beyond its extent.
    #[test]
    fn the_log_is_copied_up_to_a_checkpoint_beyond_the_extent() {
        let db = Database::open_on(Arc::new(MemoryDevice::new()), Options::tiny()).unwrap();
        // This transaction retains the log from its first part on.
        let mut open = db.begin().unwrap();
        for key in 0..100 {
            open.put(&BULK, &key, &[7; 900]).unwrap();
        }
        db.run(|tx| tx.put(&NOTES, &1, &1)).unwrap();
        let said = db.log_end();
        db.run(|tx| tx.put(&NOTES, &2, &2)).unwrap();
        let made = db.checkpoint().unwrap();
        assert!(
            made.redo_from < said && said < made.checkpoint_lsn,
            "{made:?}"
        );
        let (at_least, at_most) = (said, said);
        let (engine, target) = (db.engine(), Arc::new(MemoryDevice::new()));
        let target: Arc<dyn Device> = target;
        let files = engine.persistence.files().expect("it has a device");
        let identity = &files.superblock.identity;
        let mut progress = |_, _| {};
        let begun = Transfer::begin(&*files.device, identity, &target, &mut progress);
        let extent = Extent { at_least, at_most };
        let moved = begun.unwrap().copy_log(&*files.device, extent);
        assert_eq!(moved.unwrap().unwrap().end, made.checkpoint_lsn);
    }
}
