//! Trees of tiny pages in tiny pools, against a map; every record replayed; many threads.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Waker};
use std::thread;

use foxton_log::device::Device;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::{LogError, Lsn};
use foxton_sync::worker::{Worker, Workers};

use super::descend::TreeTarget;
use super::visit::Need;
use super::*;
use crate::paged::PageId;
use crate::paged::page::{
    KeyBytes, LeafRows, OwnedRow, PageKind, PageOperation, RowFlags, SlottedPage, SpaceMap, seal,
};
use crate::paged::page_log::{
    LogSpace, LoggedChange, PageEntry, PageLog, PageRecord, RowBefore, RowUndo,
};
use crate::paged::pool::{DirtyBound, DirtyWait, PageRequest, PoolError, PoolThreads};
use crate::paged::recovery::{PageTransaction, WriteError};
use crate::paged::space::{PageFile, format_file};
use crate::paged::stall::{TestProgress, fail_if_stalled};

pub(super) const IDENTITY: [u8; 16] = [7; 16];
pub(super) const TABLE: u64 = 9;

/// A record as it was logged: for each page its LSN before and its operation.
type KeptRecord = (LoggedChange, Vec<(PageId, Lsn, Vec<u8>)>);

/// A log in memory, whose space is scarce.
#[derive(Debug, Default)]
pub(super) struct KeptLog {
    records: Mutex<Vec<KeptRecord>>,
    /// Bytes that are reserved: at most so many as two large records need, or one very large one.
    reserved: AtomicU64,
    waits: AtomicU64,
    has_failed: AtomicBool,
    /// Called once, before a latch.
    before_latch: BeforeLatch,
}

/// For how many bytes of log a call is made, at least, and the call.
type LatchAction = (u64, Box<dyn FnOnce() + Send>);

#[derive(Default)]
struct BeforeLatch(Mutex<Option<LatchAction>>);

impl BeforeLatch {
    fn set(&self, least_bytes: u64, action: impl FnOnce() + Send + 'static) {
        *self.0.lock().expect("no panic") = Some((least_bytes, Box::new(action)));
    }

    fn clear(&self) {
        *self.0.lock().expect("no panic") = None;
    }

    fn call(&self, bytes: u64) {
        let mut action = self.0.lock().expect("no panic");
        let due = action.take_if(|(least_bytes, _)| bytes >= *least_bytes);
        drop(action);
        if let Some((_, action)) = due {
            action();
        }
    }
}

impl fmt::Debug for BeforeLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeLatch")
    }
}

impl KeptLog {
    fn records(&self) -> MutexGuard<'_, Vec<KeptRecord>> {
        self.records.lock().expect("no test has panicked")
    }
}

impl PageLog for KeptLog {
    fn wait_durable(&self, _: &Worker, _: Lsn) -> Result<(), LogError> {
        Ok(())
    }

    fn end(&self, _: &Worker) -> Lsn {
        let records = self.records();
        records
            .last()
            .map_or(Lsn::new(100), |(logged, _)| logged.end)
    }

    fn try_take_space(&self, _: &Worker, bytes: u64) -> bool {
        self.before_latch.call(bytes);
        let take = |taken: u64| {
            let is_free = taken == 0 || taken + bytes <= 5_000;
            is_free.then_some(taken + bytes)
        };
        let taken = self
            .reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok()
    }

    fn give_back_space(&self, bytes: u64) {
        let before = self.reserved.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "space is given back once");
    }

    fn wait_for_space(&self, _: &Worker, _: u64) -> Result<(), LogError> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
        Ok(())
    }

    fn keep_undo_space(&self, _: &mut PageTransaction, _: usize) -> bool {
        true
    }

    fn wait_for_undo_space(&self, _: &Worker, _: usize) -> Result<(), LogError> {
        Ok(())
    }

    fn insert(
        &self,
        _: &Worker,
        space: LogSpace<'_>,
        record: PageRecord<'_>,
    ) -> Result<LoggedChange, WriteError> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(LogError::Closed.into());
        }
        let entries = record.entries().iter().map(|entry| {
            let mut bytes = Vec::new();
            entry.operation.encode(&mut bytes);
            (entry.page, entry.previous, bytes)
        });
        let entries: Vec<_> = entries.collect();
        assert!((1..=6).contains(&entries.len()));
        let length: u64 = entries.iter().map(|entry| 20 + entry.2.len() as u64).sum();
        let used = space.use_up(length);
        assert_eq!(used, length, "enough was reserved before the latches");
        // Used space is free at once: this log has no end.
        self.give_back_space(used);
        let mut records = self.records();
        let begin = records
            .last()
            .map_or(Lsn::new(100), |(logged, _)| logged.end);
        let end = Lsn::new(begin.bytes() + length);
        let logged = LoggedChange { begin, end };
        records.push((logged, entries));
        Ok(logged)
    }
}

pub(super) struct Bench {
    pub(super) device: Arc<FaultDevice>,
    pub(super) workers: Arc<Workers>,
    log: Arc<KeptLog>,
    pub(super) pool: Arc<BufferPool>,
    threads: PoolThreads,
}

impl Bench {
    pub(super) fn new(frames: usize) -> Bench {
        let device = Arc::new(FaultDevice::new());
        let file = PageFile::create(&*device, "rows", PageSize::MIN, IDENTITY).expect("a new file");
        format_file(&file).expect("space");
        Bench::over(device, file, frames, Arc::new(KeptLog::default()))
    }

    fn over(device: Arc<FaultDevice>, file: PageFile, frames: usize, log: Arc<KeptLog>) -> Bench {
        let pool = BufferPool::new(file, frames, log.clone()).expect("whole");
        let (pool, workers) = (Arc::new(pool), Arc::new(Workers::new()));
        let threads = PoolThreads::start(pool.clone(), &workers).expect("threads");
        Bench {
            device,
            workers,
            log,
            pool,
            threads,
        }
    }

    /// Returns the same file in a new pool, after all pages were written.
    pub(super) fn reopen(self, frames: usize) -> Bench {
        let worker = self.workers.worker();
        while self.pool.dirty_count() > 0 {
            self.pool.clean_all(&worker).expect("memory");
        }
        let (device, log) = (self.device.clone(), self.log.clone());
        drop(worker);
        drop(self);
        let file = PageFile::open(&*device, "rows", IDENTITY).expect("whole");
        Bench::over(device, file, frames, log)
    }

    pub(super) fn directory(&self) -> TableDirectory {
        TableDirectory::new(self.pool.clone())
    }

    /// Checks tree, directory, space maps, and that the log leads to the pages that there are.
    pub(super) fn verify(&self, trees: &[&PagedTree]) -> TreeSummary {
        let worker = self.workers.worker();
        let mut pages = BTreeSet::new();
        let directory = self.directory();
        let mut last = TreeSummary::default();
        for tree in [&**directory.tree()].iter().chain(trees) {
            last = tree.verify(&worker).expect("whole");
            for page in &last.pages {
                assert!(pages.insert(*page), "{page} is in two trees");
            }
        }
        let mut images = replay(&self.log.records());
        // The file may have been cut.
        let end = self.pool.file().header().end;
        images.retain(|page, _| page.number() < end);
        let is_free = |image: &[u8]| SlottedPage::new(image).kind() == Some(PageKind::Free);
        for (page, image) in &images {
            let requests = [PageRequest::read(*page)];
            let reservation = match self.pool.reserve(&worker, &requests) {
                // It may have been cut off, and is zeros since the file has grown again.
                Err(PoolError::Damaged(_)) if is_free(image) => continue,
                reserved => reserved.expect("whole"),
            };
            let view = reservation.pages()[0].view_now(&worker);
            let content = view.read();
            for index in 1..128 {
                use crate::paged::page::PageWords;
                let (ours, replayed) = (content.words().word(index), image[..].word(index));
                assert_eq!(ours, replayed, "word {index} of page {page}");
            }
        }
        let size = self.pool.page_size();
        self.pool.space().verify(|page| {
            let position = size.map_position(page);
            match images.get(&position.map) {
                Some(image) => SpaceMap::new(&image[..]).is_used(position.index),
                None => size.map_position(page).map == page || page.number() <= 2,
            }
        });
        // Partition pages, maps and fixed pages aside, each used page is in a tree.
        let mut used = 0;
        for (map, image) in images
            .iter()
            .filter(|(page, _)| size.map_position(**page).map == **page)
        {
            let words = SpaceMap::new(&image[..]);
            let bits =
                (0..size.mapped_extents()).map(|extent| words.used_bits(extent).count_ones());
            used += bits.sum::<u32>() as usize - if map.number() == 2 { 2 } else { 1 };
        }
        assert_eq!(used, pages.len() + trees.len(), "no page leaks");
        last
    }
}

