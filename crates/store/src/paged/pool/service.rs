//! Threads of a pool: the frame provider, the page cleaner and the page readers.

use std::io;
use std::thread;
use std::time::Duration;

use foxton_sync::shim::{self, Arc, Condvar, Mutex};
use foxton_sync::worker::{Worker, Workers};

use super::BufferPool;
use super::read_ahead::PAGE_READERS;
use crate::paged::space::DOUBLEWRITE_SLOTS;

/// How long a thread of the pool sleeps if it is not woken.
const IDLE: Duration = Duration::from_millis(20);

/// Wake-up of one thread: it is remembered until the thread has taken it.
#[derive(Debug, Default)]
pub(super) struct ServiceWakeup {
    state: Mutex<WakeupState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WakeupState {
    is_due: bool,
    is_closed: bool,
}

impl ServiceWakeup {
    /// Wakes the thread.
    pub(super) fn notify(&self) {
        // Site: "free frames", passed on the way.
        let mut state = shim::lock(&self.state);
        if !state.is_due {
            state.is_due = true;
            self.changed.notify_one();
        }
    }

    fn close(&self) {
        // Site: "free frames": a pool is closed once.
        shim::lock(&self.state).is_closed = true;
        self.changed.notify_one();
    }

    /// Sleeps until woken, or for a while. Returns false once it was closed.
    fn wait(&self) -> bool {
        // Site: "free frames": the other side of `notify`.
        let state = shim::lock(&self.state);
        let is_idle = |state: &mut WakeupState| !state.is_due && !state.is_closed;
        let waited = self.changed.wait_timeout_while(state, IDLE, is_idle);
        let mut state = match waited {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        };
        state.is_due = false;
        !state.is_closed
    }
}

/// The threads of a pool. Dropping this ends them; dirty pages stay dirty.
#[derive(Debug)]
pub struct PoolThreads {
    pool: Arc<BufferPool>,
    workers: Arc<Workers>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl PoolThreads {
    /// Starts the frame provider, the page cleaner and the page readers of `pool`.
    ///
    /// # Errors
    ///
    /// If the system has no thread.
    pub fn start(pool: Arc<BufferPool>, workers: &Arc<Workers>) -> io::Result<PoolThreads> {
        let mut threads = PoolThreads {
            pool,
            workers: workers.clone(),
            threads: Vec::new(),
        };
        threads.spawn("frame-provider", workers, |pool, worker| {
            while pool.provider_wakeup.wait() {
                pool.provide_frames(worker);
            }
        })?;
        threads.spawn("page-cleaner", workers, |pool, worker| {
            while pool.cleaner_wakeup.wait() {
                pool.clean_while_due(worker);
                // Some may have been woken and have made no page dirty.
                pool.serve_dirty_waiters(worker);
            }
        })?;
        for _ in 0..PAGE_READERS {
            threads.spawn("page-reader", workers, BufferPool::read_runs)?;
            threads.pool.ahead.add_reader();
        }
        threads.pool.set_cleaner(&workers.worker(), true);
        Ok(threads)
    }

    fn spawn(
        &mut self,
        name: &str,
        workers: &Arc<Workers>,
        body: fn(&BufferPool, &Worker),
    ) -> io::Result<()> {
        let (pool, workers) = (self.pool.clone(), workers.clone());
        let thread = thread::Builder::new().name(format!("foxton-{name}"));
        let thread = thread.spawn(move || body(&pool, &workers.worker()))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for PoolThreads {
    fn drop(&mut self) {
        self.pool.set_cleaner(&self.workers.worker(), false);
        self.pool.provider_wakeup.close();
        self.pool.cleaner_wakeup.close();
        self.pool.ahead.close();
        for thread in self.threads.drain(..) {
            // A panic of the thread was reported when it happened.
            drop(thread.join());
        }
    }
}

impl BufferPool {
    /// Grows the file if it should. Writes batches while an eighth of the frames is dirty, threads
    /// wait for frames, or a frame beyond the limit is dirty.
    fn clean_while_due(&self, worker: &Worker) {
        self.grow_file_ahead(worker);
        while self.dirty_count() * 8 > self.frame_limit()
            || self.free.shortage() > 0
            || self.has_dirty_surplus()
        {
            // A failure is reported to the threads that wait, and is final.
            let slots = match self.free.shortage() {
                0 => DOUBLEWRITE_SLOTS,
                // Threads that wait for frames get them after the next sync.
                _ => 1,
            };
            match self.clean_slots(worker, slots) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
        }
    }
}
