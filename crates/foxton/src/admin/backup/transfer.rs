//! From one directory to another: the files of the checkpoint, the log, and a second look at both.

use std::convert::Infallible;
use std::sync::Arc;

use foxton_log::copy::{CopyError, CopyRange, CopySummary, copy};
use foxton_log::device::Device;
use foxton_log::read::reader;
use foxton_log::{LogEnd, Lsn, OpenError, Start};

use super::CopyProgress;
use super::error::Failed;
use crate::checkpoint::CheckpointError;
use crate::checkpoint::layer::{self, Layer, LayerReader};
use crate::checkpoint::manifest::{self, Manifest};
use crate::checkpoint::merge::{Below, Merge};

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// Which part of the log is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// It is known to go on to here.
    pub(super) at_least: Lsn,
    /// Nothing that ends later.
    pub(super) at_most: Lsn,
}

/// What was copied.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopiedLog {
    pub(super) checkpoint_lsn: Lsn,
    pub(super) from: Lsn,
    pub(super) end: Lsn,
    pub(super) records: u64,
    pub(super) files: u32,
}

/// Copies the database `identity` to a directory that is empty, durably, and reads the copy again.
pub(super) fn transfer(
    source: &dyn Device,
    identity: &[u8; 16],
    extent: Extent,
    target: &Arc<dyn Device>,
    told: CopyProgress<'_>,
) -> Result<CopiedLog, Failed> {
    let manifest = Manifest::read(source, identity)?;
    let total = super::about(source);
    let mut done = 0;
    let mut advance = |bytes: u64| {
        done += bytes;
        told(done.min(total), total);
    };
    for &layer in &manifest.layers {
        copy_layer(source, &**target, layer, &mut advance)?;
    }
    if manifest != Manifest::default() {
        // As it was read: whoever has the database open may have made another by now.
        let whole = manifest.encode(identity);
        put_file(&**target, manifest::FILE, &whole)?;
    }
    let (checkpoint_lsn, from) = (manifest.checkpoint_lsn, manifest.redo_from);
    let span = CopyRange {
        from,
        at_least: extent.at_least.max(checkpoint_lsn),
        // A checkpoint may have been made since somebody said how much he wants, and needs the log up to there.
        at_most: extent.at_most.max(checkpoint_lsn),
    };
    let copied = copy(source, identity, span, target, &mut advance)?;
    target
        .sync_dir()
        .map_err(Failed::target("sync", "the directory"))?;
    verify(&**target, identity, &manifest, copied)?;
    Ok(CopiedLog {
        checkpoint_lsn,
        from,
        end: copied.end,
        records: copied.records,
        files: u32::try_from(manifest.layers.len()).unwrap_or(u32::MAX),
    })
}

/// Makes a file, durably but for its name.
fn put_file(target: &dyn Device, name: &str, bytes: &[u8]) -> Result<(), Failed> {
    let file = target
        .create(name)
        .map_err(Failed::target("create", name))?;
    let written = file.write_at(bytes, 0).and_then(|()| file.sync());
    written.map_err(Failed::target("write", name))
}

/// Copies a layer, durably but for its name.
fn copy_layer(
    source: &dyn Device,
    target: &dyn Device,
    layer: Layer,
    advance: &mut dyn FnMut(u64),
) -> Result<(), Failed> {
    let name = &layer::name(layer.number);
    let from = source.open(name).map_err(Failed::source("open", name))?;
    let length = from.len().map_err(Failed::source("read", name))?;
    if length != layer.bytes {
        // Before any of it is copied: it may have been made longer than any device.
        let what = "it is not as long as the manifest says";
        return Err(Failed::damaged(name, length, what));
    }
    let to = target
        .create(name)
        .map_err(Failed::target("create", name))?;
    let (mut at, mut chunk) = (0, vec![0; CHUNK]);
    // No further, should somebody make it longer meanwhile.
    while at < length {
        let wanted = (length - at).min(CHUNK as u64) as usize;
        let count = from.read_at(&mut chunk[..wanted], at);
        let count = count.map_err(Failed::source("read", name))?;
        if count == 0 {
            break;
        }
        let written = to.write_at(&chunk[..count], at);
        written.map_err(Failed::target("write", name))?;
        at += count as u64;
        advance(count as u64);
    }
    to.sync().map_err(Failed::target("sync", name))
}

