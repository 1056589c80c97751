//! Telling transactions from elsewhere that nobody wants them any more.
//!
//! # Why no wait outlasts it
//!
//! Who is about to wait notes the wait, under the mutex, and looks at the flag after that. Who cancels raises
//! the flag, and then takes the waits that are noted, under the same mutex. One of the two is first there: if the
//! wait is, it is found and ended; if not, the flag was up before the waiter had the mutex, so the waiter sees it
//! (O1) and ends its wait itself.
//!
//! # Why nothing else is hit
//!
//! A wait is ended by its ticket, which is good for that wait and no later one. Whether it ends as cancelled, or
//! was granted, timed out or chosen as a victim just before, is decided once, where all of these meet
//! (`foxton_sync::park`, I2). A transaction that was granted its lock goes on with that operation, and finds the flag at
//! its next one. A commit is one, too: it looks before its record goes into the log, and not again.
//!
//! # Orderings
//!
//! * O1  `cancel` (Release) to `is_cancelled` (Acquire): who sees that it was cancelled sees what was done before.

use std::fmt;
use std::mem;
use std::sync::Arc;

use foxton_lock::any::AnyManager;
use foxton_lock::manager::LockManager;
use foxton_lock::owner::WaitTicket;
use foxton_lock::request::RefusalReason;
use foxton_sync::shim::{self, AtomicBool, Mutex, Ordering};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Workers;

/// The list of waits that one canceller ends. Only those meet there that have one, and wait.
pub(crate) static CANCELLER: Site =
    Site::new(Component::Transaction, Pattern::Unbounded, "cancel_token");

/// Ends transactions from elsewhere: another thread, a handler of signals, whoever shuts down.
///
/// A transaction is given one by [`Transaction::set_cancel_token`](crate::Transaction::set_canceller), a task's by
/// [`AsyncTransaction::set_cancel_token`](crate::AsyncTransaction::set_canceller), what a session waits for by
/// [`Session::set_cancel_token`](crate::Session::set_canceller). One may be given to any number of them, one after the
/// other or side by side, of any databases; clones are the same one.
///
/// What [`cancel`](Self::cancel) does to a transaction that has it:
///
/// * If it waits for a lock, the wait ends at once.
/// * If it does something else, that goes on to its end, and the next operation is refused. A range that is
///   read ends at its next row.
/// * If nothing is asked of it, it is refused what is asked next; until then, it keeps its locks.
/// * If its commit has begun, it commits. Nobody can tell beforehand; what `commit` returns tells.
///
/// Who is refused so has been rolled back, holds nothing, and answers whatever else is asked with `cancelled`,
/// which is not tried again by [`Database::run`](crate::Database::run). It is the transaction that ends, and not only the
/// wait: who cancels cannot know which operation is in progress when it does, so ending one alone could hit
/// the one after it, or none. A single wait is bounded by [`Lock::timeout`](crate::Lock::timeout).
///
/// It stays cancelled, also for a transaction that is given it later. Without one a transaction pays nothing.
///
/// ```
/// use foxton::{Canceller, Database, Options, Table};
///
/// const ROWS: Table<u64, u64> = Table::new("rows");
///
/// let db = Database::in_memory(Options::default())?;
/// let mut holder = db.begin()?;
/// holder.put(&ROWS, &1, &1)?;
///
/// let canceller = Canceller::new();
/// std::thread::scope(|scope| {
///     let waits = scope.spawn(|| {
///         db.run(|tx| {
///             tx.set_canceller(&canceller);
///             tx.get(&ROWS, &1) // waits for the holder
///         })
///     });
///     canceller.cancel();
///     let refused = waits.join().unwrap().unwrap_err();
///     assert_eq!(refused.code(), "cancelled");
/// });
/// holder.commit()?; // nobody else was disturbed
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_cancelled: AtomicBool,
    waits: Mutex<Vec<Wait>>,
}

/// A wait, and who can end it.
struct Wait {
    locks: Arc<AnyManager>,
    workers: Workers,
    ticket: WaitTicket,
}

