//! The memory limit of pages changes while the database is open and threads use it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foxton::{Database, Options, Table};
use foxton_store::paged::page::PageSize;
use foxton_store::paged::pool::BufferPool;

use crate::common::paged::tiny_pages;

const ROWS: Table<u64, u64> = Table::new("rows").paged();
const THREADS: u64 = 64;
/// Rows that each thread has for itself.
const SHARE: u64 = 100;

fn bytes(frames: usize) -> usize {
    BufferPool::bytes_of(frames, 2_000, PageSize::MIN)
}

fn options(frames: usize) -> Options {
    let mut options = tiny_pages(Options::tiny(), 2_000);
    options.max_page_memory = Some(options.page_memory);
    options.page_memory = bytes(frames);
    options
}

fn refused(result: foxton::Result<()>) -> &'static str {
    result.unwrap_err().code()
}

/// Waits until the pages take no more memory than the limit.
fn reach(db: &Database, limit: usize) {
    let begin = Instant::now();
    while db.stats().pages.unwrap().memory_bytes > limit {
        let waited = begin.elapsed();
        assert!(waited < Duration::from_secs(120), "{:?}", db.stats().pages);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the other threads, also when this one fails.
struct EndOfLoad<'a>(&'a AtomicBool);

impl Drop for EndOfLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Adds one to each row of a thread, and reads rows of others. Returns how often it did.
fn work(db: &Database, thread: u64, is_ended: &AtomicBool) -> u64 {
    let own = thread * SHARE..(thread + 1) * SHARE;
    let mut rounds = 0;
    while !is_ended.load(Ordering::Relaxed) {
        for key in own.clone().step_by(20) {
            db.run(|tx| {
                for key in key..key + 20 {
                    let count = tx.get_for_update(&ROWS, &key)?.unwrap_or(0);
                    tx.put(&ROWS, &key, &(count + 1))?;
                }
                Ok(())
            })
            .unwrap();
        }
        rounds += 1;
    }
    rounds
}

#[test]
fn the_memory_of_pages_changes_under_load() {
    let db = Database::in_memory(options(300)).unwrap();
    let is_ended = AtomicBool::new(false);
    let rounds: Vec<u64> = thread::scope(|scope| {
        let end = EndOfLoad(&is_ended);
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, is_ended) = (&db, &is_ended);
                scope.spawn(move || work(db, thread, is_ended))
            })
            .collect();
        while db.stats().pages.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        for frames in [60, 2_000, 16, 700, 16, 300] {
            db.set_page_memory(bytes(frames)).unwrap();
            assert_eq!(db.stats().pages.unwrap().frames, frames);
            reach(&db, bytes(frames));
            let reads = db.stats().pages.unwrap().reads;
            let begin = Instant::now();
            while db.stats().pages.unwrap().reads < reads + 20 && begin.elapsed().as_secs() < 1 {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(db.stats().pages.unwrap().memory_bytes <= bytes(frames));
        }
        drop(end);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for (key, count) in db.run(|tx| tx.range(&ROWS, ..).collect()).unwrap() {
        assert_eq!(count, rounds[(key / SHARE) as usize], "row {key}");
    }
    db.verify();
}

#[test]
fn a_limit_that_cannot_be_is_refused_and_one_that_was_set_early_counts() {
    let db = Database::in_memory(options(300)).unwrap();
    assert_eq!(refused(db.set_page_memory(bytes(16) - 1)), "option");
    assert_eq!(refused(db.set_page_memory(bytes(2_000) + 1)), "option");
    // There are no pages yet.
    db.set_page_memory(bytes(500)).unwrap();
    db.run(|tx| tx.put(&ROWS, &1, &1).map(drop)).unwrap();
    let pages = db.stats().pages.unwrap();
    assert_eq!(pages.frames, 500);
    assert!(pages.memory_bytes <= bytes(500));
    assert_eq!(refused(db.set_page_memory(bytes(16) - 1)), "option");
    assert_eq!(refused(db.set_page_memory(usize::MAX)), "option");
    assert_eq!(db.stats().pages.unwrap().frames, 500);
    // Without another maximum the memory can be less, and then what it was.
    let mut fixed = Options::default();
    fixed.page_memory = 4 << 20;
    let db = Database::in_memory(fixed).unwrap();
    db.run(|tx| tx.put(&ROWS, &1, &1).map(drop)).unwrap();
    let frames = db.stats().pages.unwrap().frames;
    db.set_page_memory(2 << 20).unwrap();
    assert!(db.stats().pages.unwrap().frames < frames);
    assert_eq!(refused(db.set_page_memory(5 << 20)), "option");
    db.set_page_memory(4 << 20).unwrap();
    assert_eq!(db.stats().pages.unwrap().frames, frames);
}

#[test]
fn all_frames_and_buffers_are_within_the_limit() {
    for page_bytes in [1 << 10, 8 << 10, 64 << 10] {
        for limit in [4 << 20, 5_000_000, 64 << 20] {
            let mut options = Options::default();
            (options.page_bytes, options.page_memory) = (page_bytes, limit);
            let db = Database::in_memory(options).unwrap();
            db.run(|tx| tx.put(&ROWS, &1, &1).map(drop)).unwrap();
            let pages = db.stats().pages.unwrap();
            let size = PageSize::new(page_bytes).unwrap();
            let more = BufferPool::bytes_of(pages.frames + 1, pages.frames + 1, size);
            assert!(pages.memory_bytes <= limit && more > limit, "{pages:?}");
        }
    }
}