/// Reads the copy again: layers row by row, the log record by record. Both have checksums of their own,
/// so what had gone bad in what was copied is noticed, too.
fn verify(
    target: &dyn Device,
    identity: &[u8; 16],
    copy_of: &Manifest,
    copied: CopySummary,
) -> Result<(), Failed> {
    let manifest = Manifest::read(target, identity).map_err(Failed::again)?;
    if manifest != *copy_of {
        return Err(Failed::Differs(
            "its checkpoint is not what was written".to_owned(),
        ));
    }
    let layers = manifest.layers.iter();
    let readers = layers.map(|&layer| LayerReader::open(target, identity, layer));
    let readers: Vec<LayerReader> = readers.collect::<Result<_, _>>().map_err(Failed::again)?;
    let mut rows = Merge::new(&readers, None, Below::Nothing, None).map_err(Failed::again)?;
    while rows.advance().map_err(Failed::again)?.is_some() {}
    let start = Start {
        from: manifest.redo_from,
        durable: manifest.checkpoint_lsn,
    };
    let read = reader::read(target, identity, start, &mut |_| Ok::<(), Infallible>(()));
    let found = read.map_err(|error| match error {
        OpenError::Device(failure) => Failed::Target(failure),
        error => Failed::Differs(error.to_string()),
    })?;
    // The log ends with the record that says it was closed.
    let whole = found.ended == LogEnd::Closed && found.records == copied.records;
    if whole && found.end > copied.end {
        Ok(())
    } else {
        Err(Failed::Differs(format!("its log has {found}")))
    }
}

impl From<CopyError> for Failed {
    fn from(error: CopyError) -> Failed {
        match error {
            CopyError::Target(failure) => Failed::Target(failure),
            CopyError::Source(OpenError::Device(failure)) => Failed::Source(failure),
            CopyError::Source(OpenError::Corrupt(corruption)) => {
                Failed::Damaged(corruption.file.clone(), corruption.to_string())
            }
            CopyError::Source(OpenError::Newer { file, version }) => {
                Failed::Newer(format!("log file {file} has format {version}"))
            }
            CopyError::Source(OpenError::Foreign { file }) => Failed::Foreign(file),
            other => Failed::Damaged(String::new(), other.to_string()),
        }
    }
}

impl Failed {
    /// What was found when the copy was read again.
    fn again(error: CheckpointError) -> Failed {
        match Failed::from(error) {
            Failed::Source(failure) => Failed::Target(failure),
            other => other,
        }
    }
}

impl From<CheckpointError> for Failed {
    fn from(error: CheckpointError) -> Failed {
        match error {
            CheckpointError::Device(failure) | CheckpointError::Directory(failure) => {
                Failed::Source(failure)
            }
            CheckpointError::Damaged { file, offset, what } => Failed::damaged(&file, offset, what),
            CheckpointError::Newer { file, version } => {
                Failed::Newer(format!("checkpoint file {file} has format {version}"))
            }
            other => Failed::Damaged(String::new(), other.to_string()),
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

    /// Whoever says how much he wants, and waits until no checkpoint is made, may find one beyond what he said.
    #[test]
    fn the_log_is_copied_up_to_a_checkpoint_that_was_made_since_it_was_said_how_much_is_wanted() {
        let db = Database::in_memory(Options::tiny()).unwrap();
        // It keeps the log from its first part on.
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
        let moved = transfer(
            &*engine.device,
            &engine.superblock.identity,
            Extent { at_least, at_most },
            &target,
            &mut |_, _| {},
        );
        assert_eq!(moved.unwrap().end, made.checkpoint_lsn);
    }
}
