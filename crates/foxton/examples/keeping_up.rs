//! Writers that are faster than checkpoints: shows the throughput, the length of the log, and
//! commit times.
//!
//! ```text
//! cargo run --release -p foxton --example keeping_up -- 512 15 256 10 2000
//! ```
//!
//! The arguments are the number of threads, the seconds to run, the MiB of log between checkpoints,
//! the rows that each transaction replaces (out of 100,000), and the bytes of a row. The database
//! is in a temporary directory of its own (`TMPDIR`), which is removed at the end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use foxton::{Database, Durability, Options, Table};

const ROWS: Table<u64, [u8]> = Table::new("rows");
const COUNT: u64 = 100_000;

/// State shared by the threads.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    done: AtomicU64,
    /// The longest commit, in microseconds.
    longest: AtomicU64,
}

fn main() -> foxton::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |usual: u64| {
        let given = arguments.next();
        given.map_or(usual, |given| given.parse().expect("a number"))
    };
    let (threads, seconds, mebibytes) = (number(8), number(2), number(16));
    let (rows, length) = (number(4), number(500) as usize);
    let directory = std::env::temp_dir().join(format!("foxton-keeping-up-{}", std::process::id()));
    let mut options = Options::default();
    options.durability = Durability::Buffered;
    options.checkpoint_log_bytes = mebibytes << 20;
    let db = Database::open_with(&directory, options)?;
    for from in (0..COUNT).step_by(1_000) {
        let row = vec![0; length];
        db.run(|tx| (from..from + 1_000).try_for_each(|key| tx.put(&ROWS, &key, &row)))?;
    }
    let shared = Shared::default();
    thread::scope(|scope| {
        for thread in 0..threads {
            let (db, shared) = (&db, &shared);
            scope.spawn(move || write(db, thread + 1, (rows, length), shared).expect("no error"));
        }
        watch(&db, seconds, &shared);
        shared.is_over.store(true, Relaxed);
    });
    drop(db);
    std::fs::remove_dir_all(&directory).expect("it is ours");
    Ok(())
}

/// The transactions of one thread.
fn write(
    db: &Database,
    seed: u64,
    (rows, length): (u64, usize),
    shared: &Shared,
) -> foxton::Result<()> {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while !shared.is_over.load(Relaxed) {
        let draw = |_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % COUNT
        };
        let mut keys = (0..rows).map(draw).collect::<Vec<_>>();
        // In order, so that no two transactions wait for each other in a cycle.
        keys.sort_unstable();
        let row = vec![random as u8; length];
        let begun = Instant::now();
        db.run(|tx| keys.iter().try_for_each(|key| tx.put(&ROWS, key, &row)))?;
        shared
            .longest
            .fetch_max(begun.elapsed().as_micros() as u64, Relaxed);
        shared.done.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Prints the results every second.
fn watch(db: &Database, seconds: u64, shared: &Shared) {
    println!("  s  transactions/s  log behind the checkpoint, MiB  checkpoints  longest, ms");
    let (mut before, mut most_ever) = (0, 0);
    let begun = Instant::now();
    for second in 1..=seconds {
        let mut most = 0;
        while begun.elapsed() < Duration::from_secs(second) {
            thread::sleep(Duration::from_millis(10));
            let end = db.log_end();
            most = most.max(end.since(db.checkpoints().checkpoint_lsn));
        }
        let done = shared.done.load(Relaxed);
        println!(
            "{second:3} {:15} {:31} {:12} {:12}",
            done - before,
            most >> 20,
            db.checkpoints().made,
            shared.longest.swap(0, Relaxed) / 1_000,
        );
        (before, most_ever) = (done, most_ever.max(most));
    }
    let (stats, took) = (db.checkpoints(), begun.elapsed().as_secs_f64());
    println!(
        "{:.0} transactions/s; {} MiB of log at most; {} commits waited {:.1} ms each for a checkpoint",
        before as f64 / took,
        most_ever >> 20,
        stats.throttled,
        stats.throttled_for.as_secs_f64() * 1_000.0 / stats.throttled.max(1) as f64,
    );
}
