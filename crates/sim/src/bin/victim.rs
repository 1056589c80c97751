#![forbid(unsafe_code)]
//! The process that the kill tests kill: takes its orders as arguments, and never ends by itself.

use foxton_sim::{ledger::Scale, victim};
use std::{env, process::ExitCode};

fn main() -> ExitCode {
    let Some(orders) = victim::Orders::take(env::args_os().skip(1)) else {
        eprintln!(
            "usage: victim FOLDER SEED CLIENTS honest|early|unsynced; the kill tests start it"
        );
        return ExitCode::FAILURE;
    };
    match victim::run(&orders, Scale::SMALL) {
        Ok(()) => unreachable!("clients never stop"),
        Err(error) => {
            eprintln!("{orders}: {error}");
            ExitCode::FAILURE
        }
    }
}
