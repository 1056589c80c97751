//! Many threads, few keys, and counters under each key that show whether the locks exclude
//! conflicting owners.

use foxton_lock::{
    any::{AnyManager, Options},
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::{Owner, Scan, WaitTicket},
    request::{Outcome, RefusalReason, Reply, WaitMode},
};
use foxton_sync::{
    anchor::{Anchors, LockAnchor},
    shim::{AtomicU64, Mutex, Ordering::Relaxed, lock},
    worker::{Worker, Workers},
};
use std::{
    fmt,
    io::{Write, stderr},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process::abort,
    sync::{Arc, Barrier},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

#[path = "pair.rs"]
mod pair;

use pair::Pair;

/// Parameters of a run.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) options: Options,
    pub(crate) threads: usize,
    pub(crate) keys: usize,
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
}

/// Results of a run.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) transactions: u64,
    pub(crate) deadlocks: u64,
    pub(crate) timeouts: u64,
    pub(crate) busy: u64,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            transactions,
            deadlocks,
            timeouts,
            busy,
        } = self;
        write!(
            f,
            "{transactions} done, {deadlocks} deadlocks, {timeouts} timeouts, {busy} busy"
        )
    }
}

struct World {
    locks: AnyManager,
    pairs: Vec<Pair>,
    names: Vec<Name>,
    /// For every other key.
    anchors: Anchors,
    writes: AtomicU64,
}

const TABLE: Name = Name::table(1);

impl World {
    fn new(settings: &Settings) -> Self {
        let hasher = KeyHasher::new(settings.seed);
        let key = |at: usize| Name::key(1, &at.to_be_bytes(), &hasher);
        Self {
            locks: AnyManager::new(&settings.options),
            pairs: (0..settings.keys).map(|_| Pair::default()).collect(),
            names: (0..settings.keys).map(key).collect(),
            anchors: Anchors::free(settings.keys / 2),
            writes: AtomicU64::new(0),
        }
    }

    /// Runs under the locks that `owner` holds.
    fn work(&self, worker: &Worker, owner: &Owner) {
        let whole = owner.held_mode(TABLE).filter(|&mode| mode == Mode::X);
        for (pair, &name) in self.pairs.iter().zip(&self.names) {
            let held = owner.held_mode(name);
            match held.map_or(KeyPart::None, Mode::key_part) {
                KeyPart::X => {
                    pair.write(worker, held.expect("a mode with a key part"));
                    self.writes.fetch_add(1, Relaxed);
                }
                _ => {
                    if let Some(held) = held.or(whole) {
                        pair.read(held);
                    }
                }
            }
        }
    }

    /// Requests as a scan does.
    fn scan(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        scan: &mut Scan,
        (name, mode): (Name, Mode),
    ) -> Outcome {
        let target = (name, self.anchor(name));
        let reply = self
            .locks
            .request_in_scan(worker, owner, scan, target, mode, WaitMode::Wait);
        self.outcome(worker, owner, reply, None)
    }

    fn anchor(&self, name: Name) -> Option<&LockAnchor> {
        let at = self.names.iter().position(|&other| other == name)?;
        (at % 2 == 1).then(|| &self.anchors[at / 2])
    }

    /// As `LockManager::lock`, with the anchor of `name`, if it has one.
    fn lock(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, mode): (Name, Mode),
        deadline: Option<Instant>,
    ) -> Outcome {
        let reply = self.request(worker, owner, (name, mode), WaitMode::Wait);
        self.outcome(worker, owner, reply, deadline)
    }

    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, mode): (Name, Mode),
        patience: WaitMode,
    ) -> Reply {
        match self.anchor(name) {
            Some(anchor) => {
                let target = (name, anchor);
                self.locks
                    .request_anchored(worker, owner, target, mode, patience)
            }
            None => self.locks.request(worker, owner, name, mode, patience),
        }
    }

    fn outcome(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        reply: Reply,
        deadline: Option<Instant>,
    ) -> Outcome {
        match reply {
            Reply::Granted => Outcome::Granted,
            Reply::Held => Outcome::Held,
            Reply::Waiting => self.locks.wait(worker, owner, deadline),
            Reply::Skipped => unreachable!("it was not to be skipped"),
            Reply::Refused(refusal) => Outcome::Refused(refusal),
        }
    }

    /// Checks that no lock is left, and every write was made.
    fn check(&self, worker: &Worker) {
        self.locks.verify(worker);
        let left = self.locks.inspect(worker);
        assert!(left.queues.is_empty(), "L7: left behind\n{left}");
        // All threads are gone, which is more than any lock.
        let written: u64 = self.pairs.iter().map(|pair| pair.read(Mode::X)).sum();
        assert_eq!(written, self.writes.load(Relaxed), "a write was lost");
    }

    fn pick(&self, worker: &Worker) -> (Name, Mode) {
        let key = worker.random_below(self.names.len() as u64) as usize;
        let mode = match worker.random_below(6) {
            0 => Mode::key(KeyPart::U, GapPart::None),
            1 => Mode::key(KeyPart::S, GapPart::S),
            2 | 3 => Mode::S,
            _ => Mode::X,
        };
        (self.names[key], mode)
    }
}

