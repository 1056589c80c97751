//! Cost of the index: a get, a row of a scan, an insert; for several node sizes.
//!
//! Nanoseconds for one operation of one thread, the median of the repetitions and, in brackets, the
//! smallest and the largest. There are two kinds of table:
//!
//! * 300,000 rows of 1.8 KB, larger than the caches, as in txbench;
//! * as many short rows under keys of three columns, where three thousand neighbours share two.
//!
//! A scan covers 10 rows and reads the first and the last byte of each value. Node sizes take turns
//! within a repetition, so that a busy machine disturbs them alike.
//!
//! `cargo bench -p foxton-store`; in a test run it is tiny and only shows that it runs.

use foxton_store::memory::{NewRecord, Next, RecordTable};
use foxton_sync::worker::{Worker, Workers};
use std::hint::black_box;
use std::ops::Bound;
use std::time::Instant;

struct Scale {
    rows: u64,
    row_bytes: usize,
    operations: u64,
    repetitions: usize,
}

const FULL: Scale = Scale {
    rows: 300_000,
    row_bytes: 1800,
    operations: 5_000,
    repetitions: 61,
};
const TINY: Scale = Scale {
    rows: 2_000,
    row_bytes: 50,
    operations: 200,
    repetitions: 1,
};

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let scale = if full { FULL } else { TINY };
    println!(
        "{} rows of {} bytes, {} operations, median of {} (smallest..largest), ns each",
        scale.rows, scale.row_bytes, scale.operations, scale.repetitions
    );
    let workers = Workers::with_seed(7);
    let worker = workers.worker();
    let (small, middle, large) = (
        Tables::<32>::load(&workers, &worker, &scale),
        Tables::<64>::load(&workers, &worker, &scale),
        Tables::<128>::load(&workers, &worker, &scale),
    );
    let mut results: Vec<[Vec<f64>; 3]> = Vec::new();
    let names = [
        "pin and unpin",
        "get, a random key",
        "get, the same key",
        "successor, a random key",
        "row of a scan up, 10 rows",
        "row of a scan down, 10 rows",
        "row of a long scan",
        "insert in order, no value",
        "insert at random, no value",
        "get, a random key of columns",
        "insert in order, of columns",
    ];
    results.resize_with(names.len(), Default::default);
    for _ in 0..scale.repetitions {
        for (test, result) in results.iter_mut().enumerate() {
            result[0].push(measure(test, &small, &workers, &worker, &scale));
            result[1].push(measure(test, &middle, &workers, &worker, &scale));
            result[2].push(measure(test, &large, &workers, &worker, &scale));
        }
    }
    println!(
        "{:30}{:>24}{:>24}{:>24}",
        "", "32 slots", "64 slots", "128 slots"
    );
    for (name, result) in names.iter().zip(results) {
        let [small, middle, large] = result.map(spread);
        println!("{name:30}{small:>24}{middle:>24}{large:>24}");
    }
}

fn spread(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    let (low, high) = (times[0], times[times.len() - 1]);
    format!("{:.1} ({low:.1}..{high:.1})", times[times.len() / 2])
}

struct Tables<const N: usize> {
    numbers: RecordTable<N>,
    columns: RecordTable<N>,
}

impl<const N: usize> Tables<N> {
    fn load(workers: &Workers, worker: &Worker, scale: &Scale) -> Self {
        let numbers = |number: u64| number.to_be_bytes();
        Self {
            numbers: load(
                workers,
                worker,
                scale.rows,
                &vec![1; scale.row_bytes],
                numbers,
            ),
            columns: load(workers, worker, scale.rows, &[1; 50], columns),
        }
    }
}

/// Three columns of four bytes.
fn columns(number: u64) -> [u8; 12] {
    let columns = [number / 30_000, number / 3_000 % 10, number % 3_000];
    let mut key = [0; 12];
    for (place, column) in key.chunks_exact_mut(4).zip(columns) {
        place.copy_from_slice(&(column as u32).to_be_bytes());
    }
    key
}

fn load<const N: usize, const BYTES: usize>(
    workers: &Workers,
    worker: &Worker,
    rows: u64,
    value: &[u8],
    key: impl Fn(u64) -> [u8; BYTES],
) -> RecordTable<N> {
    let table = RecordTable::with_slots(workers.domain());
    for number in 0..rows {
        let record = NewRecord::new(&key(number), Some(value)).expect("short");
        table
            .insert(&worker.pin(), record, Next::Any)
            .expect("a new key");
    }
    table
}

fn measure<const N: usize>(
    test: usize,
    tables: &Tables<N>,
    workers: &Workers,
    worker: &Worker,
    scale: &Scale,
) -> f64 {
    let table = &tables.numbers;
    let key = || worker.random_below(scale.rows).to_be_bytes();
    let operations = scale.operations;
    match test {
        0 => time(operations, |_| drop(black_box(worker.pin()))),
        1 => time(operations, |_| {
            let guard = worker.pin();
            let mut hazard = guard.hazard();
            black_box(
                table
                    .get(&guard, &key())
                    .map(|record| record.value(&mut hazard).map(<[u8]>::len)),
            );
        }),
        2 => time(operations, |_| {
            let guard = worker.pin();
            black_box(table.get(&guard, &[0, 0, 0, 0, 0, 0, 0, 9]));
        }),
        3 => time(operations, |_| {
            let guard = worker.pin();
            let place = table.successor(&guard, &key(), true);
            black_box(table.unchanged(&place.token));
        }),
        4 | 5 => {
            time(operations / 10, |_| {
                let guard = worker.pin();
                let start = key();
                let start = Bound::Included(&start[..]);
                let mut cursor = match test {
                    4 => table.forward(&guard, start),
                    _ => table.backward(&guard, start),
                };
                let mut hazard = guard.hazard();
                for _ in 0..10 {
                    let place = cursor.advance();
                    black_box(table.unchanged(&place.token));
                    let value = place.record.and_then(|record| record.value(&mut hazard));
                    black_box(value.map(|value| value[0] ^ value[value.len() - 1]));
                }
            }) / 10.0
        }
        6 => {
            let guard = worker.pin();
            let mut hazard = guard.hazard();
            let mut cursor = table.forward(&guard, Bound::Unbounded);
            time(operations, |_| {
                let place = cursor.advance();
                black_box(table.unchanged(&place.token));
                black_box(
                    place
                        .record
                        .and_then(|record| record.value(&mut hazard))
                        .map(|value| value[0]),
                );
            })
        }
        9 => time(operations, |_| {
            let guard = worker.pin();
            let key = columns(worker.random_below(scale.rows));
            black_box(
                tables
                    .columns
                    .get(&guard, &key)
                    .map(|record| record.is_ghost()),
            );
        }),
        10 => {
            let new = RecordTable::<N>::with_slots(workers.domain());
            time(operations, |number| {
                let record = NewRecord::new(&columns(number), None).expect("short");
                let _ = new.insert(&worker.pin(), record, Next::Any);
            })
        }
        _ => {
            let new = RecordTable::<N>::with_slots(workers.domain());
            time(operations, |number| {
                let number = if test == 7 { number } else { worker.random() };
                let record = NewRecord::new(&number.to_be_bytes(), None).expect("short");
                let _ = new.insert(&worker.pin(), record, Next::Any);
            })
        }
    }
}

/// Nanoseconds for each call of `operation`.
fn time(operations: u64, mut operation: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..operations).for_each(&mut operation);
    start.elapsed().as_nanos() as f64 / operations as f64
}
