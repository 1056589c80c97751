//! Table store: the rows of a table, in one of the two components.
//!
//! Each operation begins with a match on it, and then works on one kind of rows. Operations on rows
//! in memory are in the files of `txn`, those on pages in `txn/paged`.

use std::sync::{Arc, OnceLock};

use foxton_store::memory::RecordTable;
use foxton_store::paged::btree::PagedTree;
use foxton_sync::epoch::Domain;

use crate::types::component::TableComponent;

/// See the [module](self).
#[derive(Debug)]
pub(crate) enum TableStore {
    Resident(RecordTable),
    Paged(PagedRows),
}

/// The rows of a paged table.
#[derive(Debug, Default)]
pub(crate) struct PagedRows {
    /// The tree. The first operation on the table opens it, because that may have to wait for
    /// pages.
    pub(crate) tree: OnceLock<Arc<PagedTree>>,
}

impl TableStore {
    pub(crate) fn new(component: TableComponent, domain: &Domain) -> TableStore {
        match component {
            TableComponent::Resident => TableStore::Resident(RecordTable::new(domain)),
            TableComponent::Paged => TableStore::Paged(PagedRows::default()),
        }
    }
}
