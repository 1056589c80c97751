//! Pools far smaller than their data, with many threads, failing devices and damaged pages.
//!
//! Each page is a leaf with two rows that are always equal: how often the page was changed. The
//! threads count their own changes, so that a lost or torn change is noticed.
#![cfg(test)]

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::memory::MemoryDevice;
use foxton_log::device::{Device, DeviceFile, FileLock, FileLockMode, LockError};
use foxton_log::{LogError, Lsn};
use foxton_sync::worker::{Worker, Workers};

use super::*;
use crate::paged::PageId;
use crate::paged::page::{PageError, PageFault, PageKind, RowFlags, SlottedPage};
use crate::paged::page_log::{LogSpace, LoggedChange, PageLog, PageRecord, Unlogged};
use crate::paged::recovery::{PageTransaction, WriteError};
use crate::paged::space::{DOUBLEWRITE_SLOTS, DoublewriteBuffer, PagePurpose, format_file};
use crate::paged::stall::{TestProgress, fail_if_stalled};

mod ahead;
mod place_writes;
mod reservations;
mod written;

const IDENTITY: [u8; 16] = [7; 16];
/// The first pages of the file are not used here.
const FIRST: u64 = 3;

struct Data {
    pool: Arc<BufferPool>,
    /// The log's end: no log, but positions.
    end: AtomicU64,
    counts: Vec<AtomicU64>,
}

/// End of a log that is beyond all changes.
const LOG_END: Lsn = Lsn::new(1 << 40);

fn page_of(index: u64) -> PageId {
    PageId::new(0, FIRST + index)
}

fn row(content: &SlottedPage<impl crate::paged::page::PageWords>, index: usize) -> u64 {
    let value = content.value(index);
    value[..].try_into().map_or(u64::MAX, u64::from_le_bytes)
}

impl Data {
    /// Returns a pool of `frames` over `pages` pages, each written and evicted or not.
    fn create(device: &dyn Device, frames: usize, pages: u64) -> Data {
        Data::create_with_log(device, frames, pages, Arc::new(Unlogged::new(LOG_END)))
    }

    /// Returns a pool whose limit may be raised.
    fn create_with_maximum(device: &dyn Device, frames: usize, maximum: usize, pages: u64) -> Data {
        Data::create_in(
            device,
            (frames, maximum),
            pages,
            Arc::new(Unlogged::new(LOG_END)),
        )
    }

    fn create_with_log(
        device: &dyn Device,
        frames: usize,
        pages: u64,
        log: Arc<dyn PageLog>,
    ) -> Data {
        Data::create_in(device, (frames, frames), pages, log)
    }

    fn create_in(
        device: &dyn Device,
        (frames, maximum): (usize, usize),
        pages: u64,
        log: Arc<dyn PageLog>,
    ) -> Data {
        let file = PageFile::create(device, "rows", PageSize::MIN, IDENTITY);
        let mut file = file.expect("a new file");
        file.make_direct(device, "rows").expect("it is there");
        format_file(&file).expect("space");
        file.grow(FIRST + pages, &[]).expect("space");
        let data = Data {
            pool: Arc::new(BufferPool::with_maximum(file, frames, maximum, log).expect("whole")),
            end: AtomicU64::new(1),
            counts: (0..pages).map(|_| AtomicU64::new(0)).collect(),
        };
        let workers = Workers::new();
        let worker = workers.worker();
        for index in 0..pages {
            let page = page_of(index);
            if data.pool.free.count() == 0 {
                data.pool.clean_batch(&worker).expect("a device that works");
                data.pool.provide_frames(&worker);
            }
            let reservation = data.pool.reserve(&worker, &[PageRequest::create(page)]);
            let reservation = reservation.expect("a frame");
            let mut writer = reservation.pages()[0].lock(&worker);
            writer.change(data.logged(), |content| {
                content.format(PageKind::Leaf, 0, 9, page, b"", None);
                for (at, key) in [b"a", b"b"].into_iter().enumerate() {
                    let zero = 0_u64.to_le_bytes();
                    content
                        .insert(at, key, &zero, 8, RowFlags::NONE)
                        .expect("space");
                }
            });
        }
        data.pool.clean_all(&worker).expect("a device that works");
        data
    }

