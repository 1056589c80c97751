//! Transactions that wait for something else, as for the network, on processors that the rest of the program
//! keeps busy: what it costs them that the database tries whether fewer at work would do more.
//!
//! ```text
//! cargo run --release -p foxton --example waiting -- 100 2000 10
//! ```
//!
//! So many threads, each of whose transactions reads five rows and then sleeps for so many microseconds, with every
//! admission in turn, each for so many seconds. A trial stops all but a few of them, sees that next to nothing is done,
//! and is over after some 30 ms, which is the longest that somebody waits; the next is later and later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foxton::{Admission, Database, Durability, Options, Table};

const ROWS: Table<u32, u32> = Table::new("rows");
const COUNT: u32 = 10_000;

fn main() -> foxton::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |usual: u64| {
        let given = arguments.next();
        given.map_or(usual, |given| given.parse().expect("a number"))
    };
    let (clients, sleep, seconds) = (number(100), number(2_000), number(1));
    for admission in [Admission::All, Admission::Adaptive] {
        let mut options = Options::default();
        options.durability = Durability::None;
        options.admission = admission;
        let db = Database::in_memory(options)?;
        db.run(|tx| (0..COUNT).try_for_each(|key| tx.put(&ROWS, &key, &key)))?;
        let (done, longest) = run(&db, clients, sleep, seconds)?;
        println!(
            "{admission}: {} transactions/s, the longest {} ms",
            done / seconds.max(1),
            longest.as_millis()
        );
    }
    Ok(())
}

/// How many transactions all have done, and the longest of them.
fn run(db: &Database, clients: u64, sleep: u64, seconds: u64) -> foxton::Result<(u64, Duration)> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..processors {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let is_over = &is_over;
        let clients: Vec<_> = (0..clients)
            .map(|client| scope.spawn(move || one(db, client, sleep, is_over)))
            .collect();
        thread::sleep(Duration::from_secs(seconds));
        is_over.store(true, Ordering::Relaxed);
        let mut all = (0, Duration::ZERO);
        for client in clients {
            let (done, longest) = client.join().expect("no client panics")?;
            all = (all.0 + done, all.1.max(longest));
        }
        Ok(all)
    })
}

fn one(
    db: &Database,
    client: u64,
    sleep: u64,
    is_over: &AtomicBool,
) -> foxton::Result<(u64, Duration)> {
    let (mut random, mut done, mut longest) = (client, 0, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let mut tx = db.begin()?;
        for _ in 0..5 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            tx.get(&ROWS, &((random >> 40) as u32 % COUNT))?;
        }
        thread::sleep(Duration::from_micros(sleep));
        tx.commit()?;
        done += 1;
        longest = longest.max(begun.elapsed());
    }
    Ok((done, longest))
}
