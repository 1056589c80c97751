//! Lock scopes: which locks are released at the end of a transaction.
//!
//! # Locks of a session
//!
//! They are in the list of the same owner as the locks of its transactions, before them. So both
//! are one owner in the wait-for graph. A transaction that waits for a number of the session waits
//! for whatever the session's transaction waits for. A cycle through both is found as any other. At
//! its end a transaction releases the locks that it acquired since it began, by the lock manager's
//! own savepoint.
//!
//! If a transaction requests a number that its session holds, the lock is held already or is
//! converted to a stronger mode. It keeps that mode, because a conversion is never taken back.
//!
//! # Invariants
//!
//! * I1  `kept` is a moment at which the owner held the numbers in `held` and nothing else.
//! * I2  With nothing in `held` the owner has no savepoint: releasing the last number removes it.
//!   So such transactions cost as much as those of no session.

use foxton_lock::any::AnyManager;
use foxton_lock::manager::LockManager;
use foxton_lock::owner::{LockSavepoint, Owner};
use foxton_lock::request::OwnerLabel;
use foxton_sync::worker::Worker;

use crate::engine::cancel_token::CancelToken;

/// See the [module](self).
pub(crate) enum LockScope {
    /// All locks are released.
    Transaction,
    /// There are no locks, and no other transaction is open.
    Unlocked,
    /// The session's own locks stay.
    Session(Box<SessionLocks>),
}

/// Locks and settings that a session keeps from one transaction to the next.
pub(crate) struct SessionLocks {
    pub(super) label: OwnerLabel,
    pub(super) cancel_token: Option<CancelToken>,
    /// Numbers, and how often each was locked.
    pub(super) held: Vec<(u64, u64)>,
    pub(super) kept: LockSavepoint,
}

impl LockScope {
    /// Releases the locks of the transaction.
    #[inline]
    pub(super) fn release(&self, locks: &AnyManager, worker: &Worker, owner: &mut Owner) {
        match self {
            LockScope::Transaction => locks.release_all(worker, owner),
            LockScope::Unlocked => {}
            LockScope::Session(session) => session.release(locks, worker, owner),
        }
    }
}

impl SessionLocks {
    pub(super) fn new() -> SessionLocks {
        SessionLocks {
            label: OwnerLabel::default(),
            cancel_token: None,
            held: Vec::new(),
            kept: LockSavepoint::START,
        }
    }

    #[cold]
    fn release(&self, locks: &AnyManager, worker: &Worker, owner: &mut Owner) {
        match self.held.is_empty() {
            true => locks.release_all(worker, owner), // I2
            false => locks.release_since(worker, owner, self.kept),
        }
    }
}
