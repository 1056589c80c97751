//! Background thread: timers, async wake-ups, commits whose future was dropped.
//!
//! * It ends lock waits of tasks at their deadline, because a task cannot sleep until one.
//! * It wakes tasks that pause before they retry a transaction.
//! * It finishes commits whose future was dropped: such a commit is in the log, so it happens, and
//!   its locks are released when it is durable.
//! * It promotes memory regions to huge pages.
//! * It runs what has to be done again and again, such as trimming the pool of contexts.
//!
//! The thread is started when it is first needed, and ends when the database
//! [closes](super::open_handle).
//!
//! # State
//!
//! Each transaction that ever waited as a task has a [`Timer`], and so has each pause. Those that
//! were set are in a queue in the order of their deadlines. A timer that is set again, to a later
//! deadline, keeps its place; when that comes to the front, the timer is queued again at its
//! present deadline, if it has one. So setting mostly costs nothing, and the thread looks at no
//! timer that was not set lately.
//!
//! # Invariants
//!
//! * I1  A timer that fires for a wait that has ended does nothing, because its ticket names one
//!   wait. A timer of a pause that is over may wake the task, which is harmless. So timers need not
//!   be withdrawn.
//! * I2  A timer that has an action is queued, or its setter is about to queue it, at `queued`: not
//!   later than its deadline. A new first deadline wakes the thread, under the mutex under which it
//!   goes to sleep.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::future::poll_fn;
use std::mem;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use foxton_lock::any::AnyManager;
use foxton_lock::manager::LockManager;
use foxton_lock::owner::WaitTicket;
use foxton_lock::request::RefusalReason;
use foxton_sync::shim::{self, Condvar, Mutex};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::{Worker, Workers};

use super::own_thread;

/// The task queue, which waiting tasks and the thread share.
pub(crate) static TASK_QUEUE: Site = Site::new(
    Component::Transaction,
    Pattern::Unbounded,
    "background thread",
);

/// The thread inspects its timers at most once in this time.
pub(crate) const TICK: Duration = Duration::from_millis(2);

/// State of a timer.
#[derive(Default)]
struct TimerState {
    action: Option<(Instant, TimerAction)>,
    /// Deadline at which it is queued; earlier ones may be queued, too, and count for nothing.
    queued: Option<Instant>,
}

type Due = Mutex<TimerState>;
/// Returns how long to wait until it is to be run again.
pub(crate) type RepeatedJob = Box<dyn FnMut(&Worker) -> Option<Duration> + Send>;
type Job = Box<dyn FnOnce() + Send>;

/// Action of a timer at its deadline.
enum TimerAction {
    /// Ends this wait.
    TimeOut(WaitTicket),
    /// Wakes this task.
    Wake(Waker),
    /// Runs this, and sets the timer again.
    Run(RepeatedJob),
}

/// Fires once after it is set, and can be set again.
#[derive(Default)]
pub(crate) struct Timer(Option<Arc<Due>>);

/// A timer in the queue. The earliest deadline is the greatest.
struct QueuedTimer(Instant, Weak<Due>);

impl PartialEq for QueuedTimer {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for QueuedTimer {}

impl PartialOrd for QueuedTimer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedTimer {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.cmp(&self.0)
    }
}

#[derive(Default)]
struct TaskQueue {
    /// The thread, once it was started.
    thread: Option<JoinHandle<()>>,
    stop: bool,
    timers: BinaryHeap<QueuedTimer>,
    jobs: VecDeque<Job>,
    /// Timers of repeated jobs, which no transaction keeps.
    repeated: Vec<Arc<Due>>,
}

impl TaskQueue {
    fn next(&self) -> Option<Instant> {
        self.timers.peek().map(|first| first.0)
    }
}

struct Shared {
    queue: Mutex<TaskQueue>,
    wakeup: Condvar,
    locks: Arc<AnyManager>,
    workers: Workers,
}

/// See the [module](self).
pub(crate) struct BackgroundThread(Arc<Shared>);

impl std::fmt::Debug for BackgroundThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackgroundThread").finish_non_exhaustive()
    }
}

