//! Visits: attempts of one operation, and the pages that it has between them.

use std::fmt;

use foxton_log::{LogError, Lsn};
use foxton_sync::backoff::Backoff;
use foxton_sync::worker::Worker;
use smallvec::SmallVec;

use super::PagedTree;
use super::ahead::ScanAhead;
use super::error::TreeError;
use super::token::ScanToken;
use crate::failpoint::{VERSION_LATE, VERSION_MISSING};
use crate::paged::PageId;
use crate::paged::page::{KeyBytes, PageOperation, RowFlags, SlottedPage};
use crate::paged::page_log::{LogSpace, LoggedRow, PageEntry, PageRecord, RowBefore, RowUndo};
use crate::paged::pool::{
    AheadPages, FixedPage, PageAbsence, PageHint, PageRequest, PageReservation, PageUse, PageView,
    PageWriter, PoolError, WaitReason,
};
use crate::paged::recovery::{PageTransaction, UndoPosition};
use crate::paged::reserve::MAX_RESERVED;
use crate::paged::row_versions::{ROW_VERSIONS, VersionRecorder};
use crate::paged::space::{PageAllocation, PagePurpose};

/// Result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum TreeAttempt<T> {
    /// It finished.
    Done(T),
    /// It needs something that is not there: [`TreeVisit::wait`] waits for it.
    Wait,
}

/// Reason why a part of an attempt did not finish.
#[derive(Debug)]
pub(super) enum TreeStop {
    /// Another thread changed what was read: begin again.
    Again,
    /// The attempt ends with [`TreeAttempt::Wait`].
    Wait,
    /// It fails.
    Failed(TreeError),
}

impl From<TreeError> for TreeStop {
    fn from(error: TreeError) -> Self {
        TreeStop::Failed(error)
    }
}

/// Result of a part of an attempt.
pub(super) type Step<T> = Result<T, TreeStop>;

/// Pages of one reservation.
pub(super) type PageList = SmallVec<[PageRequest; MAX_RESERVED]>;

/// Something that an attempt lacked.
#[derive(Debug, Default)]
pub(super) enum Need {
    #[default]
    Nothing,
    /// Pages in frames.
    Pages(Box<PageList>),
    /// Frames for pages that are in memory or new. Nothing has to be read.
    Frames(Box<PageList>),
    /// Pages in frames, for a scan that will need others next.
    Ahead(Box<(PageList, AheadPages)>),
    /// A latch that other threads had, again and again.
    Latch(PageId),
    /// A free page of the file.
    FreePage,
    /// Bytes of log.
    LogSpace(u64),
    /// Bytes of log for a record of undo, which a full device does not refuse.
    LogSpaceOfUndo(u64),
    /// Bytes of undo for which the device has space.
    UndoSpace(usize),
    /// Fewer dirty pages.
    CleanPages,
}

/// A split that has begun and waits for something.
#[derive(Debug, Clone)]
pub(super) struct PendingSplit {
    pub(super) key: KeyBytes,
    pub(super) level: u8,
    /// The page that is to be split, and its LSN when it was found to be full.
    pub(super) full: (PageId, Lsn),
}

/// One operation of one thread on a tree: attempts, and waits between them.
///
/// It keeps the pages of its last wait in their frames until its next wait, or until it is
/// [released](Self::release) or dropped. Before its caller waits for anything else, such as a
/// lock, it is released.
pub struct TreeVisit<'t> {
    pub(super) tree: &'t PagedTree,
    pub(super) worker: &'t Worker,
    /// Boxed, as all that an operation on resident pages does without: visits are moved.
    pub(super) reservation: Option<Box<PageReservation<'t>>>,
    /// Pages that the attempt uses and that must stay (I6).
    wanted: SmallVec<[PageId; 2]>,
    /// Free pages that the operation has claimed.
    pub(super) allocations: SmallVec<[PageAllocation<'t>; 2]>,
    pub(super) need: Need,
    pub(super) pending_split: Option<Box<PendingSplit>>,
    /// The page of which the last [`TreeStop::Again`] was.
    busy: PageId,
    pub(super) token: ScanToken,
    pub(super) is_scan: bool,
    pub(super) ahead: ScanAhead,
    /// The leaf that was found last.
    pub(super) leaf: Option<PageHint>,
    /// The page of level 1 that was found last.
    pub(super) parent: Option<PageHint>,
    /// Purpose of pages that the operation claims.
    purpose: PagePurpose,
    /// The page that could not be read last, after the file was cut.
    pub(super) lost: Option<PageId>,
    /// True if the device has no space but what is kept for undo.
    pub(super) is_log_full: bool,
    /// The transaction that logs changes of rows.
    transaction: Option<&'t mut PageTransaction>,
    /// Keeps what changes of rows replace.
    recorder: Option<VersionRecorder<'t>>,
    /// Of an injected fault: what a change has replaced, and is recorded too late.
    late: Option<(KeyBytes, ReplacedState)>,
}

