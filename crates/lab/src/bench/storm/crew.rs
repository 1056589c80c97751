//! The threads of a storm.

use std::{
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use foxton_lock::{
    any::AnyManager,
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::Name,
    owner::Owner,
    request::{Outcome, RefusalReason, Reply, WaitMode},
};
use foxton_sync::{
    shim::Arc,
    worker::{Worker, Workers},
};

use super::{
    Storm, Wrong,
    journal::{Attempt, Begun, Clock, Journal},
};
use crate::{
    bench::alone,
    random::Random,
    threads::{Gate, NotStarted},
};

/// Settings of the threads.
#[derive(Debug, Clone)]
pub(super) struct Crew {
    pub(super) storm: Storm,
    pub(super) threads: u32,
    pub(super) rows: u32,
    pub(super) window: Duration,
    pub(super) least: u32,
    pub(super) at_once: bool,
    pub(super) seed: [u64; 2],
}

/// Results of all threads.
pub(super) struct Came {
    pub(super) journals: Vec<Journal>,
    pub(super) took: Duration,
    /// Deadlocks by the manager's count.
    pub(super) counted: u64,
}

struct World {
    crew: Crew,
    locks: AnyManager,
    workers: Workers,
    names: Vec<Name>,
    clock: Clock,
}

const TABLE: Name = Name::table(1);
const READ: Mode = Mode::key(KeyPart::S, GapPart::None);
const READ_FOR_UPDATE: Mode = Mode::key(KeyPart::U, GapPart::None);
const WRITE: Mode = Mode::key(KeyPart::X, GapPart::None);

/// The longest pause after a transaction was a victim for the first time, doubled each further
/// time.
const FIRST_PAUSE_MICROS: u64 = 50;
const LONGEST_PAUSE_MICROS: u64 = 20_000;
/// Time after the window without a thread returning; far longer than any machine needs.
const GRACE: Duration = Duration::from_secs(300);

/// The threads that have not returned.
pub(super) struct Out {
    world: Arc<World>,
    journals: Receiver<Result<Journal, Wrong>>,
    begun: Instant,
}

/// Starts the threads.
///
/// # Errors
///
/// If the system does not start all threads; then none runs.
pub(super) fn send(crew: Crew, locks: AnyManager) -> Result<Out, NotStarted> {
    let workers = Workers::with_seed(crew.seed[0]);
    let world = Arc::new(World {
        names: alone::names(0, crew.rows as usize),
        crew,
        locks,
        workers,
        clock: Clock::default(),
    });
    let (send, journals) = mpsc::channel();
    let gate = Arc::new(Gate::default());
    let wanted = world.crew.threads;
    for number in 0..wanted {
        let (world, send, worker) = (world.clone(), send.clone(), world.workers.worker());
        let own_gate = gate.clone();
        // Not scoped, so that a thread that hangs does not keep the run from ending with a report.
        let body = move || {
            if own_gate.wait() {
                let journal = world.client(&worker, number, Instant::now() + world.crew.window);
                // The receiver is gone only after another thread hung.
                let _ = send.send(journal);
            }
        };
        if let Err(cause) = thread::Builder::new().spawn(body) {
            gate.open(false);
            return Err(NotStarted {
                started: number as usize,
                wanted: wanted as usize,
                cause,
            });
        }
    }
    let begun = Instant::now();
    gate.open(true);
    Ok(Out {
        world,
        journals,
        begun,
    })
}

impl Out {
    /// Waits for all threads.
    pub(super) fn come_back(self) -> Result<Came, Wrong> {
        let world = self.world;
        let mut journals = Vec::new();
        for _ in 0..world.crew.threads {
            match self.journals.recv_timeout(world.crew.window + GRACE) {
                Ok(journal) => journals.push(journal?),
                Err(RecvTimeoutError::Timeout) => return Err(world.hangs()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Wrong("a thread of the storm has panicked".to_owned()));
                }
            }
        }
        let took = self.begun.elapsed();
        let worker = world.workers.worker();
        world.locks.verify(&worker);
        let left = world.locks.inspect(&worker);
        if !left.queues.is_empty() {
            return Err(Wrong(format!(
                "after all threads have ended, locks are left:\n{left}"
            )));
        }
        Ok(Came {
            journals,
            took,
            counted: world.locks.stats(&worker).deadlocks,
        })
    }
}