/// Applies all records to empty pages.
fn replay(records: &[KeptRecord]) -> HashMap<PageId, Vec<u8>> {
    let size = PageSize::MIN;
    let mut images = HashMap::new();
    for (logged, entries) in records {
        for (page, previous, bytes) in entries {
            let image = images.entry(*page).or_insert_with(|| {
                let mut image = vec![0_u8; size.bytes()];
                if size.map_position(*page).map == *page {
                    let index = page.number() / size.mapped_pages();
                    SpaceMap::new(&mut image[..]).format(index, *previous);
                } else if page.number() == 1 {
                    let kind = PageKind::Leaf;
                    SlottedPage::new(&mut image[..]).format(kind, 0, 0, *page, b"", None);
                }
                image
            });
            let is_map = size.map_position(*page).map == *page;
            if is_map && SlottedPage::new(&image[..]).lsn() < *previous {
                // The file was cut before this map, and has grown again.
                let index = page.number() / size.mapped_pages();
                let mut renewed = vec![0_u8; size.bytes()];
                SpaceMap::new(&mut renewed[..]).format(index, *previous);
                let is_empty = |map: &[u8]| map[64..] == renewed[64..];
                assert!(is_empty(image), "a map that is cut off has no used page");
                *image = renewed;
            }
            let mut content = SlottedPage::new(&mut image[..]);
            let operation = PageOperation::decode(bytes).expect("as it was encoded");
            // A page that was free begins a new chain, if it was evicted meanwhile.
            let is_new =
                matches!(operation, PageOperation::Format { .. }) && *previous == Lsn::ZERO;
            let is_next = content.lsn() == *previous || is_new;
            assert!(is_next, "the chain of page {page}");
            operation.check(&content, *page).expect("as it was checked");
            operation.apply(&mut content, *page);
            content.set_lsn(logged.end);
        }
    }
    images
}

#[derive(Clone)]
pub(super) struct Lcg(pub(super) u64);

