//! Rows of a real tree, in a real pool of few frames, cut off at every moment.
//!
//! Clients take turns, as a seed draws. Each has rows for itself until its transaction ends. They
//! insert, replace and delete rows, revive ghosts, set savepoints and roll back to them, commit and
//! roll back. In between ghosts are purged, tables are created, dirty pages are written, pages are
//! evicted, and checkpoints are made. Pages have 1 KiB and the pool has 16 frames, so trees split
//! and pages are stolen all the time. Some commits carry a change of a value in memory too.
//!
//! All changes of files are recorded. After each of them the power is cut, and the rows that a
//! restart finds must be those after some commit that may be the last one. Restarts are cut, too.

use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{FaultDevice, Recording};
use foxton_log::device::memory::MemoryDevice;
use foxton_log::format::segment;
use foxton_log::read::reader;
use foxton_log::{Log, LogOptions, Lsn, Start};
use foxton_store::paged::btree::{
    InsertReply, NextKey, PagedTree, PurgeReply, ScanDirection, ScanRange, TableDirectory,
    TreeError,
};
use foxton_store::paged::owner::PageOwner;
use foxton_store::paged::page::{LeafRows, PageSize, RowFlags};
use foxton_store::paged::page_log::RecoveryLog;
use foxton_store::paged::pool::{BufferPool, MIN_FRAMES};
use foxton_store::paged::recovery::record::{Malformed, RecoveryRecord};
use foxton_store::paged::recovery::restart::restart;
use foxton_store::paged::recovery::{
    Analysis, CommitTail, PageSavepoint, PageTransaction, Recovery, RecoveryError, RestartOptions,
    RestartResult,
};
use foxton_store::paged::space::{DoublewriteBuffer, open_or_create};
use foxton_sync::failpoint::Failpoint;
use foxton_sync::worker::{Worker, Workers};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// An error, for people.
pub(super) type Trouble = Box<dyn Error + Send + Sync>;

const IDENTITY: [u8; 16] = *b"rows, in a store";
/// Name of the page file.
const FILE: &str = "rows";
/// Name of the doublewrite buffer.
const DOUBLEWRITE_FILE: &str = "rows-double";
/// Maximum number of pages in a slot, so that a batch has several.
const BATCH_PAGES: usize = 3;
const TABLE: u64 = 7;
const CLIENTS: usize = 3;
/// Number of keys.
const KEYS: u64 = 90;
/// Depth of cuts: a run, its restart, the restart of that.
const DEPTH: usize = 3;

/// Returns a word in which each bit depends on all bits of `word`.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Random numbers from a seed.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(mix(seed))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % limit
    }
}

/// The rows, and the value in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RowContents {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    in_memory: u64,
}

/// Parameters of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowSetting {
    /// Seed of every choice.
    pub(super) seed: u64,
    /// Number of steps of all clients together.
    pub(super) steps: usize,
    /// The injected fault, if any.
    pub(super) fault: Option<&'static Failpoint>,
}

impl RowSetting {
    /// True if the log is cut behind checkpoints. Then no commit changes the value in memory, for
    /// which there is no checkpoint here.
    fn cuts_log(&self) -> bool {
        self.seed % 3 == 1
    }
}

/// Counts of what was inspected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RowTally {
    /// Images restarted, by how often they had been cut.
    pub(super) images: [u64; DEPTH],
    /// Changes that restarts made again.
    pub(super) redone: u64,
    /// Changes that restarts undid.
    pub(super) undone: u64,
    /// Most levels that a tree had.
    pub(super) levels: u8,
    /// Pages that were written.
    pub(super) writes: u64,
    /// Torn pages that were repaired.
    pub(super) torn: u64,
}

/// A database of one table, for one thread.
struct RowEngine {
    pool: Arc<BufferPool>,
    owner: PageOwner,
    recovered: RestartResult,
    directory: TableDirectory,
    worker: Worker,
    /// The value in memory, by the tails of commits.
    in_memory: u64,
    /// Pages that were torn.
    torn: u64,
    /// True while another thread cleans pages.
    is_cleaning: bool,
}

