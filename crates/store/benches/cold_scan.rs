//! Reads of a table that is larger than its pool: a scan, and random rows.
//!
//! * *Cold scan ÷ bare reads*: bytes of the page file per second that a scan of all rows reads,
//!   divided by those of sequential reads of 512 KiB of the same file. Both begin without the file
//!   in the system's cache, and take turns within a repetition. The target is 0.8.
//! * *Reads per row*: pages that a read of a random row reads, divided by the share of the leaves
//!   that the pool has no frame for. The target is 1.05 at most.
//!
//! Each number is the median of the repetitions and, in brackets, the smallest and the largest. The
//! scan counts its rows.
//!
//! `cargo bench -p foxton-store --bench cold_scan`; in a test run it is tiny and only shows that it
//! runs.

use foxton_log::device::file::FileDevice;
use foxton_log::{Lsn, device::Device};
use foxton_store::paged::btree::{
    NextKey, PagedTree, ScanAhead, ScanDirection, ScanRange, TableDirectory,
};
use foxton_store::paged::page::{KeyBytes, LeafRows, PageSize};
use foxton_store::paged::page_log::Unlogged;
use foxton_store::paged::pool::{BufferPool, PoolThreads};
use foxton_store::paged::space::{PageFile, format_file};
use foxton_sync::worker::{Worker, Workers};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Scale {
    rows: u64,
    frames: usize,
    reads: u64,
    repetitions: usize,
}

const FULL: Scale = Scale {
    rows: 2_000_000,
    frames: 4_096,
    reads: 40_000,
    repetitions: 7,
};
const TINY: Scale = Scale {
    rows: 5_000,
    frames: 64,
    reads: 500,
    repetitions: 1,
};

const IDENTITY: [u8; 16] = [7; 16];
const TABLE: u64 = 9;
const ROW_BYTES: usize = 100;
const BARE_BYTES: usize = 512 << 10;
/// Rows that a caller takes between two attempts.
const MOST: usize = 1_000;

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

struct OpenTable {
    pool: Arc<BufferPool>,
    tree: PagedTree,
    workers: Arc<Workers>,
    _threads: PoolThreads,
}

impl OpenTable {
    /// Opens the table, or makes it.
    fn new(path: &Path, frames: usize, make: bool) -> OpenTable {
        let device = FileDevice::open(path).expect("the directory");
        let file = match make {
            true => PageFile::create(&device, "rows", PageSize::default(), IDENTITY),
            false => PageFile::open(&device as &dyn Device, "rows", IDENTITY),
        };
        let file = file.expect("a page file");
        if make {
            format_file(&file).expect("space");
        }
        // Behind all changes, once the table is made.
        let end = if make { Lsn::ZERO } else { Lsn::new(1 << 50) };
        let log = Arc::new(Unlogged::new(end));
        let pool = Arc::new(BufferPool::new(file, frames, log).expect("whole"));
        let workers = Arc::new(Workers::new());
        let threads = PoolThreads::start(pool.clone(), &workers).expect("threads");
        let worker = workers.worker();
        let directory = TableDirectory::new(pool.clone());
        let tree = match make {
            true => directory.create(&worker, TABLE).expect("space"),
            false => directory
                .open(&worker, TABLE)
                .expect("whole")
                .expect("it was made"),
        };
        OpenTable {
            pool,
            tree,
            workers,
            _threads: threads,
        }
    }

    fn fill(&self, rows: u64) {
        let worker = self.workers.worker();
        let mut visit = self.tree.visit(&worker);
        for row in 0..rows {
            let (key, value) = (row.to_be_bytes(), [row as u8; ROW_BYTES]);
            let inserted = visit.run(|visit| visit.insert(&key, &value, ROW_BYTES, NextKey::End));
            inserted.expect("space");
        }
        drop(visit);
        self.pool.clean_all(&worker).expect("the device works");
    }

