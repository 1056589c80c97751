//! The command line, and the help that teaches it.

use std::path::PathBuf;

/// The verbs that look after a database.
mod care;

pub(crate) use care::{Backup, Check, Dump, Load, Restore, RowFormat};

use clap::{Args, Parser, Subcommand};
use foxton::{LatchKind, VictimPolicy};
use foxton_lab::system::Locks;

use crate::{bench::Bench, output::results_place, seconds::seconds};

/// An embeddable transactional storage engine: try it by hand, look into a database, measure it.
#[derive(Debug, Parser)]
#[command(name = "foxton", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  foxton bench txbench                 the curve of throughput over clients, in about three minutes
  foxton figure 000-fig12              a figure of the literature, repeated here
  foxton reproduce                     all of them in a brief form, one report
  foxton report results/A results/B    two runs compared, with intervals
  foxton shell /tmp/play               put and get by hand, and watch one session wait for another
  foxton inspect /tmp/play             which tables a database has, how large, and its log
  foxton check /tmp/play               whether every byte that matters is what was written
  foxton backup /tmp/play /tmp/copy    a copy that is whole, whether or not a process has it open
  foxton dump /tmp/play > play.jsonl   its rows as text, and `foxton load` takes them in again
  foxton top /tmp/play                 watch a database that another process has open
  foxton locks /tmp/play               who holds and awaits what in it, now";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure the engine, check what it did, and draw the result.
    #[command(
        subcommand,
        after_help = "Tables and figures of the literature, wisconsin, latch-cost and overlap among them: foxton figure"
    )]
    Bench(Box<Bench>),
    /// Repeat a figure of the documents the engine is built after, theirs beside ours.
    ///
    /// Without a name, lists the figures. Each has a quick form of a minute or a few; --full has
    /// the windows and repetitions of the document, which can be days.
    Figure(Box<Figure>),
    /// Repeat all figures in a brief form, and write one report.
    ///
    /// For each figure the report says in a sentence whether the document's shape was found. A
    /// figure that cannot be made here or that fails says so and holds up no other. What is done is
    /// kept: after an interruption, the same command with the same --out goes on where it stopped.
    Reproduce(Reproduce),
    /// Compare two runs: medians, ratios with their intervals, and a word for each point.
    ///
    /// Points belong together if experiment, system and number of clients are the same. Runs that
    /// were asked differently (other rows, another durability) are refused; machines and versions
    /// may differ, and are named. The interval of B ÷ A is a bootstrap of the repeated passes with
    /// a fixed seed.
    Report(Report),
    /// Say what is in a database: tables, sizes, the state of the log.
    #[command(after_help = "\
A database that is open elsewhere is refused. The checkpoint and the log of one that was closed are
the same byte for byte afterwards; after a crash the end of the log is made fit to be written on, as
by any opening.

Example:
  foxton inspect /tmp/play")]
    Inspect {
        /// The database's directory.
        directory: PathBuf,
    },
    /// Look at every byte of a database that matters, and name what is wrong and where.
    Check(Check),
    /// Copy a database while it is used, to a directory that `foxton restore` takes.
    Backup(Backup),
    /// Make a database of a backup.
    Restore(Restore),
    /// Write the rows of a database as text: JSON lines, or comma-separated values.
    Dump(Dump),
    /// Take in rows from text, as `foxton dump` or anybody else wrote them.
    Load(Load),
    /// Show who holds and awaits what in a database that a running process has open.
    ///
    /// The process must have opted in: a program by `options.observe`, `foxton bench` by
    /// `--observe DIR`, `foxton shell` by `--observe`.
    #[command(after_help = "\
Examples:
  foxton locks /tmp/play
  foxton locks /tmp/play --svg > waits.svg      who waits for whom, to look at in a browser
  foxton locks /tmp/play --dot | dot -Tpdf > waits.pdf
  foxton locks /tmp/play --deadlock --svg > deadlock.svg
  foxton locks /tmp/play --json | jq '.labels[0]'")]
    Locks(LocksView),
    /// Watch a database that a running process has open: throughput, waits, hot names, deadlocks.
    ///
    /// The process must have opted in, as for `foxton locks`.
    #[command(after_help = "\
Keys: q quit, space pause, s sort the waits, 1 to 5 pages, up and down to scroll, + and - faster and
slower.

Examples:
  foxton top /tmp/play
  foxton top /tmp/play --once                   one frame as plain text, for a file or a mail
  foxton bench txbench --updates 20 --hotspot --locks default --observe /tmp/watch &
  foxton top /tmp/watch")]
    Top(Top),
    /// Try a database by hand: get, put, delete, scan, begin, commit, roll back, see locks.
    #[command(after_help = "\
Statements come from the keyboard or from a pipe, one a line; `help` lists them. Several sessions
live side by side: `@b get accounts 1` runs in session b. A session that waits for a lock does not
hold up the others, so one keyboard can show a conflict:

  $ foxton shell /tmp/play
  a> put accounts 1 100
  a> begin
  a> put accounts 1 90
  a> @b get accounts 1
  b waits for S on accounts/1, held by a
  a> commit
  b: 90

A command that fails makes a piped shell end with exit code 1 once its input is done.

Examples:
  foxton shell /tmp/play
  printf 'put fruit apple red\\nscan fruit\\n' | foxton shell /tmp/play")]
    Shell {
        /// The database's directory; it is created if it is not there.
        directory: PathBuf,
        /// How long a session waits for a lock before it gives up, in seconds.
        #[arg(long, default_value_t = 60.0, value_parser = seconds)]
        wait: f64,
        /// Let `foxton top` and `foxton locks` look in from another terminal.
        #[arg(long)]
        observe: bool,
    },
}

