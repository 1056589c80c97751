//! Backups: a copy of a database at one position of its log, made while it is in use.
//!
//! # The idea
//!
//! A log up to the end of any record is the database after some commit. So a copy needs no snapshot
//! of the tables, and no transaction stops. A backup is the checkpoint, if there is one, and the
//! log from there to a position that is reported at the end.
//! [`Database::backup_to`](crate::Database::backup_to) first makes everything durable that was
//! committed when it began, and copies up to there.
//! [`of_directory`](crate::admin::backup::of_directory) reads the files of a database without
//! opening it, whether a process has it open or not, and copies what is complete in them. It
//! includes all commits that were acknowledged *sync* or *buffered* before it began.
//!
//! Pages of paged tables are copied as they are in the page file, while the page cleaner writes
//! them. The log is copied from where the last checkpoint of pages needs it, and up to a position
//! behind every change of the copied pages. Opening the restored database is a restart, which
//! brings all pages to that position. The backup cannot be restored to a position before the last
//! change of a copied page.
//!
//! # Contents of a backup
//!
//! The files of the checkpoint, the page file and its anchor if there are paged tables, a log of
//! its own that is closed, and the label. There is no doublewrite buffer, because all copied pages
//! are whole. The label is written last, after everything else was synced and verified. There is no
//! file `foxton`: a backup is not opened but [restored](crate::admin::backup::restore), so it never
//! changes.
//!
//! # Invariants
//!
//! * I1  A directory with a label holds a complete, durable backup.
//! * I2  A backup changes nothing in the database, and neither a writer nor a checkpoint waits for
//!   it. It always ends, because it opens all files that it needs before it copies the first byte
//!   (`source`), apart from log that it needs for pages. At most a checkpoint leaves files for the
//!   next one to remove.
//! * I3  A restored database gets its superblock last. Before that it is not a database, and is
//!   marked as such from the beginning (`target`).
//!
//! # A restored database
//!
//! It has the same identity as the original, but another future: after both continue, their logs
//! have different records at the same positions. Never put files of one into the directory of the
//! other.

/// Errors of a backup.
mod error;

/// Checkpoints of a copy.
mod checkpoint_pair;

/// Label: the file that makes a directory a backup.
mod label;

/// Source of a backup: files that are opened together.
mod source;

/// Target directory of a copy.
mod target;

/// Transfer of files from one directory to another.
mod transfer;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use foxton_log::device::Device;
use foxton_log::device::file::FileDevice;
use foxton_log::format::superblock::{self, Superblock, SuperblockError};
use foxton_log::{Failure, Lsn};

use crate::api::database::Database;
use crate::checkpoint::manifest::Manifest;
use crate::engine::page_store;
use crate::error::{Request, Result, Storage};
use crate::recovery::open_error::{no_superblock, not_read};
use crate::types::limits::{BACKUP_FILE, RESTORE_FILE};
pub(crate) use checkpoint_pair::CheckpointPair;
use error::CopyFailure;
pub(crate) use label::Label;
use target::{CopyKind, size_of};
use transfer::{Extent, Transfer};

/// Description of a backup, or of a database restored from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// The position of the backup: it contains exactly the transactions whose records end here or
    /// before.
    pub end: Lsn,
    /// The earliest position to which it can be restored.
    pub earliest: Lsn,
    /// Number of records in its log.
    pub records: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Time when it began.
    pub taken: SystemTime,
}

/// Callback for the progress of a copy: bytes done, and the approximate total.
pub type CopyProgress<'t> = &'t mut dyn FnMut(u64, u64);

impl Database {
    /// Makes a backup in the directory `path`, which must be empty or not exist, while transactions
    /// continue. The backup contains everything that was committed when this was called, and has
    /// been verified when this returns. [`restore`] makes a database from it.
    ///
    /// ```
    /// use foxton::{Database, Table, backup};
    ///
    /// const STOCK: Table<str, u32> = Table::new("stock");
    ///
    /// # let scratch = std::env::temp_dir().join(format!("foxton-backup-{}", std::process::id()));
    /// # fn main_(scratch: &std::path::Path) -> foxton::Result<()> {
    /// # std::fs::create_dir(scratch).unwrap();
    /// # let (path, copy) = (scratch.join("db"), scratch.join("copy"));
    /// # let again = scratch.join("again");
    /// let db = Database::open(path)?;
    /// db.run(|tx| tx.put(&STOCK, "apples", &12))?;
    /// let made = db.backup_to(&copy)?;
    /// db.run(|tx| tx.put(&STOCK, "apples", &0))?;
    ///
    /// let restored = backup::restore(&copy, &again, None, &mut |_, _| {})?;
    /// assert_eq!(restored.end, made.end);
    /// let db = Database::open(again)?;
    /// assert_eq!(db.run(|tx| tx.get(&STOCK, "apples"))?, Some(12));
    /// # Ok(()) }
    /// # main_(&scratch)?;
    /// # std::fs::remove_dir_all(&scratch).unwrap();
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// A storage error if the directory is not empty, the log has failed, or either device fails.
    /// The directory then holds no backup; the database continues. A request error if the database
    /// is in memory.
    pub fn backup_to(&self, path: impl AsRef<Path>) -> Result<Backup> {
        self.engine().check_process()?;
        let path = path.as_ref();
        let target = CopyKind::Backup.directory(path)?;
        self.backup_on_at(&target, path, &mut |_, _| {})
    }

