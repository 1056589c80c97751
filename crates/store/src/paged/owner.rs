//! Page owner: the pages of a pool, as recovery sees them.
//!
//! Redo decodes the operation of a record and applies it to the page, by slot. It descends nowhere,
//! reads no space map and allocates nothing. Undo decodes table and key, and descends to the row.
//!
//! # The contract of [`Pages`]
//!
//! * P1  A writer logs and changes a page under the page's latch ([`PageLog`]).
//! * P2  One function of the pool writes pages, and it waits for the log first.
//! * P3  Pages are whole again before redo: each write is in the doublewrite buffer until a sync of
//!   the page file has returned. A page that was formatted and never written may have any bytes.
//! * P4, P5  A page that cannot be read counts as one without changes, because it may be one that
//!   was never written. Then its first change must be a formatting one, which reads nothing of the
//!   page; any other one is refused as damage. A change is made only to a page that has its
//!   previous change. So a lost write is noticed, and no change is made to bytes that it was not
//!   made for.
//! * P6  [`TreeVisit::undo`] logs one compensation under the latch of the row's page, and nothing
//!   fails between the log and the change.
//! * P7  A page in no frame is as durable as can be: only clean pages are evicted. One in a frame
//!   is asked under its latch, so each of its changes that is in the log is in the page too.
//!
//! # Frames
//!
//! Redo and undo make pages dirty and have no page cleaner to wait for. So they write pages
//! themselves when half of the frames are dirty.
//!
//! [`PageLog`]: super::page_log::PageLog
//! [`TreeVisit::undo`]: super::btree::TreeVisit::undo

use std::collections::HashMap;
use std::sync::Arc;

use foxton_log::Lsn;
use foxton_sync::shim::{self, Mutex};
use foxton_sync::worker::{Worker, Workers};

use super::PageId;
use super::btree::{PagedTree, TableDirectory, TreeError};
use super::page::{PageError, PageFault, PageOperation};
use super::page_log::{LoggedChange, PageEntry, RowUndo};
use super::pool::{BufferPool, PageRequest, PageReservation, PoolError};
use super::recovery::{ChainedChange, CompensationLog, Pages, RecordPosition};
use crate::failpoint;

/// The owner of the pages of a pool. See the [module](self).
#[derive(Debug)]
pub struct PageOwner {
    pool: Arc<BufferPool>,
    workers: Arc<Workers>,
    idle: Mutex<Vec<Worker>>,
    trees: Mutex<HashMap<u64, Arc<PagedTree>>>,
}

impl PageOwner {
    /// Returns the owner of the pages of `pool`, whose threads get their workers from `workers`.
    pub fn new(pool: Arc<BufferPool>, workers: Arc<Workers>) -> PageOwner {
        PageOwner {
            pool,
            workers,
            idle: Mutex::new(Vec::new()),
            trees: Mutex::new(HashMap::new()),
        }
    }

    /// Calls `body` with a worker that no other thread uses meanwhile.
    fn with_worker<R>(&self, body: impl FnOnce(&Worker) -> R) -> R {
        // Site: restart and rollback, before and after pages are read.
        let idle = shim::lock(&self.idle).pop();
        let worker = idle.unwrap_or_else(|| self.workers.worker());
        let result = body(&worker);
        shim::lock(&self.idle).push(worker);
        result
    }

    /// Writes pages if half of the frames are dirty.
    fn clean_if_crowded(&self, worker: &Worker) -> Result<(), PoolError> {
        while self.pool.dirty_count() * 2 > self.pool.stats().frames {
            if self.pool.clean_batch(worker)? == 0 {
                break;
            }
        }
        Ok(())
    }

    fn tree(&self, worker: &Worker, table: u64) -> Result<Option<Arc<PagedTree>>, TreeError> {
        if let Some(tree) = shim::lock(&self.trees).get(&table) {
            return Ok(Some(tree.clone()));
        }
        let directory = TableDirectory::new(self.pool.clone());
        let Some(tree) = directory.open(worker, table)? else {
            return Ok(None);
        };
        let tree = Arc::new(tree);
        shim::lock(&self.trees).insert(table, tree.clone());
        Ok(Some(tree))
    }

