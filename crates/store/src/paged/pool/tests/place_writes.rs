//! Batches that several threads write in their places.

use super::super::place_writes::write_places;
use super::*;
use std::collections::HashSet;

const PAGES: u64 = 100;

/// Returns a pool in which all pages are, every second one dirty, on a device without a page cache.
fn half_dirty(device: &HookedDevice, workers: &Workers) -> Data {
    let data = Data::create(device, 128, PAGES);
    let worker = workers.worker();
    for index in (0..PAGES).step_by(2) {
        let reservation = data.pool.reserve(&worker, &data.requests(&[index]));
        let reservation = reservation.expect("whole");
        data.add(&mut reservation.pages()[0].lock(&worker), index);
    }
    data
}

#[test]
fn threads_share_the_writes_of_a_batch() {
    let device = HookedDevice::default();
    let workers = Workers::new();
    let data = half_dirty(&device, &workers);
    let threads = Arc::new(std::sync::Mutex::new(HashSet::new()));
    let before_write = {
        let threads = threads.clone();
        move |_: &[u8]| {
            shim::lock(&threads).insert(thread::current().id());
            Ok(())
        }
    };
    *shim::lock(&device.hooks.before_write) = Some(Box::new(before_write));
    let cleaned = data.pool.clean_batch(&workers.worker()).expect("memory");
    assert_eq!((cleaned, data.pool.dirty_count()), (50, 0));
    assert_eq!(
        shim::lock(&threads).len(),
        6,
        "each has eight pages or more"
    );
    let file = PageFile::open(&device, "rows", IDENTITY).expect("whole");
    write_places(&file, &[], &[]).expect("nothing to write");
    let mut image = file.buffer(1);
    for (index, count) in (0..).zip(&data.counts) {
        file.read(page_of(index), &mut image).expect("whole");
        let found = row(&SlottedPage::new(image.bytes()), 1);
        assert_eq!(found, count.load(Ordering::Relaxed), "page {index}");
    }
}

#[test]
fn a_write_that_fails_in_any_thread_leaves_all_pages_dirty() {
    for failing in [0, 48, 98] {
        let device = HookedDevice::default();
        let workers = Workers::new();
        let data = half_dirty(&device, &workers);
        let before_write =
            move |images: &[u8]| match SlottedPage::new(images).page() == page_of(failing) {
                true => Err(ErrorKind::Other.into()),
                false => Ok(()),
            };
        *shim::lock(&device.hooks.before_write) = Some(Box::new(before_write));
        // A file that remembers no failure: the writers alone report it.
        let mut file = PageFile::open(&device, "rows", IDENTITY).expect("whole");
        file.make_direct(&device, "rows").expect("it is there");
        let pages: Vec<PageId> = (0..PAGES).step_by(2).map(page_of).collect();
        let mut images = file.buffer(pages.len());
        for (page, image) in pages.iter().zip(images.bytes_mut().chunks_mut(1024)) {
            file.read_unchecked(*page, image).expect("memory");
        }
        write_places(&file, &pages, images.bytes()).expect_err("one is refused");
        for _ in 0..2 {
            let refused = data.pool.clean_batch(&workers.worker());
            assert!(matches!(refused, Err(PoolError::Write(_))), "{refused:?}");
            assert_eq!(data.pool.dirty_count(), 50);
        }
    }
}