/// The arguments of `locks`.
#[derive(Debug, Args)]
pub(crate) struct LocksView {
    /// The database's directory, or the socket it is observed by.
    pub(crate) directory: PathBuf,
    /// Write the wait-for graph for Graphviz.
    #[arg(long, conflicts_with_all = ["svg", "json"])]
    pub(crate) dot: bool,
    /// Draw the wait-for graph, as a file that a browser shows.
    #[arg(long, conflicts_with = "json")]
    pub(crate) svg: bool,
    /// Everything that can be seen, for programs.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the latest deadlock instead of who waits now.
    #[arg(long, conflicts_with = "json")]
    pub(crate) deadlock: bool,
    /// List every lock that is held, not only the first fifty.
    #[arg(long)]
    pub(crate) all: bool,
}

/// The arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The database's directory, or the socket it is observed by.
    pub(crate) directory: PathBuf,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) every: f64,
    /// Print one frame as plain text and end.
    #[arg(long)]
    pub(crate) once: bool,
    /// Which page to begin with: 1 all, 2 waits, 3 holders, 4 tables and labels, 5 deadlocks.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) page: u8,
    /// The size of the frame that --once prints, as COLUMNSxROWS.
    #[arg(long, default_value = "80x24", value_parser = size)]
    pub(crate) size: (u16, u16),
}

/// The arguments of `figure`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton figure
      all figures, with a sentence each
  foxton figure 000-fig12
      every lock manager over 1 to 500 clients, quickly
  foxton figure 000-fig12 --locks global,bucket --seconds 2
      only these, each point for two seconds
  foxton figure 001
      all of document 001, one after the other
  foxton figure 000-fig16 --full
      as the document has it: a thousand seconds for each")]
pub(crate) struct Figure {
    /// Which figure, or the number of a document for all of it; without it they are listed.
    pub(crate) id: Option<String>,
    /// With the windows and repetitions of the document. The time it takes is said first.
    #[arg(long)]
    pub(crate) full: bool,
    /// Lock managers to compare, separated by commas, as in `foxton bench` [default: all that fit
    /// the figure].
    #[arg(long, value_delimiter = ',')]
    pub(crate) locks: Vec<Locks>,
    /// Latches to compare under each lock manager named by --locks.
    #[arg(long, value_delimiter = ',', requires = "locks")]
    pub(crate) latch: Vec<LatchKind>,
    /// Who of a deadlock gives way under each lock manager named by --locks: least-work, youngest,
    /// requester.
    #[arg(long, value_delimiter = ',', requires = "locks")]
    pub(crate) victim: Vec<VictimPolicy>,
    /// Numbers of clients, separated by commas [default: the figure's].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) mpl: Vec<u32>,
    /// Seconds of each measurement [default: the figure's].
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Seconds clients run before each measurement [default: the figure's].
    #[arg(long, value_parser = seconds)]
    pub(crate) ramp: Option<f64>,
    /// Times each point is measured [default: the figure's].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: Option<u32>,
    /// Rows of each table, of TATP subscribers [default: the figure's].
    #[arg(long, value_parser = clap::value_parser!(u32).range(2_000..=10_000_000))]
    pub(crate) rows: Option<u32>,
    /// Where the databases measured lie while they are.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Where the results go [default: results/figure-ID-TIME].
    #[arg(long, value_parser = results_place)]
    pub(crate) out: Option<PathBuf>,
}

/// The arguments of `reproduce`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton reproduce
      every figure, into results/reproduce-TIME
  foxton reproduce --out mine
      into a directory of its own; said again, it goes on where it was interrupted
  foxton reproduce --only 000-fig12,003-table3
      these two
  foxton reproduce --tiny
      everything in the smallest form: a look at the report, and no numbers
  cargo run --release --features account -- reproduce --out mine
      in a clone: adds the figures that need a program that counts critical sections, and keeps the rest

`just reproduce`, in a clone, is both: every figure in results/reproduce, none measured while it counts.")]
pub(crate) struct Reproduce {
    /// Only these figures, separated by commas; `foxton figure` lists all.
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    pub(crate) only: Vec<String>,
    /// Say which figures these are and how many seconds each is to take, and make none.
    #[arg(long)]
    pub(crate) list: bool,
    /// In the smallest form there is, a second or a few for each: nothing that it finds means
    /// anything.
    #[arg(long)]
    pub(crate) tiny: bool,
    /// Where the databases measured lie while they are [default: beside the report; removed at the
    /// end, and what an interruption leaves when the command is said again].
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Where the report goes [default: results/reproduce-TIME].
    #[arg(long, value_parser = results_place)]
    pub(crate) out: Option<PathBuf>,
}

/// The arguments of `report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench txbench --reps 7 --out before
      then change something, and
  foxton bench txbench --reps 7 --out after
  foxton report before after
      what became faster or slower, point by point
  foxton report before after --html compared.html
      the same as a page")]
pub(crate) struct Report {
    /// The first run: a directory of results, or its results.json.
    #[arg(value_name = "A")]
    pub(crate) first: PathBuf,
    /// The second run, which is divided by the first.
    #[arg(value_name = "B")]
    pub(crate) second: PathBuf,
    /// Write the comparison as a page, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let parts = text.split_once('x');
    let size = parts.and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
    match size {
        Some((columns @ 20..=1_000, rows @ 6..=1_000)) => Ok((columns, rows)),
        _ => Err("say columns and rows, at least 20x6, such as 80x24".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
