//! Random claims against a set, growth over several maps, full and failing devices, damaged maps.
#![cfg(test)]

use std::collections::BTreeSet;
use std::io;

use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::memory::MemoryDevice;
use foxton_sync::worker::Workers;

use super::*;
use crate::paged::page::PageFault;

const IDENTITY: [u8; 16] = [7; 16];
const SIZE: PageSize = PageSize::MIN;

fn create(device: &dyn Device) -> PageFile {
    let file = PageFile::create(device, "rows", SIZE, IDENTITY).expect("a new file");
    format_file(&file).expect("space");
    file
}

fn no_log() -> Result<Lsn, PageFileError> {
    Ok(Lsn::new(5))
}

fn is_fixed(page: PageId) -> bool {
    page.number() <= 2 || SIZE.map_position(page).map == page
}

/// Changes the image of `page` in the file.
fn rewrite(file: &PageFile, page: PageId, change: impl FnOnce(&mut [u8])) {
    let mut image = file.buffer(1);
    file.read(page, &mut image).expect("whole");
    change(image.bytes_mut());
    seal(image.bytes_mut(), &IDENTITY);
    file.write(page, image.bytes()).expect("memory");
}

#[test]
fn claims_agree_with_a_set_while_the_file_grows() {
    let device = MemoryDevice::new();
    let file = create(&device);
    let allocator = PageAllocator::load(&file).expect("whole");
    let worker = Workers::new().worker();
    let mut used = BTreeSet::new();
    let mut claims = Vec::new();
    let mut state = 3_u64;
    let mut random = move |bound: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 33) % bound
    };
    while file.header().end < 2 * SIZE.mapped_pages() + 100 {
        let near = PageId::new(0, random(10_000));
        match random(10) {
            0..=6 => match allocator.claim(&worker, near, PagePurpose::Growth) {
                Some(claim) => {
                    assert!(used.insert(claim.page()), "a page has one claim");
                    assert!(claim.page().number() < file.header().end && !is_fixed(claim.page()));
                    claims.push(claim);
                }
                None => {
                    assert_eq!(allocator.free_count(), RESERVED_PAGES);
                    allocator.grow(&file, no_log, |_| ()).expect("memory");
                    assert!(allocator.free_count() > RESERVED_PAGES);
                }
            },
            7 => claims.drain(..).for_each(PageAllocation::keep),
            8 => {
                if let Some(claim) = claims.pop() {
                    used.remove(&claim.page());
                }
            }
            _ => {
                let claimed: BTreeSet<_> = claims.iter().map(PageAllocation::page).collect();
                let kept = used.iter().copied().find(|page| !claimed.contains(page));
                if let Some(page) = kept {
                    used.remove(&page);
                    allocator.release(page);
                }
            }
        }
    }
    claims.drain(..).for_each(PageAllocation::keep);
    allocator.verify(|page| is_fixed(page) || used.contains(&page));
    // A later opening finds the bits of the maps.
    for page in &used {
        let position = SIZE.map_position(*page);
        rewrite(&file, position.map, |image| {
            SpaceMap::new(image).set_used(position.index, true);
        });
    }
    let file = PageFile::open(&device, "rows", IDENTITY).expect("whole");
    let allocator = PageAllocator::load(&file).expect("whole");
    allocator.verify(|page| is_fixed(page) || used.contains(&page));
}

#[test]
fn pages_are_claimed_near_each_other() {
    let device = MemoryDevice::new();
    let file = create(&device);
    let allocator = PageAllocator::load(&file).expect("whole");
    let worker = Workers::new().worker();
    let claim = |near: u64| {
        let claim = allocator.claim(&worker, PageId::new(0, near), PagePurpose::Removal);
        let claim = claim.expect("there are free pages");
        let page = claim.page().number();
        claim.keep();
        page
    };
    assert_eq!([claim(70), claim(70), claim(72), claim(1)], [71, 72, 73, 3]);
    // The end of an extent: one before in the same extent, then one in the next.
    assert_eq!([claim(126), claim(126), claim(127)], [127, 64, 65]);
    assert_eq!(claim(u64::MAX >> 16), 66, "beyond the end");
    while allocator.free_count() > 1 {
        claim(70);
    }
    allocator.release(PageId::new(0, 10));
    let last = [claim(100), claim(100)];
    assert!(last.contains(&10), "it begins again at the front");
    let none = allocator.claim(&worker, PageId::new(0, 5), PagePurpose::Removal);
    assert!(none.is_none());
}

