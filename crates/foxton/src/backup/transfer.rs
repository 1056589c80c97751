//! From one directory to another: the files of the checkpoint, the log, and a second look at both.

use std::convert::Infallible;
use std::sync::Arc;

use foxton_log::copy::{Copied, CopyError, Span, copy};
use foxton_log::device::Device;
use foxton_log::{Ended, Failure, Lsn, OpenError, Start, reader};

use super::{Failed, Told};
use crate::checkpoint::manifest::{self, Manifest};
use crate::checkpoint::{Trouble, layer};

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
pub(super) struct Moved {
    pub(super) image: Lsn,
    pub(super) from: Lsn,
    pub(super) end: Lsn,
    pub(super) records: u64,
    pub(super) files: u32,
    pub(super) bytes: u64,
}

/// What there is of a database besides its log.
struct Base {
    manifest: Manifest,
    /// The files of its layers.
    files: Vec<String>,
}

/// Copies the database `identity` to a directory that is empty, durably, and reads the copy again.
pub(super) fn transfer(
    source: &dyn Device,
    identity: &[u8; 16],
    extent: Extent,
    target: &Arc<dyn Device>,
    told: Told<'_>,
) -> Result<Moved, Failed> {
    let manifest = Manifest::read(source, identity)?;
    let layers = manifest.layers.iter();
    let files = layers.map(|layer| layer::name(layer.number)).collect();
    let base = Base { manifest, files };
    let total = super::size_of(source)?;
    let mut done = 0;
    let mut advance = |bytes: u64| {
        done += bytes;
        told(done.min(total), total);
    };
    let mut checks = Vec::new();
    for name in &base.files {
        checks.push(copy_file(source, &**target, name, &mut advance)?);
    }
    if base.manifest != Manifest::default() {
        // As it was read: whoever has the database open may have made another by now.
        let whole = base.manifest.encode(identity);
        put_file(&**target, manifest::FILE, &whole)?;
    }
    let (image, from) = (base.manifest.image, base.manifest.redo_from);
    let span = Span {
        from,
        at_least: extent.at_least.max(image),
        at_most: extent.at_most,
    };
    let copied = copy(source, identity, span, target, &mut advance)?;
    target
        .sync_dir()
        .map_err(Failed::target("sync", "the directory"))?;
    verify(&**target, identity, &base, &checks, copied)?;
    Ok(Moved {
        image,
        from,
        end: copied.end,
        records: copied.records,
        files: u32::try_from(base.files.len()).unwrap_or(u32::MAX),
        bytes: super::size_of(&**target)?,
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

/// Copies a file, durably but for its name, and returns its checksum.
fn copy_file(
    source: &dyn Device,
    target: &dyn Device,
    name: &str,
    advance: &mut dyn FnMut(u64),
) -> Result<u32, Failed> {
    let from = source.open(name).map_err(Failed::source("open", name))?;
    let to = target
        .create(name)
        .map_err(Failed::target("create", name))?;
    let (mut check, mut at, mut chunk) = (0, 0, vec![0; CHUNK]);
    loop {
        let count = from.read_at(&mut chunk, at);
        let count = count.map_err(Failed::source("read", name))?;
        if count == 0 {
            break;
        }
        let written = to.write_at(&chunk[..count], at);
        written.map_err(Failed::target("write", name))?;
        check = crc32c::crc32c_append(check, &chunk[..count]);
        at += count as u64;
        advance(count as u64);
    }
    to.sync().map_err(Failed::target("sync", name))?;
    Ok(check)
}

/// Reads the copy again: files byte by byte, the log record by record.
fn verify(
    target: &dyn Device,
    identity: &[u8; 16],
    base: &Base,
    checks: &[u32],
    copied: Copied,
) -> Result<(), Failed> {
    for (name, check) in base.files.iter().zip(checks) {
        let file = target.open(name).map_err(Failed::target("open", name))?;
        let (mut again, mut at, mut chunk) = (0, 0, vec![0; CHUNK]);
        loop {
            let count = file.read_at(&mut chunk, at);
            match count.map_err(Failed::target("read", name))? {
                0 => break,
                count => {
                    again = crc32c::crc32c_append(again, &chunk[..count]);
                    at += count as u64;
                }
            }
        }
        if again != *check {
            return Err(Failed::Differs(format!("{name} is not what was written")));
        }
    }
    let manifest = Manifest::read(target, identity).map_err(|trouble| match trouble.into() {
        Failed::Source(failure) => Failed::Target(failure),
        other => other,
    })?;
    if manifest != base.manifest {
        return Err(Failed::Differs(
            "its checkpoint is not what was written".to_owned(),
        ));
    }
    let start = Start {
        from: manifest.redo_from,
        durable: manifest.image,
    };
    let read = reader::read(target, identity, start, &mut |_| Ok::<(), Infallible>(()));
    let found = read.map_err(|error| match error {
        OpenError::Device(failure) => Failed::Target(failure),
        error => Failed::Differs(error.to_string()),
    })?;
    // The log ends with the record that says it was closed.
    let whole = found.ended == Ended::Closed && found.records == copied.records;
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
            other => Failed::Damaged(String::new(), other.to_string()),
        }
    }
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Failed {
        match trouble {
            Trouble::Device(failure) | Trouble::Directory(failure) => Failed::Source(failure),
            Trouble::Damaged { file, offset, what } => Failed::damaged(&file, offset, what),
            Trouble::Newer { file, version } => {
                Failed::Newer(format!("checkpoint file {file} has format {version}"))
            }
            other => Failed::Damaged(String::new(), other.to_string()),
        }
    }
}
