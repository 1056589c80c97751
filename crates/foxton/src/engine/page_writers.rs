//! Registry of page writers: contexts whose open transaction has changed pages.
//!
//! The log from the first record of such a transaction on is kept until it ends. So a program that
//! forgets one fills its disk, and has to learn which one it is. A context registers once, and not
//! with each transaction: so transactions do not contend for the registry. A change then stores
//! where its transaction begins, in a cache line of the context's own.
//!
//! # Orderings
//!
//! None: a statistic, which leads to no memory. A thread that reads a begin, its owner and the
//! begin again may mix two short transactions that follow each other. One that keeps much log has
//! stood for long.

use std::sync::{Arc, Weak};

use foxton_lock::owner::{Owner, OwnerObserver};
use foxton_log::Lsn;
use foxton_sync::cache_line::CachePadded;
use foxton_sync::shim::{self, AtomicU64, Mutex, Ordering::Relaxed};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::status::LogHolder;

/// The first change of pages of each context.
static PAGE_WRITERS: Site = Site::new(Component::Transaction, Pattern::Unbounded, "page writers");

/// A context that writes pages.
#[derive(Debug)]
struct PageWriterState {
    /// Where the first record of the open transaction begins; `u64::MAX`: there is none.
    begin: AtomicU64,
    observer: OwnerObserver,
}

/// The entry of a context, made by its first change of a page.
#[derive(Debug, Default)]
pub(crate) struct PageWriterEntry(Option<Arc<CachePadded<PageWriterState>>>);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct PageWriters(Mutex<Vec<Weak<CachePadded<PageWriterState>>>>);

impl PageWriterEntry {
    /// Records that the transaction of `owner`, whose first record begins at `begin`, is open.
    #[inline]
    pub(crate) fn set(
        &mut self,
        worker: &Worker,
        writers: &PageWriters,
        owner: &Owner,
        begin: Lsn,
    ) {
        let state = self.0.get_or_insert_with(|| writers.insert(worker, owner));
        state.begin.store(begin.bytes(), Relaxed);
    }

    /// Records that the transaction has ended.
    #[inline]
    pub(crate) fn clear(&self) {
        if let Some(state) = &self.0 {
            state.begin.store(u64::MAX, Relaxed);
        }
    }
}

impl PageWriters {
    #[cold]
    fn insert(&self, worker: &Worker, owner: &Owner) -> Arc<CachePadded<PageWriterState>> {
        let state = Arc::new(CachePadded::new(PageWriterState {
            begin: AtomicU64::new(u64::MAX),
            observer: owner.observer(),
        }));
        worker.account().passed(&PAGE_WRITERS);
        let mut writers = shim::lock(&self.0);
        writers.retain(|writer| writer.strong_count() > 0);
        writers.push(Arc::downgrade(&state));
        state
    }

    /// Returns the transaction that keeps the most log, which ends at `end`.
    pub(crate) fn oldest(&self, end: Lsn) -> Option<LogHolder> {
        let writers = shim::lock(&self.0); // Site: "page writers": a look at them.
        let states = writers.iter().filter_map(Weak::upgrade);
        let open = states.filter(|state| state.begin.load(Relaxed) != u64::MAX);
        let oldest = open.min_by_key(|state| state.begin.load(Relaxed))?;
        let begin = oldest.begin.load(Relaxed);
        let (owner, label, since) = oldest.observer.describe();
        // It may have ended just now.
        (begin == oldest.begin.load(Relaxed) && begin != u64::MAX).then(|| LogHolder {
            owner: owner.to_string(),
            label: label.to_string(),
            since,
            first_lsn: begin,
            log_bytes: end.since(Lsn::new(begin)),
        })
    }
}
