//! Doublewrite buffer: a file that has a copy of each page until the page is durable in its place.
//!
//! A power cut may tear a page: some of its sectors are new, some old. So a batch of pages is
//! written to slots of this file, one to eight, and synced, and only then are the pages written in
//! their places. After a power cut either the slots are whole, and the pages are repaired from
//! them, or no page of the batch was touched.
//!
//! # State
//!
//! ```text
//!   slot   0                4096
//!          | header         | images of up to 128 pages |
//!
//!   header 0       8         12        16         32         40      44     48             4092
//!          magic | version | page    | identity | sequence | count | zero | page numbers | CRC-32C
//!          8 B   | u32     | size u32| 16 B     | u64      | u32   | u32  | u64 each     | u32
//! ```
//!
//! Slots are written one after the other, and sequence numbers grow by one. The images are sealed,
//! as in the page file. While pages are repaired, there are more slots behind these (I6).
//!
//! # Invariants
//!
//! * I1  A page is written in its place only once its image and the header of its slot are durable.
//! * I2  A slot is written only if a sync of the page file has returned that began after the pages
//!   of the slot's last batch were written in their places. So a page that may be torn has a whole
//!   image in a slot.
//! * I3  Slots are overwritten in the order in which they were written, across restarts too. So
//!   while the file is in use, the newest image of a page is the newest one that was written at
//!   all. A power cut may keep any of the slots that were written since the last sync, and parts of
//!   them. Then the newest image may be an old one, which would undo a later write, but I5 holds.
//! * I4  Repair is durable before a slot is written. A repair that was cut is repeated.
//!   After a failed sync, bytes may be visible and lost at the next power cut, though every later
//!   sync succeeds. So repair copies the images that it needs behind the slots, and syncs, before
//!   it uses them, and it writes again the pages whose last sync may have failed: those that redo
//!   would change.
//! * I5  A damaged page gets an image only if redo makes all changes behind it. That is so for the
//!   image of a page that a power cut tore, because the page was dirty. If the page was clean, it
//!   was damaged otherwise, and its newest image may be damaged, too: an older one is no repair.
//! * I6  Repair writes over no image that it needs: a power cut may turn it into anything. The
//!   copies have slots of their own, behind the last one that has a needed image. Of an image and
//!   its copy the copy counts: after a failed sync it may be the only durable one. Before a slot is
//!   written again, the copies are cut off, durably: later they would be old ones (I3).
//!
//! * I7  No image has changes beyond the end of the log, because the log is durable first. If one
//!   has, the log lost records that were durable. That is refused before anything is written:
//!   restart adds records, and then no page would seem to be ahead of the log.
//!
//! Two kinds of pages are not in this file. Page 0 has its header twice and writes one of both at a
//! time. A space map that the file grows by is durable before the header covers it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use foxton_log::Lsn;
use foxton_log::device::{Device, DeviceFile};
use foxton_sync::checksum::crc32c;
use foxton_sync::shim::{self, Mutex};
use foxton_sync::worker::Worker;

use super::file::{PageBuffer, PageFile, PageFileError};
use crate::failpoint;
use crate::paged::PageId;
use crate::paged::page::{FileIdentity, PageError, PageFault, PageSize, SlottedPage, unseal};

/// Number of slots.
pub const DOUBLEWRITE_SLOTS: usize = 8;
/// Maximum number of pages in a slot.
pub const DOUBLEWRITE_PAGES: usize = 128;

/// Maximum number of readings of a file that is in use.
const READINGS: usize = 100;

const MAGIC: [u8; 8] = *b"FOXDOUBL";
const VERSION: u32 = 1;
const SLOT_HEADER: usize = 4096;
const NUMBERS_AT: usize = 48;
const CHECK_AT: usize = SLOT_HEADER - 4;

const _: () = assert!(NUMBERS_AT + 8 * DOUBLEWRITE_PAGES <= CHECK_AT);

/// The doublewrite buffer of a page file.
#[derive(Debug)]
pub struct DoublewriteBuffer {
    file: Arc<dyn DeviceFile>,
    size: PageSize,
    identity: FileIdentity,
    state: Mutex<SlotState>,
}

#[derive(Debug, Clone, Copy)]
struct SlotState {
    /// The slot that is written next.
    next: usize,
    /// Its sequence number.
    sequence: u64,
    /// Number of slots whose pages may not be durable in their places.
    used: usize,
}