impl Lcg {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

pub(super) type Model = BTreeMap<Vec<u8>, (Vec<u8>, RowFlags)>;

/// Keys with long shared prefixes, the empty one, and longest ones.
fn random_key(random: &mut Lcg, spread: u64) -> Vec<u8> {
    let number = random.below(spread);
    match random.below(12) {
        0 => Vec::new(),
        1..=4 => {
            format!("a prefix that many keys have in common, and more of it/{number:06}").into()
        }
        5..=6 => {
            let mut key = number.to_be_bytes().to_vec();
            key.resize(PageSize::MIN.max_key_bytes(), b'x');
            key
        }
        7 => vec![b'z'; 1 + (number % 128) as usize],
        _ => format!("{number:04}").into(),
    }
}

fn random_value(random: &mut Lcg, key: &[u8]) -> Vec<u8> {
    let most = PageSize::MIN.max_row_bytes() - key.len();
    let bytes = match random.below(10) {
        0 => most,
        1 => 0,
        2..=3 => random.below(most as u64 + 1) as usize,
        _ => random.below(30) as usize,
    };
    vec![random.below(256) as u8; bytes]
}

fn model_row((key, (value, flags)): (&Vec<u8>, &(Vec<u8>, RowFlags))) -> TestRow {
    (key.clone(), value.clone(), *flags)
}

pub(super) type TestRow = (Vec<u8>, Vec<u8>, RowFlags);

/// Reads some rows of a range.
fn scan(visit: &mut TreeVisit<'_>, range: ScanRange<'_>) -> Vec<TestRow> {
    let mut rows = LeafRows::default();
    visit
        .run(|visit| visit.scan(range, &mut rows))
        .expect("whole");
    let row = |index| {
        let (key, value) = (rows.key(index).to_vec(), rows.value(index).to_vec());
        (key, value, rows.flags(index))
    };
    (0..rows.len()).map(row).collect()
}

fn predecessor(visit: &mut TreeVisit<'_>, bound: Option<&[u8]>) -> Option<TestRow> {
    let range = ScanRange {
        direction: ScanDirection::Backward,
        from: bound,
        is_excluded: false,
        end: None,
        most: 1,
    };
    scan(visit, range).pop()
}

pub(super) fn scan_all(visit: &mut TreeVisit<'_>, direction: ScanDirection) -> Vec<TestRow> {
    let mut rows: Vec<TestRow> = Vec::new();
    loop {
        let range = ScanRange {
            direction,
            from: rows.last().map(|row| &row.0[..]),
            is_excluded: !rows.is_empty(),
            end: None,
            most: usize::MAX,
        };
        match scan(visit, range) {
            more if more.is_empty() => return rows,
            more => rows.extend(more),
        }
    }
}

/// Rows of a leaf and its fences.
struct ReadLeaf {
    rows: Vec<OwnedRow>,
    low: Vec<u8>,
    high: Vec<u8>,
}

/// Reads the leaf of a key, or of the keys below it. No thread changes it.
fn read_leaf(visit: &mut TreeVisit<'_>, target: TreeTarget<'_>) -> ReadLeaf {
    let leaf = visit.run(|visit| {
        visit.attempt(|visit| {
            let leaf = visit.descend(target, 0)?;
            let page = leaf.read();
            Ok(ReadLeaf {
                rows: page.all_rows(),
                low: page.low_fence().to_vec(),
                high: page.high_fence().expect("not the last leaf").to_vec(),
            })
        })
    });
    leaf.expect("whole")
}

/// Compares a scan with the rows of a model, from a random position on.
fn compare_scan(visit: &mut TreeVisit<'_>, model: &Model, random: &mut Lcg, spread: u64) {
    let (mut from, mut end) = (random_key(random, spread), random_key(random, spread));
    let (is_open, has_end) = (random.below(10) == 0, random.below(2) == 0);
    let (is_excluded, most) = (random.below(2) == 0, 1 + random.below(20) as usize);
    let direction = [ScanDirection::Forward, ScanDirection::Backward][random.below(2) as usize];
    if !is_open && (from > end) == (direction == ScanDirection::Forward) {
        std::mem::swap(&mut from, &mut end);
    }
    let found = scan(
        visit,
        ScanRange {
            direction,
            from: (!is_open).then_some(&from[..]),
            is_excluded: is_excluded && !is_open,
            end: has_end.then_some(&end[..]),
            most,
        },
    );
    let all: Vec<TestRow> = match direction {
        ScanDirection::Forward => (model.iter())
            .filter(|row| is_open || *row.0 > from || (*row.0 == from && !is_excluded))
            .map(model_row)
            .collect(),
        ScanDirection::Backward => (model.iter().rev())
            .filter(|row| is_open || *row.0 < from)
            .map(model_row)
            .collect(),
    };
    assert_eq!(found.is_empty(), all.is_empty());
    assert!(found.len() <= most);
    assert_eq!(found[..], all[..found.len()], "without a hole");
    let is_beyond = |row: &TestRow| match direction {
        ScanDirection::Forward => row.0 > end,
        ScanDirection::Backward => row.0 < end,
    };
    let beyond = found.iter().filter(|row| has_end && is_beyond(row)).count();
    assert!(beyond <= 1, "{beyond} rows behind the end");
}

/// One random operation on both. Rows are purged only if the tree is to shrink.
fn step(
    visit: &mut TreeVisit<'_>,
    model: &mut Model,
    random: &mut Lcg,
    (spread, shrinks): (u64, bool),
) {
    let key = random_key(random, spread);
    let mut buffer = Vec::new();
    match random.below(if shrinks { 16 } else { 10 }) {
        0..=5 => {
            let value = random_value(random, &key);
            let next = model.range(key.clone()..).find(|row| *row.0 != key);
            let next = next.map(|row| row.0.clone());
            let is_wrong = random.below(8) == 0;
            let expected = match &next {
                _ if is_wrong => NextKey::Key(b"no key"),
                Some(next) => NextKey::Key(next),
                None => NextKey::End,
            };
            let reply = visit.run(|visit| visit.insert(&key, &value, 0, expected));
            let expected = match model.get(&key) {
                _ if is_wrong => InsertReply::NextChanged,
                Some((_, flags)) => InsertReply::Exists(*flags),
                None => InsertReply::Inserted,
            };
            assert_eq!(reply.expect("whole"), expected);
            if expected == InsertReply::Inserted {
                model.insert(key, (value, RowFlags::NONE));
            }
        }
        6 => {
            let value = random_value(random, &key);
            let flags = [RowFlags::NONE, RowFlags::GHOST][random.below(2) as usize];
            let before = visit.run(|visit| visit.rewrite(&key, &value, flags));
            let known = model.get_mut(&key);
            let known = known.map(|row| std::mem::replace(row, (value, flags)));
            assert_eq!(before.expect("whole"), known.map(|row| (row.1, row.0)));
        }
        7..=8 => {
            let value = random_value(random, &key);
            let before = visit.run(|visit| visit.update(&key, &value));
            let known = model
                .get_mut(&key)
                .map(|row| std::mem::replace(&mut row.0, value));
            assert_eq!(before.expect("whole"), known);
        }
        9 => {
            let flags = [RowFlags::NONE, RowFlags::GHOST][random.below(2) as usize];
            let before = visit.run(|visit| visit.set_flags(&key, flags));
            let known = model
                .get_mut(&key)
                .map(|row| std::mem::replace(&mut row.1, flags));
            assert_eq!(before.expect("whole"), known);
        }
        10..=11 => {
            // Rows of a range go, so that leaves are left with one ghost.
            let ghosts: Vec<_> = model
                .range(key..)
                .take(3)
                .map(|row| row.0.clone())
                .collect();
            for key in ghosts {
                if !model[&key].1.has(RowFlags::GHOST) {
                    let refused = visit.run(|visit| visit.purge(&key)).expect("whole");
                    assert_eq!(refused, PurgeReply::NoGhost);
                    let marked = visit.run(|visit| visit.set_flags(&key, RowFlags::GHOST));
                    assert_eq!(marked.expect("whole"), Some(RowFlags::NONE));
                    model.get_mut(&key).expect("it is there").1 = RowFlags::GHOST;
                }
                match visit.run(|visit| visit.purge(&key)).expect("whole") {
                    PurgeReply::Removed => drop(model.remove(&key)),
                    PurgeReply::OnlyRow => {}
                    PurgeReply::NoGhost => panic!("{key:?} is a ghost"),
                }
            }
        }
        12 => {
            let flags = visit
                .run(|visit| visit.get(&key, &mut buffer))
                .expect("whole");
            let known = model.get(&key);
            assert_eq!(flags, known.map(|row| row.1));
            let found = visit.run(|visit| visit.flags(&key));
            assert_eq!(found.expect("whole"), flags);
            assert_eq!(buffer, known.map_or(Vec::new(), |row| row.0.clone()));
        }
        13 => {
            let inclusive = random.below(2) == 0;
            let found = visit.run(|visit| visit.successor(&key, inclusive));
            let known = model
                .range(key.clone()..)
                .find(|row| inclusive || *row.0 != key);
            let found = found.expect("whole").map(|key| key.to_vec());
            assert_eq!(found, known.map(|row| row.0.clone()));
        }
        14 => compare_scan(visit, model, random, spread),
        _ => visit.release(),
    }
}

fn random_operations(progress: &TestProgress, seed: u64, frames: usize, count: u64, spread: u64) {
    println!("seed {seed}, {frames} frames, {count} operations, {spread} numbers");
    let bench = Bench::new(frames);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    let mut model = Model::new();
    let mut random = Lcg(seed);
    let mut sizes = Vec::new();
    for number in 0..count {
        let shrinks = number / 2_000 % 2 == 1;
        step(&mut visit, &mut model, &mut random, (spread, shrinks));
        progress.step();
        if number % 1000 == 999 {
            let rows: Vec<_> = model.iter().map(model_row).collect();
            assert_eq!(scan_all(&mut visit, ScanDirection::Forward), rows);
            let mut back = scan_all(&mut visit, ScanDirection::Backward);
            back.reverse();
            assert_eq!(back, rows);
            visit.release();
            let summary = tree.verify(&worker).expect("whole");
            assert_eq!(summary.rows, model.len() as u64);
            sizes.push((summary.levels, summary.pages.len()));
        }
    }
    drop(visit);
    let summary = bench.verify(&[&tree]);
    let ghosts = model.values().filter(|row| row.1.has(RowFlags::GHOST));
    assert_eq!(summary.ghosts, ghosts.count() as u64);
    let stats = bench.pool.stats();
    let (rows, pages) = (summary.rows, summary.pages.len());
    let waits = bench.log.waits.load(Ordering::Relaxed);
    println!("{rows} rows, {pages} pages, {stats:?}, {waits} waits for log");
    println!("levels and pages after each thousand: {sizes:?}");
    let merges = sizes
        .windows(2)
        .filter(|pair| pair[1].1 < pair[0].1)
        .count();
    let levels = sizes.iter().map(|size| size.0).max();
    assert!(levels >= Some(3) && stats.evictions > count / 8 && merges > 1);
}

#[test]
fn a_tree_of_tiny_pages_agrees_with_a_map() {
    fail_if_stalled(|progress| {
        random_operations(progress, 1, 16, 15_000, 300);
        random_operations(progress, 2, 16, 15_000, 5_000);
    });
}

#[test]
#[ignore = "a million operations take minutes: cargo test -p foxton-store --lib btree -- --ignored"]
fn a_tree_of_tiny_pages_agrees_with_a_map_for_long() {
    fail_if_stalled(|progress| {
        for seed in 10..30 {
            let spread = [300, 3_000, 100_000][seed as usize % 3];
            random_operations(progress, seed, 16, 50_000, spread);
        }
    });
}

pub(super) fn number_key(number: u64) -> Vec<u8> {
    format!("row {number:08}").into()
}

pub(super) fn insert(visit: &mut TreeVisit<'_>, key: &[u8], value: &[u8]) {
    let reply = visit.run(|visit| visit.insert(key, value, 0, NextKey::Any));
    assert_eq!(reply.expect("whole"), InsertReply::Inserted);
}

#[test]
fn rows_are_there_after_opening_again() {
    let bench = Bench::new(16);
    let worker = bench.workers.worker();
    for table in 1..=80 {
        // Enough tables that the directory has branches, and each is found again.
        let tree = bench.directory().create(&worker, table).expect("space");
        let again = bench
            .directory()
            .create(&worker, table)
            .expect("it is there");
        assert_eq!(tree.root(), again.root());
        let mut visit = tree.visit(&worker);
        (0..table).for_each(|number| insert(&mut visit, &number_key(number), &[table as u8]));
    }
    drop(worker);
    let bench = bench.reopen(16);
    let worker = bench.workers.worker();
    let open = |table| bench.directory().open(&worker, table).expect("whole");
    let trees: Vec<_> = (1..=80)
        .map(|table| open(table).expect("it was created"))
        .collect();
    assert!(open(81).is_none());
    for (tree, table) in trees.iter().zip(1..) {
        let rows = scan_all(&mut tree.visit(&worker), ScanDirection::Forward);
        let expected =
            (0..table).map(|number| (number_key(number), vec![table as u8], RowFlags::NONE));
        assert!(rows.into_iter().eq(expected));
    }
    let all: Vec<_> = trees.iter().collect();
    bench.verify(&all);
    assert!(
        bench
            .directory()
            .tree()
            .verify(&worker)
            .expect("whole")
            .levels
            > 1
    );
}

#[test]
fn keys_in_order_fill_their_pages() {
    let bench = Bench::new(16);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    (0..6000).for_each(|number| insert(&mut visit, &number_key(number), b"value"));
    drop(visit);
    let summary = bench.verify(&[&tree]);
    // A row takes 16 bytes of slot, its value, and a key without the prefix.
    let least = 6000 * (16 + 5) / 1024;
    assert!(
        summary.pages.len() < 3 * least,
        "{} pages",
        summary.pages.len()
    );
}

#[test]
fn a_failing_log_and_a_full_device_change_nothing() {
    let bench = Bench::new(16);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    let mut random = Lcg(8);
    let (mut rows, mut refused, mut full) = (BTreeSet::new(), 0, 0);
    for round in 0..6000 {
        let key = number_key(random.below(100_000));
        bench
            .log
            .has_failed
            .store(round % 3 == 1, Ordering::Relaxed);
        if round % 3000 == 0 {
            bench.device.fail(
                Call::Allocate,
                1,
                Times::ForEver,
                std::io::ErrorKind::StorageFull,
            );
        } else if round % 3000 == 2000 {
            bench.device.heal();
        }
        match visit.run(|visit| visit.insert(&key, &[7; 100], 0, NextKey::Any)) {
            Ok(InsertReply::Inserted) => assert!(rows.insert(key)),
            Ok(InsertReply::Exists(_)) => assert!(rows.contains(&key)),
            Ok(InsertReply::NextChanged) => panic!("the next key does not matter"),
            Err(TreeError::Log(LogError::Closed)) => refused += 1,
            Err(TreeError::Pool(PoolError::NoPages(_))) => full += 1,
            Err(error) => panic!("{error}"),
        }
    }
    drop(visit);
    bench.device.heal();
    assert!(refused > 100 && full > 100, "{refused} and {full}");
    assert_eq!(bench.verify(&[&tree]).rows, rows.len() as u64);
    assert_eq!(bench.log.reserved.load(Ordering::Relaxed), 0);
}

/// Makes attempts, and waits for pages in between. `None`: it waits for the cleaner.
fn until_stalled<'t, T>(
    visit: &mut TreeVisit<'t>,
    mut attempt: impl FnMut(&mut TreeVisit<'t>) -> Result<TreeAttempt<T>, TreeError>,
) -> Option<T> {
    loop {
        match attempt(visit).expect("whole") {
            TreeAttempt::Done(result) => return Some(result),
            TreeAttempt::Wait if matches!(visit.need, Need::CleanPages) => return None,
            TreeAttempt::Wait => visit.wait().expect("whole"),
        }
    }
}

/// Inserts rows until a change waits for the cleaner; returns the number of the row.
fn insert_until_stalled(visit: &mut TreeVisit<'_>, from: u64) -> u64 {
    let mut numbers = from..10_000;
    let is_stalled = |number: &u64| {
        let key = number_key(*number);
        let attempt = |visit: &mut TreeVisit<'_>| visit.insert(&key, &[7; 200], 0, NextKey::Any);
        until_stalled(visit, attempt).is_none()
    };
    numbers.find(is_stalled).expect("the pool is small")
}

#[test]
fn changes_wait_at_seven_eighths_dirty_commits_at_a_half_and_undo_never() {
    // The test is the cleaner, and writes eight pages at once.
    let device = FaultDevice::new();
    let file = PageFile::create(&device, "rows", PageSize::MIN, IDENTITY).expect("a new file");
    format_file(&file).expect("space");
    let log = Arc::new(KeptLog::default());
    let pool = Arc::new(BufferPool::new(file, 64, log.clone()).expect("whole"));
    let worker = Workers::new().worker();
    pool.limit_batches(8);
    let directory = TableDirectory::new(pool.clone());
    let tree = directory.create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    (0..30).for_each(|number| insert(&mut visit, &number_key(number), &[7; 200]));
    pool.clean_all(&worker).expect("memory");
    pool.set_cleaner(&worker, true);
    let rows = insert_until_stalled(&mut visit, 30);
    assert!((56..62).contains(&pool.dirty_count()), "{pool:?}");
    assert!(rows > 100, "{rows} rows");
    // A row on a dirty page, and one on a clean page.
    let (dirty, clean) = (number_key(rows - 1), number_key(0));
    let ghost = RowFlags::GHOST;
    assert!(until_stalled(&mut visit, |visit| visit.set_flags(&dirty, ghost)).is_some());
    assert!(until_stalled(&mut visit, |visit| visit.set_flags(&clean, ghost)).is_none());
    let before = pool.dirty_count();
    let undo = RowUndo {
        table: TABLE,
        key: &clean,
        before: RowBefore::Flags(ghost),
    };
    let logs = &mut |_: &PageEntry<'_>| {
        let begin = log.end(&worker);
        let end = begin.plus(8);
        Some(LoggedChange { begin, end })
    };
    assert!(until_stalled(&mut visit, |visit| visit.undo(&undo, logs)).is_some());
    assert_eq!(pool.dirty_count(), before + 1);
    drop(visit);
    let mut context = Context::from_waker(Waker::noop());
    let mut is_woken = |wait: &DirtyWait| wait.poll(&mut context).is_ready();
    let wait = |bound| pool.wait_for_clean(&worker, bound);
    let change = wait(DirtyBound::Change).expect("seven eighths are dirty");
    let commit = wait(DirtyBound::Commit).expect("a half is dirty");
    let dropped = wait(DirtyBound::Commit).expect("a half is dirty");
    let last = wait(DirtyBound::Commit).expect("a half is dirty");
    drop(dropped);
    let stats = pool.stats();
    let stalls = (stats.commit_stalls, stats.change_stalls);
    assert_eq!((stats.stalled, stalls), (4, (3, 1)));
    while pool.dirty_count() >= 32 {
        assert!(!is_woken(&commit), "{pool:?}");
        assert_eq!(is_woken(&change), pool.dirty_count() < 56, "{pool:?}");
        pool.clean_batch(&worker).expect("memory");
    }
    assert!(is_woken(&change) && is_woken(&commit));
    pool.clean_all(&worker).expect("memory");
    assert!(is_woken(&last) && pool.stats().stalled == 0);
    assert!(wait(DirtyBound::Commit).is_none());
    // After a failed write no thread waits for the next one.
    let mut visit = tree.visit(&worker);
    insert_until_stalled(&mut visit, rows);
    let failed = wait(DirtyBound::Commit).expect("a half is dirty");
    device.fail(Call::Write, 1, Times::ForEver, std::io::ErrorKind::Other);
    assert!(!is_woken(&failed));
    pool.clean_batch(&worker)
        .expect_err("no page can be written");
    assert!(is_woken(&failed));
    visit.wait().expect_err("no page can be written");
}

