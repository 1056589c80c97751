//! Idle timeout: a thread that ends transactions which are idle for too long.
//!
//! # Registry
//!
//! It lists the idle slots of all contexts. A slot is added when a context is made, and not when a
//! transaction begins: so transactions do not contend for the registry.
//!
//! # Thread
//!
//! It inspects all slots when the transaction that is idle for longest may be due, and at most once
//! in each [`TICK`]. It keeps the engine alive only meanwhile.

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use foxton_lock::owner::OwnerId;
use foxton_sync::shim::{self, Condvar, Mutex};

use crate::engine::background::TICK;
use crate::engine::{Engine, own_thread};

/// Longest time between two inspections, for deadlines that the clock cannot express.
const LONG: Duration = Duration::from_secs(3600);

/// A slot in which a transaction may be idle.
pub(crate) trait IdleEntry: Send + Sync {
    /// Ends the transaction if it is idle and `is_long` says so of the time since when. Otherwise
    /// returns since when it is idle, if it is.
    fn end_if(&self, is_long: &dyn Fn(Instant) -> bool) -> Option<Instant>;

    /// Returns the owner that is idle here, and since when.
    fn idle(&self) -> Option<(OwnerId, Instant)>;
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct IdleRegistry(Mutex<Vec<Weak<dyn IdleEntry>>>);

impl fmt::Debug for IdleRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleRegistry").finish_non_exhaustive()
    }
}

impl IdleRegistry {
    /// Adds a slot, until it is dropped.
    pub(crate) fn insert(&self, entry: &Arc<impl IdleEntry + 'static>) {
        let entry: Weak<dyn IdleEntry> = Arc::downgrade(&(entry.clone() as Arc<dyn IdleEntry>));
        shim::lock(&self.0).push(entry);
    }

    /// Returns the slots that still exist. The registry is not locked while they are inspected.
    fn entries(&self) -> Vec<Arc<dyn IdleEntry>> {
        let mut entries = Vec::new();
        shim::lock(&self.0).retain(|entry| {
            let entry = entry.upgrade();
            let exists = entry.is_some();
            entries.extend(entry);
            exists
        });
        entries
    }

    /// Ends the transactions that are idle for too long. Returns since when the longest of the
    /// others is idle.
    fn end(&self, is_long: &dyn Fn(Instant) -> bool) -> Option<Instant> {
        let entries = self.entries();
        entries
            .iter()
            .filter_map(|entry| entry.end_if(is_long))
            .min()
    }

    /// Returns the owners that are idle, and since when.
    pub(crate) fn all(&self) -> Vec<(OwnerId, Instant)> {
        let entries = self.entries();
        entries.iter().filter_map(|entry| entry.idle()).collect()
    }
}

/// The running thread; dropping this stops it.
#[derive(Debug)]
pub(crate) struct IdleTimeoutThread {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl IdleTimeoutThread {
    /// Starts a thread that ends transactions of `engine` which have been idle for `timeout`.
    pub(crate) fn start(engine: &Arc<Engine>, timeout: Duration) -> io::Result<IdleTimeoutThread> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (shared, engine) = (stop.clone(), Arc::downgrade(engine));
        let thread = thread::Builder::new()
            .name("foxton-idle".into())
            .spawn(move || {
                while let Some(pause) = end_idle(&engine, timeout) {
                    let (stop, wakeup) = &*shared;
                    let stop = shim::lock(stop);
                    if *stop {
                        return;
                    }
                    let waited = wakeup.wait_timeout(stop, pause);
                    if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                        return;
                    }
                }
            })?;
        Ok(IdleTimeoutThread {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for IdleTimeoutThread {
    fn drop(&mut self) {
        *shim::lock(&self.stop.0) = true;
        self.stop.1.notify_one();
        if let Some(thread) = self.thread.take() {
            own_thread::join(thread);
        }
    }
}

/// Ends transactions that are idle for too long. Returns how long to wait until the next may be
/// due; `None` if the database is closed.
fn end_idle(engine: &Weak<Engine>, timeout: Duration) -> Option<Duration> {
    let engine = engine.upgrade()?;
    let clock = engine.workers.clock();
    let now = clock.now();
    let is_long = |since: Instant| now.saturating_duration_since(since) >= timeout;
    let longest = engine.idle.end(&is_long).unwrap_or(now);
    Some(clock.sleep_time(pause(longest, timeout, now)))
}

/// Returns how long to wait for a transaction that is idle since `longest`.
fn pause(longest: Instant, timeout: Duration, now: Instant) -> Duration {
    let due = longest
        .checked_add(timeout)
        .map_or(LONG, |due| due.saturating_duration_since(now));
    due.clamp(TICK, LONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The tests of the thread cannot see this: a thread that has panicked is joined like any other.
    #[test]
    fn it_inspects_again_when_a_transaction_may_be_due_or_after_an_hour() {
        let now = Instant::now();
        for endless in [Duration::MAX, LONG * 2] {
            assert_eq!(pause(now, endless, now), LONG);
        }
        let minute = Duration::from_secs(60);
        assert_eq!(pause(now, 3 * minute, now + minute), 2 * minute);
        assert_eq!(pause(now, minute, now + 2 * minute), TICK);
    }
}
