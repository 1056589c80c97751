//! Waits: for clean pages, for log space, and of a visit that is detached meanwhile.

use super::bench::KeptLog;
use super::*;

/// Makes attempts, and waits for pages in between. `None`: it waits for the cleaner.
fn until_stalled<'t, T>(
    visit: &mut TreeVisit<'t>,
    mut attempt: impl FnMut(&mut TreeVisit<'t>) -> Result<TreeAttempt<T>, TreeError>,
) -> Option<T> {
    loop {
        match attempt(visit).expect("whole") {
            TreeAttempt::Done(result) => return Some(result),
            TreeAttempt::Wait if matches!(visit.need, Need::CleanPages) => return None,
            TreeAttempt::Wait => visit.wait().expect("whole"),
        }
    }
}

/// Inserts rows until a change waits for the cleaner; returns the number of the row.
fn insert_until_stalled(visit: &mut TreeVisit<'_>, from: u64) -> u64 {
    let mut numbers = from..10_000;
    let is_stalled = |number: &u64| {
        let key = number_key(*number);
        let attempt = |visit: &mut TreeVisit<'_>| visit.insert(&key, &[7; 200], 0, NextKey::Any);
        until_stalled(visit, attempt).is_none()
    };
    numbers.find(is_stalled).expect("the pool is small")
}

#[test]
fn changes_wait_at_seven_eighths_dirty_commits_at_a_half_and_undo_never() {
    // The test is the cleaner, and writes eight pages at once.
    let device = FaultDevice::new();
    let file = PageFile::create(&device, "rows", PageSize::MIN, IDENTITY).expect("a new file");
    format_file(&file).expect("space");
    let log = Arc::new(KeptLog::default());
    let pool = Arc::new(BufferPool::new(file, 64, log.clone()).expect("whole"));
    let worker = Workers::new().worker();
    pool.limit_batches(8);
    let directory = TableDirectory::new(pool.clone());
    let tree = directory.create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    (0..30).for_each(|number| insert(&mut visit, &number_key(number), &[7; 200]));
    pool.clean_all(&worker).expect("memory");
    pool.set_cleaner(&worker, true);
    let rows = insert_until_stalled(&mut visit, 30);
    assert!((56..62).contains(&pool.dirty_count()), "{pool:?}");
    assert!(rows > 100, "{rows} rows");
    // A row on a dirty page, and one on a clean page.
    let (dirty, clean) = (number_key(rows - 1), number_key(0));
    let ghost = RowFlags::GHOST;
    assert!(until_stalled(&mut visit, |visit| visit.set_flags(&dirty, ghost)).is_some());
    assert!(until_stalled(&mut visit, |visit| visit.set_flags(&clean, ghost)).is_none());
    let before = pool.dirty_count();
    let undo = RowUndo {
        table: TABLE,
        key: &clean,
        before: RowBefore::Flags(ghost),
    };
    let logs = &mut |_: &PageEntry<'_>| {
        let begin = log.end(&worker);
        let end = begin.plus(8);
        Some(LoggedChange { begin, end })
    };
    assert!(until_stalled(&mut visit, |visit| visit.undo(&undo, logs)).is_some());
    assert_eq!(pool.dirty_count(), before + 1);
    drop(visit);
    let mut context = Context::from_waker(Waker::noop());
    let mut is_woken = |wait: &DirtyWait| wait.poll(&mut context).is_ready();
    let wait = |bound| pool.wait_for_clean(&worker, bound);
    let change = wait(DirtyBound::Change).expect("seven eighths are dirty");
    let commit = wait(DirtyBound::Commit).expect("a half is dirty");
    let dropped = wait(DirtyBound::Commit).expect("a half is dirty");
    let last = wait(DirtyBound::Commit).expect("a half is dirty");
    drop(dropped);
    let stats = pool.stats();
    let stalls = (stats.commit_stalls, stats.change_stalls);
    assert_eq!((stats.stalled, stalls), (4, (3, 1)));
    while pool.dirty_count() >= 32 {
        assert!(!is_woken(&commit), "{pool:?}");
        assert_eq!(is_woken(&change), pool.dirty_count() < 56, "{pool:?}");
        pool.clean_batch(&worker).expect("memory");
    }
    assert!(is_woken(&change) && is_woken(&commit));
    pool.clean_all(&worker).expect("memory");
    assert!(is_woken(&last) && pool.stats().stalled == 0);
    assert!(wait(DirtyBound::Commit).is_none());
    // After a failed write no thread waits for the next one.
    let mut visit = tree.visit(&worker);
    insert_until_stalled(&mut visit, rows);
    let failed = wait(DirtyBound::Commit).expect("a half is dirty");
    device.fail(Call::Write, 1, Times::ForEver, std::io::ErrorKind::Other);
    assert!(!is_woken(&failed));
    pool.clean_batch(&worker)
        .expect_err("no page can be written");
    assert!(is_woken(&failed));
    visit.wait().expect_err("no page can be written");
}

#[test]
fn a_visit_that_is_detached_at_each_wait_keeps_what_it_has() {
    let bench = Bench::new(16);
    let worker = bench.workers.worker();
    let tree = Arc::new(bench.directory().create(&worker, TABLE).expect("space"));
    let mut waits = 0;
    for number in 0..200 {
        let mut kept: Option<DetachedVisit> = None;
        loop {
            let mut visit = match kept.take() {
                Some(kept) => kept.attach(&tree, &worker),
                None => tree.visit(&worker),
            };
            let key = number_key(number * 37 % 200);
            match visit.insert(&key, &[1; 90], 0, NextKey::Any) {
                Ok(TreeAttempt::Done(reply)) => break assert_eq!(reply, InsertReply::Inserted),
                Ok(TreeAttempt::Wait) => {
                    waits += 1;
                    let waited = visit.detach(&tree).wait(&worker).expect("whole");
                    kept = Some(waited);
                    // One that is dropped gives up its pages, those that it has claimed too.
                    if waits % 3 == 0 {
                        kept = None;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(waits > 100, "{waits} waits");
    assert_eq!(bench.verify(&[&tree]).rows, 200);
}