#[test]
fn a_new_map_waits_for_the_log_and_is_durable_before_the_end_moves() {
    let device = FaultDevice::new();
    let file = create(&device);
    let allocator = PageAllocator::load(&file).expect("whole");
    let worker = Workers::new().worker();
    let mut waits = 0;
    loop {
        while let Some(claim) = allocator.claim(&worker, PageId::new(0, 3), PagePurpose::Growth) {
            claim.keep();
        }
        let before = file.header().end;
        let mut is_asked = false;
        allocator
            .grow(
                &file,
                || {
                    is_asked = true;
                    no_log()
                },
                |_| (),
            )
            .expect("memory");
        let mapped = SIZE.mapped_pages();
        let has_new_map = before.div_ceil(mapped) < file.header().end.div_ceil(mapped);
        assert_eq!(is_asked, has_new_map);
        waits += usize::from(is_asked);
        if has_new_map {
            break;
        }
    }
    let mut image = file.buffer(1);
    file.read(SIZE.map_page(1), &mut image).expect("whole");
    assert_eq!(SlottedPage::new(image.bytes()).lsn(), Lsn::new(5));

    assert_eq!(waits, 1);
}

/// Returns a file of as many pages as one map covers, and its allocator, without free pages.
fn full_of_one_map(device: &dyn Device) -> (PageFile, PageAllocator) {
    let file = PageFile::create(device, "rows", SIZE, IDENTITY).expect("a new file");
    let map = map_image(&file, 0, Lsn::ZERO);
    file.grow(SIZE.mapped_pages(), &[map]).expect("memory");
    let allocator = PageAllocator::load(&file).expect("whole");
    let worker = Workers::new().worker();
    while let Some(claim) = allocator.claim(&worker, PageId::new(0, 3), PagePurpose::Growth) {
        claim.keep();
    }
    (file, allocator)
}

#[test]
fn growth_cut_off_by_a_power_cut_leaves_all_maps() {
    let device = FaultDevice::new();
    let (file, allocator) = full_of_one_map(&device);
    let before = file.header().end;
    device.record();
    allocator.grow(&file, no_log, |_| ()).expect("memory");
    let after = file.header().end;
    let recording = device.recording().expect("it was recorded");
    let mut ends = BTreeSet::new();
    for (cut, disk) in recording.disks().enumerate() {
        for damage in Damage::ALL {
            // Those two damage what was synced long ago, too.
            if [Damage::BitFlip, Damage::Misdirected].contains(&damage) {
                continue;
            }
            for seed in 0..20 {
                let device = disk.crash(damage, seed);
                let replay = format!("cut {cut}, {damage:?}, seed {seed}");
                let file = PageFile::open(&device, "rows", IDENTITY).expect(&replay);
                PageAllocator::load(&file).expect(&replay);
                ends.insert(file.header().end);
            }
        }
    }
    assert_eq!(ends, BTreeSet::from([before, after]));
}

#[test]
fn a_failed_sync_of_a_growth_is_final() {
    // The first sync makes map and space durable, the second the header.
    for failing in [1, 2] {
        let device = FaultDevice::new();
        let (file, allocator) = full_of_one_map(&device);
        let end = file.header().end;
        device.fail(Call::Sync, failing, Times::Once, io::ErrorKind::Other);
        let refused = allocator.grow(&file, no_log, |_| ());
        assert!(matches!(refused, Err(PageFileError::WriteFailed { .. })));
        assert_eq!(
            (file.header().end, allocator.free_count()),
            (end, RESERVED_PAGES)
        );
        assert!(allocator.grow(&file, no_log, |_| ()).is_err() && file.sync().is_err());
        let image = file.buffer(1);
        assert!(file.write(PageId::new(0, 5), image.bytes()).is_err());
    }
}

