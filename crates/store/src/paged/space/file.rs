//! Page file: pages of one size, each at its number times its size.
//!
//! # State
//!
//! Page 0 is the header. It is there twice, in the two halves of the page, and each copy has a
//! sequence number. A change writes the older copy and syncs the file, so the newer copy is whole
//! whatever a power cut does to the other. Opening takes the newer whole copy.
//!
//! ```text
//!   offset  0       8         12        16         32         40              48
//!           magic | version | page    | identity | sequence | logical end,  | CRC-32C | zeros
//!           8 B   | u32     | size u32| 16 B     | u64      | pages u64     | u32     |
//! ```
//!
//! # Invariants
//!
//! * I1  A page that is read is checked before it is used: checksum, number and structure.
//! * I2  The file is at least as long as its logical end, in which all used pages are. Space is
//!   allocated and synced before it is part of the logical end, and so are its space maps.
//! * I3  A lower logical end is durable before the file is cut. So a cut that fails, or is not made
//!   because the process ends, leaves bytes that no page has, and the next cut takes them away.
//! * I4  After a failed write or sync nothing is written or synced any more, because it is unknown
//!   which bytes are durable. A failed allocation leaves all as it was.
//! * I5  Buffers are aligned to 4 KiB, so that a file that is read and written directly takes them.

use std::fmt;
use std::io;
use std::sync::Arc;

use foxton_log::device::{Device, DeviceFile};
use foxton_sync::checksum::crc32c;
use foxton_sync::shim::{self, Mutex};

use crate::paged::PageId;
use crate::paged::page::{FileIdentity, PageError, PageFault, PageSize, unseal};

const MAGIC: [u8; 8] = *b"FOXROWS\0";
const VERSION: u32 = 1;
/// Bytes of a header, with its checksum.
const HEADER_BYTES: usize = 52;
/// Alignment of buffers.
const ALIGNMENT: usize = 4096;

/// A page file could not be opened, read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum PageFileError {
    /// A call of the device failed.
    Device {
        /// The call.
        call: &'static str,
        /// The page at which it failed.
        page: PageId,
        /// Reason.
        error: io::Error,
    },
    /// A call for the doublewrite buffer failed.
    Double {
        /// The call.
        call: &'static str,
        /// Reason.
        error: io::Error,
    },
    /// A write or a sync failed earlier, so nothing is written any more.
    WriteFailed {
        /// The first failure.
        first: Arc<PageFileError>,
    },
    /// A page is damaged.
    Damaged(PageError),
    /// Neither copy of the header is whole.
    NoHeader,
    /// The header is another program's, of another database, or of a later version.
    Header {
        /// Field of the header.
        field: &'static str,
    },
}

impl fmt::Display for PageFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PageFileError::Device { call, page, error } => {
                write!(f, "the page file: {call} failed at page {page}: {error}")
            }
            PageFileError::Double { call, error } => {
                write!(f, "the doublewrite buffer: {call} failed: {error}")
            }
            PageFileError::WriteFailed { first } => {
                write!(f, "nothing is written any more since this failed: {first}")
            }
            PageFileError::Damaged(error) => write!(f, "the page file: {error}"),
            PageFileError::NoHeader => f.write_str(
                "the page file: both copies of its header are damaged; restore a backup",
            ),
            PageFileError::Header { field } => write!(
                f,
                "the page file: the field '{field}' of its header is not that of this database; \
                 was the file copied from another one?"
            ),
        }
    }
}

impl PageFileError {
    /// Returns the error of a call that is not for a page.
    pub(super) fn of_call(call: &'static str) -> impl Fn(io::Error) -> PageFileError {
        device(call, HEADER_PAGE)
    }

    /// Returns the error of a call for the doublewrite buffer.
    pub(super) fn of_double(call: &'static str) -> impl Fn(io::Error) -> PageFileError {
        move |error| PageFileError::Double { call, error }
    }
}