    fn logged(&self) -> LoggedChange {
        let begin = self.end.fetch_add(10, Ordering::Relaxed);
        LoggedChange {
            begin: Lsn::new(begin),
            end: Lsn::new(begin + 10),
        }
    }

    /// Adds one to both rows of a page. The caller holds its latch.
    fn add(&self, writer: &mut PageWriter<'_>, index: u64) {
        writer.change(self.logged(), |content| {
            assert_eq!(content.page(), page_of(index));
            let count = row(content, 0) + 1;
            for at in [0, 1] {
                let replaced = content.replace_value(at, &count.to_le_bytes());
                replaced.expect("the same size");
            }
        });
        self.counts[index as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn requests(&self, indexes: &[u64]) -> Vec<PageRequest> {
        let requests = indexes
            .iter()
            .map(|&index| PageRequest::read(page_of(index)));
        requests.collect()
    }

    /// Compares all pages with the counts, in the pool or in the file.
    fn verify(&self, worker: &Worker) {
        self.pool.verify();
        self.verify_pages(worker);
        self.pool.verify();
    }

    /// As [`verify`](Self::verify), for a pool whose threads run.
    fn verify_pages(&self, worker: &Worker) {
        for (index, count) in self.counts.iter().enumerate() {
            let requests = self.requests(&[index as u64]);
            let reservation = self.pool.reserve(worker, &requests).expect("whole");
            let view = reservation.pages()[0].view().expect("no writer");
            let count = count.load(Ordering::Relaxed);
            assert_eq!((row(&view.read(), 0), row(&view.read(), 1)), (count, count));
        }
    }
}

struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// An attempt that reads one page without a latch. Returns false if the page was missing.
fn read_one(data: &Data, index: u64) -> bool {
    let Some(view) = data.pool.page(page_of(index)) else {
        return false;
    };
    let both = (row(&view.read(), 0), row(&view.read(), 1));
    if view.is_valid() {
        assert_eq!(
            both.0,
            both.1,
            "half of a change of page {}",
            page_of(index)
        );
    }
    true
}

fn work(data: &Data, worker: &Worker, progress: &TestProgress, seed: u64, rounds: u64) {
    let mut random = Lcg(seed);
    let pages = data.counts.len() as u64;
    for _ in 0..rounds {
        progress.step();
        let mut indexes: Vec<_> = (0..1 + random.below(6))
            .map(|_| random.below(pages))
            .collect();
        // Latches in the order of pages.
        indexes.sort_unstable();
        indexes.dedup();
        if indexes.len() == 1 && read_one(data, indexes[0]) {
            continue;
        }
        let reservation = data
            .pool
            .reserve(worker, &data.requests(&indexes))
            .expect("whole");
        match random.below(3) {
            0 => {
                let pages = reservation.pages().iter();
                let mut writers: Vec<_> = pages.map(|page| page.lock(worker)).collect();
                for (writer, index) in writers.iter_mut().zip(&indexes) {
                    data.add(writer, *index);
                }
            }
            1 => {
                // As an attempt does it: at a version that was seen, without waiting.
                for (page, index) in reservation.pages().iter().zip(&indexes) {
                    let writer = page.view().and_then(|view| view.try_lock(worker));
                    if let Some(mut writer) = writer {
                        data.add(&mut writer, *index);
                    }
                }
            }
            _ => {
                for index in &indexes {
                    read_one(data, *index);
                }
            }
        }
    }
}

/// Runs threads on a pool with its own threads, and checks all pages afterwards, in the file too.
fn storm(progress: &TestProgress, threads: u64, rounds: u64, frames: usize, pages: u64) {
    let device = MemoryDevice::new();
    let data = Data::create(&device, frames, pages);
    let workers = Arc::new(Workers::new());
    let service = PoolThreads::start(data.pool.clone(), &workers).expect("threads");
    thread::scope(|scope| {
        for seed in 0..threads {
            let (data, workers) = (&data, &workers);
            scope.spawn(move || work(data, &workers.worker(), progress, seed, rounds));
        }
    });
    drop(service);
    let worker = workers.worker();
    data.pool.clean_all(&worker).expect("a device that works");
    data.verify(&worker);
    println!("{:?}", data.pool.stats());
    // The file has it all.
    let file = PageFile::open(&device, "rows", IDENTITY).expect("whole");
    let mut buffer = file.buffer(1);
    for (index, count) in data.counts.iter().enumerate() {
        file.read(page_of(index as u64), &mut buffer)
            .expect("whole");
        let content = SlottedPage::new(buffer.bytes());
        assert_eq!(row(&content, 0), count.load(Ordering::Relaxed));
    }
}

#[test]
fn a_pool_far_smaller_than_its_data_loses_nothing() {
    fail_if_stalled(|progress| {
        storm(progress, 8, 400, 16, 200);
        storm(progress, 4, 400, 100, 300);
    });
}

#[test]
fn many_threads_share_sixteen_frames() {
    fail_if_stalled(|progress| storm(progress, 100, 12, 16, 64));
}

#[test]
fn all_misses_on_one_page_are_one_read() {
    fail_if_stalled(misses_on_one_page);
}

fn misses_on_one_page(progress: &TestProgress) {
    let device = MemoryDevice::new();
    let data = Data::create(&device, 32, 100);
    let pool = &data.pool;
    let workers = Workers::new();
    for round in 0..20 {
        progress.step();
        let index = round * 4;
        // Others push the page out.
        for other in 0..60 {
            let requests = data.requests(&[(index + 1 + other) % 100]);
            drop(pool.reserve(&workers.worker(), &requests).expect("whole"));
        }
        let before = pool.stats().reads;
        let barrier = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let worker = workers.worker();
                    barrier.wait();
                    let requests = data.requests(&[index]);
                    let reservation = pool.reserve(&worker, &requests).expect("whole");
                    barrier.wait();
                    drop(reservation);
                });
            }
        });
        assert!(pool.stats().reads - before <= 1);
    }
    pool.verify();
}