/// Flags and value of a row that a change replaces; `None`: there was none.
type ReplacedState = Option<(RowFlags, Vec<u8>)>;

impl fmt::Debug for TreeVisit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeVisit")
            .field("tree", &self.tree)
            .field("reservation", &self.reservation)
            .field("need", &self.need)
            .finish_non_exhaustive()
    }
}

impl PagedTree {
    /// Begins an operation, or several one after the other.
    pub fn visit<'t>(&'t self, worker: &'t Worker) -> TreeVisit<'t> {
        TreeVisit {
            tree: self,
            worker,
            reservation: None,
            wanted: SmallVec::new(),
            allocations: SmallVec::new(),
            need: Need::Nothing,
            pending_split: None,
            busy: self.root(),
            token: ScanToken::default(),
            is_scan: false,
            ahead: ScanAhead::default(),
            leaf: None,
            parent: None,
            purpose: PagePurpose::default(),
            lost: None,
            is_log_full: false,
            transaction: None,
            recorder: None,
            late: None,
        }
    }
}

impl<'t> TreeVisit<'t> {
    /// Makes later changes of rows changes of `transaction`, which logs them. Without a transaction
    /// no row is changed, unless the pool's log is [`Unlogged`].
    ///
    /// [`Unlogged`]: crate::paged::page_log::Unlogged
    pub fn log_to(&mut self, transaction: &'t mut PageTransaction) {
        self.transaction = Some(transaction);
    }

    /// Keeps what later changes of rows replace, for readers at snapshots.
    pub fn record_versions(&mut self, recorder: VersionRecorder<'t>) {
        self.recorder = Some(recorder);
    }

    /// Makes later changes those of a delete, which may claim the pages that are left to deletes.
    pub fn serve_removal(&mut self) {
        self.purpose = PagePurpose::Removal;
    }

    /// Returns the position of the last change that the transaction has logged.
    pub fn last_change(&self) -> Option<UndoPosition> {
        self.transaction.as_ref()?.last_change()
    }

    /// Waits for what the last attempt needed. The caller holds no latch, and no other
    /// reservation.
    ///
    /// # Errors
    ///
    /// If it cannot be had.
    pub fn wait(&mut self) -> Result<(), TreeError> {
        let (pool, worker) = (&*self.tree.pool, self.worker);
        if matches!(self.need, Need::CleanPages) {
            // The pages stay: the cleaner writes them too, and the attempt will need them.
            self.need = Need::Nothing;
            return Ok(pool.await_clean(worker)?);
        }
        // I5: frames are given up before others are requested.
        self.release();
        let need = std::mem::take(&mut self.need);
        let reason = match need {
            Need::Nothing | Need::CleanPages => None,
            Need::Pages(_) | Need::Ahead(_) => Some(WaitReason::Pages),
            Need::Frames(_) => Some(WaitReason::Frames),
            Need::Latch(_) => Some(WaitReason::Latch),
            Need::FreePage | Need::LogSpace(_) | Need::LogSpaceOfUndo(_) | Need::UndoSpace(_) => {
                Some(WaitReason::Space)
            }
        };
        let _counted = reason.map(|reason| pool.count_wait(worker, reason));
        match need {
            Need::Nothing | Need::CleanPages => {}
            Need::Pages(pages) | Need::Frames(pages) => self.keep(pool.reserve(worker, &pages))?,
            Need::Ahead(needed) => {
                let (pages, ahead) = &*needed;
                self.keep(pool.reserve_ahead(worker, pages, ahead))?;
            }
            Need::Latch(page) => {
                self.keep(pool.reserve(worker, &[PageRequest::read(page)]))?;
                if let Some(fixed) = self.reserved().first() {
                    fixed.await_latch(worker);
                }
            }
            Need::FreePage => pool.grow_file(worker)?,
            Need::LogSpace(bytes) => {
                let waited = pool.log().wait_for_space(worker, bytes);
                waited.map_err(TreeError::Log)?;
            }
            Need::LogSpaceOfUndo(bytes) => match pool.log().wait_for_space(worker, bytes) {
                Err(LogError::NotInserted(_)) => self.is_log_full = true,
                waited => waited.map_err(TreeError::Log)?,
            },
            Need::UndoSpace(bytes) => {
                let waited = pool.log().wait_for_undo_space(worker, bytes);
                waited.map_err(TreeError::Log)?;
            }
        }
        Ok(())
    }

