//! Reads at snapshots beside serializable reads, with many threads.
//!
//! ```text
//! cargo run --release -p foxton --example snapshots -- [SECONDS PASSES THREADS..]
//! ```
//!
//! In each pass it runs, in turn, with each number of threads: transactions that read one row,
//! serializable and at a snapshot, without writers and with 20 % updates. It prints the throughput
//! of each, and the ratios to the same run with serializable reads, as median, least and greatest
//! of the passes. Then it stalls a snapshot while rows are updated, and prints what that costs and
//! how much is kept.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foxton::{Database, Durability, Options, Table};

const ROWS: Table<u64, [u8]> = Table::new("rows");
const COUNT: u64 = 100_000;

/// One measurement: how many threads read, and how.
#[derive(Clone, Copy)]
struct Load {
    threads: u64,
    at_snapshot: bool,
    /// Share of the transactions that update a row, in percent.
    updates: u64,
}

fn main() -> foxton::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |usual: f64| {
        let given = arguments.next();
        given.map_or(usual, |given| given.parse().expect("a number"))
    };
    let (seconds, passes) = (next(0.1), next(1.0) as usize);
    let mut threads: Vec<u64> = arguments
        .map(|given| given.parse().expect("a number"))
        .collect();
    if threads.is_empty() {
        threads = vec![1, 8, 64];
    }
    let mut options = Options::default();
    options.durability = Durability::None;
    let db = Database::in_memory(options)?;
    for key in 0..COUNT {
        db.run(|tx| tx.put(&ROWS, &key, &[1; 100]))?;
    }
    println!("threads  updates  serializable/s    snapshot/s  snapshot ÷ serializable");
    for updates in [0, 20] {
        for &threads in &threads {
            let (mut all, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
            for _ in 0..passes {
                let rates = [false, true].map(|at_snapshot| {
                    let load = Load {
                        threads,
                        at_snapshot,
                        updates,
                    };
                    rate(&db, load, Duration::from_secs_f64(seconds))
                });
                ratios.push(rates[1] / rates[0]);
                all[0].push(rates[0]);
                all[1].push(rates[1]);
            }
            let [locked, read] = all.map(|rates| spread(rates).0);
            let (ratio, low, high) = spread(ratios);
            println!(
                "{threads:>7}  {updates:>6}%  {locked:>14.0}  {read:>12.0}  \
                 {ratio:.2} ({low:.2}..{high:.2})"
            );
        }
    }
    stalled(&db, Duration::from_secs_f64(seconds * 10.0), passes)
}

/// Returns the transactions in a second.
fn rate(db: &Database, load: Load, time: Duration) -> f64 {
    let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let began = Instant::now();
    thread::scope(|scope| {
        for seed in 0..load.threads {
            let (count, is_over) = (&count, &is_over);
            scope.spawn(move || {
                let (mut random, mut done) = (seed * 2 + 1, 0);
                // Relaxed: a flag that is seen soon.
                while !is_over.load(Ordering::Relaxed) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    one(db, load, random).expect("memory has no errors");
                    done += 1;
                }
                count.fetch_add(done, Ordering::Relaxed);
            });
        }
        thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
    });
    count.into_inner() as f64 / began.elapsed().as_secs_f64()
}

fn one(db: &Database, load: Load, random: u64) -> foxton::Result<()> {
    let key = (random >> 8) % COUNT;
    let found = if random % 100 < load.updates {
        db.run(|tx| tx.put(&ROWS, &key, &[2; 100]))?;
        None
    } else if load.at_snapshot {
        db.view(|snapshot| snapshot.get_with(&ROWS, &key, |row| row.len()))?
    } else {
        db.run(|tx| tx.get_with(&ROWS, &key, |row| row.len()))?
    };
    assert!(found.is_none_or(|bytes| bytes == 100));
    Ok(())
}

/// Updates rows beside a snapshot that stalls, and without one, in turn.
fn stalled(db: &Database, time: Duration, passes: usize) -> foxton::Result<()> {
    let (mut ratios, mut kept) = (Vec::new(), 0);
    let load = Load {
        threads: 8,
        at_snapshot: false,
        updates: 100,
    };
    for _ in 0..passes {
        let without = rate(db, load, time);
        let snapshot = db.snapshot()?;
        let beside = rate(db, load, time);
        kept = kept.max(db.version_stats().bytes);
        snapshot.end()?;
        ratios.push(beside / without);
        // The next pass begins when all that was kept is freed.
        while db.version_stats().bytes > 0 {
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(Duration::from_millis(300));
    }
    let (ratio, low, high) = spread(ratios);
    let each = kept as f64 / COUNT as f64;
    println!("updates beside a stalled snapshot ÷ without: {ratio:.2} ({low:.2}..{high:.2})");
    println!("kept for it: {each:.0} bytes for each of {COUNT} rows");
    Ok(())
}

/// Returns median, least and greatest.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (
        values[values.len() / 2],
        values[0],
        values[values.len() - 1],
    )
}