#[test]
fn a_failed_read_is_an_error_of_its_pages_alone() {
    let device = FaultDevice::new();
    let data = Data::create(&device, 16, 40);
    let workers = Workers::new();
    let worker = workers.worker();
    let evict = |from: u64| {
        for index in from..from + 20 {
            drop(
                data.pool
                    .reserve(&worker, &data.requests(&[index]))
                    .expect("whole"),
            );
        }
    };
    evict(20);
    let missing = data.requests(&[0, 1, 2]);
    device.fail(Call::Read, 2, Times::Once, ErrorKind::Other);
    let failed = data.pool.reserve(&worker, &missing);
    assert!(matches!(failed, Err(PoolError::Read(_))), "{failed:?}");
    drop(failed);
    data.pool.verify();
    drop(
        data.pool
            .reserve(&worker, &missing)
            .expect("it failed once"),
    );
    // Several threads, all of which fail or all of which have another's error.
    evict(20);
    device.fail(Call::Read, 1, Times::ForEver, ErrorKind::Other);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert!(data.pool.reserve(&workers.worker(), &missing).is_err()));
        }
    });
    device.heal();
    data.verify(&worker);
}

#[test]
fn pages_that_change_while_they_are_copied_take_no_slot() {
    let device = MemoryDevice::new();
    let mut data = Data::create(&device, 16, 4);
    let pool = Arc::into_inner(data.pool).expect("no thread has it");
    let doublewrite =
        DoublewriteBuffer::open(&device, "double", pool.file(), LOG_END, &|_, _| true);
    data.pool = Arc::new(pool.with_doublewrite(doublewrite.expect("memory").0));
    let workers = Workers::new();
    let (worker, other) = (workers.worker(), workers.worker());
    let reservation = data.pool.reserve(&worker, &data.requests(&[1]));
    let reservation = reservation.expect("a frame");
    let mut writer = reservation.pages()[0].lock(&worker);
    data.add(&mut writer, 1);
    for _ in 0..=DOUBLEWRITE_SLOTS {
        let cleaned = data.pool.clean_batch(&other).expect("memory");
        assert_eq!((cleaned, data.pool.dirty_count()), (0, 1));
    }
    drop(writer);
    assert_eq!(data.pool.clean_batch(&other).expect("memory"), 1);
    assert_eq!(data.pool.dirty_count(), 0);
}

