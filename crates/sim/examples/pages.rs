//! Simulated power cuts of pages that are larger than memory:
//! `cargo run --release -p foxton-sim --example pages -- --count 100000`.
//!
//! Records runs of random transactions and cuts each after every change that it made to its
//! directory. Damages unsynced bytes, restarts the result, and compares it with what was committed.
//! Cuts the restart, and the restart of that. The next run begins on some image that was left of a
//! run.

mod common;

use common::{Arguments, Outcome, bar};
use foxton_log::device::fault::FaultDevice;
use foxton_sim::pages::cuts::{Right, Tally};
use foxton_sim::pages::engine::{Contents, Setting};
use foxton_sim::pages::run::Run;
use std::{
    sync::{Mutex, PoisonError, atomic::AtomicU64, atomic::Ordering::Relaxed},
    thread,
    time::Instant,
};

const HELP: &str = "\
Power cuts at every change of recorded runs of pages, of their restarts, and of the restarts of those.

  --count N        images to restart [100000]
  --seed N         of the first run; run k has seed N + k, and a failure names its own [1]
  --steps N        steps of each run [120]
  --generations N  runs that go on where a cut of the one before left off [3]
  --threads N      threads that look at images [2]";

fn main() -> Outcome {
    let known = ["count", "seed", "steps", "generations", "threads"];
    let arguments = Arguments::read(0, &known, HELP)?;
    let count: u64 = arguments.get("count", 100_000)?;
    let first: u64 = arguments.get("seed", 1)?;
    let steps: usize = arguments.get("steps", 120)?;
    let generations: u64 = arguments.get("generations", 3)?;
    let threads: usize = arguments.get("threads", 2)?;
    let bar = bar(count, "images")?;
    let start = Instant::now();
    let (next, sum) = (AtomicU64::new(first), Mutex::new(Tally::default()));
    let work = || -> Outcome {
        // Relaxed: the counter only distributes seeds, and leads to no memory.
        while bar.position() < count {
            let seed = next.fetch_add(1, Relaxed);
            let mut tally = Tally::default();
            let (mut device, mut contents) = (FaultDevice::new(), Contents::new());
            // A page has one size in all generations, and so have all values drawn from the seed
            // that shape it.
            for generation in 0..generations {
                let seed = seed + generation * GENERATION;
                let setting = Setting {
                    seed,
                    steps,
                    fault: None,
                };
                let run = Run::record(&device, contents, setting)
                    .map_err(|trouble| format!("run {seed}: {trouble}"))?;
                let right = run.cut_everywhere(1, &mut tally)?;
                let Some(Right {
                    image,
                    contents: found,
                }) = right
                else {
                    break;
                };
                if found.is_empty() && setting.is_limited() {
                    // The run was cut off while it loaded. The rest has no space for another load,
                    // which is right, so no run can continue it.
                    break;
                }
                (device, contents) = (FaultDevice::holding(&image), found);
            }
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            sum.add(&tally);
            bar.inc(tally.all());
            bar.set_message(format!("{} runs", seed + 1 - first));
        }
        Ok(())
    };
    thread::scope(|scope| -> Outcome {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?)
    })?;
    bar.finish_and_clear();
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    let runs = next.into_inner() - first;
    println!("images                             {:>10}", sum.all());
    println!("  of restarts that were cut        {:>10}", sum.images[1]);
    println!("  of restarts of such restarts     {:>10}", sum.images[2]);
    println!("changes made again                 {:>10}", sum.redone);
    println!("transactions undone                {:>10}", sum.losers);
    println!("changes undone                     {:>10}", sum.undone);
    println!("logs read from their beginning     {:>10}", sum.audited);
    println!("runs                               {runs:>10}");
    println!("nothing acknowledged is lost, nothing else is left, nothing is undone twice");
    println!(
        "seeds {first} to {}, took {:.0?}",
        first + runs - 1,
        start.elapsed()
    );
    Ok(())
}

/// A multiple of all divisors by which a setting draws from its seed.
const GENERATION: u64 = 30_000_000;
