//! Directory in memory, which exists as long as the device.
//!
//! For databases that are never written to a disk, and for tests: a crash image is one of these. A
//! sync does nothing, because memory survives exactly as long as the device does.
//!
//! # Invariants
//!
//! * I1 A file is `bytes` followed by zeros up to `length`: space that was only reserved costs
//!   nothing. `bytes` is never longer than `length`.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::{Device, DeviceFile, FileLock, FileLockMode, LockError, check_name};

/// A directory in memory as a [`Device`].
#[derive(Debug, Default)]
pub struct MemoryDevice {
    files: Mutex<BTreeMap<String, Arc<MemoryFile>>>,
    locks: MemoryLocks,
}

impl MemoryDevice {
    /// Returns an empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a directory that holds `files`.
    pub fn with_files(files: impl IntoIterator<Item = (String, Contents)>) -> Self {
        let files = files.into_iter().map(|(name, contents)| {
            (
                name,
                Arc::new(MemoryFile {
                    contents: RwLock::new(contents),
                }),
            )
        });
        MemoryDevice {
            files: Mutex::new(files.collect()),
            locks: MemoryLocks::default(),
        }
    }

    /// Returns a copy of every file as it is now.
    pub fn files(&self) -> Vec<(String, Contents)> {
        let files = self.table();
        files
            .iter()
            .map(|(name, file)| (name.clone(), file.snapshot()))
            .collect()
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Arc<MemoryFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for MemoryDevice {
    fn lock(&self) -> Result<(), LockError> {
        // No other device can name this directory: its users have this very instance.
        Ok(())
    }

    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        match self.table().contains_key(name) {
            true => Ok(self.locks.try_lock(name, mode)),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        check_name(name)?;
        let mut files = self.table();
        if files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::new(MemoryFile::default());
        files.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        let file = self.table().get(name).cloned();
        Ok(file.ok_or(io::ErrorKind::NotFound)?)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.table().keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(to)?;
        let mut files = self.table();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let removed = self.table().remove(name);
        removed
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The locks of the files of a directory in memory. Clones are one set of locks.
#[derive(Debug, Clone, Default)]
pub(super) struct MemoryLocks {
    /// For each locked file, the number of its shared locks; `None` for an exclusive lock.
    held: Arc<Mutex<BTreeMap<String, Option<u64>>>>,
}

/// A lock in a [`MemoryLocks`].
#[derive(Debug)]
struct MemoryLock {
    locks: MemoryLocks,
    name: String,
}

impl MemoryLocks {
    pub(super) fn try_lock(&self, name: &str, mode: FileLockMode) -> Option<FileLock> {
        let held = &mut *self.held();
        let now = match (held.get(name), mode) {
            (None, FileLockMode::Exclusive) => None,
            (None, FileLockMode::Shared) => Some(1),
            (Some(Some(count)), FileLockMode::Shared) => Some(count + 1),
            _ => return None,
        };
        held.insert(name.to_owned(), now);
        Some(Box::new(MemoryLock {
            locks: self.clone(),
            name: name.to_owned(),
        }))
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Option<u64>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let held = &mut *self.locks.held();
        match held.get_mut(&self.name) {
            Some(Some(count)) if *count > 1 => *count -= 1,
            _ => drop(held.remove(&self.name)),
        }
    }
}

/// The bytes of one file: those that were written, and the length it was extended to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    bytes: Vec<u8>,
    length: u64,
}

impl Contents {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Number of bytes up to the last one that was ever written; everything behind them is zero.
    pub fn written(&self) -> usize {
        self.bytes.len()
    }

    /// Copies from `offset` on into `bytes` and returns how many there were.
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> usize {
        let left = self.length.saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.bytes.len());
        let stored = (self.bytes.len() - start).min(count);
        bytes[..stored].copy_from_slice(&self.bytes[start..start + stored]);
        bytes[stored..count].fill(0);
        count
    }

    /// Replaces what is at `offset` by `bytes`, and extends the file if need be.
    ///
    /// # Panics
    ///
    /// If the end of the write is not an offset in memory.
    pub fn write(&mut self, bytes: &[u8], offset: u64) {
        let start = usize::try_from(offset).expect("a file in memory is smaller than memory");
        let end = start + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(bytes);
        self.length = self.length.max(end as u64);
    }

    /// Cuts the file, or extends it with zeros.
    pub fn set_len(&mut self, length: u64) {
        if length < self.bytes.len() as u64 {
            // The cast is exact: the length is below that of a vector.
            self.bytes.truncate(length as usize);
        }
        self.length = length;
    }
}

impl From<Vec<u8>> for Contents {
    fn from(bytes: Vec<u8>) -> Self {
        let length = bytes.len() as u64;
        Contents { bytes, length }
    }
}

#[derive(Debug, Default)]
struct MemoryFile {
    contents: RwLock<Contents>,
}

impl MemoryFile {
    fn snapshot(&self) -> Contents {
        self.contents
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn change(&self, change: impl FnOnce(&mut Contents)) {
        change(
            &mut self
                .contents
                .write()
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

impl DeviceFile for MemoryFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self
            .contents
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .read(bytes, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(|contents| contents.write(bytes, offset));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.change(|contents| contents.set_len(length));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self
            .contents
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.change(|contents| contents.set_len(contents.len().max(length)));
        Ok(())
    }
}
