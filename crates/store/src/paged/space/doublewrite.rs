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
use crate::paged::page::{FileIdentity, PageSize, SlottedPage, unseal};

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
    /// `is_redone` is true if redo makes all changes of the page behind the LSN (I5).
    ///
    /// # Errors
    ///
    /// If a device fails.
    pub fn open(
        directory: &dyn Device,
        name: &str,
        pages: &PageFile,
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

    /// Number of slots that can be written before [`release`](Self::release) is due.
    pub fn free_slots(&self) -> usize {
        // Site: "page latch", passed for each page of a batch.
        DOUBLEWRITE_SLOTS - shim::lock(&self.state).used
    }

    /// Writes the sealed images of `pages` to the next slot. Once [`sync`](Self::sync) has returned,
    /// they may be written in their places (I1).
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
mod tests {
    use super::super::open::open_or_create;
    use super::*;
    use crate::paged::page::{PageKind, RowFlags, seal};
    use foxton_log::device::disk::Damage;
    use foxton_log::device::fault::{Call, FaultDevice, Times};
    use foxton_log::device::memory::MemoryDevice;
    use foxton_sync::worker::Workers;
    use std::io::ErrorKind;

    const IDENTITY: FileIdentity = [7; 16];
    /// Redo makes the changes behind this.
    const REDO_FROM: Lsn = Lsn::new(150);

    fn image(page: PageId, lsn: u64) -> Vec<u8> {
        let mut image = vec![0; PageSize::MIN.bytes()];
        let mut content = SlottedPage::new(&mut image[..]);
        content.format(PageKind::Leaf, 0, 9, page, b"", None);
        // A row at the end of the page, so that each of its sectors says when it was written.
        let row = content.insert(0, b"row", &lsn.to_le_bytes(), 0, RowFlags::NONE);
        row.expect("an empty page");
        content.set_lsn(Lsn::new(lsn));
        seal(&mut image, &IDENTITY);
        image
    }

    impl DoublewriteBuffer {
        /// Writes a batch of one slot, and makes it durable.
        fn keep(
            &self,
            worker: &Worker,
            pages: &[PageId],
            images: &[u8],
        ) -> Result<(), PageFileError> {
            self.write(worker, pages, images)?;
            self.sync()
        }
    }

    fn open(device: &dyn Device) -> (PageFile, DoublewriteBuffer, RepairSummary) {
        let file = open_or_create(device, "rows", PageSize::MIN, IDENTITY).expect("memory");
        let opened =
            DoublewriteBuffer::open(device, "rows-double", &file, &|_, lsn| lsn >= REDO_FROM);
        let (buffer, repaired) = opened.expect("memory");
        (file, buffer, repaired)
    }

    #[test]
    fn damaged_and_old_pages_are_repaired_from_the_newest_image_and_others_stay() {
        let device = MemoryDevice::new();
        let worker = Workers::new().worker();
        let (file, buffer, _) = open(&device);
        let pages = [PageId(10), PageId(11), PageId(12)];
        for lsn in [100, 200] {
            let images: Vec<u8> = pages.iter().flat_map(|page| image(*page, lsn)).collect();
            buffer.keep(&worker, &pages, &images).expect("memory");
        }
        // One page is torn, one write is lost, one page is newer than any image.
        let mut torn = image(pages[0], 200);
        torn[512..].copy_from_slice(&image(pages[0], 50)[512..]);
        torn[900] ^= 1;
        file.write(pages[0], &torn).expect("memory");
        file.write(pages[1], &image(pages[1], 100)).expect("memory");
        file.write(pages[2], &image(pages[2], 300)).expect("memory");
        drop((file, buffer));
        let (file, buffer, repaired) = open(&device);
        assert_eq!(
            repaired,
            RepairSummary {
                torn: 1,
                old: 1,
                unsure: 0
            }
        );
        let mut page = file.buffer(1);
        for (number, lsn) in pages.into_iter().zip([200, 200, 300]) {
            file.read(number, &mut page).expect("it is whole");
            assert_eq!(SlottedPage::new(page.bytes()).lsn(), Lsn::new(lsn));
        }
        drop((file, buffer));
        // Redo would change two of them, and it is not known whether they are durable.
        let again = RepairSummary {
            unsure: 2,
            ..RepairSummary::default()
        };
        assert_eq!(open(&device).2, again);
    }

    /// Repairs one page whose last write is in a slot, in its place, or in both, and none of it is
    /// durable, though all is visible. Then the power is cut.
    #[test]
    fn nothing_that_a_failed_sync_lost_is_lost_after_a_repair() {
        let worker = Workers::new().worker();
        let (page, new) = (PageId(10), image(PageId(10), 200));
        for is_in_place in [false, true] {
            let device = FaultDevice::new();
            let (file, buffer, _) = open(&device);
            file.write(page, &image(page, 100)).expect("memory");
            file.sync().expect("memory");
            if !is_in_place {
                device.fail(Call::Sync, 1, Times::Once, ErrorKind::Other);
            }
            let written = buffer.keep(&worker, &[page], &new);
            assert_eq!(written.is_err(), !is_in_place);
            if is_in_place {
                file.write(page, &new).expect("memory");
                device.fail(Call::Sync, 1, Times::Once, ErrorKind::Other);
                assert!(file.sync().is_err());
            }
            drop((file, buffer));
            let (old, unsure) = (u64::from(!is_in_place), u64::from(is_in_place));
            let expected = RepairSummary {
                torn: 0,
                old,
                unsure,
            };
            let (_, buffer, repaired) = open(&device);
            assert_eq!(repaired, expected);
            // A slot that lost its image no longer repairs the page.
            for _ in 0..DOUBLEWRITE_SLOTS * usize::from(is_in_place) {
                let other = PageId(50);
                let written = buffer.keep(&worker, &[other], &image(other, 300));
                written.expect("memory");
            }
            let device = FaultDevice::holding(&device.crash(Damage::DropAll, 1));
            let (file, buffer, _) = open(&device);
            let mut found = file.buffer(1);
            file.read(page, &mut found).expect("it is whole");
            assert_eq!(SlottedPage::new(found.bytes()).lsn(), Lsn::new(200));
            // The slot lost it, or was overwritten: the page is durable in its place.
            let images = buffer.images().expect("memory");
            assert!(!images.contains_key(&page));
        }
    }

    /// The power is cut after each change that a repair makes, and again in the repair after it. A
    /// disk may make anything of bytes that are not durable.
    #[test]
    fn no_cut_of_a_repair_loses_a_page() {
        let worker = Workers::new().worker();
        let pages = [PageId(10), PageId(11)];
        let device = FaultDevice::new();
        let (file, buffer, _) = open(&device);
        for page in pages {
            let sealed = image(page, 200);
            buffer.keep(&worker, &[page], &sealed).expect("memory");
            let mut torn = sealed;
            torn[900] ^= 1;
            file.write(page, &torn).expect("memory");
        }
        file.sync().expect("memory");
        drop((file, buffer));
        let look = |image: &MemoryDevice| {
            let device = FaultDevice::holding(image);
            device.record();
            let (file, ..) = open(&device);
            let mut found = file.buffer(1);
            for page in pages {
                file.read(page, &mut found).expect("it is repaired");
                assert_eq!(SlottedPage::new(found.bytes()).lsn(), Lsn::new(200));
            }
            device.recording().expect("it was recording")
        };
        let mild = Damage::ALL.into_iter().filter(|kind| !kind.harms_durable());
        let mild: Vec<Damage> = mild.collect();
        let torn = device.crash(Damage::KeepAll, 0);
        let mut images = 0;
        for (cut, disk) in look(&torn).disks().enumerate() {
            for damage in &mild {
                let again = look(&disk.crash(*damage, cut as u64));
                for (cut, disk) in again.disks().enumerate() {
                    look(&disk.crash(*damage, 10 + cut as u64));
                    images += 1;
                }
            }
        }
        assert!(images > 100, "only {images} images");
    }

    /// A slot is visible and not durable. The first repair fails with the page in its place, where
    /// it is not durable either; the second one, at each of its calls. Then the power is cut.
    #[test]
    fn a_copy_that_alone_is_durable_is_not_written_over() {
        let worker = Workers::new().worker();
        let page = PageId(10);
        for (call, nth) in [
            (Call::Write, 1),
            (Call::Write, 2),
            (Call::Sync, 1),
            (Call::Sync, 2),
        ] {
            let device = FaultDevice::new();
            let (file, buffer, _) = open(&device);
            file.write(page, &image(page, 100)).expect("memory");
            file.sync().expect("memory");
            device.fail(Call::Sync, 1, Times::Once, ErrorKind::Other);
            let written = buffer.keep(&worker, &[page], &image(page, 200));
            written.expect_err("the sync fails");
            let repair = || DoublewriteBuffer::open(&device, "rows-double", &file, &|_, _| true);
            // The copy is synced, and then the pages are.
            device.fail(Call::Sync, 2, Times::Once, ErrorKind::Other);
            repair().expect_err("the sync of the pages fails");
            device.fail(call, nth, Times::Once, ErrorKind::Other);
            repair().expect_err("it fails again");
            for damage in Damage::ALL.into_iter().filter(|kind| !kind.harms_durable()) {
                for seed in 0..20 {
                    let (file, ..) = open(&device.crash(damage, seed));
                    let mut found = file.buffer(1);
                    let read = file.read(page, &mut found);
                    read.unwrap_or_else(|error| panic!("{call:?} {nth}, {damage:?}: {error}"));
                    let lsn = SlottedPage::new(found.bytes()).lsn();
                    assert_eq!(lsn, Lsn::new(200), "{call:?} {nth}, {damage:?}");
                }
            }
        }
    }

    #[test]
    fn copies_are_gone_when_a_repair_is_done() {
        let worker = Workers::new().worker();
        let page = PageId(10);
        let device = FaultDevice::new();
        let (file, buffer, _) = open(&device);
        file.write(page, &image(page, 100)).expect("memory");
        file.sync().expect("memory");
        let written = buffer.keep(&worker, &[page], &image(page, 200));
        written.expect("memory");
        let slots = DOUBLEWRITE_SLOTS as u64 * buffer.slot_bytes();
        drop((file, buffer));
        let (.., repaired) = open(&device);
        assert_eq!(repaired.old, 1);
        let device = device.crash(Damage::DropAll, 1);
        let length = || device.open("rows-double").and_then(|file| file.len());
        assert!(length().expect("memory") <= slots);
        // Copies that no page needs, as of a repair that was killed at its end.
        let file = device.open("rows-double").expect("memory");
        file.set_len(2 * slots).expect("memory");
        let file = open_or_create(&device, "rows", PageSize::MIN, IDENTITY).expect("memory");
        let opened = DoublewriteBuffer::open(&device, "rows-double", &file, &|_, _| false);
        opened.expect("memory");
        assert!(length().expect("memory") <= slots);
    }

    #[test]
    fn a_damaged_page_gets_no_image_that_redo_does_not_complete() {
        let device = MemoryDevice::new();
        let worker = Workers::new().worker();
        let (file, buffer, _) = open(&device);
        let page = PageId(10);
        buffer
            .keep(&worker, &[page], &image(page, 100))
            .expect("memory");
        let mut damaged = image(page, 200);
        damaged[900] ^= 1;
        file.write(page, &damaged).expect("memory");
        drop((file, buffer));
        let (file, _, repaired) = open(&device);
        assert_eq!(repaired, RepairSummary::default());
        let read = file.read(page, &mut file.buffer(1));
        assert!(matches!(read, Err(PageFileError::Damaged(_))), "{read:?}");
    }

    #[test]
    fn no_older_image_is_left_when_the_newest_one_is_overwritten() {
        let device = MemoryDevice::new();
        let worker = Workers::new().worker();
        let page = PageId(10);
        let mut lsn = 0;
        // Restarts at any number of batches do not change the order of the slots.
        for batches in [1, 3, 8, 2, 5, 8, 7] {
            let (_, buffer, _) = open(&device);
            for _ in 0..batches {
                lsn += 100;
                let is_it = lsn % 1700 == 0;
                let page = if is_it { page } else { PageId(50) };
                let images = image(page, lsn);
                buffer.keep(&worker, &[page], &images).expect("memory");
            }
            let found = buffer.images().expect("memory");
            let newest = lsn / 1700 * 1700;
            let expected = (newest > 0 && newest + 800 > lsn).then_some(Lsn::new(newest));
            assert_eq!(found.get(&page).map(|image| image.lsn), expected, "{lsn}");
        }
    }

    /// A batch of eight slots is cut while it is written to them and in its places. Its third slot
    /// has a page whose older images are in this slot, in the same place, and in the next one. The
    /// next one may be overwritten before the new image is durable, so the oldest may be left.
    #[test]
    fn a_batch_of_many_slots_that_is_cut_tears_no_page_and_makes_none_older() {
        let worker = Workers::new().worker();
        let page = PageId(10);
        let slots = 1..=DOUBLEWRITE_SLOTS as u64;
        let batch = |round: u64| {
            slots.clone().map(move |slot| {
                let is_it = matches!((round, slot), (1, 3 | 4) | (2, 3));
                let page = if is_it { page } else { PageId(20 + slot) };
                (page, image(page, 1000 * round + 100 * slot))
            })
        };
        let device = FaultDevice::new();
        let (file, buffer, _) = open(&device);
        for (page, image) in batch(1) {
            buffer.keep(&worker, &[page], &image).expect("memory");
            file.write(page, &image).expect("memory");
        }
        file.sync().expect("memory");
        buffer.release();
        device.record();
        for (page, image) in batch(2) {
            buffer.write(&worker, &[page], &image).expect("memory");
        }
        buffer.sync().expect("memory");
        for (page, image) in batch(2) {
            file.write(page, &image).expect("memory");
        }
        file.sync().expect("memory");
        let recording = device.recording().expect("it was recording");
        drop((file, buffer));
        let mild = Damage::ALL.into_iter().filter(|kind| !kind.harms_durable());
        let mild: Vec<Damage> = mild.collect();
        let (mut torn, mut olds) = (0, 0);
        for disk in recording.disks() {
            for damage in &mild {
                for seed in 0..20 {
                    let device = disk.crash(*damage, seed);
                    let file = PageFile::open(&device, "rows", IDENTITY).expect("whole");
                    let double = device.open("rows-double").expect("it is there");
                    let images = DoublewriteBuffer::over(double, &file).images();
                    let newest = images.expect("memory").get(&page).map(|image| image.lsn);
                    olds += u32::from(newest == Some(Lsn::new(1300)));
                    // Redo makes the changes of the second round.
                    let is_redone = |_, lsn| lsn >= Lsn::new(2000);
                    let opened = DoublewriteBuffer::open(&device, "rows-double", &file, &is_redone);
                    torn += opened.expect("memory").1.torn;
                    for slot in slots.clone().filter(|slot| *slot != 3) {
                        let known = [(1, slot), (2, if slot == 4 { 3 } else { slot })];
                        let known = known.map(|(round, slot)| Lsn::new(1000 * round + 100 * slot));
                        let page = if slot == 4 { page } else { PageId(20 + slot) };
                        let mut found = file.buffer(1);
                        file.read(page, &mut found).expect("it is whole");
                        let lsn = SlottedPage::new(found.bytes()).lsn();
                        assert!(known.contains(&lsn), "{damage:?}: {page}: {lsn}");
                    }
                }
            }
        }
        assert!(
            torn > 0 && olds > 0,
            "{torn} torn, {olds} with an old image"
        );
    }

    #[test]
    fn a_slot_with_any_flipped_bit_gives_no_wrong_image() {
        let device = MemoryDevice::new();
        let worker = Workers::new().worker();
        let (_, buffer, _) = open(&device);
        let page = PageId(10);
        let sealed = image(page, 100);
        buffer.keep(&worker, &[page], &sealed).expect("memory");
        let file = device.open("rows-double").expect("it is there");
        let mut bytes = vec![0; SLOT_HEADER + 1024];
        file.read_at(&mut bytes, 0).expect("memory");
        for bit in (0..bytes.len() * 8).step_by(7) {
            let flipped = bytes[bit / 8] ^ 1 << (bit % 8);
            file.write_at(&[flipped], bit as u64 / 8).expect("memory");
            assert!(buffer.images().expect("memory").is_empty(), "bit {bit}");
            file.write_at(&bytes[bit / 8..=bit / 8], bit as u64 / 8)
                .expect("memory");
        }
        assert_eq!(buffer.images().expect("memory").len(), 1);
    }
}
