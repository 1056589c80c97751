//! Simulated power cuts, any number:
//! `cargo run --release -p foxton-sim --example images -- --count 500000`.
//!
//! Records runs of the load and cuts each after every change that it made to its directory. Damages
//! unsynced bytes in every way that a disk may, and opens the result. Compares it with what was
//! acknowledged and with what others were shown, and cuts the restart, too.

mod common;

use common::{Arguments, Outcome, bar};
use foxton_sim::{crash::record, victim::Honesty};
use std::{
    sync::{Mutex, PoisonError, atomic::AtomicU64, atomic::Ordering::Relaxed},
    thread,
    time::Instant,
};

const HELP: &str = "\
Power cuts at every change of recorded runs, in every way a disk may take them.

  --count N     images to open [100000]
  --seed N      of the first run; run k has seed N + k, and a failure names its own [1]
  --clients N   clients of each run [4]
  --each N      transactions of each client [9]
  --threads N   threads that look at images [2]";

fn main() -> Outcome {
    let arguments = Arguments::read(0, &["count", "seed", "clients", "each", "threads"], HELP)?;
    let count: u64 = arguments.get("count", 100_000)?;
    let first: u64 = arguments.get("seed", 1)?;
    let (clients, each) = (arguments.get("clients", 4)?, arguments.get("each", 9)?);
    let threads: usize = arguments.get("threads", 2)?;
    let bar = bar(count, "images")?;
    let start = Instant::now();
    let (next, sum) = (AtomicU64::new(first), Mutex::new([0; 3]));
    let work = || -> Outcome {
        // Relaxed: the counter only distributes seeds, and leads to no memory.
        while bar.position() < count {
            let seed = next.fetch_add(1, Relaxed);
            let run = record(seed, clients, each, Honesty::Honest)?;
            let tally = run
                .cut_everywhere(1, seed)
                .map_err(|failure| failure.to_string())?;
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            for (sum, more) in sum
                .iter_mut()
                .zip([tally.images, tally.again, tally.refused])
            {
                *sum += more;
            }
            bar.inc(tally.images);
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
    let [images, again, refused] = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    let runs = next.into_inner() - first;
    println!("images                                  {images:>10}");
    println!("  of restarts that were cut in turn     {again:>10}");
    println!("  refused, where durable bytes were hit {refused:>10}");
    println!("runs                                    {runs:>10}");
    println!("nothing acknowledged or shown is lost, no half transaction, all sums right");
    println!(
        "seeds {first} to {}, took {:.0?}",
        first + runs - 1,
        start.elapsed()
    );
    Ok(())
}