#[test]
fn a_failed_write_is_final_and_reads_go_on() {
    for call in [Call::Write, Call::Sync] {
        let device = FaultDevice::new();
        let data = Data::create(&device, 16, 40);
        let workers = Workers::new();
        let worker = workers.worker();
        let change = |index| {
            let reservation = data.pool.reserve(&worker, &data.requests(&[index]));
            reservation.map(|reservation| {
                data.add(&mut reservation.pages()[0].lock(&worker), index);
            })
        };
        change(0).expect("whole");
        device.fail(call, 1, Times::Once, ErrorKind::Other);
        assert!(matches!(
            data.pool.clean_batch(&worker),
            Err(PoolError::Write(_))
        ));
        assert_eq!(data.pool.dirty_count(), 1);
        assert!(data.pool.clean_batch(&worker).is_err(), "it is final");
        for index in 20..40 {
            drop(
                data.pool
                    .reserve(&worker, &data.requests(&[index]))
                    .expect("a clean page goes"),
            );
        }
        assert!(data.pool.page(page_of(0)).is_some(), "a dirty page stays");
        // Nothing is left for other pages, in the end.
        let refused = (0..40).find_map(|index| change(index).err());
        assert!(matches!(refused, Some(PoolError::Write(_))));
        data.pool.verify();
    }
}

#[test]
fn a_damaged_page_and_a_lost_write_are_errors() {
    let device = MemoryDevice::new();
    let data = Data::create(&device, 16, 60);
    let workers = Workers::new();
    let worker = workers.worker();
    let file = device.open("rows").expect("it is there");
    let at = |index: u64| (FIRST + index) * 1024;
    let mut old = [0; 1024];
    file.read_at(&mut old, at(3)).expect("memory");
    {
        let reservation = data
            .pool
            .reserve(&worker, &data.requests(&[3]))
            .expect("whole");
        data.add(&mut reservation.pages()[0].lock(&worker), 3);
    }
    data.pool.clean_all(&worker).expect("memory");
    for index in 10..30 {
        drop(
            data.pool
                .reserve(&worker, &data.requests(&[index]))
                .expect("whole"),
        );
    }
    // The disk forgets the last write of one page and confuses two others.
    file.write_at(&old, at(3)).expect("memory");
    file.read_at(&mut old, at(5)).expect("memory");
    file.write_at(&old, at(4)).expect("memory");
    file.write_at(&[1, 2, 3], at(5) + 500).expect("memory");
    let fault = |index| match data.pool.reserve(&worker, &data.requests(&[index])) {
        Err(PoolError::Damaged(error)) => error.fault,
        other => panic!("{other:?}"),
    };
    assert!(matches!(fault(3), PageFault::Stale { .. }));
    assert!(matches!(fault(4), PageFault::Number { .. }));
    assert!(matches!(fault(5), PageFault::Checksum { .. }));
    data.pool.verify();
}

