//! The default latch compared with the mutex that it is modelled on.
//!
//! The same counters are behind our latches and behind `parking_lot`'s mutexes, by turns, a
//! twentieth of a second each. In the first case there are ten thousand counters, each behind its
//! own latch, drawn at random, so that cache lines move and hardly any thread waits. In the second
//! there is one. Prints the passes a second of `parking_lot`'s, and ours divided by theirs in the
//! same turn: median, least and most.
//!
//! `cargo bench -p foxton-sync --bench parking`, or with `-- --smoke` for a run that shows only
//! that it runs.

use foxton_sync::latch::{Kind, Latched};
use foxton_sync::shim::{AtomicU64, Ordering};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::{Worker, Workers};
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

static SITE: Site = Site::new(Component::Latch, Pattern::Unbounded, "benchmark");

/// A counter on a cache line of its own.
#[repr(align(64))]
struct OneLine<T>(T);

/// Counters that can be passed.
trait Counters: Sync {
    fn pass(&self, worker: &Worker, which: usize);
}

impl Counters for Vec<OneLine<Latched<u64>>> {
    fn pass(&self, worker: &Worker, which: usize) {
        self[which].0.with(worker, |count| *count += 1);
    }
}

impl Counters for Vec<OneLine<parking_lot::Mutex<u64>>> {
    fn pass(&self, _worker: &Worker, which: usize) {
        *self[which].0.lock() += 1;
    }
}

/// Returns passes a second of `threads` threads over `count` counters.
fn rate(counters: &impl Counters, count: u64, threads: usize, duration: Duration) -> f64 {
    const AT_ONCE: u64 = 256;
    let workers = Workers::with_seed(1);
    let passed = AtomicU64::new(0);
    let begin = Instant::now();
    thread::scope(|scope| {
        for worker in (0..threads).map(|_| workers.worker()) {
            let passed = &passed;
            scope.spawn(move || {
                let mut own = 0;
                while begin.elapsed() < duration {
                    for _ in 0..AT_ONCE {
                        counters.pass(&worker, worker.random_below(count) as usize);
                    }
                    own += AT_ONCE;
                }
                // Site: none, it belongs to the measurement.
                passed.fetch_add(own, Ordering::Relaxed);
            });
        }
    });
    passed.into_inner() as f64 / begin.elapsed().as_secs_f64()
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke" || argument == "--test");
    let (turns, duration) = match smoke {
        true => (1, Duration::from_millis(1)),
        false => (25, Duration::from_millis(50)),
    };
    println!("counters  threads  parking_lot, passes/s  ours ÷ parking_lot");
    for count in [10_000, 1] {
        for threads in [1, 2, 4, 8] {
            // The compiler does not know the kind, as in a lock table.
            let kind = black_box(Kind::Parking);
            let ours: Vec<_> = (0..count)
                .map(|_| OneLine(Latched::new(kind, &SITE, 0)))
                .collect();
            let theirs: Vec<_> = (0..count)
                .map(|_| OneLine(parking_lot::Mutex::new(0)))
                .collect();
            let mut rates: Vec<(f64, f64)> = (0..turns)
                .map(|_| {
                    let ours = rate(&ours, count, threads, duration);
                    let theirs = rate(&theirs, count, threads, duration);
                    (theirs, ours / theirs)
                })
                .collect();
            rates.sort_by(|one, other| one.1.total_cmp(&other.1));
            let ratio = |at: usize| rates[at].1;
            let (least, median, most) = (ratio(0), ratio(turns / 2), ratio(turns - 1));
            rates.sort_by(|one, other| one.0.total_cmp(&other.0));
            let passes = rates[turns / 2].0;
            println!(
                "{count:>8}  {threads:>7}  {passes:>21.0}  {median:.2} ({least:.2}..{most:.2})"
            );
        }
    }
}
