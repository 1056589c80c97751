//! Copy of a page file that may be in use.
//!
//! # The problem
//!
//! A page cleaner writes pages while they are copied, and the file grows. So the copied pages are
//! of different times, and a page may be read while it is half written. A restart of the copy must
//! nevertheless bring all pages to one state, that of the end of the copied log.
//!
//! # The mechanism
//!
//! The caller reads the anchor of the last checkpoint first, and keeps the log from the position
//! that the anchor needs. Then it copies the pages, then the log up to an end E, and last the maps
//! that the file has grown by. A restart of the copy begins at that anchor.
//!
//! # Invariants
//!
//! * I1  A copied page is whole: checksum, number and structure were checked in the copied bytes. A
//!   page that fails is read again, because it may have been half written. A power cut may have
//!   left it torn or empty; then its image in the doublewrite buffer is copied instead. That buffer
//!   is read once, behind the anchor. An image was the newest one of its page at that moment, and
//!   so not older than the page in its place.
//! * I2  A copied page has all changes that the anchor's table of dirty pages does not name. The
//!   table has a page's recovery LSN if the page lacked changes in the file, and a page in the file
//!   never gets older. So redo from the table's positions on makes all changes that the copy lacks,
//!   and none twice, because each page says which ones it has.
//! * I3  A page that has only zeros was never written since the file has grown to it. All its
//!   changes are in the log from where the table says, or behind the anchor, and the first of them
//!   formats it. Its image in the doublewrite buffer may be of a time before the file was cut.
//! * I4  No copied page has a change behind E: E is at least [`newest`](PageCopy::newest). A page
//!   is written only when the log is durable up to its LSN, so the log reaches that far when the
//!   page has been read.
//! * I5  The copy has space for each page that the log up to E names: its logical end is read when
//!   E is known. Pages between the first logical end and this one were first used while the copy
//!   was made, so their changes are in the log from their formatting on. Only the maps among them
//!   are copied, because growth writes them without a record.
//!
//! The file is not cut meanwhile: the caller sees to that.
//!
//! A caller that copies maps with changes behind E copies the log again, to a later end.

use std::fmt;
use std::thread;
use std::time::Duration;

use foxton_log::Lsn;
use foxton_log::device::Device;

use super::doublewrite::DoublewriteImages;
use super::file::{PageBuffer, PageFile, PageFileError};
use crate::paged::PageId;
use crate::paged::page::{FileIdentity, PageError, SlottedPage, SpaceMap, unseal};

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;
/// Number of times that a page is read until it is whole.
const ATTEMPTS: u32 = 20;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_millis(1);

/// Files of the pages to copy, which may be in use.
#[derive(Debug, Clone, Copy)]
pub struct PageSource<'d> {
    /// Directory with both files.
    pub directory: &'d dyn Device,
    /// Name of the page file.
    pub file: &'d str,
    /// Name of the doublewrite buffer, which need not exist.
    pub doublewrite: &'d str,
    /// Identity of the database.
    pub identity: FileIdentity,
}

impl PageSource<'_> {
    /// Opens the page file, with its logical end of now.
    ///
    /// # Errors
    ///
    /// As [`PageFile::open`].
    pub fn open(&self) -> Result<PageFile, PageFileError> {
        PageFile::open(self.directory, self.file, self.identity)
    }

    /// True if the space map says that `page` is used.
    ///
    /// # Errors
    ///
    /// If the device fails, or the map is damaged.
    pub fn is_used(&self, page: PageId) -> Result<bool, PageFileError> {
        let file = self.open()?;
        let (mut map, place) = (file.buffer(1), file.size().map_position(page));
        file.read(place.map, &mut map)?;
        Ok(SpaceMap::new(map.bytes()).is_used(place.index))
    }

    /// Reads all pages of a copy. Returns how many were ever written, and the greatest LSN of them.
    /// `may_be_empty` says of a page that is used whether a restart makes it anew.
    ///
    /// # Errors
    ///
    /// If the device fails, or a page is damaged or missing.
    pub fn verify(
        &self,
        may_be_empty: &dyn Fn(PageId) -> bool,
        advance: &mut dyn FnMut(u64),
    ) -> Result<(u64, Lsn), PageFileError> {
        let file = self.open()?;
        let (size, end) = (file.size(), file.header().end);
        let mut buffer = file.buffer(CHUNK / size.bytes());
        let mut map = file.buffer(1);
        let (mut read_map, mut pages, mut newest) = (None, 0, Lsn::ZERO);
        let mut next = 1;
        while next < end {
            let count = (end - next).min((CHUNK / size.bytes()) as u64);
            let bytes = &mut buffer.bytes_mut()[..count as usize * size.bytes()];
            file.read_unchecked(PageId::new(0, next), bytes)?;
            for (number, image) in (next..).zip(bytes.chunks_exact(size.bytes())) {
                let page = PageId::new(0, number);
                if let Some(lsn) = check(image, page, &self.identity)? {
                    pages += 1;
                    newest = newest.max(lsn);
                    continue;
                }
                let place = size.map_position(page);
                if read_map != Some(place.map) {
                    file.read(place.map, &mut map)?;
                    read_map = Some(place.map);
                }
                if SpaceMap::new(map.bytes()).is_used(place.index) && !may_be_empty(page) {
                    unseal(image, page, &self.identity)?;
                }
            }
            next += count;
            advance(count * size.bytes() as u64);
        }
        Ok((pages, newest))
    }
}

