//! Faults at the k-th system call, with `strace`:
//! `cargo run --release -p foxton-sim --example calls`.
//!
//! Every call that changes or reads a database directory is tested, for each kind of file, and for
//! k from 1 until there are no more such calls. The victim is killed there, or the call fails with
//! each error that it may have, once and for ever. Then every commit is looked for.

mod common;

use common::{Arguments, Outcome, bar};
use foxton_sim::{
    calls::{Blow, End, Rig, aims, folder, is_possible},
    kill::Summary,
    ledger::mix,
    victim::{self, Honesty},
};
use std::{fs, path::PathBuf, process, time::Instant};

const HELP: &str = "\
Kills a process at its k-th system call, or has the call fail, and looks for every commit.

  --most N      the largest k [12]
  --step N      k grows by so much; where it begins is drawn [1]
  --kills only  no calls that fail
  --seed N      what is drawn from [1]
  --clients N   threads of the process [4]
  --each N      transactions of each [25]
  --folder DIR  where databases lie, in a new folder that is removed [the system's temporary one]";

fn main() -> Outcome {
    if let Some(status) = victim::taken() {
        process::exit(status);
    }
    let known = ["most", "step", "kills", "seed", "clients", "each", "folder"];
    let arguments = Arguments::read(0, &known, HELP)?;
    let (most, step): (u64, u64) = (arguments.get("most", 12)?, arguments.get("step", 1)?);
    let seed: u64 = arguments.get("seed", 1)?;
    let kills_only = arguments.get("kills", "all".to_owned())? == "only";
    if let Err(why) = is_possible() {
        return Err(format!("this needs strace, and permission to trace: {why}").into());
    }
    let rig = Rig {
        folder: folder(arguments.find::<PathBuf>("folder")?)?,
        clients: arguments.get("clients", 4)?,
        each: arguments.get("each", 25)?,
        honesty: Honesty::Honest,
        victim: victim::of_myself()?,
    };
    let mut aims = aims();
    aims.retain(|aim| aim.blow == Blow::Kill || !kills_only);
    println!("{} kinds of case, seed {seed}", aims.len());
    let (bar, start) = (bar(aims.len() as u64, "kinds")?, Instant::now());
    let (mut summary, mut ends) = (Summary::default(), [0_u64; 4]);
    for (number, &aim) in (0..).zip(&aims) {
        let first = 1 + mix(seed ^ mix(number)) % step;
        for nth in (first..=most).step_by(step as usize) {
            bar.set_message(format!("{aim}, call {nth}"));
            // Other options for each; those with checkpoints, which make all kinds of calls.
            let first_seed = mix(seed ^ mix(number) ^ nth) >> 1;
            let often = |&seed: &u64| victim::options(seed).checkpoint_log_bytes < u64::MAX;
            let seed = (first_seed..).find(often).unwrap_or(first_seed);
            let end = rig.play(aim, nth, seed, &mut summary);
            let end = end.inspect_err(|_| {
                eprintln!("the database is kept in {}", rig.folder.display());
            })?;
            ends[end as usize] += 1;
            // Threads are scheduled differently each time: one miss is not yet the end.
            if end == End::Missed && nth > 6 {
                break;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let [killed, refused, went_on, missed] = ends;
    println!("killed                       {killed:>8}");
    println!("failed, and reported it      {refused:>8}");
    println!("continued                    {went_on:>8}");
    println!("made no such call            {missed:>8}");
    println!("checked                      {:>8}", summary.kills);
    println!("acknowledged commits, found  {:>8}", summary.acknowledged);
    println!("no acknowledged commit lost, no half transaction, all sums right, no panic, no hang");
    println!("took {:.0?}", start.elapsed());
    Ok(fs::remove_dir_all(&rig.folder)?)
}