impl BackgroundThread {
    pub(crate) fn new(locks: Arc<AnyManager>, workers: Workers) -> BackgroundThread {
        let (queue, wakeup) = (Mutex::new(TaskQueue::default()), Condvar::new());
        BackgroundThread(Arc::new(Shared {
            queue,
            wakeup,
            locks,
            workers,
        }))
    }

    /// Ends the wait of `ticket` at `deadline`. Replaces the former action of the timer.
    pub(crate) fn time_out_at(
        &self,
        worker: &Worker,
        timer: &mut Timer,
        ticket: WaitTicket,
        deadline: Instant,
    ) {
        // If the thread cannot be started, the task waits until its lock is granted.
        self.set(worker, timer, TimerAction::TimeOut(ticket), deadline);
    }

    /// Pauses a task until `deadline`, or a tick longer.
    pub(crate) async fn sleep_until(&self, deadline: Instant) {
        let (worker, mut timer) = (self.0.workers.worker(), Timer::default());
        poll_fn(move |context| {
            if worker.is_inherited() {
                return Poll::Ready(()); // The caller's next call is refused.
            }
            if self.0.workers.clock().now() >= deadline {
                return Poll::Ready(());
            }
            let action = TimerAction::Wake(context.waker().clone());
            if !self.set(&worker, &mut timer, action, deadline) {
                // Without the thread the task polls again after other tasks have run.
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
    }

    /// Sets the timer to `action` at `deadline`. Returns false if the thread does not run.
    fn set(
        &self,
        worker: &Worker,
        timer: &mut Timer,
        action: TimerAction,
        deadline: Instant,
    ) -> bool {
        worker.account().passed(&TASK_QUEUE);
        let timer = timer.0.get_or_insert_default();
        self.0.set(timer, action, deadline);
        let mut queue = shim::lock(&self.0.queue);
        if queue.next() == Some(deadline) || queue.thread.is_none() {
            self.wake(&mut queue); // I2
        }
        queue.thread.is_some()
    }

    /// Runs `job` after `pause`, and again whenever it says.
    pub(crate) fn repeat(&self, worker: &Worker, pause: Duration, job: RepeatedJob) {
        let deadline = self.0.workers.clock().now() + pause;
        let mut timer = Timer(Some(Arc::default()));
        // First, because the thread removes it when the job has run for the last time.
        shim::lock(&self.0.queue).repeated.extend(timer.0.clone());
        self.set(worker, &mut timer, TimerAction::Run(job), deadline);
    }

    /// Runs `job` in the background thread. The caller counts the [`TASK_QUEUE`], because the job
    /// may own the caller's worker, and keeps the database open until the thread runs.
    pub(crate) fn submit(&self, job: Job) {
        let mut queue = shim::lock(&self.0.queue);
        queue.jobs.push_back(job);
        self.wake(&mut queue);
    }

    /// Returns after all jobs that were submitted, and ends the thread. Nothing may be submitted
    /// any more. The caller is not this thread, unless it cannot start another.
    pub(crate) fn stop(&self) {
        let mut queue = shim::lock(&self.0.queue);
        queue.stop = true;
        let thread = queue.thread.take();
        drop(queue);
        self.0.wakeup.notify_one();
        if let Some(thread) = thread {
            own_thread::join(thread);
        }
        // Jobs are left if the thread could not be started, or if one of them panicked.
        let left = mem::take(&mut shim::lock(&self.0.queue).jobs);
        left.into_iter().for_each(|job| job());
    }

    /// Wakes the thread, or starts it.
    fn wake(&self, queue: &mut TaskQueue) {
        if queue.thread.is_none() && !queue.stop {
            let shared = self.0.clone();
            let started = thread::Builder::new()
                .name("foxton-background".into())
                .spawn(move || shared.run());
            // Without a thread the next call tries again.
            queue.thread = started.ok();
        }
        self.0.wakeup.notify_one();
    }
}

impl Timer {
    /// Clears the action.
    pub(crate) fn clear(&self) {
        if let Some(due) = &self.0 {
            shim::lock(due).action = None;
        }
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(&self) {
        let mut queue = shim::lock(&self.queue);
        loop {
            if !queue.jobs.is_empty() {
                let job = queue.jobs.pop_front();
                drop(queue);
                job.into_iter().for_each(|job| job());
                queue = shim::lock(&self.queue);
                continue;
            }
            if queue.stop {
                return;
            }
            let clock = self.workers.clock();
            let now = clock.now();
            queue = match queue.next() {
                None => self
                    .wakeup
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(next) if next > now => {
                    let pause = (next - now).max(TICK);
                    let waited = self.wakeup.wait_timeout(queue, clock.sleep_time(pause));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    let due = take_due(&mut queue, now);
                    drop(queue);
                    self.run_due(due);
                    shim::lock(&self.queue)
                }
            };
        }
    }

    /// Sets a timer, and queues it unless it is queued at an earlier deadline.
    fn set(&self, timer: &Arc<Due>, action: TimerAction, deadline: Instant) {
        let mut state = shim::lock(timer);
        state.action = Some((deadline, action));
        if state.queued.is_none_or(|queued| deadline < queued) {
            state.queued = Some(deadline);
            drop(state);
            let queued = QueuedTimer(deadline, Arc::downgrade(timer));
            shim::lock(&self.queue).timers.push(queued); // I2
        }
    }

    fn run_due(&self, due: Vec<(Arc<Due>, TimerAction)>) {
        if due.is_empty() {
            return;
        }
        let worker = self.workers.background_worker();
        for (timer, action) in due {
            match action {
                TimerAction::TimeOut(ticket) => {
                    self.locks
                        .end_wait(&worker, ticket, RefusalReason::TimedOut);
                }
                TimerAction::Wake(waker) => waker.wake(),
                TimerAction::Run(mut job) => match job(&worker) {
                    Some(pause) => {
                        let deadline = self.workers.clock().now() + pause;
                        self.set(&timer, TimerAction::Run(job), deadline);
                    }
                    None => {
                        let is_other = |other: &Arc<Due>| !Arc::ptr_eq(other, &timer);
                        shim::lock(&self.queue).repeated.retain(is_other);
                    }
                },
            }
        }
    }
}

/// Takes the actions that are due, and queues timers again that were set to later deadlines.
fn take_due(queue: &mut TaskQueue, now: Instant) -> Vec<(Arc<Due>, TimerAction)> {
    let mut due = Vec::new();
    while queue.next().is_some_and(|next| next <= now) {
        let Some(QueuedTimer(queued, timer)) = queue.timers.pop() else {
            break;
        };
        let Some(timer) = timer.upgrade() else {
            continue;
        };
        let mut state = shim::lock(&timer);
        if state.queued != Some(queued) {
            continue;
        }
        state.queued = None;
        match state.action.take_if(|(deadline, _)| *deadline <= now) {
            Some((_, action)) => {
                drop(state);
                due.push((timer, action));
            }
            None => {
                state.queued = state.action.as_ref().map(|(deadline, _)| *deadline);
                let again = state.queued;
                drop(state);
                let again = again.map(|deadline| QueuedTimer(deadline, Arc::downgrade(&timer)));
                queue.timers.extend(again);
            }
        }
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Wake};

    /// Wakes the thread that sleeps.
    struct Sleeper(thread::Thread);

    impl Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    #[test]
    fn a_task_that_pauses_is_woken_at_its_deadline_and_not_again_and_again() {
        let locks = Arc::new(AnyManager::new(&foxton_lock::any::Options::tiny()));
        let background = BackgroundThread::new(locks, Workers::new());
        let waker = Arc::new(Sleeper(thread::current())).into();
        for millis in [30, 3] {
            let until = Instant::now() + Duration::from_millis(millis);
            let mut sleep_until = pin!(background.sleep_until(until));
            let mut polls = 1;
            while sleep_until
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
            {
                assert!(polls < 10, "woken again and again");
                thread::park();
                polls += 1;
            }
            assert!(Instant::now() >= until);
        }
    }
}
