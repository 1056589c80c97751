//! Observation of a running database through its socket: its status, bad requests, slow and many
//! clients, and closing the database. And dumps of waits.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::scratch::Directory;
use foxton::observe::{SOCKET_FILE, WatchError, Watcher};
use foxton::options::DumpTo;
use foxton::status::Status;
use foxton::{Database, Observe, Options, Table};

const STOCK: Table<u64, u64> = Table::new("stock");

fn observed(place: &Path) -> Database {
    let mut options = Options::tiny();
    options.observe = Observe::InDirectory;
    Database::open_with(place, options).expect("it opens")
}

fn status(place: &Path) -> Status {
    let mut watcher = Watcher::connect(place).expect("it is observed");
    watcher.status().expect("it answers")
}

/// Returns the first status that satisfies `shows`; a shared status may be too old.
fn status_once(place: &Path, shows: impl Fn(&Status) -> bool) -> Status {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let seen = status(place);
        if shows(&seen) {
            return seen;
        }
        assert!(Instant::now() < patience, "{seen:?}");
        thread::yield_now();
    }
}

/// Makes `waiter` wait for a row that `holder` wrote, and runs `look` meanwhile.
fn with_a_wait<R>(db: &Database, look: impl FnOnce() -> R) -> R {
    let mut holder = db.begin().unwrap();
    holder.set_label("holder");
    holder.put(&STOCK, &7, &1).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut waiter = db.begin().unwrap();
            waiter.set_label("waiter");
            waiter.get(&STOCK, &7).unwrap();
        });
        while db.waits().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        let seen = look();
        holder.commit().unwrap();
        seen
    })
}

#[test]
fn holders_and_waiters_are_observed_with_labels_and_modes() {
    let directory = Directory::new("observe-seen");
    let db = observed(&directory.0);
    let seen = with_a_wait(&db, || status(&directory.0));
    assert_eq!(seen.process, std::process::id());
    assert!(seen.database.contains("observe-seen"));
    let (queue, waiter) = seen.waiters()[0];
    assert_eq!(queue.name, "stock/0x0000000000000007");
    assert_eq!(
        (&*waiter.label, &*queue.holders[0].label),
        ("waiter", "holder")
    );
    assert_eq!(waiter.behind[0].label, "holder");
    assert!(waiter.behind[0].holds && !waiter.waited.is_zero());
    // The queue with a waiter comes first, although the table's name is before the key's.
    assert_eq!(seen.queues[0].name, queue.name);
    assert!(seen.queues.iter().any(|queue| queue.name == "stock"));

    // A client that asks soon after another gets the same status. A lock's hold time is reported
    // when it ends.
    let waited = |seen: &Status| {
        let mut labels = seen.labels.iter();
        labels.any(|usage| usage.name == "waiter" && usage.holds == 1)
    };
    let after = status_once(&directory.0, waited);
    assert!(after.waiters().is_empty());
    assert_eq!(after.transactions.commits, 1);
    assert_eq!(after.hot_names[0].name, "stock/0x0000000000000007");
    assert_eq!(
        (&*after.tables[0].name, after.tables[0].waits),
        ("stock", 1)
    );
    let waiter = after.labels.iter().find(|usage| usage.name == "waiter");
    let waiter = waiter.expect("it waited");
    assert!(waiter.waited > Duration::ZERO);
}

#[test]
fn a_database_is_observed_only_if_it_opts_in() {
    let directory = Directory::new("observe-off");
    let missing = Watcher::connect(&directory.0).unwrap_err();
    assert!(matches!(missing, WatchError::Missing { .. }), "{missing}");
    let db = Database::open_with(&directory.0, Options::tiny()).unwrap();
    assert!(!directory.0.join(SOCKET_FILE).exists());
    let error = Watcher::connect(&directory.0).unwrap_err();
    assert!(matches!(error, WatchError::NotObserved { .. }), "{error}");
    assert!(
        error.to_string().contains("Observe::InDirectory"),
        "{error}"
    );
    drop(db);
}

#[test]
fn the_socket_belongs_to_its_user_and_is_removed_with_the_last_handle() {
    let directory = Directory::new("observe-mode");
    let db = observed(&directory.0);
    let path = directory.0.join(SOCKET_FILE);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let mut watcher = Watcher::connect(&directory.0).unwrap();
    watcher.status().unwrap();
    let other = db.clone();
    drop(db);
    watcher.status().unwrap();
    drop(other);
    assert!(!path.exists());
    let error = watcher.status().unwrap_err();
    assert!(matches!(error, WatchError::Gone { .. }), "{error}");
}

