//! Whose a transaction's locks are when it ends, and where what it worked with goes.
//!
//! # A session's locks
//!
//! They stand in the list of the same owner as those of its transactions, before them. So the owner is one
//! in the wait-for graph: who waits for a number that the session holds waits for whatever its transaction
//! waits for, and a circle through both is found as any other. A transaction that ends gives back what came
//! since, by the lock manager's own savepoint.
//!
//! What a transaction asks for of a number that its session holds is held already, or makes the session's
//! lock stronger; it stays so, since managers go up and never down.
//!
//! # Invariants
//!
//! * I1  `kept` is a moment at which the owner held the numbers in `held` and nothing else.
//! * I2  With nothing in `held` the owner has no savepoint: the last one that goes takes it along, and
//!   transactions are as cheap as any.

use std::sync::Arc;

use foxton_lock::any::AnyManager;
use foxton_lock::manager::LockManager;
use foxton_lock::owner::{LockSavepoint, Owner};
use foxton_lock::request::OwnerLabel as Label;
use foxton_sync::worker::Worker;

use crate::engine::cancel_token::CancelToken;
use crate::engine::session_slot::Berth;

/// See the [module](self).
pub(crate) enum Tenure<S> {
    /// All locks go, and it goes to the rack.
    Usual,
    /// As usual, where nothing is locked and no other transaction is open.
    Alone,
    /// Those of the session stay, and it goes back there.
    Session(Box<Membership<S>>),
}

/// What a session keeps from one transaction to the next.
pub(crate) struct Membership<S> {
    pub(super) berth: Arc<Berth<S>>,
    pub(super) label: Label,
    pub(super) cancel_token: Option<CancelToken>,
    /// Numbers, and how often each was locked.
    pub(super) held: Vec<(u64, u64)>,
    pub(super) kept: LockSavepoint,
}

impl<S> Tenure<S> {
    /// Gives back what the transaction has locked.
    #[inline]
    pub(crate) fn release(&self, locks: &AnyManager, worker: &Worker, owner: &mut Owner) {
        match self {
            Tenure::Usual => locks.release_all(worker, owner),
            Tenure::Alone => {}
            Tenure::Session(membership) => membership.release(locks, worker, owner),
        }
    }
}

impl<S> Membership<S> {
    #[cold]
    fn release(&self, locks: &AnyManager, worker: &Worker, owner: &mut Owner) {
        match self.held.is_empty() {
            true => locks.release_all(worker, owner), // I2
            false => locks.release_since(worker, owner, self.kept),
        }
    }
}
