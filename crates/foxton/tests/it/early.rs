//! Early lock release: a transaction that has read data that is not durable is not acknowledged
//! before it is.
//!
//! The device is stopped between writing and syncing. So a commit is in the log, its locks are
//! released, and a power failure would lose it. Then other transactions read, and a task that
//! commits shows by one poll whether it waits. The tests do the same with a *buffered* commit that
//! is not written because another thread is stopped while it writes the log; the end of the process
//! would lose that commit.

use foxton::TableComponent::{self, Resident};
use foxton::device::MemoryDevice;
use foxton::{AsyncTransaction, Database, Durability, Error, Lock, Options, Table, failpoint};
use foxton_log::device::{
    disk::Damage,
    fault::{Call, FaultDevice, Times},
};
use foxton_sync::failpoint::FailpointStop;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::{io, iter};

const ROWS: Table<u64, u64> = Table::new("rows");

type Commit = Pin<Box<dyn Future<Output = foxton::Result<()>>>>;

fn poll(commit: &mut Commit) -> Poll<foxton::Result<()>> {
    commit
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

fn wait(mut commit: Commit) -> foxton::Result<()> {
    loop {
        match poll(&mut commit) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::yield_now(),
        }
    }
}

/// Runs a future that must not wait.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("it waits"),
    }
}

type Writing = JoinHandle<foxton::Result<()>>;

/// Commits the changes of `write` on a thread of its own, until its locks are released.
fn lets_go(
    db: &Database,
    reached: impl FnOnce(),
    write: impl Fn(&mut foxton::Transaction) -> foxton::Result<()> + Send + 'static,
) -> Writing {
    let released = db.failpoints().passages(&failpoint::RELEASED);
    let writing = {
        let db = db.clone();
        thread::spawn(move || db.run(write))
    };
    reached();
    while db.failpoints().passages(&failpoint::RELEASED) == released {
        thread::yield_now();
    }
    writing
}

fn buffered(
    key: u64,
    value: u64,
) -> impl Fn(&mut foxton::Transaction) -> foxton::Result<()> + Send + 'static {
    move |tx| {
        tx.set_durability(Durability::Buffered);
        tx.put(&ROWS, &key, &value)
    }
}

/// A *buffered* commit of row 9 that is stopped while it writes the log.
fn writes(db: &Database) -> (FailpointStop, Writing) {
    let stop = db.failpoints().stop(&foxton_log::failpoint::WRITE);
    let writing = {
        let db = db.clone();
        thread::spawn(move || db.run(buffered(9, 1)))
    };
    stop.reached();
    (stop, writing)
}

/// A database in which a commit has released its locks and is not durable.
struct Scene {
    device: FaultDevice,
    db: Database,
    stop: FailpointStop,
    writing: Writing,
}

impl Scene {
    /// Makes rows 1 to 9 durable, then commits `write`.
    fn new(
        write: impl Fn(&mut foxton::Transaction) -> foxton::Result<()> + Send + 'static,
    ) -> Scene {
        Scene::on(Resident, write)
    }

    /// As [`new`](Self::new), with the rows in this component. Those of paged tables are durable
    /// only once the database is closed, but commits wait as if they were in the log.
    fn on(
        component: TableComponent,
        write: impl Fn(&mut foxton::Transaction) -> foxton::Result<()> + Send + 'static,
    ) -> Scene {
        let device = FaultDevice::new();
        let mut options = Options::tiny();
        (options.component, options.page_memory) = (component, 1 << 20);
        let db = Database::open_on(Arc::new(device.clone()), options).unwrap();
        db.run(|tx| (1..10).try_for_each(|key| tx.put(&ROWS, &key, &0)))
            .unwrap();
        let stop = db.failpoints().stop(&foxton_log::failpoint::SYNC);
        let writing = lets_go(&db, || stop.reached(), write);
        Scene {
            device,
            db,
            stop,
            writing,
        }
    }

    /// Like `puts_one`, but *buffered*; a commit of another row is stopped while it writes the log.
    fn puts_one_buffered() -> Scene {
        let device = FaultDevice::new();
        let db = Database::open_on(Arc::new(device.clone()), Options::tiny()).unwrap();
        db.run(|tx| (1..10).try_for_each(|key| tx.put(&ROWS, &key, &0)))
            .unwrap();
        let (stop, first) = writes(&db);
        let second = lets_go(&db, || {}, buffered(1, 7));
        let writing = thread::spawn(move || {
            first.join().unwrap()?;
            second.join().unwrap()
        });
        Scene {
            device,
            db,
            stop,
            writing,
        }
    }

