//! Pages as a restart would have them: those of the file, and in memory those that the log changes.
//!
//! A page that cannot be changed as the log says is reported once and not changed any more.

use std::collections::HashMap;

use foxton_log::Lsn;
use foxton_sync::shim::{self, Mutex};

use super::{CheckPagesError, PageDefect, PageFinding};
use crate::paged::PageId;
use crate::paged::page::{PageFault, PageOperation, PageSize, SlottedPage, unseal};
use crate::paged::recovery::restart::repeat_history;
use crate::paged::recovery::{Analysis, ChainedChange, CompensationLog, Pages, RecordPosition};
use crate::paged::space::{DoublewriteImages, PageFile, PageFileError, PageSource};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct RestartedPages<'a> {
    file: PageFile,
    analysis: &'a Analysis,
    images: Option<DoublewriteImages>,
    log_end: Lsn,
    /// `None` for a page that was reported.
    changed: Mutex<HashMap<PageId, Option<Vec<u8>>>>,
    findings: Mutex<Vec<PageFinding>>,
}

/// Content of a page that was read.
#[derive(Debug)]
pub(super) enum PageContent {
    Whole,
    /// Only zeros: never written.
    Empty,
    Damaged(PageFault),
    /// It is damaged, which was reported.
    Reported,
}

impl<'a> RestartedPages<'a> {
    pub(super) fn new(
        source: &PageSource<'_>,
        analysis: &'a Analysis,
    ) -> Result<RestartedPages<'a>, PageFileError> {
        let file = source.open()?;
        let images = DoublewriteImages::read(source.directory, source.doublewrite, &file)?;
        Ok(RestartedPages {
            file,
            analysis,
            images,
            log_end: analysis.log_end(),
            changed: Mutex::new(HashMap::new()),
            findings: Mutex::new(Vec::new()),
        })
    }

    pub(super) fn size(&self) -> PageSize {
        self.file.size()
    }

    /// Logical end of the file, in pages.
    pub(super) fn end(&self) -> u64 {
        self.file.header().end
    }

    /// Returns a finding.
    pub(super) fn finding(&self, page: PageId, defect: PageDefect) -> PageFinding {
        let offset = page.number().saturating_mul(self.size().bytes() as u64);
        PageFinding {
            page,
            offset,
            defect,
        }
    }

    pub(super) fn log_end(&self) -> Lsn {
        self.log_end
    }

    /// Makes the changes that the file lacks, and returns the defects that this finds.
    pub(super) fn redo(
        &self,
        source: &PageSource<'_>,
        analysis: &Analysis,
    ) -> Result<Vec<PageFinding>, CheckPagesError> {
        let repeated = repeat_history(source.directory, &source.identity, analysis, self);
        repeated.map_err(CheckPagesError::Log)?;
        // Site: "page latch", which one thread alone passes: a check.
        Ok(std::mem::take(&mut *shim::lock(&self.findings)))
    }

    /// Reads `page` into `image`.
    pub(super) fn read(
        &self,
        page: PageId,
        image: &mut [u8],
    ) -> Result<PageContent, PageFileError> {
        // Site: "page latch", which one thread alone passes: a check.
        match shim::lock(&self.changed).get(&page) {
            Some(None) => return Ok(PageContent::Reported),
            Some(Some(changed)) => {
                image.copy_from_slice(changed);
                let verified = SlottedPage::new(&*image).verify();
                return Ok(verified.map_or_else(PageContent::Damaged, |()| PageContent::Whole));
            }
            None => {}
        }
        self.file.read_unchecked(page, image)?;
        let Err(error) = unseal(image, page, &self.file.identity()) else {
            return Ok(PageContent::Whole);
        };
        let is_empty = image.iter().all(|byte| *byte == 0);
        let images = self.images.as_ref();
        // As at opening: an image is used if redo makes all changes behind it.
        if images.map_or(Ok(false), |images| images.copy(page, image))?
            && self.analysis.redoes(page, SlottedPage::new(&*image).lsn())
        {
            return Ok(PageContent::Whole);
        }
        Ok(match is_empty {
            true => {
                image.fill(0);
                PageContent::Empty
            }
            false => PageContent::Damaged(error.fault),
        })
    }

    /// Makes a change. Returns the defect that prevents it.
    fn change(
        &self,
        place: RecordPosition,
        change: ChainedChange<'_>,
    ) -> Result<Result<Vec<u8>, PageDefect>, PageFileError> {
        let (page, at) = (change.page, place.begin);
        let misfit = Ok(Err(PageDefect::Redo { at }));
        let Some(operation) = PageOperation::decode(change.redo) else {
            return misfit;
        };
        if page.tablespace() != 0 || page.number() >= self.end() {
            return misfit;
        }
        let mut image = vec![0; self.size().bytes()];
        let is_format = matches!(operation, PageOperation::Format { .. });
        if is_format {
            image.fill(0);
        } else {
            match self.read(page, &mut image)? {
                PageContent::Whole => {}
                PageContent::Damaged(fault) => return Ok(Err(PageDefect::Damaged(fault))),
                PageContent::Empty | PageContent::Reported => return Ok(Err(PageDefect::Empty)),
            }
        }
        let mut content = SlottedPage::new(&mut image[..]);
        let is_next = is_format || content.lsn() == change.previous;
        if !is_next || operation.check(&content, page).is_err() {
            return misfit;
        }
        operation.apply(&mut content, page);
        content.set_lsn(place.end);
        Ok(Ok(image))
    }
}

impl Pages for RestartedPages<'_> {
    type Error = PageFileError;

    fn page_lsn(&self, page: PageId) -> Result<Lsn, PageFileError> {
        if page.tablespace() != 0 || page.number() >= self.end() {
            return Ok(Lsn::ZERO); // The change will be reported.
        }
        let mut image = vec![0; self.size().bytes()];
        Ok(match self.read(page, &mut image)? {
            PageContent::Whole => SlottedPage::new(&image[..]).lsn(),
            PageContent::Empty | PageContent::Damaged(_) => Lsn::ZERO,
            PageContent::Reported => Lsn::MAX,
        })
    }

    fn redo(&self, place: RecordPosition, change: ChainedChange<'_>) -> Result<(), PageFileError> {
        let page = change.page;
        let changed = match self.change(place, change)? {
            Ok(image) => Some(image),
            Err(defect) => {
                // Site: "page latch", which one thread alone passes: a check.
                shim::lock(&self.findings).push(self.finding(page, defect));
                None
            }
        };
        // Site: "page latch", which one thread alone passes: a check.
        shim::lock(&self.changed).insert(page, changed);
        Ok(())
    }

    fn undo(
        &self,
        _page: PageId,
        _undo: &[u8],
        _log: &mut CompensationLog<'_>,
    ) -> Result<(), PageFileError> {
        unreachable!("a check repeats history and undoes nothing")
    }

    fn recovery_lsn(&self, _page: PageId) -> Result<Option<Lsn>, PageFileError> {
        unreachable!("a check makes no checkpoint")
    }
}