impl From<PageError> for PageFileError {
    fn from(error: PageError) -> Self {
        PageFileError::Damaged(error)
    }
}

impl std::error::Error for PageFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PageFileError::Device { error, .. } | PageFileError::Double { error, .. } => {
                Some(error)
            }
            PageFileError::WriteFailed { first } => Some(&**first),
            PageFileError::Damaged(error) => Some(error),
            PageFileError::NoHeader | PageFileError::Header { .. } => None,
        }
    }
}

/// The header of a page file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// Size of the pages.
    pub size: PageSize,
    /// Identity of the database.
    pub identity: FileIdentity,
    /// Grows with each change of the header.
    pub sequence: u64,
    /// Number of pages up to the logical end; page numbers are below it.
    pub end: u64,
}

impl FileHeader {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.size.bytes() as u32).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.identity);
        bytes[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.end.to_le_bytes());
        let sum = crc32c(0, &bytes[..48]);
        bytes[48..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Returns the header in `bytes`; `Ok(None)` if they are damaged.
    fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Option<FileHeader>, PageFileError> {
        let field = |field| PageFileError::Header { field };
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if u32_at(48) != crc32c(0, &bytes[..48]) {
            return Ok(None);
        }
        if bytes[..8] != MAGIC {
            return Err(field("magic"));
        }
        if u32_at(8) != VERSION {
            return Err(field("version"));
        }
        Ok(Some(FileHeader {
            size: PageSize::new(u32_at(12) as usize).ok_or(field("page size"))?,
            identity: std::array::from_fn(|i| bytes[16 + i]),
            sequence: u64_at(32),
            end: u64_at(40),
        }))
    }
}

/// Bytes for pages on their way between file and frames, aligned for direct input and output.
pub struct PageBuffer {
    bytes: Vec<u8>,
    begin: usize,
    count: usize,
}

impl PageBuffer {
    /// Returns a buffer for `pages` pages.
    pub fn new(size: PageSize, pages: usize) -> PageBuffer {
        let count = size.bytes() * pages;
        let bytes = vec![0; count + ALIGNMENT];
        // The address of a vector's bytes stays as long as it does not grow.
        let begin = bytes.as_ptr().addr().next_multiple_of(ALIGNMENT) - bytes.as_ptr().addr();
        PageBuffer {
            bytes,
            begin,
            count,
        }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.begin..self.begin + self.count]
    }

    /// Returns the bytes, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.begin..self.begin + self.count]
    }
}

impl fmt::Debug for PageBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageBuffer({} bytes)", self.count)
    }
}

/// An open page file.
///
/// ```
/// use foxton_log::device::memory::MemoryDevice;
/// use foxton_store::paged::PageId;
/// use foxton_store::paged::page::PageSize;
/// use foxton_store::paged::space::PageFile;
///
/// let (device, identity) = (MemoryDevice::new(), [7; 16]);
/// let file = PageFile::create(&device, "rows", PageSize::default(), identity)?;
/// file.grow(100, &[])?;
/// drop(file);
///
/// let file = PageFile::open(&device, "rows", identity)?;
/// assert_eq!(file.header().end, 100);
/// // Page 7 was never written.
/// assert!(file.read(PageId::new(0, 7), &mut file.buffer(1)).is_err());
/// # Ok::<(), foxton_store::paged::space::PageFileError>(())
/// ```
#[derive(Debug)]
pub struct PageFile {
    file: Arc<dyn DeviceFile>,
    size: PageSize,
    identity: FileIdentity,
    is_direct: bool,
    header: Mutex<FileHeader>,
    /// The first failed write or sync (I4).
    failure: Mutex<Option<Arc<PageFileError>>>,
}

const HEADER_PAGE: PageId = PageId(0);
/// Page numbers have 48 bits.
const MAX_PAGES: u64 = 1 << 48;

fn device(call: &'static str, page: PageId) -> impl Fn(io::Error) -> PageFileError {
    move |error| PageFileError::Device { call, page, error }
}

