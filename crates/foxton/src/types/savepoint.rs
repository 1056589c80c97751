//! A moment in a transaction, to go back to.

use foxton_lock::request::OwnerId;

/// A moment in a transaction, to go back to with
/// [`Transaction::rollback_to`](crate::Transaction::rollback_to).
///
/// Savepoints nest: going back to one forgets those taken after it. One is only good for the transaction
/// that gave it; any other refuses it.
///
/// Going back undoes changes and gives no locks back, at any isolation level: what was read since, and is
/// remembered by the program, may be why it went back. An insert that was undone leaves its key locked,
/// too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Savepoint {
    /// The address of the database's engine: owners are numbered by database.
    pub(crate) database: usize,
    pub(crate) owner: OwnerId,
    pub(crate) number: u64,
}
