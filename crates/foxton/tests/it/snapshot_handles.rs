//! Handles of snapshots: tasks, labels, levels, idle and greedy ones.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use foxton::device::MemoryDevice;
use foxton::{Database, Index, Isolation, Options, Snapshot, SnapshotAt, Table, VersionCall};

const ROWS: Table<u64, u64> = Table::new("rows");
const BY_VALUE: Index<u64, u64, u64> = Index::new("by value", &ROWS, |_, value, keys| {
    keys.add(value);
});

/// Wakes a thread, and counts that.
struct ThreadWaker(Thread, AtomicUsize);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.unpark();
    }
}

/// Runs a future on this thread, without any runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Arc::new(ThreadWaker(thread::current(), AtomicUsize::new(0)));
    let (mut future, waker) = (pin!(future), Waker::from(waker));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

fn with_rows(options: Options, rows: u64) -> Database {
    let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
    db.create_index(&BY_VALUE).unwrap();
    db.run(|tx| (0..rows).try_for_each(|key| tx.put(&ROWS, &key, &(1000 + key))))
        .unwrap();
    db
}

fn change_all(db: &Database, rows: u64, to: u64) {
    db.run(|tx| (0..rows).try_for_each(|key| tx.put(&ROWS, &key, &to)))
        .unwrap();
}