impl PageFile {
    /// Creates the file `name` with a header and no other pages. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// If the name is taken, or the device fails.
    pub fn create(
        directory: &dyn Device,
        name: &str,
        size: PageSize,
        identity: FileIdentity,
    ) -> Result<PageFile, PageFileError> {
        let file = directory
            .create(name)
            .map_err(device("create", HEADER_PAGE))?;
        let header = FileHeader {
            size,
            identity,
            sequence: 0,
            end: 1,
        };
        let file = PageFile {
            file,
            size,
            identity,
            is_direct: false,
            header: Mutex::new(header),
            failure: Mutex::new(None),
        };
        let allocated = file.file.allocate(size.bytes() as u64);
        allocated.map_err(device("allocate", HEADER_PAGE))?;
        for sequence in [1, 2] {
            file.write_header(FileHeader { sequence, ..header })?;
        }
        directory
            .sync_dir()
            .map_err(device("sync of the directory", HEADER_PAGE))?;
        Ok(file)
    }

    /// Reads and writes pages past the page cache of the operating system from now on, if the
    /// device of the file, which has this `name` there, can do that.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened again.
    pub fn make_direct(&mut self, directory: &dyn Device, name: &str) -> Result<(), PageFileError> {
        let opened = directory.open_direct(name);
        if let Some(file) = opened.map_err(device("open", HEADER_PAGE))? {
            self.file = file;
            self.is_direct = true;
        }
        Ok(())
    }

    /// Opens the file `name` of the database `identity`.
    ///
    /// # Errors
    ///
    /// If there is no such file, it is another database's, or damaged.
    pub fn open(
        directory: &dyn Device,
        name: &str,
        identity: FileIdentity,
    ) -> Result<PageFile, PageFileError> {
        let file = directory.open(name).map_err(device("open", HEADER_PAGE))?;
        // The page size is in the header, and the place of its second copy depends on it. So all
        // places are looked at, and a copy counts where its page size says that it is.
        let places = (0..=7).map(|shift| (PageSize::MIN.bytes() / 2) << shift);
        let mut newest: Option<FileHeader> = None;
        let mut bytes = vec![0; PageSize::MAX.bytes()];
        let count = file
            .read_at(&mut bytes, 0)
            .map_err(device("read", HEADER_PAGE))?;
        for place in std::iter::once(0).chain(places) {
            let copy = bytes[..count]
                .get(place..)
                .and_then(|rest| rest.first_chunk());
            let Some(found) = copy.map(FileHeader::decode).transpose()?.flatten() else {
                continue;
            };
            let is_there = place == 0 || place == found.size.bytes() / 2;
            if is_there && newest.is_none_or(|newest| newest.sequence < found.sequence) {
                newest = Some(found);
            }
        }
        let header = newest.ok_or(PageFileError::NoHeader)?;
        if header.end == 0 || header.end > MAX_PAGES {
            return Err(PageFileError::Header {
                field: "logical end",
            });
        }
        if header.identity != identity {
            return Err(PageFileError::Header { field: "identity" });
        }
        Ok(PageFile {
            file,
            size: header.size,
            identity,
            is_direct: false,
            header: Mutex::new(header),
            failure: Mutex::new(None),
        })
    }

    /// True if pages are read and written past the page cache of the operating system.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Returns the header as it was last written.
    pub fn header(&self) -> FileHeader {
        *shim::lock(&self.header)
    }

    /// Returns the size of the pages.
    pub fn size(&self) -> PageSize {
        self.size
    }

    /// Returns the identity of the database.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Returns a buffer for `pages` pages.
    pub fn buffer(&self, pages: usize) -> PageBuffer {
        PageBuffer::new(self.size, pages)
    }

