//! Check of the pages of a database in use.
//!
//! # Coverage
//!
//! | | |
//! |---|---|
//! | the file | checksum and number of each page that was ever written |
//! | trees | from the directory down: every field, table, kind, level, fences as in the parent |
//! | space maps | pages of trees are used; used pages are in their places, and before the end |
//!
//! The fences of a page name its place, and its parent leads to it by the same ones. So a page that
//! is in two places is wrong in one of them.
//!
//! # Steps
//!
//! A step is a leaf with the branches that begin with it, a page that is looked for, or a mebibyte
//! of the file. Between two steps nothing is held, and a step waits as any reader. Each finding was
//! true at one moment ([`inspect`](crate::paged::btree::TreeInspection)). A page in the file may be
//! read while it is written, so one that is not whole is read again.
//!
//! # Memory
//!
//! A bit for each page of the file.
//!
//! The caller keeps the file from being shrunk meanwhile.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use foxton_sync::worker::Worker;

use super::{PageDefect, PageFinding, PagesReport};
use crate::paged::PageId;
use crate::paged::btree::{PagedTree, TableDirectory, TreeError, TreeInspection};
use crate::paged::page::{
    KeyBytes, PageError, PageFault, PageKind, PageWords, SlottedPage, SpaceMap, unseal,
};
use crate::paged::pool::{BufferPool, PageRequest, PoolError};
use crate::paged::space::PageFileError;

/// Bytes of the file that are read at once.
const CHUNK: usize = 1 << 20;
/// Number of times that a page of the file is read until it is whole.
const ATTEMPTS: u32 = 20;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_millis(1);

/// Checks the pages of the trees of `directory`, which other threads use. Calls `found` with each
/// defect, and `advance` with the number of pages that were looked at since the last call: each
/// once in the file and, if it is used, once in its place.
///
/// # Errors
///
/// If the device fails. A damaged page is no error.
pub fn check_open_pages(
    directory: &TableDirectory,
    worker: &Worker,
    advance: &mut dyn FnMut(u64),
    found: &mut dyn FnMut(PageFinding),
) -> Result<PagesReport, TreeError> {
    let pool = directory.tree().pool();
    let end = pool.file().header().end;
    let mut check = OpenCheck {
        directory,
        pool,
        worker,
        end,
        seen: vec![0; end.div_ceil(64) as usize],
        reported: HashSet::new(),
        report: PagesReport {
            pages: end,
            ..PagesReport::default()
        },
        advance,
        found,
    };
    check.file()?;
    check.trees()?;
    check.maps()?;
    Ok(check.report)
}

/// A check under way.
struct OpenCheck<'c> {
    directory: &'c TableDirectory,
    pool: &'c BufferPool,
    worker: &'c Worker,
    /// Logical end of the file at the beginning. Later pages are not looked at.
    end: u64,
    /// A bit for each page that was found in its place.
    seen: Vec<u64>,
    /// Pages with a finding. Several ways lead to a damaged page.
    reported: HashSet<PageId>,
    report: PagesReport,
    advance: &'c mut dyn FnMut(u64),
    found: &'c mut dyn FnMut(PageFinding),
}

