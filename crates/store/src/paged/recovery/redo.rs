//! Redo: repeats history. Every change that a page lacks is made again, in the order of the log,
//! whether its transaction was committed or not, and compensations as well. Afterwards the pages
//! are as they were when the log ended, and undo continues as if nothing had happened.
//!
//! One thread reads the log. If there is much of it, others make the changes: each page belongs to
//! one of them, so the changes of a page are made in order, and no two threads work on one page.
//!
//! # Invariants
//!
//! * I1  A change is made if the page is in the table, the change is at its recovery LSN or behind,
//!   and the page's LSN is before the end of the change; and only then.
//! * I2  The log is durable as far as it is read: opening it has made it so. A page that is written
//!   meanwhile keeps the write-ahead rule like any other.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope, ScopedJoinHandle};

use foxton_log::Lsn;
use foxton_log::read::durable_reader::DurableReader;

use super::error::RecoveryError;
use super::pages::Pages;
use super::progress::PhaseMeter;
use super::record::{ChainedChange, RecordPosition, RecoveryRecord};
use super::tables::Tables;
use crate::paged::PageId;

/// Bytes of changes that the reading thread makes itself; more is given to workers.
const INLINE_BYTES: u64 = 64 << 10;
/// Bytes of changes in a batch.
const BATCH_BYTES: usize = 32 << 10;
/// Number of batches that wait for one thread. With more, the reading thread waits.
const BATCHES: usize = 8;

/// Result of redo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RedoStats {
    /// Number of changes that were made again.
    pub(super) applied: u64,
    /// Number of changes that the pages already had.
    pub(super) present: u64,
}

impl RedoStats {
    fn add(&mut self, worker: RedoStats) {
        self.applied += worker.applied;
        self.present += worker.present;
    }
}

/// Makes the changes that `reader` reads, as far as the tables say that pages may lack them.
pub(super) fn redo<P: Pages>(
    mut reader: DurableReader<'_>,
    tables: &Tables,
    pages: &P,
    threads: usize,
    meter: &PhaseMeter,
) -> Result<RedoStats, RecoveryError<P::Error>> {
    thread::scope(|scope| {
        let mut workers = RedoWorkers::new(scope, pages, threads);
        while let Some(view) = reader.next()? {
            meter.advance(view.end.since(view.lsn));
            let Some(record) = RecoveryRecord::decode(&view)? else {
                continue;
            };
            let place = RecordPosition {
                begin: view.lsn,
                end: view.end,
            };
            for change in record.changes() {
                let behind = tables.pages.get(&change.page);
                if behind.is_some_and(|recovery| place.begin >= *recovery) {
                    workers.apply(place, *change)?;
                }
            }
        }
        workers.finish()
    })
}

/// Makes one change, unless the page has it (I1).
fn apply<P: Pages>(
    pages: &P,
    place: RecordPosition,
    change: ChainedChange<'_>,
    done: &mut RedoStats,
) -> Result<(), P::Error> {
    if pages.page_lsn(change.page)? >= place.end {
        done.present += 1;
        return Ok(());
    }
    done.applied += 1;
    pages.redo(place, change)
}

/// The threads that make changes: this thread, or several.
struct RedoWorkers<'scope, 'env, P: Pages> {
    scope: &'scope Scope<'scope, 'env>,
    pages: &'env P,
    threads: usize,
    bytes: u64,
    done: RedoStats,
    workers: Vec<RedoWorker<'scope, P::Error>>,
}

/// A thread that makes the changes of its pages.
struct RedoWorker<'scope, E> {
    batch: Batch,
    batches: SyncSender<Batch>,
    thread: ScopedJoinHandle<'scope, Result<RedoStats, E>>,
}

/// Changes in the order of the log.
#[derive(Default)]
struct Batch {
    changes: Vec<BatchedChange>,
    /// The redo of all changes.
    bytes: Vec<u8>,
}

