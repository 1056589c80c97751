#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]
//! The foxton command: measure the engine, inspect a database, use one by hand.
//!
//! Exit codes: 0 success; 1 a failure, or a failed check of a workload; 2 a wrong command line; 3
//! standard output could not be written; 141 its reader stopped. `check` has its own 1 and 2.

/// Standard output and standard error, which may fail.
mod output;

/// Signals that end the program.
mod signals;

/// Opening a database, with a bar.
mod opening;

/// Seconds on the command line.
mod seconds;

/// Sizes of memory.
mod size;

/// `foxton bench`.
mod bench;

/// The command line and its help.
mod arguments;

/// `foxton figure`.
mod figure;

/// `foxton reproduce`.
mod reproduce;

/// `foxton report`.
mod report;

/// `foxton results`.
mod results;

/// Opening databases that exist.
mod existing;

/// Rows outside of a database.
mod rows;

/// Locks as tables.
mod tables;

/// Numbers of rows.
mod row_count;

/// `foxton inspect`.
mod inspect;

/// `foxton check`.
mod check;

/// `foxton convert`.
mod convert;

/// `foxton drop` and `foxton truncate`.
mod drop_table;

/// `foxton backup` and `foxton restore`.
mod backup;

/// `foxton shrink`.
mod shrink;

/// `foxton dump`.
mod dump;

/// `foxton load`.
mod load;

/// A wait-for graph as SVG.
mod wait_graph_svg;

/// `foxton locks`.
mod locks;

/// `foxton top`.
mod top;

/// `foxton shell`.
mod shell;

/// `foxton clean`.
mod clean;

use std::{path::PathBuf, process::ExitCode};

use arguments::{Arguments, Command};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use output::note;

fn main() -> ExitCode {
    let parsed = Arguments::command().try_get_matches().and_then(|matches| {
        let arguments = Arguments::from_arg_matches(&matches)?;
        Ok((arguments.command, scratch_place(&matches)))
    });
    let result = match parsed {
        Ok((command, place)) => run(command, place),
        Err(instead) => return output::help_or_refusal(&instead),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            // The message has names of tables and files, which another user may have chosen.
            let lines = message.lines().map(tables::plain);
            note!("error: {}", lines.collect::<Vec<String>>().join("\n"));
            ExitCode::FAILURE
        }
    }
}

/// The argument `--dir` of the innermost command, which benchmarks and figures have for databases.
fn scratch_place(matches: &ArgMatches) -> Option<PathBuf> {
    match matches.subcommand() {
        Some((_, inner)) => scratch_place(inner),
        None => matches.try_get_one("dir").ok().flatten().cloned(),
    }
}

fn run(command: Command, place: Option<PathBuf>) -> Result<ExitCode, String> {
    if matches!(command, Command::Bench(_) | Command::Figure(_)) {
        clean::mention(place.as_deref());
        clean::before_end(place.as_deref(), None)?;
    }
    match command {
        Command::Bench(what) => bench::run(*what),
        Command::Figure(what) => figure::run(*what),
        Command::Reproduce(what) => reproduce::run(what),
        Command::Report(what) => report::run(&what),
        Command::Results(what) => results::run(&what),
        Command::Inspect { directory } => inspect::run(&directory),
        Command::Check(what) => Ok(check::run(&what)),
        Command::Convert(what) => convert::run(&what),
        Command::Truncate(what) => drop_table::truncate(&what),
        Command::Drop(what) => drop_table::drop(&what),
        Command::Backup(what) => backup::run(&what),
        Command::Restore(what) => backup::restore(&what),
        Command::Shrink(what) => shrink::run(&what),
        Command::Dump(what) => dump::run(&what),
        Command::Load(what) => load::run(&what),
        Command::Locks(what) => locks::run(&what),
        Command::Top(what) => top::run(&what),
        Command::Shell {
            directory,
            wait,
            observe,
        } => shell::run(&directory, wait, observe),
        Command::Clean(what) => clean::run(&what),
    }
}