/// Counts of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepairSummary {
    /// Number of pages that were torn, or missing.
    pub torn: u64,
    /// Number of pages that were whole and older than when they were last written.
    pub old: u64,
    /// Number of pages that were whole and maybe not durable.
    pub unsure: u64,
}

/// The newest image of a page in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FoundImage {
    lsn: Lsn,
    offset: u64,
}

fn device(call: &'static str) -> impl Fn(io::Error) -> PageFileError {
    PageFileError::of_double(call)
}

impl DoublewriteBuffer {
    /// Opens the doublewrite buffer `name` of `pages`, or creates it, and repairs the pages that a
    /// power cut has torn. No page has been read before, and no other thread uses the files.
    /// The log ends at `log_end`. `is_redone` is true if redo makes all changes of the page behind
    /// the LSN (I5).
    ///
    /// # Errors
    ///
    /// If a device fails, or the log ends before the changes of an image (I7).
    pub fn open(
        directory: &dyn Device,
        name: &str,
        pages: &PageFile,
        log_end: Lsn,
        is_redone: &dyn Fn(PageId, Lsn) -> bool,
    ) -> Result<(DoublewriteBuffer, RepairSummary), PageFileError> {
        let file = match directory.open(name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = directory.create(name).map_err(device("create"))?;
                directory
                    .sync_dir()
                    .map_err(device("sync of the directory"))?;
                file
            }
            Err(error) => return Err(device("open")(error)),
        };
        let buffer = DoublewriteBuffer::over(file, pages);
        let images = buffer.images()?;
        let ahead = images.iter().find(|(_, image)| image.lsn > log_end);
        if let Some((&page, image)) = ahead {
            let (found, end) = (image.lsn, log_end);
            let fault = PageFault::AheadOfLog { found, end };
            return Err(PageFileError::Damaged(PageError { page, fault }));
        }
        let repaired = buffer.repair(pages, &images, is_redone)?;
        Ok((buffer, repaired))
    }

    /// As [`PageFile::make_direct`].
    ///
    /// # Errors
    ///
    /// If the file cannot be opened again.
    pub fn make_direct(&mut self, directory: &dyn Device, name: &str) -> Result<(), PageFileError> {
        let opened = directory.open_direct(name);
        if let Some(file) = opened.map_err(device("open"))? {
            self.file = file;
        }
        Ok(())
    }

    fn over(file: Arc<dyn DeviceFile>, pages: &PageFile) -> DoublewriteBuffer {
        DoublewriteBuffer {
            file,
            size: pages.size(),
            identity: pages.identity(),
            state: Mutex::new(SlotState {
                next: 0,
                sequence: 1,
                used: 0,
            }),
        }
    }

    fn slot_bytes(&self) -> u64 {
        (SLOT_HEADER + DOUBLEWRITE_PAGES * self.size.bytes()) as u64
    }

    /// Finds the newest image of each page, and where writing goes on (I3).
    fn images(&self) -> Result<BTreeMap<PageId, FoundImage>, PageFileError> {
        let mut images: BTreeMap<PageId, FoundImage> = BTreeMap::new();
        let mut header = vec![0; SLOT_HEADER];
        let mut image = PageBuffer::new(self.size, 1);
        let mut newest = None;
        for slot in 0.. {
            let begin = slot as u64 * self.slot_bytes();
            let read = self.file.read_at(&mut header, begin);
            let read = read.map_err(device("read"))?;
            let is_copy = slot >= DOUBLEWRITE_SLOTS;
            let Some((sequence, pages)) = self.decode(&header[..read]) else {
                match is_copy {
                    true => break,
                    false => continue,
                }
            };
            if !is_copy {
                newest = newest.max(Some((sequence, slot)));
            }
            for (index, page) in pages.into_iter().enumerate() {
                let offset = begin + (SLOT_HEADER + index * self.size.bytes()) as u64;
                let read = self.file.read_at(image.bytes_mut(), offset);
                let count = read.map_err(device("read"))?;
                // A slot that a power cut has torn: its pages were not written in their places.
                if unseal(&image.bytes()[..count], page, &self.identity).is_err() {
                    continue;
                }
                let lsn = SlottedPage::new(image.bytes()).lsn();
                let found = FoundImage { lsn, offset };
                let entry = images.entry(page).or_insert(found);
                if entry.lsn < lsn || entry.lsn == lsn && is_copy {
                    *entry = found; // I6
                }
            }
        }
        if let Some((sequence, slot)) = newest {
            let mut state = shim::lock(&self.state);
            state.next = (slot + 1) % DOUBLEWRITE_SLOTS;
            state.sequence = sequence + 1;
        }
        Ok(images)
    }

    /// Returns sequence number and pages of a slot with this header, if it is whole.
    fn decode(&self, header: &[u8]) -> Option<(u64, Vec<PageId>)> {
        let header: &[u8; SLOT_HEADER] = header.try_into().ok()?;
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        let count = u32_at(40) as usize;
        let is_ours = u32_at(CHECK_AT) == crc32c(0, &header[..CHECK_AT])
            && header[..8] == MAGIC
            && u32_at(8) == VERSION
            && u32_at(12) as usize == self.size.bytes()
            && header[16..32] == self.identity
            && count <= DOUBLEWRITE_PAGES;
        let page = |index| PageId(u64_at(NUMBERS_AT + 8 * index));
        is_ours.then(|| (u64_at(32), (0..count).map(page).collect()))
    }

    /// Writes images in their places where the page is damaged or older (I4).
    fn repair(
        &self,
        pages: &PageFile,
        images: &BTreeMap<PageId, FoundImage>,
        is_redone: &dyn Fn(PageId, Lsn) -> bool,
    ) -> Result<RepairSummary, PageFileError> {
        let mut repaired = RepairSummary::default();
        let mut needed = Vec::new();
        let mut buffer = pages.buffer(1);
        let end = pages.header().end;
        for (page, image) in images {
            if page.tablespace() != 0 || page.number() >= end {
                continue;
            }
            let lsn = match pages.read(*page, &mut buffer) {
                Ok(()) => Some(SlottedPage::new(buffer.bytes()).lsn()),
                Err(PageFileError::Damaged(_)) => None,
                Err(error) => return Err(error),
            };
            match lsn {
                Some(lsn) if lsn < image.lsn => repaired.old += 1,
                Some(lsn) if lsn > image.lsn => continue,
                _ if !is_redone(*page, image.lsn) => continue, // I5
                Some(_) => repaired.unsure += 1,
                None => repaired.torn += 1,
            }
            needed.push((*page, *image));
        }
        if needed.is_empty() {
            self.cut_copies()?;
            return Ok(repaired);
        }
        self.copy_behind(&needed)?; // I4
        for (page, image) in needed {
            let read = self.file.read_at(buffer.bytes_mut(), image.offset);
            read.map_err(device("read"))?;
            pages.write(page, buffer.bytes())?;
        }
        pages.sync()?;
        self.cut_copies()?;
        Ok(repaired)
    }

    /// Cuts off what is behind the slots, durably (I6).
    fn cut_copies(&self) -> Result<(), PageFileError> {
        let slots = DOUBLEWRITE_SLOTS as u64 * self.slot_bytes();
        if self.file.len().map_err(device("length"))? <= slots {
            return Ok(());
        }
        self.file.set_len(slots).map_err(device("shorten"))?;
        self.sync()
    }

    /// Copies these images behind the slots, and syncs them (I4, I6).
    fn copy_behind(&self, images: &[(PageId, FoundImage)]) -> Result<(), PageFileError> {
        let slot_of = |image: &FoundImage| (image.offset / self.slot_bytes()) as usize;
        let last = images.iter().map(|(_, image)| slot_of(image)).max();
        let first = last.map_or(0, |last| last + 1).max(DOUBLEWRITE_SLOTS);
        let mut bytes = PageBuffer::new(self.size, DOUBLEWRITE_PAGES);
        for (slot, images) in (first..).zip(images.chunks(DOUBLEWRITE_PAGES)) {
            let places = bytes.bytes_mut().chunks_exact_mut(self.size.bytes());
            for ((_, image), place) in images.iter().zip(places) {
                let read = self.file.read_at(place, image.offset);
                read.map_err(device("read"))?;
            }
            let pages: Vec<PageId> = images.iter().map(|(page, _)| *page).collect();
            let images = &bytes.bytes()[..pages.len() * self.size.bytes()];
            self.write_slot(slot, 0, &pages, images)?;
        }
        self.sync()
    }

    /// Writes the sealed images of `pages` to the next slot. They may be written in place once
    /// [`sync`](Self::sync) has returned (I1).
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If there is no free slot (I2), or there are more than [`DOUBLEWRITE_PAGES`].
    pub fn write(
        &self,
        worker: &Worker,
        pages: &[PageId],
        images: &[u8],
    ) -> Result<(), PageFileError> {
        assert!(pages.len() <= DOUBLEWRITE_PAGES, "a batch fits a slot");
        let slot = {
            // Site: "page latch", passed for each page of a batch.
            let mut state = shim::lock(&self.state);
            let slot = *state;
            assert!(slot.used < DOUBLEWRITE_SLOTS, "a free slot");
            if !worker.failpoints().misbehaves(&failpoint::SLOT_REUSED) {
                state.next = (slot.next + 1) % DOUBLEWRITE_SLOTS;
            }
            (state.sequence, state.used) = (slot.sequence + 1, slot.used + 1);
            slot
        };
        self.write_slot(slot.next, slot.sequence, pages, images)
    }

    /// Makes all slots durable that were written.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn sync(&self) -> Result<(), PageFileError> {
        self.file.sync().map_err(device("sync"))
    }

    fn write_slot(
        &self,
        slot: usize,
        sequence: u64,
        pages: &[PageId],
        images: &[u8],
    ) -> Result<(), PageFileError> {
        let mut header = PageBuffer::new(self.size, SLOT_HEADER.div_ceil(self.size.bytes()));
        let header = &mut header.bytes_mut()[..SLOT_HEADER];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&(self.size.bytes() as u32).to_le_bytes());
        header[16..32].copy_from_slice(&self.identity);
        header[32..40].copy_from_slice(&sequence.to_le_bytes());
        header[40..44].copy_from_slice(&(pages.len() as u32).to_le_bytes());
        for (page, number) in pages.iter().zip(header[NUMBERS_AT..].chunks_exact_mut(8)) {
            number.copy_from_slice(&page.0.to_le_bytes());
        }
        let sum = crc32c(0, &header[..CHECK_AT]);
        header[CHECK_AT..].copy_from_slice(&sum.to_le_bytes());
        let begin = slot as u64 * self.slot_bytes();
        let written = self.file.write_at(images, begin + SLOT_HEADER as u64);
        let written = written.and_then(|()| self.file.write_at(header, begin));
        written.map_err(device("write"))
    }

    /// Frees all slots. For the thread that alone writes batches, once a sync of the page file has
    /// returned that began after all batches were written in their places (I2).
    pub fn release(&self) {
        // Site: "page latch", passed for each page of a batch.
        shim::lock(&self.state).used = 0;
    }
}

