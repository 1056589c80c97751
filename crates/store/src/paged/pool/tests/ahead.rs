//! Pages that are read ahead: how they are read, which frames they take, and what fails.

use super::*;
use crate::paged::pool::MAX_AHEAD;

/// Reads of a device, in order: first page and number of pages.
type ReadLog = Arc<std::sync::Mutex<Vec<(u64, usize)>>>;

fn ids(indexes: impl IntoIterator<Item = u64>) -> Vec<PageId> {
    indexes.into_iter().map(page_of).collect()
}

fn log_reads(device: &HookedDevice) -> ReadLog {
    let log = ReadLog::default();
    let reads = log.clone();
    let size = PageSize::MIN.bytes();
    let hook = move |offset: u64, bytes: usize| {
        let first = offset / size as u64 - FIRST;
        reads.lock().expect("no panic").push((first, bytes / size));
        Ok(())
    };
    *shim::lock(&device.hooks.before_read) = Some(Arc::new(hook));
    log
}

/// A pool whose pages are all in the file alone.
fn cold(device: &dyn Device, frames: usize, pages: u64) -> (Data, Worker) {
    let data = Data::create(device, frames, pages);
    let worker = Workers::new().worker();
    data.pool.evict_all(&worker);
    assert_eq!(data.pool.free.count(), frames);
    (data, worker)
}

fn resident(data: &Data) -> Vec<u64> {
    let pages = 0..data.counts.len() as u64;
    pages
        .filter(|index| data.pool.page_once(page_of(*index)).is_some())
        .collect()
}

fn reserve_ahead(data: &Data, worker: &Worker, index: u64, ahead: &[PageId]) {
    let requests = [PageRequest {
        page: page_of(index),
        purpose: PageUse::ReadOnce,
    }];
    let reserved = data.pool.reserve_ahead(worker, &requests, ahead);
    drop(reserved.expect("whole"));
}

/// Ends claims whose pages are not read.
fn give_up(data: &Data, worker: &Worker, claimed: &[(usize, PageId)]) {
    for (index, page) in claimed {
        let fixed = FixedPage::new(&data.pool, *index, *page);
        data.pool.fail_load(worker, &fixed);
    }
    data.pool.return_ahead(claimed.len());
}

#[test]
fn neighbours_are_read_with_one_call_and_others_not_at_all() {
    let device = HookedDevice::default();
    let (data, worker) = cold(&device, 320, 120);
    let reads = log_reads(&device);
    // Two pages between are read for nothing, more are not.
    reserve_ahead(&data, &worker, 10, &ids([11, 12, 15, 19, 8, 60]));
    assert_eq!(*reads.lock().expect("no panic"), [(8, 8)]);
    assert_eq!(resident(&data), [8, 10, 11, 12, 15]);
    assert_eq!(
        (data.pool.stats().reads, data.pool.stats().reads_ahead),
        (5, 4)
    );
    // Resident pages are not read again.
    reserve_ahead(&data, &worker, 14, &ids([12, 13, 15, 16]));
    assert_eq!(reads.lock().expect("no panic").pop(), Some((13, 4)));
    assert_eq!(data.pool.stats().reads, 8);
    reserve_ahead(&data, &worker, 14, &ids([70, 71]));
    assert_eq!(data.pool.stats().reads, 8, "it was no miss");
    // Nothing is fixed, and nothing was used.
    data.pool.evict_all(&worker);
    assert_eq!(data.pool.free.count(), 320);
    data.verify(&worker);
}