    fn fix(&self, worker: &Worker, request: PageRequest) -> Result<PageReservation<'_>, PoolError> {
        self.clean_if_crowded(worker)?;
        self.pool.reserve(worker, &[request])
    }
}

/// Returns the LSN of the page that is fixed, once no thread changes it.
fn lsn_of(worker: &Worker, fixed: &PageReservation<'_>) -> Lsn {
    let writer = fixed.pages()[0].lock(worker);
    writer.read().lsn()
}

fn damaged(page: PageId, fault: PageFault) -> TreeError {
    TreeError::Damaged(PageError { page, fault })
}

impl Pages for PageOwner {
    type Error = TreeError;

    fn page_lsn(&self, page: PageId) -> Result<Lsn, TreeError> {
        self.with_worker(|worker| match self.fix(worker, PageRequest::read(page)) {
            Ok(_) if worker.failpoints().misbehaves(&failpoint::LSN_IGNORED) => Ok(Lsn::ZERO),
            Ok(fixed) => Ok(lsn_of(worker, &fixed)),
            Err(PoolError::Damaged(_)) => Ok(Lsn::ZERO),
            Err(error) => Err(error.into()),
        })
    }

    fn redo(&self, place: RecordPosition, change: ChainedChange<'_>) -> Result<(), TreeError> {
        let (page, previous) = (change.page, change.previous);
        let malformed = |value| {
            damaged(
                page,
                PageFault::Field {
                    field: "redo",
                    value,
                },
            )
        };
        let operation = PageOperation::decode(change.redo);
        let operation = operation.ok_or_else(|| malformed(place.begin.bytes()))?;
        let is_format = matches!(operation, PageOperation::Format { .. });
        self.with_worker(|worker| {
            let reads = worker.failpoints().misbehaves(&failpoint::FORMAT_READS);
            let request = match is_format && !reads {
                true => PageRequest::create(page),
                false => PageRequest::read(page),
            };
            let fixed = self.fix(worker, request)?;
            let mut writer = fixed.pages()[0].lock(worker);
            let content = writer.read();
            let found = content.lsn();
            if found != previous && !is_format {
                let written = previous;
                return Err(damaged(page, PageFault::Stale { found, written }));
            }
            let checked = operation.check(&content, page);
            checked.map_err(|_| malformed(place.end.bytes()))?;
            let logged = LoggedChange {
                begin: place.begin,
                end: place.end,
            };
            writer.change(logged, |content| operation.apply(content, page));
            Ok(())
        })
    }

    fn undo(
        &self,
        page: PageId,
        undo: &[u8],
        log: &mut CompensationLog<'_>,
    ) -> Result<(), TreeError> {
        let malformed = |field| damaged(page, PageFault::Field { field, value: 0 });
        let undo = RowUndo::decode(undo).ok_or_else(|| malformed("undo"))?;
        self.with_worker(|worker| {
            self.clean_if_crowded(worker)?;
            let tree = self.tree(worker, undo.table)?;
            let tree = tree.ok_or_else(|| malformed("table of an undo"))?;
            let mut log = |entry: &PageEntry<'_>| {
                let mut redo = Vec::new();
                entry.operation.encode(&mut redo);
                let place = log.log(ChainedChange {
                    page: entry.page,
                    previous: entry.previous,
                    redo: &redo,
                })?;
                Some(LoggedChange {
                    begin: place.begin,
                    end: place.end,
                })
            };
            tree.visit(worker).run(|visit| visit.undo(&undo, &mut log))
        })
    }

    fn recovery_lsn(&self, page: PageId) -> Result<Option<Lsn>, TreeError> {
        Ok(self.with_worker(|worker| self.pool.recovery_lsn(worker, page)))
    }
}