#[test]
fn a_transaction_that_outlives_the_handles_does_not_keep_the_socket() {
    let directory = Directory::new("observe-outlived");
    let db = observed(&directory.0);
    let tx = db.begin().unwrap();
    drop(db);
    assert!(!directory.0.join(SOCKET_FILE).exists());
    drop(tx);
    drop(observed(&directory.0));
}

#[test]
fn garbage_is_answered_with_advice_and_does_no_harm() {
    let directory = Directory::new("observe-garbage");
    let db = observed(&directory.0);
    let path = directory.0.join(SOCKET_FILE);
    let mut state = 5u64;
    for length in [1, 16, 255, 256, 257, 4_096, 100_000] {
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                (state >> 56) as u8
            })
            .chain([b'\n'])
            .collect();
        let mut stream = UnixStream::connect(&path).unwrap();
        // The server may hang up before it has read everything.
        let _ = stream.write_all(&bytes);
        let mut line = String::new();
        let read = BufReader::new(stream).read_line(&mut line);
        assert!(
            read.is_err() || line.is_empty() || line.contains("foxton 1 picture"),
            "{line}"
        );
    }
    // Half a request followed by silence, and a hang-up: neither affects other clients.
    let mut half = UnixStream::connect(&path).unwrap();
    half.write_all(b"foxton 1 pic").unwrap();
    drop(UnixStream::connect(&path).unwrap());
    assert_eq!(status(&directory.0).process, std::process::id());
    half.write_all(b"ture\nfoxton 1 picture\n").unwrap();
    let mut lines = BufReader::new(half).lines();
    for _ in 0..2 {
        let line = lines.next().unwrap().unwrap();
        assert!(line.starts_with("{\"foxton\":1,\"picture\":{"), "{line}");
    }
    drop(db);
}

#[test]
fn a_client_that_does_not_read_delays_no_other_and_is_disconnected_first() {
    let directory = Directory::new("observe-slow");
    let db = observed(&directory.0);
    // A status much larger than a socket's buffer.
    let mut tx = db.begin().unwrap();
    for key in 0..4_000 {
        tx.put(&STOCK, &key, &1).unwrap();
    }
    let path = directory.0.join(SOCKET_FILE);
    let deaf: Vec<UnixStream> = (0..100)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).unwrap();
            let _ = stream.write_all(b"foxton 1 picture\n");
            stream
        })
        .collect();
    // If the clients that do not read delayed others, these requests would not return, or would be
    // refused in the end.
    let seen = status(&directory.0);
    assert!(seen.queues.len() > 1_000);
    db.run(|tx| tx.put(&STOCK, &9_999, &1)).unwrap();
    // The first client was disconnected in favour of later ones; the last is served once it reads.
    let ends = |mut stream: &UnixStream| {
        let patience = Duration::from_secs(60);
        stream.set_read_timeout(Some(patience)).unwrap();
        let mut answer = Vec::new();
        // A client that is disconnected before its request was read sees a reset connection.
        let _ = BufReader::new(&mut stream).read_until(b'\n', &mut answer);
        answer.ends_with(b"\n")
    };
    assert!(!ends(&deaf[0]));
    assert!(ends(deaf.last().unwrap()));
    drop(tx);
}

#[test]
fn many_clients_observe_at_once_and_the_database_continues() {
    let directory = Directory::new("observe-many");
    let db = observed(&directory.0);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut watcher = Watcher::connect(&directory.0).unwrap();
                for _ in 0..20 {
                    watcher.status().unwrap();
                }
            });
        }
        for number in 0..200 {
            db.run(|tx| tx.put(&STOCK, &(number % 3), &number)).unwrap();
        }
    });
    // A status is shared for a moment, so the last clients may have seen fewer commits.
    let last = status_once(&directory.0, |seen| seen.transactions.commits >= 200);
    assert_eq!(last.transactions.commits, 200);
}

#[test]
fn a_database_without_a_directory_says_where_its_socket_is() {
    let directory = Directory::new("observe-at");
    fs::create_dir(&directory.0).unwrap();
    let mut options = Options::tiny();
    options.observe = Observe::InDirectory;
    let refused = Database::in_memory(options.clone()).unwrap_err();
    assert_eq!(refused.code(), "option", "{refused}");
    let path = directory.0.join("here.sock");
    options.observe = Observe::At(path.clone());
    let db = Database::in_memory(options.clone()).unwrap();
    assert_eq!(status(&path).database, "in memory");
    // A second database cannot use the same path, and the attempt does no harm.
    let taken = Database::in_memory(options).unwrap_err();
    assert!(taken.to_string().contains("observed"), "{taken}");
    assert_eq!(status(&path).process, std::process::id());
    drop(db);
    assert!(!path.exists());
}