    /// Writes the older copy of the header and syncs the file.
    fn write_header(&self, header: FileHeader) -> Result<(), PageFileError> {
        let mut half = PageBuffer::new(self.size, 1);
        let bytes = &mut half.bytes_mut()[..self.size.bytes() / 2];
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        let place = header.sequence % 2 * (self.size.bytes() as u64 / 2);
        self.write_at(HEADER_PAGE, bytes, place)?;
        self.sync()?;
        *shim::lock(&self.header) = header;
        Ok(())
    }

    /// Moves the logical end to `end` pages, if it is below. Space is allocated, the sealed images
    /// of `pages` are written into it, all is synced, and then part of the header. One thread at a
    /// time calls this.
    ///
    /// # Errors
    ///
    /// If there is no space, or the device fails. Then the logical end is as before.
    pub fn grow(&self, end: u64, pages: &[(PageId, PageBuffer)]) -> Result<(), PageFileError> {
        let header = self.header();
        if end <= header.end {
            return Ok(());
        }
        let page = PageId(header.end);
        let bytes = end * self.size.bytes() as u64;
        self.file
            .allocate(bytes)
            .map_err(device("allocate", page))?;
        for (page, image) in pages {
            self.write(*page, image.bytes())?;
        }
        self.sync()?;
        self.write_header(FileHeader {
            sequence: header.sequence + 1,
            end,
            ..header
        })
    }

    /// Moves the logical end down to `end` pages, if it is above, and cuts the file there (I3). No
    /// page behind it is used, or dirty in a frame. One thread at a time calls this or
    /// [`grow`](Self::grow).
    ///
    /// # Errors
    ///
    /// If the device fails. The logical end is as before if the header could not be written. If it
    /// could, the file is longer than its logical end, which harms nothing.
    pub fn shrink(&self, end: u64) -> Result<(), PageFileError> {
        let header = self.header();
        if end < header.end {
            self.write_header(FileHeader {
                sequence: header.sequence + 1,
                end,
                ..header
            })?;
        }
        let (page, bytes) = (PageId(end), self.header().end * self.size.bytes() as u64);
        if self.file.len().map_err(device("length", page))? > bytes {
            self.file.set_len(bytes).map_err(device("cut", page))?;
            // Otherwise a power cut brings the bytes back.
            self.sync()?;
        }
        Ok(())
    }

