//! Savepoints: positions within a transaction to roll back to.

use foxton_lock::request::OwnerId;

/// A position within a transaction, for
/// [`Transaction::rollback_to`](crate::Transaction::rollback_to).
///
/// Savepoints nest: rolling back to one discards those taken after it. A savepoint is valid only
/// for the transaction that created it; other transactions refuse it.
///
/// Rolling back to a savepoint undoes changes but releases no locks, at any isolation level. The
/// program may have rolled back because of a value it has read since, so those locks stay. The key
/// of an undone insert stays locked too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Savepoint {
    /// Address of the database's engine, because owners are numbered per database.
    pub(crate) database: usize,
    pub(crate) owner: OwnerId,
    pub(crate) number: u64,
}
