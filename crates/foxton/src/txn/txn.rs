//! A transaction: its phase, its settings, its changes and what it waits for.
//!
//! It needs no worker of its own: a function that reads or changes something on behalf of a
//! transaction takes a [`WorkerContext`](super::context::WorkerContext) beside it.
//!
//! # Invariants
//!
//! * I1  In a phase other than `Active` and `Watched` there are no changes and no locks but a
//!   session's: the conflict that ended the transaction rolled it back, or it has committed. The
//!   exception is a pending rollback.
//! * I2  Only tasks leave anything pending. Every operation of a task completes it before its own
//!   work, and so does every end.

use foxton_lock::name::Name;
use foxton_log::Lsn;
use foxton_store::paged::recovery::PageTransaction;
use foxton_store::paged::row_versions::OwnedVersions;

use super::changes::{ChangeCounts, Changes};
use super::index_plan::IndexPlan;
use super::lock_scope::LockScope;
use super::scan_state::ScanState;
use super::short_lock::ShortLock;
use super::snapshot_view::SnapshotView;
use crate::catalog::Catalog;
use crate::checkpoint::WriteCredit;
use crate::engine::cancel_token::{CancelToken, is_not_cancelled};
use crate::engine::early_release::ReadDependencies;
use crate::error::Conflict;
use crate::options::{Durability, Locking, Options};
use crate::types::isolation::Isolation;

/// See the [module](self). One for each worker context, used again by its next transaction.
pub(crate) struct Txn {
    pub(crate) phase: Phase,
    /// The conflict that ended the transaction, until the program drops it.
    pub(crate) ended_by: Option<Conflict>,
    /// Cancels the transaction from elsewhere; set in phase `Watched`.
    pub(crate) cancel_token: Option<CancelToken>,
    /// True if it has used a paged table: after a failure of the pages it does not commit.
    pub(crate) uses_pages: bool,
    /// True if it commits changes of pages.
    pub(crate) has_changed_pages: bool,
    pub(crate) durability: Durability,
    pub(crate) isolation: Isolation,
    /// True if it has read by key or by range, other than at a snapshot.
    pub(crate) has_read: bool,
    /// The snapshot at which plain reads read, once it is taken.
    pub(crate) view: Option<SnapshotView>,
    pub(crate) changes: Changes,
    /// States that its changes of paged tables have replaced, for readers at snapshots.
    pub(super) row_versions: OwnedVersions,
    /// Its records of changes of pages.
    pub(crate) page_transaction: PageTransaction,
    /// Large values that the transaction has marked.
    pub(super) marked_values: Vec<u64>,
    pub(crate) pending: PendingUndo,
    /// End of its commit record in the log, once the record is there.
    pub(crate) commit_lsn: Lsn,
    /// Bytes that it may still write while a checkpoint has fallen behind, and whether its commit
    /// has to wait for the checkpoint.
    pub(crate) credit: WriteCredit,
    /// Early released commits that its reads by key depend on; `scan` has those of its scans.
    pub(crate) reads: ReadDependencies,
    pub(crate) scan: ScanState,
    pub(crate) operation_locks: OperationLocks,
    /// Index changes of the current write, if its table has indexes.
    pub(crate) index_plan: IndexPlan,
    pub(crate) lock_scope: LockScope,
    /// Change of the catalog, made once it is certain that the transaction commits, while it still
    /// has its locks.
    pub(crate) on_commit: Option<CatalogChange>,
}

/// See [`Txn::on_commit`].
pub(crate) type CatalogChange = Box<dyn FnOnce(&Catalog) + Send>;

/// Locks that an operation releases before the transaction ends.
#[derive(Debug, Default)]
pub(crate) struct OperationLocks {
    /// The key that a read locks only while it reads; a scan has its own.
    pub(crate) short_lock: ShortLock,
    /// The gap that the current insert locked and that was not locked before.
    pub(crate) fresh_gap: Option<Name>,
}

/// Undo that a task does step by step, and has not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingUndo {
    Nothing,
    /// Of the changes from `from` on, for a savepoint; with `log`, into the log as well.
    Savepoint {
        from: ChangeCounts,
        log: bool,
    },
    /// Of the whole transaction.
    Rollback,
}

/// Whether a transaction accepts operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It does.
    Active,
    /// It does, unless its cancel token is cancelled. A phase of its own, so that a transaction
    /// without a token checks nothing.
    Watched,
    /// A conflict ended it.
    Ended,
    /// It has released its locks early and waits for its acknowledgement.
    Released,
    /// The idle timeout ended it.
    Idle,
    /// Its cancel token ended it.
    Cancelled,
}

impl Phase {
    /// True if there may be locks and changes.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Phase::Active | Phase::Watched)
    }
}

impl Txn {
    pub(super) fn new(options: &Options) -> Txn {
        let lock_scope = match options.locking {
            Locking::On => LockScope::Transaction,
            Locking::Off => LockScope::Unlocked,
        };
        Txn {
            phase: Phase::Active,
            ended_by: None,
            cancel_token: None,
            uses_pages: false,
            has_changed_pages: false,
            durability: options.durability,
            isolation: options.isolation,
            has_read: false,
            view: None,
            changes: Changes::default(),
            row_versions: OwnedVersions::default(),
            page_transaction: PageTransaction::new(),
            marked_values: Vec::new(),
            pending: PendingUndo::Nothing,
            commit_lsn: Lsn::default(),
            credit: WriteCredit::default(),
            reads: ReadDependencies::default(),
            scan: ScanState::default(),
            operation_locks: OperationLocks::default(),
            index_plan: IndexPlan::default(),
            lock_scope,
            on_commit: None,
        }
    }

    /// True if the commit needs no record.
    #[inline]
    pub(crate) fn has_no_redo(&self) -> bool {
        self.changes.has_no_redo() && !self.page_transaction.has_begun()
    }

    /// True if it has written versions that a reader at a snapshot may find.
    #[inline]
    pub(super) fn has_versions(&self) -> bool {
        !self.changes.undo.is_empty() || !self.row_versions.is_empty()
    }

    /// Makes `cancel_token` able to end the transaction.
    pub(crate) fn set_cancel_token(&mut self, cancel_token: &CancelToken) {
        if self.phase.is_open() {
            self.cancel_token = Some(cancel_token.clone());
            self.phase = Phase::Watched;
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        !is_not_cancelled(&self.cancel_token)
    }

    /// Forgets a transaction that has ended, for the next one.
    pub(super) fn reset(&mut self, options: &Options) {
        if self.phase != Phase::Active {
            self.phase = Phase::Active;
            self.ended_by = None;
            self.cancel_token = None;
        }
        self.uses_pages = false;
        self.has_changed_pages = false;
        self.has_read = false;
        self.on_commit = None;
        self.durability = options.durability;
        self.isolation = options.isolation;
        self.credit.done();
        self.changes.savepoints.clear();
        self.reads.clear();
        self.scan.reads.clear();
        self.scan.shrink();
    }
}