    fn puts_one() -> Scene {
        Scene::puts_one_on(Resident)
    }

    fn puts_one_on(component: TableComponent) -> Scene {
        Scene::on(component, |tx| tx.put(&ROWS, &1, &7))
    }

    /// Returns the database after a power failure at this moment.
    fn after_a_power_cut(&self) -> Database {
        let image = self.device.crash(Damage::DropAll, 0);
        Database::open_on(Arc::new(image), Options::tiny()).unwrap()
    }

    fn begin(&self, durability: Durability) -> AsyncTransaction {
        let mut tx = self.db.begin_async().unwrap();
        tx.set_durability(durability);
        tx
    }

    /// Returns whether a transaction that reads with `read` and commits like this is acknowledged
    /// while nothing is durable. In the end it is.
    fn answers(
        self,
        durability: Durability,
        read: impl AsyncFnOnce(&mut AsyncTransaction) -> foxton::Result<()>,
    ) -> bool {
        let mut tx = self.begin(durability);
        now(read(&mut tx)).unwrap();
        let mut commit: Commit = Box::pin(tx.commit());
        let answered = poll(&mut commit).is_ready();
        self.stop.release();
        if !answered {
            wait(commit).unwrap();
        }
        self.writing.join().unwrap().unwrap();
        answered
    }
}

#[test]
fn a_reader_of_data_that_is_not_durable_waits_until_it_is() {
    let scene = Scene::puts_one();
    let kept = scene.after_a_power_cut().run(|tx| tx.get(&ROWS, &1));
    assert_eq!(kept.unwrap(), Some(0), "it is not durable");
    assert!(!scene.answers(Durability::Sync, async |tx| {
        assert_eq!(tx.get(&ROWS, &1).await?, Some(7), "and it is seen");
        Ok(())
    }));
}

#[test]
fn a_reader_of_other_rows_is_acknowledged_at_once() {
    assert!(Scene::puts_one().answers(Durability::Sync, async |tx| {
        assert_eq!(tx.get(&ROWS, &2).await?, Some(0));
        assert_eq!(tx.range(&ROWS, 2..).collect().await?.len(), 8);
        Ok(())
    }));
}

#[test]
fn a_weaker_durability_waits_for_less() {
    for durability in [Durability::Buffered, Durability::None] {
        for component in TableComponent::ALL {
            let scene = Scene::puts_one_on(component);
            assert!(scene.answers(durability, async |tx| {
                assert_eq!(tx.get(&ROWS, &1).await?, Some(7));
                Ok(())
            }));
        }
    }
}

#[test]
fn every_way_to_read_counts() {
    type Read = fn(&mut AsyncTransaction) -> Pin<Box<dyn Future<Output = foxton::Result<()>> + '_>>;
    let reads: [(&str, Read); 7] = [
        ("for update", |tx| {
            Box::pin(async { tx.get_for_update(&ROWS, &1).await.map(drop) })
        }),
        ("skipping", |tx| {
            Box::pin(async {
                tx.get_locked(&ROWS, &1, Lock::Shared.skip_locked())
                    .await
                    .map(drop)
            })
        }),
        ("a short range", |tx| {
            Box::pin(async { tx.range(&ROWS, 1..=3).collect().await.map(drop) })
        }),
        ("an open range", |tx| {
            Box::pin(async { tx.range(&ROWS, ..).collect().await.map(drop) })
        }),
        ("backwards", |tx| {
            Box::pin(async { tx.range(&ROWS, ..).reversed().collect().await.map(drop) })
        }),
        ("a range past locks", |tx| {
            Box::pin(async {
                let rows = tx.range(&ROWS, ..).locked(Lock::Shared.skip_locked());
                rows.collect().await.map(drop)
            })
        }),
        ("an insert that is refused", |tx| {
            Box::pin(async {
                let refused = tx.insert(&ROWS, &1, &1).await.unwrap_err();
                assert_eq!(refused.code(), "key_exists");
                Ok(())
            })
        }),
    ];
    for (what, read) in reads {
        for component in TableComponent::ALL {
            let scene = Scene::puts_one_on(component);
            let answered = scene.answers(Durability::Sync, async |tx| read(tx).await);
            assert!(!answered, "{what}, {component}");
        }
    }
}

#[test]
fn a_reader_of_a_deleted_row_waits_too() {
    TableComponent::ALL
        .into_iter()
        .for_each(a_reader_of_a_deleted_row_waits);
}

