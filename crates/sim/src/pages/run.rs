//! Random transactions, recorded.
//!
//! Clients take turns, step by step, as a seed draws. They add to shared things, and set things
//! that they have for themselves until they end. They set savepoints and roll back to them, commit
//! and roll back. In between, structure modifications move things from page to page, pages are
//! synced, checkpoints are made and the log is cut. If the log has a limit, changes are refused for
//! lack of space; then the client rolls back, and that must never be refused.
//!
//! The result must be the contents after some commit. Commits happen in the order of the log. So
//! the run keeps the contents after each commit, and the times of the acknowledgements.

use super::engine::{
    CLIENTS, COUNTERS, Contents, Done, Engine, OWN, PAGES, REGISTERS, Random, Setting, Trouble,
    all_things, open,
};
use super::page::{Back, Thing};
use super::pool::PoolError;
use super::wrong::wrong_rollback;
use foxton_log::Lsn;
use foxton_log::device::fault::{FaultDevice, Recording};
use foxton_store::paged::recovery::{PageId, PageSavepoint, PageTransaction, RecordPosition};

/// A client that runs transactions.
#[derive(Debug, Default)]
struct Client {
    transaction: PageTransaction,
    done: Vec<Done>,
    /// With the number of changes that it had made by then.
    savepoints: Vec<(PageSavepoint, usize)>,
    commits: i64,
    /// Records that it logged, for rolling back in its own way.
    trace: Vec<(PageId, RecordPosition, Back)>,
}

impl Client {
    fn forget(&mut self) {
        self.done.clear();
        self.savepoints.clear();
        self.trace.clear();
    }
}

/// A recorded run.
#[derive(Debug)]
pub struct Run {
    /// Its parameters.
    pub setting: Setting,
    pub(super) recording: Recording,
    /// The contents before the first commit, and after each.
    pub(super) states: Vec<Contents>,
    /// Number of changes recorded before the record of each commit was inserted.
    pub(super) begun: Vec<usize>,
    /// Acknowledged commits, counted from 1, and the number of changes recorded by then.
    pub(super) acknowledged: Vec<(usize, usize)>,
}

/// A run that is being recorded.
struct Recorder<'d> {
    device: &'d FaultDevice,
    setting: Setting,
    engine: Engine,
    random: Random,
    clients: Vec<Client>,
    states: Vec<Contents>,
    begun: Vec<usize>,
    acknowledged: Vec<(usize, usize)>,
}

impl Run {
    /// Records a run on a directory whose contents are `contents`. Opening it is part of the
    /// recording.
    ///
    /// # Errors
    ///
    /// If anything fails, or the contents are wrong.
    pub fn record(
        device: &FaultDevice,
        contents: Contents,
        setting: Setting,
    ) -> Result<Run, Trouble> {
        device.record();
        let engine = open(device, &setting)?;
        let clients = (0..CLIENTS).map(|client| Client {
            commits: contents
                .get(&(OWN + client as Thing))
                .copied()
                .unwrap_or_default(),
            ..Client::default()
        });
        let mut recorder = Recorder {
            device,
            setting,
            engine,
            random: Random::new(setting.seed),
            clients: clients.collect(),
            states: vec![contents],
            begun: Vec::new(),
            acknowledged: Vec::new(),
        };
        recorder.load()?;
        for _ in 0..setting.steps {
            recorder.step()?;
        }
        recorder.compare()?;
        let recording = device.recording().expect("it was recording");
        let Recorder {
            states,
            begun,
            acknowledged,
            ..
        } = recorder;
        Ok(Run {
            setting,
            recording,
            states,
            begun,
            acknowledged,
        })
    }

    /// Number of changes that were recorded.
    pub fn changes(&self) -> usize {
        self.recording.len()
    }

    /// Number of commits.
    pub fn commits(&self) -> usize {
        self.begun.len()
    }
}