    /// Keeps pages that were brought into frames. A page that was relocated since the attempt may
    /// have been cut off with the end of the file. So one that cannot be read is looked for anew,
    /// and the second time it is damaged.
    fn keep(&mut self, reserved: Result<PageReservation<'t>, PoolError>) -> Result<(), TreeError> {
        let space = self.tree.pool.space();
        match reserved {
            Ok(kept) => self.reservation = Some(Box::new(kept)),
            Err(PoolError::Damaged(error)) if space.was_cut() && self.lost != Some(error.page) => {
                self.lost = Some(error.page);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Gives up the pages that the visit keeps in their frames.
    pub fn release(&mut self) {
        self.reservation = None;
    }

    /// Makes attempts until one finishes, and waits between them.
    ///
    /// # Errors
    ///
    /// Those of the attempts, and of [`wait`](Self::wait).
    pub fn run<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<TreeAttempt<T>, TreeError>,
    ) -> Result<T, TreeError> {
        loop {
            match attempt(self)? {
                TreeAttempt::Done(result) => return Ok(result),
                TreeAttempt::Wait => self.wait()?,
            }
        }
    }

    /// Returns the leaf that was found last. The next operation on the tree may be there too.
    pub fn leaf(&self) -> Option<PageHint> {
        self.leaf
    }

    /// Looks in `leaf` first. It may be any page.
    #[must_use]
    pub fn beginning_at(mut self, leaf: Option<PageHint>) -> Self {
        self.leaf = leaf;
        self
    }

    /// Returns the leaves that the last finished read went through.
    pub fn token(&self) -> &ScanToken {
        &self.token
    }

    /// Makes one attempt. `body` is called again while other threads change what it reads. If that
    /// takes long, the attempt waits for their latch.
    pub(super) fn attempt<T>(
        &mut self,
        mut body: impl FnMut(&mut Self) -> Step<T>,
    ) -> Result<TreeAttempt<T>, TreeError> {
        let mut backoff = Backoff::new();
        loop {
            self.wanted.clear();
            let step = self.continue_split();
            match step.and_then(|()| body(self)) {
                Ok(result) => return Ok(TreeAttempt::Done(result)),
                Err(TreeStop::Again) if backoff.is_yielding() => {
                    self.need = Need::Latch(self.busy);
                    return Ok(TreeAttempt::Wait);
                }
                Err(TreeStop::Again) => backoff.snooze(),
                Err(TreeStop::Wait) => return Ok(TreeAttempt::Wait),
                Err(TreeStop::Failed(error)) => {
                    self.pending_split = None;
                    return Err(error);
                }
            }
        }
    }

    /// Ends a part of an attempt because another thread changed `page`.
    pub(super) fn busy<T>(&mut self, page: PageId) -> Step<T> {
        self.busy = page;
        Err(TreeStop::Again)
    }

    /// Ends a part of an attempt because it needs `request`, beside the pages that it wants.
    pub(super) fn missing<T>(&mut self, request: PageRequest) -> Step<T> {
        let wanted = self.wanted.iter().map(|page| PageRequest::read(*page));
        let pages: PageList = wanted.chain([request]).collect();
        self.need = Need::Pages(Box::new(pages));
        Err(TreeStop::Wait)
    }

    /// Wants `page` to stay in its frame until the attempt ends, should it have to wait (I6). More
    /// than five pages are not kept.
    pub(super) fn want(&mut self, page: PageId) {
        if !self.wanted.contains(&page) && self.wanted.len() + 1 < MAX_RESERVED {
            self.wanted.push(page);
        }
    }

    /// Forgets the wanted pages.
    pub(super) fn want_nothing(&mut self) {
        self.wanted.clear();
    }

    /// Returns a view of a page that was found, or ends this part of the attempt.
    pub(super) fn found(
        &mut self,
        page: PageId,
        found: Result<PageView<'t>, PageAbsence>,
    ) -> Step<PageView<'t>> {
        match found {
            Ok(view) => Ok(view),
            Err(PageAbsence::Busy) => self.busy(page),
            Err(PageAbsence::Missing) => self.missing(PageRequest::read(page)),
        }
    }

    /// Returns a view of `page`.
    pub(super) fn page(&mut self, page: PageId) -> Step<PageView<'t>> {
        let found = self.tree.pool.find(page);
        self.found(page, found)
    }