#[test]
fn a_deadlock_is_seen_with_its_cycle_and_drawn() {
    let directory = Directory::new("observe-deadlock");
    let db = observed(&directory.0);
    let (mut one, mut other) = (db.begin().unwrap(), db.begin().unwrap());
    one.set_label("one");
    other.set_label("other");
    one.put(&STOCK, &1, &1).unwrap();
    other.put(&STOCK, &2, &2).unwrap();
    thread::scope(|scope| {
        let crossing = scope.spawn(move || one.put(&STOCK, &2, &3).is_ok());
        while db.waits().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        let ours = other.put(&STOCK, &1, &3).is_ok();
        drop(other);
        assert!(crossing.join().unwrap() != ours);
    });
    let seen = status(&directory.0);
    let cycle = &seen.deadlocks[0].cycle;
    assert_eq!(cycle.len(), 2);
    assert_eq!(cycle.iter().filter(|member| member.victim).count(), 1);
    let graph = db.deadlocks()[0].graph();
    assert!(graph.has_cycle());
    assert!(graph.to_dot().contains("gave way"));
    let from_outside = foxton::wait_graph::WaitGraph::of_deadlock(&seen.deadlocks[0]);
    assert_eq!(graph.to_dot(), from_outside.to_dot());
}

#[test]
fn a_long_wait_dumps_all_waits_at_intervals() {
    let (sent, told) = mpsc::channel();
    let mut options = Options::tiny();
    options.dump_waits_after = Some(Duration::from_millis(20));
    options.dump_waits_every = Duration::from_millis(300);
    options.dump_waits_to = DumpTo::call(move |dump| {
        let _ = sent.send((Instant::now(), dump.clone()));
    });
    let db = Database::in_memory(options).unwrap();
    let begun = Instant::now();
    let (first, second) = with_a_wait(&db, || {
        let patience = Duration::from_secs(20);
        let first = told.recv_timeout(patience).expect("the wait lasts");
        let second = told.recv_timeout(patience).expect("it still lasts");
        (first, second)
    });
    // Measured from the beginning of the wait, which is known; the first dump may have been late.
    assert!(second.0 - begun >= Duration::from_millis(20 + 300));
    let dump = first.1;
    assert!(dump.longest >= dump.bound);
    let text = dump.to_string();
    for words in [
        "waiter (owner",
        "for S on stock/0x",
        "behind",
        "holder (owner",
        "holds X",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    // Waits that have ended are not reported. One more dump may have been on its way.
    thread::sleep(Duration::from_millis(50));
    for (_, dump) in told.try_iter() {
        assert!(dump.to_string().contains("waiter (owner"), "{dump}");
    }
}

#[test]
fn dumps_go_to_a_file_and_a_file_that_cannot_be_is_refused() {
    let directory = Directory::new("observe-dump");
    fs::create_dir(&directory.0).unwrap();
    let path = directory.0.join("waits.txt");
    let mut options = Options::tiny();
    options.dump_waits_after = Some(Duration::from_millis(10));
    options.dump_waits_to = DumpTo::File(path.clone());
    let db = Database::in_memory(options.clone()).unwrap();
    with_a_wait(&db, || {
        let begun = Instant::now();
        while fs::metadata(&path).unwrap().len() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(5));
        }
    });
    drop(db);
    assert!(fs::read_to_string(&path).unwrap().contains("waiter (owner"));
    options.dump_waits_to = DumpTo::File(directory.0.join("no/such/place"));
    assert!(Database::in_memory(options).is_err());
}

#[test]
fn a_panicking_callback_does_no_harm() {
    let (sent, told) = mpsc::channel();
    let mut options = Options::tiny();
    options.dump_waits_after = Some(Duration::from_millis(5));
    options.dump_waits_every = Duration::ZERO;
    options.dump_waits_to = DumpTo::call(move |_| {
        let _ = sent.send(());
        panic!("on purpose");
    });
    let db = Database::in_memory(options).unwrap();
    with_a_wait(&db, || {
        told.recv_timeout(Duration::from_secs(20)).unwrap();
        told.recv_timeout(Duration::from_secs(20)).unwrap();
    });
}
