//! Closing: once the last handle is dropped, or `close` has returned, the directory is free.
//!
//! The background thread may still have to finish commits whose future was dropped. So each test
//! drops handles of some kind, the last of them in some place, and opens the directory again at
//! once. A slow device makes the background thread late.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::scratch::Directory;
use foxton::options::DumpTo;
use foxton::{AsyncTransaction, Database, Durability, LockManagerKind, Options, Table};
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::file::FileDevice;
use foxton_log::device::{Device, DeviceFile, FileLock, FileLockMode, LockError};

const ROWS: Table<u64, u64> = Table::new("rows");

/// A directory whose syncs are slow, so that no commit is durable soon.
#[derive(Debug)]
struct Slow(FileDevice);

#[derive(Debug)]
struct SlowFile(Arc<dyn DeviceFile>);

const SYNC_TAKES: Duration = Duration::from_millis(3);

impl Device for Slow {
    fn lock(&self) -> Result<(), LockError> {
        self.0.lock()
    }

    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        self.0.try_lock_file(name, mode)
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(SlowFile(self.0.create(name)?)))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(SlowFile(self.0.open(name)?)))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.0.sync_dir()
    }
}

impl DeviceFile for SlowFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        thread::sleep(SYNC_TAKES / 3);
        self.0.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        thread::sleep(SYNC_TAKES);
        self.0.sync()
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.0.allocate(bytes)
    }
}

fn options(durability: Durability) -> Options {
    let mut options = Options::tiny();
    options.durability = durability;
    options
}

fn open(directory: &Directory, options: Options) -> Database {
    let device = Slow(FileDevice::create(&directory.0).unwrap());
    Database::open_on(Arc::new(device), options).unwrap()
}

/// The directory is free now: no second attempt.
fn is_free(directory: &Directory) {
    let device = FileDevice::open(&directory.0).unwrap();
    device.lock().expect("the database is closed");
}

fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A transaction that has written `key`.
fn written(mut tx: AsyncTransaction, key: u64) -> AsyncTransaction {
    assert!(poll(pin!(tx.put(&ROWS, &key, &key))).is_ready());
    tx
}

/// Commits that were dropped before they were durable.
static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// Begins a commit and drops its future. On a busy machine the commit may be durable by then.
fn drop_commit(tx: AsyncTransaction) {
    let mut commit = Box::pin(tx.commit());
    let dropped = poll(commit.as_mut()).is_pending();
    DROPPED.fetch_add(usize::from(dropped), Ordering::Relaxed);
}

#[test]
fn a_dropped_commit_is_finished_before_the_last_drop_returns() {
    let directory = Directory::new("closing-commit");
    let mut keys = 0;
    for round in 0..60 {
        let durability = [Durability::Sync, Durability::Buffered][round % 2];
        let managers: Vec<_> = LockManagerKind::ALL.into_iter().collect();
        let mut options = options(durability);
        options.lock_manager = managers[round / 2 % managers.len()];
        let idle = Duration::from_secs(3600);
        options.idle_timeout = [None, Some(idle)][round / 3 % 2];
        let db = open(&directory, options);
        let stays = db.run(|tx| tx.range(&ROWS, ..).count()).unwrap();
        assert_eq!(stays, keys, "each dropped commit had reached the log");
        keys += 2;
        let mut session = db.session().unwrap();
        let tx = written(db.begin_async().unwrap(), keys - 2);
        let of_session = written(session.begin_async().unwrap(), keys - 1);
        // Each kind of handle is the last one.
        match round % 5 {
            0 => {
                drop_commit(tx);
                drop_commit(of_session);
                drop(session);
                drop(db);
            }
            1 => {
                drop(db);
                drop(session);
                drop_commit(tx);
                drop_commit(of_session);
            }
            2 => {
                drop_commit(of_session);
                drop_commit(tx);
                drop(db);
                drop(session);
            }
            3 => {
                let rolled_back = written(db.begin_async().unwrap(), u64::MAX);
                drop(db);
                drop_commit(of_session);
                drop_commit(tx);
                drop(session);
                drop(rolled_back);
            }
            _ => {
                drop_commit(tx);
                drop_commit(of_session);
                drop(session);
                db.close().unwrap();
            }
        }
        is_free(&directory);
    }
    assert_ne!(
        DROPPED.load(Ordering::Relaxed),
        0,
        "no commit was dropped early"
    );
}

