//! Directory of a database whose writes are counted and recorded, and whose pages can be read and
//! written past the page cache.
//!
//! The engine calls it in place of [`FileDevice`]. Three things can be chosen that only serve
//! measuring, which is why they are here and no options of the engine:
//!
//! * *Direct.* Aligned calls for the page file and the doublewrite buffer go past the page cache.
//!   Where that is impossible the device is refused.
//! * *No doublewrite.* Writes to the doublewrite buffer and its syncs are dropped. A power cut may
//!   then tear pages beyond repair, so such a database is only good for being thrown away.
//! * *Recording.* Every write and sync is recorded with its time, so that [`replay`](super::replay)
//!   can repeat them on other files.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use foxton_log::device::{Device, DeviceFile, FileLock, FileLockMode, LockError, file::FileDevice};
use foxton_sync::shim::{AtomicU64, Ordering::Relaxed};
use rustix::fs::OFlags;

/// Alignment that direct calls need.
pub(super) const ALIGNMENT: usize = foxton_log::device::DIRECT_ALIGNMENT;
/// Name of the page file.
pub(super) const PAGE_FILE: &str = "rows";
const DOUBLEWRITE_FILE: &str = "rows-double";

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum FileKind {
    /// A segment of the log.
    Log,
    /// The doublewrite buffer.
    Doublewrite,
    /// The page file.
    Pages,
    /// Checkpoints, superblock, recovery anchor.
    Other,
}

impl FileKind {
    pub(super) const ALL: [FileKind; 4] = [
        FileKind::Log,
        FileKind::Doublewrite,
        FileKind::Pages,
        FileKind::Other,
    ];

    /// The name in results.
    pub(super) fn name(self) -> &'static str {
        ["log", "doublewrite", "pages", "other"][self as usize]
    }

    fn of(name: &str) -> FileKind {
        match name {
            DOUBLEWRITE_FILE => FileKind::Doublewrite,
            PAGE_FILE => FileKind::Pages,
            _ if name.starts_with("log-") => FileKind::Log,
            _ => FileKind::Other,
        }
    }
}

/// Variant of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceMode {
    /// Pages are read and written directly.
    pub(super) is_direct: bool,
    /// The doublewrite buffer is written.
    pub(super) has_doublewrite: bool,
}

/// A write or a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteCall {
    /// So many bytes at this offset.
    Write {
        /// Bytes.
        bytes: usize,
        /// Offset in the file.
        offset: u64,
    },
    /// A sync of the file.
    Sync,
}

/// A recorded call.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordedCall {
    /// Time since the recording began.
    pub(super) at: Duration,
    pub(super) kind: FileKind,
    pub(super) call: WriteCall,
}

/// Counts of a device, and its recording.
#[derive(Debug, Default)]
pub(super) struct Meter {
    written: [AtomicU64; 4],
    recording: Mutex<Option<(Instant, Vec<RecordedCall>)>>,
}

impl Meter {
    /// Number of bytes written to files of this kind.
    pub(super) fn written(&self, kind: FileKind) -> u64 {
        self.written[kind as usize].load(Relaxed)
    }

    /// Records calls from now on.
    pub(super) fn begin_recording(&self) {
        *self.recording() = Some((Instant::now(), Vec::new()));
    }

    /// Returns the calls of the recording, which ends.
    pub(super) fn end_recording(&self) -> Vec<RecordedCall> {
        self.recording()
            .take()
            .map_or(Vec::new(), |(_, calls)| calls)
    }

