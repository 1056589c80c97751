//! Forked children: each call is refused with `forked_child`, and nothing of the parent is touched.
//!
//! A program of its own, without the test harness, so that the parent has no threads but its own.
//! The parent prepares handles of every kind, often while its threads hold whatever they hold, and
//! forks. The child uses and drops them all and reports through a pipe. Then the parent
//! continues, and compares the files of the directory.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{self, File};
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use foxton::{
    AsyncTransaction, CancelToken, Database, Durability, Error, Index, Isolation, Lock,
    LockManagerKind, LockWait, Observe, Options, Table, TableLock,
};
use foxton_log::device::file::FileDevice;
use foxton_log::device::{Device, LockError};
use foxton_log::{Log, LogError, LogOptions, LogWait, RecordView};
use foxton_sync::worker::Workers;

const ROWS: Table<u64, u64> = Table::new("rows");
const BY_VALUE: Index<u64, u64, u64> =
    Index::new("by_value", &ROWS, |_, value, keys| keys.add(value));

/// A child that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(120);

/// How a child is made.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fork {
    Library,
    /// The system call alone, which runs no handlers. The child must not allocate, because another
    /// thread may have had the allocator's lock.
    Bare,
}

fn fork(how: Fork) -> libc::pid_t {
    match how {
        // SAFETY: the child uses what this test is about, and ends by `_exit`.
        Fork::Library => unsafe { libc::fork() },
        // SAFETY: as above. The child gets its own stack and memory, as from `fork`.
        Fork::Bare => unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as _ },
    }
}

/// Reports of a child to its parent: a line for each failure, and one at the end.
struct Report(File);

impl Report {
    fn failed(&mut self, what: impl Debug) {
        writeln!(self.0, "{what:?}").unwrap();
    }

    fn refused<T>(&mut self, call: &str, result: Result<T, Error>) {
        match result {
            Ok(_) => self.failed((call, "was not refused")),
            Err(error) if error.code() == "forked_child" => {}
            Err(error) => self.failed((call, error)),
        }
    }

    fn log_refused<T>(&mut self, call: &str, result: Result<T, LogError>) {
        if !matches!(result, Err(LogError::Forked)) {
            self.failed((call, result.err()));
        }
    }

    fn future<T>(&mut self, call: &str, future: impl Future<Output = Result<T, Error>>) {
        match poll(pin!(future)) {
            Poll::Ready(result) => self.refused(call, result),
            Poll::Pending => self.failed((call, "waits")),
        }
    }

    fn equal<T: PartialEq + Debug>(&mut self, call: &str, got: T, expected: T) {
        if got != expected {
            self.failed((call, got, expected));
        }
    }
}

fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a future once, and returns it if it waits.
fn begun<'t>(future: impl Future<Output = Result<(), Error>> + 't) -> Option<Waiting<'t>> {
    let mut future: Waiting<'_> = Box::pin(future);
    poll(future.as_mut()).is_pending().then_some(future)
}

fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: there is space for both descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: both were just made and have no other owner.
    ends.map(|end| unsafe { File::from_raw_fd(end) }).into()
}

/// Forks, runs `child` with `things` there and `parent` with them here, and requires that the child
/// reports no failure in time.
fn forks<T, R>(
    how: Fork,
    things: T,
    child: impl FnOnce(T, &mut Report),
    parent: impl FnOnce(T) -> R,
) -> R {
    let (mut reads, writes) = pipe();
    let pid = fork(how);
    assert!(pid >= 0, "there can be a child");
    if pid == 0 {
        let mut report = Report(writes);
        let ran = catch_unwind(AssertUnwindSafe(|| child(things, &mut report)));
        if ran.is_err() {
            report.failed("it panicked");
        }
        let _ = writeln!(report.0, "done");
        // SAFETY: it ends the child without running anything of the parent's.
        unsafe { libc::_exit(0) };
    }
    drop(writes);
    let result = parent(things);
    let begun = Instant::now();
    let mut said = Vec::new();
    loop {
        let mut ready = libc::pollfd {
            fd: reads.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: there is one descriptor.
        let count = unsafe { libc::poll(&mut ready, 1, 1000) };
        let mut bytes = [0; 4096];
        match count {
            0 if begun.elapsed() > DEADLINE => {
                // SAFETY: the child is ours and was not waited for.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                panic!("the child hangs after {}", String::from_utf8_lossy(&said));
            }
            0 => {}
            _ => match reads.read(&mut bytes).unwrap() {
                0 => break,
                count => said.extend_from_slice(&bytes[..count]),
            },
        }
    }
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    assert_eq!(String::from_utf8(said).unwrap(), "done\n");
    result
}

type Waiting<'t, T = ()> = Pin<Box<dyn Future<Output = Result<T, Error>> + 't>>;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("foxton-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Directory(path)
    }

    /// Every file with its bytes, without the zeros at its end. The log may reserve space
    /// meanwhile: zeros behind its end, and files.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = fs::read_dir(&self.0).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let content = |path: PathBuf| {
            // The socket has no bytes.
            let mut bytes = fs::read(&path).unwrap_or_default();
            let end = bytes.iter().rposition(|&byte| byte != 0);
            bytes.truncate(end.map_or(0, |last| last + 1));
            (path, bytes)
        };
        paths.map(content).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_log(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("log-"))
}

