//! A device whose first layer can be blocked, or whose layers are slow.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use foxton_log::device::memory::MemoryDevice;
use foxton_log::device::{Device, DeviceFile, FileLock, FileLockMode, LockError};

/// Outcome of the blocked write.
type Verdict = Result<(), io::ErrorKind>;

/// Makes the blocked write fail or, when dropped, lets all writes pass.
pub(crate) type Opener = Sender<Verdict>;

/// A device that blocks or delays the writing of layers.
#[derive(Debug)]
pub(crate) struct Gate {
    device: MemoryDevice,
    /// Blocks the first layer.
    opens: Mutex<Option<Receiver<Verdict>>>,
    /// Duration of each write and sync of every layer.
    takes: Duration,
}

impl Gate {
    /// Returns a device that blocks its first layer, and the opener.
    pub(crate) fn shut() -> (Gate, Opener) {
        let (opener, opens) = channel();
        let device = Gate {
            opens: Mutex::new(Some(opens)),
            ..Gate::slow(Duration::ZERO)
        };
        (device, opener)
    }

    /// Returns a device where each write and sync of a layer takes this long.
    pub(crate) fn slow(takes: Duration) -> Gate {
        Gate {
            device: MemoryDevice::new(),
            opens: Mutex::default(),
            takes,
        }
    }
}

#[derive(Debug)]
struct Layer {
    file: Arc<dyn DeviceFile>,
    opens: Mutex<Option<Receiver<Verdict>>>,
    takes: Duration,
}

impl Device for Gate {
    fn lock(&self) -> Result<(), LockError> {
        self.device.lock()
    }
    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        self.device.try_lock_file(name, mode)
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        let file = self.device.create(name)?;
        if !name.starts_with("layer-") {
            return Ok(file);
        }
        Ok(Arc::new(Layer {
            file,
            opens: Mutex::new(self.opens.lock().unwrap().take()),
            takes: self.takes,
        }))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        self.device.open(name)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.device.list()
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.device.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.device.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.device.sync_dir()
    }
}

impl DeviceFile for Layer {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(bytes, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Some(opens) = self.opens.lock().unwrap().take() {
            let told = opens.recv_timeout(Duration::from_secs(300));
            told.unwrap_or(Ok(()))?;
        }
        thread::sleep(self.takes);
        self.file.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        thread::sleep(self.takes);
        self.file.sync()
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.file.allocate(bytes)
    }
}