#[test]
fn rows_that_are_too_long_are_refused() {
    let bench = Bench::new(16);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    let long = visit.insert(&[1; 129], b"", 0, NextKey::Any);
    assert!(matches!(long, Err(TreeError::TooLong(_))));
    let long = visit.insert(&[1; 128], &[0; 129], 0, NextKey::Any);
    assert!(matches!(
        long,
        Err(TreeError::RowTooLong {
            bytes: 257,
            most: 256
        })
    ));
    insert(&mut visit, &[1; 128], &[0; 128]);
    assert!(matches!(
        visit.update(&[1; 128], &[0; 129]),
        Err(TreeError::RowTooLong { .. })
    ));
}

#[test]
fn a_page_that_belongs_elsewhere_is_an_error() {
    let bench = Bench::new(16);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    (0..400).for_each(|number| insert(&mut visit, &number_key(number), &[1; 60]));
    drop(visit);
    let pages: Vec<_> = tree
        .verify(&worker)
        .expect("whole")
        .pages
        .into_iter()
        .collect();
    let root = tree.root();
    drop(worker);
    let mut bench = bench.reopen(16);
    let raw = bench.device.open("rows").expect("it is there");
    let read = |page: PageId| {
        let mut image = vec![0; 1024];
        raw.read_at(&mut image, page.number() * 1024)
            .expect("memory");
        image
    };
    let write = |page: PageId, image: &[u8]| {
        let mut image = image.to_vec();
        // The page number is right, and so is the checksum.
        image[8..16].copy_from_slice(&page.0.to_le_bytes());
        seal(&mut image, &IDENTITY);
        raw.write_at(&image, page.number() * 1024).expect("memory");
    };
    let mut random = Lcg(3);
    let mut errors = 0;
    for _ in 0..150 {
        let page = pages[random.below(pages.len() as u64) as usize];
        let whole = read(page);
        let other = read(pages[random.below(pages.len() as u64) as usize]);
        let mut image = whole.clone();
        match random.below(4) {
            // Another page of the same tree, or of an earlier time.
            0 | 1 => image = other,
            // Another table's.
            2 => image[24..32].copy_from_slice(&77_u64.to_le_bytes()),
            // Bits of the header, or of fences and slots.
            _ => image[4 + random.below(300) as usize] ^= 1 << random.below(8),
        }
        if page == root && random.below(8) > 0 {
            continue;
        }
        let is_slot = SlottedPage::new(&image[..]).level() == 0 && image[64..] != whole[64..];
        bench = bench.reopen(16);
        let worker = bench.workers.worker();
        let tree = PagedTree::new(bench.pool.clone(), TABLE, root);
        let mut visit = tree.visit(&worker);
        // Each page is right once, and wrong when it is read again.
        (0..400).for_each(|number| {
            let found = visit.run(|visit| visit.flags(&number_key(number)));
            assert!(found.expect("whole").is_some());
        });
        visit.release();
        bench.pool.evict_all(&worker);
        write(page, &image);
        for number in 0..400 {
            let mut value = Vec::new();
            match visit.run(|visit| visit.get(&number_key(number), &mut value)) {
                Ok(flags) => {
                    let is_right = flags == Some(RowFlags::NONE) && value == [1; 60];
                    // A forged key of a leaf is as good as any.
                    assert!(is_right || is_slot, "wrong data of row {number}");
                }
                Err(TreeError::Damaged(_) | TreeError::Pool(PoolError::Damaged(_))) => {
                    errors += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        drop(visit);
        drop(worker);
        write(page, &whole);
    }
    assert!(errors > 60, "{errors} errors");
}

/// Threads change keys of their own, and scan all keys.
/// Called again and again while a storm goes on.
pub(super) type BesideStorm = dyn Fn(&Bench, &TableDirectory, &Worker) + Sync;

pub(super) fn storm(
    progress: &TestProgress,
    [threads, rounds]: [u64; 2],
    frames: usize,
    spread: u64,
    beside: Option<&BesideStorm>,
) {
    let bench = Bench::new(frames);
    let directory = bench.directory();
    let tree = directory
        .create(&bench.workers.worker(), TABLE)
        .expect("space");
    let is_over = AtomicBool::new(false);
    let work = |thread: u64| {
        let worker = bench.workers.worker();
        let mut visit = tree.visit(&worker);
        let (mut random, mut model) = (Lcg(thread), Model::new());
        for _ in 0..rounds {
            progress.step();
            let mut key = random_key(&mut random, spread);
            key.truncate(100);
            key.extend(format!("#{thread}").bytes());
            let value = random_value(&mut random, &key);
            match random.below(8) {
                0..=3 => {
                    let reply = visit.run(|visit| visit.insert(&key, &value, 0, NextKey::Any));
                    if reply.expect("whole") == InsertReply::Inserted {
                        let before = model.insert(key, (value, RowFlags::NONE));
                        assert_eq!(before, None);
                    }
                }
                4 => {
                    let before = visit
                        .run(|visit| visit.update(&key, &value))
                        .expect("whole");
                    let known = model.get_mut(&key);
                    assert_eq!(
                        before,
                        known.map(|row| std::mem::replace(&mut row.0, value))
                    );
                }
                5 => {
                    let marked = visit.run(|visit| visit.set_flags(&key, RowFlags::GHOST));
                    assert_eq!(marked.expect("whole").is_some(), model.contains_key(&key));
                    if let Some(row) = model.get_mut(&key) {
                        row.1 = RowFlags::GHOST;
                        let purged = visit.run(|visit| visit.purge(&key)).expect("whole");
                        assert_ne!(purged, PurgeReply::NoGhost);
                        if purged == PurgeReply::Removed {
                            model.remove(&key);
                        }
                    }
                }
                6 => {
                    let mut found = Vec::new();
                    let flags = visit
                        .run(|visit| visit.get(&key, &mut found))
                        .expect("whole");
                    assert_eq!(flags, model.get(&key).map(|row| row.1));
                    assert_eq!(
                        found,
                        model.get(&key).map_or(Vec::new(), |row| row.0.clone())
                    );
                }
                _ if random.below(10) == 0 => {
                    let direction = [ScanDirection::Forward, ScanDirection::Backward];
                    let direction = direction[random.below(2) as usize];
                    let mut rows = scan_all(&mut visit, direction);
                    if direction == ScanDirection::Backward {
                        rows.reverse();
                    }
                    assert!(rows.is_sorted_by(|one, other| one.0 < other.0));
                    let suffix = format!("#{thread}");
                    rows.retain(|row| row.0.ends_with(suffix.as_bytes()));
                    assert!(rows.into_iter().eq(model.iter().map(model_row)));
                }
                _ => visit.release(),
            }
        }
        model
    };
    let models: Vec<_> = thread::scope(|scope| {
        let work = &work;
        if let Some(beside) = beside {
            let (bench, directory, is_over) = (&bench, &directory, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    beside(bench, directory, &bench.workers.worker());
                }
            });
        }
        let started: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        let ended = started.into_iter().map(|thread| thread.join());
        let ended: Vec<_> = ended.collect();
        is_over.store(true, Ordering::Relaxed);
        let ended = ended.into_iter().map(|model| model.expect("no panic"));
        ended.collect()
    });
    let mut model = Model::new();
    models.into_iter().for_each(|rows| model.extend(rows));
    let worker = bench.workers.worker();
    let rows = scan_all(&mut tree.visit(&worker), ScanDirection::Forward);
    assert!(rows.into_iter().eq(model.iter().map(model_row)));
    assert_eq!(bench.verify(&[&tree]).rows, model.len() as u64);
    // They evict pages.
    drop(bench.threads);
    bench.pool.verify();
    let waits = bench.log.waits.load(Ordering::Relaxed);
    println!(
        "{} rows, {:?}, {waits} waits for log",
        model.len(),
        bench.pool.stats()
    );
}

#[test]
fn many_threads_share_a_tree_and_sixteen_frames() {
    fail_if_stalled(|progress| {
        storm(progress, [4, 2000], 16, 500, None);
        storm(progress, [40, 150], 16, 500, None);
        // All pages fit: latches meet, and frames do not.
        storm(progress, [8, 1500], 2000, 100, None);
    });
}

/// Gap locks of the test: a scanner excludes inserters, and they it.
#[derive(Default)]
struct GapLocks(Mutex<HashMap<Vec<u8>, i64>>);

impl GapLocks {
    /// Locks the gap before `next`; `by` is 1 for an inserter and -1 for a scanner. False if the
    /// other kind has it.
    fn try_lock(&self, next: &[u8], by: i64) -> bool {
        let mut locks = self.0.lock().expect("no panic");
        let count = locks.entry(next.to_vec()).or_default();
        let is_free = *count == 0 || count.signum() == by;
        *count += if is_free { by } else { 0 };
        is_free
    }

    fn unlock(&self, next: &[u8], by: i64) {
        *self
            .0
            .lock()
            .expect("no panic")
            .get_mut(next)
            .expect("locked") -= by;
    }
}

#[test]
fn no_key_comes_into_a_gap_that_a_scanner_has_locked() {
    fail_if_stalled(scan_and_insert);
}

fn scan_and_insert(progress: &TestProgress) {
    for (frames, threads) in [(16, 6), (300, 4)] {
        let bench = Bench::new(frames);
        let tree = bench
            .directory()
            .create(&bench.workers.worker(), TABLE)
            .expect("space");
        let worker = bench.workers.worker();
        let mut visit = tree.visit(&worker);
        (0..400).for_each(|number| insert(&mut visit, &number_key(number * 10), &[1; 90]));
        drop(visit);
        let locks = GapLocks::default();
        let (end, gaps, inserted) = (b"\xff".to_vec(), AtomicU64::new(0), AtomicU64::new(0));
        let next_of = |key: Option<KeyBytes>| key.map_or(end.clone(), |key| key.to_vec());
        let scan = |visit: &mut TreeVisit<'_>, key: &[u8]| {
            let next = next_of(
                visit
                    .run(|visit| visit.successor(key, true))
                    .expect("whole"),
            );
            let token = visit.token().clone();
            if !locks.try_lock(&next, -1) {
                return;
            }
            if tree.is_unchanged(&token) {
                gaps.fetch_add(1, Ordering::Relaxed);
                for _ in 0..3 {
                    thread::yield_now();
                    let now = visit
                        .run(|visit| visit.successor(key, true))
                        .expect("whole");
                    assert_eq!(next_of(now), next, "a phantom");
                }
            }
            locks.unlock(&next, -1);
        };
        let insert_between = |visit: &mut TreeVisit<'_>, key: &[u8]| {
            let next = next_of(
                visit
                    .run(|visit| visit.successor(key, false))
                    .expect("whole"),
            );
            if !locks.try_lock(&next, 1) {
                return;
            }
            let expected = match next == end {
                true => NextKey::End,
                false => NextKey::Key(&next),
            };
            let reply = visit.run(|visit| visit.insert(key, &[1; 90], 0, expected));
            let was_inserted = reply.expect("whole") == InsertReply::Inserted;
            inserted.fetch_add(u64::from(was_inserted), Ordering::Relaxed);
            locks.unlock(&next, 1);
        };
        thread::scope(|scope| {
            for number in 0..threads {
                let (bench, tree) = (&bench, &tree);
                let (scan, insert) = (&scan, &insert_between);
                scope.spawn(move || {
                    let worker = bench.workers.worker();
                    let mut visit = tree.visit(&worker);
                    let mut random = Lcg(number);
                    for _ in 0..1500 {
                        progress.step();
                        // Near each other, so that threads meet.
                        let key = number_key(random.below(1 << 12));
                        match random.below(2) {
                            0 => scan(&mut visit, &key),
                            _ => insert(&mut visit, &key),
                        }
                    }
                });
            }
        });
        let rows = bench.verify(&[&tree]).rows;
        assert_eq!(rows, 400 + inserted.load(Ordering::Relaxed));
        let gaps = gaps.load(Ordering::Relaxed);
        println!("{rows} rows, {gaps} gaps");
        assert!(gaps > 100);
    }
}

