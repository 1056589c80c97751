//! Batches, repairs, and power cuts in both.

use super::super::open::open_or_create;
use super::*;
use crate::paged::page::{PageKind, RowFlags, seal};
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::memory::MemoryDevice;
use foxton_sync::worker::Workers;
use std::io::ErrorKind;

const IDENTITY: FileIdentity = [7; 16];
/// Beyond all changes.
const LOG_END: Lsn = Lsn::new(1 << 40);
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
    fn keep(&self, worker: &Worker, pages: &[PageId], images: &[u8]) -> Result<(), PageFileError> {
        self.write(worker, pages, images)?;
        self.sync()
    }
}

fn open(device: &dyn Device) -> (PageFile, DoublewriteBuffer, RepairSummary) {
    let file = open_or_create(device, "rows", PageSize::MIN, IDENTITY).expect("memory");
    let opened = DoublewriteBuffer::open(device, "rows-double", &file, LOG_END, &|_, lsn| {
        lsn >= REDO_FROM
    });
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
        let repair =
            || DoublewriteBuffer::open(&device, "rows-double", &file, LOG_END, &|_, _| true);
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
    let opened = DoublewriteBuffer::open(&device, "rows-double", &file, LOG_END, &|_, _| false);
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

/// The log lost its end, which was durable: pages have changes that it lacks.
#[test]
fn an_image_ahead_of_the_log_is_refused_and_nothing_is_written() {
    let worker = Workers::new().worker();
    let device = FaultDevice::new();
    let (file, buffer, _) = open(&device);
    let page = PageId(10);
    let kept = buffer.keep(&worker, &[page], &image(page, 200));
    kept.expect("memory");
    drop(buffer);
    device.record();
    let open = |end| {
        let end = Lsn::new(end);
        DoublewriteBuffer::open(&device, "rows-double", &file, end, &|_, _| true)
    };
    match open(199) {
        Err(PageFileError::Damaged(error)) => {
            let (found, end) = (Lsn::new(200), Lsn::new(199));
            assert_eq!(error.page, page);
            assert_eq!(error.fault, PageFault::AheadOfLog { found, end });
        }
        other => panic!("{other:?}"),
    }
    let recording = device.recording().expect("it was recording");
    assert_eq!(recording.disks().count(), 1, "nothing has changed");
    assert_eq!(open(200).expect("memory").1.torn, 1);
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
                let opened =
                    DoublewriteBuffer::open(&device, "rows-double", &file, LOG_END, &is_redone);
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