/// Returns the LSN of the image of `page`, or `None` if the page was never written.
fn check(image: &[u8], page: PageId, identity: &FileIdentity) -> Result<Option<Lsn>, PageError> {
    match unseal(image, page, identity) {
        Ok(()) => Ok(Some(SlottedPage::new(image).lsn())),
        Err(_) if image.iter().all(|byte| *byte == 0) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Pages could not be copied.
#[derive(Debug)]
pub enum PageCopyError {
    /// A page could not be read, or is damaged.
    Source(PageFileError),
    /// The copy could not be written.
    Target(PageFileError),
}

impl fmt::Display for PageCopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PageCopyError::Source(error) => error.fmt(f),
            PageCopyError::Target(error) => write!(f, "the copy of {error}"),
        }
    }
}

impl std::error::Error for PageCopyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PageCopyError::Source(error) | PageCopyError::Target(error) => Some(error),
        }
    }
}

/// A copy of a page file that is being made.
///
/// ```
/// use foxton_log::device::memory::MemoryDevice;
/// use foxton_store::paged::page::PageSize;
/// use foxton_store::paged::space::{PageCopy, PageFile, PageSource, open_or_create};
///
/// let (device, target, identity) = (MemoryDevice::new(), MemoryDevice::new(), [7; 16]);
/// drop(open_or_create(&device, "rows", PageSize::default(), identity)?);
/// let source = PageSource {
///     directory: &device,
///     file: "rows",
///     doublewrite: "rows-double",
///     identity,
/// };
/// let mut copy = PageCopy::begin(&source, &target)?;
/// copy.copy_pages(&source, &mut |_| {})?;
/// copy.finish(&source)?;
/// let made = PageFile::open(&target, "rows", identity)?;
/// assert_eq!(made.header().end, source.open()?.header().end);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PageCopy {
    target: PageFile,
    images: Option<DoublewriteImages>,
    /// Pages below this number are copied, or need not be.
    end: u64,
    pages: u64,
    newest: Lsn,
    /// Pages that were copied from the doublewrite buffer.
    repaired: Vec<RepairedPage>,
}

/// A page that was copied from the doublewrite buffer.
#[derive(Debug, Clone, Copy)]
pub struct RepairedPage {
    /// The page.
    pub page: PageId,
    /// LSN of its image.
    pub lsn: Lsn,
    /// True if the page has only zeros in its place (I3).
    pub was_empty: bool,
}

impl PageCopy {
    /// Creates the page file of the copy in the directory `target`.
    ///
    /// # Errors
    ///
    /// If the source cannot be opened, or the copy cannot be created.
    pub fn begin(source: &PageSource<'_>, target: &dyn Device) -> Result<PageCopy, PageCopyError> {
        let file = source.open().map_err(PageCopyError::Source)?;
        let images = DoublewriteImages::read(source.directory, source.doublewrite, &file);
        let target = PageFile::create(target, source.file, file.size(), source.identity);
        Ok(PageCopy {
            target: target.map_err(PageCopyError::Target)?,
            images: images.map_err(PageCopyError::Source)?,
            end: 1,
            pages: 0,
            newest: Lsn::ZERO,
            repaired: Vec::new(),
        })
    }

