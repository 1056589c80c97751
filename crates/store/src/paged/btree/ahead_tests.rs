//! Scans of cold trees: each page is read once, neighbours together, and nothing beyond the end.
#![cfg(test)]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;

use foxton_log::Lsn;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_sync::worker::{Worker, Workers};

use super::*;
use crate::paged::page::{KeyBytes, LeafRows};
use crate::paged::page_log::Unlogged;
use crate::paged::pool::{PageRequest, PoolThreads};
use crate::paged::space::{PageFile, format_file};
use crate::paged::stall::{TestProgress, fail_if_stalled};

const ROWS: u64 = 3_000;

struct ColdTree {
    device: FaultDevice,
    pool: Arc<BufferPool>,
    tree: PagedTree,
    workers: Arc<Workers>,
    leaves: u64,
    branches: u64,
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

impl ColdTree {
    fn new(frames: usize) -> ColdTree {
        let device = FaultDevice::new();
        let file = PageFile::create(&device, "rows", PageSize::MIN, [7; 16]).expect("a new file");
        format_file(&file).expect("space");
        let log = Arc::new(Unlogged::new(Lsn::ZERO));
        let pool = Arc::new(BufferPool::new(file, frames, log).expect("whole"));
        let workers = Arc::new(Workers::new());
        let worker = workers.worker();
        let tree = TableDirectory::new(pool.clone()).create(&worker, 9);
        let tree = tree.expect("space");
        for number in 0..ROWS {
            let mut visit = tree.visit(&worker);
            let inserted =
                visit.run(|visit| visit.insert(&key(number), &[3; 100], 100, NextKey::End));
            assert_eq!(inserted.expect("space"), InsertReply::Inserted);
            drop(visit);
            if pool.dirty_count() > frames / 2 {
                pool.clean_all(&worker).expect("memory");
                pool.provide_frames(&worker);
            }
        }
        let summary = tree.verify(&worker).expect("whole");
        pool.clean_all(&worker).expect("memory");
        pool.evict_all(&worker);
        let mut branches = 0;
        for page in &summary.pages {
            let reserved = pool.reserve(&worker, &[PageRequest::read(*page)]);
            let reserved = reserved.expect("whole");
            branches += u64::from(reserved.pages()[0].view_now(&worker).read().level() > 0);
        }
        pool.evict_all(&worker);
        let leaves = summary.pages.len() as u64 - branches;
        ColdTree {
            device,
            pool,
            tree,
            workers,
            leaves,
            branches,
        }
    }

    /// Scans `rows` rows from one on, and counts pages and calls of the device.
    fn scan(
        &self,
        worker: &Worker,
        direction: ScanDirection,
        rows: std::ops::Range<u64>,
    ) -> Scanned {
        let (reads, calls) = (self.pool.stats().reads, self.device.calls(Call::Read));
        let (mut visit, mut found) = (self.tree.visit(worker), LeafRows::default());
        let (low, high) = (key(rows.start), key(rows.end - 1));
        let above = key(rows.end);
        let mut seen = BTreeSet::new();
        let mut from: Option<KeyBytes> = None;
        'scan: loop {
            let range = match direction {
                ScanDirection::Forward => ScanRange {
                    direction,
                    from: Some(from.as_deref().unwrap_or(&low)),
                    is_excluded: from.is_some(),
                    end: Some(&high),
                    most: usize::MAX,
                },
                ScanDirection::Backward => ScanRange {
                    direction,
                    from: Some(from.as_deref().unwrap_or(&above)),
                    is_excluded: false,
                    end: Some(&low),
                    most: usize::MAX,
                },
            };
            visit
                .run(|visit| visit.scan(range, &mut found))
                .expect("whole");
            if found.is_empty() {
                break;
            }
            for index in 0..found.len() {
                let number = u64::from_be_bytes(found.key(index).try_into().expect("8 bytes"));
                if !rows.contains(&number) {
                    break 'scan;
                }
                assert!(seen.insert(number), "row {number} twice");
                from = Some(KeyBytes::from_slice(found.key(index)));
            }
            if seen.len() as u64 == rows.end - rows.start {
                break;
            }
        }
        assert!(seen.into_iter().eq(rows), "each row once");
        Scanned {
            pages: self.pool.stats().reads - reads,
            calls: self.device.calls(Call::Read) - calls,
        }
    }
}

#[derive(Debug)]
struct Scanned {
    pages: u64,
    calls: u64,
}

