//! Directory in a file system.
//!
//! Every file is reached through a handle of the directory that is held from the start. So a
//! process that has the directory open is not affected when it is renamed or replaced by a link. No
//! link is ever followed below it. Calls that a signal interrupts are repeated, except a sync.
//! Files are readable for their owner alone (0600), the directory too (0700). No handle is
//! inherited by a program that is executed.
//!
//! # Invariants
//!
//! * I1 The lock is a `flock` on the file `lock`. It belongs to the open file and not to the
//!   process, so a second instance in this process is refused like one in another. A child made by
//!   `fork` shares it, and unlocking would unlock it for the parent too. So the device and its
//!   files refuse every call in a child. Dropping the device there only closes its handles.
//! * I2 `lock` holds the process id of the last instance that had the lock alone, as decimal text.
//!   It is written after the lock is acquired and is only ever shown to people. It is missing if
//!   the device was full.
//! * I3 The name of the directory is durable, in the directory above, before there is a file
//!   `lock`. So an instance that finds `lock` need not sync the name. An instance that finds none
//!   must: it has created the directory, or a process that created it was killed.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use foxton_sync::process::ProcessStamp;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

#[cfg(any(target_os = "linux", target_os = "android"))]
use super::DIRECT_ALIGNMENT;
use super::{
    Device, DeviceFile, FileLock, FileLockMode, LockError, check_name, check_process, is_plain,
};

/// The file that carries the lock and names its holder.
pub const LOCK_FILE: &str = "lock";

const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o700);

/// A directory of a file system as a [`Device`].
///
/// ```
/// use foxton_log::device::{Device, file::FileDevice};
/// # let path = std::env::temp_dir().join(format!("foxton-doc-{}", std::process::id()));
/// let device = FileDevice::create(&path)?;
/// device.lock()?;
/// let refused = FileDevice::open(&path)?.lock().unwrap_err();
/// assert!(refused.to_string().contains("already open in this process"));
/// # std::fs::remove_dir_all(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FileDevice {
    path: PathBuf,
    directory: OwnedFd,
    /// The handle that has the lock (I1), until the device is dropped.
    holder: Mutex<Option<OwnedFd>>,
    process: ProcessStamp,
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileDevice").field(&self.path).finish()
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        if self.process.is_inherited() {
            return; // I1
        }
        let holder = self
            .holder
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = holder.take() {
            // Closing is not enough: a child between `fork` and `exec` still shares the open
            // file. If unlocking fails, closing is all that can be done.
            let _ = rustix::fs::flock(&file, FlockOperation::Unlock);
        }
    }
}

impl FileDevice {
    /// Opens a directory that exists.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
        Ok(FileDevice {
            path: path.to_path_buf(),
            directory,
            holder: Mutex::new(None),
            process: ProcessStamp::new(),
        })
    }

    /// Opens a directory, and creates it first if it does not exist. Its parent must exist. A new
    /// name survives a power cut once the directory was [locked](Device::lock).
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        match retry_on_intr(|| rustix::fs::mkdir(path, DIRECTORY_MODE)) {
            Ok(()) | Err(Errno::EXIST) => Self::open(path),
            Err(error) => Err(error.into()),
        }
    }

    fn may_lock(&self) -> Result<(), LockError> {
        match self.process.is_inherited() {
            false => Ok(()),
            true => Err(LockError::Forked),
        }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open_at(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        // If a pipe has the name of a file, opening it fails at once instead of waiting. `NONBLOCK`
        // has no effect on plain files.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        retry_on_intr(|| rustix::fs::openat(&self.directory, name, flags, FILE_MODE))
    }

    fn handle(&self, file: OwnedFd, refused: Option<Errno>) -> FileHandle {
        let process = self.process;
        FileHandle {
            file,
            refused,
            process,
        }
    }

    fn open_handle(&self, name: &str) -> io::Result<FileHandle> {
        check_process(&self.process)?;
        check_name(name)?;
        let (opened, refused) = match self.open_at(name, OFlags::RDWR) {
            // A file that may only be read can still be inspected; writing to it is refused later.
            Err(why @ (Errno::ROFS | Errno::ACCESS | Errno::PERM)) => {
                (self.open_at(name, OFlags::RDONLY), Some(why))
            }
            opened => (opened, None),
        };
        let file = opened.and_then(plain).map_err(strange)?;
        Ok(self.handle(file, refused))
    }

    /// Makes the name of the directory survive a power cut, as surely as what will be kept under
    /// it.
    fn sync_name(&self) -> rustix::io::Result<()> {
        // Not by way of the path: a link may lead here, and `..` is not the directory that holds
        // `.`.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.directory, "..", flags, Mode::empty()) {
            Ok(above) => {
                let device = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| stat.st_dev);
                // A mount point has no name that this program created.
                match device(&above)? == device(&self.directory)? {
                    true => rustix::fs::fsync(above),
                    false => Ok(()),
                }
            }
            // Names can be created in a directory that may not be read.
            Err(Errno::ACCESS | Errno::PERM) => {
                #[cfg(any(target_os = "linux", target_os = "android"))]
                rustix::fs::syncfs(&self.directory)?;
                #[cfg(not(any(target_os = "linux", target_os = "android")))]
                rustix::fs::sync();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn take_lock(&self) -> Result<OwnedFd, LockError> {
        let device = |error: Errno| LockError::Device(error.into());
        let found = rustix::fs::statat(&self.directory, LOCK_FILE, AtFlags::SYMLINK_NOFOLLOW);
        if found.err() == Some(Errno::NOENT) {
            self.sync_name().map_err(device)?; // I3
        }
        let file = self
            .open_at(LOCK_FILE, OFlags::RDWR | OFlags::CREATE)
            .and_then(plain)
            .map_err(|error| LockError::Device(strange(error)))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(self.held(&file)),
            Err(error) => return Err(device(error)),
        }
        write_pid(&file);
        Ok(file)
    }

    /// Describes the instance that holds the lock of `file`.
    fn held(&self, file: &OwnedFd) -> LockError {
        // If the lock can be shared, readers hold it, and the process id is of an earlier writer.
        let shared = rustix::fs::flock(file, FlockOperation::NonBlockingLockShared);
        LockError::Held {
            directory: self.path.display().to_string(),
            pid: shared.err().and_then(|_| read_pid(file)),
        }
    }
}

