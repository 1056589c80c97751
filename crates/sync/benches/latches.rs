//! Uncontended cost of each latch.
//!
//! One thread, everything in its cache: nanoseconds for a pass (acquire and release) of each kind
//! of latch, for a pin and unpin, and for the small operations around them. The median over
//! repetitions, with the least and the most; one self-describing line each, and a table for people.
//!
//! `cargo bench -p foxton-sync`, or with `-- --smoke` for a run that shows only that it runs. It
//! says nothing about contention, nor about other machines.

use foxton_sync::clock;
use foxton_sync::counter::WorkerCounters;
use foxton_sync::latch::{Kind, Latched, SharedLatched, VersionLatch};
use foxton_sync::park::{Parker, Verdict};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Workers;
use std::hint::black_box;

static SITE: Site = Site::new(Component::Latch, Pattern::Unbounded, "benchmark");

/// Length of the measurement.
#[derive(Clone, Copy)]
struct Effort {
    passes: u32,
    repetitions: usize,
}

const FULL: Effort = Effort {
    passes: 1_000_000,
    repetitions: 15,
};
const SMOKE: Effort = Effort {
    passes: 100,
    repetitions: 3,
};

fn measure(effort: Effort, name: &str, mut pass: impl FnMut()) {
    let mut nanos: Vec<f64> = (0..effort.repetitions)
        .map(|_| {
            let begin = clock::now();
            for _ in 0..effort.passes {
                pass();
            }
            begin.elapsed().as_secs_f64() * 1e9 / f64::from(effort.passes)
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    let (least, median, most) = (nanos[0], nanos[nanos.len() / 2], nanos[nanos.len() - 1]);
    let account = cfg!(feature = "account");
    println!("{name:<28} {median:>8.2} ns   ({least:.2} .. {most:.2})");
    println!(
        "{{\"bench\":\"sync/latches\",\"what\":\"{name}\",\"unit\":\"ns per pass\",\
         \"median\":{median:.3},\"min\":{least:.3},\"max\":{most:.3},\
         \"passes\":{},\"reps\":{},\"account\":{account}}}",
        effort.passes, effort.repetitions
    );
}

fn run(effort: Effort) {
    let workers = Workers::with_seed(1);
    let worker = workers.worker();

    measure(effort, "nothing", || {
        black_box(&worker);
    });
    for kind in Kind::ALL {
        // The compiler does not know the kind, as in a lock table.
        let latched = Latched::new(black_box(kind), &SITE, 0u64);
        measure(effort, &format!("latch {kind}"), || {
            latched.with(&worker, |value| *value += 1)
        });
        black_box(latched.into_inner());
    }
    let shared = SharedLatched::new(&SITE, 0u64);
    measure(effort, "shared read", || {
        black_box(shared.read(&worker, |value| *value));
    });
    measure(effort, "shared write", || {
        shared.write(&worker, |value| *value += 1)
    });
    let version = VersionLatch::default();
    measure(effort, "version read", || {
        let seen = version.await_version();
        black_box(version.unchanged_since(seen));
    });
    measure(effort, "version write", || {
        version.lock();
        version.unlock();
    });
    measure(effort, "pin and unpin", || drop(black_box(worker.pin())));
    let outer = worker.pin();
    measure(effort, "pin and unpin, nested", || {
        drop(black_box(worker.pin()))
    });
    drop(outer);
    measure(effort, "box and retire", || {
        worker.retire(black_box(Box::new(0u64)))
    });
    let parker = Parker::new();
    measure(effort, "arm, resolve, wake, wait", || {
        let ticket = parker.arm();
        let wake = parker
            .resolve(ticket, Verdict::new(1))
            .expect("nobody else is here");
        wake.wake();
        black_box(parker.wait(ticket, None));
    });
    let counters = WorkerCounters::<1>::new();
    measure(effort, "count", || counters.add(&worker, 0, 1));
    measure(effort, "account", || {
        black_box(&worker).account().passed(&SITE)
    });
    measure(effort, "random", || {
        black_box(worker.random());
    });
    measure(effort, "clock now", || {
        black_box(clock::now());
    });
    measure(effort, "clock coarse_now", || {
        black_box(clock::coarse_now());
    });
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke");
    run(if smoke { SMOKE } else { FULL });
}

#[cfg(test)]
#[test]
fn the_benchmark_runs() {
    run(SMOKE);
}
