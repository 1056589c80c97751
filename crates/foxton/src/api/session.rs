//! Locks that outlive transactions.

use std::fmt;
use std::sync::Arc;

use foxton_lock::request::OwnerLabel as Label;

use crate::api::async_transaction::AsyncTransaction;
use crate::api::database::Database;
use crate::api::retry;
use crate::api::transaction::Transaction;
use crate::engine::Engine;
use crate::engine::cancel_token::CancelToken;
use crate::engine::slot::{BoxSlot, SESSION_SLOT};
use crate::error::{Request, Result};
use crate::options::Locking;
use crate::txn::bound::BoundTxn;
use crate::txn::explicit_lock;
use crate::types::lock_options::LockOptions;

/// Advisory locks that stay from one transaction to the next, and the transactions among which they do.
///
/// Made by [`Database::session`]. A session locks numbers that mean something to the program alone, as
/// [`Transaction::lock_advisory`] does, but holds them until it [lets go](Self::unlock_advisory) or is
/// dropped, whatever becomes of its transactions. Nobody else, transaction or session, has them meanwhile in
/// a mode that conflicts. [`Database::locks`] and [`Database::waits`] show them by its label.
///
/// *What waits in circles.* A session and its transaction are one in the wait-for graph: if the
/// transaction waits for a row of somebody who waits for a number of the session, that is a deadlock, and is
/// found. Transactions that others begin are other parties. A thread that waits in one of them, holding a
/// session in its other hand, waits until [`Options::lock_wait`](crate::Options::lock_wait) ends it.
///
/// *How often.* Each time a number is locked counts, whatever the strength; it takes as many calls of
/// [`unlock_advisory`](Self::unlock_advisory) until it is free. It is held as strongly as it was ever asked
/// for since it was last free, also by a transaction of the session.
///
/// *One thing at a time.* While a transaction of it is open, the session refuses everything with
/// `session_busy`. Dropped meanwhile, its locks go when the transaction ends. It keeps the database open.
/// Its transactions wait for no seat where [`Options::admission`](crate::Options::admission) gives out seats: others could
/// have all of them and wait for what the session holds.
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
///     // A transaction for each part, and nobody else makes the report in between.
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
    engine: Arc<Engine>,
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
            engine: bound.ctx.engine.clone(),
            bound: Some(bound),
            slot,
        })
    }
}

impl Session {
    /// Returns the box, while no transaction has it.
    fn bound_mut(&mut self) -> Result<&mut BoundTxn> {
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

    /// Names the session for people: what it holds and awaits is shown by this name, and so are its
    /// transactions unless they have one of their own.
    ///
    /// # Errors
    /// `session_busy`, while a transaction of it is open.
    pub fn set_label(&mut self, label: impl Into<Label>) -> Result<()> {
        self.bound_mut()?.label_session(label.into());
        Ok(())
    }

    /// Has `cancel_token` end what the session waits for, and its transactions unless they are given another one:
    /// see [`CancelToken`]. What the session holds it holds still, and can let go of.
    ///
    /// # Errors
    /// `session_busy`, while a transaction of it is open.
    pub fn set_cancel_token(&mut self, cancel_token: &CancelToken) -> Result<()> {
        self.bound_mut()?.txn.set_session_cancel_token(cancel_token);
        Ok(())
    }

    /// Locks `number` until it is let go of as often as it was locked, and says whether it is locked: only
    /// with [`Lock::skip_locked`](crate::Lock::skip_locked) it may not be. `nowait` and `timeout` do here what
    /// they do for rows.
    ///
    /// # Errors
    /// A conflict, if the lock was not to be had: what the session held before it holds still, also after
    /// `session_deadlock`, which is the answer to one of those who wait in a circle. `session_busy`, while a
    /// transaction of it is open.
    pub fn lock_advisory(&mut self, number: u64, lock: impl Into<LockOptions>) -> Result<bool> {
        let request = explicit_lock::advisory(number, lock.into());
        self.bound_mut()?.lock_for_session(request)
    }

    /// As [`lock_advisory`](Self::lock_advisory), for tasks. A future that is dropped leaves no trace.
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

    /// Takes back one [`lock_advisory`](Self::lock_advisory) of `number`, and lets go of it if that was the
    /// last. `false`: the session has not locked it. What a transaction has locked goes at its end, and by
    /// nothing else.
    ///
    /// # Errors
    /// `session_busy`, while a transaction of it is open.
    pub fn unlock_advisory(&mut self, number: u64) -> Result<bool> {
        Ok(self.bound_mut()?.unlock_number(number))
    }

    /// Lets go of every number, however often it was locked, and says which they were, in no order.
    ///
    /// # Errors
    /// `session_busy`, while a transaction of it is open.
    pub fn unlock_all(&mut self) -> Result<Vec<u64>> {
        Ok(self.bound_mut()?.unlock_numbers())
    }

    /// Begins a transaction of the session. When it ends, however that is, the session's locks stay.
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
        self.engine.check()?;
        self.bound_mut()?.begin_in_session();
        Ok(self.bound.take().expect("looked at above"))
    }

    /// As [`Database::run`], in transactions of the session.
    ///
    /// # Errors
    /// As there; `session_busy`, while a transaction of it is open.
    pub fn run<T>(&mut self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        let attempts = self.engine.options.run_attempts;
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
        let engine = self.engine.clone();
        retry::run_async(|| self.begin_async(), &engine, body).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let back = self.slot.close();
        if let Some(bound) = self.bound.take().or(back) {
            BoundTxn::leave_session(bound);
        }
    }
}