fn put(db: &Database, key: u64) -> Result<(), Error> {
    db.run(|tx| tx.put(&ROWS, &key, &key))
}

fn count(db: &Database, keys: std::ops::Range<u64>) -> u64 {
    db.run(|tx| tx.range(&ROWS, keys.clone()).count()).unwrap()
}

fn written(mut tx: AsyncTransaction, key: u64) -> AsyncTransaction {
    assert!(matches!(
        poll(pin!(tx.put(&ROWS, &key, &key))),
        Poll::Ready(Ok(()))
    ));
    tx
}

/// Two processes that write to what was one database.
fn acknowledged_commits_of_the_parent_stay_and_the_child_has_none() {
    for how in [Fork::Library, Fork::Bare] {
        for durability in [Durability::Sync, Durability::Buffered, Durability::None] {
            let directory = Directory::new("forked-both");
            let mut options = Options::default();
            options.durability = durability;
            let db = Database::open_with(&directory.0, options).unwrap();
            put(&db, 0).unwrap();
            let all = |db: &Database, from: u64| {
                let keys = from..from + 50;
                keys.filter(|&key| put(db, key).is_ok()).count()
            };
            let db = forks(
                how,
                db,
                |db, report| report.equal("commits", all(&db, 1000), 0),
                |db| {
                    assert_eq!(all(&db, 500), 50);
                    db
                },
            );
            db.close().unwrap();
            let db = Database::open(&directory.0).unwrap();
            assert_eq!((count(&db, 500..550), count(&db, 1000..1050)), (50, 0));
        }
    }
}

/// Calls everything that a program has of `db`.
fn calls_on(db: &Database, scratch: &Path, report: &mut Report) {
    report.refused("begin", db.begin());
    report.refused("begin_async", db.begin_async());
    report.refused("run", put(db, 1));
    report.future("run_async", db.run_async(async |tx| tx.commit().await));
    report.refused("session", db.session());
    report.refused("snapshot", db.snapshot());
    report.refused("view", db.view(|snapshot| snapshot.get(&ROWS, &1)));
    report.equal("snapshots", db.snapshots().len(), 0);
    report.refused("sync", db.sync());
    report.future("sync_async", db.sync_async());
    report.refused("checkpoint", db.checkpoint());
    report.refused("backup_to", db.backup_to(scratch));
    report.equal("backup", scratch.exists(), false);
    report.refused("create_index", db.create_index(&BY_VALUE));
    report.refused("drop_index", db.drop_index("by_value"));
    report.refused("check_indexes", db.check_indexes());
    report.refused("close", db.clone().close());
    report.equal("stats", db.stats().commits, 0);
    report.equal("locks", db.locks().len(), 0);
    report.equal("waits", db.waits().len(), 0);
    report.equal("transactions", db.transactions().len(), 0);
    report.equal("deadlocks", db.deadlocks().len(), 0);
    report.equal("indexes", db.indexes().len(), 0);
    report.equal("checkpoints", db.checkpoints().made, 0);
    report.equal("status", db.status().process, 0);
    let _ = (db.wait_graph(), db.accounts(), db.log_end());
    let _ = (db.options(), db.recovered(), format!("{db:?}"));
    db.verify();
}

