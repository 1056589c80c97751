//! What the log is written to: one directory of files, and nothing else.
//!
//! Everything the log asks of the outside world goes through [`Device`](crate::device::Device) and `DeviceFile`, so
//! that a test can stand in for the disk, count every call, fail any of them and build every
//! directory that a power cut could leave behind.
//!
//! # Contract
//!
//! * D1 What a file was given by `write_at` is read back by `read_at`, by anybody, at once. It is
//!   *durable* (survives a power cut) only once a `sync` that began later has returned `Ok`.
//! * D2 `create`, `rename` and `remove` are seen at once and durable only once a `sync_dir` that
//!   began later has returned `Ok`. Syncing a file says nothing of its name.
//! * D3 A call that returns an error may have done all, some or none of its work. After a failed
//!   `sync` it is unknown what is durable, and a later `Ok` does not make up for it.
//! * D4 `rename` onto an existing name replaces it in one step.
//! * D5 `create` fails if the name is taken.
//! * D6 At most one device instance holds the lock of a directory. The lock ends with the
//!   instance that took it, or with its process.
//!
//! `tests/devices.rs` has one test per clause and runs it on every device.

use std::fmt;
use std::io;
use std::sync::Arc;

/// A directory in a file system.
pub mod file;

/// A directory in memory, which lives as long as the device.
pub mod memory;

/// A directory that forgets.
pub mod null;

/// What a disk remembers, and every way in which a power cut leaves it.
pub mod disk;

/// A directory in memory that fails, loses, tears and reorders as it is told.
pub mod fault;

/// A directory of files. See the [module](self) for the contract.
pub trait Device: Send + Sync + fmt::Debug {
    /// Takes the directory for this instance alone. Asking again changes nothing.
    fn lock(&self) -> Result<(), LockError>;
    /// Makes a new, empty file.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>>;
    /// Opens a file that exists.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>>;
    /// The names of all files, in no order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Gives a file another name, replacing whatever had that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Takes a file's name away.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes every earlier `create`, `rename` and `remove` durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// One file of a [`Device`].
pub trait DeviceFile: Send + Sync + fmt::Debug {
    /// Reads from `offset` into `bytes`; fewer bytes than asked for only at the end of the file.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`, extending the file if need be.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes every earlier write to this file durable, and its length.
    fn sync(&self) -> io::Result<()>;
    /// Cuts the file to `bytes`, or extends it with zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// The length of the file in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Extends the file to at least `bytes`, with zeros, reserving the space, so that running out
    /// of space shows here and not at a later write. A device that cannot reserve only extends.
    fn allocate(&self, bytes: u64) -> io::Result<()>;
}

/// Why a directory could not be taken for one instance alone.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody has the directory open.
    Held {
        /// The directory.
        directory: String,
        /// The process that has it open, where that is known.
        pid: Option<u32>,
    },
    /// The lock could not be asked for.
    Device(io::Error),
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
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LockError::Held { .. } => None,
            LockError::Device(error) => Some(error),
        }
    }
}

/// Whether `name` may name a file of a device: one path component of plain characters.
///
/// Names come from this program alone, never from its users; this is the second fence.
pub(crate) fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
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
