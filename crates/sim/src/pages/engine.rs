//! Pages and their log: the engine of a run.

use super::Fault;
use super::page::{Back, Change, Thing};
use super::pool::{Pool, PoolError};
use crate::ledger::mix;
use foxton_log::device::{Device, fault::FaultDevice};
use foxton_log::format::segment;
use foxton_log::{Log, LogOptions, Lsn};
use foxton_store::paged::recovery::{
    Analysis, PageId, PageTransaction, RecordPosition, Recovery, RecoveryError, RestartCallback,
    RestartOptions, RestartResult, UndoData, restart::restart,
};
use foxton_sync::worker::{Worker, Workers};
use std::{collections::BTreeMap, error::Error, fmt, sync::Arc};

/// An error, for people.
pub type Trouble = Box<dyn Error + Send + Sync>;

/// All things and their values.
pub type Contents = BTreeMap<Thing, i64>;

/// Identity of the database of every run.
pub const IDENTITY: [u8; 16] = *b"pages, simulated";

/// Number of pages.
pub(super) const PAGES: u64 = 6;
/// Things that every client adds to.
pub(super) const COUNTERS: std::ops::Range<Thing> = 0..8;
/// Things that one client at a time sets.
pub(super) const REGISTERS: std::ops::Range<Thing> = 8..16;
/// First of the things in which clients count their commits.
pub(super) const OWN: Thing = 100;
pub(super) const CLIENTS: usize = 4;
/// Number of bytes of log in a run with a limit.
const LIMIT: u64 = 24 << 10;

/// Parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Seed of every choice.
    pub seed: u64,
    /// Number of steps of all clients together.
    pub steps: usize,
    /// The injected fault, if any.
    pub fault: Option<Fault>,
}

impl Setting {
    /// True if pages can be torn.
    pub fn images(&self) -> bool {
        // With images, redo begins with one, and so may do everything twice.
        self.seed.is_multiple_of(2) && self.fault != Some(Fault::RedoTwice)
    }

    /// True if the log is cut behind checkpoints.
    pub fn cuts_log(&self) -> bool {
        self.seed % 3 == 1
    }

    /// True if the log has a limit.
    pub fn is_limited(&self) -> bool {
        self.seed % 5 == 2
    }

    fn limit(&self, device: &dyn Device) -> Result<Lsn, Trouble> {
        if !self.is_limited() {
            return Ok(Lsn::MAX);
        }
        Ok(first(device)?.plus(LIMIT))
    }

    /// True if clients roll back in a wrong way of their own.
    pub(super) fn own_rollback(&self) -> bool {
        matches!(
            self.fault,
            Some(Fault::NoCompensation | Fault::WrongUndoNext)
        )
    }
}

/// Returns where the log begins.
fn first(device: &dyn Device) -> Result<Lsn, Trouble> {
    let names = device.list()?;
    let firsts = names.iter().filter_map(|name| segment::first_of(name));
    Ok(firsts.min().unwrap_or(Lsn::ZERO))
}

/// Pages, their log, and the recovery between them.
pub struct Engine {
    /// The pages.
    pub pool: Pool,
    /// The recovered log and tables.
    pub recovered: RestartResult,
    /// Largest LSN that the log may reach.
    pub limit: Lsn,
    pub(super) worker: Worker,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("recovered", &self.recovered)
            .finish_non_exhaustive()
    }
}

/// Opens the log in `device`, and shows each record to analysis.
///
/// # Errors
///
/// If the log or the last checkpoint cannot be read.
pub fn open_log(
    device: &FaultDevice,
    progress: Option<&RestartCallback>,
) -> Result<(Log, Analysis), Trouble> {
    let mut analysis = Analysis::begin::<PoolError>(device, &IDENTITY, progress)?;
    let mut options = LogOptions::tiny();
    options.buffer_bytes = 16 << 10;
    let start = analysis.start();
    let directory = Arc::new(device.clone());
    let (log, _) = Log::open_from(
        directory,
        options,
        IDENTITY,
        start,
        &mut |record| analysis.take(record),
        &mut || Ok(()),
    )?;
    Ok((log, analysis))
}

/// Opens what is in `device`, and brings it to the committed state.
///
/// # Errors
///
/// If that cannot be done.
pub fn open(device: &FaultDevice, setting: &Setting) -> Result<Engine, Trouble> {
    let mut options = RestartOptions::default();
    options.threads = 1 + setting.seed as usize % 2;
    options.limit = setting.limit(device)?;
    open_with(device, setting, &options)
}

/// As [`open`], with options that the seed does not draw.
///
/// # Errors
///
/// If that cannot be done.
pub fn open_with(
    device: &FaultDevice,
    setting: &Setting,
    options: &RestartOptions,
) -> Result<Engine, Trouble> {
    let shape = (setting.images(), PAGES);
    let pool = Pool::open(device, shape, setting.seed, setting.fault)?;
    let (log, analysis) = open_log(device, options.progress.as_ref())?;
    let log = Arc::new(log);
    pool.follow(log.clone());
    let worker = Workers::new().worker();
    let limit = options.limit;
    let directory = Arc::new(device.clone());
    let recovery = Recovery::new(directory, IDENTITY, log, &worker, &analysis, options);
    let recovered = restart(Arc::new(recovery), &worker, analysis, &pool, options)?;
    Ok(Engine {
        pool,
        recovered,
        limit,
        worker,
    })
}

impl Engine {
    /// Returns where the log ends.
    pub fn log_end(&self) -> Lsn {
        self.recovered.recovery.log().end(&self.worker)
    }

