//! Foxton beside other engines: `cargo run --release --manifest-path peers/Cargo.toml -- flips`.
//!
//! A crate outside the workspace, since what it compares with is not in the default build.

/// Rows that every engine gets, and what may be found of them.
mod rows;

/// The engines: how each is filled, and how it is read.
mod engine;

/// Files, and what is done to them.
mod harm;

/// Harmed files, opened and read.
mod flips;

use std::{env, error::Error, path::PathBuf, process, str::FromStr};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const HELP: &str = "\
foxton-peers flips [--count N] [--seed N] [--threads N] [--engine NAME] [--folder DIR]

Harms files of small databases of several engines, opens and reads them, and counts the answers.

  --count N     databases of each engine for each harm [1000]
  --seed N      what is drawn from [1]
  --threads N   databases that are looked at at once [2]
  --engine NAME only this one
  --folder DIR  where they lie [the system's temporary folder]";

fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.split_first() {
        Some((&flips::CHILD, orders)) => process::exit(flips::child(orders)?),
        Some((&"flips", options)) => flips::run(&plan(options)?),
        _ => {
            println!("{HELP}");
            Ok(())
        }
    }
}

fn plan(options: &[&str]) -> Outcome<flips::Plan> {
    fn number<T: FromStr<Err: Error + Send + Sync + 'static>>(text: &str) -> Outcome<T> {
        Ok(text.parse()?)
    }
    let mut plan = flips::Plan {
        count: 1_000,
        seed: 1,
        threads: 2,
        engine: None,
        folder: env::temp_dir(),
    };
    for pair in options.chunks(2) {
        match pair {
            ["--count", text] => plan.count = number(text)?,
            ["--seed", text] => plan.seed = number(text)?,
            ["--threads", text] => plan.threads = number(text)?,
            ["--engine", name] => plan.engine = Some((*name).to_owned()),
            ["--folder", path] => plan.folder = PathBuf::from(path),
            _ => return Err(format!("what is {pair:?}?\n\n{HELP}").into()),
        }
    }
    Ok(plan)
}
