//! Begin of a transaction: a context from the pool, and an admission slot.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use foxton_sync::admission::{SLOTS, WATCH_INTERVAL, WatchRecord};
use foxton_sync::shim;
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use super::bound::BoundTxn;
use super::context::WorkerContext;
use crate::engine::Engine;
use crate::engine::context_pool::{self, ContextPool};
use crate::engine::free_memory::return_free;
use crate::engine::open_handle::OpenHandle;
use crate::error::{Request, Result};
use crate::options::Locking;

/// With locking off: whether another transaction is open.
pub(super) static ALONE: Site =
    Site::new(Component::Transaction, Pattern::Unbounded, "locking off");

/// Registry of idle slots: once for each context.
static IDLE_REGISTRY: Site = Site::new(Component::Transaction, Pattern::Unbounded, "idle slots");

impl BoundTxn {
    /// Acquires a context and begins a transaction in it.
    pub(crate) fn acquire(
        open: &Arc<OpenHandle>,
        pool: &ContextPool<BoundTxn>,
    ) -> Result<Box<BoundTxn>> {
        let engine = open.engine();
        engine.check()?;
        if engine.options.locking == Locking::Off {
            // A mutex, so that a transaction sees all that the one before it did.
            if mem::replace(&mut *shim::lock(&engine.open), true) {
                return Err(Request::OneAtATime.into());
            }
        }
        let mut bound = match pool.take() {
            Ok((mut bound, site)) => {
                bound.keep_open(open);
                bound.ctx.worker.account().passed(site);
                bound
            }
            Err(cell) => {
                let bound = Box::new(BoundTxn::new(open, cell));
                bound.ctx.worker.account().passed(&context_pool::OVERFLOW);
                if let Some(idle_slot) = &bound.idle_slot {
                    bound.ctx.worker.account().passed(&IDLE_REGISTRY);
                    engine.idle.insert(idle_slot);
                }
                if let Some(mut trimmer) = pool.trimmer(&bound) {
                    let locks = engine.locks.clone();
                    let trim = move |worker: &Worker| trimmer(&|| return_free(&locks, worker));
                    let (worker, trim) = (&bound.ctx.worker, Box::new(trim));
                    engine.background.repeat(worker, context_pool::PERIOD, trim);
                }
                bound
            }
        };
        if engine.options.locking == Locking::Off {
            bound.ctx.worker.account().passed(&ALONE);
        }
        bound.ctx.forget_dropped();
        bound.ctx.owner.begin();
        Ok(bound)
    }
}

impl WorkerContext {
    /// Waits for an admission slot, if there are any. The transaction has no locks yet.
    #[inline]
    pub(crate) fn take_slot(&mut self) {
        if let Some(admission) = &self.engine.admission {
            let passed = admission.acquire(&mut self.slot_claim);
            self.worker.account().passed_many(&SLOTS, passed);
        }
    }

    /// As [`take_slot`](Self::take_slot), for a task: its first operation waits, not its begin.
    pub(super) fn poll_slot(&mut self, context: &Context<'_>) -> Poll<()> {
        let WorkerContext {
            engine,
            worker,
            slot_claim,
            needs_slot,
            ..
        } = self;
        if let Some(admission) = &engine.admission {
            let start_watch = || watch_slots(engine, worker);
            let passed = ready!(admission.poll_acquire(slot_claim, context, start_watch));
            worker.account().passed_many(&SLOTS, passed);
        }
        *needs_slot = false;
        Poll::Ready(())
    }
}

/// Makes the background thread grant slots to waiting tasks, as waiting threads do for each other.
/// It looks once in a tick, which is longer than the interval of a thread.
fn watch_slots(engine: &Arc<Engine>, worker: &Worker) {
    let (watched, mut record) = (Arc::downgrade(engine), WatchRecord::default());
    let watch = move |_: &Worker| {
        let engine = watched.upgrade()?;
        let goes_on = engine.admission.as_ref()?.watch(&mut record);
        goes_on.then_some(WATCH_INTERVAL)
    };
    engine
        .background
        .repeat(worker, WATCH_INTERVAL, Box::new(watch));
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::thread;
    use std::time::{Duration, Instant};

    use foxton_sync::worker::Worker;

    use crate::{Database, Durability, Options};

    /// A thread whose context is one of the last of a peak would be slower for ever.
    #[test]
    fn after_a_peak_threads_work_with_early_workers_again() {
        let options = Options {
            durability: Durability::None,
            ..Options::default()
        };
        let db = Database::in_memory(options).unwrap();
        let mut all: Vec<_> = (0..3 * Worker::EARLY_IDS)
            .map(|_| db.begin_async().unwrap())
            .collect();
        let mut context = Context::from_waker(Waker::noop());
        // The last one first, so that this thread goes on with its context.
        while let Some(tx) = all.pop() {
            assert!(pin!(tx.commit()).poll(&mut context).is_ready());
        }
        let began = Instant::now();
        loop {
            let bound = db.acquire().unwrap();
            let id = bound.ctx.worker.id();
            super::BoundTxn::abandon(bound);
            if id < Worker::EARLY_IDS {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(120), "{id} is used");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
