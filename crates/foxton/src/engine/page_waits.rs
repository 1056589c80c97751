//! Threads that wait for pages on behalf of tasks, and read undo from the log.
//!
//! A thread that needs a page waits for it itself. A task must not block its executor, so it gives
//! its wait to one of a few threads, which are started when they are needed, and is woken.
//!
//! # Invariants
//!
//! * I1  A wait in the queue has no pages: those of the attempt are given up first. So the threads
//!   wait for frames that only tasks have whose wait has ended, or threads that use them.
//! * I2  The pages of a wait that has ended stay in their frames until the task is polled, or its
//!   operation is dropped. A task that is never polled again keeps up to six frames.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};

use foxton_store::paged::btree::{DetachedVisit, TreeError};
use foxton_store::paged::recovery::{Recovery, RecoveryError, UndoBatch, UndoCursor};
use foxton_sync::shim::{self, Condvar, Mutex};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::{Worker, Workers};

use super::own_thread;

/// Site: waits for pages, which tasks give to threads.
pub(crate) static PAGE_WAITS: Site =
    Site::new(Component::BufferPool, Pattern::Unbounded, "page waits");

/// Maximum number of threads.
const MAX_THREADS: usize = 8;

/// Lack of an attempt.
pub(crate) enum PageNeed {
    /// Need of the last attempt of the visit.
    Pages(DetachedVisit),
    /// Undo at the cursor, about so many bytes of it.
    Undo(Arc<Recovery>, UndoCursor, usize),
}

/// Gain of a wait.
pub(crate) enum PageSupply {
    /// The visit with its pages.
    Pages(DetachedVisit),
    /// The undo at the cursor.
    Undo(UndoCursor, UndoBatch),
}

/// Result of a wait.
pub(crate) type Waited = Result<PageSupply, RecoveryError<TreeError>>;

impl PageNeed {
    /// Waits until it is there. The caller has no latch and no fix.
    pub(crate) fn wait(self, worker: &Worker) -> Waited {
        match self {
            PageNeed::Pages(visit) => {
                let waited = visit.wait(worker).map_err(RecoveryError::Pages)?;
                Ok(PageSupply::Pages(waited))
            }
            PageNeed::Undo(recovery, cursor, bytes) => {
                let batch = recovery.read_undo(worker, cursor, bytes)?;
                Ok(PageSupply::Undo(cursor, batch))
            }
        }
    }
}

/// See the [module](self).
pub(crate) struct PageWaitThreads(Arc<PageWaitShared>);

struct PageWaitShared {
    queue: Mutex<PageWaitQueue>,
    wakeup: Condvar,
    workers: Workers,
}

#[derive(Default)]
struct PageWaitQueue {
    waits: VecDeque<(PageNeed, Arc<Mutex<PageWaitState>>)>,
    threads: Vec<JoinHandle<()>>,
    /// Number of threads that sleep.
    idle: usize,
    stop: bool,
}

/// State of a wait.
enum PageWaitState {
    Waiting(Option<Waker>),
    Done(Box<Waited>),
    Taken,
}

/// A wait that a thread makes for a task.
pub(crate) struct SubmittedWait(Arc<Mutex<PageWaitState>>);

impl fmt::Debug for PageWaitThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageWaitThreads").finish_non_exhaustive()
    }
}

impl SubmittedWait {
    /// Returns the result once it is there. It is taken once.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Option<Waited>> {
        // Site: "page waits", passed when it was submitted.
        let mut state = shim::lock(&self.0);
        match &mut *state {
            PageWaitState::Waiting(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            _ => match mem::replace(&mut *state, PageWaitState::Taken) {
                PageWaitState::Done(waited) => Poll::Ready(Some(*waited)),
                _ => Poll::Ready(None),
            },
        }
    }
}

impl PageWaitThreads {
    pub(crate) fn new(workers: Workers) -> PageWaitThreads {
        PageWaitThreads(Arc::new(PageWaitShared {
            queue: Mutex::new(PageWaitQueue::default()),
            wakeup: Condvar::new(),
            workers,
        }))
    }

    /// Makes a thread wait for what an attempt needs.
    pub(crate) fn submit(&self, worker: &Worker, mut need: PageNeed) -> SubmittedWait {
        worker.account().passed(&PAGE_WAITS);
        if let PageNeed::Pages(visit) = &mut need {
            visit.release(); // I1
        }
        let state = Arc::new(Mutex::new(PageWaitState::Waiting(None)));
        let mut queue = shim::lock(&self.0.queue);
        queue.waits.push_back((need, state.clone()));
        if queue.idle < queue.waits.len() && queue.threads.len() < MAX_THREADS && !queue.stop {
            let shared = self.0.clone();
            let name = "foxton-pages".to_owned();
            let started = thread::Builder::new()
                .name(name)
                .spawn(move || shared.run());
            queue.threads.extend(started.ok());
        }
        if queue.threads.is_empty() {
            // Without any thread the task waits itself.
            let wait = queue.waits.pop_back();
            drop(queue);
            wait.into_iter()
                .for_each(|(need, state)| finish(&state, need.wait(worker)));
        } else {
            drop(queue);
            self.0.wakeup.notify_one();
        }
        SubmittedWait(state)
    }

    /// Number of waits that no thread has begun yet.
    pub(crate) fn queued(&self) -> usize {
        // Site: "page waits", of an inspection.
        shim::lock(&self.0.queue).waits.len()
    }

    /// Ends the threads. Waits that are left get no answer: no task is there any more.
    pub(crate) fn stop(&self) {
        // Site: "page waits": once.
        let mut queue = shim::lock(&self.0.queue);
        queue.stop = true;
        let waits = mem::take(&mut queue.waits);
        let threads = mem::take(&mut queue.threads);
        drop(queue);
        drop(waits);
        self.0.wakeup.notify_all();
        threads.into_iter().for_each(own_thread::join);
    }
}

impl Drop for PageWaitThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

impl PageWaitShared {
    fn run(&self) {
        let worker = self.workers.worker();
        // Site: "page waits".
        let mut queue = shim::lock(&self.queue);
        while !queue.stop {
            queue = match queue.waits.pop_front() {
                Some((need, state)) => {
                    drop(queue);
                    finish(&state, need.wait(&worker));
                    // Site: "page waits", passed by the task.
                    shim::lock(&self.queue)
                }
                None => {
                    queue.idle += 1;
                    let waited = self.wakeup.wait(queue);
                    let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
                    queue.idle -= 1;
                    queue
                }
            };
        }
    }
}

fn finish(state: &Mutex<PageWaitState>, waited: Waited) {
    // Site: "page waits", passed by the task.
    let before = mem::replace(
        &mut *shim::lock(state),
        PageWaitState::Done(Box::new(waited)),
    );
    if let PageWaitState::Waiting(Some(waker)) = before {
        waker.wake();
    }
}
