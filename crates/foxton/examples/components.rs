//! Operations on tables of either component, for an instruction counter and a clock.
//!
//! ```text
//! cargo build --release -p foxton --example components
//! target/release/examples/components
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*measured*' \
//!     target/release/examples/components paged read
//! ```
//!
//! Without arguments it runs each operation on both components in turn, and prints the ratios of
//! their times with spread. With a component (`memory` or `paged`) and an operation it runs that
//! alone; callgrind's total divided by [`COUNT`] is the number of instructions of one operation.
//!
//! * `read`, `update`: a random row, in a transaction of its own;
//! * `scan`: the values of 100 rows, in a transaction of its own;
//! * `insert`: the next key, 100 of them in a transaction.
//!
//! The rows fit the pool. They have keys of 8 bytes and values of 100 bytes; locks are on, and
//! commits are not synced.

use foxton::{Database, Durability, Options, Table};
use std::time::{Duration, Instant};

const MEMORY: Table<u64, [u8]> = Table::new("memory");
const PAGED: Table<u64, [u8]> = Table::new("paged").paged();
const OPERATIONS: [&str; 4] = ["read", "scan", "update", "insert"];
const ROWS: u64 = 100_000;
/// Operations of one measurement.
const COUNT: u64 = 20_000;
const SCANNED: u64 = 100;
const PASSES: usize = 9;

/// Runs one operation, [`COUNT`] times.
#[inline(never)]
fn measured(
    db: &Database,
    table: &Table<u64, [u8]>,
    operation: &str,
    first: u64,
) -> foxton::Result<u64> {
    let (mut random, mut sum) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % (ROWS - SCANNED)
    };
    match operation {
        "read" => {
            for _ in 0..COUNT {
                let key = next();
                let found = db.run(|tx| tx.get(table, &key))?;
                sum += found.map_or(0, |row| u64::from(row[0]));
            }
        }
        "update" => {
            for index in 0..COUNT {
                let key = next();
                db.run(|tx| tx.put(table, &key, &[index as u8; 100][..]))?;
            }
        }
        "scan" => {
            for _ in 0..COUNT / SCANNED {
                let from = next();
                let mut tx = db.begin()?;
                tx.range(table, from..from + SCANNED)
                    .for_each_bytes(|_, row| sum += u64::from(row[0]))?;
                tx.commit()?;
            }
        }
        _ => {
            for begin in (first..first + COUNT).step_by(SCANNED as usize) {
                db.run(|tx| {
                    let mut keys = begin..begin + SCANNED;
                    keys.try_for_each(|key| tx.put(table, &key, &[7; 100][..]))
                })?;
            }
        }
    }
    Ok(sum)
}

fn main() -> foxton::Result<()> {
    let mut options = Options::default();
    options.durability = Durability::None;
    options.page_memory = 128 << 20;
    let db = Database::in_memory(options)?;
    for table in [&MEMORY, &PAGED] {
        for begin in (0..ROWS).step_by(1_000) {
            db.run(|tx| {
                (begin..begin + 1_000).try_for_each(|key| tx.put(table, &key, &[7; 100][..]))
            })?;
        }
    }
    let mut arguments = std::env::args().skip(1);
    if let (Some(component), Some(operation)) = (arguments.next(), arguments.next()) {
        let table = if component == "paged" {
            &PAGED
        } else {
            &MEMORY
        };
        println!("{}", measured(&db, table, &operation, ROWS)?);
        return Ok(());
    }
    println!("operation   memory (ns)   paged (ns)   memory ÷ paged: median (spread)");
    let mut first = ROWS;
    for operation in OPERATIONS {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..PASSES {
            for (table, times) in [&MEMORY, &PAGED].into_iter().zip(&mut times) {
                let start = Instant::now();
                std::hint::black_box(measured(&db, table, operation, first)?);
                times.push(start.elapsed());
            }
            first += COUNT;
        }
        let mut ratios: Vec<f64> = (times[0].iter().zip(&times[1]))
            .map(|(memory, paged)| memory.as_secs_f64() / paged.as_secs_f64())
            .collect();
        ratios.sort_by(f64::total_cmp);
        let [memory, paged] = times.map(|mut times: Vec<Duration>| {
            times.sort();
            times[PASSES / 2].as_nanos() as u64 / COUNT
        });
        let (low, high) = (ratios[0], ratios[PASSES - 1]);
        println!(
            "{operation:<9} {memory:>13} {paged:>12}   {:.2} ({low:.2} to {high:.2})",
            ratios[PASSES / 2]
        );
    }
    Ok(())
}