    fn change(
        &self,
        transaction: &mut PageTransaction,
        page: PageId,
        change: &Change,
        back: &Back,
    ) -> Result<RecordPosition, PoolError> {
        let back = back.encode();
        let undo = UndoData::new(&back).with_more(self.pool.image_bytes());
        let recovery = &self.recovered.recovery;
        self.pool.change(page, change, |change| {
            let undo = Some(undo);
            let change = foxton_store::paged::recovery::PageChange { change, undo };
            Ok(recovery.update(&self.worker, transaction, change)?)
        })
    }

    /// Sets `thing` to `value`, or adds to it.
    ///
    /// # Errors
    ///
    /// If there is no space in the log, or something fails.
    pub fn apply(
        &self,
        transaction: &mut PageTransaction,
        done: Done,
    ) -> Result<(PageId, RecordPosition, Back), PoolError> {
        let (change, back) = match done {
            Done::Set(thing, value) => {
                let old = self.pool.value(thing)?;
                (Change::Put(thing, value), Change::Put(thing, old))
            }
            Done::Add(thing, more) => (Change::Add(thing, more), Change::Add(thing, -more)),
        };
        let (page, back) = (self.pool.home(done.thing())?, Back::There(back));
        let place = self.change(transaction, page, &change, &back)?;
        Ok((page, place, back))
    }

    /// Puts all things into pages, and commits.
    ///
    /// # Errors
    ///
    /// If something fails.
    pub fn load(&self, random: &mut Random) -> Result<Lsn, PoolError> {
        let mut transaction = PageTransaction::new();
        for thing in all_things() {
            let page = PageId(random.below(PAGES));
            let (put, back) = (Change::Put(thing, 0), Change::Remove(thing));
            self.change(&mut transaction, page, &put, &Back::Here(back))?;
        }
        let recovery = &self.recovered.recovery;
        let end = recovery.commit(&self.worker, &mut transaction, None)?;
        Ok(end.expect("the transaction has changed something"))
    }

    /// Moves `thing` to another page, as a structure modification.
    pub(super) fn move_thing(&self, thing: Thing, to: PageId) -> Result<(), PoolError> {
        let (from, value) = (self.pool.home(thing)?, self.pool.value(thing)?);
        if from == to {
            return Ok(());
        }
        let recovery = &self.recovered.recovery;
        let (put, remove) = (Change::Put(thing, value), Change::Remove(thing));
        let changes = [(from, &remove), (to, &put)];
        self.pool.change_all(&changes, |changes| {
            Ok(recovery.change_structure(&self.worker, changes.to_vec())?)
        })?;
        Ok(())
    }

    /// Rolls back.
    ///
    /// # Errors
    ///
    /// If something fails; never for lack of space.
    pub fn rollback(&self, transaction: &mut PageTransaction) -> Result<(), Trouble> {
        let recovery = &self.recovered.recovery;
        Ok(recovery.rollback(&self.worker, transaction, &self.pool)?)
    }

    /// Commits, and returns where the commit record ends.
    ///
    /// # Errors
    ///
    /// If the log fails.
    pub fn commit(&self, transaction: &mut PageTransaction) -> Result<Option<Lsn>, Trouble> {
        let recovery = &self.recovered.recovery;
        Ok(recovery.commit(&self.worker, transaction, None)?)
    }

    /// Waits until a commit is durable.
    ///
    /// # Errors
    ///
    /// If the log fails.
    pub fn wait(&self, lsn: Lsn) -> Result<(), Trouble> {
        let recovery = &self.recovered.recovery;
        Ok(recovery.log().wait_durable(&self.worker, lsn)?)
    }

    /// Makes a checkpoint, and cuts the log.
    pub(super) fn checkpoint(&mut self, device: &FaultDevice, cuts: bool) -> Result<(), Trouble> {
        let RestartResult {
            recovery,
            checkpointer,
            ..
        } = &mut self.recovered;
        let made = match checkpointer.checkpoint(recovery, &self.worker, &self.pool) {
            Ok(made) => made,
            Err(RecoveryError::NoLogSpace(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if cuts {
            let before = first(device)?;
            segment::remove_before(device, made.anchor.needed_from)?;
            device.sync_dir()?;
            let gone = first(device)?.since(before);
            if self.limit < Lsn::MAX {
                recovery.space().raise(gone);
                self.limit = self.limit.plus(gone);
            }
        }
        Ok(())
    }
}

pub(super) fn all_things() -> impl Iterator<Item = Thing> {
    let own = (0..CLIENTS as Thing).map(|client| OWN + client);
    COUNTERS.chain(REGISTERS).chain(own)
}

/// A change of a thing by a client.
#[derive(Debug, Clone, Copy)]
pub enum Done {
    /// It has this value.
    Set(Thing, i64),
    /// Its value has grown by this.
    Add(Thing, i64),
}

impl Done {
    pub(super) fn thing(self) -> Thing {
        match self {
            Done::Set(thing, _) | Done::Add(thing, _) => thing,
        }
    }

    /// Makes the change in `contents`.
    pub fn apply(self, contents: &mut Contents) {
        match self {
            Done::Set(thing, value) => contents.insert(thing, value),
            Done::Add(thing, more) => {
                let value = contents.get(&thing).map_or(more, |value| value + more);
                contents.insert(thing, value)
            }
        };
    }
}

/// Random numbers from a seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Returns the random numbers of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(mix(seed))
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % limit
    }
}
