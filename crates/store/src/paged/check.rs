//! Check of the pages of a database that no process has open: every page, every tree, every map.
//!
//! # The problem
//!
//! After a crash the pages in the file are of different times, and only a restart makes trees of
//! them. A check must change nothing. So it repeats history in memory (`restarted`): torn pages
//! are those of the doublewrite buffer, and the pages that the log changes are kept beside the
//! file. Undo is left out. It changes rows and no structure, because each structure modification is
//! one record.
//!
//! # Coverage
//!
//! | | |
//! |---|---|
//! | each page | checksum, number, every field; its LSN is not behind the end of the log |
//! | redo | each change fits the page that it was made for |
//! | trees | from the directory down: table, kind, level, fences as the parent has them |
//! | space maps | each page is in one tree, or free, and no page beyond the end is used |
//!
//! The first page of the file has its header twice, and one whole copy is enough.
//!
//! # Memory
//!
//! A bit for each page of the file, and the pages that the log changes. A page is read once, in the
//! order of the trees, and those in no tree in the order of their numbers.

/// Check of a database in use.
mod online;

/// Pages as a restart would have them.
mod restarted;

/// Walk through the trees.
mod trees;

use std::fmt;

use foxton_log::Lsn;

use super::PageId;
use super::page::{PageFault, PageKind, PageSize, SlottedPage, SpaceMap};
use super::recovery::{Analysis, RecoveryError};
use super::space::{PageFileError, PageSource};
pub use online::check_open_pages;
use restarted::{PageContent, RestartedPages};

/// A defect of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageFinding {
    /// The page.
    pub page: PageId,
    /// Its offset in the file, in bytes.
    pub offset: u64,
    /// Its defect.
    pub defect: PageDefect,
}

/// Defect of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageDefect {
    /// The page itself is damaged.
    Damaged(PageFault),
    /// It was never written, but is used.
    Empty,
    /// It has a change behind the end of the log.
    BehindLog {
        /// Its LSN.
        lsn: Lsn,
        /// End of the log.
        end: Lsn,
    },
    /// A change in the log was not made for this page as it is.
    Redo {
        /// Position of the record.
        at: Lsn,
    },
    /// A field is not what the page that leads to it says.
    NotExpected {
        /// Name of the field.
        field: &'static str,
        /// The page that leads to it.
        parent: PageId,
    },
    /// Two pages lead to it, or one does twice.
    SecondPlace {
        /// The second one.
        parent: PageId,
    },
    /// It is used, and in no tree.
    Leaked,
    /// It is in a tree, and free in its map.
    Free,
    /// A map has a bit of a page beyond the logical end.
    BeyondEnd {
        /// That page.
        used: PageId,
    },
}

impl fmt::Display for PageFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}: ", self.page)?;
        match &self.defect {
            PageDefect::Damaged(fault) => fault.fmt(f),
            PageDefect::Empty => f.write_str("it is used and has only zeros"),
            PageDefect::BehindLog { lsn, end } => {
                write!(f, "its field 'LSN' is {lsn}, and the log ends at {end}")
            }
            PageDefect::Redo { at } => {
                write!(f, "the change at log position {at} was not made for it")
            }
            PageDefect::NotExpected { field, parent } => {
                write!(f, "its field '{field}' is not what page {parent} says")
            }
            PageDefect::SecondPlace { parent } => {
                write!(f, "page {parent} leads to it, and so does another place")
            }
            PageDefect::Leaked => f.write_str("it is used, and in no tree"),
            PageDefect::Free => f.write_str("it is in a tree, and free in its space map"),
            PageDefect::BeyondEnd { used } => {
                write!(
                    f,
                    "it says that page {used} is used, which is beyond the end"
                )
            }
        }
    }
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PagesReport {
    /// Number of pages up to the logical end of the file.
    pub pages: u64,
    /// Number of those that are in trees.
    pub in_trees: u64,
    /// Numbers of the trees, each with its rows. Rows of transactions that had not ended are among
    /// them.
    pub trees: Vec<(u64, u64)>,
}

/// Pages could not be checked.
#[derive(Debug)]
pub enum CheckPagesError {
    /// The page file could not be opened or read, or its header is damaged.
    File(PageFileError),
    /// The log could not be read.
    Log(RecoveryError<PageFileError>),
}

impl From<PageFileError> for CheckPagesError {
    fn from(error: PageFileError) -> Self {
        CheckPagesError::File(error)
    }
}

impl fmt::Display for CheckPagesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckPagesError::File(error) => error.fmt(f),
            CheckPagesError::Log(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CheckPagesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CheckPagesError::File(error) => Some(error),
            CheckPagesError::Log(error) => Some(error),
        }
    }
}