/// Two tables with rows of every tenth number.
struct TwoTables {
    bench: Bench,
    tree: Arc<PagedTree>,
    other: PagedTree,
}

impl TwoTables {
    fn new() -> TwoTables {
        // With more frames than pages, none is evicted but by the test.
        let bench = Bench::new(400);
        let worker = bench.workers.worker();
        let [tree, other] = [TABLE, 10].map(|table| {
            let tree = bench.directory().create(&worker, table).expect("space");
            let mut visit = tree.visit(&worker);
            (0..200).for_each(|number| insert(&mut visit, &number_key(10 * number), &[1; 90]));
            drop(visit);
            tree
        });
        TwoTables {
            bench,
            tree: Arc::new(tree),
            other,
        }
    }

    /// Evicts all pages but those that are kept.
    fn evict(&self, worker: &Worker) {
        self.bench.pool.clean_all(worker).expect("memory");
        self.bench.pool.evict_all(worker);
    }

    /// Returns a fence between two leaves, the last key before it, and the first behind.
    fn fence(&self, worker: &Worker) -> [Vec<u8>; 3] {
        let mut visit = self.tree.visit(worker);
        let left = read_leaf(&mut visit, TreeTarget::At(&number_key(700)));
        let fence = left.high;
        let right = read_leaf(&mut visit, TreeTarget::At(&fence));
        let last = left.rows.last().expect("a row").key.to_vec();
        assert!(last < fence && fence < right.rows[0].key.to_vec());
        [last, fence, right.rows[0].key.to_vec()]
    }
}

