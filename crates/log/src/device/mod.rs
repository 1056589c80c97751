//! Directories of files: everything that a log asks of the operating system.
//!
//! All input and output goes through [`Device`](crate::device::Device) and `DeviceFile`. So a test
//! can replace the disk, count every call, fail any of them, and build every directory that a power
//! cut could leave behind.
//!
//! # Contract
//!
//! * D1 What was written by `write_at` is read back by `read_at`, by any thread, at once. It is
//!   *durable* (survives a power cut) only once a `sync` that began later has returned `Ok`.
//! * D2 `create`, `rename` and `remove` are visible at once and durable only once a `sync_dir` that
//!   began later has returned `Ok`. Syncing a file says nothing of its name.
//! * D3 A call that returns an error may have done all, some or none of its work. After a failed
//!   `sync` it is unknown what is durable, and a later `Ok` does not make up for it.
//! * D4 `rename` onto an existing name replaces it in one step.
//! * D5 `create` fails if the name is taken.
//! * D6 One device instance holds the lock of a directory alone, or any number share it. The lock
//!   ends with the instance that acquired it, or with its process.
//! * D7 A file that exists has at most one exclusive lock, or any number of shared ones, over all
//!   instances and processes. `try_lock_file` never waits. A lock ends when its guard is dropped,
//!   or with its process. It stops no other call.
//! * D8 A file that is open can be read after its name was removed or given to another file.
//!
//! `tests/it/devices.rs` has one test per clause and runs it on every device.

use std::fmt;
use std::io;
use std::sync::Arc;

use foxton_sync::process::{self, ProcessStamp};
use rustix::io::Errno;

/// Directory in a file system.
pub mod file;

/// Directory in memory, which exists as long as the device.
pub mod memory;

/// Directory that forgets everything.
pub mod null;

/// Model of a disk, and every way in which a power cut leaves it.
pub mod disk;

/// Directory in memory that fails, loses, tears and reorders on request.
pub mod fault;

/// Directory as it was when its files were opened.
pub mod opened;

/// A directory of files. See the [module](self) for the contract.
pub trait Device: Send + Sync + fmt::Debug {
    /// Locks the directory for this instance alone. Calling it again changes nothing.
    fn lock(&self) -> Result<(), LockError>;
    /// Keeps other instances from locking the directory alone as long as this device exists, and
    /// changes nothing in it: for instances that only read. A device that cannot share a lock
    /// locks for this instance alone.
    fn lock_shared(&self) -> Result<(), LockError> {
        self.lock()
    }
    /// Locks a file that exists, or returns `None` if another lock conflicts.
    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>>;
    /// Creates an empty file.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>>;
    /// Opens a file that exists.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>>;
    /// Opens a file that exists so that it is read and written past the page cache of the operating
    /// system, where addresses, offsets and lengths are multiples of [`DIRECT_ALIGNMENT`]. Returns
    /// `None` if the device cannot do that.
    fn open_direct(&self, name: &str) -> io::Result<Option<Arc<dyn DeviceFile>>> {
        let _ = name;
        Ok(None)
    }
    /// Returns the names of all files, in no order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Renames a file, and replaces the file that had the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file's name.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes every earlier `create`, `rename` and `remove` durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// Bytes to which calls are aligned that go past the page cache: the block of any disk.
pub const DIRECT_ALIGNMENT: usize = 4096;

/// One file of a [`Device`].
pub trait DeviceFile: Send + Sync + fmt::Debug {
    /// Reads from `offset` into `bytes`; returns fewer bytes only at the end of the file.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`, and extends the file if need be.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes every earlier write to this file durable, and its length.
    fn sync(&self) -> io::Result<()>;
    /// Cuts the file to `bytes`, or extends it with zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Returns the length of the file in bytes.
    fn len(&self) -> io::Result<u64>;
    /// True if the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Extends the file to at least `bytes`, with zeros, and reserves the space, so that running
    /// out of space shows here and not at a later write. A device that cannot reserve only extends.
    fn allocate(&self, bytes: u64) -> io::Result<()>;
}

/// How a file is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileLockMode {
    /// Beside other shared locks.
    Shared,
    /// Alone.
    Exclusive,
}

/// A lock on a file, which ends when this is dropped.
pub type FileLock = Box<dyn fmt::Debug + Send + Sync>;

/// Kind of a failed call: the state of the device, and whether to call again.
///
/// The kind matters where a failed call has left nothing behind: a file was not opened, space was
/// not reserved. A write or a sync that fails is final, whatever its kind (D3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The process or the system has no resources just now: file descriptors, memory.
    NoResources,
    /// There is no space, or this user may take no more.
    Full,
    /// Anything else: a call that is repeated would fail again, or harm.
    Broken,
}

impl FailureKind {
    /// Returns the kind of an error.
    pub fn of(error: &io::Error) -> FailureKind {
        use io::ErrorKind::{
            FileTooLarge, Interrupted, OutOfMemory, QuotaExceeded, StorageFull, WouldBlock,
        };
        let lacks_descriptors = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS];
        match error.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => FailureKind::Full,
            Interrupted | OutOfMemory | WouldBlock => FailureKind::NoResources,
            _ if Errno::from_io_error(error).is_some_and(|no| lacks_descriptors.contains(&no)) => {
                FailureKind::NoResources
            }
            _ => FailureKind::Broken,
        }
    }
}

/// Reason why a directory could not be locked.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// Another instance has locked the directory.
    Held {
        /// Path of the directory.
        directory: String,
        /// The process that has locked it, where that is known.
        pid: Option<u32>,
    },
    /// The request for the lock failed.
    Device(io::Error),
    /// This process is a forked child, and its parent made the device.
    Forked,
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Held { directory, pid } => {
                write!(f, "{directory} is already open")?;
                match pid {
                    Some(pid) if *pid == std::process::id() => write!(f, " in this process (")?,
                    Some(_) => write!(f, " in another process (")?,
                    None => write!(f, " (")?,
                }
                if let Some(pid) = pid {
                    write!(f, "process {pid}; ")?;
                }
                write!(f, "close it there first, or share the open database)")
            }
            LockError::Device(error) => write!(f, "the directory could not be locked: {error}"),
            LockError::Forked => f.write_str(process::REFUSAL),
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LockError::Held { .. } | LockError::Forked => None,
            LockError::Device(error) => Some(error),
        }
    }
}

/// True if `name` may name a file of a device: one path component of plain characters.
///
/// Names come from this program alone, never from its users; this is a second check.
pub(crate) fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

/// Refuses a call in a forked child, whose files are its parent's.
pub(crate) fn check_process(process: &ProcessStamp) -> io::Result<()> {
    match process.is_inherited() {
        false => Ok(()),
        true => Err(io::Error::other(process::REFUSAL)),
    }
}

/// [`is_plain`] as an error.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    if is_plain(name) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{name:?} cannot name a file here"),
    ))
}
