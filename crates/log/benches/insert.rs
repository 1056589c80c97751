//! Cost of inserting a record, and of committing it.
//!
//! * `log/insert`: nanoseconds of a core for one record of 120 bytes, by buffer and number of
//!   threads. The device forgets everything, so this is the cost of the buffer;
//!   `foxton bench log-insert` shows more.
//! * `log/commit`: commits per second, *sync* and *buffered*, by number of threads, in a real
//!   directory below `target/`.
//!
//! Each line is one measurement: median, least and most of the repetitions.
//! `cargo bench -p foxton-log` measures. As a test (`cargo test -p foxton-log --benches`) all of it
//! runs once, with tiny numbers.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foxton_log::device::Device;
use foxton_log::device::file::FileDevice;
use foxton_log::device::null::NullDevice;
use foxton_log::{BufferKind, Log, LogOptions};
use foxton_sync::worker::Workers;

const RECORD: [u8; 120] = [7; 120];

#[derive(Clone, Copy)]
struct Effort {
    repetitions: usize,
    inserts: u32,
    commit_time: Duration,
}

fn main() {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let effort = if is_measured {
        Effort {
            repetitions: 9,
            inserts: 500_000,
            commit_time: Duration::from_millis(500),
        }
    } else {
        Effort {
            repetitions: 1,
            inserts: 1000,
            commit_time: Duration::from_millis(10),
        }
    };
    for kind in BufferKind::DELEGATED {
        for threads in [1, 2, 8, 64, 512] {
            let name = format!("log/insert buffer={kind} threads={threads} unit=ns");
            report(&name, effort, || {
                nanoseconds_per_insert(kind, threads, effort.inserts)
            });
        }
    }
    for durability in ["sync", "buffered"] {
        for threads in [1, 8, 64] {
            let name = format!("log/commit durability={durability} threads={threads}");
            let mut per_sync = 0.0;
            report(&format!("{name} unit=commits/s"), effort, || {
                let rate;
                (rate, per_sync) = commits(durability == "sync", threads, effort.commit_time);
                rate
            });
            println!("{name} unit=commits/sync last={per_sync:.1}");
        }
    }
}

fn report(name: &str, effort: Effort, mut measure: impl FnMut() -> f64) {
    let mut values: Vec<f64> = (0..effort.repetitions).map(|_| measure()).collect();
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    let (median, repetitions) = (values[values.len() / 2], values.len());
    println!("{name} median={median:.1} min={least:.1} max={most:.1} reps={repetitions}");
}

fn open(device: Arc<dyn Device>, kind: BufferKind) -> Log {
    let mut options = LogOptions::default();
    options.buffer = kind;
    let visit = &mut |_: foxton_log::RecordView<'_>| Ok::<_, Infallible>(());
    Log::open(device, options, *b"the log measured", visit)
        .expect("a new log opens")
        .0
}

/// Returns wall time, times the number of busy cores, divided by the number of records.
fn nanoseconds_per_insert(kind: BufferKind, threads: u32, inserts: u32) -> f64 {
    let cores = foxton_sync::topology::cores() as u32;
    let workers = Workers::new();
    let log = open(Arc::new(NullDevice::default()), kind);
    let each = inserts / threads;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (log, worker) = (&log, workers.worker());
            scope.spawn(move || {
                for _ in 0..each {
                    log.insert(&worker, 1, &[&RECORD])
                        .expect("memory does not fail");
                }
            });
        }
    });
    let nanoseconds = start.elapsed().as_nanos() as f64;
    nanoseconds * f64::from(cores.min(threads)) / f64::from(each * threads)
}

/// Returns commits per second, and commits per sync.
fn commits(is_sync: bool, threads: usize, time: Duration) -> (f64, f64) {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-commits");
    // Left by a run that was stopped.
    let _ = std::fs::remove_dir_all(&path);
    let device = FileDevice::create(&path).expect("target/ can be written");
    let workers = Workers::new();
    let log = open(Arc::new(device), BufferKind::default());
    let start = Instant::now();
    let total: u64 = std::thread::scope(|scope| {
        let committers: Vec<_> = (0..threads)
            .map(|_| {
                let (log, worker) = (&log, workers.worker());
                scope.spawn(move || {
                    let mut commits = 0;
                    while start.elapsed() < time {
                        let end = log.insert(&worker, 1, &[&RECORD]).expect("the log is open");
                        let reached = if is_sync {
                            log.wait_durable(&worker, end)
                        } else {
                            log.wait_written(&worker, end)
                        };
                        reached.expect("the disk works");
                        commits += 1;
                    }
                    commits
                })
            })
            .collect();
        committers
            .into_iter()
            .map(|thread| thread.join().expect("no panics"))
            .sum()
    });
    let rate = total as f64 / start.elapsed().as_secs_f64();
    let syncs = log.stats(&workers.worker()).syncs.max(1);
    drop(log);
    std::fs::remove_dir_all(&path).expect("target/ can be written");
    (rate, total as f64 / syncs as f64)
}