#[test]
fn at_most_an_eighth_of_the_frames_is_read_ahead_and_only_free_ones() {
    let device = HookedDevice::default();
    let (data, worker) = cold(&device, 160, 240);
    let claimed = data
        .pool
        .claim_run(&worker, &ids(1..=MAX_AHEAD as u64), None);
    assert_eq!(claimed.len(), 20, "an eighth");
    assert!(data.pool.claim_run(&worker, &ids([50]), None).is_empty());
    give_up(&data, &worker, &claimed);
    // Three frames are free, and the missing page needs one.
    let kept: Vec<_> = (0..157)
        .map(|index| data.pool.reserve(&worker, &data.requests(&[index])))
        .collect();
    let evictions = data.pool.stats().evictions;
    reserve_ahead(&data, &worker, 200, &ids(201..210));
    assert_eq!(resident(&data)[157..], [200, 201, 202]);
    assert_eq!(data.pool.stats().evictions, evictions);
    // No frame is free but the one that the thread evicts for itself.
    reserve_ahead(&data, &worker, 210, &ids(211..219));
    assert_eq!(resident(&data).len(), 160);
    assert!(!resident(&data).contains(&211));
    // Threads that wait for frames get them before pages are read ahead.
    drop(kept);
    data.pool.evict_all(&worker);
    let wait = data.pool.free.enqueue(161);
    data.pool
        .read_ahead(&worker, &ids([3, 4]), PageUse::ReadOnce);
    assert!(data.pool.free.take_at_most(3).is_empty());
    data.pool.free.cancel(&wait);
    data.verify(&worker);
}

#[test]
fn a_page_that_another_thread_has_just_claimed_is_left_to_it() {
    let (data, worker) = cold(&HookedDevice::default(), 320, 60);
    reserve_ahead(&data, &worker, 4, &[]);
    let claimed = data.pool.claim_run(&worker, &ids(3..6), None);
    assert_eq!((claimed.len(), data.pool.free.count()), (2, 317));
    give_up(&data, &worker, &claimed);
    data.verify(&worker);
}

#[test]
fn a_failed_read_ahead_is_no_error_of_the_page_that_was_missed() {
    let device = FaultDevice::new();
    let (data, worker) = cold(&device, 320, 60);
    device.fail(Call::Read, 1, Times::Once, ErrorKind::Other);
    let before = device.calls(Call::Read);
    reserve_ahead(&data, &worker, 0, &ids(1..9));
    assert_eq!(device.calls(Call::Read), before + 2, "the page alone again");
    assert_eq!(resident(&data), [0]);
    data.pool.verify();
    // A page that fails again is an error, and nothing stays behind.
    device.fail(Call::Read, 1, Times::ForEver, ErrorKind::Other);
    let failed = data
        .pool
        .reserve_ahead(&worker, &data.requests(&[10]), &ids(11..19));
    assert!(matches!(failed, Err(PoolError::Read(_))), "{failed:?}");
    drop(failed);
    device.heal();
    assert_eq!(data.pool.free.count(), 319);
    data.verify(&worker);
}

#[test]
fn a_damaged_page_is_an_error_of_the_thread_that_needs_it() {
    let device = HookedDevice::default();
    let (data, worker) = cold(&device, 320, 60);
    let file = device.open("rows").expect("it is there");
    let place = page_of(4).number() * PageSize::MIN.bytes() as u64 + 100;
    file.write_at(&[0xAA; 3], place).expect("memory");
    reserve_ahead(&data, &worker, 0, &ids(1..6));
    assert_eq!(resident(&data), [0, 1, 2, 3, 5]);
    let failed = data
        .pool
        .reserve_ahead(&worker, &data.requests(&[4]), &ids([6, 7]));
    assert!(matches!(failed, Err(PoolError::Damaged(_))), "{failed:?}");
    drop(failed);
    assert_eq!(resident(&data), [0, 1, 2, 3, 5, 6, 7]);
    assert_eq!(data.pool.free.count(), 313);
    data.pool.verify();
}

