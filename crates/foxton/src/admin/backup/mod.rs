//! Backups: a copy of a database as it was at one position of its log, taken while it is used.
//!
//! # The idea
//!
//! A log up to the end of any record is the database as it was after some commit, so a copy of one
//! needs no picture of the tables and nobody has to stand still. A backup is the checkpoint, if there
//! is one, and the log from there to a position that is said afterwards. [`Database::backup_to`](crate::Database::backup_to) makes
//! everything that was committed when it began durable first, and copies up to there.
//! [`of_directory`](crate::admin::backup::of_directory) reads the files of a database without opening it, whether or not a process has it
//! open, and copies what is whole in them: commits that were acknowledged *sync* or *buffered* before it
//! began are in it.
//!
//! # What is in a backup
//!
//! The files of the checkpoint, a log of its own that is closed, and the label, which is written
//! last, after everything else was synced and read again. No file `foxton`: a backup is not opened but
//! [restored](crate::admin::backup::restore), so that it stays what it is.
//!
//! # Invariants
//!
//! * I1  A directory with a label holds a whole backup, durably.
//! * I2  Nothing in the database is changed, and no writer waits. While [`Database::backup_to`](crate::Database::backup_to) runs, no
//!   checkpoint is made.
//! * I3  A restored database gets its superblock last. Before, it is none, and says so from the beginning (`target`).
//!
//! # What a restored database is
//!
//! The same database, with the same identity, and another future: where the two go on, their logs have
//! different records at the same positions. Never put files of the one into the directory of the other.

/// Errors of a backup.
mod error;

/// Label: the file that makes a directory a backup.
mod label;

/// Target directory of a copy.
mod target;

/// Transfer of files from one directory to another.
mod transfer;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use foxton_log::Lsn;
use foxton_log::device::Device;
use foxton_log::device::file::FileDevice;
use foxton_log::format::superblock::{self, Superblock, SuperblockError};

use crate::api::database::Database;
use crate::checkpoint::manifest::Manifest;
use crate::error::{Error, Request, Result, Storage};
use crate::recovery::open_error::{TO_READ, no_superblock, told};
use crate::types::limits::{BACKUP_FILE, RESTORE_FILE};
use error::Failed;
pub(crate) use label::Label;
use target::{Copy, size_of};
use transfer::{Extent, transfer};

/// Times that a database is read again whose files went while they were read.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// What is in a backup, or in a database that was restored from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// The position of the log that it is of: every transaction whose record ends here or before is in
    /// it, and no other.
    pub end: Lsn,
    /// The earliest position that it can be restored to.
    pub earliest: Lsn,
    /// Records in its log.
    pub records: u64,
    /// Bytes in it.
    pub bytes: u64,
    /// When it was begun.
    pub taken: SystemTime,
}

/// How far a copy is: bytes done, of about so many. It must not ask for a checkpoint, which would wait for the copy.
pub type CopyProgress<'t> = &'t mut dyn FnMut(u64, u64);

impl Database {
    /// Makes a backup in the directory `path`, which is empty or not there, while transactions go on.
    /// Everything that was committed when this was called is in it. It has been read again when this
    /// returns. [`restore`] makes a database of it.
    ///
    /// ```
    /// use foxton::{Database, Table, backup};
    ///
    /// const STOCK: Table<str, u32> = Table::new("stock");
    ///
    /// # let scratch = std::env::temp_dir().join(format!("foxton-backup-{}", std::process::id()));
    /// # fn main_(scratch: &std::path::Path) -> foxton::Result<()> {
    /// # std::fs::create_dir(scratch).unwrap();
    /// # let (path, copy, again) = (scratch.join("db"), scratch.join("copy"), scratch.join("again"));
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
    /// A storage error, if the directory is not empty, the log has failed, or either device fails. What
    /// is in the directory then is no backup; the database goes on.
    pub fn backup_to(&self, path: impl AsRef<Path>) -> Result<Backup> {
        let path = path.as_ref();
        let target = Copy::Backup.directory(path)?;
        self.backup_on_at(&target, path, &mut |_, _| {})
    }

    /// Where the log ends now: what is committed is in the records before. A backup taken later can be
    /// [restored](restore) to this position.
    pub fn log_end(&self) -> Lsn {
        let engine = self.engine();
        engine.log.end(&engine.workers.worker())
    }