fn a_reader_of_a_deleted_row_waits(component: TableComponent) {
    let removed = || Scene::on(component, |tx| tx.delete(&ROWS, &5).map(drop));
    assert!(!removed().answers(Durability::Sync, async |tx| {
        assert_eq!(tx.get(&ROWS, &5).await?, None);
        Ok(())
    }));
    assert!(!removed().answers(Durability::Sync, async |tx| {
        assert_eq!(tx.range(&ROWS, 4..=6).collect().await?.len(), 2);
        Ok(())
    }));
    assert!(!removed().answers(Durability::Sync, async |tx| {
        assert!(!tx.delete(&ROWS, &5).await?);
        Ok(())
    }));
}

#[test]
fn a_large_commit_is_waited_for_by_all() {
    let scene = Scene::new(|tx| (100..1_000).try_for_each(|key| tx.put(&ROWS, &key, &1)));
    assert!(!scene.answers(Durability::Sync, async |tx| {
        assert_eq!(tx.get(&ROWS, &999).await?, Some(1));
        Ok(())
    }));
}

#[test]
fn a_writer_on_top_is_not_acknowledged_before() {
    for durability in [Durability::Sync, Durability::Buffered, Durability::None] {
        let answered = Scene::puts_one().answers(durability, async |tx| {
            let before = tx.get_for_update(&ROWS, &1).await?;
            assert_eq!(before, Some(7), "nobody waits for the lock");
            tx.put(&ROWS, &1, &8).await
        });
        // The flusher writes a buffered commit, and it is stopped.
        assert_eq!(answered, durability == Durability::None, "{durability}");
    }
}

/// The sync fails after the locks were released.
#[test]
fn after_a_failed_sync_no_reader_of_lost_data_is_acknowledged() {
    let scene = Scene::puts_one();
    let mut readers: Vec<Commit> = Vec::new();
    for write in [false, true] {
        let mut tx = scene.begin(Durability::Sync);
        assert_eq!(now(tx.get_for_update(&ROWS, &1)).unwrap(), Some(7));
        if write {
            now(tx.put(&ROWS, &1, &8)).unwrap();
        }
        let mut commit: Commit = Box::pin(tx.commit());
        assert!(poll(&mut commit).is_pending());
        readers.push(commit);
    }
    let mut late = scene.begin(Durability::Sync);
    assert_eq!(now(late.get(&ROWS, &1)).unwrap(), Some(8));
    scene
        .device
        .fail(Call::Sync, 1, Times::Once, io::ErrorKind::Other);
    scene.stop.release();
    let writer: Error = scene.writing.join().unwrap().unwrap_err();
    assert_eq!(writer.code(), "poisoned");
    let all = readers
        .into_iter()
        .chain(iter::once(Box::pin(late.commit()) as Commit));
    for commit in all {
        assert_eq!(wait(commit).unwrap_err().code(), "poisoned");
    }
    assert_eq!(scene.db.begin().unwrap_err().code(), "poisoned");
    let image = scene.device.crash(Damage::KeepAll, 0);
    drop(scene.db);
    let kept = Database::open_on(Arc::new(image), Options::tiny()).unwrap();
    assert_eq!(kept.run(|tx| tx.get(&ROWS, &1)).unwrap(), Some(0));
}

#[test]
fn a_commit_whose_future_is_dropped_still_releases_its_locks() {
    let scene = Scene::puts_one();
    let mut tx = scene.begin(Durability::Sync);
    now(tx.put(&ROWS, &2, &9)).unwrap();
    let mut commit: Commit = Box::pin(tx.commit());
    assert!(poll(&mut commit).is_pending());
    drop(commit);
    assert!(!scene.answers(Durability::Sync, async |tx| {
        assert_eq!(tx.get(&ROWS, &2).await?, Some(9));
        Ok(())
    }));
}

#[test]
fn switched_off_locks_are_held_until_it_is_durable() {
    let mut options = Options::tiny();
    options.early_release = false;
    let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
    db.run(|tx| tx.put(&ROWS, &1, &0)).unwrap();
    let stop = db.failpoints().stop(&foxton_log::failpoint::SYNC);
    let writing = {
        let db = db.clone();
        thread::spawn(move || db.run(|tx| tx.put(&ROWS, &1, &7)))
    };
    stop.reached();
    let busy = db
        .begin()
        .unwrap()
        .get_locked(&ROWS, &1, Lock::Shared.nowait());
    assert_eq!(busy.unwrap_err().code(), "lock_busy");
    stop.release();
    writing.join().unwrap().unwrap();
    assert_eq!(db.run(|tx| tx.get(&ROWS, &1)).unwrap(), Some(7));
}

