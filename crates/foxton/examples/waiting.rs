//! Transactions that wait for something else, such as the network, while the rest of the program
//! keeps the processors busy. Shows the cost of the database's trials whether fewer running
//! transactions would do more.
//!
//! ```text
//! cargo run --release -p foxton --example waiting -- 100 2000 10
//! cargo run --release -p foxton --example waiting -- 200 2000 8 8
//! ```
//!
//! The arguments are the number of threads, the microseconds that each transaction sleeps after it
//! has read five rows, and the seconds to run with each admission in turn. A trial stops all but a
//! few of the transactions, finds that almost nothing is done, and ends after some 30 ms. That is
//! the longest time that a transaction waits, and the next trial comes later and later.
//!
//! With a fourth number the threads first update a few rows for that many seconds without sleeping,
//! which is faster with few running transactions. So admission is limited when they begin to sleep.
//! From then on the example prints what is done in each quarter of a second.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use foxton::{Admission, Database, Durability, Options, Table};

const ROWS: Table<u32, u32> = Table::new("rows");
const COUNT: u32 = 10_000;
/// Rows that are updated.
const HOT: u32 = 20;

/// State shared by the threads.
#[derive(Default)]
struct Shared {
    is_hot: AtomicBool,
    is_over: AtomicBool,
    done: AtomicU64,
    /// The longest transaction, in microseconds.
    longest: AtomicU64,
}

fn main() -> foxton::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |usual: u64| {
        let given = arguments.next();
        given.map_or(usual, |given| given.parse().expect("a number"))
    };
    let (clients, sleep) = (number(100), Duration::from_micros(number(2_000)));
    let (cold, hot) = (number(1).max(1), number(0));
    for admission in [Admission::Unlimited, Admission::Adaptive] {
        let mut options = Options::default();
        options.durability = Durability::None;
        options.admission = admission;
        let db = Database::in_memory(options)?;
        db.run(|tx| (0..COUNT).try_for_each(|key| tx.put(&ROWS, &key, &key)))?;
        let shared = Shared::default();
        shared.is_hot.store(hot > 0, Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| keep_busy(&shared));
            for client in 0..clients {
                let (db, shared) = (&db, &shared);
                scope.spawn(move || one(db, client, sleep, shared).expect("no error"));
            }
            watch(admission, cold, hot, &shared);
            shared.is_over.store(true, Relaxed);
        });
    }
    Ok(())
}

/// Waits for the given seconds of each kind of work, and prints what is done.
fn watch(admission: Admission, cold: u64, hot: u64, shared: &Shared) {
    thread::sleep(Duration::from_secs(hot));
    let begun = shared.done.load(Relaxed);
    if let Some(rate) = begun.checked_div(hot) {
        println!("{admission}: {rate} transactions/s while hot");
    }
    shared.is_hot.store(false, Relaxed);
    shared.longest.store(0, Relaxed);
    let mut quarters = Vec::new();
    let mut before = begun;
    for _ in 0..cold * 4 {
        thread::sleep(Duration::from_millis(250));
        let now = shared.done.load(Relaxed);
        quarters.push(now - before);
        before = now;
    }
    let longest = Duration::from_micros(shared.longest.load(Relaxed)).as_millis();
    let rate = (before - begun) / cold;
    println!("{admission}: {rate} transactions/s, the longest {longest} ms");
    if hot > 0 {
        println!("{admission}: by quarters of a second {quarters:?}");
    }
}

/// Keeps every processor busy with work outside the database.
fn keep_busy(shared: &Shared) {
    let spin = || {
        while !shared.is_over.load(Relaxed) {
            if shared.is_hot.load(Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            std::hint::spin_loop();
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..processors).for_each(|_| drop(scope.spawn(spin))));
}

fn one(db: &Database, client: u64, sleep: Duration, shared: &Shared) -> foxton::Result<()> {
    let mut random = client;
    while !shared.is_over.load(Relaxed) {
        let (begun, is_hot) = (Instant::now(), shared.is_hot.load(Relaxed));
        db.run(|tx| {
            let mut key = 0;
            for _ in 0..5 {
                random = random.wrapping_mul(6_364_136_223_846_793_005);
                random = random.wrapping_add(1);
                key = (random >> 40) as u32 % COUNT;
                tx.get(&ROWS, &key)?;
            }
            if is_hot {
                return tx.put(&ROWS, &(key % HOT), &key);
            }
            thread::sleep(sleep);
            Ok(())
        })?;
        let took = begun.elapsed().as_micros();
        shared.done.fetch_add(1, Relaxed);
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        shared.longest.fetch_max(took, Relaxed);
    }
    Ok(())
}
