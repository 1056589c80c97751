//! Command line and its help.

use std::path::PathBuf;

/// Commands that look after a database.
mod care;

pub(crate) use care::{
    Backup, Check, Component, Convert, DropTable, Dump, Load, Restore, RowFormat, Shrink,
};

use clap::{Args, Parser, Subcommand};
use foxton::{LatchKind, TableComponent, VictimPolicy};
use foxton_lab::system::{Locks, tables};

use crate::{bench::Bench, output::results_place, seconds::seconds, size::size};

/// An embeddable transactional storage engine: try it by hand, look into a database, measure it.
#[derive(Debug, Parser)]
#[command(name = "foxton", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  foxton bench txbench                 throughput over clients, in about three minutes
  foxton figure 000-fig12              a figure of the literature, repeated here
  foxton reproduce                     all figures in a brief form, in one report
  foxton report results/A results/B    two runs compared, with intervals
  foxton results render                in a clone: the published numbers, rendered from their records
  foxton shell /tmp/play               put and get by hand, and watch one session wait for another
  foxton inspect /tmp/play             a database's tables, their sizes, and its log
  foxton check /tmp/play               compare every checksum of a database
  foxton convert /tmp/play fruit paged  a table that may become larger than memory
  foxton backup /tmp/play /tmp/copy    a consistent copy, even while a process has it open
  foxton shrink /tmp/play              give the space of deleted rows back to the file system
  foxton dump /tmp/play > play.jsonl   its rows as text, which `foxton load` reads
  foxton top /tmp/play                 watch a database that another process has open
  foxton locks /tmp/play               its locks, their holders and waiters, now
  foxton clean                         remove databases that killed benchmarks have left

Exit codes: 0 success; 1 a failure; 2 a wrong command line; 3 standard output could not be written;
141 its reader stopped. `foxton check` has its own meanings of 1 and 2.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure the engine, check its results, and draw them.
    #[command(
        subcommand,
        after_help = "For tables and figures of the literature, among them wisconsin, latch-cost and overlap, see: foxton figure"
    )]
    Bench(Box<Bench>),
    /// Repeat a figure of the literature: the document's numbers beside ours.
    ///
    /// Without a name, lists the figures. Each has a quick form of a few minutes. --full uses the
    /// windows and repetitions of the document, which can take days.
    Figure(Box<Figure>),
    /// Repeat all figures in a brief form, and write one report.
    ///
    /// For each figure the report says whether the document's shape is reproduced: what was
    /// measured, and what was expected. A figure that cannot be made here or that fails does not
    /// stop the others. Finished figures are kept: after an interruption, the same command with the
    /// same --out resumes.
    Reproduce(Reproduce),
    /// Compare two runs: medians, ratios with their intervals, and a verdict for each point.
    ///
    /// Points are compared if experiment, system and number of clients are the same. Runs with
    /// other settings (other rows, another durability) are refused; machines and versions may
    /// differ, and are named. The interval of B ÷ A is a bootstrap of the repeated passes with a
    /// fixed seed.
    Report(Report),
    /// Render the published numbers from their records, or check that this was done.
    ///
    /// Each published number is in a JSON file of docs/results. The page RESULTS.md and the table
    /// of the README are rendered from these files and never edited by hand.
    #[command(subcommand)]
    Results(Results),
    /// Show a database's tables, their numbers of rows, and the state of its log.
    #[command(after_help = "\
Rows are counted, not estimated.

A database that another process has open is refused. If the database was closed, its checkpoint and
log stay the same byte for byte. After a crash, the end of the log is repaired for writing, as by
any opening.

Example:
  foxton inspect /tmp/play")]
    Inspect {
        /// The database's directory.
        directory: PathBuf,
    },
    /// Compare every checksum of a database, and name each damage and its place.
    Check(Check),
    /// Move the rows of a table from memory to pages, or back.
    Convert(Convert),
    /// Remove all rows of a table; the table stays.
    #[command(after_help = "\
