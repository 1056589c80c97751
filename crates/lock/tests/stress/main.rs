//! Far more threads than cores, on every manager over every latch; quick here, as long as you like
//! with `cargo run --release -p foxton-lock --example stress -- --seconds 60`.

use foxton_lock::any::{Fences, Inheritance, ManagerKind, Options};
use foxton_sync::latch;
use std::time::{Duration, Instant};

mod run;

/// Runs `run` on every manager over every latch, and sums what came of it.
fn on_all(
    millis: u64,
    threads: usize,
    keys: usize,
    run: impl Fn(&run::Settings) -> run::Done,
) -> run::Done {
    let mut sum = run::Done::default();
    for kind in ManagerKind::ALL {
        for latch in latch::Kind::ALL {
            // Where nothing is elided these are latches that have their turn anyway: one manager is enough. Where it
            // is emulated, it is they that are asked about.
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
            // A queue latch is handed over in strict order, so each pass costs a turn of the
            // scheduler over all threads: the long form shows how slow that is.
            let threads = if latch == latch::Kind::Queue {
                threads.min(128)
            } else {
                threads
            };
            // A race detector makes everything ten times slower, and needs no crowd to see a race. Neither does who
            // asks about passes that are emulated: each crowd takes a second to be made to wait in them.
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

/// The ways that are walked where the shortest one is closed. Whether the fences themselves are whole is a matter of two
/// instructions that must meet: the models of `loom_direct` and the litmus of `foxton_sync::asymmetric` say that.
#[test]
fn where_the_system_has_no_barrier_full_fences_keep_out_who_must_be_kept_out() {
    for kind in [ManagerKind::Direct, ManagerKind::DirectFifo] {
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
fn a_deadlock_storm_hangs_nobody() {
    let done = on_all(100, 64, 4, run::threads);
    assert!(done.deadlocks > 100, "{done}");
}

#[test]
fn tasks_that_are_dropped_at_any_moment_leave_no_trace_and_no_wakeup_is_lost() {
    let done = on_all(100, 8, 8, run::tasks);
    assert!(done.deadlocks > 0 && done.timeouts > 0, "{done}");
}
