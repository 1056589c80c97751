//! Simulated power cuts of databases with resident and paged tables:
//! `cargo run --release -p foxton-sim --example component_cuts -- --count 1000000`.
//!
//! Records runs of random transactions and cuts each after every change that it made to its
//! directory. Damages unsynced bytes in every way that a disk may, restarts the result, and
//! compares it with what was committed. Cuts the restart, and the restart of that.

mod common;

use common::{Arguments, Outcome, bar};
use foxton_sim::components::Setting;
use foxton_sim::components::cuts::{Damages, Tally};
use foxton_sim::components::load::Run;
use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError, atomic::AtomicU64, atomic::Ordering::Relaxed},
    thread,
    time::Instant,
};

const HELP: &str = "\
Power cuts at every change of recorded runs over both components, of their restarts, and of the
restarts of those.

  --count N     images to restart [100000]
  --seed N      of the first run; run k has seed N + k, and a failure names its own [1]
  --steps N     steps of each run [400]
  --threads N   threads that look at images [2]
  --keep PATH   folder for the files of an image that fails; it must not exist [none]";

fn main() -> Outcome {
    let known = ["count", "seed", "steps", "threads", "keep"];
    let arguments = Arguments::read(0, &known, HELP)?;
    let count: u64 = arguments.get("count", 100_000)?;
    let first: u64 = arguments.get("seed", 1)?;
    let steps: usize = arguments.get("steps", 400)?;
    let threads: usize = arguments.get("threads", 2)?;
    let folder: Option<PathBuf> = arguments.find("keep")?;
    let bar = bar(count, "images")?;
    let start = Instant::now();
    let (next, sum) = (AtomicU64::new(first), Mutex::new(Tally::default()));
    let work = || -> Outcome {
        // Relaxed: the counter only distributes seeds, and leads to no memory.
        while bar.position() < count {
            let seed = next.fetch_add(1, Relaxed);
            let setting = Setting {
                seed,
                steps,
                fault: None,
                is_failing: false,
            };
            let run = Run::record(setting).map_err(|trouble| format!("{setting}: {trouble}"))?;
            let mut tally = Tally::default();
            let cut = run.cut_everywhere(1, Damages::All, &mut tally, &|images| bar.inc(images));
            if let Err(failure) = cut {
                if let Some(folder) = &folder {
                    failure.keep(folder)?;
                }
                return Err(failure.to_string().into());
            }
            sum.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .add(&tally);
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
    println!("refused, where durable bytes were hit {:>7}", sum.refused);
    println!("changes undone, in logs that are whole {:>6}", sum.audited);
    println!("runs                               {runs:>10}");
    println!("nothing acknowledged is lost, nothing else is left, every tree is whole");
    println!(
        "seeds {first} to {}, took {:.0?}",
        first + runs - 1,
        start.elapsed()
    );
    Ok(())
}
