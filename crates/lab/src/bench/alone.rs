//! A lock manager alone: one owner locks keys of one table and releases all, over and over.

use std::time::{Duration, Instant};

use foxton_lock::{
    any::AnyManager,
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::Owner,
    request::{Reply, WaitMode},
};
use foxton_sync::{
    anchor::Anchors,
    worker::{Worker, Workers},
};

/// The table whose keys are locked.
const TABLE: u32 = 1;
/// Passes between two readings of the clock, so that reading it costs nothing.
const PASSES: usize = 10_000;

/// A lock manager, one owner, and names to lock.
#[derive(Debug)]
pub struct Alone {
    manager: AnyManager,
    worker: Worker,
    owner: Owner,
    names: Vec<Name>,
    /// The words of the keys' records, if the keys have records.
    anchors: Option<Anchors>,
    // Dropped last: the worker belongs to these.
    workers: Workers,
}

/// Nanoseconds for a lock and for its release.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Nanos {
    /// Time of the request.
    pub lock: f64,
    /// Time of the release.
    pub unlock: f64,
}

impl Alone {
    /// A test of this manager with at most this many keys locked at once.
    pub fn new(manager: AnyManager, largest: usize) -> Alone {
        Alone::over(manager, names(0, largest))
    }

    /// The same, but every second key is left free for another owner.
    pub fn spaced(manager: AnyManager, largest: usize) -> Alone {
        Alone::over(manager, every_other(0, largest))
    }

    /// A test of this manager with these names.
    pub fn over(manager: AnyManager, names: Vec<Name>) -> Alone {
        let workers = Workers::new();
        Alone {
            owner: manager.owner(),
            worker: workers.worker(),
            names,
            anchors: None,
            manager,
            workers,
        }
    }

    /// The same, but each key has a record, in which its lock may be.
    pub fn with_records(self) -> Alone {
        let anchors = Some(Anchors::free(self.names.len()));
        Alone { anchors, ..self }
    }

    /// Bytes of the manager by its own count.
    pub fn counted_bytes(&self) -> usize {
        self.manager.stats(&self.worker).memory_bytes
    }

    /// Locks this many keys.
    pub fn take(&mut self, held: usize) {
        let mode = Mode::key(KeyPart::S, GapPart::None);
        match &self.anchors {
            None => (0..held).for_each(|at| self.ask(self.names[at], mode)),
            Some(anchors) => {
                let (manager, worker) = (&self.manager, &self.worker);
                for (&name, anchor) in self.names[..held].iter().zip(anchors.iter()) {
                    let (owner, target) = (&mut self.owner, (name, anchor));
                    let wait = WaitMode::Refuse;
                    let reply = manager.request_anchored(worker, owner, target, mode, wait);
                    assert!(matches!(reply, Reply::Granted), "there is no other owner");
                }
            }
        }
    }

    /// Releases all locks.
    pub fn give_back(&mut self) {
        self.manager.release_all(&self.worker, &mut self.owner);
    }

    fn ask(&mut self, name: Name, mode: Mode) {
        let (manager, worker) = (&self.manager, &self.worker);
        let reply = manager.request(worker, &mut self.owner, name, mode, WaitMode::Refuse);
        assert!(matches!(reply, Reply::Granted), "there is no other owner");
    }

    /// Locks this many keys and releases them.
    pub fn round(&mut self, held: usize) {
        self.take(held);
        self.give_back();
    }

    /// Nanoseconds for one lock and its release, with this many held at once.
    pub fn nanos_a_lock(&mut self, held: usize, window: Duration) -> f64 {
        self.nanos(held, window, |this| this.round(held))
    }

    /// Nanoseconds for S on a table and its release, alone.
    pub fn nanos_a_table(&mut self, window: Duration) -> f64 {
        self.nanos(1, window, |this| {
            this.ask(Name::table(TABLE), Mode::S);
            this.give_back();
        })
    }

    /// Nanoseconds for IS on a table, S on one of its keys, and the release of both.
    pub fn nanos_a_first_key(&mut self, window: Duration) -> f64 {
        self.nanos(1, window, |this| {
            this.ask(Name::table(TABLE), Mode::IS);
            this.round(1);
        })
    }

    fn nanos(&mut self, held: usize, window: Duration, mut round: impl FnMut(&mut Alone)) -> f64 {
        let batch = (PASSES / held).max(1);
        round(self);
        let (began, mut rounds) = (Instant::now(), 0usize);
        while began.elapsed() < window || rounds == 0 {
            (0..batch).for_each(|_| round(self));
            rounds += batch;
        }
        began.elapsed().as_nanos() as f64 / (rounds * held) as f64
    }

    /// Nanoseconds of requests and of releases. With few locks held at once reading the clock is a
    /// large part of it: three readings in each round.
    pub fn nanos_apart(&mut self, held: usize, window: Duration) -> Nanos {
        self.round(held);
        let (began, mut rounds) = (Instant::now(), 0usize);
        let (mut lock, mut unlock) = (Duration::ZERO, Duration::ZERO);
        while began.elapsed() < window || rounds == 0 {
            let asked = Instant::now();
            self.take(held);
            let had = Instant::now();
            self.give_back();
            unlock += had.elapsed();
            lock += had - asked;
            rounds += 1;
        }
        let each = |time: Duration| time.as_nanos() as f64 / (rounds * held) as f64;
        Nanos {
            lock: each(lock),
            unlock: each(unlock),
        }
    }

