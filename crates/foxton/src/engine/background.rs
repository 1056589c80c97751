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
//! Each transaction that ever waited as a task has an [`Alarm`], and so has each pause; the keeper sees all alarms and
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
pub(crate) static DESK: Site = Site::new(Component::Transaction, Pattern::Unbounded, "keeper");

/// The keeper looks at its alarms at most this often.
pub(crate) const TICK: Duration = Duration::from_millis(2);

type Due = Mutex<Option<(Instant, Ring)>>;
type Job = Box<dyn FnOnce() + Send>;

/// What happens when an alarm rings.
enum Ring {
    /// This wait times out.
    TimeOut(WaitTicket),
    /// This task goes on.
    Wake(Waker),
}

/// What may ring once, and be set again.
#[derive(Default)]
pub(crate) struct Alarm(Option<Arc<Due>>);

#[derive(Default)]
struct Desk {
    running: bool,
    stop: bool,
    next: Option<Instant>,
    alarms: Vec<Weak<Due>>,
    jobs: Vec<Job>,
}

struct Shared {
    desk: Mutex<Desk>,
    news: Condvar,
    locks: Arc<AnyManager>,
    workers: Workers,
}

/// See the [module](self).
pub(crate) struct Keeper(Arc<Shared>);

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

impl Keeper {
    pub(crate) fn new(locks: Arc<AnyManager>, workers: Workers) -> Keeper {
        let (desk, news) = (Mutex::new(Desk::default()), Condvar::new());
        Keeper(Arc::new(Shared {
            desk,
            news,
            locks,
            workers,
        }))
    }

    /// Has the wait of `ticket` time out at `deadline`, instead of what the alarm was set to.
    pub(crate) fn time_out_at(
        &self,
        worker: &Worker,
        alarm: &mut Alarm,
        ticket: WaitTicket,
        deadline: Instant,
    ) {
        // Without a thread to ring, the task waits until it is granted.
        self.set(worker, alarm, Ring::TimeOut(ticket), deadline);
    }

    /// Lets a task pause until `deadline`, or a tick longer.
    pub(crate) async fn nap(&self, deadline: Instant) {
        let (worker, mut alarm) = (self.0.workers.worker(), Alarm::default());
        poll_fn(move |context| {
            if self.0.workers.clock().now() >= deadline {
                return Poll::Ready(());
            }
            let ring = Ring::Wake(context.waker().clone());
            if !self.set(&worker, &mut alarm, ring, deadline) {
                // No thread to ring: asks again whenever others have had their turn.
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
    }

    /// Sets the alarm to `ring` at `deadline`. Returns whether anybody is there to ring it.
    fn set(&self, worker: &Worker, alarm: &mut Alarm, ring: Ring, deadline: Instant) -> bool {
        worker.account().passed(&DESK);
        let due = match &alarm.0 {
            Some(due) => due,
            None => {
                let due = alarm.0.insert(Arc::default());
                shim::lock(&self.0.desk).alarms.push(Arc::downgrade(due));
                due
            }
        };
        *shim::lock(due) = Some((deadline, ring));
        let mut desk = shim::lock(&self.0.desk);
        if desk.next.is_none_or(|next| deadline < next) {
            desk.next = Some(deadline); // I2
            self.call(&mut desk);
        }
        desk.running
    }

    /// Has the keeper's thread do `job`. A worker may go with the job: the caller counts the [`DESK`].
    pub(crate) fn hand_over(&self, job: Job) {
        let mut desk = shim::lock(&self.0.desk);
        desk.jobs.push(job);
        self.call(&mut desk);
    }

    /// Wakes the thread, or starts it.
    fn call(&self, desk: &mut Desk) {
        if !desk.running {
            let shared = self.0.clone();
            let started = thread::Builder::new()
                .name("foxton-keeper".into())
                .spawn(move || shared.keep());
            // Without a thread the next call tries again.
            desk.running = started.is_ok();
        }
        self.0.news.notify_one();
    }
}

impl Alarm {
    /// Forgets what the alarm was set to.
    pub(crate) fn clear(&self) {
        if let Some(due) = &self.0 {
            *shim::lock(due) = None;
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        shim::lock(&self.0.desk).stop = true;
        self.0.news.notify_one();
        // Not joined: the last one to let go of a database may be the keeper itself.
    }
}

impl Shared {
    fn keep(&self) {
        let mut desk = shim::lock(&self.desk);
        loop {
            if !desk.jobs.is_empty() {
                let jobs = std::mem::take(&mut desk.jobs);
                drop(desk);
                jobs.into_iter().for_each(|job| job());
                desk = shim::lock(&self.desk);
                continue;
            }
            if desk.stop {
                return;
            }
            let clock = self.workers.clock();
            let now = clock.now();
            desk = match desk.next {
                None => self.news.wait(desk).unwrap_or_else(PoisonError::into_inner),
                Some(next) if next > now => {
                    let pause = (next - now).max(TICK);
                    let waited = self.news.wait_timeout(desk, clock.nap(pause));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    let due = take_due(&mut desk, now);
                    drop(desk);
                    self.ring(due);
                    shim::lock(&self.desk)
                }
            };
        }
    }

    fn ring(&self, due: Vec<Ring>) {
        if due.is_empty() {
            return;
        }
        let worker = self.workers.background_worker();
        for ring in due {
            match ring {
                Ring::TimeOut(ticket) => {
                    self.locks
                        .end_wait(&worker, ticket, RefusalReason::TimedOut);
                }
                Ring::Wake(waker) => waker.wake(),
            }
        }
    }
}

/// Takes what is due, and finds out when something will be.
fn take_due(desk: &mut Desk, now: Instant) -> Vec<Ring> {
    let mut due = Vec::new();
    let mut next = None;
    desk.alarms.retain(|alarm| {
        let Some(alarm) = alarm.upgrade() else {
            return false;
        };
        let mut alarm = shim::lock(&alarm);
        if let Some((_, ring)) = alarm.take_if(|(deadline, _)| *deadline <= now) {
            due.push(ring);
        }
        if let Some((deadline, _)) = *alarm {
            next = next.into_iter().chain([deadline]).min();
        }
        true
    });
    desk.next = next;
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
        let keeper = Keeper::new(locks, Workers::new());
        let waker = Arc::new(Sleeper(thread::current())).into();
        for millis in [30, 3] {
            let until = Instant::now() + Duration::from_millis(millis);
            let mut nap = pin!(keeper.nap(until));
            let mut polls = 1;
            while nap
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
