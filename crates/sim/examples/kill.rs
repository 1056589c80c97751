//! Kill and restart, any number of times:
//! `cargo run --release -p foxton-sim --example kill -- --cycles 1000`.
//!
//! Each cycle kills a process that runs a TPC-B-like load on eight threads, opens its database and
//! looks for every acknowledged commit. `--help` lists the other arguments.

mod common;

use common::{Arguments, Outcome, bar};
use foxton_sim::{
    ground::Firm,
    kill::{self, Plan},
    victim::{self, Honesty},
};
use std::{env, fs, path::PathBuf, process, time::Instant};

const HELP: &str = "\
Kills a process that runs a TPC-B-like load, and looks for every commit it was told of.

  --cycles N    kills [100]
  --seed N      what is drawn from [the number of this process]
  --clients N   threads of the process [8]
  --transactions N  the most that it begins before it dies [200]
  --backups yes it takes backups meanwhile; what is left of each is looked at, too
  --tables T    resident, or paged with large values [every second database is paged]
  --folder DIR  where its databases lie, in a new folder that is removed [the system's temporary one]";

fn main() -> Outcome {
    if let Some(status) = victim::taken() {
        process::exit(status);
    }
    let arguments = Arguments::read(
        0,
        &[
            "cycles",
            "seed",
            "folder",
            "clients",
            "transactions",
            "backups",
            "tables",
        ],
        HELP,
    )?;
    let cycles: u64 = arguments.get("cycles", 100)?;
    let seed: u64 = arguments.get("seed", u64::from(std::process::id()))?;
    let folder: Option<PathBuf> = arguments.find("folder")?;
    // Inside the named folder, because other files in it must not be removed.
    let folder = folder
        .unwrap_or_else(env::temp_dir)
        .join(format!("foxton-kill-{}", std::process::id()));
    fs::create_dir_all(&folder)?;

    println!("{cycles} cycles, seed {seed}, in {}", folder.display());
    let bar = bar(cycles, "kills")?;
    let start = Instant::now();
    let plan = Plan {
        clients: arguments.get("clients", 8)?,
        transactions: arguments.get("transactions", 200)?,
        backups: (arguments.get("backups", "no".to_owned())? == "yes").then_some(Honesty::Honest),
        is_paged: match arguments.get("tables", String::new())?.as_str() {
            "paged" => Some(true),
            "resident" => Some(false),
            _ => None,
        },
        ..Plan::new(cycles, seed)
    };
    let done = kill::run(&plan, &folder, &mut Firm, victim::of_myself()?, |summary| {
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
