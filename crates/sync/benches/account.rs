//! Cost of counting a passage: a loop that counts beside the same loop that does not.
//!
//! ```text
//! cargo bench -p foxton-sync --bench account
//! cargo bench -p foxton-sync --bench account --features account
//! ```
//!
//! prints nanoseconds for each passage, median and extremes. For instructions, where `BENCH` is the
//! program that the first line names while it builds:
//!
//! ```text
//! valgrind --tool=callgrind BENCH bare passed 1000000
//! valgrind --tool=callgrind BENCH bare nothing 1000000
//! ```
//!
//! Without the feature `account` both run the same number of instructions.

use foxton_sync::site::{COUNTING, Component, Pattern, Site};
use foxton_sync::worker::{Worker, Workers};
use std::hint::black_box;
use std::time::Instant;

static SITE: Site = Site::new(Component::Latch, Pattern::Fixed, "a place being measured");

const ROUNDS: u32 = 21;

#[inline(never)]
fn passed(worker: &Worker, times: u64) {
    for at in 0..times {
        worker.account().passed(&SITE);
        black_box(at);
    }
}

#[inline(never)]
fn nothing(worker: &Worker, times: u64) {
    for at in 0..times {
        let _ = worker;
        black_box(at);
    }
}

fn nanos(times: u64, run: impl FnOnce()) -> f64 {
    let began = Instant::now();
    run();
    began.elapsed().as_nanos() as f64 / times as f64
}

fn main() {
    let worker = Workers::with_seed(1).worker();
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [bare, which, times] = words.as_slice()
        && bare == "bare"
    {
        let times = times.parse().expect("how many times");
        match which.as_str() {
            "passed" => passed(&worker, times),
            _ => nothing(&worker, times),
        }
        return;
    }
    let times = if words.iter().any(|word| word == "--bench") {
        10_000_000
    } else {
        1_000
    };
    let mut costs: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let with = nanos(times, || passed(&worker, times));
            with - nanos(times, || nothing(&worker, times))
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    let (least, middle, most) = (costs[0], costs[costs.len() / 2], costs[costs.len() - 1]);
    let is = if COUNTING { "on" } else { "off" };
    println!("counting is {is}: a passage costs {middle:.3} ns ({least:.3} to {most:.3})");
}