#[test]
fn page_readers_read_what_is_named_and_delay_no_other_page() {
    let device = HookedDevice::default();
    let (data, worker) = cold(&device, 400, 400);
    let workers = Arc::new(Workers::new());
    let service = PoolThreads::start(data.pool.clone(), &workers).expect("threads");
    let is_open = Arc::new(AtomicBool::new(false));
    let blocked = Arc::new(AtomicU64::new(0));
    let (open, count) = (is_open.clone(), blocked.clone());
    // Reads of the first hundred pages stall.
    let end = page_of(100).number() * PageSize::MIN.bytes() as u64;
    let hook = move |offset: u64, _: usize| {
        if offset < end {
            count.fetch_add(1, Ordering::Relaxed);
            while !open.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        }
        Ok(())
    };
    *shim::lock(&device.hooks.before_read) = Some(Arc::new(hook));
    let _end = EndSignal(&is_open);
    data.pool
        .read_ahead(&worker, &ids([0, 1, 2, 40, 41, 42, 80]), PageUse::ReadOnce);
    while blocked.load(Ordering::Relaxed) < 2 {
        thread::yield_now();
    }
    // Both readers stall. Two threads go on: one reads pages ahead together with its own, and the
    // pages of the other are left unread.
    reserve_ahead(&data, &worker, 200, &ids(201..209));
    reserve_ahead(&data, &worker, 300, &ids([350, 351]));
    assert_eq!(resident(&data), [(200..209).collect(), vec![300]].concat());
    is_open.store(true, Ordering::Relaxed);
    // A thread that needs a page that is on its way waits for it.
    reserve_ahead(&data, &worker, 80, &[]);
    for index in [0, 1, 2, 40, 41, 42, 350, 351] {
        reserve_ahead(&data, &worker, index, &[]);
    }
    assert_eq!(data.pool.stats().reads, 19, "each page was read once");
    drop(service);
    // Without readers only neighbours are read.
    data.pool
        .read_ahead(&worker, &ids([390]), PageUse::ReadOnce);
    assert!(!resident(&data).contains(&390));
    data.verify(&worker);
}

#[test]
fn pages_that_are_read_ahead_displace_no_working_set() {
    let device = HookedDevice::default();
    let (data, worker) = cold(&device, 200, 1_000);
    for _ in 0..3 {
        for index in 0..150 {
            let reserved = data.pool.reserve(&worker, &data.requests(&[index]));
            drop(reserved.expect("whole"));
            assert!(read_one(&data, index));
        }
    }
    for first in (200..980).step_by(6) {
        data.pool.provide_frames(&worker);
        reserve_ahead(&data, &worker, first, &ids(first + 1..first + 6));
        for index in first..first + 6 {
            assert!(data.pool.page_once(page_of(index)).is_some());
        }
    }
    assert!(
        data.pool.stats().reads_ahead > 600,
        "{:?}",
        data.pool.stats()
    );
    let hot = resident(&data).iter().filter(|index| **index < 150).count();
    assert!(hot >= 148, "{hot} of 150 pages are left");
}

/// Threads that read ahead, change pages, and drop what they have, over a small pool.
fn storm_ahead(progress: &TestProgress, frames: usize, rounds: u64) {
    let device = HookedDevice::default();
    let data = Data::create(&device, frames, 600);
    let workers = Arc::new(Workers::new());
    let service = PoolThreads::start(data.pool.clone(), &workers).expect("threads");
    // Some reads fail, and all of them take a while.
    let calls = AtomicU64::new(0);
    let hook = move |_: u64, bytes: usize| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        if call.is_multiple_of(16) {
            thread::yield_now();
        }
        match bytes > PageSize::MIN.bytes() && call.is_multiple_of(5) {
            true => Err(ErrorKind::Other.into()),
            false => Ok(()),
        }
    };
    *shim::lock(&device.hooks.before_read) = Some(Arc::new(hook));
    thread::scope(|scope| {
        for seed in 0..32 {
            let (data, workers) = (&data, &workers);
            scope.spawn(move || work(data, &workers.worker(), progress, seed, rounds));
            scope.spawn(move || {
                let (worker, mut random) = (workers.worker(), Lcg(seed + 100));
                for _ in 0..rounds {
                    progress.step();
                    let (first, count) = (random.below(560), random.below(33));
                    let hole = random.below(4);
                    let ahead = ids((1..=count).map(|step| first + 1 + step + step / 4 * hole % 8));
                    match random.below(3) {
                        0 => data.pool.read_ahead(&worker, &ahead, PageUse::Read),
                        _ => reserve_ahead(data, &worker, first, &ahead),
                    }
                    read_one(data, first + random.below(9));
                }
            });
        }
    });
    drop(service);
    let worker = workers.worker();
    println!("{:?}", data.pool.stats());
    // In smaller pools most threads wait for frames.
    assert!(data.pool.stats().reads_ahead > 0 || frames < 300);
    data.pool.clean_all(&worker).expect("a device that works");
    data.verify(&worker);
}

#[test]
fn sixty_four_threads_read_ahead_and_write_over_small_pools() {
    for frames in [16, 60, 300] {
        fail_if_stalled(move |progress| storm_ahead(progress, frames, 60));
    }
}
