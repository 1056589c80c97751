//! A lock manager alone: one owner asks for keys of one table and gives all back, over and over.

use std::time::{Duration, Instant};

use foxton_lock::{
    any::AnyManager,
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::Owner,
    request::{Reply, WaitMode},
};
use foxton_sync::worker::{Worker, Workers};

/// The table whose keys are locked.
const TABLE: u32 = 1;
/// Passes between two looks at the clock, so that looking costs nothing.
const PASSES: usize = 10_000;

/// A lock manager, one owner, and names to lock.
#[derive(Debug)]
pub struct Alone {
    manager: AnyManager,
    worker: Worker,
    owner: Owner,
    names: Vec<Name>,
    // Last: the worker is one of these.
    workers: Workers,
}

/// Nanoseconds for a lock and for giving it back.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Nanos {
    /// To ask for it.
    pub lock: f64,
    /// To give it back.
    pub unlock: f64,
}

impl Alone {
    /// This manager, to be asked for at most so many keys at once.
    pub fn new(manager: AnyManager, largest: usize) -> Alone {
        Alone::over(manager, names(0, largest))
    }

    /// The same, but between two of its keys there is one that is free for a stranger.
    pub fn spaced(manager: AnyManager, largest: usize) -> Alone {
        Alone::over(manager, every_other(0, largest))
    }

    /// This manager, to be asked for these names.
    pub fn over(manager: AnyManager, names: Vec<Name>) -> Alone {
        let workers = Workers::new();
        Alone {
            owner: manager.owner(),
            worker: workers.worker(),
            names,
            manager,
            workers,
        }
    }

    /// Bytes of the manager by its own count.
    pub fn counted_bytes(&self) -> usize {
        self.manager.stats(&self.worker).memory_bytes
    }

    /// Asks for so many keys.
    pub fn take(&mut self, held: usize) {
        let mode = Mode::key(KeyPart::S, GapPart::None);
        for at in 0..held {
            self.ask(self.names[at], mode);
        }
    }

    /// Gives all back.
    pub fn give_back(&mut self) {
        self.manager.release_all(&self.worker, &mut self.owner);
    }

    fn ask(&mut self, name: Name, mode: Mode) {
        let (manager, worker) = (&self.manager, &self.worker);
        let reply = manager.request(worker, &mut self.owner, name, mode, WaitMode::Refuse);
        assert!(matches!(reply, Reply::Granted), "nobody else locks here");
    }

    /// Asks for so many keys and gives them back.
    pub fn round(&mut self, held: usize) {
        self.take(held);
        self.give_back();
    }

    /// Nanoseconds for one lock and its release, with so many held at once.
    pub fn nanos_a_lock(&mut self, held: usize, window: Duration) -> f64 {
        self.nanos(held, window, |this| this.round(held))
    }

    /// The same for a lock on a table with S, alone.
    pub fn nanos_a_table(&mut self, window: Duration) -> f64 {
        self.nanos(1, window, |this| {
            this.ask(Name::table(TABLE), Mode::S);
            this.give_back();
        })
    }

    /// The same for IS on a table, S on one of its keys, and giving both back.
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

    /// Asking and giving back apart. With few held at once the clock is a good part of it: it is
    /// looked at three times in each round.
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

    /// How often remembered locks were made real.
    pub fn revocations(&self) -> u64 {
        self.manager.stats(&self.worker).revocations
    }

    /// Another owner takes X on these keys, which nobody else asks for here, and keeps them until
    /// it is dismissed. Where weak locks are only remembered, those on [neighbours](every_other) of
    /// these are real.
    pub fn stranger(&self, names: &[Name]) -> Stranger {
        let (worker, mut owner) = (self.workers.worker(), self.manager.owner());
        let mode = Mode::key(KeyPart::X, GapPart::None);
        for &name in names {
            let reply = self
                .manager
                .request(&worker, &mut owner, name, mode, WaitMode::Refuse);
            assert!(matches!(reply, Reply::Granted), "nobody else locks these");
        }
        Stranger { worker, owner }
    }

    /// Another owner asks for X on so many of the keys that are held, and is refused each; how long
    /// that took. Where the locks held are only remembered, this makes them real.
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

    /// The stranger gives back what it has.
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

/// Names of so many keys of one table.
pub fn names(first: u32, count: usize) -> Vec<Name> {
    (first..first + count as u32).map(named()).collect()
}

/// The same, but every other key: between those from an even one lie those from an odd one.
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
    fn every_manager_is_measured_alone_and_beside_a_stranger() {
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
    fn beside_a_stranger_at_every_neighbour_nothing_is_remembered() {
        const HELD: usize = 100;
        let direct = "direct".parse::<Locks>().unwrap();
        let revoked = |with_stranger: bool| {
            let mut alone = Alone::spaced(System::new(direct, None).manager(), HELD);
            let stranger = with_stranger.then(|| alone.stranger(&every_other(1, HELD)));
            alone.take(HELD);
            let before = alone.revocations();
            // Whoever wants X makes real what is remembered there.
            alone.refuse_strangers(HELD);
            let revoked = alone.revocations() - before;
            alone.give_back();
            if let Some(stranger) = stranger {
                alone.dismiss(stranger);
            }
            revoked
        };
        assert!(revoked(false) > 0, "alone, locks are remembered");
        assert_eq!(revoked(true), 0);
    }
}
