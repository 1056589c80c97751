//! Kill and restart, as often as you like: `cargo run --release -p foxton-sim --example kill -- --cycles 1000`.
//!
//! Each cycle kills a process that runs a TPC-B-like load on eight threads, opens its database and
//! looks for every commit it was told of. Other arguments: `--seed N`, `--folder DIR` (default: a
//! new one under the system's temporary folder; removed when all went well).

use foxton_sim::{
    kill::{self, Plan},
    ledger::Scale,
    victim::{self, Orders},
};
use indicatif::{ProgressBar, ProgressStyle};
use std::{env, error::Error, fs, path::PathBuf, process::Command, time::Instant};

/// As the first argument it makes this program the victim.
const VICTIM: &str = "--victim";

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    if env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == VICTIM)
    {
        let orders = Orders::take(env::args_os().skip(2)).ok_or("these are no orders")?;
        return victim::run(&orders, Scale::SMALL);
    }
    let (mut cycles, mut seed, mut folder) = (100, u64::from(std::process::id()), None);
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--cycles" => cycles = value.parse()?,
            "--seed" => seed = value.parse()?,
            "--folder" => folder = Some(PathBuf::from(value)),
            _ => return Err(format!("unknown argument {argument}").into()),
        }
    }
    let folder = folder
        .unwrap_or_else(|| env::temp_dir().join(format!("foxton-kill-{}", std::process::id())));
    fs::create_dir_all(&folder)?;

    println!("{cycles} cycles, seed {seed}, in {}", folder.display());
    let style = "{bar:40} {pos}/{len} kills, {msg}, {eta} left";
    let bar = ProgressBar::new(cycles).with_style(ProgressStyle::with_template(style)?);
    let start = Instant::now();
    let me = env::current_exe()?;
    let victim = || {
        let mut command = Command::new(&me);
        command.arg(VICTIM);
        command
    };
    let done = kill::run(&Plan::new(cycles, seed), &folder, victim, |summary| {
        bar.set_position(summary.kills);
        bar.set_message(format!("{} commits found", summary.acknowledged));
    });
    bar.finish_and_clear();
    let summary =
        done.inspect_err(|_| eprintln!("the database is kept in {}", folder.display()))?;
    println!("{summary}\nno acknowledged commit lost, no half transaction, all sums right");
    println!("took {:.0?}", start.elapsed());
    Ok(fs::remove_dir_all(&folder)?)
}
