//! A manager of which one thread plays all owners, so that there is neither time nor chance in it.
//! A waiter sleeps until it is polled.

#![allow(dead_code, unreachable_pub, reason = "each test uses what it needs")]

use foxton_lock::{
    any::{AnyManager, ManagerKind, Options},
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::Owner,
    request::{Outcome, Reply, WaitMode},
};
use foxton_sync::worker::{Worker, Workers};
use std::task::{Context, Poll, Waker};

pub const READ: Mode = Mode::key(KeyPart::S, GapPart::None);
pub const UPDATE: Mode = Mode::key(KeyPart::U, GapPart::None);
pub const WRITE: Mode = Mode::key(KeyPart::X, GapPart::None);

pub struct Table {
    pub locks: AnyManager,
    pub worker: Worker,
    hasher: KeyHasher,
    _workers: Workers,
}

impl Table {
    pub fn new(kind: ManagerKind) -> Self {
        let mut options = Options::tiny();
        options.kind = kind;
        Self::with(&options)
    }

    pub fn with(options: &Options) -> Self {
        let workers = Workers::with_seed(1);
        Self {
            locks: AnyManager::new(options),
            worker: workers.worker(),
            hasher: KeyHasher::new(1),
            _workers: workers,
        }
    }

    pub fn name(&self, key: u32) -> Name {
        Name::key(1, &key.to_be_bytes(), &self.hasher)
    }

    /// Returns an owner with the locks that a key needs above it.
    pub fn owner(&self) -> Owner {
        let mut owner = self.locks.owner();
        let (worker, table) = (&self.worker, Name::table(1));
        let outcome = self.locks.try_lock(worker, &mut owner, table, Mode::IX);
        assert!(outcome.is_held());
        owner
    }

    /// Returns true if the request is granted at once; if not, it waits.
    pub fn asks(&self, owner: &mut Owner, name: Name, mode: Mode) -> bool {
        match self.request(owner, name, mode, WaitMode::Wait) {
            Reply::Granted => true,
            Reply::Waiting => false,
            reply => panic!("{reply:?}"),
        }
    }

    pub fn request(&self, owner: &mut Owner, name: Name, mode: Mode, patience: WaitMode) -> Reply {
        let reply = (self.locks).request(&self.worker, owner, name, mode, patience);
        self.locks.verify(&self.worker);
        reply
    }

    /// Wakes a waiter.
    pub fn polled(&self, owner: &mut Owner) -> Poll<Outcome> {
        let mut context = Context::from_waker(Waker::noop());
        self.locks.poll_wait(&self.worker, owner, &mut context)
    }

    /// Wakes a waiter, and returns true if it has its lock.
    pub fn is_granted(&self, owner: &mut Owner) -> bool {
        match self.polled(owner) {
            Poll::Pending => false,
            Poll::Ready(Outcome::Granted) => true,
            Poll::Ready(outcome) => panic!("{outcome:?}"),
        }
    }

    pub fn end(&self, mut owner: Owner) {
        self.locks.release_all(&self.worker, &mut owner);
        self.locks.verify(&self.worker);
    }

    pub fn nobody_is_left(&self) {
        assert!(self.locks.inspect(&self.worker).queues.is_empty());
    }
}
