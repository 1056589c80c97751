//! The thread that ends transactions that are idle for too long.
//!
//! The thread looks at all places when the one that rests longest may be due, and no more often than every
//! [`TICK`]. It keeps the engine alive only while it looks.

use std::io;
use std::sync::{Arc, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use foxton_sync::shim::{self, Condvar, Mutex};

use crate::engine::Engine;
use crate::engine::background::TICK;

/// The thread looks again after this if nobody can be due before the clock ends.
const LONG: Duration = Duration::from_secs(3600);

/// Ends idle transactions until it is dropped.
#[derive(Debug)]
pub(crate) struct IdleEnder {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl IdleEnder {
    /// Ends transactions of `engine` that have been idle for `timeout`.
    pub(crate) fn start(engine: &Arc<Engine>, timeout: Duration) -> io::Result<IdleEnder> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (shared, engine) = (stop.clone(), Arc::downgrade(engine));
        let thread = thread::Builder::new()
            .name("foxton-idle".into())
            .spawn(move || {
                while let Some(pause) = look(&engine, timeout) {
                    let (stop, news) = &*shared;
                    let stop = shim::lock(stop);
                    if *stop {
                        return;
                    }
                    let waited = news.wait_timeout(stop, pause);
                    if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                        return;
                    }
                }
            })?;
        Ok(IdleEnder {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for IdleEnder {
    fn drop(&mut self) {
        *shim::lock(&self.stop.0) = true;
        self.stop.1.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Ends what has been idle too long, and says how long to wait until the next may be; `None` if the database
/// is no more.
fn look(engine: &Weak<Engine>, timeout: Duration) -> Option<Duration> {
    let engine = engine.upgrade()?;
    let clock = engine.workers.clock();
    let now = clock.now();
    let is_long = |since: Instant| now.saturating_duration_since(since) >= timeout;
    let longest = engine.idlers.end(&is_long).unwrap_or(now);
    Some(clock.sleep_time(pause(longest, timeout, now)))
}

/// How long to wait for what rests since `longest`.
fn pause(longest: Instant, timeout: Duration, now: Instant) -> Duration {
    let due = longest
        .checked_add(timeout)
        .map_or(LONG, |due| due.saturating_duration_since(now));
    due.clamp(TICK, LONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The thread's own tests see nothing of it: one that has panicked is joined like any other.
    #[test]
    fn it_looks_again_when_somebody_may_be_due_and_if_no_clock_reaches_that_then_later() {
        let now = Instant::now();
        for endless in [Duration::MAX, LONG * 2] {
            assert_eq!(pause(now, endless, now), LONG);
        }
        let minute = Duration::from_secs(60);
        assert_eq!(pause(now, 3 * minute, now + minute), 2 * minute);
        assert_eq!(pause(now, minute, now + 2 * minute), TICK);
    }
}