    /// Number of times remembered locks were made real.
    pub fn revocations(&self) -> u64 {
        self.manager.stats(&self.worker).revocations
    }

    /// Lets another owner take X on these keys, which no request here conflicts with, until it is
    /// dismissed. If a manager only remembers weak locks, those on [neighbours](every_other) of
    /// these keys are real.
    pub fn stranger(&self, names: &[Name]) -> Stranger {
        let (worker, mut owner) = (self.workers.worker(), self.manager.owner());
        let mode = Mode::key(KeyPart::X, GapPart::None);
        for &name in names {
            let reply = self
                .manager
                .request(&worker, &mut owner, name, mode, WaitMode::Refuse);
            assert!(
                matches!(reply, Reply::Granted),
                "no other owner locks these"
            );
        }
        Stranger { worker, owner }
    }

    /// Lets another owner request X on this many of the held keys, and returns the time; each is
    /// refused. If a manager only remembers the held locks, this makes them real.
    ///
    /// # Panics
    ///
    /// If any is not held.
    pub fn refuse_strangers(&self, held: usize) -> Duration {
        let (worker, mut owner) = (self.workers.worker(), self.manager.owner());
        let mode = Mode::key(KeyPart::X, GapPart::None);
        let began = Instant::now();
        for &name in &self.names[..held] {
            let reply = self
                .manager
                .request(&worker, &mut owner, name, mode, WaitMode::Refuse);
            assert!(matches!(reply, Reply::Refused(_)), "it is held");
        }
        began.elapsed()
    }

    /// Releases the locks of the other owner.
    pub fn dismiss(&self, mut stranger: Stranger) {
        self.manager
            .release_all(&stranger.worker, &mut stranger.owner);
    }
}

/// Another owner, with locks of its own.
#[derive(Debug)]
#[must_use = "it keeps its locks until it is dismissed"]
pub struct Stranger {
    worker: Worker,
    owner: Owner,
}

/// Names of this many keys of one table.
pub fn names(first: u32, count: usize) -> Vec<Name> {
    (first..first + count as u32).map(named()).collect()
}

/// Names of every other key: those from an odd key lie between those from an even one.
pub fn every_other(first: u32, count: usize) -> Vec<Name> {
    let keys = (first..).step_by(2).take(count);
    keys.map(named()).collect()
}

fn named() -> impl FnMut(u32) -> Name {
    let hasher = KeyHasher::new(1);
    move |key| Name::key(TABLE, &key.to_be_bytes(), &hasher)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::{Locks, System};

    #[test]
    fn every_manager_is_measured_alone_and_with_another_owner() {
        let short = Duration::from_millis(1);
        for kind in foxton::LockManagerKind::ALL {
            let system = System::new(Locks::Manager(kind), None);
            let mut alone = Alone::new(system.manager(), 20);
            assert!(alone.nanos_a_lock(10, short) > 0.0, "{kind}");
            alone.take(10);
            assert!(alone.refuse_strangers(10) > Duration::ZERO, "{kind}");
            alone.give_back();
            let stranger = alone.stranger(&names(20, 50));
            let apart = alone.nanos_apart(20, short);
            assert!(apart.lock > 0.0 && apart.unlock > 0.0, "{kind}");
            alone.dismiss(stranger);
            assert!(alone.nanos_a_table(short) > 0.0 && alone.nanos_a_first_key(short) > 0.0);
        }
    }

    #[test]
    fn with_another_owner_at_every_neighbour_no_lock_is_remembered() {
        for name in ["direct", "direct:table"] {
            assert!(revoked(name, false) > 0, "alone, locks are remembered");
            assert_eq!(revoked(name, true), 0, "{name}");
        }
    }

    #[test]
    fn one_refused_request_makes_one_block_real_or_the_whole_table() {
        // Keys of a hundred, in four blocks of neighbours.
        assert_eq!(revoked("direct", false), 4);
        assert_eq!(revoked("direct:table", false), 1);
    }

    /// Returns how often locks on a hundred keys are made real by requests for them.
    fn revoked(name: &str, with_stranger: bool) -> u64 {
        const HELD: usize = 100;
        let locks = name.parse::<Locks>().unwrap();
        {
            let mut alone = Alone::spaced(System::new(locks, None).manager(), HELD);
            let stranger = with_stranger.then(|| alone.stranger(&every_other(1, HELD)));
            alone.take(HELD);
            let before = alone.revocations();
            // A request for X makes remembered locks real.
            alone.refuse_strangers(HELD);
            let revoked = alone.revocations() - before;
            alone.give_back();
            if let Some(stranger) = stranger {
                alone.dismiss(stranger);
            }
            revoked
        }
    }
}
