//! Cancel tokens: any thread can end a transaction through its token.
//!
//! # Why no wait outlasts a cancellation
//!
//! A transaction that is about to wait records the wait under the mutex, and then reads the flag.
//! `cancel` sets the flag, and then takes the recorded waits under the same mutex. If the record
//! comes first, `cancel` finds the wait and ends it. If it comes second, the flag was set before
//! the waiter had the mutex, so the waiter reads it (O1) and ends its wait itself.
//!
//! # Why nothing else is ended
//!
//! `cancel` ends a wait by its ticket, which is valid for that wait and no later one. The wait ends
//! once: as cancelled, or as granted, timed out or chosen as a victim just before
//! (`foxton_sync::park`, I2). A transaction that was granted its lock continues that operation, and
//! reads the flag in its next one. A commit reads it before its record is in the log, and not
//! again.
//!
//! # Orderings
//!
//! * O1  `set_cancelled` (Release) to `is_cancelled` (Acquire): a thread that reads the flag as set
//!   also sees what the cancelling thread did before.

use std::fmt;
use std::mem;
use std::sync::Arc;

use foxton_lock::any::AnyManager;
use foxton_lock::manager::LockManager;
use foxton_lock::owner::WaitTicket;
use foxton_lock::request::RefusalReason;
use foxton_sync::process::ProcessStamp;
use foxton_sync::shim::{self, AtomicBool, Mutex, Ordering};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Workers;

/// The list of waits of one token: transactions that have the token and wait, and its `cancel`.
pub(crate) static CANCEL_TOKEN: Site =
    Site::new(Component::Transaction, Pattern::Unbounded, "cancel token");

/// Ends transactions from another thread, or at shutdown. A signal handler uses
/// [`signal`](Self::signal).
///
/// [`Transaction::set_cancel_token`](crate::Transaction::set_cancel_token) gives it to a
/// transaction, [`AsyncTransaction::set_cancel_token`](crate::AsyncTransaction::set_cancel_token)
/// to one of a task, and [`Session::set_cancel_token`](crate::Session::set_cancel_token) to a
/// session and its transactions. A token may be given to any number of them, also at the same time
/// and of different databases. A clone is the same token.
///
/// Effect of [`cancel`](Self::cancel) on a transaction that has the token:
///
/// * If it waits for a lock, the wait ends at once.
/// * If it executes another operation, that operation finishes and the next one is refused. A range
///   ends at its next row.
/// * If it executes nothing, its next operation is refused. Until then it keeps its locks.
/// * If its commit has begun, it commits. The result of `commit` says whether it did.
///
/// A refused transaction has been rolled back and holds no locks. It refuses all further operations
/// with `cancelled`, which [`Database::run`](crate::Database::run) does not retry. The token ends
/// the whole transaction and not only the wait, because the cancelling thread cannot know which
/// operation is in progress: a single operation could end too early or too late.
/// [`Lock::timeout`](crate::Lock::timeout) bounds a single wait.
///
/// A token stays cancelled, also for transactions that are given it later. In a forked child, a
/// token of the parent ends no waits. A transaction without a
/// token pays nothing.
///
/// ```
/// use foxton::{CancelToken, Database, Options, Table};
///
/// const ROWS: Table<u64, u64> = Table::new("rows");
///
/// let db = Database::in_memory(Options::default())?;
/// let mut holder = db.begin()?;
/// holder.put(&ROWS, &1, &1)?;
///
/// let token = CancelToken::new();
/// std::thread::scope(|scope| {
///     let waits = scope.spawn(|| {
///         db.run(|tx| {
///             tx.set_cancel_token(&token);
///             tx.get(&ROWS, &1) // waits for the holder
///         })
///     });
///     token.cancel();
///     let refused = waits.join().unwrap().unwrap_err();
///     assert_eq!(refused.code(), "cancelled");
/// });
/// holder.commit()?; // no other transaction was disturbed
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_cancelled: AtomicBool,
    waits: Mutex<Vec<Wait>>,
    process: ProcessStamp,
}