/// The newest images in a doublewrite buffer, for a reader that repairs nothing.
#[derive(Debug)]
pub struct DoublewriteImages {
    buffer: DoublewriteBuffer,
    images: BTreeMap<PageId, FoundImage>,
}

impl DoublewriteImages {
    /// Reads the doublewrite buffer `name` of `pages`, which may be in use. Each image is the
    /// newest one of its page that was whole when this began. `None`: there is no such file, or it
    /// changed each time.
    ///
    /// It is read until it has the same images twice. A first reading may miss the newest image of
    /// a page because its slot is overwritten meanwhile. The slots of all older images were
    /// overwritten before (I3), so the second reading does not find what the first one took for the
    /// newest.
    ///
    /// # Errors
    ///
    /// If a device fails.
    pub fn read(
        directory: &dyn Device,
        name: &str,
        pages: &PageFile,
    ) -> Result<Option<DoublewriteImages>, PageFileError> {
        let file = match directory.open(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(device("open"))?,
        };
        let buffer = DoublewriteBuffer::over(file, pages);
        let mut images = buffer.images()?;
        for _ in 0..READINGS {
            let before = std::mem::replace(&mut images, buffer.images()?);
            if before == images {
                return Ok(Some(DoublewriteImages { buffer, images }));
            }
        }
        Ok(None)
    }

    /// Reads the image of `page` into the first bytes of `into`. Returns false if there is none.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn copy(&self, page: PageId, into: &mut [u8]) -> Result<bool, PageFileError> {
        let DoublewriteBuffer {
            file,
            size,
            identity,
            ..
        } = &self.buffer;
        let Some(image) = self.images.get(&page) else {
            return Ok(false);
        };
        let into = &mut into[..size.bytes()];
        let read = file.read_at(into, image.offset);
        let count = read.map_err(device("read"))?;
        // It may have been overwritten since.
        let is_whole = unseal(&into[..count], page, identity).is_ok();
        Ok(is_whole && SlottedPage::new(&*into).lsn() >= image.lsn)
    }
}

#[cfg(test)]
mod tests;