#[test]
fn a_cold_scan_reads_each_page_once_and_neighbours_together() {
    let cold = ColdTree::new(1_000);
    let worker = cold.workers.worker();
    for direction in [ScanDirection::Forward, ScanDirection::Backward] {
        cold.pool.evict_all(&worker);
        let scanned = cold.scan(&worker, direction, 0..ROWS);
        println!("{} leaves, {direction:?}: {scanned:?}", cold.leaves);
        assert_eq!(scanned.pages, cold.leaves + cold.branches);
        assert!(scanned.calls * 5 < scanned.pages, "{scanned:?}");
        assert!(scanned.calls * 33 > cold.leaves, "more than 32 pages ahead");
    }
}

#[test]
fn a_scan_reads_no_leaf_beyond_its_end() {
    let cold = ColdTree::new(1_000);
    let worker = cold.workers.worker();
    let per_leaf = ROWS / cold.leaves;
    for direction in [ScanDirection::Forward, ScanDirection::Backward] {
        for leaves in [1, 2, 5, 20, 100] {
            cold.pool.evict_all(&worker);
            let rows = 1_000..1_000 + leaves * per_leaf;
            let scanned = cold.scan(&worker, direction, rows);
            // The path to the first, and leaves that the range has a part of.
            let most = leaves + 2 + 3 + leaves / 20;
            assert!(scanned.pages <= most, "{leaves} leaves: {scanned:?}");
        }
    }
}

#[test]
fn page_readers_run_ahead_of_a_scan_and_read_nothing_twice() {
    for direction in [ScanDirection::Forward, ScanDirection::Backward] {
        let cold = ColdTree::new(1_000);
        let worker = cold.workers.worker();
        let service = PoolThreads::start(cold.pool.clone(), &cold.workers).expect("threads");
        let before = cold.pool.stats();
        let scanned = cold.scan(&worker, direction, 0..ROWS);
        assert_eq!(scanned.pages, cold.leaves + cold.branches);
        let ahead = cold.pool.stats().reads_ahead - before.reads_ahead;
        println!("{direction:?}: {ahead} of {} pages ahead", cold.leaves);
        assert!(ahead * 10 > cold.leaves * 7);
        drop(service);
        cold.pool.verify();
    }
}

#[test]
fn a_scan_does_not_wait_where_a_parent_ends() {
    for direction in [ScanDirection::Forward, ScanDirection::Backward] {
        let cold = ColdTree::new(1_000);
        assert!(cold.branches > 5, "{} branches", cold.branches);
        let worker = cold.workers.worker();
        let service = PoolThreads::start(cold.pool.clone(), &cold.workers).expect("threads");
        let (mut visit, mut rows) = (cold.tree.visit(&worker), LeafRows::default());
        let before = cold.pool.stats();
        let (mut from, mut count) = (None::<KeyBytes>, 0);
        loop {
            let range = ScanRange {
                direction,
                from: from.as_deref(),
                is_excluded: from.is_some(),
                end: None,
                most: usize::MAX,
            };
            visit
                .run(|visit| visit.scan(range, &mut rows))
                .expect("whole");
            if rows.is_empty() {
                break;
            }
            count += rows.len() as u64;
            from = Some(KeyBytes::from_slice(rows.key(rows.len() - 1)));
            // As if the device were faster than the scan.
            while cold.pool.is_reading_ahead() {
                thread::yield_now();
            }
        }
        let after = cold.pool.stats();
        assert_eq!(count, ROWS);
        assert_eq!(after.reads - before.reads, cold.leaves + cold.branches);
        // The path to the first leaf, and two leaves before the scan reads ahead.
        let waits = after.page_waits - before.page_waits;
        assert!(waits <= 6, "{waits} waits, {} branches", cold.branches);
        drop(visit);
        drop(service);
        cold.pool.verify();
    }
}

#[test]
fn waits_for_frames_of_new_pages_are_no_misses() {
    let cold = ColdTree::new(1_000);
    let (stats, worker) = (cold.pool.stats(), cold.workers.worker());
    // All pages of the tree were made, and none was read until its end.
    let read_before = stats.reads - cold.leaves - cold.branches;
    assert_eq!(stats.page_waits, read_before, "of the new file");
    let mut visit = cold.tree.visit(&worker);
    let found = visit.run(|visit| visit.get(&key(1), &mut Vec::new()));
    assert!(found.expect("whole").is_some());
    // A pool that forgot them reads the path to one.
    let waits = cold.pool.stats().page_waits - stats.page_waits;
    assert!((2..=4).contains(&waits), "{waits} levels");
}

#[test]
fn a_scan_over_a_small_pool_reads_few_pages_twice() {
    let cold = ColdTree::new(40);
    let worker = cold.workers.worker();
    let service = PoolThreads::start(cold.pool.clone(), &cold.workers).expect("threads");
    let scanned = cold.scan(&worker, ScanDirection::Forward, 0..ROWS);
    println!("{} leaves: {scanned:?}", cold.leaves);
    assert!(
        scanned.pages * 2 < 3 * (cold.leaves + cold.branches),
        "{scanned:?}"
    );
    drop(service);
    cold.pool.verify();
}

