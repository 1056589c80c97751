//! Many threads, and many tasks, use one log.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};

use foxton_log::device::fault::{Call, FaultDevice};
use foxton_log::device::memory::MemoryDevice;
use foxton_log::device::{Device, DeviceFile, FileLock, FileLockMode, LockError};
use foxton_log::{BufferKind, Log, LogError, LogOptions, LogWait, Lsn, MAX_PAYLOAD};
use foxton_sync::latch::Kind;
use foxton_sync::worker::Workers;

use crate::support::{self, IDENTITY, Random, open, open_as, read};

/// Every record is found once, whole, at the position that `insert` returned, in the order of its
/// thread.
#[test]
fn sixty_four_threads_insert_records_of_all_sizes_and_each_is_found() {
    for kind in Kind::ALL {
        let mut options = LogOptions::tiny();
        options.latch = kind;
        // Large enough for a few segments only, small enough for the buffer to be full always.
        options.segment_bytes = 256 << 10;
        let device = Arc::new(MemoryDevice::new());
        let workers = Workers::new();
        let (log, ..) = open_as(device.clone(), options, IDENTITY).unwrap();
        let mut expected = HashMap::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..64_u32)
                .map(|thread| {
                    let (log, worker) = (&log, workers.worker());
                    scope.spawn(move || {
                        let mut random = Random(u64::from(thread));
                        let insert = |number: u32| {
                            let length = match random.below(50) {
                                0 => random.below(20_000),
                                _ => random.below(400),
                            };
                            let payload = random.bytes(length);
                            let mark = [thread.to_le_bytes(), number.to_le_bytes()].concat();
                            let end = log.insert(&worker, 1, &[&mark, &payload]).unwrap();
                            if number.is_multiple_of(32) {
                                log.wait_written(&worker, end).unwrap();
                            }
                            (end, [mark, payload].concat())
                        };
                        (0..100).map(insert).collect::<Vec<_>>()
                    })
                })
                .collect();
            for thread in threads {
                let inserted = thread.join().unwrap();
                assert!(
                    inserted.is_sorted_by_key(|(end, _)| *end),
                    "each thread in its order"
                );
                expected.extend(inserted);
            }
        });
        let worker = workers.worker();
        let stats = log.stats(&worker);
        log.close(&worker).unwrap();
        assert_eq!(stats.records, 6400, "{kind}");
        let (summary, found) = read(&*device).unwrap();
        assert_eq!(summary.records, 6400, "{kind}");
        for entry in found {
            let inserted = expected.remove(&entry.end);
            assert!(
                inserted.as_ref() == Some(&entry.payload),
                "{kind}: at {}",
                entry.end
            );
        }
        assert!(expected.is_empty());
    }
}

#[test]
fn committers_share_syncs() {
    const THREADS: u64 = 16;
    const COMMITS: u64 = 6;
    let device = FaultDevice::new();
    // Far longer than a thread needs to return with its next commit, however busy the machine is.
    device.slow_sync(Duration::from_millis(50));
    let workers = Workers::new();
    let mut options = support::options();
    options.segment_bytes = 1 << 20;
    options.buffer_bytes = 1 << 20;
    let (log, ..) = open_as(Arc::new(device.clone()), options, IDENTITY).unwrap();
    let before = device.calls(Call::Sync);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (log, worker) = (&log, workers.worker());
            scope.spawn(move || {
                for _ in 0..COMMITS {
                    let end = log.insert(&worker, 1, &[&[1; 120]]).unwrap();
                    log.wait_durable(&worker, end).unwrap();
                    assert!(log.durable() >= end);
                }
            });
        }
    });
    let syncs = device.calls(Call::Sync) - before;
    let shared = (THREADS * COMMITS) as f64 / syncs as f64;
    println!("{shared:.1} commits per sync");
    assert!(shared > 2.0, "{shared:.1} commits per sync");
    assert!(log.stats(&workers.worker()).syncs >= syncs);
}

/// A record that was never inserted is not waited for, and the flusher is not asked for it.
#[test]
fn a_request_beyond_the_end_writes_up_to_the_end() {
    for kind in BufferKind::ALL {
        let mut options = support::options();
        options.buffer = kind;
        let workers = Workers::new();
        let (log, ..) = open_as(Arc::new(MemoryDevice::new()), options, IDENTITY).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                let (log, worker) = (&log, workers.worker());
                scope.spawn(move || {
                    for _ in 0..500 {
                        let end = log.insert(&worker, 1, &[b"more"]).unwrap();
                        log.wait_written(&worker, Lsn::MAX).unwrap();
                        assert!(log.written() >= end, "{kind}");
                    }
                });
            }
        });
    }
}