    /// Returns the LSN at which the log ends now. All committed transactions are before it. A
    /// backup made later can be [restored](restore) to this position.
    pub fn log_end(&self) -> Lsn {
        let engine = self.engine();
        match engine.is_inherited() {
            false => engine.persistence.end(&engine.workers.worker()),
            true => Lsn::ZERO,
        }
    }

    /// Like [`backup_to`](Self::backup_to), to a device of your own, and with a progress callback.
    /// Tests use it with a device that fails.
    ///
    /// # Errors
    /// As for [`backup_to`](Self::backup_to).
    pub fn backup_on(
        &self,
        target: &Arc<dyn Device>,
        progress: CopyProgress<'_>,
    ) -> Result<Backup> {
        self.engine().check_process()?;
        let path = Path::new("the device");
        CopyKind::Backup.take(target, path)?;
        self.backup_on_at(target, path, progress)
    }

    fn backup_on_at(
        &self,
        target: &Arc<dyn Device>,
        path: &Path,
        progress: CopyProgress<'_>,
    ) -> Result<Backup> {
        let engine = self.engine();
        let files = engine.persistence.files().ok_or(Request::InMemory)?;
        let worker = engine.workers.worker();
        let mut end = || {
            let end = engine.persistence.end(&worker);
            if let Some(logged) = engine.logged() {
                let durable = logged.log.wait_durable(&worker, end);
                durable.map_err(CopyFailure::Log)?;
            }
            Ok(Extent {
                at_least: end,
                at_most: end,
            })
        };
        let place = Path::new(&engine.location);
        let identity = &files.superblock.identity;
        make(&*files.device, identity, &mut end, target, progress)
            .map_err(|failed| CopyKind::Backup.ended(failed, &**target, (place, path)))
    }
}

/// Makes a backup of the database in the directory `path` without opening it, whether a process has
/// it open or not. It reads the files and copies what is complete in them. The backup contains
/// every commit that was acknowledged *sync* or *buffered* before this was called.
///
/// # Errors
/// A storage error if there is no database, it is damaged, the directory `target` is not empty, or
/// a device fails.
pub fn of_directory(
    path: impl AsRef<Path>,
    target: impl AsRef<Path>,
    progress: CopyProgress<'_>,
) -> Result<Backup> {
    let (path, target_path) = (path.as_ref(), target.as_ref());
    let source = FileDevice::open(path).map_err(|error| not_read(path, error))?;
    let superblock = Superblock::read(&source);
    let superblock =
        superblock.map_err(|error| no_superblock(&source, path, error).in_passing())?;
    let target = CopyKind::Backup.directory(target_path)?;
    let mut end = || {
        Ok(Extent {
            at_least: Lsn::ZERO,
            at_most: Lsn::MAX,
        })
    };
    make(&source, &superblock.identity, &mut end, &target, progress)
        .map_err(|failed| CopyKind::Backup.ended(failed, &*target, (path, target_path)))
}

/// Returns the contents of the label of the backup in the directory `path`.
///
/// # Errors
/// A storage error if there is no label, or it is damaged.
pub fn inspect(path: impl AsRef<Path>) -> Result<Backup> {
    let path = path.as_ref();
    let (source, label) = labelled(path)?;
    Ok(label.backup(about(&source)))
}