    fn recording(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Vec<RecordedCall>)>> {
        self.recording
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, kind: FileKind, call: WriteCall) {
        if let WriteCall::Write { bytes, .. } = call {
            self.written[kind as usize].fetch_add(bytes as u64, Relaxed);
        }
        if let Some((began, calls)) = &mut *self.recording() {
            let at = began.elapsed();
            calls.push(RecordedCall { at, kind, call });
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct MeteredDevice {
    device: FileDevice,
    mode: DeviceMode,
    meter: Arc<Meter>,
}

impl MeteredDevice {
    /// Opens the directory, or makes it.
    pub(super) fn new(path: &Path, mode: DeviceMode) -> io::Result<MeteredDevice> {
        Ok(MeteredDevice {
            device: FileDevice::create(path)?,
            mode,
            meter: Arc::default(),
        })
    }

    /// The counts.
    pub(super) fn meter(&self) -> Arc<Meter> {
        self.meter.clone()
    }

    fn metered(&self, name: &str, file: Arc<dyn DeviceFile>) -> io::Result<Arc<dyn DeviceFile>> {
        let kind = FileKind::of(name);
        let has_pages = matches!(kind, FileKind::Pages | FileKind::Doublewrite);
        let file = match self.mode.is_direct && has_pages {
            true => self
                .device
                .open_direct(name)?
                .ok_or_else(|| refused(&"the file system has none"))?,
            false => file,
        };
        let is_dropped = kind == FileKind::Doublewrite && !self.mode.has_doublewrite;
        Ok(Arc::new(MeteredFile {
            file,
            is_dropped,
            kind,
            meter: self.meter.clone(),
        }))
    }
}

fn refused(why: &dyn std::fmt::Display) -> io::Error {
    let what = format!("O_DIRECT is refused ({why}); name another directory, or --cached");
    io::Error::other(what)
}

/// Opens a file past the page cache.
pub(super) fn open_direct(path: &Path, writes: bool) -> io::Result<File> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(writes).custom_flags(flags);
    options.open(path).map_err(|error| refused(&error))
}

impl Device for MeteredDevice {
    fn lock(&self) -> Result<(), LockError> {
        self.device.lock()
    }

    fn lock_shared(&self) -> Result<(), LockError> {
        self.device.lock_shared()
    }

    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        self.device.try_lock_file(name, mode)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        self.metered(name, self.device.create(name)?)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        self.metered(name, self.device.open(name)?)
    }

    fn open_direct(&self, name: &str) -> io::Result<Option<Arc<dyn DeviceFile>>> {
        match self.mode.is_direct {
            true => self.open(name).map(Some),
            false => Ok(None),
        }
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

#[derive(Debug)]
struct MeteredFile {
    file: Arc<dyn DeviceFile>,
    /// Writes and syncs are not made.
    is_dropped: bool,
    kind: FileKind,
    meter: Arc<Meter>,
}

impl DeviceFile for MeteredFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.is_dropped {
            return Ok(());
        }
        let length = bytes.len();
        self.meter.count(
            self.kind,
            WriteCall::Write {
                bytes: length,
                offset,
            },
        );
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        if self.is_dropped {
            return Ok(());
        }
        self.meter.count(self.kind, WriteCall::Sync);
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

/// Bytes whose address is a multiple of [`ALIGNMENT`].
#[derive(Debug)]
pub(super) struct AlignedBuffer {
    bytes: Vec<u8>,
    begin: usize,
}

impl AlignedBuffer {
    pub(super) fn new(count: usize) -> AlignedBuffer {
        let bytes = vec![0; count + ALIGNMENT];
        // The address of a vector's bytes stays as long as it does not grow.
        let address = bytes.as_ptr().addr();
        let begin = address.next_multiple_of(ALIGNMENT) - address;
        AlignedBuffer { bytes, begin }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let count = self.bytes.len() - ALIGNMENT;
        &mut self.bytes[self.begin..self.begin + count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(is_direct: bool, has_doublewrite: bool) -> (tempfile::TempDir, MeteredDevice) {
        // Beside this program, because a file system of memory may refuse direct calls.
        let program = std::env::current_exe().unwrap();
        let scratch = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let mode = DeviceMode {
            is_direct,
            has_doublewrite,
        };
        let device = MeteredDevice::new(&scratch.path().join("db"), mode).unwrap();
        (scratch, device)
    }

    #[test]
    fn calls_past_the_page_cache_and_others_see_the_same_bytes() {
        let (_scratch, device) = device(true, true);
        let file = device.create(PAGE_FILE).unwrap();
        let mut page = AlignedBuffer::new(2 * ALIGNMENT);
        page.bytes_mut().fill(7);
        file.write_at(page.bytes_mut(), 0).unwrap();
        file.write_at(b"header", 4096).unwrap();
        file.sync().unwrap();
        page.bytes_mut().fill(0);
        assert_eq!(file.read_at(page.bytes_mut(), 0).unwrap(), 2 * ALIGNMENT);
        assert_eq!(
            &page.bytes_mut()[4090..4104],
            b"\x07\x07\x07\x07\x07\x07header\x07\x07"
        );
        // At the end of the file a read is short.
        assert_eq!(file.read_at(page.bytes_mut(), 4096).unwrap(), ALIGNMENT);
        assert_eq!(device.meter().written(FileKind::Pages), 8192 + 6);
    }

    #[test]
    fn a_doublewrite_buffer_that_is_left_out_is_neither_written_nor_counted() {
        for has_doublewrite in [true, false] {
            let (_scratch, device) = device(false, has_doublewrite);
            let meter = device.meter();
            let file = device.create(DOUBLEWRITE_FILE).unwrap();
            meter.begin_recording();
            file.write_at(&[1; 100], 0).unwrap();
            file.sync().unwrap();
            assert_eq!(file.len().unwrap(), if has_doublewrite { 100 } else { 0 });
            assert_eq!(meter.written(FileKind::Doublewrite), file.len().unwrap());
            let calls = meter.end_recording();
            assert_eq!(calls.len(), if has_doublewrite { 2 } else { 0 });
        }
    }
}
