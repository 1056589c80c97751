//! Repeating history: every change that a page does not have is made again, in the order of the log, be it of a
//! transaction that was committed, of one that was not, or one that took something back. Behind this the pages are as they
//! were when the log ended, and taking back goes on as if nothing had happened.
//!
//! One thread reads the log. If there is much of it, others make the changes: each page belongs to one of them, so
//! the changes of a page are made in order, and no two threads ask for one page.
//!
//! # Invariants
//!
//! * I1 A change is made if the page is in the table, the change lies at its recovery LSN or behind, and the page's
//!   LSN lies before the end of the change; and only then.
//! * I2 The log is durable as far as it is read: opening it has made it so. A page that goes out meanwhile keeps to the
//!   write-ahead rule like any other.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope, ScopedJoinHandle};

use foxton_log::read::durable_reader::DurableReader;

use super::error::RecoveryError;
use super::pages::Pages;
use super::progress::Meter;
use super::record::{Place, Record};
use super::tables::{PageId, Tables};

/// Bytes of changes that are made by whoever reads them; more is given to others.
const INLINE_BYTES: u64 = 64 << 10;
/// Changes handed over at once, in bytes.
const BATCH_BYTES: usize = 32 << 10;
/// Batches that wait for one thread. More, and whoever reads waits.
const BATCHES: usize = 8;

/// What redo did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Redone {
    /// Changes that were made again.
    pub(super) made: u64,
    /// Changes that the pages had already.
    pub(super) had: u64,
}

impl Redone {
    fn add(&mut self, other: Redone) {
        self.made += other.made;
        self.had += other.had;
    }
}

/// Makes the changes that `follower` reads, as far as the tables say that pages may lack them.
pub(super) fn redo<P: Pages>(
    mut follower: DurableReader<'_>,
    tables: &Tables,
    pages: &P,
    threads: usize,
    meter: &Meter,
) -> Result<Redone, RecoveryError<P::Error>> {
    thread::scope(|scope| {
        let mut makers = Makers::new(scope, pages, threads);
        while let Some(view) = follower.next()? {
            meter.advance(view.end.since(view.lsn));
            let (page, redo) = match Record::decode(&view)? {
                Some(Record::Update(update)) => (update.page, update.redo),
                Some(Record::Compensation(compensation)) => (compensation.page, compensation.redo),
                _ => continue,
            };
            let place = Place {
                begin: view.lsn,
                end: view.end,
            };
            let behind = tables.pages.get(&page);
            if behind.is_some_and(|recovery| place.begin >= *recovery) {
                makers.make(page, place, redo)?;
            }
        }
        makers.finish()
    })
}

/// Makes one change, unless the page has it (I1).
fn make<P: Pages>(
    pages: &P,
    page: PageId,
    place: Place,
    redo: &[u8],
    done: &mut Redone,
) -> Result<(), P::Error> {
    if pages.page_lsn(page)? >= place.end {
        done.had += 1;
        return Ok(());
    }
    done.made += 1;
    pages.redo(page, place, redo)
}

/// Whoever makes changes: this thread, or several.
struct Makers<'scope, 'env, P: Pages> {
    scope: &'scope Scope<'scope, 'env>,
    pages: &'env P,
    threads: usize,
    bytes: u64,
    done: Redone,
    others: Vec<Maker<'scope, P::Error>>,
}

/// A thread that makes the changes of its pages.
struct Maker<'scope, E> {
    batch: Batch,
    batches: SyncSender<Batch>,
    thread: ScopedJoinHandle<'scope, Result<Redone, E>>,
}

/// Changes in the order of the log.
#[derive(Default)]
struct Batch {
    /// With where the bytes of each end in `bytes`.
    changes: Vec<(PageId, Place, usize)>,
    bytes: Vec<u8>,
}

impl<'scope, 'env, P: Pages> Makers<'scope, 'env, P> {
    fn new(scope: &'scope Scope<'scope, 'env>, pages: &'env P, threads: usize) -> Self {
        Makers {
            scope,
            pages,
            threads,
            bytes: 0,
            done: Redone::default(),
            others: Vec::new(),
        }
    }

    fn make(
        &mut self,
        page: PageId,
        place: Place,
        redo: &[u8],
    ) -> Result<(), RecoveryError<P::Error>> {
        self.bytes += redo.len() as u64;
        if self.threads > 1 && self.others.is_empty() && self.bytes > INLINE_BYTES {
            self.start();
        }
        if self.others.is_empty() {
            let made = make(self.pages, page, place, redo, &mut self.done);
            return made.map_err(RecoveryError::Pages);
        }
        let hash = crc32c::crc32c(&page.0.to_le_bytes()) as usize;
        let count = self.others.len();
        let other = &mut self.others[hash % count];
        other.batch.bytes.extend_from_slice(redo);
        let end = other.batch.bytes.len();
        other.batch.changes.push((page, place, end));
        if end >= BATCH_BYTES && other.hand_over().is_err() {
            // It has ended, with an error that is more telling than any of ours.
            let others = std::mem::take(&mut self.others);
            return join(others).and(Ok(()));
        }
        Ok(())
    }

    /// What was made before is in the pages, so nothing overtakes it.
    fn start(&mut self) {
        for _ in 0..self.threads {
            let (batches, receiver) = sync_channel(BATCHES);
            let pages = self.pages;
            let spawned = thread::Builder::new()
                .name("foxton-redo".to_owned())
                .spawn_scoped(self.scope, move || make_all(&receiver, pages));
            // Without threads, whoever reads makes the changes.
            let Ok(thread) = spawned else {
                return;
            };
            self.others.push(Maker {
                batch: Batch::default(),
                batches,
                thread,
            });
        }
    }

    /// Waits until everything is made.
    fn finish(mut self) -> Result<Redone, RecoveryError<P::Error>> {
        for other in &mut self.others {
            // If nobody takes it, the thread has ended, and `join` says why.
            let _ = other.hand_over();
        }
        self.done.add(join(self.others)?);
        Ok(self.done)
    }
}

impl<E> Maker<'_, E> {
    /// Fails if nobody is there to take it.
    fn hand_over(&mut self) -> Result<(), ()> {
        let batch = std::mem::take(&mut self.batch);
        self.batches.send(batch).map_err(|_| ())
    }
}

/// Waits for all, and tells the first error.
fn join<E>(others: Vec<Maker<'_, E>>) -> Result<Redone, RecoveryError<E>> {
    let mut sum = Ok(Redone::default());
    for other in others {
        drop(other.batches);
        let done = other.thread.join().expect("the owner's redo panicked");
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

fn make_all<P: Pages>(batches: &Receiver<Batch>, pages: &P) -> Result<Redone, P::Error> {
    let mut done = Redone::default();
    for batch in batches {
        let mut begin = 0;
        for (page, place, end) in batch.changes {
            make(pages, page, place, &batch.bytes[begin..end], &mut done)?;
            begin = end;
        }
    }
    Ok(done)
}
