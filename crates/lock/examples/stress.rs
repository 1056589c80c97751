//! The stress test, for any duration: `cargo run --release -p foxton-lock --example stress --
//! --seconds 60 --threads 512 --keys 64`. With `--locks staged` all the time goes to one manager,
//! with `--latch elided:rtm,elided:hle` to the managers over these latches.

use foxton_lock::any::{Inheritance, ManagerKind, Options};
use foxton_sync::latch;
use std::{fmt::Display, str::FromStr, time::Duration};

#[path = "../tests/stress/run.rs"]
mod run;

/// Returns the number after `--name`, or the default.
fn number(name: &str, default: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments
        .nth(1)
        .map_or(default, |value| value.parse().expect("a number"))
}

/// Returns the values named after `name`, or all of them.
fn named<T: FromStr<Err: Display> + Clone>(name: &str, all: &[T]) -> Vec<T> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).map_or(all.to_vec(), |names| {
        let one = |name: &str| name.parse().unwrap_or_else(|error| panic!("{error}"));
        names.split(',').map(one).collect()
    })
}

const USAGE: &str = "every lock manager under every latch, by many threads and then by many tasks
usage: stress [--locks NAME,...] [--latch NAME,...] [--seconds 30] [--threads 512] [--keys 64] [--seed 1]
  --seconds is for all of it together; a violation, a hang or a lost wake-up ends it with a panic";

fn main() {
    let known = [
        "--locks",
        "--latch",
        "--seconds",
        "--threads",
        "--keys",
        "--seed",
    ];
    if let Some(unknown) =
        (std::env::args().skip(1).step_by(2)).find(|name| !known.contains(&name.as_str()))
    {
        eprintln!("{unknown}?\n{USAGE}");
        std::process::exit(2);
    }
    let seconds = number("--seconds", 30);
    let (threads, keys) = (
        number("--threads", 512) as usize,
        number("--keys", 64) as usize,
    );
    let mut pairs = Vec::new();
    let latches = named("--latch", &latch::Kind::ALL);
    for kind in named("--locks", &ManagerKind::ALL) {
        match kind {
            // It has a mutex of its own, whatever the latch.
            ManagerKind::Reference if latches.contains(&latch::Kind::Parking) => {
                pairs.push((kind, latch::Kind::Parking));
            }
            ManagerKind::Reference => {}
            kind => pairs.extend(latches.iter().map(|&latch| (kind, latch))),
        }
    }
    if pairs.is_empty() {
        eprintln!("the reference has a mutex of its own, which goes by parking\n{USAGE}");
        std::process::exit(2);
    }
    let inherited = [Inheritance::Off, Inheritance::Hot, Inheritance::Always];
    let duration = Duration::from_secs(seconds) / (pairs.len() * inherited.len()) as u32 / 2;
    let pairs = pairs.into_iter();
    for ((kind, latch), inherit) in pairs.flat_map(|pair| inherited.map(|inherit| (pair, inherit)))
    {
        let mut options = Options::default();
        (options.kind, options.latch, options.inherit) = (kind, latch, inherit);
        let seed = number("--seed", 1);
        let mut settings = run::Settings {
            options,
            threads,
            keys,
            duration,
            seed,
        };
        println!(
            "{kind:<9} over {latch:<7} inherit {inherit:<6} threads: {}",
            run::threads(&settings)
        );
        settings.threads = threads.min(16);
        println!(
            "{kind:<9} over {latch:<7} inherit {inherit:<6} tasks:   {}",
            run::tasks(&settings)
        );
    }
}