    /// Returns the pages that the visit keeps in their frames.
    pub(super) fn reserved(&self) -> &[FixedPage<'t>] {
        self.reservation.as_ref().map_or(&[], |kept| kept.pages())
    }

    /// Makes sure that the visit keeps all `pages` in their frames.
    pub(super) fn require(&mut self, pages: PageList) -> Step<()> {
        let is_kept = |request: &PageRequest| self.fixed(request.page).is_some();
        match pages.iter().all(is_kept) {
            true => Ok(()),
            false => {
                let pool = &self.tree.pool;
                let is_read = |request: &PageRequest| {
                    request.purpose != PageUse::Create && !pool.is_known(request.page)
                };
                self.need = match pages.iter().any(is_read) {
                    true => Need::Pages(Box::new(pages)),
                    false => Need::Frames(Box::new(pages)),
                };
                Err(TreeStop::Wait)
            }
        }
    }

    fn fixed(&self, page: PageId) -> Option<&FixedPage<'t>> {
        self.reserved().iter().find(|fixed| fixed.page() == page)
    }

    /// Latches a page that the visit keeps: a new one or a map, which are last in the order (I3).
    pub(super) fn lock(&self, page: PageId) -> PageWriter<'t> {
        let fixed = self.fixed(page).expect("a page that was required");
        fixed.lock(self.worker)
    }

    /// Latches a page at the version that was read.
    pub(super) fn try_lock(&mut self, view: &PageView<'t>) -> Step<PageWriter<'t>> {
        match view.try_lock(self.worker) {
            Some(writer) => Ok(writer),
            None => self.busy(view.page()),
        }
    }

    /// Claims pages until the operation has `count`.
    pub(super) fn allocate(&mut self, count: usize, near: PageId) -> Step<()> {
        while self.allocations.len() < count {
            let claim = self.tree.pool.claim_page(self.worker, near, self.purpose);
            match claim {
                Some(allocation) => self.allocations.push(allocation),
                None => {
                    self.need = Need::FreePage;
                    return Err(TreeStop::Wait);
                }
            }
        }
        Ok(())
    }

    /// Reserves log space, before any latch.
    pub(super) fn log_space(&mut self, bytes: usize) -> Step<LogSpace<'t>> {
        // A record has a head and, for each page, number, LSN and lengths.
        let bytes = bytes as u64 + 256;
        match LogSpace::reserve(self.tree.pool.log(), self.worker, bytes) {
            Some(space) => Ok(space),
            None => {
                self.need = Need::LogSpace(bytes);
                Err(TreeStop::Wait)
            }
        }
    }

    /// As [`log_space`](Self::log_space), for a record of undo. `None`: the device is full, and the
    /// record goes where the log keeps space for it.
    pub(super) fn log_space_of_undo(&mut self, bytes: usize) -> Step<Option<LogSpace<'t>>> {
        if self.is_log_full {
            return Ok(None);
        }
        let space = self.log_space(bytes);
        if let Need::LogSpace(bytes) = self.need {
            self.need = Need::LogSpaceOfUndo(bytes);
        }
        space.map(Some)
    }

    /// Makes sure that the transaction can undo one more change of a row, before any latch.
    pub(super) fn keep_undo_space(&mut self) -> Step<()> {
        // The undo has the key, the flags and the value before.
        let bytes = self.tree.size().max_row_bytes() + 16;
        let log = self.tree.pool.log();
        let transaction = self.transaction.as_deref_mut();
        if transaction.is_none_or(|transaction| log.keep_undo_space(transaction, bytes)) {
            return Ok(());
        }
        self.need = Need::UndoSpace(bytes);
        Err(TreeStop::Wait)
    }

    /// Ends this part of the attempt if it would make one more page dirty and too many are, before
    /// any latch. `page` is the page that it changes; `None`: it changes several.
    pub(super) fn admit_change(&mut self, page: Option<&PageView<'t>>) -> Step<()> {
        let is_dirty = page.is_some_and(PageView::is_dirty);
        match self.tree.pool.admits_change(self.worker, is_dirty) {
            true => Ok(()),
            false => {
                self.need = Need::CleanPages;
                Err(TreeStop::Wait)
            }
        }
    }

    /// Logs a change of a row and applies it (I4). It was checked at the version at which the page
    /// was latched.
    pub(super) fn change_row(
        &mut self,
        space: LogSpace<'_>,
        writer: &mut PageWriter<'_>,
        operation: PageOperation<'_>,
    ) -> Result<(), TreeError> {
        let page = writer.page();
        let (mut key, mut value, mut flags) = (KeyBytes::new(), Vec::new(), RowFlags::GHOST);
        let has_recorder = self.recorder.is_some();
        if has_recorder || self.transaction.is_some() {
            let content = writer.read();
            match &operation {
                PageOperation::Replace { slot, .. }
                | PageOperation::Rewrite { slot, .. }
                | PageOperation::SetFlags { slot, .. } => {
                    let slot = usize::from(*slot);
                    key = content.key(slot);
                    flags = content.row(slot).expect("it was checked").flags;
                    let keeps_value = matches!(&operation, PageOperation::SetFlags { .. });
                    if !keeps_value || has_recorder && !flags.has(RowFlags::GHOST) {
                        content.append_value(slot, &mut value);
                    }
                }
                PageOperation::Insert { key: new, .. } => key = KeyBytes::from_slice(new),
                _ => unreachable!("not a change of a row: {operation:?}"),
            }
        }
        let transaction = self.transaction.as_deref_mut().map(|transaction| {
            let before = match &operation {
                PageOperation::Replace { .. } => RowBefore::Value(&value),
                PageOperation::Rewrite { .. } => RowBefore::Row(flags, &value),
                PageOperation::SetFlags { .. } => RowBefore::Flags(flags),
                _ => RowBefore::Absent,
            };
            let table = self.tree.table;
            let key = &key[..];
            (transaction, RowUndo { table, key, before })
        });
        let entry = PageEntry {
            page,
            previous: writer.read().lsn(),
            operation,
        };
        let log = self.tree.pool.log();
        let row = LoggedRow {
            entry: &entry,
            transaction,
        };
        let logged = log.insert(self.worker, space, PageRecord::Row(row))?;
        if let Some(recorder) = &mut self.recorder {
            // Before the page has the new state: I1 of `row_versions`.
            let before = (!flags.has(RowFlags::GHOST)).then_some((flags, value));
            self.worker.account().passed(&ROW_VERSIONS);
            match self.worker.failpoints().misbehaves(&VERSION_LATE) {
                true => self.late = Some((key, before)),
                false => recorder.replace((self.tree.table, &key), before),
            }
        }
        writer.change(logged, |content| entry.operation.apply(content, page));
        Ok(())
    }

    /// Records what a change has replaced that an injected fault has not recorded in time. The page
    /// is not latched any more.
    pub(super) fn record_late(&mut self) {
        if let (Some((key, before)), Some(recorder)) = (self.late.take(), &mut self.recorder) {
            self.worker.failpoints().pass(&VERSION_MISSING);
            recorder.replace((self.tree.table, &key), before);
        }
    }

    /// Checks the operations of an SMO, logs them as one record, and applies them (I3, I4). They
    /// are used up: what is left of `pages` are the latches.
    pub(super) fn change_structure(
        &self,
        space: LogSpace<'_>,
        pages: &mut [(PageWriter<'_>, PageOperation<'_>)],
    ) -> Result<(), TreeError> {
        let mut entries = SmallVec::<[PageEntry<'_>; MAX_RESERVED]>::new();
        for (writer, operation) in pages.iter_mut() {
            let page = writer.page();
            let content: SlottedPage<_> = writer.read();
            if let Err(error) = operation.check(&content, page) {
                debug_assert!(false, "page {page}: {error}");
                return Err(TreeError::field(page, "structure", content.lsn().bytes()));
            }
            let used_up = PageOperation::Remove { slot: 0 };
            entries.push(PageEntry {
                page,
                previous: content.lsn(),
                operation: std::mem::replace(operation, used_up),
            });
        }
        let log = self.tree.pool.log();
        let logged = log.insert(self.worker, space, PageRecord::Structure(&entries))?;
        for ((writer, _), entry) in pages.iter_mut().zip(&entries) {
            writer.change(logged, |content| entry.operation.apply(content, entry.page));
        }
        Ok(())
    }
}