/// Every handle and future that a program may have during a fork.
fn every_call_of_a_child_is_refused_and_dropping_there_does_nothing() {
    let managers: Vec<_> = LockManagerKind::ALL.into_iter().collect();
    let mut rounds = Vec::new();
    for round in 0..40 {
        rounds.push((
            managers[round % managers.len()],
            [Durability::Sync, Durability::Buffered][round % 2],
            [None, Some(Duration::from_secs(3600))][round / 2 % 2],
            // In memory; with other threads at work.
            (round % 5 == 0, round % 3 != 0),
        ));
    }
    for (manager, durability, idle_timeout, (in_memory, is_busy)) in rounds {
        let directory = Directory::new("forked-calls");
        let mut options = Options::tiny();
        (options.lock_manager, options.durability) = (manager, durability);
        options.idle_timeout = idle_timeout;
        options.lock_wait = Duration::from_secs(3600);
        options.dump_waits_after = Some(Duration::from_secs(3600));
        let db = if in_memory {
            Database::in_memory(options).unwrap()
        } else {
            options.observe = Observe::InDirectory;
            Database::open_with(&directory.0, options).unwrap()
        };
        (0..10).for_each(|key| put(&db, key).unwrap());

        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let threads = [0, 1].map(|part| {
            let (db, stop, acknowledged) = (db.clone(), stop.clone(), acknowledged.clone());
            thread::spawn(move || {
                while is_busy && !stop.load(Ordering::SeqCst) {
                    let next = acknowledged.load(Ordering::SeqCst);
                    match part {
                        0 => {
                            put(&db, 1_000_000 + next).unwrap();
                            acknowledged.store(next + 1, Ordering::SeqCst);
                        }
                        _ => drop((db.stats(), db.locks(), db.status(), db.session())),
                    }
                }
            })
        });

        // A transaction of each kind, open.
        let mut tx = db.begin().unwrap();
        tx.put(&ROWS, &100, &1).unwrap();
        let savepoint = tx.savepoint().unwrap();
        let to_commit = db.begin().unwrap();
        let to_commit_at = db.begin().unwrap();
        let mut async_tx = written(db.begin_async().unwrap(), 101);
        let async_commit = written(db.begin_async().unwrap(), 102);
        let never_polled = written(db.begin_async().unwrap(), 103).commit();
        let [pending_commit, dropped_commit] =
            [104, 105].map(|key| begun(written(db.begin_async().unwrap(), key).commit()));
        let token = CancelToken::new();
        let waiting = || -> Waiting<'_, Option<u64>> {
            let mut waiter = db.begin_async().unwrap();
            waiter.set_cancel_token(&token);
            let mut wait = Box::pin(async move { waiter.get(&ROWS, &100).await });
            assert!(poll(wait.as_mut()).is_pending());
            wait
        };
        let (wait, dropped_wait) = (waiting(), waiting());
        let syncs = begun(db.sync_async());
        let mut session = db.session().unwrap();
        session.lock_advisory(1, Lock::Exclusive).unwrap();
        let mut busy_session = db.session().unwrap();
        let session_tx = busy_session.begin().unwrap();
        let mut range_tx = db.begin().unwrap();
        let mut rows = range_tx.range(&ROWS, ..10).into_iter();
        assert!(rows.next().is_some());
        let mut unread_tx = db.begin().unwrap();
        let unread = unread_tx.range(&ROWS, ..10);
        let before = (!is_busy && !in_memory).then(|| {
            // The commits that were begun above are written.
            db.sync().unwrap();
            directory.files()
        });

        let things = (
            (tx, savepoint, to_commit, to_commit_at),
            (&mut async_tx, async_commit, never_polled, pending_commit),
            (dropped_commit, wait, dropped_wait, syncs),
            (session, busy_session, session_tx),
            (rows, unread),
            (&token, db.clone()),
        );
        let scratch = Directory::new("forked-scratch");
        let things = forks(
            Fork::Library,
            things,
            |things, report| {
                let (threaded, tasks, futures, sessions, ranges, (token, db)) = things;
                calls_on(&db, &scratch.0, report);
                let (mut tx, savepoint, to_commit, to_commit_at) = threaded;
                report.refused("get", tx.get(&ROWS, &1));
                report.refused("get_for_update", tx.get_for_update(&ROWS, &1));
                report.refused("get_many", tx.get_many(&ROWS, &[1, 2]));
                report.refused("get_by", tx.get_by(&BY_VALUE, &1));
                report.refused("get_with", tx.get_with(&ROWS, &1, |_| ()));
                report.refused("put", tx.put(&ROWS, &1, &1));
                report.refused("insert", tx.insert(&ROWS, &99, &1));
                report.refused("delete", tx.delete(&ROWS, &1));
                report.refused("count", tx.range(&ROWS, ..).count());
                report.refused("all_by", tx.all_by(&BY_VALUE, &1).collect());
                report.refused("savepoint", tx.savepoint());
                report.refused("rollback_to", tx.rollback_to(&savepoint));
                report.refused("release", tx.release_savepoint(&savepoint));
                report.refused("advisory", tx.lock_advisory(7, Lock::Shared));
                let (lock, wait) = (TableLock::Shared, LockWait::Default);
                report.refused("lock_table", tx.lock_table(&ROWS, lock, wait));
                tx.set_label("child");
                tx.set_durability(Durability::None);
                let level = Isolation::ReadCommitted;
                report.refused("set_isolation", tx.set_isolation(level));
                tx.set_cancel_token(token);
                report.equal("debug", format!("{tx:?}").is_empty(), false);
                report.refused("commit", to_commit.commit());
                report.refused("commit_at", to_commit_at.commit_at());
                let (async_tx, async_commit, never_polled, pending_commit) = tasks;
                report.future("async get", async_tx.get(&ROWS, &1));
                report.future("async put", async_tx.put(&ROWS, &1, &1));
                report.future("async count", async_tx.range(&ROWS, ..).count());
                report.future("async commit", async_commit.commit());
                report.future("late commit", never_polled);
                if let Some(commit) = pending_commit {
                    report.future("pending commit", commit);
                }
                let (dropped_commit, wait, dropped_wait, syncs) = futures;
                drop(dropped_commit);
                report.future("wait", wait);
                drop(dropped_wait);
                if let Some(syncs) = syncs {
                    report.future("pending sync", syncs);
                }
                let (mut session, mut busy_session, session_tx) = sessions;
                report.refused("session lock", session.lock_advisory(2, Lock::Shared));
                let lock = session.lock_advisory_async(2, Lock::Shared);
                report.future("session async lock", lock);
                report.refused("unlock", session.unlock_advisory(1));
                report.refused("unlock_all", session.unlock_all());
                report.refused("label", session.set_label("child"));
                report.refused("session begin", session.begin());
                report.refused("session run", session.run(|tx| tx.put(&ROWS, &1, &1)));
                report.refused("busy session", busy_session.begin_async());
                report.refused("session commit", session_tx.commit());
                drop((session, busy_session));
                let (mut rows, unread) = ranges;
                match rows.next() {
                    Some(row) => report.refused("next row", row),
                    None => report.failed("no row"),
                }
                report.refused("range", unread.collect());
                token.cancel();
                tx.rollback();
                drop(db);
            },
            |things| things,
        );
        if let Some(before) = before {
            let mut after = directory.files();
            after.retain(|path, _| before.contains_key(path) || !is_log(path));
            assert!(before == after, "a child changed a file");
        }
        assert!(!token.is_cancelled());
        stop.store(true, Ordering::SeqCst);
        for thread in threads {
            thread.join().unwrap();
        }
        // Nothing was disturbed here.
        let (threaded, tasks, futures, sessions, ranges, (_token, other)) = { things };
        let (mut tx, savepoint, to_commit, to_commit_at) = { threaded };
        let (_, async_commit, never_polled, pending_commit) = { tasks };
        let (dropped_commit, wait, dropped_wait, syncs) = { futures };
        drop((
            to_commit_at,
            dropped_commit,
            dropped_wait,
            sessions,
            ranges,
            other,
        ));
        tx.put(&ROWS, &110, &1).unwrap();
        tx.rollback_to(&savepoint).unwrap();
        tx.commit().unwrap();
        to_commit.commit().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        runtime.block_on(async_commit.commit()).unwrap();
        runtime.block_on(never_polled).unwrap();
        if let Some(commit) = pending_commit {
            runtime.block_on(commit).unwrap();
        }
        drop(syncs);
        assert_eq!(runtime.block_on(wait).unwrap(), Some(1));
        drop((async_tx, range_tx, unread_tx));
        if in_memory {
            continue;
        }
        db.close().map_err(|error| error.to_string()).unwrap();
        let db = Database::open(&directory.0).unwrap();
        assert_eq!(count(&db, 0..10), 10);
        assert_eq!(count(&db, 100..110), 5, "100 and 102 to 105");
        let acknowledged = acknowledged.load(Ordering::SeqCst);
        assert_eq!(count(&db, 1_000_000..u64::MAX), acknowledged);
    }
}