/// A wait, and what ends it.
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
    /// A token that no transaction has yet.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Ends all transactions that have the token, for good; a second call does nothing. Never waits
    /// for a lock or for the transactions, which are rolled back by their own threads and tasks.
    ///
    /// Not for signal handlers: it takes mutexes that the interrupted thread may have, and would
    /// then wait for ever. [`signal`](Self::signal) is for them.
    pub fn cancel(&self) {
        self.set_cancelled();
        if self.0.process.is_inherited() {
            return; // The waits are the parent's.
        }
        // Site: "cancel token", but the thread that cancels has no worker to count it.
        let waits = mem::take(&mut *shim::lock(&self.0.waits));
        // Ending a wait may run a waker, so the list is not locked meanwhile.
        waits.iter().for_each(Wait::end);
    }

    /// Sets the flag alone: async-signal-safe.
    pub(super) fn set_cancelled(&self) {
        self.0.is_cancelled.store(true, Ordering::Release); // O1
    }

    /// True once [`cancel`](Self::cancel) was called, or the token's signal was raised.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire) // O1
    }

    /// Makes `cancel` end the wait of `ticket`, until the returned record is dropped.
    pub(crate) fn record_wait(
        &self,
        locks: &Arc<AnyManager>,
        workers: &Workers,
        ticket: WaitTicket,
    ) -> WaitRecord {
        let wait = || Wait {
            locks: locks.clone(),
            workers: workers.clone(),
            ticket,
        };
        if !self.0.process.is_inherited() {
            // Site: "cancel token".
            shim::lock(&self.0.waits).push(wait());
        }
        if self.is_cancelled() {
            wait().end();
        }
        WaitRecord {
            token: self.clone(),
            locks: Arc::as_ptr(locks).addr(),
            ticket,
        }
    }
}

/// The record of a wait in the list of its token.
pub(crate) struct WaitRecord {
    token: CancelToken,
    /// Tickets are numbered by lock manager.
    locks: usize,
    ticket: WaitTicket,
}

impl Drop for WaitRecord {
    fn drop(&mut self) {
        if self.token.0.process.is_inherited() {
            return;
        }
        // Site: "cancel token".
        let mut waits = shim::lock(&self.token.0.waits);
        let ours = |wait: &Wait| {
            (Arc::as_ptr(&wait.locks).addr(), wait.ticket) == (self.locks, self.ticket)
        };
        if let Some(at) = waits.iter().position(ours) {
            let removed = waits.swap_remove(at);
            // It may drop the last reference to a lock manager, so the list is not locked any more.
            drop(waits);
            drop(removed);
        }
    }
}

/// True if a transaction with this token may continue.
#[inline]
pub(crate) fn is_not_cancelled(cancel_token: &Option<CancelToken>) -> bool {
    cancel_token
        .as_ref()
        .is_none_or(|cancel_token| !cancel_token.is_cancelled())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::bound::BoundTxn;
    use crate::{AsyncTransaction, Database, Lock, Options};
    use std::pin::pin;
    use std::task::{Context, Waker};

    fn recorded(cancel_token: &CancelToken) -> usize {
        shim::lock(&cancel_token.0.waits).len()
    }

    /// A list that only grew would fill the memory of a program that runs for long.
    #[test]
    fn waits_are_recorded_only_while_they_last() {
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
        assert_eq!(recorded(&cancel_token), 0);
        {
            let mut waits = pin!(granted.lock_advisory(7, Lock::Shared));
            assert!(waits.as_mut().poll(&mut context).is_pending());
            {
                let mut waits = Box::pin(dropped.lock_advisory(7, Lock::Shared));
                assert!(waits.as_mut().poll(&mut context).is_pending());
                assert_eq!(recorded(&cancel_token), 2);
            }
            assert_eq!(recorded(&cancel_token), 1);
            holder.commit().unwrap();
            assert!(waits.as_mut().poll(&mut context).is_ready());
        }
        assert_eq!(recorded(&cancel_token), 0);
    }

    #[test]
    fn a_token_is_shared_between_threads() {
        fn assert_shared<T: Send + Sync + Clone + 'static>() {}
        assert_shared::<CancelToken>();
        fn assert_send<T: Send>() {}
        assert_send::<(BoundTxn, AsyncTransaction)>();
    }
}
