//! Source of a backup: the files of one manifest, opened before the first byte is copied.
//!
//! # The problem
//!
//! The database may be in use, by this or another process. Each of its checkpoints publishes a new
//! manifest and then removes the files that only older ones need. A copy takes far longer than a
//! checkpoint, so the files of a manifest must be open before they are removed.
//!
//! # The protocol
//!
//! Opening shares a lock on the file [`REMOVAL_LOCK`], and a checkpoint removes files only under
//! the exclusive lock. Neither waits: a checkpoint that is refused leaves its files to the next
//! one. So a backup that is descheduled or stopped here stops no checkpoint, and the system
//! releases the lock of a process that ends.
//!
//! # Pages
//!
//! The page file is copied while it changes, and then the copy needs log that is not there yet when
//! the files are opened. So a backup with pages shares the lock until it ends, which keeps the log
//! from where the pages need it. Meanwhile checkpoints remove no files. Where files cannot be
//! locked, the backup fails if log was removed.
//!
//! # Why opening ends
//!
//! * With the lock, the first attempt succeeds. The manifest is read under the lock, so its files
//!   are removed after the lock is released at the earliest. The lock itself is refused only while
//!   a checkpoint removes files; between two removals, a checkpoint writes and syncs files.
//! * If files cannot be locked there, an attempt fails only if a checkpoint publishes a manifest
//!   within the microseconds that it takes. Attempts are bounded, and the error then says so.
//!
//! # Why a missing file is damage
//!
//! Files of a manifest are removed only after another manifest was published. So a file that is
//! missing, although the manifest read again afterwards is the same, was not removed by a
//! checkpoint.

use std::io;
use std::thread;
use std::time::Duration;

use foxton_log::Failure;
use foxton_log::Lsn;
use foxton_log::copy::open_log;
use foxton_log::device::opened::OpenedFiles;
use foxton_log::device::{Device, FileLock, FileLockMode};
use foxton_log::format::segment;

use foxton_store::paged::recovery::ANCHOR_FILE;

use super::checkpoint_pair::CheckpointPair;
use super::error::CopyFailure;
use crate::checkpoint::REMOVAL_LOCK;
use crate::checkpoint::layer;
use crate::checkpoint::manifest::{self, Manifest};
use crate::engine::page_store;

/// Maximum number of attempts to open all files, and to lock them.
const ATTEMPTS: u32 = 1_000;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// Opens the files of the database `identity` that a backup needs.
pub(super) fn open<'d>(
    device: &'d dyn Device,
    identity: &[u8; 16],
) -> Result<OpenedFiles<'d>, CopyFailure> {
    for _ in 0..ATTEMPTS {
        let lock = share_files(device);
        let is_locked = lock.is_some();
        let mut files = OpenedFiles::new(device, lock);
        let (checkpoints, is_whole) = open_all(&mut files, identity)?;
        let manifest = &checkpoints.manifest;
        let is_same = || Ok::<_, CopyFailure>(Manifest::read(device, identity)? == *manifest);
        if is_locked && is_whole || is_same()? {
            if checkpoints.anchor.is_none() {
                files.finish();
            }
            return Ok(files);
        }
        drop(files);
        thread::sleep(PAUSE);
    }
    Err(CopyFailure::Source(Failure {
        operation: "open",
        file: manifest::FILE.to_owned(),
        source: io::Error::other("each time, a checkpoint replaced it before all files were open"),
    }))
}

/// Opens the log from `from` on again, with what was written since.
pub(super) fn open_log_again(files: &mut OpenedFiles<'_>, from: Lsn) -> Result<(), CopyFailure> {
    if open_log(files, from).map_err(CopyFailure::Source)? {
        return Ok(());
    }
    Err(CopyFailure::Source(Failure {
        operation: "open",
        file: segment::name(from),
        source: io::Error::other("log was removed while pages were copied; repeat the backup"),
    }))
}

/// Opens the files of the checkpoints, and returns whether all were there.
fn open_all(
    files: &mut OpenedFiles<'_>,
    identity: &[u8; 16],
) -> Result<(CheckpointPair, bool), CopyFailure> {
    let keep = |files: &mut OpenedFiles<'_>, name: &str| {
        let kept = files.keep(name);
        kept.map_err(CopyFailure::source("open", name))
    };
    keep(files, manifest::FILE)?;
    let manifest = Manifest::read(files, identity)?;
    let mut is_whole = true;
    for layer in &manifest.layers {
        is_whole &= keep(files, &layer::name(layer.number))?;
    }
    // Before the pages, because no page in the file gets older.
    for name in [ANCHOR_FILE, page_store::FILE, page_store::DOUBLEWRITE_FILE] {
        keep(files, name)?;
    }
    let checkpoints = CheckpointPair::read(manifest, files, identity)?;
    is_whole &= open_log(files, checkpoints.needed_from()).map_err(CopyFailure::Source)?;
    Ok((checkpoints, is_whole))
}

/// Keeps checkpoints from removing files. Returns `None` if that is not possible there.
fn share_files(device: &dyn Device) -> Option<FileLock> {
    for _ in 0..ATTEMPTS {
        match device.try_lock_file(REMOVAL_LOCK, FileLockMode::Shared) {
            Ok(None) => thread::sleep(PAUSE),
            locked => return locked.ok().flatten(),
        }
    }
    None
}