    /// Reads all rows, a thousand in each visit. Returns their number.
    fn scan(&self, worker: &Worker) -> u64 {
        let (mut rows, mut from) = (LeafRows::default(), None::<KeyBytes>);
        let (mut count, mut ahead) = (0, ScanAhead::default());
        loop {
            let range = ScanRange {
                direction: ScanDirection::Forward,
                from: from.as_deref(),
                is_excluded: from.is_some(),
                end: None,
                most: usize::MAX,
            };
            let mut visit = self.tree.visit(worker);
            visit.set_scan_ahead(ahead);
            visit
                .run(|visit| visit.scan(range, &mut rows))
                .expect("whole");
            ahead = visit.scan_ahead();
            if rows.is_empty() {
                return count;
            }
            for row in 0..rows.len().min(MOST) {
                let value = rows.value(row);
                assert!(value.first() == value.last());
            }
            count += rows.len() as u64;
            from = Some(KeyBytes::from_slice(rows.key(rows.len() - 1)));
        }
    }
}

/// Removes the file from the system's cache.
fn forget(path: &Path) {
    let file = File::open(path.join("rows")).expect("the page file");
    file.sync_all().expect("the device works");
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
}

fn bare_reads(path: &Path, bytes: u64) -> Duration {
    use std::os::unix::fs::FileExt;
    let file = File::open(path.join("rows")).expect("the page file");
    let mut buffer = vec![0; BARE_BYTES];
    let begin = Instant::now();
    let mut at = 0;
    while at < bytes {
        let read = file.read_at(&mut buffer, at).expect("the device works");
        assert!(read > 0);
        at += read as u64;
    }
    begin.elapsed()
}

fn median(mut numbers: Vec<f64>) -> String {
    numbers.sort_by(f64::total_cmp);
    let (low, high) = (numbers[0], numbers[numbers.len() - 1]);
    let middle = numbers[numbers.len() / 2];
    format!("{middle:.2} ({low:.2}..{high:.2})")
}

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let scale = if full { FULL } else { TINY };
    let name = format!("foxton-cold-scan-{}", std::process::id());
    let scratch = Scratch(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
    let path = &scratch.0;
    std::fs::create_dir_all(path).expect("a directory");
    OpenTable::new(path, scale.frames, true).fill(scale.rows);
    let size = PageSize::default().bytes() as u64;
    let (mut ratios, mut rates, mut per_row) = (Vec::new(), Vec::new(), Vec::new());
    let mut random = 1_u64;
    for _ in 0..scale.repetitions {
        let table = OpenTable::new(path, scale.frames, false);
        let worker = table.workers.worker();
        forget(path);
        let before = table.pool.stats();
        let begin = Instant::now();
        assert_eq!(table.scan(&worker), scale.rows);
        let scanned = begin.elapsed();
        let stats = table.pool.stats();
        let pages = stats.reads - before.reads;
        forget(path);
        let bare = bare_reads(path, pages * size);
        ratios.push(bare.as_secs_f64() / scanned.as_secs_f64());
        rates.push((pages * size) as f64 / scanned.as_secs_f64() / 1e6);

        // Warm, then counted.
        let mut value = Vec::new();
        let mut reads = 0;
        for counted in [false, true] {
            let before = table.pool.stats().reads;
            let mut visit = table.tree.visit(&worker);
            for _ in 0..scale.reads {
                random = random
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let key = ((random >> 33) % scale.rows).to_be_bytes();
                let found = visit
                    .run(|visit| visit.get(&key, &mut value))
                    .expect("whole");
                assert!(found.is_some());
            }
            reads = if counted {
                table.pool.stats().reads - before
            } else {
                0
            };
        }
        let held = (scale.frames as f64 / pages as f64).min(1.0);
        per_row.push(reads as f64 / scale.reads as f64 / (1.0 - held).max(0.01));
    }
    println!(
        "{} rows, {} frames, median of {}",
        scale.rows, scale.frames, scale.repetitions
    );
    println!("cold scan / bare reads of 512 KiB: {}", median(ratios));
    println!("cold scan, MB/s: {}", median(rates));
    println!(
        "pages read per random row / share of leaves without a frame: {}",
        median(per_row)
    );
}