    /// Number of pages that were copied, without those that were never written.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the pages that were copied from the doublewrite buffer. They are whole only if redo
    /// makes all changes behind their images, or formats those that were empty.
    pub fn repaired(&self) -> &[RepairedPage] {
        &self.repaired
    }

    /// Returns the greatest LSN of all copied pages (I4).
    pub fn newest(&self) -> Lsn {
        self.newest
    }

    /// Copies the pages up to the present logical end. Calls `advance` with the number of bytes
    /// that were read since the last call.
    ///
    /// # Errors
    ///
    /// If a device fails, or a page is damaged.
    pub fn copy_pages(
        &mut self,
        source: &PageSource<'_>,
        advance: &mut dyn FnMut(u64),
    ) -> Result<(), PageCopyError> {
        let file = source.open().map_err(PageCopyError::Source)?;
        let run = CHUNK / file.size().bytes();
        let mut buffer = file.buffer(run);
        let end = file.header().end;
        while self.end < end {
            let count = (end - self.end).min(run as u64) as usize;
            self.copy_run(source, &file, count, &mut buffer)?;
            advance((count * file.size().bytes()) as u64);
        }
        Ok(())
    }

    /// Copies the next `count` pages.
    fn copy_run(
        &mut self,
        source: &PageSource<'_>,
        file: &PageFile,
        count: usize,
        buffer: &mut PageBuffer,
    ) -> Result<(), PageCopyError> {
        let size = file.size().bytes();
        let bytes = &mut buffer.bytes_mut()[..count * size];
        let first = PageId::new(0, self.end);
        let read = file.read_unchecked(first, bytes);
        read.map_err(PageCopyError::Source)?;
        let mut written = Vec::with_capacity(count);
        for (index, image) in bytes.chunks_exact_mut(size).enumerate() {
            let page = PageId::new(0, self.end + index as u64);
            let lsn = match check(image, page, &source.identity) {
                Ok(Some(lsn)) => Some(lsn),
                _ => self.read_again(file, page, image)?,
            };
            self.count(lsn);
            written.push((index, lsn.is_some()));
        }
        // Pages that were never written are zeros in a new file (I3).
        for run in written.chunk_by(|one, other| one.1 == other.1) {
            let (index, is_written) = run[0];
            if is_written {
                let page = PageId::new(0, self.end + index as u64);
                let images = &bytes[index * size..(index + run.len()) * size];
                let written = self.target.write(page, images);
                written.map_err(PageCopyError::Target)?;
            }
        }
        self.end += count as u64;
        Ok(())
    }

    /// Reads `page` until it is whole (I1). Returns its LSN, or `None` if it was never written.
    fn read_again(
        &mut self,
        file: &PageFile,
        page: PageId,
        image: &mut [u8],
    ) -> Result<Option<Lsn>, PageCopyError> {
        let mut attempts = 0;
        let checked = loop {
            let read = file.read_unchecked(page, image);
            read.map_err(PageCopyError::Source)?;
            attempts += 1;
            match check(image, page, &file.identity()) {
                Ok(Some(lsn)) => return Ok(Some(lsn)),
                Err(_) if attempts < ATTEMPTS => thread::sleep(PAUSE),
                checked => break checked,
            }
        };
        let images = self.images.as_ref();
        let copied = images.map_or(Ok(false), |images| images.copy(page, image));
        match copied.map_err(PageCopyError::Source)? {
            true => {
                let lsn = SlottedPage::new(&*image).lsn();
                self.repaired.push(RepairedPage {
                    page,
                    lsn,
                    was_empty: checked.is_ok(),
                });
                Ok(Some(lsn))
            }
            false => checked.map_err(|error| PageCopyError::Source(error.into())),
        }
    }

    fn count(&mut self, lsn: Option<Lsn>) {
        self.pages += u64::from(lsn.is_some());
        self.newest = self.newest.max(lsn.unwrap_or(Lsn::ZERO));
    }