/// Restores the backup in the directory `backup` into the directory `target`, which must be empty
/// or not exist. The database is as it was at the backup's position, or at the last commit up to
/// `to`. It has been verified when this returns.
///
/// From before the first file is created until the restore is complete, `target` is not a database:
/// opening it fails with `not_restored`. The same holds after an interrupted or failed restore.
/// Restoring into it again starts from the beginning.
///
/// # Errors
/// A storage error if there is no complete backup, it is damaged, `target` is not empty, or a
/// device fails. A request error if the backup does not include `to`.
pub fn restore(
    backup: impl AsRef<Path>,
    target: impl AsRef<Path>,
    to: Option<Lsn>,
    progress: CopyProgress<'_>,
) -> Result<Backup> {
    let (path, target_path) = (backup.as_ref(), target.as_ref());
    let (source, label) = labelled(path)?;
    reaches(&label, to)?;
    let target = CopyKind::Database.directory(target_path)?;
    restore_on(&source, &label, &target, to, progress)
        .map_err(|failed| CopyKind::Database.ended(failed, &*target, (path, target_path)))
}

/// Like [`restore`], between devices of your own. Tests use it with devices that fail.
///
/// # Errors
/// As for [`restore`].
pub fn restore_between(
    backup: &dyn Device,
    target: &Arc<dyn Device>,
    to: Option<Lsn>,
    progress: CopyProgress<'_>,
) -> Result<Backup> {
    let path = Path::new("the device");
    let label = Label::read(backup).map_err(|failed| failed.into_error(path, path))?;
    reaches(&label, to)?;
    CopyKind::Database.take(target, path)?;
    restore_on(backup, &label, target, to, progress)
        .map_err(|failed| CopyKind::Database.ended(failed, &**target, (path, path)))
}

fn reaches(label: &Label, to: Option<Lsn>) -> Result<()> {
    match to {
        Some(to) if to < label.earliest() || to > label.end => {
            let what = format!(
                "log position {to} is not in this backup, which can be restored to positions from {} \
                 to {}",
                label.earliest(),
                label.end
            );
            Err(Request::Other(Box::new(what.into())).into())
        }
        _ => Ok(()),
    }
}

/// Copies the database `identity`, which may be in use, and writes the label. `end` says how much
/// of the log to copy, up to where it is durable now.
fn make(
    device: &dyn Device,
    identity: &[u8; 16],
    end: &mut dyn FnMut() -> Result<Extent, CopyFailure>,
    target: &Arc<dyn Device>,
    progress: CopyProgress<'_>,
) -> Result<Backup, CopyFailure> {
    let taken = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // Before the files are opened: if they have no pages, no record up to here needs any.
    let mut extent = end()?;
    let mut source = source::open(device, identity)?;
    let mut transfer = Transfer::begin(&source, identity, target, progress)?;
    let checkpoints = transfer.checkpoints().clone();
    let copied = match checkpoints.anchor {
        None => transfer.copy_log(&source, extent)?,
        Some(_) => loop {
            extent = end()?;
            source::open_log_again(&mut source, checkpoints.needed_from())?;
            let copied = transfer.copy_log(&source, extent)?;
            if copied.is_some() {
                break copied;
            }
        },
    };
    let copied = copied.expect("without pages it is copied at once");
    // Behind the log, because a record in it may need a feature that is new.
    let superblock =
        Superblock::read(device).map_err(superblock_failure("read", CopyFailure::Source))?;
    let is_first = checkpoints.anchor.is_none() && superblock.incompat & superblock::PAGES != 0;
    if is_first && extent.at_most == Lsn::MAX && has_anchor(device, identity)? {
        let source = "it got its first paged table meanwhile; repeat the backup";
        let failed = CopyFailure::source("copy", page_store::FILE);
        return Err(failed(io::Error::other(source)));
    }
    let label = Label {
        identity: *identity,
        compat: superblock.compat,
        incompat: superblock.incompat,
        checkpoint_lsn: checkpoints.manifest.checkpoint_lsn,
        from: checkpoints.needed_from(),
        end: copied.end,
        records: copied.records,
        taken_micros: taken.map_or(0, |taken| {
            u64::try_from(taken.as_micros()).unwrap_or(u64::MAX)
        }),
        files: u32::try_from(checkpoints.manifest.layers.len()).unwrap_or(u32::MAX),
        pages_lsn: copied.pages_lsn,
    };
    // From here on no step may fail after it has left a complete backup.
    let bytes = size_of(&**target)? + label::BYTES as u64;
    label.write(&**target)?;
    Ok(label.backup(bytes))
}

