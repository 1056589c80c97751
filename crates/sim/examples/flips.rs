//! Damage at rest, any number of times:
//! `cargo run --release -p foxton-sim --example flips -- --count 1000000`.
//!
//! Flips bits and bytes, zeroes and swaps sectors, cuts files short, and replaces files by foreign
//! and stale ones. The result must be refused or right. Nine of ten are single bits and bytes.

mod common;

use common::{Arguments, Outcome, bar};
use foxton::TableComponent;
use foxton_sim::{
    flip::{Answer, Harm, Original},
    ledger::mix,
};
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::Instant,
};

const HELP: &str = "\
Harms the files of a database at rest, opens them, and wants an error or the right data.

  --count N     databases to harm [100000]
  --seed N      what is drawn from [1]
  --each N      transactions in each database [30]
  --threads N   threads [2]";

/// A new database is made after this many damages.
const OF_ONE: u64 = 20_000;

fn main() -> Outcome {
    let arguments = Arguments::read(0, &["count", "seed", "each", "threads"], HELP)?;
    let (count, seed): (u64, u64) = (arguments.get("count", 100_000)?, arguments.get("seed", 1)?);
    let each = arguments.get("each", 30)?;
    let threads: u64 = arguments.get("threads", 2)?;
    let bar = bar(count, "harmed")?;
    let start = Instant::now();
    // By damage, and by result.
    let tally: [[AtomicU64; 3]; Harm::ALL.len()] = Default::default();
    let work = |thread: u64| -> Outcome {
        let mut originals = Vec::new();
        for n in (thread..count).step_by(threads as usize) {
            let of = n / OF_ONE;
            if originals.is_empty() || n % OF_ONE < threads {
                originals = Vec::new();
                for component in TableComponent::ALL {
                    for closed in [true, false] {
                        let seed = mix(seed ^ mix(of));
                        originals.push(Original::new(seed, each, closed, component)?);
                    }
                }
            }
            let draw = mix(mix(seed) ^ n);
            let harm = match draw % 10 {
                0 => Harm::ALL[(draw >> 8) as usize % Harm::ALL.len()],
                odd if odd % 2 == 1 => Harm::Bit,
                _ => Harm::Byte,
            };
            let original = &originals[(draw >> 16) as usize % originals.len()];
            let answer = original
                .harm(harm, draw)
                .map_err(|failure| format!("seed {seed}, number {n}: {failure}"))?;
            // Relaxed: counting.
            tally[harm as usize][answer as usize].fetch_add(1, Relaxed);
            bar.inc(1);
        }
        Ok(())
    };
    thread::scope(|scope| -> Outcome {
        let work = &work;
        let workers: Vec<_> = (0..threads)
            .map(|of| scope.spawn(move || work(of)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?)
    })?;
    bar.finish_and_clear();
    println!(
        "{:>12} {:>10} {:>10} {:>10}",
        "", "refused", "no effect", "end missing"
    );
    for (harm, counts) in Harm::ALL.iter().zip(&tally) {
        let of = |answer: Answer| counts[answer as usize].load(Relaxed);
        let [refused, whole, shorter] = [Answer::Refused, Answer::Whole, Answer::Shorter].map(of);
        println!(
            "{:>12} {refused:>10} {whole:>10} {shorter:>10}",
            format!("{harm:?}")
        );
    }
    println!(
        "no wrong data, no panic, no hang; took {:.0?}",
        start.elapsed()
    );
    Ok(())
}