/// Makes the workers of an engine misbehave.
fn arm(workers: &Workers, fault: Option<&'static Failpoint>) {
    #[cfg(feature = "hooks")]
    if let Some(fault) = fault {
        workers.failpoints().arm(fault);
    }
    let _ = (workers, fault);
}

/// Returns the last value in memory of the commits in the log.
fn replay_memory(device: &FaultDevice) -> Result<u64, Trouble> {
    let mut in_memory = 0;
    reader::read(device, &IDENTITY, Start::default(), &mut |view| {
        if let Some(RecoveryRecord::Commit(_, Some(tail))) = RecoveryRecord::decode(&view)? {
            let value = tail.changes.try_into().map(u64::from_le_bytes);
            in_memory = value.map_err(|_| Malformed {
                lsn: view.lsn,
                expected: "a commit with a value of eight bytes",
            })?;
        }
        Ok::<_, Malformed>(())
    })?;
    Ok(in_memory)
}

impl RowEngine {
    fn open(device: &FaultDevice, setting: &RowSetting) -> Result<RowEngine, Trouble> {
        let workers = Arc::new(Workers::with_seed(1));
        arm(&workers, setting.fault);
        let worker = workers.worker();
        let mut analysis = Analysis::begin::<TreeError>(device, &IDENTITY, None)?;
        let mut options = LogOptions::tiny();
        options.buffer_bytes = 16 << 10;
        let directory: Arc<FaultDevice> = Arc::new(device.clone());
        let start = analysis.start();
        let (log, _) = Log::open_from(
            directory.clone(),
            options,
            IDENTITY,
            start,
            &mut |record| analysis.take(record),
            &mut || Ok(()),
        )?;
        let in_memory = match setting.cuts_log() {
            true => 0,
            false => replay_memory(device)?,
        };
        let file = open_or_create(device, FILE, PageSize::MIN, IDENTITY)?;
        let (doublewrite, repaired) = DoublewriteBuffer::open(
            device,
            DOUBLEWRITE_FILE,
            &file,
            analysis.log_end(),
            &|page, lsn| analysis.redoes(page, lsn),
        )?;
        let end = analysis.log_end();
        let options = RestartOptions::default();
        let log = Arc::new(log);
        let recovery = Recovery::new(directory, IDENTITY, log, &worker, &analysis, &options);
        let recovery = Arc::new(recovery);
        let page_log = Arc::new(RecoveryLog::new(recovery.clone()));
        let pool = BufferPool::new(file, MIN_FRAMES, page_log)?;
        let pool = pool.with_doublewrite(doublewrite).with_log_end(end);
        let pool = Arc::new(pool);
        pool.limit_batches(BATCH_PAGES);
        let owner = PageOwner::new(pool.clone(), workers);
        let recovered = restart(recovery, &worker, analysis, &owner, &options)?;
        pool.reload_space(&worker)?;
        let directory = TableDirectory::new(pool.clone());
        Ok(RowEngine {
            pool,
            owner,
            recovered,
            directory,
            worker,
            in_memory,
            torn: repaired.torn,
            is_cleaning: false,
        })
    }

    fn recovery(&self) -> &Recovery {
        &self.recovered.recovery
    }

    /// Returns the tree of the rows; makes space in the pool first.
    fn tree(&self) -> Result<PagedTree, Trouble> {
        while self.pool.dirty_count() * 2 > MIN_FRAMES && !self.is_cleaning {
            self.pool.clean_all(&self.worker)?;
        }
        Ok(self.directory.create(&self.worker, TABLE)?)
    }