#[test]
fn a_page_with_changes_beyond_the_end_of_the_log_is_damaged() {
    let device = MemoryDevice::new();
    let end = Lsn::new(20);
    let data = Data::create_with_log(&device, 16, 60, Arc::new(Unlogged::new(end)));
    let worker = Workers::new().worker();
    let (mut whole, mut ahead) = (0, 0);
    for index in 0..60 {
        match data.pool.reserve(&worker, &data.requests(&[index])) {
            Ok(_) => whole += 1,
            Err(PoolError::Damaged(PageError {
                fault: PageFault::AheadOfLog { found, end: log },
                ..
            })) => {
                assert!(found > end && log == end);
                ahead += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(whole >= 10 && ahead >= 10, "{whole} {ahead}");
}

/// A directory in memory whose files call functions before writes and syncs.
#[derive(Debug, Default)]
struct HookedDevice {
    inner: MemoryDevice,
    hooks: Arc<DeviceHooks>,
}

type SyncHook = Box<dyn FnOnce() + Send>;
type ReadHook = Arc<dyn Fn(u64, usize) -> io::Result<()> + Send + Sync>;
type WriteHook = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

#[derive(Default)]
struct DeviceHooks {
    /// Called with what is written.
    before_write: std::sync::Mutex<Option<WriteHook>>,
    /// Called once.
    before_sync: std::sync::Mutex<Option<SyncHook>>,
    /// Called with place and size of what is read.
    before_read: std::sync::Mutex<Option<ReadHook>>,
}

impl fmt::Debug for DeviceHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceHooks")
    }
}

#[derive(Debug)]
struct HookedFile(Arc<dyn DeviceFile>, Arc<DeviceHooks>);

impl DeviceFile for HookedFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let hook = shim::lock(&self.1.before_read).clone();
        hook.map_or(Ok(()), |hook| hook(offset, bytes.len()))?;
        self.0.read_at(bytes, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Some(hook) = &mut *shim::lock(&self.1.before_write) {
            hook(bytes)?;
        }
        self.0.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        let hook = shim::lock(&self.1.before_sync).take();
        if let Some(hook) = hook {
            hook();
        }
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

impl Device for HookedDevice {
    fn lock(&self) -> Result<(), LockError> {
        self.inner.lock()
    }
    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        self.inner.try_lock_file(name, mode)
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(HookedFile(
            self.inner.create(name)?,
            self.hooks.clone(),
        )))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(HookedFile(
            self.inner.open(name)?,
            self.hooks.clone(),
        )))
    }
    fn open_direct(&self, name: &str) -> io::Result<Option<Arc<dyn DeviceFile>>> {
        self.open(name).map(Some)
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

#[test]
fn a_page_that_changes_while_it_is_written_stays_dirty() {
    let device = HookedDevice::default();
    let data = Arc::new(Data::create(&device, 16, 40));
    let workers = Workers::new();
    let worker = workers.worker();
    let add = |data: &Data, worker: &Worker, index| {
        let reservation = data
            .pool
            .reserve(worker, &data.requests(&[index]))
            .expect("whole");
        data.add(&mut reservation.pages()[0].lock(worker), index);
    };
    add(&data, &worker, 3);
    add(&data, &worker, 4);
    let during_sync = {
        let (data, worker) = (data.clone(), workers.worker());
        move || {
            // Written, and not yet durable: nothing may be clean.
            assert_eq!(data.pool.dirty_count(), 2);
            add(&data, &worker, 3);
        }
    };
    *shim::lock(&device.hooks.before_sync) = Some(Box::new(during_sync));
    assert_eq!(data.pool.clean_batch(&worker).expect("memory"), 2);
    assert_eq!(data.pool.dirty_count(), 1, "one has changed");
    let page = data
        .pool
        .reserve(&worker, &data.requests(&[3]))
        .expect("whole");
    let frame = &data.pool.frames[page.pages()[0].index()];
    // Redo of the page begins behind the change that is durable now.
    let recovery_lsn = frame.recovery_lsn().expect("dirty");
    assert!(recovery_lsn < frame.read().lsn());
    drop(page);
    data.pool.clean_all(&worker).expect("memory");
    assert_eq!(data.pool.dirty_count(), 0);
    for index in 10..40 {
        drop(
            data.pool
                .reserve(&worker, &data.requests(&[index]))
                .expect("whole"),
        );
    }
    data.verify(&worker);
}

#[test]
fn a_page_that_a_thread_changes_is_left_for_a_later_batch() {
    let device = MemoryDevice::new();
    let data = Data::create(&device, 16, 20);
    let workers = Workers::new();
    let (worker, other) = (workers.worker(), workers.worker());
    let reservation = data
        .pool
        .reserve(&worker, &data.requests(&[3]))
        .expect("whole");
    let mut writer = reservation.pages()[0].lock(&worker);
    writer.change(data.logged(), |_| {
        assert_eq!(data.pool.clean_batch(&other).expect("memory"), 0);
        assert_eq!(data.pool.dirty_count(), 1);
    });
    drop(writer);
    assert_eq!(data.pool.clean_batch(&other).expect("memory"), 1);
}

#[test]
fn no_half_of_a_change_is_written() {
    let device = MemoryDevice::new();
    let data = Data::create(&device, 16, 20);
    let workers = Workers::new();
    let worker = workers.worker();
    let requests = data.requests(&[3]);
    let reservation = data.pool.reserve(&worker, &requests).expect("whole");
    let frame = &data.pool.frames[reservation.pages()[0].index()];
    // How often the page changes in the middle of a copy. With all three copies without a latch
    // spoiled, the fourth is made under it.
    for changes in 0..=3 {
        let mut calls = 0;
        let copied = data.pool.validated(&worker, frame, || {
            let first = row(&frame.read(), 0);
            calls += 1;
            if calls <= changes {
                data.add(&mut reservation.pages()[0].lock(&worker), 3);
            }
            (first, row(&frame.read(), 1))
        });
        let count = data.counts[3].load(Ordering::Relaxed);
        assert_eq!((copied, calls), (Some((count, count)), changes + 1));
    }
    // A writer that stays: no copy.
    let writer = reservation.pages()[0].lock(&worker);
    assert_eq!(data.pool.validated(&worker, frame, || ()), None);
    drop(writer);
}

/// A log that is durable as far as it was waited for, if it is.
#[derive(Debug, Default)]
struct SlowLog {
    durable: AtomicU64,
    has_failed: AtomicBool,
}

impl PageLog for SlowLog {
    fn wait_durable(&self, _: &Worker, lsn: Lsn) -> Result<(), LogError> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(LogError::Closed);
        }
        self.durable.fetch_max(lsn.bytes(), Ordering::Relaxed);
        Ok(())
    }

    fn end(&self, _: &Worker) -> Lsn {
        LOG_END
    }

    fn try_take_space(&self, _: &Worker, _: u64) -> bool {
        false
    }

    fn give_back_space(&self, _: u64) {}

    fn wait_for_space(&self, _: &Worker, _: u64) -> Result<(), LogError> {
        Err(LogError::Closed)
    }

    fn keep_undo_space(&self, _: &mut PageTransaction, _: usize) -> bool {
        false
    }

    fn wait_for_undo_space(&self, _: &Worker, _: usize) -> Result<(), LogError> {
        Err(LogError::Closed)
    }

    fn insert(
        &self,
        _: &Worker,
        _: LogSpace<'_>,
        _: PageRecord<'_>,
    ) -> Result<LoggedChange, WriteError> {
        Err(LogError::Closed.into())
    }
}

