//! Far more threads than cores, on every manager over every latch. Quick here, and for any duration
//! with `cargo run --release -p foxton-lock --example stress -- --seconds 60`.
//!
//! A program of its own, because its threads would leave no processor to tests beside it.

use foxton_lock::any::{Fences, Inheritance, ManagerKind, Options};
use foxton_sync::latch;
use std::time::{Duration, Instant};

mod run;

/// Runs `run` on every manager over every latch, and sums the results.
fn on_all(
    millis: u64,
    threads: usize,
    keys: usize,
    run: impl Fn(&run::Settings) -> run::Done,
) -> run::Done {
    let mut sum = run::Done::default();
    for kind in ManagerKind::ALL {
        for latch in latch::Kind::ALL {
            // Without elision these latches are among the others anyway, and one manager is enough.
            // With emulation they are the subject of the test.
            let elides = !latch::Kind::PLAIN.contains(&latch);
            let turn = match cfg!(feature = "emulated") {
                true => elides,
                false => !elides || kind == ManagerKind::Bucket,
            };
            if !turn {
                continue;
            }
            let mut options = Options::tiny();
            (options.kind, options.latch, options.own_threads) = (kind, latch, true);
            // Over every manager, and one latch: there is none in it.
            if latch == latch::Kind::TasT {
                options.inherit = Inheritance::Always;
            }
            let millis = if cfg!(feature = "emulated") {
                millis / 2
            } else {
                millis
            };
            let duration = Duration::from_millis(millis);
            // A queue latch is granted in strict order, so each pass costs a turn of the scheduler
            // over all threads: the long form shows how slow that is.
            let threads = if latch == latch::Kind::Queue {
                threads.min(128)
            } else {
                threads
            };
            // A race detector makes everything ten times slower, and needs no crowd to see a race.
            // Nor does a test of emulated passes: each crowd takes a second to wait in them.
            let threads = if cfg!(any(foxton_tsan, feature = "emulated")) {
                threads.min(64)
            } else {
                threads
            };
            let start = Instant::now();
            let done = run(&run::Settings {
                options,
                threads,
                keys,
                duration,
                seed: 1,
            });
            println!("{kind} over {latch}: {done} in {:.1?}", start.elapsed());
            assert!(done.transactions > 0, "somebody gets through");
            sum.deadlocks += done.deadlocks;
            sum.timeouts += done.timeouts;
            sum.busy += done.busy;
            if kind == ManagerKind::Reference && (latch == latch::Kind::TasT || elides) {
                break; // It has no latch to choose.
            }
        }
    }
    sum
}

#[test]
fn five_hundred_threads_exclude_each_other_and_every_wait_ends() {
    let done = on_all(200, 512, 64, run::threads);
    assert!(done.busy > 0 && done.timeouts > 0, "{done}");
}

/// The paths that are taken when the fast path is closed. The models of `models/direct.rs` and the
/// litmus test of `foxton_sync::asymmetric` check the fences themselves, which is a matter of two
/// instructions that must meet.
#[test]
fn without_a_system_barrier_full_fences_exclude_conflicts() {
    for kind in [
        ManagerKind::Direct,
        ManagerKind::DirectFifo,
        ManagerKind::DirectTable,
    ] {
        let mut options = Options::tiny();
        (options.kind, options.own_threads) = (kind, true);
        options.fences = Fences::Symmetric;
        for threads in [2, 8, 64] {
            let settings = run::Settings {
                options: options.clone(),
                threads,
                keys: 4,
                duration: Duration::from_millis(200),
                seed: 1,
            };
            let done = run::threads(&settings);
            println!("{kind} with symmetric fences, {threads} threads: {done}");
            assert!(done.transactions > 0, "somebody gets through");
        }
    }
}

#[test]
fn no_thread_hangs_in_a_deadlock_storm() {
    let done = on_all(100, 64, 4, run::threads);
    assert!(done.deadlocks > 100, "{done}");
}

#[test]
fn tasks_that_are_dropped_at_any_moment_leave_no_trace_and_no_wakeup_is_lost() {
    let done = on_all(100, 8, 8, run::tasks);
    assert!(done.deadlocks > 0 && done.timeouts > 0, "{done}");
}