#[test]
fn a_full_device_is_an_error_until_it_has_space() {
    let device = FaultDevice::new();
    let file = create(&device);
    let allocator = PageAllocator::load(&file).expect("whole");
    let worker = Workers::new().worker();
    while let Some(claim) = allocator.claim(&worker, PageId::new(0, 3), PagePurpose::Growth) {
        claim.keep();
    }
    device.fail(Call::Allocate, 1, Times::Once, io::ErrorKind::StorageFull);
    let refused = allocator.grow(&file, no_log, |_| ()).expect_err("full");
    assert!(refused.is_full_device(), "{refused}");
    assert_eq!(allocator.free_count(), RESERVED_PAGES);
    // The last pages are for operations that remove rows.
    let claim = |purpose| allocator.claim(&worker, PageId::new(0, 3), purpose);
    for _ in 0..RESERVED_PAGES {
        assert!(claim(PagePurpose::Growth).is_none());
        claim(PagePurpose::Removal).expect("one is left").keep();
    }
    assert!(claim(PagePurpose::Removal).is_none());
    // Pages that become free are theirs first.
    (10..10 + RESERVED_PAGES).for_each(|page| allocator.release(PageId::new(0, page)));
    assert!(claim(PagePurpose::Growth).is_none());
    allocator.release(PageId::new(0, 30));
    claim(PagePurpose::Growth).expect("one more is free").keep();
    allocator
        .grow(&file, no_log, |_| ())
        .expect("there is space again");
    assert!(allocator.free_count() > RESERVED_PAGES && !allocator.is_low());
    let ahead = allocator.grow_ahead(&file, no_log, |_| ()).expect("memory");
    assert!(!ahead, "enough pages are free");
    while !allocator.is_low() {
        let claim = allocator.claim(&worker, PageId::new(0, 3), PagePurpose::Growth);
        claim.expect("a free page").keep();
    }
    assert!(allocator.grow_ahead(&file, no_log, |_| ()).expect("memory"));
}

#[test]
fn a_map_that_cannot_be_is_an_error() {
    let fault = |change: fn(&mut [u8])| {
        let device = MemoryDevice::new();
        let file = create(&device);
        rewrite(&file, SIZE.map_page(0), change);
        match PageAllocator::load(&file) {
            Err(PageFileError::Damaged(error)) => error.fault,
            other => panic!("{other:?}"),
        }
    };
    let beyond = fault(|image| SpaceMap::new(image).set_used(LEAST_PAGES as u32 + 1, true));
    let field = "bits beyond the logical end";
    assert_eq!(beyond, PageFault::Field { field, value: 2 });
    let leaf = fault(|image| {
        let page = SIZE.map_page(0);
        SlottedPage::new(image).format(PageKind::Leaf, 0, 9, page, b"", None);
    });
    assert!(matches!(leaf, PageFault::Field { field: "kind", .. }));
    let lost = fault(|image| SpaceMap::new(image).set_used(1, false));
    assert!(matches!(lost, PageFault::Field { .. }));
}

#[test]
fn a_forged_end_takes_no_memory() {
    let device = MemoryDevice::new();
    drop(create(&device));
    // The header says that the file has 2^47 pages.
    let raw = device.open("rows").expect("it is there");
    for half in [0, SIZE.bytes() as u64 / 2] {
        let mut header = [0; 52];
        raw.read_at(&mut header, half).expect("memory");
        header[40..48].copy_from_slice(&(1_u64 << 47).to_le_bytes());
        let sum = foxton_sync::checksum::crc32c(0, &header[..48]);
        header[48..].copy_from_slice(&sum.to_le_bytes());
        raw.write_at(&header, half).expect("memory");
    }
    let file = PageFile::open(&device, "rows", IDENTITY).expect("a header that could be");
    let refused = PageAllocator::load(&file);
    assert!(matches!(refused, Err(PageFileError::Damaged(_))));
}

/// Uses the pages that `used` says, sets their bits in the maps, and frees all others.
fn use_pages(file: &PageFile, used: &BTreeSet<u64>) -> PageAllocator {
    for number in used {
        let position = SIZE.map_position(PageId::new(0, *number));
        rewrite(file, position.map, |image| {
            SpaceMap::new(image).set_used(position.index, true);
        });
    }
    file.sync().expect("memory");
    PageAllocator::load(file).expect("whole")
}