    /// Copies the maps that the file has grown by, and makes the copy durable with the logical end
    /// of now. Call it when the end of the copied log is known, and again if the log is copied
    /// again (I5).
    ///
    /// # Errors
    ///
    /// As [`copy_pages`](Self::copy_pages).
    pub fn finish(&mut self, source: &PageSource<'_>) -> Result<(), PageCopyError> {
        let file = source.open().map_err(PageCopyError::Source)?;
        let end = file.header().end.max(self.end);
        let size = file.size();
        let mut buffer = file.buffer(1);
        let maps = self.end.div_ceil(size.mapped_pages())..end.div_ceil(size.mapped_pages());
        for map in maps.map(|index| size.map_page(index)) {
            let lsn = self.read_again(&file, map, buffer.bytes_mut())?;
            self.count(lsn);
            let written = self.target.write(map, buffer.bytes());
            written.map_err(PageCopyError::Target)?;
        }
        self.end = end;
        let grown = self.target.grow(end, &[]);
        grown.map_err(PageCopyError::Target)
    }
}

#[cfg(test)]
mod tests {
    use foxton_log::device::memory::MemoryDevice;
    use foxton_sync::worker::Workers;

    use super::super::doublewrite::DoublewriteBuffer;
    use super::super::open::open_or_create;
    use super::*;
    use crate::paged::page::{PageKind, PageSize, seal};

    const IDENTITY: FileIdentity = [7; 16];

    fn image(page: PageId, lsn: u64) -> Vec<u8> {
        let mut image = vec![0; PageSize::MIN.bytes()];
        let mut content = SlottedPage::new(&mut image[..]);
        content.format(PageKind::Leaf, 0, 9, page, b"", None);
        content.set_lsn(Lsn::new(lsn));
        seal(&mut image, &IDENTITY);
        image
    }

    fn source(directory: &MemoryDevice) -> PageSource<'_> {
        PageSource {
            directory,
            file: "rows",
            doublewrite: "rows-double",
            identity: IDENTITY,
        }
    }

    #[test]
    fn torn_and_empty_pages_are_copied_from_the_doublewrite_buffer() {
        let device = MemoryDevice::new();
        let worker = Workers::new().worker();
        let file = open_or_create(&device, "rows", PageSize::MIN, IDENTITY).expect("memory");
        let end = Lsn::new(1 << 40);
        let opened = DoublewriteBuffer::open(&device, "rows-double", &file, end, &|_, _| true);
        let (buffer, _) = opened.expect("memory");
        let pages = [PageId(10), PageId(11), PageId(12)];
        let images: Vec<u8> = pages.iter().flat_map(|page| image(*page, 200)).collect();
        buffer.write(&worker, &pages, &images).expect("memory");
        buffer.sync().expect("memory");
        // Page 10 is torn, page 11 has only zeros, and page 12 was written again.
        let mut torn = image(pages[0], 100);
        torn[900] ^= 1;
        file.write(pages[0], &torn).expect("memory");
        file.write(pages[2], &image(pages[2], 300)).expect("memory");
        let target = MemoryDevice::new();
        let mut copy = PageCopy::begin(&source(&device), &target).expect("memory");
        let copied = copy.copy_pages(&source(&device), &mut |_| {});
        copied.expect("each page has a whole image");
        copy.finish(&source(&device)).expect("memory");
        assert_eq!((copy.newest(), copy.pages()), (Lsn::new(300), 5));
        let made = source(&target).open().expect("it is finished");
        let mut buffer = made.buffer(1);
        for (page, lsn) in pages.into_iter().zip([200, 200, 300]) {
            made.read(page, &mut buffer).expect("it is whole");
            assert_eq!(SlottedPage::new(buffer.bytes()).lsn(), Lsn::new(lsn));
        }
        let verified = source(&target).verify(&|_| false, &mut |_| {});
        assert_eq!(verified.expect("whole"), (5, Lsn::new(300)));
    }

    #[test]
    fn a_used_page_of_zeros_is_damaged_unless_a_restart_makes_it() {
        let device = MemoryDevice::new();
        let file = open_or_create(&device, "rows", PageSize::MIN, IDENTITY).expect("memory");
        let mut map = file.buffer(1);
        let place = PageSize::MIN.map_position(PageId(10));
        file.read(place.map, &mut map).expect("it is whole");
        SpaceMap::new(map.bytes_mut()).set_used(place.index, true);
        seal(map.bytes_mut(), &IDENTITY);
        file.write(place.map, map.bytes()).expect("memory");
        let source = source(&device);
        assert!(
            source
                .verify(&|page| page == PageId(10), &mut |_| {})
                .is_ok()
        );
        let error = source
            .verify(&|_| false, &mut |_| {})
            .expect_err("a page is lost");
        assert!(error.to_string().contains("page 10 is damaged"), "{error}");
    }
}
