//! A thread for what nobody waits for.
//!
//! * It ends the lock waits of tasks whose time is over: a task cannot sleep until a deadline.
//! * It wakes tasks that pause before they run a transaction again.
//! * It finishes commits whose future was dropped: what is in the log happens, whoever is
//!   interested, and the locks must go when it is durable and not before.
//!
//! The thread is started when it is first needed.
//!
//! # State
//!
//! Each transaction that ever waited as a task has an [`Timer`], and so has each pause; the keeper sees all alarms and
//! looks at them when the earliest may be due.
//!
//! # Invariants
//!
//! * I1  An alarm that rings for a wait that has ended does nothing: its ticket says which wait it
//!   was. Nor does one for a pause that is over: a task may be woken for nothing. So alarms need not be
//!   taken back.
//! * I2  `next` is not later than the earliest alarm set: whoever sets an earlier one lowers it
//!   first, under the same mutex under which the keeper goes to sleep.

use std::future::poll_fn;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use foxton_lock::any::AnyManager;
use foxton_lock::manager::LockManager;
use foxton_lock::owner::WaitTicket;
use foxton_lock::request::RefusalReason;
use foxton_sync::shim::{self, Condvar, Mutex};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::{Worker, Workers};

/// The desk, which tasks that wait and the keeper share.
pub(crate) static TASK_QUEUE: Site =
    Site::new(Component::Transaction, Pattern::Unbounded, "keeper");

/// The keeper looks at its alarms at most this often.
pub(crate) const TICK: Duration = Duration::from_millis(2);

type Due = Mutex<Option<(Instant, TimerAction)>>;
type Job = Box<dyn FnOnce() + Send>;

/// What happens when an alarm rings.
enum TimerAction {
    /// This wait times out.
    TimeOut(WaitTicket),
    /// This task goes on.
    Wake(Waker),
}

/// What may ring once, and be set again.
#[derive(Default)]
pub(crate) struct Timer(Option<Arc<Due>>);

#[derive(Default)]
struct TaskQueue {
    running: bool,
    stop: bool,
    next: Option<Instant>,
    timers: Vec<Weak<Due>>,
    jobs: Vec<Job>,
}

struct Shared {
    queue: Mutex<TaskQueue>,
    news: Condvar,
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
        let (queue, news) = (Mutex::new(TaskQueue::default()), Condvar::new());
        BackgroundThread(Arc::new(Shared {
            queue,
            news,
            locks,
            workers,
        }))
    }

    /// Has the wait of `ticket` time out at `deadline`, instead of what the alarm was set to.
    pub(crate) fn time_out_at(
        &self,
        worker: &Worker,
        timer: &mut Timer,
        ticket: WaitTicket,
        deadline: Instant,
    ) {
        // Without a thread to ring, the task waits until it is granted.
        self.set(worker, timer, TimerAction::TimeOut(ticket), deadline);
    }

    /// Lets a task pause until `deadline`, or a tick longer.
    pub(crate) async fn sleep_until(&self, deadline: Instant) {
        let (worker, mut timer) = (self.0.workers.worker(), Timer::default());
        poll_fn(move |context| {
            if self.0.workers.clock().now() >= deadline {
                return Poll::Ready(());
            }
            let action = TimerAction::Wake(context.waker().clone());
            if !self.set(&worker, &mut timer, action, deadline) {
                // No thread to ring: asks again whenever others have had their turn.
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
    }

    /// Sets the alarm to `action` at `deadline`. Returns whether anybody is there to ring it.
    fn set(
        &self,
        worker: &Worker,
        timer: &mut Timer,
        action: TimerAction,
        deadline: Instant,
    ) -> bool {
        worker.account().passed(&TASK_QUEUE);
        let due = match &timer.0 {
            Some(due) => due,
            None => {
                let due = timer.0.insert(Arc::default());
                shim::lock(&self.0.queue).timers.push(Arc::downgrade(due));
                due
            }
        };
        *shim::lock(due) = Some((deadline, action));
        let mut queue = shim::lock(&self.0.queue);
        if queue.next.is_none_or(|next| deadline < next) {
            queue.next = Some(deadline); // I2
            self.call(&mut queue);
        }
        queue.running
    }

    /// Has the keeper's thread do `job`. A worker may go with the job: the caller counts the [`TASK_QUEUE`].
    pub(crate) fn submit(&self, job: Job) {
        let mut queue = shim::lock(&self.0.queue);
        queue.jobs.push(job);
        self.call(&mut queue);
    }

    /// Wakes the thread, or starts it.
    fn call(&self, queue: &mut TaskQueue) {
        if !queue.running {
            let shared = self.0.clone();
            let started = thread::Builder::new()
                .name("foxton-keeper".into())
                .spawn(move || shared.run());
            // Without a thread the next call tries again.
            queue.running = started.is_ok();
        }
        self.0.news.notify_one();
    }
}

impl Timer {
    /// Forgets what the alarm was set to.
    pub(crate) fn clear(&self) {
        if let Some(due) = &self.0 {
            *shim::lock(due) = None;
        }
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        shim::lock(&self.0.queue).stop = true;
        self.0.news.notify_one();
        // Not joined: the last one to let go of a database may be the keeper itself.
    }
}

impl Shared {
    fn run(&self) {
        let mut queue = shim::lock(&self.queue);
        loop {
            if !queue.jobs.is_empty() {
                let jobs = std::mem::take(&mut queue.jobs);
                drop(queue);
                jobs.into_iter().for_each(|job| job());
                queue = shim::lock(&self.queue);
                continue;
            }
            if queue.stop {
                return;
            }
            let clock = self.workers.clock();
            let now = clock.now();
            queue = match queue.next {
                None => self
                    .news
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(next) if next > now => {
                    let pause = (next - now).max(TICK);
                    let waited = self.news.wait_timeout(queue, clock.sleep_time(pause));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    let due = take_due(&mut queue, now);
                    drop(queue);
                    self.action(due);
                    shim::lock(&self.queue)
                }
            };
        }
    }

    fn action(&self, due: Vec<TimerAction>) {
        if due.is_empty() {
            return;
        }
        let worker = self.workers.background_worker();
        for action in due {
            match action {
                TimerAction::TimeOut(ticket) => {
                    self.locks
                        .end_wait(&worker, ticket, RefusalReason::TimedOut);
                }
                TimerAction::Wake(waker) => waker.wake(),
            }
        }
    }
}

/// Takes what is due, and finds out when something will be.
fn take_due(queue: &mut TaskQueue, now: Instant) -> Vec<TimerAction> {
    let mut due = Vec::new();
    let mut next = None;
    queue.timers.retain(|timer| {
        let Some(timer) = timer.upgrade() else {
            return false;
        };
        let mut timer = shim::lock(&timer);
        if let Some((_, action)) = timer.take_if(|(deadline, _)| *deadline <= now) {
            due.push(action);
        }
        if let Some((deadline, _)) = *timer {
            next = next.into_iter().chain([deadline]).min();
        }
        true
    });
    queue.next = next;
    due
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Wake};

    /// Wakes the thread that waits for it.
    struct Sleeper(thread::Thread);

    impl Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    #[test]
    fn a_task_that_naps_is_left_alone_until_its_time_has_come() {
        let locks = Arc::new(AnyManager::new(&foxton_lock::any::Options::tiny()));
        let keeper = BackgroundThread::new(locks, Workers::new());
        let waker = Arc::new(Sleeper(thread::current())).into();
        for millis in [30, 3] {
            let until = Instant::now() + Duration::from_millis(millis);
            let mut sleep_until = pin!(keeper.sleep_until(until));
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