fn the_log_and_its_files_refuse_a_child() {
    let directory = Directory::new("forked-log");
    let device = Arc::new(FileDevice::create(&directory.0).unwrap());
    let worker = Workers::new().worker();
    let visit = &mut |_: RecordView<'_>| Ok::<_, std::convert::Infallible>(());
    let (log, _) = Log::open(device.clone(), LogOptions::tiny(), [1; 16], visit).unwrap();
    let end = log.insert(&worker, 1, &[b"parent"]).unwrap();
    let file = device.create("file").unwrap();
    file.write_at(b"parent", 0).unwrap();
    let mut pending = LogWait::default();
    let context = &mut Context::from_waker(Waker::noop());
    let _ = log.poll_durable(&worker, &mut pending, end, context);
    let child = |(log, worker, mut pending, device, file): (Log, _, _, Arc<FileDevice>, _),
                 report: &mut Report| {
        let file: Arc<dyn foxton_log::device::DeviceFile> = file;
        report.log_refused("insert", log.insert(&worker, 1, &[b"child"]));
        log.flush_to(&worker, end.plus(100));
        report.log_refused("wait_durable", log.wait_durable(&worker, end.plus(1)));
        report.log_refused("wait_written", log.wait_written(&worker, end.plus(1)));
        report.log_refused("try_written", log.try_written(&worker, end.plus(1)));
        let context = &mut Context::from_waker(Waker::noop());
        match log.poll_durable(&worker, &mut pending, end, context) {
            Poll::Ready(polled) => report.log_refused("poll_durable", polled),
            Poll::Pending => report.failed("poll_durable"),
        }
        report.log_refused("check", log.check());
        report.log_refused("close", log.close(&worker));
        report.equal("stats", log.stats(&worker).records, 0);
        report.equal(
            "lock",
            matches!(device.lock(), Err(LockError::Forked)),
            true,
        );
        let calls = [
            ("create", device.create("new").map(drop)),
            ("open", device.open("file").map(drop)),
            ("list", device.list().map(drop)),
            ("rename", device.rename("file", "other")),
            ("remove", device.remove("file")),
            ("sync_dir", device.sync_dir()),
            ("read_at", file.read_at(&mut [0; 4], 0).map(drop)),
            ("write_at", file.write_at(b"child", 0)),
            ("sync", file.sync()),
            ("set_len", file.set_len(0)),
            ("len", file.len().map(drop)),
            ("allocate", file.allocate(100)),
        ];
        for (call, result) in calls {
            let text = result.err().map(|error| error.to_string());
            let is_refused = text.is_some_and(|text| text.contains("forked child"));
            report.equal(call, is_refused, true);
        }
        drop((log, worker, pending, device, file));
    };
    let things = (log, worker, pending, device, file);
    let (log, worker, _, device, file) = forks(Fork::Library, things, child, |things| things);
    log.wait_durable(&worker, end).unwrap();
    let mut bytes = [0; 6];
    file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"parent");
    let names = device.list().unwrap();
    let has = |name| names.iter().any(|there| there == name);
    assert_eq!(
        [has("file"), has("new"), has("other")],
        [true, false, false]
    );
    // The drop of the child's device did not unlock the directory.
    let other = FileDevice::open(&directory.0).unwrap();
    assert!(matches!(other.lock(), Err(LockError::Held { .. })));
    log.close(&worker).unwrap();
}

