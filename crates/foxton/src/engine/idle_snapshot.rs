//! Idle snapshots: handles at which nobody reads, and which keep versions all the same.
//!
//! With [`Options::idle_timeout`](crate::Options::idle_timeout) each handle of a snapshot is in the
//! registry of [idle slots](super::idle_timeout). It is idle while no read at it goes on. If that
//! lasts too long, the snapshot is ended as one that keeps too much memory is: its versions are
//! collected, and its reads are refused.
//!
//! # Why no other snapshot is ended
//!
//! The place of a snapshot may be another one's once it is deregistered. The handle ends its entry
//! under the mutex before it deregisters, and the thread ends a snapshot under the mutex only.

use std::sync::{Arc, Weak};
use std::time::Instant;

use foxton_lock::request::OwnerId;
use foxton_log::Lsn;
use foxton_sync::shim::{self, Mutex};

use super::Engine;
use super::idle_timeout::IdleEntry;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct IdleSnapshot {
    engine: Weak<Engine>,
    place: u32,
    lsn: Lsn,
    state: Mutex<IdleState>,
}

#[derive(Debug)]
struct IdleState {
    /// Number of reads that go on.
    reads: u32,
    /// When the last read ended.
    since: Instant,
    /// True once the handle has ended the snapshot, or the thread has.
    is_over: bool,
}

impl IdleSnapshot {
    /// The entry of a snapshot that was just registered.
    pub(crate) fn new(engine: &Arc<Engine>, (lsn, place): (Lsn, u32)) -> IdleSnapshot {
        IdleSnapshot {
            place,
            lsn,
            state: Mutex::new(IdleState {
                reads: 0,
                since: engine.workers.clock().now(),
                is_over: false,
            }),
            engine: Arc::downgrade(engine),
        }
    }

    pub(crate) fn begin_read(&self) {
        // Site: "snapshot handle".
        shim::lock(&self.state).reads += 1;
    }

    pub(crate) fn end_read(&self, now: Instant) {
        // Site: "snapshot handle".
        let mut state = shim::lock(&self.state);
        state.reads -= 1;
        state.since = now;
    }

    /// Takes the snapshot from the thread, before it is deregistered.
    pub(crate) fn end(&self) {
        // Site: "snapshot handle".
        shim::lock(&self.state).is_over = true;
    }
}

impl IdleEntry for IdleSnapshot {
    fn end_if(&self, is_long: &dyn Fn(Instant) -> bool) -> Option<Instant> {
        // Site: "snapshot handle": the idle timeout thread.
        let mut state = shim::lock(&self.state);
        if state.is_over || state.reads > 0 {
            return None;
        }
        if !is_long(state.since) {
            return Some(state.since);
        }
        state.is_over = true;
        let engine = self.engine.upgrade()?;
        engine.snapshots.end_idle(self.place, self.lsn);
        None
    }

    fn idle(&self) -> Option<(OwnerId, Instant)> {
        None
    }
}
