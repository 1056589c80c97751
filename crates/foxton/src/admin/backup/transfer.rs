//! Transfer of the checkpoint and the log from one directory to another, and verification of the
//! copy.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::sync::Arc;

use foxton_log::copy::{CopyError, CopyRange, CopySummary, copy};
use foxton_log::device::Device;
use foxton_log::read::reader;
use foxton_log::{LogEnd, Lsn, OpenError, Start};

use super::CopyProgress;
use super::error::CopyFailure;
use crate::checkpoint::CheckpointError;
use crate::checkpoint::layer::{self, Layer, LayerReader};
use crate::checkpoint::manifest::{self, Manifest};
use crate::checkpoint::merge::{Below, Merge};

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
    pub(super) checkpoint_lsn: Lsn,
    pub(super) from: Lsn,
    pub(super) end: Lsn,
    pub(super) records: u64,
    pub(super) files: u32,
}

/// Copies the database `identity` durably into an empty directory and verifies the copy.
pub(super) fn transfer(
    source: &dyn Device,
    identity: &[u8; 16],
    extent: Extent,
    target: &Arc<dyn Device>,
    progress: CopyProgress<'_>,
) -> Result<CopiedLog, CopyFailure> {
    let manifest = Manifest::read(source, identity)?;
    let total = super::about(source);
    let mut done = 0;
    let mut advance = |bytes: u64| {
        done += bytes;
        progress(done.min(total), total);
    };
    for &layer in &manifest.layers {
        copy_layer(source, &**target, layer, &mut advance)?;
    }
    if manifest != Manifest::default() {
        let whole = manifest.encode(identity);
        put_file(&**target, manifest::FILE, &whole)?;
    }
    let (checkpoint_lsn, from) = (manifest.checkpoint_lsn, manifest.redo_from);
    let span = CopyRange {
        from,
        at_least: extent.at_least.max(checkpoint_lsn),
        // A checkpoint may have been made since the extent was chosen, and needs the log up to its
        // LSN.
        at_most: extent.at_most.max(checkpoint_lsn),
    };
    let copied = copy(source, identity, span, target, &mut advance)?;
    target
        .sync_dir()
        .map_err(CopyFailure::target("sync", "the directory"))?;
    verify(&**target, identity, &manifest, copied)?;
    Ok(CopiedLog {
        checkpoint_lsn,
        from,
        end: copied.end,
        records: copied.records,
        files: u32::try_from(manifest.layers.len()).unwrap_or(u32::MAX),
    })
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

/// Verifies the copy: layers row by row, the log record by record. Both have checksums of their
/// own, so damage in the source is found too.
fn verify(
    target: &dyn Device,
    identity: &[u8; 16],
    copy_of: &Manifest,
    copied: CopySummary,
) -> Result<(), CopyFailure> {
    let manifest = Manifest::read(target, identity).map_err(CopyFailure::again)?;
    if manifest != *copy_of {
        return Err(CopyFailure::Differs(
            "its checkpoint is not what was written".to_owned(),
        ));
    }
    let layers = manifest.layers.iter();
    let readers = layers.map(|&layer| LayerReader::open(target, identity, layer));
    let readers: Vec<LayerReader> = readers
        .collect::<Result<_, _>>()
        .map_err(CopyFailure::again)?;
    let mut rows = Merge::new(&readers, None, Below::Nothing, None).map_err(CopyFailure::again)?;
    while rows.advance().map_err(CopyFailure::again)?.is_some() {}
    let start = Start {
        from: manifest.redo_from,
        durable: manifest.checkpoint_lsn,
    };
    let read = reader::read(target, identity, start, &mut |_| Ok::<(), Infallible>(()));
    let found = read.map_err(|error| match error {
        OpenError::Device(failure) => CopyFailure::Target(failure),
        error => CopyFailure::Differs(error.to_string()),
    })?;
    // The log ends with the record that marks it as closed.
    let whole = found.ended == LogEnd::Closed && found.records == copied.records;
    if whole && found.end > copied.end {
        Ok(())
    } else {
        Err(CopyFailure::Differs(format!("its log has {found}")))
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
        match CopyFailure::from(error) {
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
        let moved = transfer(
            &*files.device,
            &files.superblock.identity,
            Extent { at_least, at_most },
            &target,
            &mut |_, _| {},
        );
        assert_eq!(moved.unwrap().end, made.checkpoint_lsn);
    }
}