impl Wait {
    fn end(&self) {
        let worker = self.workers.background_worker();
        self.locks
            .end_wait(&worker, self.ticket, RefusalReason::Cancelled);
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken")
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

impl CancelToken {
    /// One that is given to nobody yet.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Ends what has it, for good; again is nothing. Never waits for a lock or for the transactions: they are
    /// rolled back by those who work with them.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Release); // O1
        // Site: "canceller", but whoever cancels has no worker to count it.
        let waits = mem::take(&mut *shim::lock(&self.0.waits));
        // Ending one may run a waker, so nobody is kept waiting for the list meanwhile.
        waits.iter().for_each(Wait::end);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire) // O1
    }

    /// Has the wait of `ticket` ended if this is cancelled, for as long as what is returned is kept.
    pub(crate) fn note(
        &self,
        locks: &Arc<AnyManager>,
        workers: &Workers,
        ticket: WaitTicket,
    ) -> Noted {
        let wait = || Wait {
            locks: locks.clone(),
            workers: workers.clone(),
            ticket,
        };
        // Site: "canceller".
        shim::lock(&self.0.waits).push(wait());
        if self.is_cancelled() {
            wait().end();
        }
        Noted {
            by: self.clone(),
            locks: Arc::as_ptr(locks).addr(),
            ticket,
        }
    }
}

/// A wait that is noted with a canceller.
pub(crate) struct Noted {
    by: CancelToken,
    /// Tickets are numbered by lock manager.
    locks: usize,
    ticket: WaitTicket,
}

impl Drop for Noted {
    fn drop(&mut self) {
        // Site: "canceller".
        let mut waits = shim::lock(&self.by.0.waits);
        let ours = |wait: &Wait| {
            (Arc::as_ptr(&wait.locks).addr(), wait.ticket) == (self.locks, self.ticket)
        };
        if let Some(at) = waits.iter().position(ours) {
            let gone = waits.swap_remove(at);
            // The last one to let go of a lock manager does so with nothing latched.
            drop(waits);
            drop(gone);
        }
    }
}

/// Whether a transaction with this canceller, if it has one, is to go on.
#[inline]
pub(crate) fn is_not_cancelled(cancel_token: &Option<CancelToken>) -> bool {
    cancel_token
        .as_ref()
        .is_none_or(|cancel_token| !cancel_token.is_cancelled())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::state::State;
    use crate::{AsyncTransaction, Database, Lock, Options};
    use std::pin::pin;
    use std::task::{Context, Waker};

    fn noted(cancel_token: &CancelToken) -> usize {
        shim::lock(&cancel_token.0.waits).len()
    }

    /// A list that only grew would cost a canceller of a long-lived program its memory.
    #[test]
    fn waits_are_noted_only_while_they_last() {
        let mut options = Options::tiny();
        options.lock_wait = std::time::Duration::MAX;
        let db = Database::in_memory(options).unwrap();
        let cancel_token = CancelToken::new();
        let mut holder = db.begin().unwrap();
        holder.lock_advisory(7, Lock::Exclusive).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let begin = || {
            let mut tx = db.begin_async().unwrap();
            tx.set_cancel_token(&cancel_token);
            tx
        };
        let [mut granted, mut dropped] = [begin(), begin()];
        assert_eq!(noted(&cancel_token), 0);
        {
            let mut waits = pin!(granted.lock_advisory(7, Lock::Shared));
            assert!(waits.as_mut().poll(&mut context).is_pending());
            {
                let mut waits = Box::pin(dropped.lock_advisory(7, Lock::Shared));
                assert!(waits.as_mut().poll(&mut context).is_pending());
                assert_eq!(noted(&cancel_token), 2);
            }
            assert_eq!(noted(&cancel_token), 1);
            holder.commit().unwrap();
            assert!(waits.as_mut().poll(&mut context).is_ready());
        }
        assert_eq!(noted(&cancel_token), 0);
    }

    #[test]
    fn it_goes_to_other_threads() {
        fn assert_shared<T: Send + Sync + Clone + 'static>() {}
        assert_shared::<CancelToken>();
        fn assert_send<T: Send>() {}
        assert_send::<(State, AsyncTransaction)>();
    }
}