/// Waits until `is_done`, ten seconds at most.
fn within_seconds(what: &str, is_done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_done() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_handle_is_shared_and_its_futures_are_sent_between_threads() {
    fn is_shared<T: Clone + Send + Sync + 'static>() {}
    fn is_sent<T: Send>(future: T) -> T {
        future
    }
    is_shared::<Snapshot>();
    let db = with_rows(Options::tiny(), 10);
    block_on(is_sent(db.view_async(|snapshot| async move {
        let keys = [1, 2];
        is_sent(snapshot.get_async(&ROWS, &1)).await?;
        is_sent(snapshot.get_many_async(&ROWS, &keys)).await?;
        is_sent(snapshot.get_by_async(&BY_VALUE, &1001)).await?;
        is_sent(snapshot.range_async(&ROWS, ..).count()).await?;
        is_sent(snapshot.range_by_async(&BY_VALUE, ..).count()).await?;
        is_sent(snapshot.end_async()).await
    })))
    .unwrap();
    block_on(is_sent(db.snapshot_at_async(SnapshotAt::Durable))).unwrap();
}

#[test]
fn tasks_read_at_a_snapshot_as_threads_do() {
    let db = with_rows(Options::tiny(), 3_000);
    block_on(async {
        let snapshot = db.snapshot_at_async(SnapshotAt::Durable).await.unwrap();
        change_all(&db, 3_000, 7);
        let clone = snapshot.clone();
        let one = clone.get_async(&ROWS, &5).await.unwrap();
        assert_eq!(one, Some(1005));
        let many = snapshot.get_many_async(&ROWS, &[2, 9_999]).await.unwrap();
        assert_eq!(many, [Some(1002), None]);
        let by = snapshot.get_by_async(&BY_VALUE, &1100).await.unwrap();
        assert_eq!(by, Some((100, 1100)));
        assert_eq!(snapshot.get_by_async(&BY_VALUE, &7).await.unwrap(), None);
        // More than a task does at once, so it yields in between.
        let sum = snapshot.range_async(&ROWS, ..).collect().await.unwrap();
        assert_eq!(sum.iter().map(|(key, value)| value - key).max(), Some(1000));
        let last = snapshot.range_by_async(&BY_VALUE, ..).reversed().first();
        assert_eq!(last.await.unwrap(), Some((3_999, 2_999, 3_999)));
        drop(clone);
        snapshot.end_async().await.unwrap();
        assert!(db.snapshots().is_empty());

        let now = db.view_async(|now| async move { now.get_async(&ROWS, &5).await });
        assert_eq!(now.await.unwrap(), Some(7));
        assert!(db.snapshots().is_empty());
    });
}

/// A read that is dropped gives its context back; one that is forgotten does not keep the snapshot.
#[test]
fn dropped_and_forgotten_reads_end_with_their_snapshot() {
    let db = with_rows(Options::tiny(), 3_000);
    let mut context = Context::from_waker(Waker::noop());
    for forgets in [false, true] {
        let snapshot = db.snapshot().unwrap();
        change_all(&db, 3_000, u64::from(forgets));
        let mut scan = Box::pin(snapshot.range_async(&ROWS, ..).count());
        assert!(scan.as_mut().poll(&mut context).is_pending(), "it yields");
        match forgets {
            true => std::mem::forget(scan),
            false => drop(scan),
        }
        // The context of the snapshot is free again, or another one reads in its place.
        assert_eq!(snapshot.range(&ROWS, ..).unwrap().count().unwrap(), 3_000);
        let before = if forgets { 0 } else { 1005 };
        assert_eq!(snapshot.get(&ROWS, &5).unwrap(), Some(before));
        snapshot.end().unwrap();
        assert!(db.snapshots().is_empty(), "forgets: {forgets}");
    }
    within_seconds("versions are freed", || db.version_stats().bytes == 0);
}

/// A handle that ends beside clones leaves the snapshot to them.
#[test]
fn a_snapshot_ends_with_its_last_handle() {
    let db = with_rows(Options::tiny(), 10);
    let snapshot = db.snapshot().unwrap();
    let [first, last] = [snapshot.clone(), snapshot.clone()];
    change_all(&db, 10, 1);
    block_on(snapshot.end_async()).unwrap();
    first.end().unwrap();
    assert_eq!(db.snapshots().len(), 1);
    assert_eq!(last.get(&ROWS, &5).unwrap(), Some(1005));
    block_on(last.end_async()).unwrap();
    assert!(db.snapshots().is_empty());
}

#[test]
fn a_level_does_not_change_to_or_from_snapshot_after_a_read() {
    let db = with_rows(Options::tiny(), 10);
    let refused = |tx: &mut foxton::Transaction, level| {
        tx.set_isolation(level).unwrap_err().code() == "level_too_late"
    };
    let mut tx = db.begin().unwrap();
    tx.set_isolation(Isolation::Snapshot).unwrap();
    tx.set_isolation(Isolation::ReadCommitted).unwrap();
    tx.put(&ROWS, &100, &1).unwrap();
    tx.set_isolation(Isolation::Snapshot).unwrap();
    assert_eq!(tx.get(&ROWS, &1).unwrap(), Some(1001));
    assert!(refused(&mut tx, Isolation::Serializable));
    tx.set_isolation(Isolation::Snapshot).unwrap();
    assert_eq!(tx.get(&ROWS, &100).unwrap(), Some(1), "it still is open");
    tx.commit().unwrap();

    type Read = fn(&mut foxton::Transaction);
    let reads: [Read; 5] = [
        |tx| {
            tx.get(&ROWS, &1).unwrap();
        },
        |tx| {
            tx.get_many(&ROWS, &[1, 2]).unwrap();
        },
        |tx| {
            tx.range(&ROWS, ..).first().unwrap();
        },
        |tx| {
            tx.get_by(&BY_VALUE, &1001).unwrap();
        },
        |tx| {
            tx.range_by(&BY_VALUE, ..).first().unwrap();
        },
    ];
    for read in reads {
        let mut tx = db.begin().unwrap();
        tx.set_isolation(Isolation::ReadCommitted).unwrap();
        read(&mut tx);
        assert!(refused(&mut tx, Isolation::Snapshot));
        tx.set_isolation(Isolation::Serializable).unwrap();
        tx.rollback();
    }
    let mut next = db.begin().unwrap();
    next.set_isolation(Isolation::Snapshot).unwrap();
}

#[test]
fn active_snapshots_have_labels_ages_and_bytes() {
    let db = with_rows(Options::tiny(), 1_000);
    let snapshot = db.snapshot().unwrap();
    snapshot.set_label("report");
    let mut tx = db.begin().unwrap();
    tx.set_isolation(Isolation::Snapshot).unwrap();
    tx.set_label("reader");
    tx.get(&ROWS, &1).unwrap();
    let mut rows = snapshot.range(&ROWS, ..).unwrap().into_iter();
    rows.next().unwrap().unwrap();
    // Its context is in use, and gets the label afterwards.
    snapshot.set_label("long report");
    drop(rows);
    change_all(&db, 1_000, 1);
    within_seconds("versions are kept", || db.snapshots()[0].bytes > 10_000);
    let active = db.snapshots();
    let labels: Vec<&str> = active.iter().map(|one| &*one.label).collect();
    assert_eq!(labels, ["long report", "reader"]);
    assert!(active[0].age < Duration::from_secs(100));

    let status = db.status().versions;
    assert_eq!((status.active, status.limit), (2, 1 << 30));
    assert!(status.bytes > 10_000);
    assert_eq!(status.snapshots[0].lsn, snapshot.lsn().bytes());
    assert_eq!(status.snapshots[1].label, "reader");
    assert_eq!(db.stats().versions.active, 2);
}

#[test]
fn a_snapshot_that_nobody_reads_is_ended_and_one_that_is_read_is_not() {
    let mut options = Options::tiny();
    options.idle_timeout = Some(Duration::from_secs(1));
    let db = with_rows(options, 100);
    let (forgotten, read) = (db.snapshot().unwrap(), db.snapshot().unwrap());
    let mut rows = read.range(&ROWS, ..).unwrap().into_iter();
    rows.next().unwrap().unwrap();
    change_all(&db, 100, 1);
    within_seconds("the other is ended", || db.snapshots().len() == 1);
    thread::sleep(Duration::from_millis(1_500));
    assert_eq!(rows.next().unwrap().unwrap(), (1, 1001));
    drop(rows);
    assert_eq!(read.get(&ROWS, &5).unwrap(), Some(1005));
    for _ in 0..2 {
        let refused = forgotten.get(&ROWS, &5).unwrap_err();
        assert_eq!(refused.code(), "ended_idle");
        assert!(!refused.is_retryable());
    }
    read.end().unwrap();
    forgotten.end().unwrap();
    within_seconds("versions are freed", || db.version_stats().bytes == 0);
    // Those that end by themselves are not in the way of others in their places.
    for _ in 0..20 {
        let snapshot = db.snapshot().unwrap();
        assert_eq!(snapshot.get(&ROWS, &5).unwrap(), Some(1));
        snapshot.end().unwrap();
    }
}

#[test]
fn the_program_is_warned_before_a_snapshot_is_ended() {
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let (heard, mut options) = (warnings.clone(), Options::tiny());
    options.version_bytes = 400_000;
    options.version_warning = Some(VersionCall::new(move |warning| {
        heard.lock().unwrap().push(warning.clone());
    }));
    let db = with_rows(options, 5_000);
    let snapshot = db.snapshot().unwrap();
    snapshot.set_label("greedy");
    let change = |keys: std::ops::Range<u64>| {
        for first in keys.step_by(500) {
            db.run(|tx| (first..first + 500).try_for_each(|key| tx.put(&ROWS, &key, &1)))
                .unwrap();
        }
    };
    let count = || warnings.lock().unwrap().len();
    // About 200 bytes for each row: the row, its entry, and what they are kept by.
    change(0..1_500);
    within_seconds("more than a half is kept", || {
        let kept = db.version_stats().bytes;
        assert!(kept < 400_000, "{kept} bytes");
        kept > 200_000
    });
    within_seconds("it is warned", || count() == 1);
    assert_eq!(snapshot.get(&ROWS, &5).unwrap(), Some(1005));
    change(1_500..5_000);
    within_seconds("it is ended", || db.version_stats().ended == 1);
    assert_eq!(
        snapshot.get(&ROWS, &5).unwrap_err().code(),
        "snapshot_ended"
    );
    let warnings = warnings.lock().unwrap();
    let (first, last) = (&warnings[0], &warnings[1]);
    assert_eq!(warnings.len(), 2);
    assert!(!first.is_ending && last.is_ending);
    assert!(first.bytes > 200_000 && last.bytes > 400_000 && last.limit == 400_000);
    assert_eq!(
        (first.snapshot.lsn, &*last.snapshot.label),
        (snapshot.lsn(), "greedy")
    );
}