impl World {
    fn hangs(&self) -> Wrong {
        let seen = self.locks.inspect(&self.workers.worker());
        Wrong(format!(
            "no thread returned for {GRACE:?}; the waits are:\n{seen}"
        ))
    }

    /// The locks of a transaction, in order.
    fn plan(&self, random: &mut Random) -> Vec<(Name, Mode)> {
        let first = self.names[0];
        match self.crew.storm {
            Storm::Convert => vec![(TABLE, Mode::IX), (first, READ), (first, WRITE)],
            Storm::Update => vec![(TABLE, Mode::IX), (first, READ_FOR_UPDATE), (first, WRITE)],
            Storm::EveryRow => {
                let mut names = self.names.clone();
                random.shuffle(&mut names);
                let rows = names.into_iter().map(|name| (name, WRITE));
                std::iter::once((TABLE, Mode::IX)).chain(rows).collect()
            }
        }
    }

    fn client(&self, worker: &Worker, number: u32, end: Instant) -> Result<Journal, Wrong> {
        let [seed, rep] = self.crew.seed;
        let mut random = Random::seeded(&[seed, rep, number.into()]);
        let mut owner = self.locks.owner();
        let mut journal = Journal::default();
        while journal.commits < self.crew.least.into() || Instant::now() < end {
            let plan = self.plan(&mut random);
            let mut defeats = 0;
            loop {
                let mut attempt = Attempt::new(owner.begin(), defeats);
                owner.set_label(format!("storm {number}"));
                owner.set_defeats(defeats);
                let done = self.attempt(worker, &mut owner, &plan, &mut attempt);
                self.locks.release_all(worker, &mut owner);
                if !attempt.waits.is_empty() {
                    journal.attempts.push(attempt);
                }
                if done? {
                    break;
                }
                defeats += 1;
                if !self.crew.at_once {
                    let longest = FIRST_PAUSE_MICROS << defeats.min(10);
                    let pause = random.uniform(0, longest.min(LONGEST_PAUSE_MICROS));
                    thread::sleep(Duration::from_micros(pause));
                }
            }
            journal.commits += 1;
        }
        Ok(journal)
    }

    /// True if it got all of its locks; otherwise it was a victim.
    fn attempt(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        plan: &[(Name, Mode)],
        attempt: &mut Attempt,
    ) -> Result<bool, Wrong> {
        for &(name, mode) in plan {
            let held = owner.held_mode(name);
            let wanted = held.map_or(mode, |held| held.supremum(mode));
            let asked = self.clock.now();
            let reply = self
                .locks
                .request(worker, owner, name, mode, WaitMode::Wait);
            match reply {
                Reply::Granted | Reply::Held => {}
                Reply::Skipped => return Err(Wrong("skipped, although it was to wait".to_owned())),
                Reply::Refused(refusal) => return Err(Wrong(format!("without a wait: {refusal}"))),
                Reply::Waiting => {
                    let begun = Begun::new(attempt, (name, wanted), asked, self.clock.now());
                    let cycle = match self.locks.wait(worker, owner, None) {
                        Outcome::Granted | Outcome::Held => None,
                        Outcome::Refused(refusal) if refusal.reason == RefusalReason::Deadlock => {
                            Some(refusal.cycle)
                        }
                        Outcome::Refused(refusal) => {
                            return Err(Wrong(format!(
                                "refused without a request for that: {refusal}"
                            )));
                        }
                    };
                    let gave_way = cycle.is_some();
                    attempt.waits.push(begun.ended(self.clock.now(), cycle));
                    if gave_way {
                        return Ok(false);
                    }
                }
            }
            attempt.acquired.push((name, wanted));
            thread::yield_now();
        }
        Ok(true)
    }
}