#[test]
fn a_read_ahead_that_fails_is_no_error_of_the_scan() {
    let cold = ColdTree::new(1_000);
    let worker = cold.workers.worker();
    let mut tolerated = 0;
    for nth in 1..=20 {
        cold.pool.evict_all(&worker);
        cold.device
            .fail(Call::Read, nth, Times::Once, ErrorKind::Other);
        let (mut visit, mut rows) = (cold.tree.visit(&worker), LeafRows::default());
        let mut from: Option<KeyBytes> = None;
        let (mut count, mut errors) = (0, 0);
        loop {
            let range = ScanRange {
                direction: ScanDirection::Forward,
                from: from.as_deref(),
                is_excluded: from.is_some(),
                end: None,
                most: usize::MAX,
            };
            if visit.run(|visit| visit.scan(range, &mut rows)).is_err() {
                errors += 1;
                continue;
            }
            if rows.is_empty() {
                break;
            }
            count += rows.len() as u64;
            from = Some(KeyBytes::from_slice(rows.key(rows.len() - 1)));
        }
        assert_eq!(count, ROWS);
        tolerated += u64::from(errors == 0);
    }
    // Only a page that is read alone is an error.
    assert!(tolerated >= 8, "{tolerated} of 20 failures were tolerated");
}

#[test]
fn leaves_of_the_next_keys_are_read_with_the_one_that_is_missing() {
    let cold = ColdTree::new(1_000);
    let worker = cold.workers.worker();
    let get = |visit: &mut TreeVisit<'_>, number: u64| {
        let mut value = Vec::new();
        let found = visit.run(|visit| visit.get(&key(number), &mut value));
        assert!(found.expect("whole").is_some() && value == [3; 100]);
    };
    let mut visit = cold.tree.visit(&worker);
    // The branches, and one leaf.
    get(&mut visit, 1_000);
    visit.release();
    let (calls, reads) = (cold.device.calls(Call::Read), cold.pool.stats().reads);
    let keys: Vec<_> = [1_012, 1_018, 1_013, 1_000, 1_024].map(key).to_vec();
    let missed = visit.get(&key(1_006), &mut Vec::new()).expect("whole");
    assert_eq!(missed, TreeAttempt::Wait);
    visit.name_leaves(keys.iter().map(|key| &key[..]));
    visit.wait().expect("whole");
    get(&mut visit, 1_006);
    let read = cold.pool.stats().reads - reads;
    assert!((3..=5).contains(&read), "{read} leaves");
    assert_eq!(cold.device.calls(Call::Read), calls + 1);
    for number in [1_012, 1_018, 1_013, 1_000, 1_024] {
        get(&mut visit, number);
    }
    assert_eq!(cold.device.calls(Call::Read), calls + 1);
    drop(visit);
    cold.pool.verify();
}

fn scans_and_inserts(progress: &TestProgress) {
    let cold = ColdTree::new(64);
    let worker = cold.workers.worker();
    let service = PoolThreads::start(cold.pool.clone(), &cold.workers).expect("threads");
    thread::scope(|scope| {
        for seed in 0..40 {
            let cold = &cold;
            scope.spawn(move || {
                let worker = cold.workers.worker();
                for round in 0..3 {
                    progress.step();
                    let direction = match (seed + round) % 2 {
                        0 => ScanDirection::Forward,
                        _ => ScanDirection::Backward,
                    };
                    let first = (seed * 71 + round * 13) % 2_000;
                    cold.scan(&worker, direction, first..first + 400);
                }
            });
        }
        for seed in 0..24 {
            let cold = &cold;
            scope.spawn(move || {
                let worker = cold.workers.worker();
                for round in 0..40 {
                    progress.step();
                    // Beyond the rows of the scans, and their pages split too.
                    let number = ROWS + 10 + seed * 1_000 + round;
                    let mut visit = cold.tree.visit(&worker);
                    let inserted =
                        visit.run(|visit| visit.insert(&key(number), &[4; 100], 100, NextKey::Any));
                    inserted.expect("space");
                }
            });
        }
    });
    drop(service);
    cold.pool.clean_all(&worker).expect("memory");
    cold.pool.verify();
    cold.tree.verify(&worker).expect("whole");
    println!("{:?}", cold.pool.stats());
}

#[test]
fn scans_of_forty_threads_beside_writers_share_a_small_pool() {
    fail_if_stalled(scans_and_inserts);
}