    /// Returns the length of the file in bytes, which may be more than its logical end.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn length(&self) -> Result<u64, PageFileError> {
        self.file.len().map_err(device("length", HEADER_PAGE))
    }

    /// Makes the header and all pages durable that a reader sees, except for writes of pages before
    /// a failed sync. Called before the first page is read: a failed sync may have left a header
    /// that is visible and lost at the next power cut, though every later sync succeeds.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn write_header_again(&self) -> Result<(), PageFileError> {
        let header = self.header();
        self.write_header(FileHeader {
            sequence: header.sequence + 1,
            ..header
        })
    }

    fn offset(&self, page: PageId) -> u64 {
        assert!(page.tablespace() == 0, "there is one tablespace");
        page.number() * self.size.bytes() as u64
    }

    /// Reads `page` into the first bytes of `buffer` and checks it (I1).
    ///
    /// # Errors
    ///
    /// If the device fails, or the page is damaged. The buffer then has no page.
    pub fn read(&self, page: PageId, buffer: &mut PageBuffer) -> Result<(), PageFileError> {
        let image = &mut buffer.bytes_mut()[..self.size.bytes()];
        let read = self.file.read_at(image, self.offset(page));
        if read.map_err(device("read", page))? < image.len() {
            let fault = PageFault::Missing;
            return Err(PageFileError::Damaged(PageError { page, fault }));
        }
        unseal(image, page, &self.identity).map_err(PageFileError::Damaged)
    }

    /// Checks the image of `page`, which was read with others (I1).
    pub(in crate::paged) fn check(
        &self,
        page: PageId,
        image: &mut [u8],
    ) -> Result<(), PageFileError> {
        unseal(image, page, &self.identity).map_err(PageFileError::Damaged)
    }

    /// Reads the bytes of neighbouring pages, the first of which is `page`, and checks nothing.
    /// Bytes behind the end of the file are zeros.
    pub(in crate::paged) fn read_unchecked(
        &self,
        page: PageId,
        bytes: &mut [u8],
    ) -> Result<(), PageFileError> {
        let read = self.file.read_at(bytes, self.offset(page));
        let count = read.map_err(device("read", page))?;
        bytes[count..].fill(0);
        Ok(())
    }

    /// Writes sealed images of neighbouring pages, the first of which is `page`.
    ///
    /// # Errors
    ///
    /// If the device fails. Then it is unknown what is written.
    pub fn write(&self, page: PageId, images: &[u8]) -> Result<(), PageFileError> {
        self.write_at(page, images, self.offset(page))
    }

    fn write_at(&self, page: PageId, bytes: &[u8], offset: u64) -> Result<(), PageFileError> {
        self.check_writes()?;
        let written = self.file.write_at(bytes, offset);
        written.map_err(|error| self.fail(device("write", page)(error)))
    }

    /// Refuses to write after a failure (I4).
    fn check_writes(&self) -> Result<(), PageFileError> {
        match &*shim::lock(&self.failure) {
            None => Ok(()),
            Some(first) => Err(PageFileError::WriteFailed {
                first: first.clone(),
            }),
        }
    }

    fn fail(&self, error: PageFileError) -> PageFileError {
        let error = Arc::new(error);
        let first = shim::lock(&self.failure).get_or_insert(error).clone();
        PageFileError::WriteFailed { first }
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    ///
    /// If the device fails. Then it is unknown what is durable.
    pub fn sync(&self) -> Result<(), PageFileError> {
        self.check_writes()?;
        let synced = self.file.sync();
        synced.map_err(|error| self.fail(device("sync", HEADER_PAGE)(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxton_log::device::memory::MemoryDevice;

    const IDENTITY: FileIdentity = [7; 16];

    fn create(size: PageSize) -> MemoryDevice {
        let device = MemoryDevice::new();
        let file = PageFile::create(&device, "rows", size, IDENTITY).expect("a new file");
        file.grow(9, &[]).expect("space");
        file.grow(30, &[]).expect("space");
        device
    }

    #[test]
    fn the_newer_whole_header_counts() {
        for size in [PageSize::MIN, PageSize::default(), PageSize::MAX] {
            let device = create(size);
            let end = || PageFile::open(&device, "rows", IDENTITY).map(|file| file.header().end);
            assert_eq!(end().expect("whole"), 30);
            let file = device.open("rows").expect("it is there");
            // The newest has sequence 4 and so is in the first half.
            file.write_at(&[9], 20).expect("memory");
            assert_eq!(end().expect("one is whole"), 9);
            file.write_at(&[9], 20 + size.bytes() as u64 / 2)
                .expect("memory");
            assert!(matches!(end(), Err(PageFileError::NoHeader)));
        }
    }

    #[test]
    fn another_database_and_a_missing_page_are_errors() {
        let device = create(PageSize::MIN);
        let other = PageFile::open(&device, "rows", [8; 16]);
        assert!(matches!(
            other,
            Err(PageFileError::Header { field: "identity" })
        ));
        let file = PageFile::open(&device, "rows", IDENTITY).expect("whole");
        let mut buffer = file.buffer(1);
        let missing = file
            .read(PageId(30), &mut buffer)
            .expect_err("beyond the end");
        let is_missing = |error: PageFileError| match error {
            PageFileError::Damaged(error) => error.fault == PageFault::Missing,
            _ => false,
        };
        assert!(is_missing(missing));
        assert!(
            file.read(PageId(29), &mut buffer).is_err(),
            "zeros are no page"
        );
        assert_eq!(buffer.bytes().as_ptr().addr() % ALIGNMENT, 0);
    }
}
