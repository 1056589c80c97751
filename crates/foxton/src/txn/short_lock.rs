//! A key that is locked only while it is read.
//!
//! At [`Isolation::ReadCommitted`](crate::Isolation) a read asks for its key, waits if somebody writes it,
//! reads, and lets go. It does not let go of what the transaction had locked before, as one that reads
//! what it has written itself.
//!
//! An operation may be attempted several times, with waits in between, and at the second attempt holds
//! its key by the first. So what is to be let go of is noted before the lock is asked for, and forgotten
//! when the next operation begins: the lock of a read that did not come to its end stays to the end of
//! the transaction.

use std::cell::Cell;

use foxton_lock::name::Name;

/// See the [module](self). A cell, since a cursor borrows what stands beside it.
#[derive(Debug, Default)]
pub(crate) struct ShortLock(Cell<Option<Name>>);

impl ShortLock {
    /// An operation begins.
    #[inline]
    pub(crate) fn forget(&self) {
        self.0.set(None);
    }

    /// `name` is about to be asked for, and is not held.
    pub(crate) fn note(&self, name: Name) {
        self.0.set(Some(name));
    }

    /// What is to be let go of.
    pub(crate) fn take(&self) -> Option<Name> {
        self.0.take()
    }
}
