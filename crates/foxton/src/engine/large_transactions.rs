//! Registry of large transactions: those that have written a part of their redo and have not ended.
//!
//! The log from a transaction's first part on is kept until it ends. So a program that forgets a
//! large transaction fills its disk, and has to learn which one it is. The registry is written when
//! a transaction writes its first part and when it ends; others never touch it.

use std::collections::BTreeMap;
use std::time::Instant;

use foxton_lock::owner::Owner;
use foxton_log::Lsn;
use foxton_sync::shim::{self, Mutex};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::status::LogHolder;

/// First part, and end, of a large transaction.
static LARGE: Site = Site::new(
    Component::Transaction,
    Pattern::Unbounded,
    "large transactions",
);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct LargeTransactions {
    /// By the LSN at which the first part ends.
    open: Mutex<BTreeMap<Lsn, LargeTransaction>>,
}

#[derive(Debug)]
struct LargeTransaction {
    owner: String,
    label: String,
    /// Where the first part begins, or a little later.
    begin: Lsn,
    since: Instant,
}

impl LargeTransactions {
    /// Records that the transaction of `owner` has written its first part, of `bytes` bytes, which
    /// ends at `first`.
    pub(crate) fn insert(&self, worker: &Worker, first: Lsn, bytes: usize, owner: &Owner) {
        worker.account().passed(&LARGE);
        let transaction = LargeTransaction {
            owner: owner.id().to_string(),
            label: owner.label().to_string(),
            begin: Lsn::new(first.bytes().saturating_sub(bytes as u64)),
            since: Instant::now(),
        };
        shim::lock(&self.open).insert(first, transaction);
    }

    /// Records that the transaction whose first part ends at `first` has ended.
    pub(crate) fn remove(&self, worker: &Worker, first: Lsn) {
        worker.account().passed(&LARGE);
        shim::lock(&self.open).remove(&first);
    }

    /// Returns the transaction that keeps the most log, which ends at `end`.
    pub(crate) fn oldest(&self, end: Lsn) -> Option<LogHolder> {
        let open = shim::lock(&self.open);
        let (_, oldest) = open.first_key_value()?;
        Some(LogHolder {
            owner: oldest.owner.clone(),
            label: oldest.label.clone(),
            since: oldest.since.elapsed(),
            first_lsn: oldest.begin.bytes(),
            log_bytes: end.since(oldest.begin),
        })
    }
}