impl Recorder<'_> {
    fn load(&mut self) -> Result<(), Trouble> {
        if self.states[0].is_empty() {
            let begun = self.device.recorded();
            let end = self.engine.load(&mut self.random)?;
            let loaded = all_things().map(|thing| (thing, 0)).collect();
            self.committed(begun, loaded, end, true)?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Trouble> {
        let client = self.random.below(CLIENTS as u64) as usize;
        let outcome = match self.random.below(100) {
            0..2 => self.engine.pool.sync(),
            2..4 => self.engine.pool.steal(),
            4..7 => {
                if self.random.below(2) == 0 {
                    self.engine.pool.sync()?;
                }
                let cuts = self.setting.cuts_log();
                return self.engine.checkpoint(self.device, cuts);
            }
            7..60 => self.change(client),
            60..68 if !self.setting.own_rollback() => self.move_thing(),
            68..76 => self.set_savepoint(client),
            76..81 => return self.go_back(client),
            81..93 => return self.commit(client),
            _ => return self.rollback(client),
        };
        match outcome {
            Err(PoolError::NoRoom) => self.rollback(client),
            other => Ok(other?),
        }
    }

    fn change(&mut self, client: usize) -> Result<(), PoolError> {
        let random = &mut self.random;
        let register = REGISTERS.start + random.below(REGISTERS.len() as u64) as Thing;
        let is_free = |other: &Client| other.done.iter().all(|done| done.thing() != register);
        let mut others = self.clients.iter().enumerate();
        let may_set = others.all(|(index, other)| index == client || is_free(other));
        let value = random.below(1000) as i64 + 1;
        let done = if may_set && random.below(2) == 0 {
            Done::Set(register, value)
        } else {
            Done::Add(random.below(COUNTERS.end.into()) as Thing, value)
        };
        self.apply(client, done)
    }

    fn apply(&mut self, client: usize, done: Done) -> Result<(), PoolError> {
        let client = &mut self.clients[client];
        let trace = self.engine.apply(&mut client.transaction, done)?;
        client.done.push(done);
        client.trace.push(trace);
        Ok(())
    }

    fn move_thing(&mut self) -> Result<(), PoolError> {
        let thing = self.random.below(REGISTERS.end.into()) as Thing;
        let to = PageId(self.random.below(PAGES));
        self.engine.move_thing(thing, to)
    }

    fn set_savepoint(&mut self, client: usize) -> Result<(), PoolError> {
        let client = &mut self.clients[client];
        let now = client.transaction.savepoint();
        client.savepoints.push((now, client.done.len()));
        Ok(())
    }

    fn go_back(&mut self, client: usize) -> Result<(), Trouble> {
        let client = &mut self.clients[client];
        let count = client.savepoints.len() as u64;
        if count == 0 || self.setting.own_rollback() {
            return Ok(());
        }
        let index = self.random.below(count) as usize;
        let (savepoint, done) = client.savepoints[index];
        client.savepoints.truncate(index + 1);
        client.done.truncate(done);
        let Engine {
            recovered,
            worker,
            pool,
            ..
        } = &self.engine;
        let transaction = &mut client.transaction;
        recovered
            .recovery
            .rollback_to(worker, transaction, savepoint, pool)?;
        self.compare()
    }

    fn commit(&mut self, client: usize) -> Result<(), Trouble> {
        let next = self.clients[client].commits + 1;
        let own = Done::Set(OWN + client as Thing, next);
        match self.apply(client, own) {
            Err(PoolError::NoRoom) => return self.rollback(client),
            other => other?,
        }
        let begun = self.device.recorded();
        let client = &mut self.clients[client];
        let end = self.engine.commit(&mut client.transaction)?;
        client.commits = next;
        let mut contents = self.states.last().expect("there is one").clone();
        client
            .done
            .iter()
            .for_each(|done| done.apply(&mut contents));
        client.forget();
        let waits = self.random.below(2) == 0;
        self.committed(
            begun,
            contents,
            end.ok_or("it has changed something")?,
            waits,
        )
    }

    fn committed(
        &mut self,
        begun: usize,
        contents: Contents,
        end: Lsn,
        waits: bool,
    ) -> Result<(), Trouble> {
        self.begun.push(begun);
        self.states.push(contents);
        if waits {
            self.engine.wait(end)?;
            let told = (self.begun.len(), self.device.recorded());
            self.acknowledged.push(told);
        }
        self.within_limit()
    }

    fn rollback(&mut self, client: usize) -> Result<(), Trouble> {
        let own = self.setting.own_rollback();
        let client = &mut self.clients[client];
        if own {
            let trace = std::mem::take(&mut client.trace);
            client.transaction = PageTransaction::new();
            wrong_rollback(&self.engine, self.setting.fault, &trace)?;
        } else {
            self.engine.rollback(&mut client.transaction)?;
        }
        client.forget();
        self.compare()?;
        self.within_limit()
    }

    /// Checks that no space was promised twice.
    fn within_limit(&self) -> Result<(), Trouble> {
        let (end, limit) = (self.engine.log_end(), self.engine.limit);
        if end > limit {
            return Err(format!("the log ends at {end}, beyond its limit {limit}").into());
        }
        let free = self.engine.recovered.recovery.space().free();
        let idle = self.clients.iter().all(|c| !c.transaction.has_begun());
        let exact = limit == Lsn::MAX || limit.since(end) == free;
        if idle && !exact && !self.setting.own_rollback() {
            return Err(format!("{free} bytes are free from {end} to {limit}").into());
        }
        Ok(())
    }

    /// Checks that the pages hold the committed and the current changes.
    fn compare(&self) -> Result<(), Trouble> {
        let mut expected = self.states.last().expect("there is one").clone();
        let under_way = self.clients.iter().flat_map(|client| &client.done);
        under_way.for_each(|done| done.apply(&mut expected));
        let found = self.engine.pool.things()?;
        if found != expected {
            return Err(format!("found {found:?}, expected {expected:?}").into());
        }
        Ok(())
    }
}