    /// Checks the trees, and that each page is in one place.
    fn verify(&self, tally: &mut RowTally) -> Result<(), Trouble> {
        let tree = self.tree()?;
        let summary = tree.verify(&self.worker)?;
        tally.levels = tally.levels.max(summary.levels);
        let directory = self.directory.tree().verify(&self.worker)?;
        let mut pages: BTreeSet<_> = summary.pages.union(&directory.pages).copied().collect();
        let count = pages.len();
        if count != summary.pages.len() + directory.pages.len() {
            return Err("a page is in two trees".into());
        }
        for table in 1..=directory.rows {
            let table = TABLE - 1 + table;
            let other = self.directory.open(&self.worker, table)?;
            let other = other.ok_or_else(|| format!("table {table} is missing"))?;
            pages.extend(other.verify(&self.worker)?.pages);
        }
        // Maps, the header, partition pages and pages of trees are used, and no others.
        let file = self.pool.file();
        let (end, size) = (file.header().end, file.size());
        let maps = end.div_ceil(size.mapped_pages());
        let used = end - self.pool.space().free_count();
        let expected = 1 + maps + directory.rows + pages.len() as u64;
        if used != expected {
            return Err(format!("{used} pages are used, not {expected}").into());
        }
        self.pool.verify();
        Ok(())
    }

    fn contents(&self) -> Result<RowContents, Trouble> {
        let tree = self.tree()?;
        let mut visit = tree.visit(&self.worker);
        let mut contents = RowContents {
            rows: BTreeMap::new(),
            in_memory: self.in_memory,
        };
        let (mut rows, mut from) = (LeafRows::default(), None::<Vec<u8>>);
        loop {
            let range = ScanRange {
                direction: ScanDirection::Forward,
                from: from.as_deref(),
                is_excluded: from.is_some(),
                end: None,
                most: usize::MAX,
            };
            visit.run(|visit| visit.scan(range, &mut rows))?;
            let Some(last) = rows.len().checked_sub(1) else {
                return Ok(contents);
            };
            let live = (0..rows.len()).filter(|index| !rows.flags(*index).has(RowFlags::GHOST));
            let copies = live.map(|index| (rows.key(index).to_vec(), rows.value(index).to_vec()));
            contents.rows.extend(copies);
            from = Some(rows.key(last).to_vec());
        }
    }