    /// As [`backup_to`](Self::backup_to), to a device of your own, such as one that fails on purpose,
    /// and telling how far it is.
    ///
    /// # Errors
    /// As for [`backup_to`](Self::backup_to).
    pub fn backup_on(&self, target: &Arc<dyn Device>, told: CopyProgress<'_>) -> Result<Backup> {
        let path = Path::new("the device");
        Copy::Backup.take(target, path)?;
        self.backup_on_at(target, path, told)
    }

    fn backup_on_at(
        &self,
        target: &Arc<dyn Device>,
        path: &Path,
        told: CopyProgress<'_>,
    ) -> Result<Backup> {
        let engine = self.engine();
        let worker = engine.workers.worker();
        let end = engine.log.end(&worker);
        engine.log.wait_durable(&worker, end)?;
        let extent = Extent {
            at_least: end,
            at_most: end,
        };
        let place = Path::new(&engine.place);
        // Nothing of the checkpoint or the log goes while it is copied.
        let _held = engine.checkpoints.hold();
        make(&*engine.device, &engine.superblock, extent, target, told)
            .map_err(|failed| Copy::Backup.ended(failed, &**target, (place, path)))
    }
}

/// Makes a backup of the database in the directory `path` without opening it, whether or not a process
/// has it open: it reads the files and takes what is whole in them. Every commit that was acknowledged
/// *sync* or *buffered* before this was called is in it.
///
/// # Errors
/// A storage error, if there is no database, it is damaged, the directory `target` is not empty, or a
/// device fails.
pub fn of_directory(
    path: impl AsRef<Path>,
    target: impl AsRef<Path>,
    told: CopyProgress<'_>,
) -> Result<Backup> {
    let (path, target_path) = (path.as_ref(), target.as_ref());
    let source = FileDevice::open(path).map_err(|error| not_read(path, error))?;
    let superblock = Superblock::read(&source);
    let superblock =
        superblock.map_err(|error| no_superblock(&source, path, error).in_passing())?;
    let target = Copy::Backup.directory(target_path)?;
    let extent = Extent {
        at_least: Lsn::ZERO,
        at_most: Lsn::MAX,
    };
    let mut attempt = 1;
    loop {
        let failed = match make(&source, &superblock, extent, &target, told) {
            Ok(made) => return Ok(made),
            Err(failed) => failed,
        };
        // Whoever has it open may have made a checkpoint, and removed what was being read.
        if attempt == ATTEMPTS || !failed.is_of_source() || !Copy::Backup.clear(&*target) {
            return Err(Copy::Backup.ended(failed, &*target, (path, target_path)));
        }
        attempt += 1;
        thread::sleep(PAUSE);
    }
}

/// What the label of the backup in the directory `path` says.
///
/// # Errors
/// A storage error, if there is none, or it is damaged.
pub fn inspect(path: impl AsRef<Path>) -> Result<Backup> {
    let path = path.as_ref();
    let (source, label) = labelled(path)?;
    Ok(label.backup(about(&source)))
}

/// Makes a database in the directory `target`, which is empty or not there, of the backup in the
/// directory `backup`: as it was at its position, or at the last commit up to `to`. What was restored
/// has been read again when this returns.
///
/// From before its first file is made until it is whole, and if this is cut short or fails, `target` is no database and is
/// refused, `not_restored`. A restore into it begins anew.
///
/// # Errors
/// A storage error, if there is no whole backup, it is damaged, `target` is not empty, or a device
/// fails. A request error, if the backup does not reach to `to`.
pub fn restore(
    backup: impl AsRef<Path>,
    target: impl AsRef<Path>,
    to: Option<Lsn>,
    told: CopyProgress<'_>,
) -> Result<Backup> {
    let (path, target_path) = (backup.as_ref(), target.as_ref());
    let (source, label) = labelled(path)?;
    reaches(&label, to)?;
    let target = Copy::Database.directory(target_path)?;
    restore_on(&source, &label, &target, to, told)
        .map_err(|failed| Copy::Database.ended(failed, &*target, (path, target_path)))
}

/// As [`restore`], from and to devices of your own, such as ones that fail on purpose.
///
/// # Errors
/// As for [`restore`].
pub fn restore_between(
    backup: &dyn Device,
    target: &Arc<dyn Device>,
    to: Option<Lsn>,
    told: CopyProgress<'_>,
) -> Result<Backup> {
    let path = Path::new("the device");
    let label = Label::read(backup).map_err(|failed| failed.told(path, path))?;
    reaches(&label, to)?;
    Copy::Database.take(target, path)?;
    restore_on(backup, &label, target, to, told)
        .map_err(|failed| Copy::Database.ended(failed, &**target, (path, path)))
}

