//! Directory that forgets everything at once: to measure the work before the device.
//!
//! It fulfils none of the contract but D6. A log on it can be written, but not opened again.

use std::io;
use std::sync::Arc;

use foxton_sync::shim::{AtomicU64, Ordering::Relaxed};

use super::{Device, DeviceFile, FileLock, FileLockMode, LockError};

/// A directory in which every file is always empty.
///
/// ```
/// use foxton_log::device::{Device, DeviceFile, null::NullDevice};
///
/// let device = NullDevice::default();
/// let file = device.create("a")?;
/// file.write_at(b"gone", 0)?;
/// assert_eq!((file.len()?, device.written()), (0, 4));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct NullDevice {
    written: Arc<AtomicU64>,
}

impl NullDevice {
    /// Number of bytes written.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }
}

impl Device for NullDevice {
    fn lock(&self) -> Result<(), LockError> {
        Ok(())
    }

    fn try_lock_file(&self, _name: &str, _mode: FileLockMode) -> io::Result<Option<FileLock>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn create(&self, _name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(NullFile(self.written.clone())))
    }

    fn open(&self, _name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct NullFile(Arc<AtomicU64>);

impl DeviceFile for NullFile {
    fn read_at(&self, _bytes: &mut [u8], _offset: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn write_at(&self, bytes: &[u8], _offset: u64) -> io::Result<()> {
        self.0.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn allocate(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
}