#[test]
fn held_pages_are_claimed_by_no_thread_and_are_cut_off() {
    let device = MemoryDevice::new();
    let (file, allocator) = full_of_one_map(&device);
    allocator.grow(&file, no_log, |_| ()).expect("memory");
    drop(allocator);
    let (before, mapped) = (file.header().end, SIZE.mapped_pages());
    assert!(before > mapped);
    let allocator = use_pages(&file, &BTreeSet::from([3, 50, 300]));
    let worker = Workers::new().worker();
    // Header, directory, map, and the three.
    assert_eq!(allocator.shortest_end(), 6);
    allocator.hold(6);
    let states = [2, 5, 50, 51].map(|number| allocator.page_state(number));
    let [taken, free, held] = [PageState::Taken, PageState::Free, PageState::Held];
    assert_eq!(states, [taken, free, taken, held]);
    assert_eq!((allocator.free_count(), allocator.is_low()), (2, false));
    assert_eq!(allocator.shortest_end(), 6, "held pages are not used");

    // A page moves, and its old place is held.
    let claim = allocator.claim_first(&worker).expect("a free page");
    assert_eq!(claim.page(), PageId::new(0, 4));
    claim.keep();
    allocator.release(PageId::new(0, 300));
    assert_eq!(allocator.page_state(300), held);
    assert!(
        !allocator.cut(&file, 50).expect("memory"),
        "page 50 is used"
    );
    assert_eq!(file.header().end, before);
    assert!(allocator.cut(&file, 51).expect("memory"));
    assert_eq!(file.header().end, 51);
    assert_eq!(file.length().expect("memory"), 51 * SIZE.bytes() as u64);
    let opened = PageFile::open(&device, "rows", IDENTITY).expect("whole");
    assert_eq!(opened.header().end, 51);

    // The rest is free for all, and the file does not grow before a page is claimed.
    let used = BTreeSet::from([0, 1, 2, 3, 4, 50]);
    allocator.verify(|page| used.contains(&page.number()));
    assert!(!allocator.is_low());
    let claims: Vec<_> = std::iter::from_fn(|| allocator.claim_first(&worker)).collect();
    assert_eq!(claims.len(), 45);
    assert!(allocator.is_low());
    claims.into_iter().for_each(PageAllocation::keep);
    let mut renewed = Vec::new();
    while file.header().end <= mapped {
        while let Some(claim) = allocator.claim_first(&worker) {
            claim.keep();
        }
        let renew = |maps: &[MapImage]| renewed.extend(maps.iter().map(|map| map.0));
        allocator.grow(&file, no_log, renew).expect("memory");
    }
    assert_eq!(renewed, [SIZE.map_page(1)], "the second map is a new one");
}

#[test]
fn growth_lifts_a_hold() {
    let device = MemoryDevice::new();
    let file = create(&device);
    let allocator = PageAllocator::load(&file).expect("whole");
    let worker = Workers::new().worker();
    let before = (file.header().end, allocator.free_count());
    allocator.hold(3);
    assert!(
        allocator
            .claim(&worker, PageId::new(0, 5), PagePurpose::Growth)
            .is_none()
    );
    let no_wait = || -> Result<Lsn, PageFileError> { panic!("nothing grows") };
    allocator
        .grow(&file, no_wait, |_| ())
        .expect("pages were held");
    assert_eq!((file.header().end, allocator.free_count()), before);
    assert!(!allocator.is_held() && !allocator.cut(&file, 3).expect("refused"));
}

#[test]
fn a_power_cut_while_the_file_is_cut_leaves_it_whole() {
    let device = FaultDevice::new();
    let file = create(&device);
    let allocator = use_pages(&file, &BTreeSet::from([3, 4]));
    allocator.hold(5);
    let before = file.header().end;
    device.record();
    assert!(allocator.cut(&file, 5).expect("memory"));
    let recording = device.recording().expect("it was recorded");
    let mut ends = BTreeSet::new();
    for (cut, disk) in recording.disks().enumerate() {
        for damage in Damage::ALL {
            if [Damage::BitFlip, Damage::Misdirected].contains(&damage) {
                continue;
            }
            for seed in 0..20 {
                let device = disk.crash(damage, seed);
                let replay = format!("cut {cut}, {damage:?}, seed {seed}");
                let file = PageFile::open(&device, "rows", IDENTITY).expect(&replay);
                let bytes = file.header().end * SIZE.bytes() as u64;
                assert!(file.length().expect("memory") >= bytes, "{replay}");
                PageAllocator::load(&file).expect(&replay);
                ends.insert(file.header().end);
            }
        }
    }
    assert_eq!(ends, BTreeSet::from([5, before]));
}

#[test]
fn a_cut_that_fails_harms_nothing() {
    let device = FaultDevice::new();
    let file = create(&device);
    let allocator = use_pages(&file, &BTreeSet::from([3, 4]));
    let worker = Workers::new().worker();
    let length = file.length().expect("memory");
    allocator.hold(5);
    device.fail(Call::SetLen, 1, Times::Once, io::ErrorKind::Other);
    let failed = allocator.cut(&file, 5).expect_err("it cannot be cut");
    assert!(matches!(failed, PageFileError::Device { call: "cut", .. }));
    assert_eq!(
        (file.header().end, file.length().expect("memory")),
        (5, length)
    );
    assert!(allocator.claim_first(&worker).is_none() && !allocator.is_held());
    // The next one takes the bytes away.
    allocator.hold(5);
    assert!(allocator.cut(&file, 5).expect("memory"));
    assert_eq!(file.length().expect("memory"), 5 * SIZE.bytes() as u64);
}