One record empties the table, however many rows it has, and a kill leaves it as it was or
empty. Its indexes stay. The space of the rows goes to later rows of any table; `foxton
shrink` gives it back to the file system.

Without --yes the command counts the rows and changes nothing. They cannot be brought back
but from a backup.

No other process may have the database open. A program that has it open calls
`db.truncate(&TABLE)`.

Examples:
  foxton backup /var/lib/shop /backups/shop-monday
  foxton truncate /var/lib/shop events                how many rows?
  foxton truncate /var/lib/shop events --yes")]
    Truncate(DropTable),
    /// Drop a table, with its rows and its indexes.
    #[command(after_help = "\
One record drops the table, however many rows it has, and a kill leaves it as it was or
gone. Its name is free for another table, of other types too. The space of the rows goes
to later rows of any table; `foxton shrink` gives it back to the file system.

A program that writes to a table of that name makes one. A database has at most 4,096
tables in its life, dropped ones included, so to empty a table use `foxton truncate`.

Without --yes the command counts the rows and changes nothing. They cannot be brought back
but from a backup.

No other process may have the database open. A program that has it open calls
`db.drop_table(NAME)`.

Examples:
  foxton inspect /var/lib/shop                        which tables are there?
  foxton drop /var/lib/shop events --yes
  foxton shrink /var/lib/shop")]
    Drop(DropTable),
    /// Copy a database while it is used; `foxton restore` takes the copy.
    Backup(Backup),
    /// Create a database from a backup.
    Restore(Restore),
    /// Make the file of the paged tables as short as its rows allow.
    Shrink(Shrink),
    /// Write the rows of a database as text: JSON lines, or comma-separated values.
    Dump(Dump),
    /// Load rows from text, in the format of `foxton dump`.
    Load(Load),
    /// Show the locks of a database that a running process has open: holders and waiters.
    ///
    /// The process must allow it: a program by `options.observe`, `foxton bench` by `--observe
    /// DIR`, `foxton shell` by `--observe`.
    #[command(after_help = "\
Examples:
  foxton locks /tmp/play
  foxton locks /tmp/play --svg > waits.svg      the wait-for graph, for a browser
  foxton locks /tmp/play --dot | dot -Tpdf > waits.pdf
  foxton locks /tmp/play --deadlock --svg > deadlock.svg
  foxton locks /tmp/play --json | jq '.labels[0]'")]
    Locks(LocksView),
    /// Watch a database that a running process has open: throughput, waits, hot names, deadlocks.
    ///
    /// The process must allow it, as for `foxton locks`.
    #[command(after_help = "\
Keys: q quit, space pause, s sort the waits, 1 to 5 pages, up and down scroll, + and - change the
speed.

Examples:
  foxton top /tmp/play
  foxton top /tmp/play --once                   one frame as plain text, for a file or an email
  foxton bench txbench --updates 20 --hotspot --locks default --observe /tmp/watch &
  foxton top /tmp/watch")]
    Top(Top),
    /// Use a database by hand: get, put, delete, scan, begin, commit, roll back, show locks.
    #[command(after_help = "\
Statements come from the keyboard or from a pipe, one on each line; `help` lists them. There can be
several sessions: `@b get accounts 1` runs in session b. A session that waits for a lock does not
block the others, so one keyboard can show a conflict:

  $ foxton shell /tmp/play
  a> put accounts 1 100
  a> begin
  a> put accounts 1 90
  a> @b get accounts 1
  b waits for S on accounts/1, held by a
  a> commit
  b: 90

If a statement of a piped shell fails, the rest is still done, and the exit code is 1.

Examples:
  foxton shell /tmp/play
  printf 'put fruit apple red\\nscan fruit\\n' | foxton shell /tmp/play")]
    Shell {
        /// The database's directory; it is created if it does not exist.
        directory: PathBuf,
        /// Seconds a session waits for a lock before it gives up.
        #[arg(long, default_value_t = 60.0, value_parser = seconds)]
        wait: f64,
        /// Allow `foxton top` and `foxton locks` from another terminal.
        #[arg(long)]
        observe: bool,
    },
    /// Remove databases that killed benchmarks have left.
    ///
    /// A benchmark removes its databases when it ends, also by Control-C. One that was killed
    /// cannot. Databases of benchmarks that still run are neither listed nor removed.
    #[command(after_help = "\
