//! Foxton beside other engines, in harm and in speed.
//!
//! A crate outside the workspace, since what it compares with is not in the default build. The
//! feature `native` adds the engines that come with the system; the others Cargo builds.

/// Rows that every engine gets, and what may be found of them.
mod rows;

/// The engines that are harmed: how each is filled, and how it is read.
mod engine;

/// Files, and what is done to them.
mod harm;

/// Harmed files, opened and read.
mod flips;

/// Commands.
mod arguments;

/// Clients in a closed loop.
mod driver;

/// Output.
mod told;

/// The same transactions, and how many a second.
mod speed;

/// Data that are larger than memory, which is the same for each engine.
mod beyond;

/// The same transactions on servers.
#[cfg(feature = "servers")]
mod served;

use clap::{Parser, Subcommand};
use std::{error::Error, process};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Foxton beside other engines.
#[derive(Debug, Parser)]
#[command(name = "foxton-peers")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Harms files of small databases of several engines, opens and reads them, and counts the
    /// answers.
    Flips(flips::Plan),
    /// Runs the same transactions on several engines, and prints how many a second.
    Speed(speed::Plan),
    /// Reads and updates rows of data four times as large as memory, here and on LMDB, and prints
    /// the ratios.
    Beyond(beyond::Plan),
    /// Runs transactions of several statements here and on database servers, which it starts, over
    /// a socket.
    #[cfg(feature = "servers")]
    Served(served::Plan),
    /// The process that `flips` starts for each harmed database.
    #[command(name = flips::CHILD, hide = true)]
    Read(flips::Orders),
}

fn main() -> Outcome {
    match Arguments::parse().what {
        What::Flips(plan) => flips::run(&plan),
        What::Speed(plan) => speed::run(&plan),
        What::Beyond(plan) => beyond::run(&plan),
        #[cfg(feature = "servers")]
        What::Served(plan) => served::run(&plan),
        What::Read(orders) => process::exit(flips::child(&orders)?),
    }
}

/// The version of a crate in the lock file.
fn locked(name: &str) -> &'static str {
    let file = include_str!("../Cargo.lock");
    let name = format!("name = \"{name}\"\nversion = \"");
    let version = file.split_once(&name).map(|(_, rest)| rest);
    version
        .and_then(|rest| rest.split('"').next())
        .unwrap_or("?")
}