impl Device for FileDevice {
    fn lock(&self) -> Result<(), LockError> {
        self.may_lock()?;
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        if holder.is_none() {
            *holder = Some(self.take_lock()?);
        }
        Ok(())
    }

    /// If there is no file `lock`, no instance ever locked the directory.
    fn lock_shared(&self) -> Result<(), LockError> {
        self.may_lock()?;
        let device = |error: Errno| LockError::Device(error.into());
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        if holder.is_some() {
            return Ok(());
        }
        let file = match self.open_at(LOCK_FILE, OFlags::RDONLY) {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened
                .and_then(plain)
                .map_err(|error| LockError::Device(strange(error)))?,
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => *holder = Some(file),
            Err(Errno::WOULDBLOCK) => {
                return Err(self.held(&file));
            }
            Err(error) => return Err(device(error)),
        }
        Ok(())
    }

    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        check_process(&self.process)?;
        check_name(name)?;
        // Network file systems ask for a handle that may write if the lock is exclusive.
        let (flags, operation) = match mode {
            FileLockMode::Shared => (OFlags::RDONLY, FlockOperation::NonBlockingLockShared),
            FileLockMode::Exclusive => (OFlags::RDWR, FlockOperation::NonBlockingLockExclusive),
        };
        let file = self.open_at(name, flags).and_then(plain).map_err(strange)?;
        match rustix::fs::flock(&file, operation) {
            Ok(()) => Ok(Some(Box::new(FlockGuard(file)))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        check_process(&self.process)?;
        check_name(name)?;
        let file = self.open_at(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        Ok(Arc::new(self.handle(file, None)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(self.open_handle(name)?))
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn open_direct(&self, name: &str) -> io::Result<Option<Arc<dyn DeviceFile>>> {
        let usual = self.open_handle(name)?;
        let access = match usual.refused {
            None => OFlags::RDWR,
            Some(_) => OFlags::RDONLY,
        };
        match self.open_at(name, access | OFlags::DIRECT).and_then(plain) {
            Ok(direct) => Ok(Some(Arc::new(DirectFile { usual, direct }))),
            // The file system has no direct calls.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
            Err(error) => Err(strange(error)),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        check_process(&self.process)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.directory)? {
            if let Ok(name) = entry?.file_name().to_str()
                && is_plain(name)
                && name != LOCK_FILE
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_process(&self.process)?;
        check_name(from)?;
        check_name(to)?;
        let at = &self.directory;
        Ok(retry_on_intr(|| rustix::fs::renameat(at, from, at, to))?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_process(&self.process)?;
        check_name(name)?;
        let unlink = || rustix::fs::unlinkat(&self.directory, name, AtFlags::empty());
        Ok(retry_on_intr(unlink)?)
    }

    fn sync_dir(&self) -> io::Result<()> {
        check_process(&self.process)?;
        Ok(rustix::fs::fsync(&self.directory)?)
    }
}

/// A lock on a file.
#[derive(Debug)]
struct FlockGuard(OwnedFd);

impl Drop for FlockGuard {
    fn drop(&mut self) {
        // As for the lock of the directory: a child may share the open file.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

#[derive(Debug)]
struct FileHandle {
    file: OwnedFd,
    /// Why it may not be written.
    refused: Option<Errno>,
    process: ProcessStamp,
}

impl FileHandle {
    /// Without this the system would only say that the handle is a wrong one.
    fn may_be_written(&self) -> io::Result<()> {
        check_process(&self.process)?;
        self.refused.map_or(Ok(()), |why| Err(why.into()))
    }
}

impl DeviceFile for FileHandle {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        check_process(&self.process)?;
        Ok(read_all(&self.file, bytes, offset)?)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.may_be_written()?;
        write_all(&self.file, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        check_process(&self.process)?;
        // Not repeated when interrupted: a failed sync is final, whatever its reason.
        #[cfg(target_vendor = "apple")]
        rustix::fs::fcntl_fullfsync(&self.file)?;
        #[cfg(not(target_vendor = "apple"))]
        rustix::fs::fdatasync(&self.file)?;
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.may_be_written()?;
        Ok(retry_on_intr(|| rustix::fs::ftruncate(&self.file, bytes))?)
    }

    fn len(&self) -> io::Result<u64> {
        check_process(&self.process)?;
        Ok(u64::try_from(rustix::fs::fstat(&self.file)?.st_size).unwrap_or(0))
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.may_be_written()?;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        loop {
            match rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                // The file system cannot reserve space; extending is all that is left.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Err(error) => return Err(error.into()),
            }
        }
        if self.len()? < bytes {
            self.set_len(bytes)
        } else {
            Ok(())
        }
    }
}

/// Refuses everything but a plain file, because only a plain file has its bytes at the offsets
/// where they were written. Opening a pipe would wait, and some devices have no end.
fn plain(file: OwnedFd) -> rustix::io::Result<OwnedFd> {
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::NXIO),
    }
}

/// Names what has the place of a file, because the system's own words would suggest a broken
/// device.
fn strange(error: Errno) -> io::Error {
    let found = match error {
        Errno::LOOP => "a symbolic link",
        Errno::ISDIR => "a directory",
        Errno::NXIO => "a pipe, a socket or a device",
        error => return error.into(),
    };
    io::Error::other(format!(
        "there is {found} where a plain file has to be; put the file back in its place"
    ))
}

/// A file with two handles: aligned calls use the direct one.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Debug)]
struct DirectFile {
    usual: FileHandle,
    direct: OwnedFd,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    bytes.as_ptr().addr().is_multiple_of(DIRECT_ALIGNMENT)
        && bytes.len().is_multiple_of(DIRECT_ALIGNMENT)
        && offset.is_multiple_of(DIRECT_ALIGNMENT as u64)
}

/// A call that the direct handle refuses as not aligned, because the disk has larger blocks, is
/// made again by the other handle. The system keeps both coherent.
#[cfg(any(target_os = "linux", target_os = "android"))]
impl DeviceFile for DirectFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        if is_aligned(bytes, offset) {
            check_process(&self.usual.process)?;
            match rustix::io::pread(&self.direct, &mut *bytes, offset) {
                Ok(count) if count == bytes.len() => return Ok(count),
                // The end of the file, a signal, or a refusal: the other handle tells.
                Ok(_) | Err(Errno::INVAL | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.usual.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.usual.may_be_written()?;
        if is_aligned(bytes, offset) {
            match write_all(&self.direct, bytes, offset) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {}
                written => return written,
            }
        }
        self.usual.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.usual.sync()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.usual.set_len(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.usual.len()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.usual.allocate(bytes)
    }
}

/// Reads until `bytes` are full, or the file ends.
fn read_all(file: &OwnedFd, bytes: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(file, &mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn write_all(file: &OwnedFd, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(file, &bytes[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes the process id (I2). A full device may keep no id, but it can be locked.
fn write_pid(file: &OwnedFd) {
    // The old bytes are overwritten before the rest is cut off, because that takes no new space.
    let pid = format!("{}\n", std::process::id());
    let written = write_all(file, pid.as_bytes(), 0);
    let length = written.map_or(0, |()| pid.len() as u64);
    let _ = rustix::fs::ftruncate(file, length);
}

fn read_pid(file: &OwnedFd) -> Option<u32> {
    let mut text = [0; 16];
    let length = rustix::io::pread(file, &mut text, 0).ok()?;
    std::str::from_utf8(&text[..length])
        .ok()?
        .trim()
        .parse()
        .ok()
}