Examples:
  foxton clean                 list them, and ask
  foxton clean --yes           remove them
  foxton clean /data/scratch   those of benchmarks with --dir /data/scratch")]
    Clean(Clean),
}

/// The arguments of `clean`.
#[derive(Debug, Args)]
pub(crate) struct Clean {
    /// Directories in which benchmarks made databases [default: the system's directory for
    /// temporary files].
    #[arg(value_name = "DIR")]
    pub(crate) places: Vec<PathBuf>,
    /// Remove them without asking.
    #[arg(long, short, visible_short_alias = 'f')]
    pub(crate) yes: bool,
    /// Remove those of this process, and let this signal end it.
    #[arg(long, hide = true)]
    pub(crate) after_signal: Option<i32>,
    /// A directory that was made for databases, to be removed if it is empty.
    #[arg(long, hide = true)]
    pub(crate) made: Vec<PathBuf>,
}

/// The arguments of `locks`.
#[derive(Debug, Args)]
pub(crate) struct LocksView {
    /// The database's directory, or its socket.
    pub(crate) directory: PathBuf,
    /// Write the wait-for graph for Graphviz.
    #[arg(long, conflicts_with_all = ["svg", "json"])]
    pub(crate) dot: bool,
    /// Draw the wait-for graph as a file for a browser.
    #[arg(long, conflicts_with = "json")]
    pub(crate) svg: bool,
    /// Write everything that can be seen, for programs.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the latest deadlock instead of the current waits.
    #[arg(long, conflicts_with = "json")]
    pub(crate) deadlock: bool,
    /// List every lock held, not only the first fifty.
    #[arg(long)]
    pub(crate) all: bool,
}

/// The arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The database's directory, or its socket.
    pub(crate) directory: PathBuf,
    /// Seconds between two updates.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) every: f64,
    /// Print one frame as plain text and exit.
    #[arg(long)]
    pub(crate) once: bool,
    /// The first page: 1 all, 2 waits, 3 holders, 4 tables and labels, 5 deadlocks.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) page: u8,
    /// The size of the frame that --once prints, as COLUMNSxROWS.
    #[arg(long, default_value = "80x24", value_parser = frame_size)]
    pub(crate) size: (u16, u16),
}

/// The arguments of `figure`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton figure
      list all figures, with a sentence each
  foxton figure 000-fig12
      every lock manager over 1 to 500 clients, in the quick form
  foxton figure 000-fig12 --locks global,bucket --seconds 2
      only these two, each point for two seconds
  foxton figure 001
      all of document 001, one after the other
  foxton figure 003 --tables memory,paged --page-memory 64MiB
      document 003 over both components of tables, side by side
  foxton figure 000-fig16 --full
      the document's form: a thousand seconds for each system")]