#[test]
fn a_page_is_written_only_when_the_log_is_durable_up_to_its_lsn() {
    let log = Arc::new(SlowLog::default());
    let device = HookedDevice::default();
    let data = Data::create_with_log(&device, 16, 40, log.clone());
    let workers = Workers::new();
    let worker = workers.worker();
    let writes = Arc::new(AtomicU64::new(0));
    let before_write = {
        let (log, writes) = (log.clone(), writes.clone());
        move |images: &[u8]| {
            for image in images.chunks(1024) {
                let lsn = SlottedPage::new(image).lsn().bytes();
                assert!(lsn <= log.durable.load(Ordering::Relaxed), "log first");
                writes.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
    };
    *shim::lock(&device.hooks.before_write) = Some(Box::new(before_write));
    let mut random = Lcg(5);
    for _ in 0..300 {
        let index = random.below(40);
        let requests = data.requests(&[index]);
        let reservation = data.pool.reserve(&worker, &requests).expect("whole");
        data.add(&mut reservation.pages()[0].lock(&worker), index);
        drop(reservation);
        if data.pool.dirty_count() > 9 {
            data.pool.clean_batch(&worker).expect("memory");
        }
    }
    assert!(writes.load(Ordering::Relaxed) > 100);
    // Without a log nothing is written, and that is final.
    data.pool.clean_all(&worker).expect("memory");
    let requests = data.requests(&[3]);
    let reservation = data.pool.reserve(&worker, &requests).expect("whole");
    data.add(&mut reservation.pages()[0].lock(&worker), 3);
    drop(reservation);
    let before = writes.load(Ordering::Relaxed);
    log.has_failed.store(true, Ordering::Relaxed);
    let refused = data.pool.clean_batch(&worker);
    assert!(matches!(refused, Err(PoolError::Log(LogError::Closed))));
    log.has_failed.store(false, Ordering::Relaxed);
    assert!(data.pool.clean_batch(&worker).is_err(), "it is final");
    assert_eq!(
        (writes.load(Ordering::Relaxed), data.pool.dirty_count()),
        (before, 1)
    );
}

#[test]
fn the_cleaner_grows_the_file_before_its_pages_are_used_up() {
    let device = MemoryDevice::new();
    let data = Data::create(&device, 16, 10);
    let workers = Arc::new(Workers::new());
    let service = PoolThreads::start(data.pool.clone(), &workers).expect("threads");
    let worker = workers.worker();
    let (pool, near) = (&data.pool, page_of(0));
    while !pool.space().is_low() {
        pool.claim_page(&worker, near, PagePurpose::Growth)
            .expect("a free page")
            .keep();
    }
    let begin = Instant::now();
    while pool.space().is_low() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "the cleaner grows it"
        );
        thread::yield_now();
    }
    drop(service);
    // Without the cleaner, those that need a page grow the file.
    while let Some(claim) = pool.claim_page(&worker, near, PagePurpose::Growth) {
        claim.keep();
    }
    pool.grow_file(&worker).expect("memory");
    assert!(
        pool.claim_page(&worker, near, PagePurpose::Growth)
            .is_some()
    );
}