#[test]
fn a_token_notices_a_change_in_each_of_its_leaves_and_no_eviction() {
    // A change in the left leaf, in the right one, or none.
    for change in 0..3 {
        for evicts in [false, true] {
            let tables = TwoTables::new();
            let worker = tables.bench.workers.worker();
            let [last, fence, next] = tables.fence(&worker);
            let between = [&last[..], b"+"].concat();
            let mut visit = tables.tree.visit(&worker);
            let found = visit.run(|visit| visit.successor(&between, false));
            assert_eq!(found.expect("whole").map(|key| key.to_vec()), Some(next));
            let token = visit.token().clone();
            assert_eq!(token.leaf_count(), 2);
            assert!(tables.tree.is_unchanged(&token));
            match change {
                0 => insert(&mut visit, &between, b""),
                1 => insert(&mut visit, &fence, b""),
                _ => {}
            }
            visit.release();
            if evicts {
                tables.evict(&worker);
                assert!(
                    !tables.tree.is_unchanged(&token),
                    "its pages are not resident"
                );
                // They are read again.
                let found = visit.run(|visit| visit.successor(&between, false));
                assert!(found.expect("whole").is_some());
            }
            // After a change in the left leaf the walk ends there, and the right one may be away.
            let is_unchanged = tables.tree.is_unchanged(&token);
            assert_eq!(
                is_unchanged,
                change == 2,
                "change {change}, evicted: {evicts}"
            );
        }
    }
}

#[test]
fn an_insert_notices_a_new_key_between_it_and_the_expected_one() {
    // The expected key is in the next leaf, or in the same one.
    for is_here in [false, true] {
        let tables = TwoTables::new();
        let worker = tables.bench.workers.worker();
        let [last, fence, next] = tables.fence(&worker);
        let (key, other, next) = match is_here {
            false => ([&last[..], b"+"].concat(), fence, next),
            true => ([&next[..], b"+"].concat(), [&next[..], b"-"].concat(), {
                let number = std::str::from_utf8(&next[4..]).expect("digits");
                number_key(number.parse::<u64>().expect("a number") + 10)
            }),
        };
        let mut visit = tables.tree.visit(&worker);
        let inserts_other = {
            let (tree, worker) = (tables.tree.clone(), tables.bench.workers.worker());
            let other = other.clone();
            move || insert(&mut tree.visit(&worker), &other, b"")
        };
        // Another thread inserts a key between finding the next key and the latch.
        tables.bench.log.before_latch.set(0, inserts_other);
        let reply = visit.run(|visit| visit.insert(&key, b"", 0, NextKey::Key(&next)));
        assert_eq!(reply.expect("whole"), InsertReply::NextChanged);
        let reply = visit.run(|visit| visit.insert(&key, b"", 0, NextKey::Key(&other)));
        assert_eq!(reply.expect("whole"), InsertReply::Inserted);
    }
}