#[test]
fn a_buffered_commit_is_synced_within_the_interval() {
    let device = FaultDevice::new();
    let worker = Workers::new().worker();
    let mut options = support::options();
    options.sync_interval = Duration::from_millis(20);
    let (log, ..) = open_as(Arc::new(device), options, IDENTITY).unwrap();
    for _ in 0..3 {
        let end = log.insert(&worker, 1, &[b"buffered"]).unwrap();
        log.wait_written(&worker, end).unwrap();
        assert!(log.written() >= end);
        let patience = Instant::now() + Duration::from_secs(20);
        while log.durable() < end {
            assert!(Instant::now() < patience, "it is never synced");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn without_waiting_threads_records_are_written_when_the_buffer_is_half_full() {
    let device = FaultDevice::new();
    let worker = Workers::new().worker();
    let (log, ..) = open(Arc::new(device.clone())).unwrap();
    let written = device.calls(Call::Write);
    log.insert(&worker, 1, &[&[1; 1000]]).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(device.calls(Call::Write), written, "a little waits");
    let end = log.insert(&worker, 1, &[&[1; 1500]]).unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    while log.written() < end {
        assert!(Instant::now() < patience, "it is never written");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(log.durable(), Lsn::ZERO, "and not synced");
}

#[test]
fn a_flush_can_be_asked_for_without_waiting() {
    let worker = Workers::new().worker();
    let (log, ..) = open(Arc::new(FaultDevice::new())).unwrap();
    let end = log.insert(&worker, 1, &[b"x"]).unwrap();
    log.flush_to(&worker, end);
    let patience = Instant::now() + Duration::from_secs(20);
    while log.durable() < end {
        assert!(Instant::now() < patience, "it is never synced");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_record_larger_than_buffer_and_segment_is_whole_and_in_its_place() {
    let device = Arc::new(MemoryDevice::new());
    let worker = Workers::new().worker();
    let (log, ..) = open(device.clone()).unwrap();
    let large = Random(3).bytes(3 << 20);
    log.insert(&worker, 1, &[b"before"]).unwrap();
    let (left, right) = large.split_at(1_000_001);
    log.insert(&worker, 2, &[left, right]).unwrap();
    log.insert(&worker, 3, &[b"after"]).unwrap();
    log.close(&worker).unwrap();
    let (_, found) = read(&*device).unwrap();
    let kinds: Vec<u8> = found.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [1, 2, 3]);
    assert!(found[1].payload == large);
}

#[test]
fn a_record_over_the_limit_or_of_a_kind_of_the_logs_own_is_refused_and_leaves_no_trace() {
    let worker = Workers::new().worker();
    let (log, ..) = open(Arc::new(MemoryDevice::new())).unwrap();
    // The same bytes twice: fewer are enough.
    let half = vec![0; MAX_PAYLOAD / 2 + 1];
    let error = log.insert(&worker, 1, &[&half, &half]).unwrap_err();
    assert!(matches!(error, LogError::TooLarge { bytes } if bytes == MAX_PAYLOAD + 2));
    assert!(
        error.to_string().contains("over the limit of 268435456"),
        "{error}"
    );
    for kind in [0, 240, 255] {
        let error = log.insert(&worker, kind, &[b"x"]).unwrap_err();
        assert!(
            error.to_string().contains("kinds go from 1 to 239"),
            "{error}"
        );
    }
    assert_eq!(log.end(&worker), Lsn::ZERO);
}

#[test]
fn a_closed_log_takes_nothing_and_keeps_its_promises() {
    let worker = Workers::new().worker();
    let (log, ..) = open(Arc::new(MemoryDevice::new())).unwrap();
    let end = log.insert(&worker, 1, &[b"x"]).unwrap();
    log.close(&worker).unwrap();
    log.close(&worker).expect("closing again does nothing");
    assert!(matches!(
        log.insert(&worker, 1, &[b"y"]),
        Err(LogError::Closed)
    ));
    log.wait_durable(&worker, end).unwrap();
    log.wait_written(&worker, end).unwrap();
    assert!(matches!(
        log.wait_durable(&worker, Lsn::MAX),
        Err(LogError::Closed)
    ));
}

#[test]
fn a_device_that_panics_fails_the_log_and_leaves_nobody_waiting() {
    let worker = Workers::new().worker();
    let (log, ..) = open(Arc::new(Panicking(FaultDevice::new()))).unwrap();
    let end = log.insert(&worker, 1, &[b"x"]).unwrap();
    let error = log.wait_durable(&worker, end).unwrap_err();
    assert!(error.to_string().contains("a thread panicked"), "{error}");
    assert!(log.close(&worker).is_err());
}

/// Panics at any sync once its log is open.
#[derive(Debug)]
struct Panicking(FaultDevice);

#[derive(Debug)]
struct PanickingFile(Arc<dyn DeviceFile>, FaultDevice);

impl Device for Panicking {
    fn lock(&self) -> Result<(), LockError> {
        self.0.lock()
    }
    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        self.0.try_lock_file(name, mode)
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(PanickingFile(
            self.0.create(name)?,
            self.0.clone(),
        )))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        self.0.open(name)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.0.sync_dir()
    }
}

impl DeviceFile for PanickingFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        // Opening creates the file `closed` and the first segment.
        assert!(
            self.1.calls(Call::SyncDir) < 2,
            "this panic is part of the test"
        );
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

#[test]
fn committers_that_meet_a_closing_log_are_committed_or_refused() {
    for round in 0..50 {
        let device = Arc::new(MemoryDevice::new());
        let workers = Workers::new();
        let (log, ..) = open(device.clone()).unwrap();
        let committed: Vec<Lsn> = std::thread::scope(|scope| {
            let committers: Vec<_> = (0..4)
                .map(|_| {
                    let (log, worker) = (&log, workers.worker());
                    scope.spawn(move || {
                        let commit = || {
                            let end = log.insert(&worker, 1, &[b"x"])?;
                            log.wait_durable(&worker, end).map(|()| end)
                        };
                        std::iter::from_fn(|| commit().ok()).collect::<Vec<_>>()
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_micros(round * 20));
            log.close(&workers.worker()).unwrap();
            committers
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        let found: Vec<Lsn> = read(&*device)
            .unwrap()
            .1
            .iter()
            .map(|entry| entry.end)
            .collect();
        assert!(
            committed.iter().all(|end| found.contains(end)),
            "round {round}"
        );
    }
}

/// Wakes the thread that runs the task.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(task: impl Future<Output = T>) -> T {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut task = pin!(task);
    loop {
        match task.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

async fn durable(log: &Log, workers: &Workers, lsn: Lsn) -> Result<(), LogError> {
    let worker = workers.worker();
    let mut pending = LogWait::default();
    poll_fn(|context| log.poll_durable(&worker, &mut pending, lsn, context)).await
}

#[test]
fn a_task_awaits_what_a_thread_would_wait_for() {
    let device = FaultDevice::new();
    device.slow_sync(Duration::from_millis(5));
    let workers = Workers::new();
    let worker = workers.worker();
    let (log, ..) = open(Arc::new(device)).unwrap();
    let end = log.insert(&worker, 1, &[b"x"]).unwrap();
    block_on(durable(&log, &workers, end)).unwrap();
    assert!(log.durable() >= end);
    let end = log.insert(&worker, 1, &[b"y"]).unwrap();
    let mut pending = LogWait::default();
    let written = poll_fn(|context| log.poll_written(&worker, &mut pending, end, context));
    block_on(written).unwrap();
    assert!(log.written() >= end);
}

#[test]
fn a_task_that_gives_up_leaves_nothing_behind_that_harms() {
    let device = FaultDevice::new();
    device.slow_sync(Duration::from_millis(5));
    let workers = Workers::new();
    let worker = workers.worker();
    let (log, ..) = open(Arc::new(device)).unwrap();
    for _ in 0..20 {
        let end = log.insert(&worker, 1, &[b"x"]).unwrap();
        let mut task = Box::pin(durable(&log, &workers, end));
        let mut context = Context::from_waker(std::task::Waker::noop());
        let _ = task.as_mut().poll(&mut context);
        drop(task);
    }
    let end = log.end(&worker);
    log.wait_durable(&worker, end).unwrap();
}