fn reaches(label: &Label, to: Option<Lsn>) -> Result<()> {
    match to {
        Some(to) if to < label.checkpoint_lsn || to > label.end => {
            let what = format!(
                "log position {to} is not in this backup, which can be restored to positions from {} \
                 to {}",
                label.checkpoint_lsn, label.end
            );
            Err(Request::Other(Box::new(what.into())).into())
        }
        _ => Ok(()),
    }
}

/// Copies a database, and labels the copy.
fn make(
    source: &dyn Device,
    superblock: &Superblock,
    extent: Extent,
    target: &Arc<dyn Device>,
    told: CopyProgress<'_>,
) -> Result<Backup, Failed> {
    let taken = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let moved = transfer(source, &superblock.identity, extent, target, told)?;
    let label = Label {
        identity: superblock.identity,
        compat: superblock.compat,
        incompat: superblock.incompat,
        checkpoint_lsn: moved.checkpoint_lsn,
        from: moved.from,
        end: moved.end,
        records: moved.records,
        taken_micros: taken.map_or(0, |taken| {
            u64::try_from(taken.as_micros()).unwrap_or(u64::MAX)
        }),
        files: moved.files,
    };
    // From here on nothing may fail that leaves a whole backup behind.
    let bytes = size_of(&**target)? + label::BYTES as u64;
    label.write(&**target)?;
    Ok(label.backup(bytes))
}

fn restore_on(
    source: &dyn Device,
    label: &Label,
    target: &Arc<dyn Device>,
    to: Option<Lsn>,
    told: CopyProgress<'_>,
) -> Result<Backup, Failed> {
    let to = to.unwrap_or(label.end);
    let extent = Extent {
        at_least: label.end,
        at_most: to,
    };
    if !label.is_of(&Manifest::read(source, &label.identity)?) {
        return Err(Failed::damaged(BACKUP_FILE, 0, Label::STRANGE));
    }
    let moved = transfer(source, &label.identity, extent, target, told)?;
    let bytes = size_of(&**target)?;
    let mut superblock = Superblock::new(label.identity);
    superblock.compat = label.compat;
    superblock.incompat = label.incompat;
    let made = superblock.create_over(&**target, RESTORE_FILE);
    made.map_err(|error| {
        let source = match error {
            SuperblockError::Device(source) => source,
            other => io::Error::other(other.to_string()),
        };
        Failed::target("write", superblock::FILE)(source)
    })?;
    let restored = Label {
        end: moved.end,
        records: moved.records,
        ..*label
    };
    Ok(restored.backup(bytes))
}

impl Label {
    fn backup(&self, bytes: u64) -> Backup {
        Backup {
            end: self.end,
            earliest: self.checkpoint_lsn,
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
        Failed::Source(failure) if failure.source.kind() == io::ErrorKind::NotFound => {
            Storage::NotABackup {
                path: path.into(),
                found: unlabelled(&source),
            }
            .into()
        }
        failed => failed.told(path, path),
    })?;
    Ok((source, label))
}

/// What a directory without a label is.
fn unlabelled(device: &dyn Device) -> String {
    let names = device.list().unwrap_or_default();
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if has(foxton_log::format::superblock::FILE) {
        "it is a database itself, which can be opened as it is"
    } else if has(RESTORE_FILE) {
        "a restore into it has not come to its end"
    } else if names.is_empty() {
        "it is empty"
    } else {
        "it has no label: it is something else, or a backup that was interrupted"
    }
    .to_owned()
}

/// The label of a backup, or what is wrong with it. `None`: there is none.
pub(crate) fn label_of(device: &dyn Device, path: &Path) -> Result<Option<Result<Label, String>>> {
    match Label::read(device) {
        Ok(label) => Ok(Some(Ok(label))),
        Err(Failed::Source(failure)) if failure.source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(Failed::Damaged(_, what)) => Ok(Some(Err(what))),
        Err(failed) => Err(failed.told(path, path)),
    }
}

pub(crate) fn not_read(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Storage::NotADatabase {
            path: path.into(),
            found: match error.kind() {
                io::ErrorKind::NotFound => "there is no such directory".to_owned(),
                _ => "it is no directory".to_owned(),
            },
            name: TO_READ,
        }
        .into(),
        _ => told(path, "read", error).in_passing(),
    }
}

/// Bytes in all files, for those who want to know how much there is about: what is no file, or cannot be opened,
/// does not matter to them, since it may be no part of what is copied.
fn about(device: &dyn Device) -> u64 {
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
