//! A file that reads differently the second time.
//!
//! After a failed sync the system shows bytes that it did not write, for as long as it keeps the
//! page in memory. After that it shows the bytes on the disk.
//!
//! The page is evicted at the n-th read, for every n. In every case the next opening finds what
//! this one found, and whatever was made durable behind it; or opening returns an error.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use foxton_log::device::disk::Damage;
use foxton_log::device::fault::FaultDevice;
use foxton_log::device::{Device, DeviceFile, FileLock, FileLockMode, LockError};
use foxton_sync::worker::Workers;

use crate::support::{Entry, open};

/// A device whose first `until` reads of segments show what is in memory. Later reads show the end
/// of the file as it is on the disk.
#[derive(Debug, Clone)]
struct Evicted {
    inner: FaultDevice,
    reads: Arc<AtomicU64>,
    until: u64,
    /// Offset of the bytes that never came to the disk.
    lost_from: u64,
}

#[derive(Debug)]
struct EvictedFile(Arc<dyn DeviceFile>, Evicted);

impl Device for Evicted {
    fn lock(&self) -> Result<(), LockError> {
        self.inner.lock()
    }
    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        self.inner.try_lock_file(name, mode)
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        self.inner.create(name)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        let file = self.inner.open(name)?;
        Ok(Arc::new(EvictedFile(file, self.clone())))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.inner.sync_dir()
    }
}

impl DeviceFile for EvictedFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.0.read_at(bytes, offset)?;
        if self.1.reads.fetch_add(1, SeqCst) >= self.1.until {
            let lost = self.1.lost_from.saturating_sub(offset).min(count as u64);
            bytes[lost as usize..count].fill(0);
        }
        Ok(count)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.0.allocate(bytes)
    }
}

/// Returns a log that was not closed, and the offset in its file where its last record but `lost`
/// ends.
fn unclosed(lost: u64) -> (FaultDevice, u64) {
    let device = FaultDevice::new();
    let (log, ..) = open(Arc::new(device.clone())).unwrap();
    let worker = Workers::new().worker();
    let mut kept = 0;
    for n in 0..20u64 {
        let end = log.insert(&worker, 1, &[&n.to_le_bytes()[..]; 8]).unwrap();
        log.wait_written(&worker, end).unwrap();
        if n + lost < 20 {
            kept = end.bytes();
        }
    }
    let image = FaultDevice::holding(&device.crash(Damage::KeepAll, 0));
    // Segments begin with a header; all of this lies in the first.
    (image, kept + foxton_log::format::segment::HEADER_BYTES)
}

#[test]
fn the_next_opening_finds_what_this_one_found() {
    let (mut refused, mut found_less, mut found_all) = (0, 0, 0);
    for lost in [1, 5] {
        for until in 0.. {
            let (inner, lost_from) = unclosed(lost);
            let reads = Arc::new(AtomicU64::new(0));
            let evicted = Evicted {
                inner: inner.clone(),
                reads: reads.clone(),
                until,
                lost_from,
            };
            let opened = open(Arc::new(evicted));
            let Ok((log, _, found)) = opened else {
                refused += 1;
                continue;
            };
            if found.len() < 20 {
                found_less += 1;
            } else {
                found_all += 1;
            }
            let worker = Workers::new().worker();
            let end = log.insert(&worker, 1, &[b"behind it"]).unwrap();
            log.wait_durable(&worker, end).unwrap();
            let (.., again) = open(Arc::new(inner.crash(Damage::DropAll, 0))).unwrap();
            let payloads = |entries: &[Entry]| -> Vec<Vec<u8>> {
                entries.iter().map(|entry| entry.payload.clone()).collect()
            };
            let mut expected = payloads(&found);
            expected.push(b"behind it".to_vec());
            assert_eq!(payloads(&again), expected, "from read {until} on");
            if reads.load(SeqCst) <= until {
                break;
            }
        }
    }
    println!("{refused} refused, {found_less} found less, {found_all} found all");
    assert!(refused > 0 && found_less > 0 && found_all > 0);
}
