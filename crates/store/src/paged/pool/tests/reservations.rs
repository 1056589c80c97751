//! Pages that a reservation keeps, and the frames that it takes.

use super::*;

#[test]
fn a_reservation_may_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<PageReservation<'_>>();
    is_send::<PoolError>();
}

#[test]
fn a_reservation_keeps_its_pages() {
    let device = MemoryDevice::new();
    let data = Data::create(&device, 16, 100);
    let workers = Workers::new();
    let (worker, other) = (workers.worker(), workers.worker());
    let kept = data.requests(&[1, 2, 3, 4, 5, 6]);
    let reservation = data.pool.reserve(&worker, &kept).expect("whole");
    let before = data.pool.stats().reads;
    for index in 10..100 {
        drop(
            data.pool
                .reserve(&other, &data.requests(&[index]))
                .expect("whole"),
        );
    }
    assert!(data.pool.stats().reads >= before + 80);
    for page in reservation.pages() {
        assert!(page.view().is_some_and(|view| view.is_valid()));
        assert!(data.pool.page(page.page()).is_some());
    }
    drop(reservation);
    data.verify(&worker);
}

/// Keeps pages `0..count` in their frames, and makes the other frames free.
fn keep<'p>(data: &'p Data, worker: &Worker, count: u64) -> Vec<PageReservation<'p>> {
    let indexes: Vec<u64> = (0..count).collect();
    let keep = |indexes: &[u64]| data.pool.reserve(worker, &data.requests(indexes));
    let kept = indexes.chunks(MAX_RESERVED).map(keep).collect();
    let kept: Result<_, PoolError> = kept;
    let kept = kept.expect("whole");
    while data.pool.free.count() < 16 - count as usize {
        data.pool.provide_frames(worker);
    }
    kept
}

#[test]
fn a_reservation_takes_frames_for_missing_pages_only() {
    let device = MemoryDevice::new();
    let data = Data::create(&device, 16, 40);
    let workers = Workers::new();
    let (worker, other) = (workers.worker(), workers.worker());
    let kept = keep(&data, &worker, 15);
    // Three pages, and one free frame.
    let pages = data.pool.reserve(&other, &data.requests(&[0, 1, 20]));
    assert_eq!(pages.expect("whole").pages().len(), 3);
    drop(kept);
    data.verify(&worker);
}

/// I3: if it kept page 14, threads that wait for each other's pages would wait for ever.
#[test]
fn a_reservation_that_waits_for_frames_keeps_no_page() {
    let device = MemoryDevice::new();
    let data = Arc::new(Data::create(&device, 16, 40));
    let progress = data.clone();
    fail_if_stalled(move |_| {
        let data = &*progress;
        let workers = Workers::new();
        let worker = workers.worker();
        let kept = keep(data, &worker, 14);
        drop(
            data.pool
                .reserve(&worker, &data.requests(&[14]))
                .expect("whole"),
        );
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let pages = data.requests(&[14, 20, 21]);
                let reserved = data.pool.reserve(&workers.worker(), &pages);
                reserved.map(|reservation| reservation.pages().len())
            });
            while data.pool.page(page_of(14)).is_some() {
                thread::yield_now();
            }
            assert!(
                !waiting.is_finished(),
                "there are two frames for three pages"
            );
            drop(kept);
            let reserved = waiting.join().expect("no panic").expect("whole");
            assert_eq!(reserved, 3);
        });
    });
    data.verify(&Workers::new().worker());
}
