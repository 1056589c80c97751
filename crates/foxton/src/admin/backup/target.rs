//! Target of a copy: an empty directory that only this copy uses.
//!
//! Opening an empty directory creates a database in it. So an unfinished restore must not look
//! empty, or a program would open a new database in its place. A restore therefore begins with the
//! file `restoring`. The superblock replaces it when everything else is in place.
//!
//! | files there | opening | restoring |
//! |---|---|---|
//! | none, or `lock` | creates a new database | begins |
//! | `restoring`, and perhaps more | is refused, `not_restored` | begins anew |
//! | `foxton`, and all others | opens it | is refused, `not_empty` |
//!
//! # Invariants
//!
//! * I1  From before the first file of a database is created, either `restoring` or `foxton`
//!   exists, durably.
//! * I2  Only files of a copy are removed: their name is one that copies use, and `restoring` is in
//!   the directory, or the directory was empty when this copy began.
//! * I3  Whenever `foxton` may exist after a power failure, all files that belong to it exist too.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use foxton_log::device::Device;
use foxton_log::device::file::{FileDevice, LOCK_FILE};
use foxton_log::format::clean_shutdown;
use foxton_log::format::segment;
use foxton_log::format::superblock;
use foxton_store::paged::recovery::ANCHOR_FILE;

use super::error::CopyFailure;
use super::label;
use crate::checkpoint::{layer, manifest};
use crate::engine::page_store;
use crate::error::{Error, Result, Storage};
use crate::recovery::open_error::{device_error, not_created, not_locked};
use crate::types::limits::{BACKUP_FILE, RESTORE_FILE};

/// Contents of `restoring`, for people.
const FOR_PEOPLE: &[u8] = b"A database is being restored into this directory, or a restore was cut short. There is \
no database before the file foxton is here: give the same restore again, or remove the directory.\n";

/// Kind of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyKind {
    Backup,
    Database,
}

impl CopyKind {
    /// Returns the directory `path` for this copy alone, creating it if it does not exist.
    pub(super) fn directory(self, path: &Path) -> Result<Arc<dyn Device>> {
        // Check before changing anything in it.
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let names: Vec<String> = names.filter(|name| name != LOCK_FILE).collect();
        self.suits(path, &names)?;
        let device = FileDevice::create(path);
        let device = device.map_err(|error| not_created(path, error).in_passing())?;
        let device: Arc<dyn Device> = Arc::new(device);
        self.take(&device, path)?;
        Ok(device)
    }

    /// Locks `device` for this copy alone.
    pub(super) fn take(self, device: &Arc<dyn Device>, path: &Path) -> Result<()> {
        let locked = device.lock();
        locked.map_err(|error| not_locked(path, error).in_passing())?;
        let names = device.list();
        let names = names.map_err(|error| device_error(path, "list", error).in_passing())?;
        self.suits(path, &names)?;
        match self {
            CopyKind::Backup => Ok(()),
            CopyKind::Database => begin_restoring(&**device, &names)
                .map_err(|failed| self.ended(failed, &**device, (path, path))),
        }
    }

    /// Returns an error unless the copy may be made beside these files.
    fn suits(self, path: &Path, names: &[String]) -> Result<()> {
        let again = self == CopyKind::Database && names.iter().any(|name| name == RESTORE_FILE);
        let in_the_way = |name: &&String| !again || !is_of_a_restore(name);
        match names.iter().find(in_the_way) {
            None => Ok(()),
            Some(found) => Err(Storage::NotEmpty {
                path: path.into(),
                found: found.clone(),
            }
            .into()),
        }
    }

    /// Removes the copy and converts the failure into an error of the public interface.
    pub(super) fn ended(
        self,
        failed: CopyFailure,
        device: &dyn Device,
        (source, target): (&Path, &Path),
    ) -> Error {
        let left = (!self.clear(device)).then(|| target.to_owned());
        let mut error = failed.into_error(source, target);
        if let Error::Storage(storage) = &mut error
            && let Storage::NotCopied { left: known, .. } = &mut **storage
        {
            *known = left;
        }
        error
    }

    /// Removes the files of an attempt, and no others. Returns false if some are left.
    pub(super) fn clear(self, target: &dyn Device) -> bool {
        let Ok(names) = target.list() else {
            return false;
        };
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        match self {
            CopyKind::Backup => {
                // First, durably, the file that marks the copy as complete.
                let is_none = !has(BACKUP_FILE)
                    || target.remove(BACKUP_FILE).is_ok() && target.sync_dir().is_ok();
                is_none && remove(target, &names, is_of_a_backup)
            }
            CopyKind::Database if has(superblock::FILE) => {
                // After this rename it is unknown which of the two names a power failure would
                // leave, so all other files stay (I3).
                let renamed = target.rename(superblock::FILE, RESTORE_FILE);
                let _ = renamed.and_then(|()| target.sync_dir());
                false
            }
            CopyKind::Database => {
                // Frees the space. `restoring` stays, so that the directory is not opened as a new
                // database (I1).
                remove(target, &names, |name| {
                    name != RESTORE_FILE && is_of_a_restore(name)
                }) && !has(RESTORE_FILE)
            }
        }
    }
}

/// Marks the directory, durably and before any other file exists, as holding no database (I1).
/// Removes the files of an earlier attempt.
fn begin_restoring(device: &dyn Device, names: &[String]) -> Result<(), CopyFailure> {
    if names.is_empty() {
        let file = device.create(RESTORE_FILE);
        let file = file.map_err(CopyFailure::target("create", RESTORE_FILE))?;
        let written = file.write_at(FOR_PEOPLE, 0).and_then(|()| file.sync());
        written.map_err(CopyFailure::target("write", RESTORE_FILE))?;
    }
    for name in names.iter().filter(|name| *name != RESTORE_FILE) {
        let removed = device.remove(name);
        removed.map_err(CopyFailure::target("remove", name))?;
    }
    let synced = device.sync_dir();
    synced.map_err(CopyFailure::target("sync", "the directory"))
}

/// Removes those files whose names match. Returns false if one could not be removed.
fn remove(device: &dyn Device, names: &[String], meant: impl Fn(&str) -> bool) -> bool {
    let mut meant = names.iter().filter(|name| meant(name));
    meant.all(|name| device.remove(name).is_ok())
}

/// True if an incomplete backup may contain a file with this name.
fn is_of_a_backup(name: &str) -> bool {
    name == label::UNFINISHED || is_copied(name)
}

/// True if an unfinished restore may contain a file with this name.
fn is_of_a_restore(name: &str) -> bool {
    [RESTORE_FILE, superblock::UNFINISHED].contains(&name) || is_copied(name)
}

fn is_copied(name: &str) -> bool {
    [
        manifest::FILE,
        clean_shutdown::FILE,
        page_store::FILE,
        ANCHOR_FILE,
    ]
    .contains(&name)
        || segment::first_of(name).is_some()
        || layer::number_of(name).is_some()
}

/// Returns the bytes in all files of a copy.
pub(super) fn size_of(device: &dyn Device) -> Result<u64, CopyFailure> {
    let names = device.list();
    let names = names.map_err(CopyFailure::target("list", "the directory"))?;
    let mut copied = names.iter().filter(|name| is_copied(name));
    copied.try_fold(0, |sum, name| {
        let length = device.open(name).and_then(|file| file.len());
        Ok(sum + length.map_err(CopyFailure::target("read", name))?)
    })
}