/// Minimum rounds of each thread, however long it takes: on a busy machine a window may pass before
/// a thread has run at all, and then the test would show nothing.
const LEAST_ROUNDS: u32 = 10;

/// Threads that lock keys in random order and wait for them asleep: deadlocks, deadlines and
/// refusals all the time, and every wait ends. The starting thread watches them: if a sleeping
/// thread were forgotten, the test would hang and report nothing.
pub(crate) fn threads(settings: &Settings) -> Done {
    let world = World::new(settings);
    let workers = Workers::with_seed(settings.seed);
    let begin = Barrier::new(settings.threads);
    let transactions = AtomicU64::new(0);
    let progress = Progress::new();
    thread::scope(|scope| {
        for _ in 0..settings.threads {
            let worker = workers.worker();
            let (world, begin, transactions) = (&world, &begin, &transactions);
            let progress = &progress;
            scope.spawn(move || {
                let _at_work = AtWork(progress);
                let mut owner = world.locks.owner();
                begin.wait();
                let end = Instant::now() + settings.duration;
                let mut rounds = 0;
                while rounds < LEAST_ROUNDS || Instant::now() < end {
                    rounds += 1;
                    owner.begin();
                    let ended =
                        catch_unwind(AssertUnwindSafe(|| transaction(world, &worker, &mut owner)));
                    world.locks.cancel(&worker, &mut owner);
                    world.locks.release_all(&worker, &mut owner);
                    match ended {
                        Ok(committed) => transactions.fetch_add(u64::from(committed), Relaxed),
                        // No lock of a panicked thread is left, so that the panic is reported.
                        Err(violation) => resume_unwind(violation),
                    };
                    progress.rounds.fetch_add(1, Relaxed);
                }
            });
        }
        progress.watch(settings.threads as u64, &world, &workers.worker());
    });
    done(&world, &workers.worker(), transactions.into_inner())
}

/// Progress of all threads, and the thread that watches it.
struct Progress {
    rounds: AtomicU64,
    ended: AtomicU64,
    watcher: Thread,
}

/// A watched thread; dropping this records that it has ended, however that was.
struct AtWork<'p>(&'p Progress);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Relaxed);
        self.0.watcher.unpark();
    }
}

impl Progress {
    /// The calling thread will watch.
    fn new() -> Self {
        Self {
            rounds: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            watcher: thread::current(),
        }
    }

    /// Waits until `threads` threads have ended. If none makes progress for as long as [`LOST`]
    /// says, prints the wait-for graph and ends the process, because a sleeping thread cannot be
    /// made to panic.
    fn watch(&self, threads: u64, world: &World, worker: &Worker) {
        let (mut seen, mut last, mut looked) = ((0, 0), Instant::now(), Duration::ZERO);
        loop {
            let now = (self.rounds.load(Relaxed), self.ended.load(Relaxed));
            let (rounds, ended) = now;
            if ended == threads {
                break;
            }
            if now != seen {
                (seen, looked) = (now, Duration::ZERO);
            }
            if looked >= LOST {
                // The inspecting thread may be held up itself, by a latch that is never dropped.
                thread::spawn(|| {
                    thread::sleep(Duration::from_secs(10));
                    abort();
                });
                // Bypasses the test harness, which keeps the output until an end that does not
                // come.
                let _ = writeln!(
                    stderr(),
                    "a thread was never woken: {ended} of {threads} have ended, after {rounds} rounds of all; left are"
                );
                let _ = writeln!(stderr(), "{}", world.locks.inspect(worker));
                abort();
            }
            thread::park_timeout(LOOK);
            looked += last.elapsed().min(LOOK);
            last = Instant::now();
        }
    }
}

fn done(world: &World, worker: &Worker, transactions: u64) -> Done {
    world.check(worker);
    let stats = world.locks.stats(worker);
    let (deadlocks, timeouts, busy) = (stats.deadlocks, stats.timeouts, stats.busy);
    Done {
        transactions,
        deadlocks,
        timeouts,
        busy,
    }
}

/// Returns true if all its locks were granted.
fn transaction(world: &World, worker: &Worker, owner: &mut Owner) -> bool {
    let table = if worker.random_below(200) == 0 {
        Mode::X
    } else {
        Mode::IX
    };
    if !world
        .locks
        .lock(worker, owner, TABLE, table, None)
        .is_held()
    {
        return false;
    }
    let mut scan = Scan::new();
    for _ in 0..1 + worker.random_below(4) {
        let (name, mode) = world.pick(worker);
        let outcome = match worker.random_below(10) {
            0 => {
                let reply = world.request(worker, owner, (name, mode), WaitMode::Refuse);
                world.outcome(worker, owner, reply, None)
            }
            1 => {
                let deadline = Instant::now() + Duration::from_millis(1);
                world.lock(worker, owner, (name, mode), Some(deadline))
            }
            2..5 => world.scan(worker, owner, &mut scan, (name, mode)),
            _ => world.lock(worker, owner, (name, mode), None),
        };
        if !outcome.is_held() {
            return false;
        }
    }
    world.work(worker, owner);
    true
}