/// A change without its redo.
struct BatchedChange {
    place: RecordPosition,
    page: PageId,
    previous: Lsn,
    /// Where its redo ends in the bytes of the batch.
    end: usize,
}

impl<'scope, 'env, P: Pages> RedoWorkers<'scope, 'env, P> {
    fn new(scope: &'scope Scope<'scope, 'env>, pages: &'env P, threads: usize) -> Self {
        RedoWorkers {
            scope,
            pages,
            threads,
            bytes: 0,
            done: RedoStats::default(),
            workers: Vec::new(),
        }
    }

    fn apply(
        &mut self,
        place: RecordPosition,
        change: ChainedChange<'_>,
    ) -> Result<(), RecoveryError<P::Error>> {
        self.bytes += change.redo.len() as u64;
        if self.threads > 1 && self.workers.is_empty() && self.bytes > INLINE_BYTES {
            self.start();
        }
        if self.workers.is_empty() {
            let applied = apply(self.pages, place, change, &mut self.done);
            return applied.map_err(RecoveryError::Pages);
        }
        let ChainedChange {
            page,
            previous,
            redo,
        } = change;
        let hash = crc32c::crc32c(&page.0.to_le_bytes()) as usize;
        let count = self.workers.len();
        let worker = &mut self.workers[hash % count];
        worker.batch.bytes.extend_from_slice(redo);
        let end = worker.batch.bytes.len();
        worker.batch.changes.push(BatchedChange {
            place,
            page,
            previous,
            end,
        });
        if end >= BATCH_BYTES && worker.send().is_err() {
            // It has ended, with an error that says more than ours.
            let workers = std::mem::take(&mut self.workers);
            return join(workers).and(Ok(()));
        }
        Ok(())
    }

    /// Changes made before are in the pages, so no change is overtaken.
    fn start(&mut self) {
        for _ in 0..self.threads {
            let (batches, receiver) = sync_channel(BATCHES);
            let pages = self.pages;
            let spawned = thread::Builder::new()
                .name("foxton-redo".to_owned())
                .spawn_scoped(self.scope, move || apply_all(&receiver, pages));
            // Without workers, the reading thread makes the changes.
            let Ok(thread) = spawned else {
                return;
            };
            self.workers.push(RedoWorker {
                batch: Batch::default(),
                batches,
                thread,
            });
        }
    }

    /// Waits until all changes are made.
    fn finish(mut self) -> Result<RedoStats, RecoveryError<P::Error>> {
        for worker in &mut self.workers {
            // If the send fails, the thread has ended, and `join` says why.
            let _ = worker.send();
        }
        self.done.add(join(self.workers)?);
        Ok(self.done)
    }
}

impl<E> RedoWorker<'_, E> {
    /// Fails if the thread has ended.
    fn send(&mut self) -> Result<(), ()> {
        let batch = std::mem::take(&mut self.batch);
        self.batches.send(batch).map_err(|_| ())
    }
}

/// Waits for all workers, and returns the first error.
fn join<E>(workers: Vec<RedoWorker<'_, E>>) -> Result<RedoStats, RecoveryError<E>> {
    let mut sum = Ok(RedoStats::default());
    for worker in workers {
        drop(worker.batches);
        let done = worker.thread.join().expect("the owner's redo panicked");
        sum = match (sum, done) {
            (Ok(mut sum), Ok(done)) => {
                sum.add(done);
                Ok(sum)
            }
            (Ok(_), Err(error)) => Err(RecoveryError::Pages(error)),
            (failed, _) => failed,
        };
    }
    sum
}

fn apply_all<P: Pages>(batches: &Receiver<Batch>, pages: &P) -> Result<RedoStats, P::Error> {
    let mut done = RedoStats::default();
    for batch in batches {
        let mut begin = 0;
        for batched in batch.changes {
            let change = ChainedChange {
                page: batched.page,
                previous: batched.previous,
                redo: &batch.bytes[begin..batched.end],
            };
            apply(pages, batched.place, change, &mut done)?;
            begin = batched.end;
        }
    }
    Ok(done)
}