#[test]
fn nothing_is_left_after_a_runtime_and_the_database_are_dropped() {
    let directory = Directory::new("closing-runtime");
    for round in 0..40 {
        let db = open(&directory, options(Durability::Sync));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .unwrap();
        for task in 0..20 {
            let db = db.clone();
            runtime.spawn(async move {
                loop {
                    let put = db.run_async(|mut tx| async move {
                        tx.put(&ROWS, &(task % 7), &task).await?;
                        tx.commit().await
                    });
                    let _ = tokio::time::timeout(Duration::from_micros(task * 300), put).await;
                }
            });
        }
        thread::sleep(Duration::from_micros(round * 97));
        if round % 2 == 0 {
            drop(runtime);
            drop(db);
        } else {
            drop(db);
            drop(runtime);
        }
        is_free(&directory);
    }
}

#[test]
fn threads_that_drop_their_handles_at_once_leave_a_free_directory() {
    let directory = Directory::new("closing-threads");
    for _ in 0..30 {
        let db = open(&directory, options(Durability::Sync));
        thread::scope(|scope| {
            for key in 0..4 {
                let db = db.clone();
                scope.spawn(move || match key {
                    0 => drop(written(db.begin_async().unwrap(), key)),
                    1 => drop(db.session().unwrap()),
                    _ => drop_commit(written(db.begin_async().unwrap(), key)),
                });
            }
            drop(db);
        });
        is_free(&directory);
    }
}

#[test]
fn close_refuses_while_there_are_other_handles_and_they_stay_usable() {
    let directory = Directory::new("closing-refused");
    let open = || Database::open_with(&directory.0, options(Durability::Sync)).unwrap();
    let refused = |db: Database| {
        let refused = db.close().unwrap_err();
        assert_eq!(refused.code(), "still_open", "{refused}");
        assert!(!refused.is_retryable());
    };
    let db = open();
    let other = db.clone();
    refused(db);
    other.run(|tx| tx.put(&ROWS, &1, &1)).unwrap();
    let mut tx = other.begin().unwrap();
    refused(other);
    tx.put(&ROWS, &2, &2).unwrap();
    tx.commit().unwrap();
    is_free(&directory);
    let db = open();
    let mut session = db.session().unwrap();
    refused(db);
    assert_eq!(session.run(|tx| tx.range(&ROWS, ..).count()).unwrap(), 2);
    drop(session);
    is_free(&directory);
    let db = open();
    let commit = loop {
        let mut commit = Box::pin(written(db.begin_async().unwrap(), 3).commit());
        if poll(commit.as_mut()).is_pending() {
            break commit;
        }
    };
    refused(db);
    drop(commit);
    is_free(&directory);
    let db = open();
    assert_eq!(db.run(|tx| tx.range(&ROWS, ..).count()).unwrap(), 3);
    db.close().unwrap();
    is_free(&directory);
    Database::in_memory(Options::tiny())
        .unwrap()
        .close()
        .unwrap();
}

#[test]
fn close_says_that_the_last_commits_may_be_lost() {
    let device = FaultDevice::new();
    let mut options = options(Durability::None);
    options.sync_interval = Duration::MAX;
    let db = Database::open_on(Arc::new(device.clone()), options).unwrap();
    db.run(|tx| tx.put(&ROWS, &1, &1)).unwrap();
    device.fail(Call::Sync, 1, Times::Once, io::ErrorKind::Other);
    let failed = db.close().unwrap_err();
    assert_eq!(failed.code(), "poisoned", "{failed}");
    assert!(failed.to_string().contains("sync"), "{failed}");
    device.heal();
    Database::open_on(Arc::new(device), Options::tiny()).unwrap();
}

#[test]
fn an_open_directory_is_refused_with_advice_that_can_be_followed() {
    let directory = Directory::new("closing-advice");
    let db = Database::open_with(&directory.0, Options::tiny()).unwrap();
    let refused = Database::open(&directory.0).unwrap_err();
    assert_eq!(refused.code(), "in_use");
    let text = refused.to_string();
    assert!(text.contains("in this process"), "{text}");
    assert!(text.contains("clone"), "{text}");
    assert!(text.contains("drop its last"), "{text}");
    drop(db);
    drop(Database::open(&directory.0).unwrap());
}