impl OpenCheck<'_> {
    fn found(&mut self, page: PageId, defect: PageDefect) {
        if self.reported.insert(page) {
            let offset = page.number() * self.pool.page_size().bytes() as u64;
            (self.found)(PageFinding {
                page,
                offset,
                defect,
            });
        }
    }

    /// Reports the defect that made an operation fail. Any other failure is an error.
    fn failed(&mut self, error: TreeError) -> Result<(), TreeError> {
        match error {
            TreeError::Damaged(PageError { page, fault })
            | TreeError::Pool(PoolError::Damaged(PageError { page, fault })) => {
                self.found(page, PageDefect::Damaged(fault));
                Ok(())
            }
            other => Err(other),
        }
    }

    fn see(&mut self, page: PageId) {
        let number = page.number();
        if let Some(word) = self.seen.get_mut((number / 64) as usize) {
            *word |= 1 << (number % 64);
        }
        self.report.in_trees += 1;
        (self.advance)(1);
    }

    fn is_seen(&self, number: u64) -> bool {
        self.seen[(number / 64) as usize] & 1 << (number % 64) != 0
    }

    /// Checks the pages as they are in the file.
    fn file(&mut self) -> Result<(), TreeError> {
        let (file, size) = (self.pool.file(), self.pool.page_size().bytes());
        let run = (CHUNK / size).max(1) as u64;
        let mut buffer = file.buffer(run as usize);
        let mut next = 1;
        while next < self.end {
            let count = run.min(self.end - next);
            let bytes = &mut buffer.bytes_mut()[..count as usize * size];
            let read = file.read_unchecked(PageId::new(0, next), bytes);
            read.map_err(unreadable)?;
            for (number, image) in (next..).zip(bytes.chunks_exact_mut(size)) {
                let page = PageId::new(0, number);
                if let Err(fault) = self.check_image(page, image)? {
                    self.found(page, PageDefect::Damaged(fault));
                }
            }
            (self.advance)(count);
            next += count;
        }
        Ok(())
    }

    /// Checks the image of a page, and reads it again while it is not whole.
    fn check_image(
        &self,
        page: PageId,
        image: &mut [u8],
    ) -> Result<Result<(), PageFault>, TreeError> {
        let file = self.pool.file();
        for attempt in 1.. {
            let Err(error) = unseal(image, page, &file.identity()) else {
                break;
            };
            if image.iter().all(|byte| *byte == 0) {
                break; // It was never written.
            }
            if attempt == ATTEMPTS {
                return Ok(Err(error.fault));
            }
            thread::sleep(PAUSE);
            file.read_unchecked(page, image).map_err(unreadable)?;
        }
        Ok(Ok(()))
    }

    /// Walks through the tree of the directory, and through all trees that it leads to.
    fn trees(&mut self) -> Result<(), TreeError> {
        let directory = self.directory;
        self.tree(directory.tree())?;
        let tables = match directory.numbers(self.worker, 1..=u64::MAX) {
            Ok(tables) => tables,
            Err(error) => return self.failed(error),
        };
        for table in tables {
            match directory.inspect_partitions(self.worker, table) {
                Ok(Some(partitions)) => self.see(partitions),
                Ok(None) => continue, // It was dropped.
                Err(error) => self.failed(error)?,
            }
            match directory.open(self.worker, table) {
                Ok(Some(tree)) => self.tree(&tree)?,
                Ok(None) => {}
                Err(error) => self.failed(error)?,
            }
        }
        Ok(())
    }

    /// Walks through a tree.
    fn tree(&mut self, tree: &PagedTree) -> Result<(), TreeError> {
        let (mut inspection, mut key) = (TreeInspection::default(), KeyBytes::new());
        let mut rows = 0;
        loop {
            let mut visit = tree.visit(self.worker);
            let inspected = visit.run(|visit| visit.inspect(&key, &mut inspection));
            drop(visit);
            for page in inspection.pages.drain(..) {
                self.see(page);
            }
            rows += inspection.rows;
            match inspected {
                Ok(()) => {}
                Err(TreeError::Dropped { .. }) => return Ok(()),
                Err(error) => self.failed(error)?,
            }
            match inspection.next.take() {
                // A damaged page may lead back. The pages behind it are looked for one by one.
                Some(next) if next > key => key = next,
                _ => break,
            }
        }
        if tree.table() > 0 {
            self.report.trees.push((tree.table(), rows));
        }
        Ok(())
    }

    /// Checks the space maps, and looks for each page that is used and was not found.
    fn maps(&mut self) -> Result<(), TreeError> {
        let size = self.pool.page_size();
        for index in 0..self.end.div_ceil(size.mapped_pages()) {
            let map = size.map_page(index);
            let image = match self.map(map) {
                Ok(image) => image,
                Err(error) => {
                    self.failed(error)?;
                    continue;
                }
            };
            (self.advance)(1);
            let bits = SpaceMap::new(image.as_flattened());
            let first = index * size.mapped_pages();
            for number in first..first + size.mapped_pages() {
                let page = PageId::new(0, number);
                let is_fixed = number == 0 || size.map_position(page).map == page;
                if is_fixed || !bits.is_used(size.map_position(page).index) {
                    continue;
                }
                match number < self.end {
                    true if self.is_seen(number) => {}
                    true => self.look_for(page)?,
                    // The file has grown before its new pages were used.
                    false if number < self.pool.file().header().end => {}
                    false => self.found(map, PageDefect::BeyondEnd { used: page }),
                }
            }
        }
        Ok(())
    }

    /// Returns a copy of a map.
    fn map(&self, map: PageId) -> Result<Vec<[u8; 8]>, TreeError> {
        let fixed = self.pool.reserve(self.worker, &[PageRequest::read(map)])?;
        loop {
            let (view, mut image) = (fixed.pages()[0].view_now(self.worker), Vec::new());
            let words = self.pool.page_size().words();
            view.read().words().append_words(0, words, &mut image);
            if !view.is_valid() {
                continue;
            }
            let content = SlottedPage::new(image.as_flattened());
            let fault = match content.kind() {
                Some(PageKind::SpaceMap) => content.verify().err(),
                _ => Some(PageFault::Field {
                    field: "kind",
                    value: 0,
                }),
            };
            return match fault {
                None => Ok(image),
                Some(fault) => Err(TreeError::Damaged(PageError { page: map, fault })),
            };
        }
    }

    /// Looks for a page that is used in its place.
    fn look_for(&mut self, page: PageId) -> Result<(), TreeError> {
        match self.directory.is_placed(self.worker, page) {
            Ok(true) => self.see(page),
            Ok(false) => self.found(page, PageDefect::Leaked),
            Err(error) => self.failed(error)?,
        }
        Ok(())
    }
}

fn unreadable(error: PageFileError) -> TreeError {
    TreeError::Pool(PoolError::Read(Arc::new(error)))
}
