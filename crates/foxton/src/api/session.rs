//! Sessions: locks that outlive transactions.

use std::fmt;
use std::mem;
use std::sync::Arc;

use foxton_lock::request::OwnerLabel as Label;

use crate::api::async_transaction::AsyncTransaction;
use crate::api::database::Database;
use crate::api::retry;
use crate::api::transaction::Transaction;
use crate::engine::cancel_token::CancelToken;
use crate::engine::open_handle::OpenHandle;
use crate::engine::slot::{BoxSlot, SESSION_SLOT};
use crate::error::{Request, Result};
use crate::options::Locking;
use crate::txn::bound::BoundTxn;
use crate::txn::explicit_lock;
use crate::types::lock_options::LockOptions;

/// A session: advisory locks that it keeps from one transaction to the next, and those
/// transactions.
///
/// Made by [`Database::session`]. A session locks numbers whose meaning only the program knows, as
/// [`Transaction::lock_advisory`] does. It keeps them until it [unlocks](Self::unlock_advisory)
/// them or is dropped, however its transactions end. Meanwhile no other transaction or session gets
/// them in a mode that conflicts. [`Database::locks`] and [`Database::waits`] show them by the
/// session's label.
///
/// *Deadlocks.* A session and its transaction are one node of the wait-for graph. So if the
/// transaction waits for a row, and the transaction that has the row waits for a number of the
/// session, the database finds the deadlock. A transaction that the session did not begin is
/// another node, even in the same thread: if it waits for a lock that in turn waits for the
/// session, only [`Options::lock_wait`](crate::Options::lock_wait) ends the wait.
///
/// *Counts.* Each call that locks a number counts, whatever the mode; the number is free after as
/// many calls of [`unlock_advisory`](Self::unlock_advisory). Its mode is the strongest that the
/// session or one of its transactions has requested since it was last free.
///
/// *One at a time.* While one of its transactions is open, the session refuses everything with
/// `session_busy`. If it is dropped meanwhile, its locks are released when the transaction ends. A
/// session keeps the database open. Its transactions wait for no slot of
/// [`Options::admission`](crate::Options::admission): other clients could have all slots and wait
/// for a number of the session.
///
/// ```
/// use foxton::{Database, Lock, Options, Table};
///
/// const REPORTS: Table<u64, str> = Table::new("reports");
/// const NIGHTLY: u64 = 1;
///
/// let db = Database::in_memory(Options::default())?;
/// let mut session = db.session()?;
/// session.set_label("nightly")?;
/// session.lock_advisory(NIGHTLY, Lock::Exclusive)?;
/// for part in 0..3 {
///     // A transaction for each part, and no other session makes the report in between.
///     session.run(|tx| tx.put(&REPORTS, &part, "done"))?;
///     let mut other = db.session()?;
///     assert!(!other.lock_advisory(NIGHTLY, Lock::Exclusive.skip_locked())?);
/// }
/// assert!(session.unlock_advisory(NIGHTLY)?);
/// assert!(db.locks().is_empty());
/// # Ok::<(), foxton::Error>(())
/// ```
///
/// It may move between threads:
///
/// ```
/// fn assert_send<T: Send + 'static>() {}
/// assert_send::<foxton::Session>();
/// ```
pub struct Session {
    /// `None` while a transaction has it, or has put it into the slot.
    bound: Option<Box<BoundTxn>>,
    slot: Arc<BoxSlot<BoundTxn>>,
    /// Its share in the open database, the last of its fields.
    open: Arc<OpenHandle>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.bound.as_ref().map(|bound| bound.ctx.owner.id());
        f.debug_struct("Session")
            .field("owner", &owner)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Opens a session: see [`Session`].
    ///
    /// # Errors
    /// `session_without_locks`, if locking is off; a storage error if the log has failed.
    pub fn session(&self) -> Result<Session> {
        if self.options().locking == Locking::Off {
            return Err(Request::SessionWithoutLocks.into());
        }
        let mut bound = self.acquire()?;
        let slot = Arc::new(BoxSlot::new());
        bound.join_session(slot.clone());
        Ok(Session {
            bound: Some(bound),
            slot,
            open: self.share().clone(),
        })
    }
}

impl Session {
    /// Returns the box, while no transaction has it.
    fn bound_mut(&mut self) -> Result<&mut BoundTxn> {
        self.open.engine().check_process()?;
        if self.bound.is_none() {
            self.bound = self.slot.take();
            if let Some(bound) = &self.bound {
                bound.ctx.worker.account().passed(&SESSION_SLOT);
            }
        }
        let bound = self.bound.as_deref_mut().ok_or(Request::SessionBusy)?;
        // A future of an earlier request may have been forgotten while it waited.
        bound.withdraw();
        Ok(bound)
    }