/// A task's waker that only records its call.
#[derive(Debug, Default)]
struct Called(AtomicU64);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.store(1, Relaxed);
    }
}

struct Task {
    owner: Owner,
    called: Arc<Called>,
    waker: Waker,
    wanted: u64,
}

const TASKS: usize = 16;
/// Time after which a wait is lost, although everything that could end it has happened.
const LOST: Duration = Duration::from_secs(60);
/// Most time that one check counts for: while a process is suspended, or a thread does not run, no
/// thread checks.
const LOOK: Duration = Duration::from_secs(1);

/// Tasks, some per thread, whose futures are dropped at random and whose waits other threads end at
/// random. A task is polled only when its waker was called, so a lost wake-up would hang it. In the
/// end no future is dropped and no wait is ended any more, so that nothing else can help.
pub(crate) fn tasks(settings: &Settings) -> Done {
    let world = World::new(settings);
    let workers = Workers::with_seed(settings.seed);
    let tickets: Mutex<Vec<WaitTicket>> = Mutex::default();
    let transactions = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..settings.threads {
            let worker = workers.worker();
            let (world, tickets, transactions) = (&world, &tickets, &transactions);
            scope.spawn(move || {
                let mut tasks: Vec<Task> = (0..TASKS).map(|_| new_task(world)).collect();
                let end = Instant::now() + settings.duration;
                let (mut running, mut rounds) = (true, 0);
                let (mut last, mut looked) = (end, Duration::ZERO);
                while running || tasks.iter().any(|task| task.owner.is_waiting()) {
                    let now = Instant::now();
                    running = rounds < LEAST_ROUNDS || now < end;
                    if !running {
                        looked += now.saturating_duration_since(last).min(LOOK);
                        assert!(looked < LOST, "a task was never woken");
                        last = now;
                    }
                    rounds += 1;
                    for task in &mut tasks {
                        let done = turn(world, &worker, task, tickets, running);
                        transactions.fetch_add(u64::from(done), Relaxed);
                    }
                    if running {
                        interrupt(world, &worker, tickets);
                    }
                    thread::yield_now();
                }
                for task in &mut tasks {
                    world.locks.release_all(&worker, &mut task.owner);
                }
            });
        }
    });
    done(&world, &workers.worker(), transactions.into_inner())
}

fn new_task(world: &World) -> Task {
    let called = Arc::new(Called::default());
    let waker = Waker::from(called.clone());
    Task {
        owner: world.locks.owner(),
        called,
        waker,
        wanted: 0,
    }
}

/// Runs one turn of one task; returns true if a transaction ended with its locks.
fn turn(
    world: &World,
    worker: &Worker,
    task: &mut Task,
    tickets: &Mutex<Vec<WaitTicket>>,
    running: bool,
) -> bool {
    let Task {
        owner,
        called,
        waker,
        wanted,
    } = task;
    if owner.is_waiting() {
        if running && worker.random_below(64) == 0 {
            world.locks.cancel(worker, owner);
            world.locks.release_all(worker, owner);
            *wanted = 0;
        } else if called.0.swap(0, Relaxed) == 1 {
            match world
                .locks
                .poll_wait(worker, owner, &mut Context::from_waker(waker))
            {
                Poll::Ready(Outcome::Refused(_)) => {
                    world.locks.release_all(worker, owner);
                    *wanted = 0;
                }
                Poll::Ready(_) | Poll::Pending => {}
            }
        }
        return false;
    }
    if owner.lock_count() as u64 >= *wanted {
        world.work(worker, owner);
        world.locks.release_all(worker, owner);
        owner.begin();
        let ended_well = *wanted > 0;
        *wanted = if running {
            1 + worker.random_below(4)
        } else {
            0
        };
        return ended_well;
    }
    if !running {
        *wanted = 0;
        return false;
    }
    let (name, mode) = world.pick(worker);
    called.0.store(0, Relaxed);
    if let Reply::Waiting = world
        .locks
        .request(worker, owner, name, mode, WaitMode::Wait)
    {
        lock(tickets).push(owner.wait_ticket().expect("a wait"));
        // The first poll registers the waker; if the wait has ended by then, it returns the
        // outcome.
        if let Poll::Ready(Outcome::Refused(_)) =
            world
                .locks
                .poll_wait(worker, owner, &mut Context::from_waker(waker))
        {
            world.locks.release_all(worker, owner);
            *wanted = 0;
        }
    }
    false
}

/// Ends some open wait.
fn interrupt(world: &World, worker: &Worker, tickets: &Mutex<Vec<WaitTicket>>) {
    let ticket = {
        let mut tickets = lock(tickets);
        let kept = tickets.len().saturating_sub(256);
        tickets.drain(..kept);
        let count = tickets.len() as u64;
        (count > 0).then(|| tickets.swap_remove(worker.random_below(count) as usize))
    };
    if let Some(ticket) = ticket {
        world
            .locks
            .end_wait(worker, ticket, RefusalReason::TimedOut);
    }
}
