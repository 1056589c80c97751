//! A file in memory, a pool over it, and a log that is kept to be replayed.

use super::*;

/// A record as it was logged: for each page its LSN before and its operation.
type KeptRecord = (LoggedChange, Vec<(PageId, Lsn, Vec<u8>)>);

/// A log in memory, whose space is scarce.
#[derive(Debug, Default)]
pub(super) struct KeptLog {
    records: Mutex<Vec<KeptRecord>>,
    /// Bytes that are reserved: at most so many as two large records need, or one very large one.
    pub(super) reserved: AtomicU64,
    pub(super) waits: AtomicU64,
    pub(super) has_failed: AtomicBool,
    /// Called once, before a latch.
    pub(super) before_latch: BeforeLatch,
}

/// For how many bytes of log a call is made, at least, and the call.
type LatchAction = (u64, Box<dyn FnOnce() + Send>);

#[derive(Default)]
pub(super) struct BeforeLatch(Mutex<Option<LatchAction>>);

impl BeforeLatch {
    pub(super) fn set(&self, least_bytes: u64, action: impl FnOnce() + Send + 'static) {
        *self.0.lock().expect("no panic") = Some((least_bytes, Box::new(action)));
    }

    pub(super) fn clear(&self) {
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

pub(crate) struct Bench {
    pub(crate) device: Arc<FaultDevice>,
    pub(crate) workers: Arc<Workers>,
    pub(super) log: Arc<KeptLog>,
    pub(crate) pool: Arc<BufferPool>,
    pub(super) threads: PoolThreads,
}

impl Bench {
    pub(crate) fn new(frames: usize) -> Bench {
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
    pub(crate) fn reopen(self, frames: usize) -> Bench {
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

    pub(crate) fn directory(&self) -> TableDirectory {
        TableDirectory::new(self.pool.clone())
    }

    /// Checks tree, directory, space maps, and that the log leads to the pages that there are.
    pub(crate) fn verify(&self, trees: &[&PagedTree]) -> TreeSummary {
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
