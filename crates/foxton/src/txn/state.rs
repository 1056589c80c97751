//! What one transaction works with, from one transaction to the next.
//!
//! # State
//!
//! A worker, an owner of locks, the tables met so far, and buffers. Between transactions all of it
//! lies in the [`Rack`](crate::engine::context_pool::Rack); so in the steady state a transaction allocates nothing.
//!
//! # Invariants
//!
//! * I1  In the rack: no locks, no changes, no wait, phase `Active`. With a session: no locks but its own.
//! * I2  While the owner has a request in a queue, nothing else is asked for.
//! * I3  A phase other than `Active` and `Watched` has no changes and no locks but a session's: what ended the transaction also
//!   rolled it back, or it has committed.

use std::collections::VecDeque;
use std::sync::Arc;

use foxton_lock::any::AnyManager;
use foxton_lock::manager::LockManager;
use foxton_lock::mode::{KeyPart, Mode};
use foxton_lock::name::Name;
use foxton_lock::owner::{Owner, Scan};
use foxton_lock::request::{Refusal, Reply, WaitMode};
use foxton_log::Lsn;
use foxton_sync::admission::SlotClaim;
use foxton_sync::huge_pages::RegionTracker;
use foxton_sync::worker::Worker;

use super::attempt::AttemptResult;
use super::changes::Changes;
use super::index_plan::{CachedIndexLookup, CachedIndexes, IndexPlan};
use super::lock_scope::Tenure;
use super::marks::SavepointStack;
use super::scan_state::ScanState;
use super::short_lock::ShortLock;
use crate::catalog::OpenTable;
use crate::checkpoint::WriteCredit;
use crate::engine::background::Timer;
use crate::engine::cancel_token::CancelToken;
use crate::engine::context_pool::Home;
use crate::engine::early_release::ReadDependencies;
use crate::engine::idle_slot::Rest;
use crate::engine::{Counter, Engine};
use crate::error::{Conflict, Error, Request, Result};
use crate::options::{Durability, Locking};
use crate::redo::record;
use crate::testing::injected_fault::{Fault, Planted};
use crate::types::codec::{Key, TypeName, Value};
use crate::types::isolation::{Isolation, LockDuration};
use crate::types::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use crate::types::lock_options::LockWait;
use crate::types::table::Table;

/// Buffers above this are given back after a transaction.
const KEPT_BYTES: usize = 256 << 10;
/// Tables remembered from one transaction to the next.
const KEPT_TABLES: usize = 128;

/// See the [module](self).
pub(crate) struct State {
    pub(crate) engine: Arc<Engine>,
    pub(crate) home: Home<State>,
    pub(crate) worker: Worker,
    pub(crate) owner: Owner,
    pub(crate) phase: Phase,
    /// What ended it, for as long as it is asked for more.
    pub(crate) ended_by: Option<Conflict>,
    /// Who may end it from elsewhere; there in phase `Watched`.
    pub(crate) cancel_token: Option<CancelToken>,
    pub(crate) durability: Durability,
    pub(crate) isolation: Isolation,
    pub(crate) tables: Vec<CachedTable>,
    /// The encoded key of the operation at hand.
    pub(crate) key: Vec<u8>,
    /// The encoded value of the operation at hand.
    pub(crate) value: Vec<u8>,
    pub(crate) changes: Changes,
    pub(crate) marks: SavepointStack,
    /// Where its commit ends in the log, once it is there.
    pub(crate) place: Lsn,
    /// How much more it may write while a checkpoint cannot keep up, and whether its commit is to wait for that.
    pub(crate) write_credit: WriteCredit,
    /// What was read by key; what scans have read they note themselves.
    pub(crate) dependencies: ReadDependencies,
    pub(crate) scan: ScanState,
    /// The key that a read has locked only while it reads; a scan has its own.
    pub(crate) short_lock: ShortLock,
    /// A gap that the insert at hand locked and that was not locked before.
    pub(crate) fresh_gap: Option<Name>,
    /// Ghosts that could not be removed when they were left: index of the table, and key.
    pub(crate) ghosts: VecDeque<(usize, Box<[u8]>)>,
    /// The indexes that are kept with tables met, as this worker last saw them.
    pub(crate) cached_indexes: Vec<CachedIndexes>,
    /// The write at hand, if its table has indexes.
    pub(crate) statement: IndexPlan,
    /// The indexes read by so far.
    pub(crate) read_by: Vec<CachedIndexLookup>,
    /// Ends waits of this transaction as a task.
    pub(crate) timer: Timer,
    /// Its seat among those at work.
    pub(crate) claim: SlotClaim,
    /// The stretch of memory that new records come from.
    pub(crate) filling: RegionTracker,
    /// Whose its locks are when the transaction ends.
    pub(crate) tenure: Tenure<State>,
    /// Where it rests between operations, if it is to be found there.
    pub(crate) rest: Option<Arc<Rest<State>>>,
}