/// Checks the pages of `source`, of which `analysis` was shown the whole log. Calls `found` with
/// each defect, and `advance` with the number of bytes that were read since the last call. See the
/// [module](self).
///
/// # Errors
///
/// If a device fails, or the page file cannot be opened. A damaged page is no error.
pub fn check_pages(
    source: &PageSource<'_>,
    analysis: &Analysis,
    advance: &mut dyn FnMut(u64),
    found: &mut dyn FnMut(PageFinding),
) -> Result<PagesReport, CheckPagesError> {
    let pages = RestartedPages::new(source, analysis)?;
    for finding in pages.redo(source, analysis)? {
        found(finding);
    }
    let mut check = PageCheck {
        end: pages.end(),
        image: vec![0; pages.size().bytes()],
        seen: vec![0; pages.end().div_ceil(64) as usize],
        is_incomplete: false,
        report: PagesReport {
            pages: pages.end(),
            ..PagesReport::default()
        },
        pages,
        advance,
        found,
    };
    check.see(PageId(0));
    check.walk_directory()?;
    check.maps()?;
    Ok(check.report)
}

/// A check under way.
struct PageCheck<'c> {
    pages: RestartedPages<'c>,
    /// Logical end of the file, in pages.
    end: u64,
    image: Vec<u8>,
    /// A bit for each page that has a place.
    seen: Vec<u64>,
    /// True if a branch could not be read, so that its children have no known place.
    is_incomplete: bool,
    report: PagesReport,
    advance: &'c mut dyn FnMut(u64),
    found: &'c mut dyn FnMut(PageFinding),
}

impl PageCheck<'_> {
    fn found(&mut self, page: PageId, defect: PageDefect) {
        (self.found)(self.pages.finding(page, defect));
    }

    /// Records that `page` has a place. Returns false if it had one.
    fn see(&mut self, page: PageId) -> bool {
        let (word, bit) = (page.number() / 64, 1 << (page.number() % 64));
        let word = &mut self.seen[word as usize];
        let is_first = *word & bit == 0;
        *word |= bit;
        is_first
    }

    fn is_seen(&self, number: u64) -> bool {
        self.seen[(number / 64) as usize] & 1 << (number % 64) != 0
    }

    /// Reads `page`, which is used, into the buffer. Returns false if it cannot be looked at, which
    /// was reported then.
    fn read(&mut self, page: PageId) -> Result<bool, PageFileError> {
        (self.advance)(self.image.len() as u64);
        let defect = match self.pages.read(page, &mut self.image)? {
            PageContent::Whole => {
                let lsn = SlottedPage::new(&self.image[..]).lsn();
                let end = self.pages.log_end();
                if lsn > end {
                    self.found(page, PageDefect::BehindLog { lsn, end });
                }
                return Ok(true);
            }
            PageContent::Reported => return Ok(false),
            PageContent::Empty => PageDefect::Empty,
            PageContent::Damaged(fault) => PageDefect::Damaged(fault),
        };
        self.found(page, defect);
        Ok(false)
    }

    /// Compares the space maps with the places of the pages, and reads the pages without a place.
    fn maps(&mut self) -> Result<(), PageFileError> {
        let size = self.pages.size();
        for index in 0..self.end.div_ceil(size.mapped_pages()) {
            let map = size.map_page(index);
            if !self.see(map) {
                self.found(map, PageDefect::SecondPlace { parent: map });
            }
            let mut bits = None;
            if self.read(map)? {
                match SlottedPage::new(&self.image[..]).kind() {
                    Some(PageKind::SpaceMap) => bits = Some(self.image.clone()),
                    _ => {
                        let (field, parent) = ("kind", PageId(0));
                        self.found(map, PageDefect::NotExpected { field, parent });
                    }
                }
            }
            self.places(size, index, bits.as_deref())?;
        }
        Ok(())
    }

    /// Compares the bits of a map with the places of its pages. `None`: the map is damaged.
    fn places(
        &mut self,
        size: PageSize,
        index: u64,
        bits: Option<&[u8]>,
    ) -> Result<(), PageFileError> {
        let first = index * size.mapped_pages();
        for number in first..first + size.mapped_pages() {
            let page = PageId::new(0, number);
            let used = bits.map(|bits| {
                let place = size.map_position(page).index;
                SpaceMap::new(bits).is_used(place)
            });
            if number >= self.end {
                if used == Some(true) {
                    let map = size.map_page(index);
                    self.found(map, PageDefect::BeyondEnd { used: page });
                }
                continue;
            }
            match (used, self.is_seen(number)) {
                (Some(false), true) => self.found(page, PageDefect::Free),
                (Some(true), false) if !self.is_incomplete => {
                    self.found(page, PageDefect::Leaked);
                }
                _ => {}
            }
            if !self.is_seen(number) {
                self.read_unplaced(page)?;
            }
        }
        Ok(())
    }

    /// Reads a page without a place, which may be empty.
    fn read_unplaced(&mut self, page: PageId) -> Result<(), PageFileError> {
        (self.advance)(self.image.len() as u64);
        if let PageContent::Damaged(fault) = self.pages.read(page, &mut self.image)? {
            self.found(page, PageDefect::Damaged(fault));
        }
        Ok(())
    }
}