#[test]
fn the_memory_limit_changes_while_threads_work() {
    fail_if_stalled(change_limit_in_a_storm);
}

/// Tells threads to end, also when this thread fails.
struct EndSignal<'a>(&'a AtomicBool);

impl Drop for EndSignal<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn change_limit_in_a_storm(progress: &TestProgress) {
    let device = MemoryDevice::new();
    let data = Data::create_with_maximum(&device, 16, 200, 300);
    let pool = &data.pool;
    let workers = Arc::new(Workers::new());
    let service = PoolThreads::start(pool.clone(), &workers).expect("threads");
    let is_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let end = EndSignal(&is_ended);
        for seed in 0..6 {
            let (data, workers, is_ended) = (&data, &workers, &is_ended);
            scope.spawn(move || {
                let mut seeds = (seed..).step_by(6);
                while !is_ended.load(Ordering::Relaxed) {
                    let seed = seeds.next().expect("endless");
                    work(data, &workers.worker(), progress, seed, 20);
                }
            });
        }
        // The others work until this thread has changed the limit so often, however seldom it runs.
        let (worker, mut random) = (workers.worker(), Lcg(9));
        for _ in 0..40 {
            let frames = [16, 20, 60, 200][random.below(4) as usize];
            assert_eq!(pool.set_frames(&worker, frames), frames);
            let reads = pool.stats().reads;
            while pool.stats().reads < reads + 50 {
                thread::yield_now();
            }
        }
        drop(end);
    });
    let worker = workers.worker();
    // Nothing is in use now, so all frames beyond the limit are emptied, dirty ones too.
    for frames in [200, 16, 100, 5, 1000] {
        let limit = pool.set_frames(&worker, frames);
        assert_eq!(limit, frames.clamp(16, 200));
        while pool.stats().surplus > 0 {
            thread::yield_now();
        }
        progress.step();
        let size = pool.page_size();
        let bytes = pool.memory_bytes();
        assert_eq!(BufferPool::frames_within(bytes, 200, size), limit);
        assert!(limit == 16 || BufferPool::frames_within(bytes - 1, 200, size) < limit);
        // The pages have to be read again, into as many frames as there are.
        data.verify_pages(&worker);
        let used = pool.frames.iter().filter(|frame| frame.page().is_some());
        assert!(used.count() <= limit);
        for index in 0..40 {
            let requests = data.requests(&[index]);
            let reservation = pool.reserve(&worker, &requests).expect("whole");
            data.add(&mut reservation.pages()[0].lock(&worker), index);
        }
    }
    drop(service);
    pool.clean_all(&worker).expect("a device that works");
    data.verify(&worker);
}