    fn put(
        &self,
        transaction: &mut PageTransaction,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Trouble> {
        let tree = self.tree()?;
        let mut visit = tree.visit(&self.worker);
        visit.log_to(transaction);
        let inserted = visit.run(|visit| visit.insert(key, value, 0, NextKey::Any))?;
        if let InsertReply::Exists(flags) = inserted {
            visit.run(|visit| visit.update(key, value))?;
            if flags.has(RowFlags::GHOST) {
                visit.run(|visit| visit.set_flags(key, RowFlags::NONE))?;
            }
        }
        Ok(())
    }

    fn delete(&self, transaction: &mut PageTransaction, key: &[u8]) -> Result<(), Trouble> {
        let tree = self.tree()?;
        let mut visit = tree.visit(&self.worker);
        visit.log_to(transaction);
        visit.run(|visit| visit.set_flags(key, RowFlags::GHOST))?;
        Ok(())
    }

    /// Makes a checkpoint, and removes the log that it needs no more.
    fn checkpoint(&mut self, device: &FaultDevice, cuts_log: bool) -> Result<(), Trouble> {
        let RestartResult {
            recovery,
            checkpointer,
            ..
        } = &mut self.recovered;
        match checkpointer.checkpoint(recovery, &self.worker, &self.owner) {
            Ok(made) if cuts_log => {
                segment::remove_before(device, made.anchor.needed_from)?;
                Ok(device.sync_dir()?)
            }
            Ok(_) | Err(RecoveryError::NoLogSpace(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A client that runs transactions.
#[derive(Debug, Default)]
struct RowClient {
    transaction: PageTransaction,
    /// Each change: a key, and its value if there is one afterwards.
    done: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    savepoints: Vec<(PageSavepoint, usize)>,
}

/// A recorded run.
pub(super) struct RowRun {
    setting: RowSetting,
    recording: Recording,
    states: Vec<RowContents>,
    begun: Vec<usize>,
    acknowledged: Vec<(usize, usize)>,
    /// Pages that the run wrote.
    pub(super) writes: u64,
}

impl fmt::Debug for RowRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowRun")
            .field("setting", &self.setting)
            .finish_non_exhaustive()
    }
}

struct RowRecorder<'d> {
    device: &'d FaultDevice,
    cuts_log: bool,
    engine: RowEngine,
    random: Random,
    clients: Vec<RowClient>,
    states: Vec<RowContents>,
    begun: Vec<usize>,
    acknowledged: Vec<(usize, usize)>,
    tables: u64,
}

fn key(number: u64) -> Vec<u8> {
    match number % 5 {
        0 => format!("a long prefix that a fifth of all keys have in common/{number:03}").into(),
        1 => vec![b'z'; 1 + number as usize],
        _ => format!("{number:03}").into(),
    }
}

fn apply(contents: &mut RowContents, done: &[(Vec<u8>, Option<Vec<u8>>)]) {
    for (key, value) in done {
        match value {
            Some(value) => contents.rows.insert(key.clone(), value.clone()),
            None => contents.rows.remove(key),
        };
    }
}

impl RowRun {
    /// Records a run on an empty directory.
    ///
    /// # Errors
    ///
    /// If anything fails, or the rows are wrong.
    pub(super) fn record(setting: RowSetting) -> Result<RowRun, Trouble> {
        let device = FaultDevice::new();
        device.record();
        let engine = RowEngine::open(&device, &setting)?;
        let mut recorder = RowRecorder {
            device: &device,
            cuts_log: setting.cuts_log(),
            engine,
            random: Random::new(setting.seed),
            clients: (0..CLIENTS).map(|_| RowClient::default()).collect(),
            states: vec![RowContents::default()],
            begun: Vec::new(),
            acknowledged: Vec::new(),
            tables: 1,
        };
        for step in 0..setting.steps {
            recorder.step()?;
            if step % 64 == 63 {
                recorder.compare()?;
            }
        }
        recorder.compare()?;
        let writes = recorder.engine.pool.stats().writes;
        let RowRecorder {
            states,
            begun,
            acknowledged,
            ..
        } = recorder;
        Ok(RowRun {
            setting,
            recording: device.recording().expect("it was recording"),
            states,
            begun,
            acknowledged,
            writes,
        })
    }

    /// Cuts the run after every `step`-th change, and also cuts the restarts.
    ///
    /// # Errors
    ///
    /// The first image with wrong rows, with all that led to it.
    pub(super) fn cut_everywhere(
        &self,
        damages: &[Damage],
        step: usize,
        tally: &mut RowTally,
    ) -> Result<(), String> {
        tally.writes += self.writes;
        for (cut, disk) in self.recording.disks().enumerate().step_by(step.max(1)) {
            let seed = mix(self.setting.seed ^ mix(cut as u64));
            let damage = damages[seed as usize % damages.len()];
            let image = disk.crash(damage, seed);
            let mut cuts = format!("run {:?}, cut {cut} {damage}", self.setting);
            self.look(&image, damages, seed, &mut cuts, self.expected(cut), tally)
                .map_err(|trouble| format!("{cuts}: {trouble}"))?;
        }
        Ok(())
    }

    /// Returns the contents that may be found if the run was cut after `cut` changes.
    fn expected(&self, cut: usize) -> &[RowContents] {
        let acknowledged = self.acknowledged.iter().filter(|(_, at)| *at <= cut);
        let must = acknowledged.map(|(commit, _)| *commit).max().unwrap_or(0);
        let may = self.begun.partition_point(|begun| *begun < cut);
        &self.states[must..=may.max(must)]
    }

    fn look(
        &self,
        image: &MemoryDevice,
        damages: &[Damage],
        seed: u64,
        cuts: &mut String,
        expected: &[RowContents],
        tally: &mut RowTally,
    ) -> Result<(), Trouble> {
        let depth = cuts.matches("cut").count();
        tally.images[depth - 1] += 1;
        let device = FaultDevice::holding(image);
        device.record();
        let engine = RowEngine::open(&device, &self.setting)?;
        let recording = device.recording().expect("it was recording");
        let summary = &engine.recovered.summary;
        tally.redone += summary.redone;
        tally.undone += summary.undone;
        tally.torn += engine.torn;
        let contents = engine.contents()?;
        if !expected.contains(&contents) {
            let differs = expected.iter().map(|state| difference(&contents, state));
            let differs: Vec<_> = differs.collect();
            return Err(format!("wrong rows: {differs:?}").into());
        }
        engine.verify(tally)?;
        drop(engine);
        if depth == DEPTH || !mix(seed ^ 5).is_multiple_of(3) {
            return Ok(());
        }
        let chosen = mix(seed ^ 6) as usize % (recording.len() + 1);
        let disk = recording.disks().nth(chosen).expect("a disk of each cut");
        let seed = mix(seed ^ mix(chosen as u64 ^ 7));
        let damage = damages[seed as usize % damages.len()];
        *cuts += &format!(", cut {chosen} {damage}");
        let settled = std::slice::from_ref(&contents);
        self.look(
            &disk.crash(damage, seed),
            damages,
            seed,
            cuts,
            settled,
            tally,
        )
    }
}

/// Returns what is found and not expected, in a few words.
fn difference(found: &RowContents, expected: &RowContents) -> String {
    let name = |key: &[u8]| String::from_utf8_lossy(&key[..key.len().min(60)]).into_owned();
    let lost = expected
        .rows
        .iter()
        .find(|(k, v)| found.rows.get(*k) != Some(v));
    let extra = found.rows.keys().find(|k| !expected.rows.contains_key(*k));
    format!(
        "lost or different {:?}, unexpected {:?}, in memory {} of {}",
        lost.map(|(key, _)| name(key)),
        extra.map(|key| name(key)),
        found.in_memory,
        expected.in_memory
    )
}

impl RowRecorder<'_> {
    fn step(&mut self) -> Result<(), Trouble> {
        let client = self.random.below(CLIENTS as u64) as usize;
        match self.random.below(100) {
            0..4 => drop(self.engine.pool.clean_batch(&self.engine.worker)?),
            4..8 => drop(self.engine.pool.provide_frames(&self.engine.worker)),
            8..11 => self.engine.checkpoint(self.device, self.cuts_log)?,
            11..12 => {
                self.tables += 1;
                let table = TABLE - 1 + self.tables;
                self.engine.tree()?;
                self.engine.directory.create(&self.engine.worker, table)?;
            }
            12..16 => self.purge()?,
            16..22 => {
                let client = &mut self.clients[client];
                let now = client.transaction.savepoint();
                client.savepoints.push((now, client.done.len()));
            }
            22..26 => self.roll_back_to(client)?,
            26..33 => self.commit(client)?,
            33..36 => self.rollback(client)?,
            36..42 => self.change_while_cleaning(client)?,
            _ => self.change(client)?,
        }
        Ok(())
    }

    /// Returns the state after all changes, committed or not.
    fn present(&self) -> RowContents {
        let mut present = self.states.last().expect("there is one").clone();
        for client in &self.clients {
            apply(&mut present, &client.done);
        }
        present
    }

    fn is_free(&self, key: &[u8], but: Option<usize>) -> bool {
        let mut others = self.clients.iter().enumerate();
        others.all(|(index, client)| {
            Some(index) == but || client.done.iter().all(|(other, _)| other != key)
        })
    }

    fn change(&mut self, client: usize) -> Result<(), Trouble> {
        let key = key(self.random.below(KEYS));
        if !self.is_free(&key, Some(client)) {
            return Ok(());
        }
        let is_there = self.present().rows.contains_key(&key);
        let deletes = is_there && self.random.below(3) == 0;
        let most = PageSize::MIN.max_row_bytes() - key.len();
        let bytes = match self.random.below(6) {
            0 => most as u64,
            1 => 0,
            _ => self.random.below(100.min(most as u64)),
        };
        let value = vec![self.random.below(256) as u8; bytes as usize];
        let transaction = &mut self.clients[client].transaction;
        match deletes {
            true => self.engine.delete(transaction, &key)?,
            false => self.engine.put(transaction, &key, &value)?,
        }
        let value = (!deletes).then_some(value);
        self.clients[client].done.push((key, value));
        Ok(())
    }

    /// Changes a row after a thread has written pages, and before it has synced them.
    #[cfg(feature = "hooks")]
    fn change_while_cleaning(&mut self, client: usize) -> Result<(), Trouble> {
        if !(1..5).contains(&self.engine.pool.dirty_count()) {
            return self.change(client);
        }
        let written = &foxton_store::failpoint::PAGES_WRITTEN;
        let stop = self.engine.worker.failpoints().stop(written);
        let (pool, workers) = (
            self.engine.pool.clone(),
            self.engine.worker.workers().clone(),
        );
        self.engine.is_cleaning = true;
        let changed = std::thread::scope(|scope| {
            let cleaner = scope.spawn(move || pool.clean_batch(&workers.worker()));
            stop.reached();
            let changed = self.change(client);
            stop.release();
            let cleaned = cleaner.join().expect("a device that works");
            cleaned.map(drop)?;
            changed
        });
        self.engine.is_cleaning = false;
        changed
    }

    #[cfg(not(feature = "hooks"))]
    fn change_while_cleaning(&mut self, client: usize) -> Result<(), Trouble> {
        self.change(client)
    }

    /// Purges a ghost that no transaction uses.
    fn purge(&mut self) -> Result<(), Trouble> {
        let key = key(self.random.below(KEYS));
        if !self.is_free(&key, None) {
            return Ok(());
        }
        let tree = self.engine.tree()?;
        let purged = tree
            .visit(&self.engine.worker)
            .run(|visit| visit.purge(&key))?;
        let _: PurgeReply = purged;
        Ok(())
    }

    fn roll_back_to(&mut self, client: usize) -> Result<(), Trouble> {
        let client = &mut self.clients[client];
        let count = client.savepoints.len() as u64;
        if count == 0 {
            return Ok(());
        }
        let index = self.random.below(count) as usize;
        let (savepoint, done) = client.savepoints[index];
        client.savepoints.truncate(index + 1);
        client.done.truncate(done);
        let engine = &self.engine;
        let transaction = &mut client.transaction;
        engine
            .recovery()
            .rollback_to(&engine.worker, transaction, savepoint, &engine.owner)?;
        Ok(())
    }

    fn commit(&mut self, client: usize) -> Result<(), Trouble> {
        let number = self.states.len() as u64;
        let changes_memory = self.random.below(2) == 0 && !self.cuts_log;
        let in_memory = changes_memory.then_some(number);
        let begun = self.device.recorded();
        let engine = &self.engine;
        let client = &mut self.clients[client];
        let changes = number.to_le_bytes();
        let tail = in_memory.map(|_| CommitTail {
            first_part: Lsn::ZERO,
            changes: &changes,
        });
        let transaction = &mut client.transaction;
        let end = engine
            .recovery()
            .commit(&engine.worker, transaction, tail)?;
        let done = std::mem::take(&mut client.done);
        client.savepoints.clear();
        let Some(end) = end else {
            return Ok(());
        };
        let mut contents = self.states.last().expect("there is one").clone();
        apply(&mut contents, &done);
        contents.in_memory = in_memory.unwrap_or(contents.in_memory);
        self.begun.push(begun);
        self.states.push(contents);
        if self.random.below(2) == 0 {
            let log = engine.recovery().log();
            log.wait_durable(&engine.worker, end)?;
            self.acknowledged
                .push((self.begun.len(), self.device.recorded()));
        }
        Ok(())
    }

    fn rollback(&mut self, client: usize) -> Result<(), Trouble> {
        let engine = &self.engine;
        let client = &mut self.clients[client];
        let transaction = &mut client.transaction;
        engine
            .recovery()
            .rollback(&engine.worker, transaction, &engine.owner)?;
        client.done.clear();
        client.savepoints.clear();
        Ok(())
    }

    /// Checks that the tree holds the committed and the current changes.
    fn compare(&mut self) -> Result<(), Trouble> {
        let (found, expected) = (self.engine.contents()?, self.present());
        if found.rows != expected.rows {
            return Err(format!("running: {}", difference(&found, &expected)).into());
        }
        self.engine.verify(&mut RowTally::default())
    }
}