/// Whether a transaction takes more work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Yes.
    Active,
    /// Yes, unless its canceller says no. A phase of its own, so that who has none need not ask.
    Watched,
    /// A conflict ended it.
    Ended,
    /// It commits, and has let go early; only its acknowledgement is to come.
    Released,
    /// It did nothing for too long.
    Idle,
    /// Its canceller ended it.
    Cancelled,
}

impl Phase {
    /// Whether there may be locks and changes.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Phase::Active | Phase::Watched)
    }
}

/// A table this worker has met.
#[derive(Debug)]
pub(crate) struct CachedTable {
    name: &'static str,
    key_type: u64,
    value_type: u64,
    pub(crate) table: Arc<OpenTable>,
}

impl CachedTable {
    /// The entries of an index, which nobody meets by name.
    pub(super) fn entries(table: Arc<OpenTable>) -> CachedTable {
        CachedTable {
            name: "",
            key_type: 0,
            value_type: 0,
            table,
        }
    }
}

impl State {
    pub(crate) fn new(engine: Arc<Engine>, home: Home<State>) -> State {
        let worker = engine.workers.worker();
        let owner = engine.locks.owner();
        let durability = engine.options.durability;
        let isolation = engine.options.isolation;
        let tenure = match engine.options.locking {
            Locking::On => Tenure::Usual,
            Locking::Off => Tenure::Alone,
        };
        let rest = engine.options.idle_timeout.map(|_| Arc::new(Rest::new()));
        State {
            engine,
            home,
            rest,
            worker,
            owner,
            phase: Phase::Active,
            ended_by: None,
            cancel_token: None,
            durability,
            isolation,
            tables: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
            changes: Changes::default(),
            marks: SavepointStack::default(),
            place: Lsn::default(),
            write_credit: WriteCredit::default(),
            dependencies: ReadDependencies::default(),
            scan: ScanState::default(),
            short_lock: ShortLock::default(),
            fresh_gap: None,
            ghosts: VecDeque::new(),
            cached_indexes: Vec::new(),
            statement: IndexPlan::default(),
            read_by: Vec::new(),
            timer: Timer::default(),
            claim: SlotClaim::default(),
            filling: RegionTracker::default(),
            tenure,
        }
    }

    #[inline]
    pub(crate) fn count(&self, count: Counter) {
        self.engine.counters.add(&self.worker, count as usize, 1);
    }

    /// Refuses everything once something has ended the transaction.
    #[inline]
    pub(crate) fn check_active(&mut self) -> Result<()> {
        match self.phase {
            Phase::Active => Ok(()),
            _ => self.check_wanted(),
        }
    }

    #[cold]
    fn check_wanted(&mut self) -> Result<()> {
        let refused = match self.phase {
            Phase::Active => return Ok(()),
            Phase::Watched if !self.is_cancelled() => return Ok(()),
            Phase::Watched => {
                self.end_as_cancelled();
                Conflict::CANCELLED
            }
            Phase::Cancelled => Conflict::CANCELLED,
            Phase::Idle => Conflict::IDLE,
            // Nobody asks one that commits.
            Phase::Ended | Phase::Released => {
                let ended_by = self.ended_by.as_ref();
                ended_by.map_or(Conflict::ENDED, Conflict::ended)
            }
        };
        Err(refused.into())
    }