pub(crate) struct Figure {
    /// The figure, or the number of a document for all its figures; without it they are listed.
    pub(crate) id: Option<String>,
    /// Use the windows and repetitions of the document. The time is printed first.
    #[arg(long)]
    pub(crate) full: bool,
    /// Lock managers to compare, separated by commas, as in `foxton bench` [default: all that fit
    /// the figure].
    #[arg(long, value_delimiter = ',')]
    pub(crate) locks: Vec<Locks>,
    /// Latches to compare, with each lock manager of --locks.
    #[arg(long, value_delimiter = ',', requires = "locks")]
    pub(crate) latch: Vec<LatchKind>,
    /// The victim of a deadlock, with each lock manager of --locks: least-work, youngest,
    /// requester.
    #[arg(long, value_delimiter = ',', requires = "locks")]
    pub(crate) victim: Vec<VictimPolicy>,
    /// Numbers of clients, separated by commas [default: the figure's].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) mpl: Vec<u32>,
    /// Seconds of each measurement [default: the figure's].
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Seconds that clients run before each measurement [default: the figure's].
    #[arg(long, value_parser = seconds)]
    pub(crate) ramp: Option<f64>,
    /// Number of times each point is measured [default: the figure's].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: Option<u32>,
    /// Rows of each table; for TATP, subscribers [default: the figure's].
    #[arg(long, value_parser = clap::value_parser!(u32).range(2_000..=10_000_000))]
    pub(crate) rows: Option<u32>,
    /// Components of the tables, separated by commas to compare: memory, or paged, in pages of a
    /// file. For the figures of document 003, whose engine has two components as well [default:
    /// memory].
    #[arg(long, value_delimiter = ',', value_parser = tables)]
    pub(crate) tables: Vec<TableComponent>,
    /// Memory for the pages of paged tables: bytes, or a number with KiB, MiB or GiB [default:
    /// 64MiB].
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "tables")]
    pub(crate) page_memory: Option<usize>,
    /// Directory for the measured databases.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Directory for the results [default: results/figure-ID-TIME].
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
      into a directory of your choice; run it again to resume after an interruption
  foxton reproduce --only 000-fig12,003-table3
      these two
  foxton reproduce --tiny
      everything in the smallest form: shows the report, its numbers mean nothing
  cargo run --release --features account -- reproduce --out mine
      in a clone: adds the figures that need a program that counts critical sections

`just reproduce`, in a clone, does both: every figure in results/reproduce, and counts only where needed.")]
pub(crate) struct Reproduce {
    /// Only these figures, separated by commas; `foxton figure` lists all.
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    pub(crate) only: Vec<String>,
    /// List the figures and the seconds that each may take, and make none.
    #[arg(long)]
    pub(crate) list: bool,
    /// Use the smallest form, a second or a few for each figure. Its numbers mean nothing.
    #[arg(long)]
    pub(crate) tiny: bool,
    /// Directory for the measured databases [default: one beside the report, which is removed at
    /// the end or by the next run].
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Directory for the report [default: results/reproduce-TIME].
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
    /// The second run; its numbers are divided by those of the first.
    #[arg(value_name = "B")]
    pub(crate) second: PathBuf,
    /// Write the comparison as a page too.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// The verbs of `results`.
#[derive(Debug, Subcommand)]
pub(crate) enum Results {
    /// Write RESULTS.md and the README's table, or with --check only compare them.
    Render(Render),
}

/// The arguments of `results render`.
#[derive(Debug, Args)]
#[command(after_help = "\
A record is a file NAME.json in --dir. It has the question, the command that measures the number,
the machine, the date, the values with their spread, and a note on what falls short. Its `readme`
field puts values into the README. docs/benchmarks.md explains every field.

RESULTS.md is written beside the records. The README's table goes between the two lines
<!-- results:readme --> and <!-- /results -->; the rest of the README stays as it is.

A record that is no JSON, lacks a field, has an unknown one or breaks a rule is refused. The error
names the file and the field, and nothing is written.

Exit codes: 0 every document is up to date now; 1 a record or a document cannot be used, or with
--check a document differs.

Examples:
  foxton results render
      after a record was added or changed
  foxton results render --check
      before a commit, and in continuous integration: writes nothing
  foxton results render --dir mine --readme mine/page.md
      records and a page of your own")]
pub(crate) struct Render {
    /// Write nothing, and name each document that differs.
    #[arg(long)]
    pub(crate) check: bool,
    /// The directory of the records.
    #[arg(long, default_value = "docs/results")]
    pub(crate) dir: PathBuf,
    /// The document with the two marker lines.
    #[arg(long, default_value = "README.md", value_name = "FILE")]
    pub(crate) readme: PathBuf,
}

fn frame_size(text: &str) -> Result<(u16, u16), String> {
    let parts = text.split_once('x');
    let size = parts.and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
    match size {
        Some((columns @ 20..=1_000, rows @ 6..=1_000)) => Ok((columns, rows)),
        _ => Err("give columns and rows, at least 20x6, such as 80x24".to_owned()),
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