fn restore_on(
    source: &dyn Device,
    label: &Label,
    target: &Arc<dyn Device>,
    to: Option<Lsn>,
    progress: CopyProgress<'_>,
) -> Result<Backup, CopyFailure> {
    let to = to.unwrap_or(label.end);
    let extent = Extent {
        at_least: label.end,
        at_most: to,
    };
    let manifest = Manifest::read(source, &label.identity)?;
    if !label.is_of(&CheckpointPair::read(manifest, source, &label.identity)?) {
        return Err(CopyFailure::damaged(BACKUP_FILE, 0, Label::STRANGE));
    }
    let mut transfer = Transfer::begin(source, &label.identity, target, progress)?;
    let Some(copied) = transfer.copy_log(source, extent)? else {
        let what = "it has changes behind the end of the log";
        return Err(CopyFailure::damaged(page_store::FILE, 0, what));
    };
    let bytes = size_of(&**target)?;
    let mut superblock = Superblock::new(label.identity);
    superblock.compat = label.compat;
    superblock.incompat = label.incompat;
    let made = superblock.create_over(&**target, RESTORE_FILE);
    made.map_err(superblock_failure("write", CopyFailure::Target))?;
    let restored = Label {
        end: copied.end,
        records: copied.records,
        ..*label
    };
    Ok(restored.backup(bytes))
}

/// Converts an error of the superblock. `failed` says whose device it is.
fn superblock_failure(
    operation: &'static str,
    failed: impl FnOnce(Failure) -> CopyFailure,
) -> impl FnOnce(SuperblockError) -> CopyFailure {
    move |error| {
        let source = match error {
            SuperblockError::Device(source) => source,
            other => io::Error::other(other.to_string()),
        };
        failed(Failure {
            operation,
            file: superblock::FILE.to_owned(),
            source,
        })
    }
}

/// True if there is a checkpoint of pages, so that records may need pages.
fn has_anchor(device: &dyn Device, identity: &[u8; 16]) -> Result<bool, CopyFailure> {
    let checkpoints = CheckpointPair::read(Manifest::default(), device, identity)?;
    Ok(checkpoints.anchor.is_some())
}

impl Label {
    fn backup(&self, bytes: u64) -> Backup {
        Backup {
            end: self.end,
            earliest: self.earliest(),
            records: self.records,
            bytes,
            taken: self.taken(),
        }
    }
}

fn labelled(path: &Path) -> Result<(FileDevice, Label)> {
    let source = FileDevice::open(path).map_err(|error| not_read(path, error))?;
    let label = Label::read(&source);
    let label = label.map_err(|failed| match failed {
        CopyFailure::Source(failure) if failure.source.kind() == io::ErrorKind::NotFound => {
            Storage::NotABackup {
                path: path.into(),
                found: unlabelled(&source),
            }
            .into()
        }
        failed => failed.into_error(path, path),
    })?;
    Ok((source, label))
}

/// Describes a directory without a label.
fn unlabelled(device: &dyn Device) -> String {
    let names = device.list().unwrap_or_default();
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if has(foxton_log::format::superblock::FILE) {
        "it is a database itself, which can be opened as it is"
    } else if has(RESTORE_FILE) {
        "a restore into it is not complete"
    } else if names.is_empty() {
        "it is empty"
    } else {
        "it has no label: it is something else, or a backup that was interrupted"
    }
    .to_owned()
}

/// Returns the label of a backup, or a description of its damage; `None` if there is no label.
pub(crate) fn label_of(device: &dyn Device, path: &Path) -> Result<Option<Result<Label, String>>> {
    match Label::read(device) {
        Ok(label) => Ok(Some(Ok(label))),
        Err(CopyFailure::Source(failure)) if failure.source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(CopyFailure::Damaged(_, what)) => Ok(Some(Err(what))),
        Err(failed) => Err(failed.into_error(path, path)),
    }
}

/// Returns the checkpoints beside `manifest`, or a description of their damage.
pub(crate) fn checkpoints_of(
    manifest: Manifest,
    device: &dyn Device,
    identity: &[u8; 16],
    path: &Path,
) -> Result<Result<CheckpointPair, String>> {
    match CheckpointPair::read(manifest, device, identity) {
        Ok(checkpoints) => Ok(Ok(checkpoints)),
        Err(CopyFailure::Damaged(_, what)) => Ok(Err(what)),
        Err(failed) => Err(failed.into_error(path, path)),
    }
}

/// Returns the approximate bytes in all files. Ignores entries that are not files or cannot be
/// opened, because they may not be part of the copy.
pub(crate) fn about(device: &dyn Device) -> u64 {
    let names = device.list().unwrap_or_default();
    let bytes = |name: &String| device.open(name).and_then(|file| file.len()).unwrap_or(0);
    names.iter().map(bytes).fold(0, u64::saturating_add)
}

impl fmt::Display for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Backup {
            end,
            earliest,
            records,
            ..
        } = self;
        write!(
            f,
            "log position {end}, {records} records of log from {earliest} on"
        )
    }
}
