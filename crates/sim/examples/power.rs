//! Real power cuts of a real file system, for root:
//! `cargo run --release -p foxton-sim --example power -- --fs ext4 --count 5000`.
//!
//! As the example `kill`, on ext4 or XFS in a file. When the process is dead, the file system is
//! shut down without writing anything more, mounted again, and checked. `--sync no` is the control:
//! the process then acknowledges *sync* commits that it never synced, and some must be missing.

mod common;

use common::{Arguments, Outcome, bar};
use foxton_sim::{
    kill::{self, Plan},
    loop_mount::{FileSystem, PowerCut},
    victim::{self, Honesty},
};
use std::{env, fs, path::PathBuf, process, time::Instant};

const HELP: &str = "\
Kills a process under load, cuts the power of the file system below it, and looks for every commit.

  --fs NAME     ext4 or xfs [ext4]
  --count N     power cuts [100]
  --seed N      what is drawn from [the number of this process]
  --clients N   threads of the process [8]
  --transactions N  the most that a process begins before it dies [200]
  --backups yes the process takes backups meanwhile; what is left of each is looked at, too
  --sync no     the control: nothing is synced, and that must be noticed
  --folder DIR  where images lie, in a new folder that is removed [the system's temporary one]";

fn main() -> Outcome {
    if let Some(status) = victim::taken() {
        process::exit(status);
    }
    let known = [
        "fs",
        "count",
        "seed",
        "clients",
        "transactions",
        "sync",
        "folder",
        "backups",
    ];
    let arguments = Arguments::read(0, &known, HELP)?;
    let system: FileSystem = arguments.get("fs", FileSystem::Ext4)?;
    let (count, seed) = (
        arguments.get("count", 100)?,
        arguments.get("seed", u64::from(std::process::id()))?,
    );
    let is_control = arguments.get("sync", "yes".to_owned())? == "no";
    let name = format!("foxton-power-{}", std::process::id());
    let folder: Option<PathBuf> = arguments.find("folder")?;
    // Inside the named folder, because other files in it must not be removed.
    let folder = folder.unwrap_or_else(env::temp_dir).join(name);
    fs::create_dir_all(&folder)?;
    if let Err(why) = PowerCut::is_possible(system, &folder) {
        fs::remove_dir_all(&folder)?;
        return Err(format!("this machine cannot cut the power of {system}: {why}").into());
    }
    println!(
        "{count} power cuts of {system}, seed {seed}, in {}",
        folder.display()
    );
    let plan = Plan {
        clients: arguments.get("clients", 8)?,
        backups: (arguments.get("backups", "no".to_owned())? == "yes").then_some(Honesty::Honest),
        transactions: arguments.get("transactions", 200)?,
        honesty: if is_control {
            Honesty::Unsynced
        } else {
            Honesty::Honest
        },
        ..Plan::new(count, seed)
    };
    let bar = bar(count, "power cuts")?;
    let start = Instant::now();
    let mut ground = PowerCut::new(system, &folder);
    let done = kill::run(
        &plan,
        &folder,
        &mut ground,
        victim::of_myself()?,
        |summary| {
            bar.set_position(summary.kills);
            bar.set_message(format!("{} commits found", summary.acknowledged));
        },
    );
    bar.finish_and_clear();
    let outcome = match (is_control, done) {
        (false, Ok(summary)) => {
            println!("{summary}\nno acknowledged commit lost, no half transaction, all sums right");
            Ok(())
        }
        (true, Err(failure)) if failure.faults.iter().all(|fault| fault.starts_with("I1")) => {
            println!("without syncs commits are lost, and this is found: {failure}");
            Ok(())
        }
        (true, Ok(_)) => {
            Err("nothing was synced, but nothing was lost: these are no power cuts".into())
        }
        (_, Err(failure)) => Err(failure.into()),
    };
    println!("took {:.0?}", start.elapsed());
    drop(ground);
    if outcome.is_ok() {
        fs::remove_dir_all(&folder)?;
    }
    outcome
}
