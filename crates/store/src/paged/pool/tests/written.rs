//! Pages that are ahead of a log that lost its end.

use super::*;

#[test]
fn a_page_ahead_of_the_log_at_opening_stays_so_when_the_log_has_grown() {
    let device = MemoryDevice::new();
    let mut data = Data::create(&device, 16, 60);
    // Half of the pages were changed before this.
    let end = Lsn::new(300);
    let file = PageFile::open(&device, "rows", IDENTITY).expect("whole");
    let log = Arc::new(Unlogged::new(LOG_END));
    let pool = BufferPool::new(file, 16, log).expect("whole");
    data.pool = Arc::new(pool.with_log_end(end));
    let worker = Workers::new().worker();
    let load = |index| {
        let requests = data.requests(&[index]);
        data.pool.reserve(&worker, &requests).map(drop)
    };
    let (mut whole, mut ahead) = (Vec::new(), 0);
    for index in 0..60 {
        match load(index) {
            Ok(()) => whole.push(index),
            Err(PoolError::Damaged(PageError {
                fault: PageFault::AheadOfLog { found, end: log },
                ..
            })) => {
                assert!(found > end && log == end, "{found} {log}");
                ahead += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(whole.len() > 25 && ahead > 25, "{whole:?} {ahead}");
    // Those that this pool changes are read again, though their changes are behind that end.
    for &index in &whole {
        let reservation = data.pool.reserve(&worker, &data.requests(&[index]));
        let reservation = reservation.expect("whole");
        data.add(&mut reservation.pages()[0].lock(&worker), index);
        drop(reservation);
        data.pool.clean_all(&worker).expect("memory");
    }
    let reads = data.pool.stats().reads;
    for &index in &whole {
        load(index).expect("it is this pool's");
    }
    assert!(data.pool.stats().reads > reads, "they were evicted");
}
