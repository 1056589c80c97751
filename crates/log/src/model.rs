//! The waiters, for the model checker alone: `tests/loom_waiters.rs`.

use foxton_sync::latch::Kind;
use foxton_sync::worker::Worker;

use crate::lsn::Lsn;
use crate::waiters::{Reach, Waiters};

/// How far a log without a device is durable.
#[derive(Debug)]
pub struct Horizon(Waiters);

impl Default for Horizon {
    fn default() -> Self {
        Horizon(Waiters::new(Kind::Parking, Lsn::ZERO))
    }
}

impl Horizon {
    /// Makes the log durable up to `lsn`, as far as its waiters are concerned.
    pub fn reach(&self, worker: &Worker, lsn: Lsn) {
        self.0.advance(Reach::Durable, lsn);
        self.0.reached(worker, Reach::Durable, lsn);
    }

    /// Waits until it is durable up to `lsn`.
    pub fn wait(&self, worker: &Worker, lsn: Lsn) {
        if self.0.far(Reach::Durable) >= lsn {
            return;
        }
        let wait = self.0.enter(worker, Reach::Durable, lsn, || false);
        if let Some((parker, ticket)) = wait {
            parker.wait(ticket, None);
        }
    }
}