    /// Names the session for people: its locks and waits are shown by this name, and so are its
    /// transactions, unless they have a label of their own.
    ///
    /// # Errors
    /// `session_busy`, while a transaction of it is open.
    pub fn set_label(&mut self, label: impl Into<Label>) -> Result<()> {
        self.bound_mut()?.label_session(label.into());
        Ok(())
    }

    /// Lets `cancel_token` end the session's waits, and its transactions unless they have another
    /// token: see [`CancelToken`]. The session keeps its locks, and can release them.
    ///
    /// # Errors
    /// `session_busy`, while a transaction of it is open.
    pub fn set_cancel_token(&mut self, cancel_token: &CancelToken) -> Result<()> {
        self.bound_mut()?.txn.set_session_cancel_token(cancel_token);
        Ok(())
    }

    /// Locks `number` until it is unlocked as often as it was locked, and returns true if it is
    /// locked: false only with [`Lock::skip_locked`](crate::Lock::skip_locked). `nowait` and
    /// `timeout` work as for rows.
    ///
    /// # Errors
    /// A conflict, if the lock was not granted. The session keeps its earlier locks even after
    /// `session_deadlock`, which is the error that ends a deadlock. `session_busy`, while a
    /// transaction of it is open.
    pub fn lock_advisory(&mut self, number: u64, lock: impl Into<LockOptions>) -> Result<bool> {
        let request = explicit_lock::advisory(number, lock.into());
        self.bound_mut()?.lock_for_session(request)
    }

    /// As [`lock_advisory`](Self::lock_advisory), for tasks. If the future is dropped, its request
    /// is withdrawn.
    ///
    /// # Errors
    /// As there.
    pub fn lock_advisory_async<'a, L: Into<LockOptions>>(
        &'a mut self,
        number: u64,
        lock: L,
    ) -> impl Future<Output = Result<bool>> + Send + use<'a, L> {
        let request = explicit_lock::advisory(number, lock.into());
        let bound = self.bound_mut();
        async move { bound?.lock_for_session_async(request).await }
    }

    /// Undoes one [`lock_advisory`](Self::lock_advisory) of `number`, and releases the lock if that
    /// was the last. Returns false if the session has not locked `number`. Only the end of a
    /// transaction releases the transaction's own locks.
    ///
    /// # Errors
    /// `session_busy`, while a transaction of it is open.
    pub fn unlock_advisory(&mut self, number: u64) -> Result<bool> {
        Ok(self.bound_mut()?.unlock_number(number))
    }

    /// Releases every number, however often it was locked, and returns the numbers in no order.
    ///
    /// # Errors
    /// `session_busy`, while a transaction of it is open.
    pub fn unlock_all(&mut self) -> Result<Vec<u64>> {
        Ok(self.bound_mut()?.unlock_numbers())
    }

    /// Begins a transaction of the session. However it ends, the session's locks stay.
    ///
    /// # Errors
    /// `session_busy`, while another transaction of it is open; else as for [`Database::begin`].
    pub fn begin(&mut self) -> Result<Transaction> {
        self.begin_bound().map(Transaction::new)
    }

    /// As [`begin`](Self::begin), for tasks.
    ///
    /// # Errors
    /// As there.
    pub fn begin_async(&mut self) -> Result<AsyncTransaction> {
        self.begin_bound().map(AsyncTransaction::new)
    }

    fn begin_bound(&mut self) -> Result<Box<BoundTxn>> {
        self.open.engine().check()?;
        self.bound_mut()?.begin_in_session();
        let mut bound = self.bound.take().expect("taken above");
        bound.keep_open(&self.open);
        Ok(bound)
    }

    /// As [`Database::run`], in transactions of the session.
    ///
    /// # Errors
    /// As there; `session_busy`, while a transaction of it is open.
    pub fn run<T>(&mut self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        let attempts = self.open.engine().options.run_attempts;
        retry::run(|| self.begin(), attempts, body)
    }

    /// As [`Database::run_async`], in transactions of the session.
    ///
    /// # Errors
    /// As there; `session_busy`, while a transaction of it is open.
    pub async fn run_async<T, F>(&mut self, body: impl FnMut(AsyncTransaction) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let open = self.open.clone();
        retry::run_async(|| self.begin_async(), open.engine(), body).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.open.engine().is_inherited() {
            mem::forget(self.bound.take());
            return;
        }
        let back = self.slot.close();
        if let Some(bound) = self.bound.take().or(back) {
            BoundTxn::leave_session(bound);
        }
    }
}
