//! Short locks: keys that are locked only while they are read.
//!
//! At [`Isolation::ReadCommitted`](crate::Isolation) a read requests its key, waits if another
//! transaction writes it, reads, and releases the key. It keeps a key that the transaction had
//! locked before, for example because it wrote the key.
//!
//! An operation may make several attempts, with waits in between. From its second attempt on, it
//! holds its key because the first one requested it. So the key is recorded before it is requested,
//! and the record is cleared when the next operation begins. A read that did not finish therefore
//! keeps its lock until the transaction ends.

use std::cell::Cell;

use foxton_lock::name::Name;

/// See the [module](self). A cell, because a cursor borrows the fields beside it.
#[derive(Debug, Default)]
pub(crate) struct ShortLock(Cell<Option<Name>>);

impl ShortLock {
    /// Clears the record when an operation begins.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.set(None);
    }

    /// Records `name`, which is not held and is requested next.
    pub(crate) fn record(&self, name: Name) {
        self.0.set(Some(name));
    }

    /// Takes the name that has to be released.
    pub(crate) fn take(&self) -> Option<Name> {
        self.0.take()
    }
}