#[test]
fn a_reader_of_unwritten_data_waits_until_it_is_written() {
    let scene = Scene::puts_one_buffered();
    let image = scene.device.crash(Damage::KeepAll, 0);
    let kept = Database::open_on(Arc::new(image), Options::tiny()).unwrap();
    let kept = kept.run(|tx| tx.get(&ROWS, &1)).unwrap();
    assert_eq!(kept, Some(0), "the end of the process would take it");
    for durability in [Durability::Sync, Durability::Buffered, Durability::None] {
        let answered = Scene::puts_one_buffered().answers(durability, async |tx| {
            assert_eq!(tx.get(&ROWS, &1).await?, Some(7), "and it is seen");
            Ok(())
        });
        assert_eq!(answered, durability == Durability::None, "{durability}");
        assert!(Scene::puts_one_buffered().answers(durability, async |tx| {
            assert_eq!(tx.get(&ROWS, &2).await?, Some(0), "something else");
            Ok(())
        }));
    }
}

#[test]
fn a_reader_of_buffered_data_does_not_wait_for_the_disk() {
    let scene = Scene::puts_one_buffered();
    let mut tx = scene.begin(Durability::Sync);
    assert_eq!(now(tx.get(&ROWS, &1)).unwrap(), Some(7));
    let mut commit: Commit = Box::pin(tx.commit());
    assert!(poll(&mut commit).is_pending());
    let syncs = scene.db.failpoints().stop(&foxton_log::failpoint::SYNC);
    scene.stop.release();
    wait(commit).unwrap();
    scene.writing.join().unwrap().unwrap();
    let image = scene.device.crash(Damage::DropAll, 0);
    let kept = Database::open_on(Arc::new(image), Options::tiny()).unwrap();
    assert_eq!(kept.run(|tx| tx.get(&ROWS, &1)).unwrap(), Some(0));
    syncs.release();
}

/// A *buffered* commit releases its locks on top of a *sync* one, and readers still wait for the
/// latter.
#[test]
fn a_reader_of_data_on_top_of_undurable_data_waits_for_both() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let scene = Scene::puts_one();
        let (stop, first) = writes(&scene.db);
        let on_top = lets_go(&scene.db, || {}, buffered(1, 8));
        stop.release();
        first.join().unwrap().unwrap();
        on_top.join().unwrap().unwrap();
        let answered = scene.answers(durability, async |tx| {
            assert_eq!(tx.get(&ROWS, &1).await?, Some(8));
            Ok(())
        });
        assert_eq!(answered, durability == Durability::Buffered, "{durability}");
    }
}

/// A commit that deletes rows would make all readers wait, so it holds its locks until it is
/// written.
#[test]
fn a_buffered_commit_that_removes_keeps_its_locks_until_it_is_written() {
    let scene = Scene::puts_one_buffered();
    let logged = scene.db.failpoints().passages(&failpoint::LOGGED);
    let removing = {
        let db = scene.db.clone();
        thread::spawn(move || {
            db.run(|tx| {
                tx.set_durability(Durability::Buffered);
                tx.delete(&ROWS, &5).map(drop)
            })
        })
    };
    while scene.db.failpoints().passages(&failpoint::LOGGED) == logged {
        thread::yield_now();
    }
    let mut tx = scene.db.begin().unwrap();
    let busy = tx.get_locked(&ROWS, &5, Lock::Shared.nowait());
    assert_eq!(busy.unwrap_err().code(), "lock_busy");
    tx.rollback();
    scene.stop.release();
    removing.join().unwrap().unwrap();
    scene.writing.join().unwrap().unwrap();
    assert_eq!(scene.db.run(|tx| tx.get(&ROWS, &5)).unwrap(), None);
}

#[test]
fn after_a_failed_write_no_reader_of_lost_data_is_acknowledged() {
    let scene = Scene::puts_one_buffered();
    let mut readers: Vec<Commit> = Vec::new();
    for durability in [Durability::Buffered, Durability::Sync] {
        let mut tx = scene.begin(durability);
        assert_eq!(now(tx.get(&ROWS, &1)).unwrap(), Some(7));
        readers.push(Box::pin(tx.commit()));
    }
    assert!(readers.iter_mut().all(|commit| poll(commit).is_pending()));
    scene
        .device
        .fail(Call::Write, 1, Times::Once, io::ErrorKind::Other);
    scene.stop.release();
    assert_eq!(
        scene.writing.join().unwrap().unwrap_err().code(),
        "poisoned"
    );
    for commit in readers {
        assert_eq!(wait(commit).unwrap_err().code(), "poisoned");
    }
    assert_eq!(scene.db.begin().unwrap_err().code(), "poisoned");
}