/// Databases that a child opens for itself work, also when threads of the parent were at work.
fn a_child_has_databases_of_its_own() {
    let directory = Directory::new("forked-own");
    let (others, own) = (directory.0.join("parent"), directory.0.join("child"));
    fs::create_dir(&directory.0).unwrap();
    let db = Database::open(&others).unwrap();
    put(&db, 1).unwrap();
    let (waits, says) = pipe();
    let (parent_waits, child_says) = pipe();
    type Ends = (File, File);
    let child = |(db, parents, childs): (Database, Ends, Ends), report: &mut Report| {
        let (mut waits, mut says) = childs;
        drop(parents);
        let taken = Database::open(&others).map_err(|error| error.code());
        report.equal("taken", taken.err(), Some("in_use"));
        says.write_all(b".").unwrap();
        for round in 1..4 {
            let db = Database::open(&own).unwrap();
            let token = CancelToken::new();
            let put = db.run(|tx| {
                tx.set_cancel_token(&token);
                tx.put(&ROWS, &round, &1)
            });
            put.unwrap();
            report.equal("rows", count(&db, 0..10), round);
            db.close().unwrap();
        }
        // A child of the child.
        let inner = Database::open(&own).unwrap();
        let grandchild = |(outer, inner): (&Database, &Database), report: &mut Report| {
            report.refused("of the grandparent", put(outer, 7));
            report.refused("of the parent", put(inner, 7));
            put(&Database::in_memory(Options::tiny()).unwrap(), 7).unwrap();
        };
        forks(Fork::Library, (&db, &inner), grandchild, |_| ());
        drop(inner);
        // The parent closes meanwhile.
        let _ = waits.read(&mut [0]).unwrap();
        let again = Database::open(&others).unwrap();
        report.equal("rows of the parent", count(&again, 0..10), 2);
        put(&again, 3).unwrap();
        report.refused("inherited", put(&db, 4));
    };
    forks(
        Fork::Library,
        (db, (parent_waits, says), (waits, child_says)),
        child,
        |(db, (mut waits, mut says), childs)| {
            drop(childs);
            put(&db, 2).unwrap();
            // The child has found the database taken.
            waits.read_exact(&mut [0]).unwrap();
            db.close().unwrap();
            says.write_all(b".").unwrap();
        },
    );
    let db = Database::open(&others).unwrap();
    assert_eq!(count(&db, 0..10), 3);
}

