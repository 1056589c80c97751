//! Directory as it was when its files were opened, for a reader beside a process that removes and
//! replaces files.
//!
//! The reader first opens the files that it needs, which takes microseconds, and then reads them
//! for as long as it likes. A file can be read after its name was removed (D8). If there are too
//! many files to keep them all open, the others are opened when they are read. Then the lock that
//! keeps them from being removed is held until the end, and otherwise it is released at once.
//!
//! # Invariants
//!
//! * I1  A name leads to the same file for as long as this exists, if all files were opened or the
//!   lock is respected.
//! * I2  At most `MAX_OPEN` files are kept open.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use super::memory::MemoryDevice;
use super::{Device, DeviceFile, FileLock, FileLockMode, LockError};

/// Largest number of files kept open.
pub const MAX_OPEN: usize = 128;

/// Bytes of a small file that are read.
const SMALL_BYTES: u64 = 64 << 10;

/// Files of a directory that were opened together, as a directory that can only be read.
///
/// ```
/// use foxton_log::device::{Device, memory::MemoryDevice, opened::OpenedFiles};
///
/// let device = MemoryDevice::new();
/// device.create("a")?.write_at(b"kept", 0)?;
///
/// let mut opened = OpenedFiles::new(&device, None);
/// assert!(opened.keep("a")?);
/// assert!(!opened.keep("b")?, "there is none");
/// opened.finish();
/// device.remove("a")?;
///
/// let mut bytes = [0; 4];
/// opened.open("a")?.read_at(&mut bytes, 0)?;
/// assert_eq!(&bytes, b"kept");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct OpenedFiles<'d> {
    device: &'d dyn Device,
    /// `None` for files that are opened when they are read.
    files: BTreeMap<String, Option<Arc<dyn DeviceFile>>>,
    open: usize,
    lock: Option<FileLock>,
}

impl<'d> OpenedFiles<'d> {
    /// Returns a directory without files. While `lock` is held, no file of `device` is removed that
    /// will be kept.
    pub fn new(device: &'d dyn Device, lock: Option<FileLock>) -> OpenedFiles<'d> {
        OpenedFiles {
            device,
            files: BTreeMap::new(),
            open: 0,
            lock,
        }
    }

    /// Opens a file, again if it is open already. Returns false if there is none.
    ///
    /// # Errors
    /// The error of the device. A lack of descriptors is no error: the file is opened later.
    pub fn keep(&mut self, name: &str) -> io::Result<bool> {
        let file = match self.device.open(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) if is_lack_of_descriptors(&error) => None,
            opened => Some(opened?).filter(|_| self.open < MAX_OPEN),
        };
        self.open += usize::from(file.is_some());
        let before = self.files.insert(name.to_owned(), file);
        self.open -= usize::from(matches!(before, Some(Some(_))));
        Ok(true)
    }

    /// Reads a file of at most 64 KiB, whose later changes must not be seen. Returns false if there
    /// is none.
    ///
    /// # Errors
    /// The error of the device.
    pub fn keep_contents(&mut self, name: &str) -> io::Result<bool> {
        let file = match self.device.open(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        let mut bytes = vec![0; file.len()?.min(SMALL_BYTES) as usize];
        let count = file.read_at(&mut bytes, 0)?;
        bytes.truncate(count);
        let copy = MemoryDevice::with_files([(name.to_owned(), bytes.into())]);
        self.files.insert(name.to_owned(), Some(copy.open(name)?));
        Ok(true)
    }

    /// Ends the opening of files. Releases the lock, unless it is still needed.
    pub fn finish(&mut self) {
        if self.files.values().all(Option::is_some) {
            self.lock = None;
        }
    }

    /// Returns the directory itself.
    pub fn device(&self) -> &'d dyn Device {
        self.device
    }
}

fn is_lack_of_descriptors(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}

impl Device for OpenedFiles<'_> {
    fn lock(&self) -> Result<(), LockError> {
        Err(LockError::Device(io::ErrorKind::ReadOnlyFilesystem.into()))
    }

    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        self.device.try_lock_file(name, mode)
    }

    fn create(&self, _name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        match self.files.get(name) {
            Some(Some(file)) => Ok(file.clone()),
            Some(None) => self.device.open(name),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.keys().cloned().collect())
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}