/// A task that only its wakers keep, as in a small executor that has gone.
struct Task {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    woken: Arc<AtomicBool>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        // Here the task is dropped with everything it has, unless others keep it.
    }
}

/// Polls a task once and forgets it. Its waker drops it.
fn leave_to_wakers(future: impl Future<Output = ()> + Send + 'static) -> Arc<AtomicBool> {
    let woken = Arc::new(AtomicBool::new(false));
    let task = Arc::new(Task {
        future: Mutex::new(None),
        woken: woken.clone(),
    });
    let waker = Waker::from(task.clone());
    let mut future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(future);
    let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
    match polled {
        Poll::Pending => *task.future.lock().unwrap() = Some(future),
        // On a busy machine the wait is over by now, and so is the task.
        Poll::Ready(()) => woken.store(true, Ordering::SeqCst),
    }
    woken
}

/// Waits until `done`, which happens in another thread.
fn await_that(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never closes");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_last_handle_may_be_dropped_on_a_thread_of_the_database() {
    let directory = Directory::new("closing-waker");
    let is_closed = || FileDevice::open(&directory.0).unwrap().lock().is_ok();
    // The thread that syncs the log wakes the commit.
    for durability in [Durability::Sync, Durability::Buffered] {
        for _ in 0..10 {
            let db = open(&directory, options(durability));
            let woken = leave_to_wakers(async move {
                let mut tx = db.begin_async().unwrap();
                tx.put(&ROWS, &1, &1).await.unwrap();
                tx.commit().await.unwrap();
                drop(db);
            });
            await_that(|| woken.load(Ordering::SeqCst));
            await_that(is_closed);
        }
    }
    // The background thread ends the wait for a lock.
    for _ in 0..10 {
        let mut options = options(Durability::Sync);
        options.lock_wait = Duration::from_millis(1);
        let db = open(&directory, options);
        let holder = written(db.begin_async().unwrap(), 1);
        let woken = leave_to_wakers(async move {
            let mut tx = db.begin_async().unwrap();
            let _ = tx.get(&ROWS, &1).await;
            drop((db, holder));
        });
        await_that(|| woken.load(Ordering::SeqCst));
        await_that(is_closed);
    }
    // The thread that ends idle transactions wakes the waiter.
    let mut options = options(Durability::Sync);
    options.idle_timeout = Some(Duration::from_millis(1));
    let db = open(&directory, options);
    let holder = written(db.begin_async().unwrap(), 1);
    let woken = leave_to_wakers(async move {
        let mut tx = db.begin_async().unwrap();
        let _ = tx.get(&ROWS, &1).await;
        drop((db, holder));
    });
    await_that(|| woken.load(Ordering::SeqCst));
    await_that(is_closed);
}

#[test]
fn a_callback_may_drop_the_last_handle_and_open_the_directory_again() {
    let directory = Directory::new("closing-callback");
    let mut options = options(Durability::Sync);
    options.dump_waits_after = Some(Duration::from_millis(1));
    let (gives, given) = mpsc::channel::<Database>();
    let (says, said) = mpsc::channel();
    let (given, path) = (Mutex::new(given), directory.0.clone());
    options.dump_waits_to = DumpTo::call(move |_| {
        if says.send(None).is_err() {
            return;
        }
        drop(given.lock().unwrap().recv());
        let _ = says.send(Some(Database::open(&path).map(drop)));
    });
    let db = open(&directory, options);
    let holder = written(db.begin_async().unwrap(), 1);
    let mut waiter = db.begin_async().unwrap();
    let mut wait = Box::pin(async move { waiter.get(&ROWS, &1).await });
    assert!(poll(wait.as_mut()).is_pending());
    let long = Duration::from_secs(60);
    assert!(said.recv_timeout(long).unwrap().is_none(), "it is called");
    drop((wait, holder));
    gives.send(db).unwrap();
    said.recv_timeout(long).unwrap().unwrap().unwrap();
    is_free(&directory);
}