fn programs_can_be_run_meanwhile() {
    let db = Database::in_memory(Options::tiny()).unwrap();
    for key in 0..20 {
        assert!(Command::new("true").status().unwrap().success());
        put(&db, key).unwrap();
    }
}

/// Number of threads and of descriptors of this process.
fn threads_and_descriptors() -> (usize, usize) {
    let count = |of: &str| fs::read_dir(of).map_or(0, Iterator::count);
    (count("/proc/self/task"), count("/proc/self/fd"))
}

/// Here, because other tests in one process have threads of their own.
fn nothing_of_a_closed_database_stays_in_the_process() {
    let directory = Directory::new("forked-closed");
    let before = threads_and_descriptors();
    for round in 0..20 {
        let mut options = Options::tiny();
        options.observe = Observe::InDirectory;
        options.idle_timeout = Some(Duration::from_secs(3600));
        let db = Database::open_with(&directory.0, options).unwrap();
        let mut commit = Box::pin(written(db.begin_async().unwrap(), round).commit());
        let _ = poll(commit.as_mut());
        drop(db);
        drop(commit);
        // The system may count a thread for a moment after it was joined.
        let begun = Instant::now();
        while threads_and_descriptors() != before {
            assert!(
                begun.elapsed() < DEADLINE,
                "{:?}",
                threads_and_descriptors()
            );
            thread::yield_now();
        }
    }
}

fn main() {
    let tests: [(&str, fn()); 6] = [
        ("closed", nothing_of_a_closed_database_stays_in_the_process),
        (
            "both",
            acknowledged_commits_of_the_parent_stay_and_the_child_has_none,
        ),
        ("log", the_log_and_its_files_refuse_a_child),
        ("own", a_child_has_databases_of_its_own),
        ("run", programs_can_be_run_meanwhile),
        (
            "calls",
            every_call_of_a_child_is_refused_and_dropping_there_does_nothing,
        ),
    ];
    // A list of tests is not printed, and a filter selects by name.
    let filter = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    for (name, test) in tests {
        if filter.as_ref().is_none_or(|filter| name.contains(filter)) {
            test();
            println!("test {name} ... ok");
        }
    }
}