#[test]
fn a_frame_beyond_the_limit_keeps_its_page_while_it_is_used() {
    let device = MemoryDevice::new();
    let data = Data::create_with_maximum(&device, 60, 60, 100);
    let workers = Workers::new();
    let (worker, pool) = (workers.worker(), &data.pool);
    let fixed: Vec<_> = (0..10)
        .map(|six| {
            let indexes: Vec<u64> = (0..6).map(|index| six * 6 + index).collect();
            pool.reserve(&worker, &data.requests(&indexes))
                .expect("whole")
        })
        .collect();
    data.add(&mut fixed[5].pages()[0].lock(&worker), 30);
    pool.set_frames(&worker, 16);
    pool.provide_frames(&worker);
    assert_eq!(pool.stats().surplus, 44, "all are fixed");
    assert!(
        fixed
            .iter()
            .flat_map(|six| six.pages())
            .all(|page| page.view().is_some())
    );
    let bytes = pool.memory_bytes();
    drop(fixed);
    pool.provide_frames(&worker);
    // One is dirty; it is emptied once it was written, wherever it is.
    assert!(pool.stats().surplus <= 1);
    pool.clean_all(&worker).expect("memory");
    assert_eq!(pool.stats().surplus, 0);
    assert!(bytes - pool.memory_bytes() >= 44 * 1024);
    data.verify(&worker);
}

#[test]
fn the_cleaner_writes_the_one_dirty_page_beyond_the_limit() {
    fail_if_stalled(|progress| {
        let device = MemoryDevice::new();
        let data = Data::create_with_maximum(&device, 60, 60, 40);
        let workers = Arc::new(Workers::new());
        let (worker, pool) = (workers.worker(), &data.pool);
        let beyond = (0..40).find(|index| {
            let requests = data.requests(&[*index]);
            let reservation = pool.reserve(&worker, &requests).expect("whole");
            reservation.pages()[0].index() >= 16
        });
        let index = beyond.expect("there are more pages than frames below the limit");
        let requests = data.requests(&[index]);
        let reservation = pool.reserve(&worker, &requests).expect("whole");
        data.add(&mut reservation.pages()[0].lock(&worker), index);
        drop(reservation);
        let service = PoolThreads::start(pool.clone(), &workers).expect("threads");
        pool.set_frames(&worker, 16);
        while pool.stats().surplus > 0 {
            thread::yield_now();
        }
        progress.step();
        drop(service);
        assert_eq!(pool.dirty_count(), 0);
        data.verify(&worker);
    });
}