#[test]
fn an_operation_needs_no_page_but_those_that_it_keeps() {
    let tables = TwoTables::new();
    let (worker, other) = (tables.bench.workers.worker(), tables.bench.workers.worker());
    let [last, _, next] = tables.fence(&worker);
    let between = [&last[..], b"+"].concat();
    let mut visit = tables.tree.visit(&worker);
    type Operation<'a> = Box<dyn FnMut(&mut TreeVisit<'_>) -> Result<bool, TreeError> + 'a>;
    fn done<T>(attempt: Result<TreeAttempt<T>, TreeError>) -> Result<bool, TreeError> {
        attempt.map(|attempt| matches!(attempt, TreeAttempt::Done(_)))
    }
    let full = |number: u64| format!("row 000007{number:02}-").into_bytes();
    let mut operations: Vec<Operation<'_>> = vec![
        Box::new(|visit| done(visit.get(&last, &mut Vec::new()))),
        Box::new(|visit| done(visit.successor(&last, false))),
        Box::new(|visit| {
            let range = ScanRange {
                direction: ScanDirection::Backward,
                from: Some(&next),
                is_excluded: false,
                end: None,
                most: 9,
            };
            done(visit.scan(range, &mut LeafRows::default()))
        }),
        Box::new(|visit| done(visit.insert(&between, b"", 0, NextKey::Key(&next)))),
        Box::new(|visit| done(visit.update(&last, b"new"))),
        Box::new(|visit| done(visit.set_flags(&between, RowFlags::GHOST))),
        Box::new(|visit| done(visit.purge(&between))),
    ];
    // Enough rows for splits of leaves and branches.
    for number in 0..60 {
        operations.push(Box::new(move |visit| {
            done(visit.insert(&full(number), &[2; 200], 0, NextKey::Any))
        }));
    }
    for (index, operation) in operations.iter_mut().enumerate() {
        let mut attempts = 0;
        while !operation(&mut visit).expect("whole") {
            attempts += 1;
            assert!(attempts < 40, "operation {index} does not end");
            visit.wait().expect("whole");
            tables.evict(&other);
        }
        visit.release();
        tables.evict(&other);
    }
    drop(visit);
    tables.bench.verify(&[&tables.tree, &tables.other]);
}

#[test]
fn a_descent_that_a_split_overtakes_begins_again() {
    use super::descend::TreeTarget;
    use super::visit::TreeStop;

    let bench = Bench::new(200);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let (mut visit, mut other) = (tree.visit(&worker), tree.visit(&worker));
    (0..20).for_each(|number| insert(&mut other, &number_key(10 * number), &[1; 90]));
    // Key 45 is looked for: the parent was read, and the leaf not yet.
    let key = number_key(45);
    let target = TreeTarget::At(&key);
    let parent = visit.descend(target, 1).expect("resident");
    let leaves = tree.verify(&worker).expect("whole").pages.len();
    for number in 0..9 {
        insert(&mut other, &number_key(41 + number), &[1; 200]);
    }
    assert!(tree.verify(&worker).expect("whole").pages.len() > leaves);
    let child = visit.child(&parent, target);
    assert!(child.is_err_and(|stop| matches!(stop, TreeStop::Again)));
    // The parent was read, then a split came, and only then the version of the leaf was read.
    let mut number = 0;
    loop {
        let leaves = tree.verify(&worker).expect("whole").pages.len();
        let parent = visit.descend(target, 1).expect("resident");
        let child = visit.child(&parent, target).expect("resident");
        let key = format!("row 00000045-{number:02}");
        insert(&mut other, key.as_bytes(), &[1; 200]);
        number += 1;
        let has_split = tree.verify(&worker).expect("whole").pages.len() > leaves;
        let late = child.at_present(&tree);
        match visit.couple(&parent, late) {
            Ok(_) => assert!(!has_split),
            Err(TreeStop::Again) if has_split => break,
            Err(stop) => panic!("{stop:?}"),
        }
    }
}