    /// The index of `table` among those met, after checking its types. Every operation on a table
    /// begins here.
    #[inline]
    pub(crate) fn open_table<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
    ) -> Result<usize> {
        self.check_active()?;
        let name = table.name();
        let same = |met: &CachedTable| {
            std::ptr::eq(met.name, name)
                && met.key_type == K::TYPE.hash()
                && met.value_type == V::TYPE.hash()
        };
        match self.tables.iter().position(same) {
            Some(index) => Ok(index),
            None => self.open_table_first::<K, V>(name),
        }
    }

    #[cold]
    fn open_table_first<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        name: &'static str,
    ) -> Result<usize> {
        let table = self.resolve(name, &K::TYPE, &V::TYPE)?;
        let (key_type, value_type) = (K::TYPE.hash(), V::TYPE.hash());
        self.tables.push(CachedTable {
            name,
            key_type,
            value_type,
            table,
        });
        Ok(self.tables.len() - 1)
    }

    /// The table called `name`, made if there is none.
    pub(crate) fn resolve(
        &self,
        name: &str,
        key_type: &TypeName,
        value_type: &TypeName,
    ) -> Result<Arc<OpenTable>> {
        let State { engine, worker, .. } = self;
        engine
            .catalog
            .resolve(worker, name, key_type, value_type, |record| {
                let logged = engine
                    .log
                    .insert(worker, record::TABLE, &[&record.encode()]);
                logged.map(|_| ()).map_err(|error| engine.log_failed(error))
            })
    }

    /// Encodes the key of the operation at hand.
    #[inline]
    pub(crate) fn set_key<K: Key + ?Sized>(&mut self, key: &K) -> Result<()> {
        self.key.clear();
        key.encode(&mut self.key);
        check_key(&self.key)
    }

    /// Encodes the value of the operation at hand.
    #[inline]
    pub(crate) fn set_value<V: Value + ?Sized>(&mut self, value: &V) -> Result<()> {
        self.value.clear();
        value.encode(&mut self.value);
        match self.value.len() {
            0..=MAX_VALUE_BYTES => Ok(()),
            bytes => Err(Request::ValueTooLong { bytes }.into()),
        }
    }

    /// Gives back what only an unusual transaction needs.
    pub(crate) fn shrink(&mut self) {
        self.key.shrink_to(KEPT_BYTES);
        self.value.shrink_to(KEPT_BYTES);
        self.scan.shrink();
        if self.tables.len() > KEPT_TABLES {
            self.tables.clear();
            self.ghosts.clear();
            self.read_by.clear();
            self.cached_indexes.clear();
        }
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    match key.len() {
        0..=MAX_KEY_BYTES => Ok(()),
        bytes => Err(Request::KeyTooLong { bytes }.into()),
    }
}

/// Asks for locks on one table, without waiting.
pub(crate) struct TableLocks<'a> {
    manager: &'a AnyManager,
    worker: &'a Worker,
    pub(crate) owner: &'a mut Owner,
    table: &'a OpenTable,
    patience: WaitMode,
    asks: Asks,
    scan: Scan,
    planted: Planted,
}

/// Which names are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    All,
    /// Those that no lock on a whole table covers.
    Uncovered,
    None,
}

