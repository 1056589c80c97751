//! Locks that each transaction of a storm held and requested, and when.

use std::time::{Duration, Instant};

use foxton_lock::{
    mode::Mode,
    name::Name,
    request::{DeadlockMember, OwnerId},
};
use foxton_sync::shim::{AtomicU64, Ordering::Relaxed};

/// Numbers moments: each reading is later than every reading that ended before it began.
#[derive(Debug, Default)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    pub(super) fn now(&self) -> u64 {
        // Relaxed: changes of one word have one order, which agrees with every other order of two
        // of them.
        self.0.fetch_add(1, Relaxed)
    }
}

/// A request that had to wait.
#[derive(Debug, Clone)]
pub(super) struct Wait {
    /// The name, and the mode in which it would be held.
    pub(super) awaited: (Name, Mode),
    /// The number of acquisitions of the attempt before it.
    pub(super) acquired: usize,
    /// Moments before the request, once it was queued, and after the wait.
    pub(super) asked: u64,
    pub(super) stood: u64,
    pub(super) ended: u64,
    /// The time that the thread slept.
    pub(super) slept: Duration,
    /// The cycle, if it was the victim.
    pub(super) cycle: Option<Vec<DeadlockMember>>,
}

/// One attempt of one transaction.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) owner: OwnerId,
    /// The number of times the transaction had been a victim before.
    pub(super) defeats: u32,
    /// Its locks in order; a conversion has the mode it led to.
    pub(super) acquired: Vec<(Name, Mode)>,
    /// Its waits, in order.
    pub(super) waits: Vec<Wait>,
}

impl Attempt {
    pub(super) fn new(owner: OwnerId, defeats: u32) -> Attempt {
        Attempt {
            owner,
            defeats,
            acquired: Vec::new(),
            waits: Vec::new(),
        }
    }

    /// The mode in which it held `name` while it waited.
    pub(super) fn held_during(&self, wait: &Wait, name: Name) -> Option<Mode> {
        let before = &self.acquired[..wait.acquired];
        let last = before.iter().rev().find(|(held, _)| *held == name);
        last.map(|&(_, mode)| mode)
    }

    /// The number of names it held while it waited.
    pub(super) fn count_during(&self, wait: &Wait) -> usize {
        let before = &self.acquired[..wait.acquired];
        let first = |at: &usize| !before[..*at].iter().any(|held| held.0 == before[*at].0);
        (0..before.len()).filter(first).count()
    }

    /// The wait for this name in this mode.
    pub(super) fn wait_for(&self, awaited: (Name, Mode)) -> Option<&Wait> {
        self.waits.iter().find(|wait| wait.awaited == awaited)
    }
}

/// Record of one thread.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) commits: u64,
    /// Attempts that had to wait; others are in no cycle.
    pub(super) attempts: Vec<Attempt>,
}

/// A wait that has begun.
pub(super) struct Begun {
    wait: Wait,
    since: Instant,
}

impl Begun {
    /// It has been queued since `stood`, or shortly before.
    pub(super) fn new(attempt: &Attempt, awaited: (Name, Mode), asked: u64, stood: u64) -> Begun {
        let wait = Wait {
            awaited,
            acquired: attempt.acquired.len(),
            asked,
            stood,
            ended: stood,
            slept: Duration::ZERO,
            cycle: None,
        };
        Begun {
            wait,
            since: Instant::now(),
        }
    }

    /// It has ended, granted or not.
    pub(super) fn ended(self, ended: u64, cycle: Option<Vec<DeadlockMember>>) -> Wait {
        Wait {
            ended,
            slept: self.since.elapsed(),
            cycle,
            ..self.wait
        }
    }
}