#[test]
fn a_visit_that_is_detached_at_each_wait_keeps_what_it_has() {
    let bench = Bench::new(16);
    let worker = bench.workers.worker();
    let tree = Arc::new(bench.directory().create(&worker, TABLE).expect("space"));
    let mut waits = 0;
    for number in 0..200 {
        let mut kept: Option<DetachedVisit> = None;
        loop {
            let mut visit = match kept.take() {
                Some(kept) => kept.attach(&tree, &worker),
                None => tree.visit(&worker),
            };
            let key = number_key(number * 37 % 200);
            match visit.insert(&key, &[1; 90], 0, NextKey::Any) {
                Ok(TreeAttempt::Done(reply)) => break assert_eq!(reply, InsertReply::Inserted),
                Ok(TreeAttempt::Wait) => {
                    waits += 1;
                    let waited = visit.detach(&tree).wait(&worker).expect("whole");
                    kept = Some(waited);
                    // One that is dropped gives up its pages, those that it has claimed too.
                    if waits % 3 == 0 {
                        kept = None;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(waits > 100, "{waits} waits");
    assert_eq!(bench.verify(&[&tree]).rows, 200);
}

/// Bytes that a split reserves in the log, at least. A change of a row reserves fewer.
const SPLIT_BYTES: u64 = 2048;

/// Number of pages of a tree.
pub(super) fn page_count(tree: &PagedTree, worker: &Worker) -> usize {
    tree.verify(worker).expect("whole").pages.len()
}

#[test]
fn a_split_notices_that_its_page_has_space_again() {
    // A leaf below a parent, and a root.
    for rows in [200, 0] {
        let bench = Bench::new(400);
        let worker = bench.workers.worker();
        let tree = Arc::new(bench.directory().create(&worker, TABLE).expect("space"));
        let mut visit = tree.visit(&worker);
        (0..rows).for_each(|number| insert(&mut visit, &number_key(10 * number), &[1; 90]));
        let was_split = Arc::new(AtomicBool::new(false));
        for number in 0..40 {
            let key = [&number_key(400)[..], format!("+{number:02}").as_bytes()].concat();
            let pages = page_count(&tree, &worker);
            let (purges, other) = (tree.clone(), bench.workers.worker());
            let (at, was_split) = (key.clone(), was_split.clone());
            // Between reading the full leaf and latching it, another thread purges two of its rows.
            bench.log.before_latch.set(SPLIT_BYTES, move || {
                let mut visit = purges.visit(&other);
                let range = ScanRange {
                    direction: ScanDirection::Backward,
                    from: Some(&at),
                    is_excluded: false,
                    end: None,
                    most: 2,
                };
                let rows = scan(&mut visit, range);
                assert_eq!(rows.len(), 2);
                for (key, ..) in &rows {
                    let marked = visit.run(|visit| visit.set_flags(key, RowFlags::GHOST));
                    assert_eq!(marked.expect("whole"), Some(RowFlags::NONE));
                    let purged = visit.run(|visit| visit.purge(key));
                    assert_eq!(purged.expect("whole"), PurgeReply::Removed);
                }
                was_split.store(true, Ordering::Relaxed);
            });
            insert(&mut visit, &key, &[1; 90]);
            assert_eq!(page_count(&tree, &worker), pages, "a split for nothing");
        }
        assert!(was_split.load(Ordering::Relaxed));
        bench.log.before_latch.clear();
        drop(visit);
        bench.verify(&[&tree]);
    }
}

/// Deletes the row of `key` and purges it.
pub(super) fn remove(visit: &mut TreeVisit<'_>, key: &[u8]) -> PurgeReply {
    let marked = visit.run(|visit| visit.set_flags(key, RowFlags::GHOST));
    assert_eq!(marked.expect("whole"), Some(RowFlags::NONE));
    visit.run(|visit| visit.purge(key)).expect("whole")
}

#[test]
fn rows_that_go_leave_no_pages() {
    let ascending: fn(u64) -> u64 = |number| number;
    let descending: fn(u64) -> u64 = |number| 999 - number;
    let from_middle: fn(u64) -> u64 = |number| match number % 2 {
        0 => 500 + number / 2,
        _ => 499 - number / 2,
    };
    for order in [ascending, descending, from_middle] {
        let bench = Bench::new(16);
        let worker = bench.workers.worker();
        let tree = bench.directory().create(&worker, TABLE).expect("space");
        let mut visit = tree.visit(&worker);
        let last = number_key(order(999));
        insert(&mut visit, &last, &[1; 90]);
        for _ in 0..3 {
            let others = (0..999).map(|number| number_key(order(number)));
            others.for_each(|key| insert(&mut visit, &key, &[1; 90]));
            visit.release();
            let full = page_count(&tree, &worker);
            assert!(full > 100, "{full} pages");
            for number in 0..999 {
                let key = number_key(order(number));
                assert_eq!(remove(&mut visit, &key), PurgeReply::Removed);
            }
            visit.release();
            // The path to one leaf is left.
            let summary = tree.verify(&worker).expect("whole");
            assert_eq!(summary.pages.len(), usize::from(summary.levels));
            assert_eq!((summary.rows, summary.ghosts), (1, 0));
        }
        assert_eq!(remove(&mut visit, &last), PurgeReply::OnlyRow);
        drop(visit);
        bench.verify(&[&tree]);
    }
}

#[test]
fn rows_that_fill_their_pages_are_stored_and_erased() {
    // In order, backwards, in random order, and between others.
    for seed in 0..4_u64 {
        let bench = Bench::new(16);
        let worker = bench.workers.worker();
        let tree = bench.directory().create(&worker, TABLE).expect("space");
        let mut visit = tree.visit(&worker);
        let mut random = Lcg(seed);
        let mut model = BTreeMap::new();
        let longest = 1024 - BESIDE_PART;
        for number in 0..200 {
            let number = match seed {
                0 => number,
                1 => 1000 - number,
                _ => random.below(1000),
            };
            let mut key = vec![0; 12 + random.below(5) as usize];
            key[4..12].copy_from_slice(&number.to_be_bytes());
            let bytes = match random.below(3) {
                0 => longest,
                1 => longest / 2 - random.below(30) as usize,
                _ => random.below(100) as usize,
            };
            let value = vec![number as u8; bytes];
            let is_new = !model.contains_key(&key);
            let stored = visit.run(|visit| visit.store(&key, &value));
            assert_eq!(stored.expect("whole"), is_new);
            model.entry(key).or_insert(value);
            if seed == 3 && random.below(3) > 0 {
                let (key, _) = model.pop_first().expect("it has one");
                let erased = visit.run(|visit| visit.erase(&key)).expect("whole");
                if erased == PurgeReply::OnlyRow {
                    model.insert(key, vec![]);
                    let found = model.last_key_value().expect("it has one").0.clone();
                    assert!(
                        model.len() == 1 || tree.verify(&worker).is_ok(),
                        "{found:?}"
                    );
                    break;
                }
            }
        }
        let rows = scan_all(&mut visit, ScanDirection::Forward);
        let keys: Vec<_> = rows.iter().map(|row| row.0.clone()).collect();
        assert!(keys.iter().eq(model.keys()));
        assert!(rows.iter().all(|row| row.1 == model[&row.0]));
        visit.release();
        bench.verify(&[&tree]);
        for key in keys.iter().skip(1) {
            let erased = visit.run(|visit| visit.erase(key)).expect("whole");
            assert_eq!(erased, PurgeReply::Removed);
        }
        let again = visit.run(|visit| visit.erase(&keys[1])).expect("whole");
        assert_eq!(again, PurgeReply::NoGhost);
        drop(visit);
        let summary = bench.verify(&[&tree]);
        assert_eq!(summary.pages.len(), usize::from(summary.levels));
    }
}

#[test]
fn a_merge_keeps_reserved_space_and_flags() {
    let bench = Bench::new(400);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    for number in 0..200 {
        let key = number_key(number);
        let inserted = visit.run(|visit| visit.insert(&key, b"1", 90, NextKey::Any));
        assert_eq!(inserted.expect("whole"), InsertReply::Inserted);
    }
    let full = page_count(&tree, &worker);
    for number in (0..200).filter(|number| number % 10 != 0) {
        assert_eq!(remove(&mut visit, &number_key(number)), PurgeReply::Removed);
    }
    for number in (0..200).step_by(20) {
        let key = number_key(number);
        let marked = visit.run(|visit| visit.set_flags(&key, RowFlags::GHOST));
        assert_eq!(marked.expect("whole"), Some(RowFlags::NONE));
    }
    visit.release();
    let summary = tree.verify(&worker).expect("whole");
    assert!(summary.pages.len() * 3 < full, "{summary:?}");
    assert_eq!((summary.rows, summary.ghosts), (20, 10));
    for page in summary.pages {
        let fixed = bench.pool.reserve(&worker, &[PageRequest::read(page)]);
        let fixed = fixed.expect("whole");
        let view = fixed.pages()[0].view_now(&worker);
        let rows = view.read().all_rows();
        let leaf = (view.read().level() == 0).then_some(rows);
        assert!(
            leaf.into_iter()
                .flatten()
                .all(|row| row.reserved_bytes == 90)
        );
    }
}

#[test]
fn a_token_notices_that_its_leaf_is_merged() {
    let bench = Bench::new(400);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let (mut reader, mut writer) = (tree.visit(&worker), tree.visit(&worker));
    (0..200).for_each(|number| insert(&mut writer, &number_key(number), &[1; 90]));
    let mut merges = 0;
    for number in 50..150 {
        let key = number_key(number);
        // The last row of the range of a leaf, and no other leaf.
        let found = reader.run(|visit| visit.get(&key, &mut Vec::new()));
        assert_eq!(found.expect("whole"), Some(RowFlags::NONE));
        let token = reader.token().clone();
        assert!(tree.is_unchanged(&token));
        let pages = page_count(&tree, &worker);
        assert_eq!(remove(&mut writer, &key), PurgeReply::Removed);
        merges += usize::from(page_count(&tree, &worker) < pages);
        assert!(!tree.is_unchanged(&token), "row {number} went");
    }
    assert!(merges > 5, "{merges} merges");
    drop((reader, writer));
    bench.verify(&[&tree]);
}

#[test]
fn a_split_notices_that_another_was_faster() {
    let bench = Bench::new(200);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let (mut visit, mut other) = (tree.visit(&worker), tree.visit(&worker));
    let key = number_key(1 << 20);
    let mut pages = page_count(&tree, &worker);
    for number in 0..200 {
        let last = visit.run(|visit| {
            visit.attempt(|visit| {
                let leaf = visit.descend(TreeTarget::At(&key), 0)?;
                Ok((leaf.page(), leaf.read().lsn()))
            })
        });
        let last = last.expect("whole");
        insert(&mut other, &number_key(number), &[1; 90]);
        if page_count(&tree, &worker) > pages {
            // The last leaf was full, and has one row now.
            pages = page_count(&tree, &worker);
            let split = visit.run(|visit| visit.attempt(|visit| visit.split(&key, 0, last)));
            split.expect("nothing to do");
            assert_eq!(page_count(&tree, &worker), pages);
        }
    }
    assert!(pages > 10);
    drop((visit, other));
    bench.verify(&[&tree]);
}

#[test]
fn a_split_notices_that_its_parent_was_split() {
    let bench = Bench::new(400);
    let worker = bench.workers.worker();
    let tree = Arc::new(bench.directory().create(&worker, TABLE).expect("space"));
    let mut visit = tree.visit(&worker);
    (0..800).for_each(|number| insert(&mut visit, &number_key(10 * number), &[1; 90]));
    let parent_was_split = Arc::new(AtomicBool::new(false));
    for number in 0..9 {
        let key = number_key(4001 + number);
        let (splits, other) = (tree.clone(), bench.workers.worker());
        let (at, was_split) = (key.clone(), parent_was_split.clone());
        // Between reading the parent of the full leaf and latching it, another thread fills the
        // leaves to the left, until the full one has another parent.
        bench.log.before_latch.set(SPLIT_BYTES, move || {
            let mut visit = splits.visit(&other);
            let leaf = read_leaf(&mut visit, TreeTarget::Below(Some(&at)));
            let (last, ..) = predecessor(&mut visit, Some(&leaf.low)).expect("a row");
            let mut parent = || {
                let parent = visit.descend(TreeTarget::At(&at), 1).expect("resident");
                parent.page()
            };
            let (before, mut count) = (parent(), 0);
            assert_ne!(before, splits.root());
            while parent() == before {
                let key = [&last[..], format!("+{count:04}").as_bytes()].concat();
                insert(&mut splits.visit(&other), &key, &[1; 200]);
                count += 1;
                assert!(count < 1000, "the parent is never split");
            }
            was_split.store(true, Ordering::Relaxed);
        });
        insert(&mut visit, &key, &[1; 90]);
    }
    assert!(parent_was_split.load(Ordering::Relaxed));
    bench.log.before_latch.clear();
    drop(visit);
    bench.verify(&[&tree]);
}