impl<'a> TableLocks<'a> {
    #[inline]
    pub(crate) fn new(
        engine: &'a Engine,
        worker: &'a Worker,
        owner: &'a mut Owner,
        table: &'a OpenTable,
        wait: LockWait,
    ) -> TableLocks<'a> {
        let asks = match engine.options.locking {
            Locking::On if owner.has_escalated() => Asks::Uncovered,
            Locking::On => Asks::All,
            _ => Asks::None,
        };
        TableLocks {
            manager: &engine.locks,
            worker,
            owner,
            table,
            patience: wait.patience(),
            asks,
            scan: Scan::new(),
            planted: engine.options.planted(),
        }
    }

    /// Takes no locks if nothing is to be held.
    #[inline]
    pub(crate) fn with_duration(mut self, hold: LockDuration) -> TableLocks<'a> {
        if hold == LockDuration::None {
            self.asks = Asks::None;
        }
        self
    }

    /// Whether locks are taken at all.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.asks != Asks::None
    }

    /// Whether `name` need not be asked for.
    #[inline]
    fn is_covered(&self, name: Name, mode: Mode) -> bool {
        match self.asks {
            _ if self.planted.spares(mode, || self.owner.held_mode(name)) => true,
            Asks::All => false,
            Asks::Uncovered => self.owner.covers(name, mode),
            Asks::None => true,
        }
    }

    /// Asks for the table in `mode`. If that has brought the whole of it, its keys are spared from now on.
    pub(crate) fn lock_table_name(&mut self, name: Name, mode: Mode) -> Result<AttemptResult<()>> {
        let asked = self.lock(name, mode);
        if self.asks == Asks::All && self.owner.has_escalated() {
            self.asks = Asks::Uncovered;
        }
        asked
    }

    /// Asks for `name` in `mode`.
    #[inline]
    pub(crate) fn lock(&mut self, name: Name, mode: Mode) -> Result<AttemptResult<()>> {
        if self.is_covered(name, mode) {
            return Ok(AttemptResult::Done(()));
        }
        let reply = self
            .manager
            .request(self.worker, self.owner, name, mode, self.patience);
        self.answer(reply)
    }

    /// Says that `name` is about to be asked for.
    #[inline]
    pub(crate) fn prefetch(&self, name: Name) {
        if self.is_on() {
            self.manager.prefetch(name);
        }
    }

    /// Asks for a key that is let go of once it has been read, unless it was held before.
    pub(crate) fn lock_short(
        &mut self,
        short_lock: &ShortLock,
        name: Name,
        mode: Mode,
    ) -> Result<AttemptResult<()>> {
        // Not at the second attempt, after a wait: then it is held by the first.
        if self.owner.held_mode(name).is_none() {
            // After a wait an entry of an index may lead elsewhere than at the first attempt.
            self.release_short(short_lock);
            short_lock.note(name);
        }
        self.lock(name, mode)
    }

    /// Asks for a key; briefly, if there is a place to note it.
    #[inline]
    pub(crate) fn lock_for(
        &mut self,
        short_lock: Option<&ShortLock>,
        name: Name,
        mode: Mode,
    ) -> Result<AttemptResult<()>> {
        match short_lock {
            Some(short_lock) => self.lock_short(short_lock, name, mode),
            None => self.lock(name, mode),
        }
    }

    /// Lets go of the key that was asked for briefly.
    pub(crate) fn release_short(&mut self, short_lock: &ShortLock) {
        if let Some(name) = short_lock.take() {
            self.release(name);
        }
    }

    /// Asks for a key that a scan has come to.
    #[inline]
    pub(crate) fn lock_in_scan(&mut self, name: Name, mode: Mode) -> Result<AttemptResult<()>> {
        if self.is_covered(name, mode) {
            return Ok(AttemptResult::Done(()));
        }
        let (worker, scan) = (self.worker, &mut self.scan);
        let reply =
            self.manager
                .request_in_scan(worker, self.owner, scan, name, mode, self.patience);
        self.answer(reply)
    }

    /// Asks for all keys from `first` to `last`, and the gaps between. `false`: ask one by one.
    #[inline]
    pub(crate) fn cover(&mut self, first: Name, last: Name) -> bool {
        !self.planted.is_any()
            && self
                .manager
                .lock_range(self.worker, self.owner, first, last)
    }

    #[inline]
    fn answer(&self, reply: Reply) -> Result<AttemptResult<()>> {
        match reply {
            Reply::Granted | Reply::Held => Ok(AttemptResult::Done(())),
            Reply::Waiting => Ok(AttemptResult::Wait),
            Reply::Skipped => Err(Conflict::PASSED_OVER.into()),
            Reply::Refused(refusal) => Err(self.refused(*refusal)),
        }
    }

    #[cold]
    fn refused(&self, refusal: Refusal) -> Error {
        // A refusal without a wait has no cycle: it is all about this table, or the one it leads to.
        Conflict::refused(refusal, |space| self.table.call(space)).into()
    }

    /// Whether what was looked for is not looked at again once it is locked, which is wrong.
    #[inline(always)]
    pub(crate) fn looks_once(&self) -> bool {
        self.planted.is(Fault::LookedOnce)
    }

    /// Gives back a name that was only read.
    #[cold]
    pub(crate) fn release_shared(&mut self, name: Name) {
        let held = self.owner.held_mode(name);
        if held.is_some_and(|held| held.key_part() == KeyPart::S) {
            self.release(name);
        }
    }

    /// Gives one name back.
    pub(crate) fn release(&mut self, name: Name) {
        if self.is_on() {
            self.manager.release(self.worker, self.owner, name);
        }
    }
}
