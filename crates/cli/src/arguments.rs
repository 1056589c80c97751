//! The command line, and the help that teaches it.

use std::path::PathBuf;

/// The verbs that look after a database.
mod care;

pub(crate) use care::{Backup, Check, Dump, Load, Repair, Restore, RowFormat};

use clap::{Args, Parser, Subcommand};
use foxton::{Durability, LatchKind, LogBufferKind, VictimPolicy};
use foxton_lab::system::Locks;

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
    #[command(subcommand)]
    Bench(Box<Bench>),
    /// Repeat a figure of the documents the engine is built after, theirs beside ours.
    ///
    /// Without a name, lists the figures. Each has a quick form of a minute or a few; --full has the
    /// windows and repetitions of the document, which can be days.
    Figure(Box<Figure>),
    /// Say what is in a database: tables, sizes, the state of the log.
    #[command(after_help = "\
A database that is open elsewhere is refused; nothing is written unless the log must be repaired
after a crash, which opening always does.

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

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Range reads and point updates over a sweep of clients.
    ///
    /// A transaction reads SIZE consecutive rows of one of three tables of 100,000 rows and adds up a
    /// column; an updating one then changes a string in a fifth as many rows of the next table. Every
    /// sum is compared with the one known beforehand, and the tables are checked after each run.
    Txbench(Txbench),
    /// A bank: three balances and a row of history in each transaction.
    ///
    /// A transaction adds an amount to an account, its teller and the teller's branch, and writes a row
    /// of history. Afterwards every balance must be the sum of its history.
    Tpcb(Tpcb),
    /// What a commit costs, and how many share one sync of the device.
    ///
    /// A transaction adds one to a counter in a row of 100 bytes. Each client has a row of its own, so
    /// that they meet at the log alone; or all have one. Shows commits for each sync beside throughput
    /// and latency.
    Commit(Commit),
    /// What locking costs: the same work without locks, and nanoseconds per lock.
    ///
    /// The read-only transactions of txbench by one client and by two, with locking off and then with
    /// each lock manager and latch; and a lock and its release alone, for several numbers of locks held.
    LockCost(LockCost),
    /// The lock manager alone, with 1, 2 and 512 at it, beside another lock manager's numbers.
    ///
    /// A transaction takes IS on a table and S on ten random keys of 100,000, and gives all back.
    /// Nobody waits, nothing else is done. Also says what a held lock takes in memory.
    LockOnly(LockOnly),
    /// How long a restart takes over the length of the log, with and without a checkpoint.
    ///
    /// A table is updated at random until the log is long enough; the database is opened, a checkpoint is
    /// made, and it is opened again. Then clients update with no checkpoint and with many, in turn.
    Restart(Restart),
    /// The log buffer alone: records a second and MB/s over threads and sizes, for every buffer.
    ///
    /// Threads insert records of one size and nothing else, into a log on a device that forgets what it
    /// is given, so that the buffer is measured and not a disk. Before, each buffer takes records of
    /// all sizes from many threads onto a device in memory, and the stream is read back.
    LogInsert(LogInsert),
}

/// The arguments of `bench restart`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench restart
  foxton bench restart --log 1024 --rows 1000000 --seconds 0
      a log of a gibibyte, and no clients
  foxton bench restart --log 64 --threads 1,2
      restart on one thread and on two")]
pub(crate) struct Restart {
    /// Lengths of log in MiB, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "16,64,256", value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub(crate) log: Vec<u64>,
    /// Rows of the table, a hundred bytes each.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) rows: u64,
    /// Threads that load and replay, separated by commas; 0 for as many as the machine has cores.
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = clap::value_parser!(u32).range(0..=256))]
    pub(crate) threads: Vec<u32>,
    /// Clients that update beside checkpoints.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) clients: u32,
    /// Seconds that clients update with and without checkpoints; 0 leaves that out.
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// MiB of log between two checkpoints while clients update.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub(crate) every: u64,
    /// Times clients update with and without checkpoints.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Seed of the keys drawn.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where the databases lie while they are measured.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
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
  foxton figure 000-fig16 --full
      as the document has it: a thousand seconds for each")]
pub(crate) struct Figure {
    /// Which figure; without it they are listed.
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
    /// Rows of each table [default: the figure's].
    #[arg(long, value_parser = clap::value_parser!(u32).range(2_000..=10_000_000))]
    pub(crate) rows: Option<u32>,
    /// Where the databases measured lie while they are.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Where the results go [default: results/figure-ID-TIME].
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

/// The arguments of `bench txbench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench txbench
      every lock manager, 1 to 512 clients, read-only, about three minutes
  foxton bench txbench --updates 20 --hotspot
      a fifth of the transactions write, all of them in 5 % of the rows
  foxton bench txbench --locks bucket --latch tas,tas-t,queue,parking --mpl 1,2,8,64,512
      one lock manager over each latch
  foxton bench txbench --locks none,bucket --mpl 1
      what locking costs one client
  foxton bench txbench --stalled --locks bucket
      throughput and memory while one transaction never ends
  foxton bench txbench --mpl 1,4 --seconds 0.3 --reps 1
      a quick look")]
pub(crate) struct Txbench {
    /// Rows a transaction reads.
    #[arg(long, default_value = "10", value_parser = ["10", "100"])]
    pub(crate) size: String,
    /// Percent of transactions that also update.
    #[arg(long, default_value = "0", value_parser = ["0", "20", "25"])]
    pub(crate) updates: String,
    /// Use 5 % of the rows only: conflicts are twenty times as likely.
    #[arg(long)]
    pub(crate) hotspot: bool,
    /// Let one more transaction begin and never end, and sample throughput and memory over time.
    /// Changes the defaults: 200 clients, 100 seconds, once.
    #[arg(long, conflicts_with_all = ["hotspot", "reps"])]
    pub(crate) stalled: bool,
    /// Update rows in the order drawn, not by key: two transactions can then deadlock.
    #[arg(long)]
    pub(crate) unordered: bool,
    /// Write who wrote into every string, and check afterwards that no write was lost or dirty.
    #[arg(long)]
    pub(crate) stamp: bool,
    /// Rows of each table.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(2_000..=10_000_000))]
    pub(crate) rows: u32,
    #[command(flatten)]
    pub(crate) sweep: Sweep,
    /// Load one wrong value, so that the checks must fail (a test of the checks).
    #[arg(long, hide = true)]
    pub(crate) plant: bool,
}

/// The arguments of `bench tpcb`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench tpcb
  foxton bench tpcb --branches 1 --mpl 1,8,64 --seconds 1
      every transaction updates the same row
  foxton bench tpcb --durability sync --mpl 1,16,128
      group commit: many transactions share one write to the device")]
pub(crate) struct Tpcb {
    /// Branches, each with ten tellers.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) branches: u32,
    /// Accounts of each branch. The benchmark has 100,000.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) accounts: u32,
    #[command(flatten)]
    pub(crate) sweep: Sweep,
}

/// The arguments of `bench commit`.
#[derive(Debug, Args)]
#[command(after_help = "\
The device is what --dir lies on: a directory in memory has nothing to wait for.

Examples:
  foxton bench commit --dir .
  foxton bench commit --dir . --durability sync --mpl 1,64,512 --seconds 5")]
pub(crate) struct Commit {
    /// What commits wait for, separated by commas to compare: sync, buffered, none. With sync, commits
    /// to one row are measured, too, with locks that go early and locks that are held.
    #[arg(long, value_delimiter = ',', default_value = "sync,buffered,none")]
    pub(crate) durability: Vec<Durability>,
    /// Numbers of clients, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256,512", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) mpl: Vec<u32>,
    /// Seconds measured for each point and repetition.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seconds clients run before each measurement.
    #[arg(long, default_value_t = 0.3, value_parser = seconds)]
    pub(crate) ramp: f64,
    /// Times each point is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Where the databases measured lie while they are; by default the system's directory for
    /// temporary files. They are removed afterwards.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Where the results go [default: results/commit-TIME].
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

/// What is compared, at which points, for how long, and where everything goes.
#[derive(Debug, Args)]
pub(crate) struct Sweep {
    /// Lock managers to compare, separated by commas: global, bucket, sharded, direct and the others
    /// (a wrong name lists all), default, or none (no locking, one client); with `+inherit` behind,
    /// hot locks on tables go from one transaction to the next.
    /// Without this: every manager in its usual form; with --stalled the engine's default.
    #[arg(long, value_delimiter = ',')]
    pub(crate) locks: Vec<Locks>,
    /// Latches to compare under each lock manager: tas, tas-t, queue, parking. Without this, the
    /// engine's default.
    #[arg(long, value_delimiter = ',')]
    pub(crate) latch: Vec<LatchKind>,
    /// Who of a deadlock gives way, separated by commas to compare: least-work, youngest, requester.
    /// Without this, least-work.
    #[arg(long, value_delimiter = ',')]
    pub(crate) victim: Vec<VictimPolicy>,
    /// Log buffers to compare, separated by commas: baseline, consolidated, decoupled, hybrid. Without
    /// this, the engine's default.
    #[arg(long, value_delimiter = ',')]
    pub(crate) log_buffer: Vec<LogBufferKind>,
    /// Turns of the engine in microseconds, separated by commas to compare; 0 for none.
    #[arg(long, value_delimiter = ',')]
    pub(crate) turn: Vec<u64>,
    /// Numbers of clients, separated by commas [default: 1,2,4,8,16,32,64,128,256,512].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) mpl: Vec<u32>,
    /// Seconds measured for each point and repetition [default: so that all points together take about
    /// two and a half minutes, but at most 1.9].
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Seconds clients run before each measurement.
    #[arg(long, default_value_t = 0.3, value_parser = seconds)]
    pub(crate) ramp: f64,
    /// Times each point is measured [default: 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: Option<u32>,
    /// What a commit waits for: none, buffered (written), or sync (on the device).
    #[arg(long, default_value_t = Durability::Buffered)]
    pub(crate) durability: Durability,
    /// Seed of everything drawn.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where the databases measured lie while they are; by default the system's directory for
    /// temporary files. They are removed afterwards.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Let `foxton top` and `foxton locks` look in while it runs, by a socket in this directory.
    /// Transactions are labelled then, which costs them a little.
    #[arg(long, value_name = "DIR")]
    pub(crate) observe: Option<PathBuf>,
    /// Where the results go [default: results/WORKLOAD-VARIANT-TIME].
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

/// The arguments of `bench lock-cost`.
#[derive(Debug, Args)]
#[command(after_help = "\
Instructions per lock and release are counted by valgrind's callgrind, where it is installed:

  foxton bench lock-cost --instructions

Examples:
  foxton bench lock-cost
  foxton bench lock-cost --locks bucket --latch tas-t,parking --seconds 0.5")]
pub(crate) struct LockCost {
    /// Lock managers to compare, separated by commas [default: every one in its usual form, and global
    /// and bucket over each latch].
    #[arg(long, value_delimiter = ',')]
    pub(crate) locks: Vec<Locks>,
    /// Latches to compare under each lock manager [default: all under those named by --locks].
    #[arg(long, value_delimiter = ',')]
    pub(crate) latch: Vec<LatchKind>,
    /// Numbers of clients, separated by commas. With locking off each has a database of its own.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) mpl: Vec<u32>,
    /// Seconds measured for each line of the table and repetition.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Times each line is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Rows of each table.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(2_000..=10_000_000))]
    pub(crate) rows: u32,
    /// Count instructions as well, with callgrind.
    #[arg(long)]
    pub(crate) instructions: bool,
    /// Where the databases measured lie while they are.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Where the results go [default: results/lock-cost-TIME].
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Only lock and release so often and print nothing: what callgrind watches.
    #[arg(long, hide = true)]
    pub(crate) bare: Option<u64>,
    /// Only take so many locks and print three numbers: what a manager's memory is measured by.
    #[arg(long, hide = true)]
    pub(crate) held: Option<usize>,
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let parts = text.split_once('x');
    let size = parts.and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
    match size {
        Some((columns @ 20..=1_000, rows @ 6..=1_000)) => Ok((columns, rows)),
        _ => Err("say columns and rows, at least 20x6, such as 80x24".to_owned()),
    }
}

/// The arguments of `bench lock-only`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench lock-only
  foxton bench lock-only --locks bucket,sharded --mpl 1,8,512 --seconds 1")]
pub(crate) struct LockOnly {
    /// Lock managers to compare, separated by commas [default: all but the reference].
    #[arg(long, value_delimiter = ',')]
    pub(crate) locks: Vec<Locks>,
    /// Latches to compare under each lock manager. Without this, the engine's default.
    #[arg(long, value_delimiter = ',')]
    pub(crate) latch: Vec<LatchKind>,
    /// Numbers of clients, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,512", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) mpl: Vec<u32>,
    /// Seconds measured for each point and repetition.
    #[arg(long, default_value_t = 1.9, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seconds clients run before each measurement.
    #[arg(long, default_value_t = 0.4, value_parser = seconds)]
    pub(crate) ramp: f64,
    /// Times each point is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Seed of the keys drawn.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where the results go [default: results/lock-only-TIME].
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

/// The arguments of `bench log-insert`.
#[derive(Debug, Args)]
#[command(after_help = "\
Instructions per insert are counted by valgrind's callgrind:

  foxton bench log-insert --bare 100000 --log-buffer hybrid      what callgrind watches

Examples:
  foxton bench log-insert
  foxton bench log-insert --log-buffer baseline,hybrid --threads 1,64,512 --bytes 120
  foxton bench log-insert --log-buffer hybrid,hybrid:waiting --threads 1,2,8 --seconds 1
      what it costs to complete in turn")]
pub(crate) struct LogInsert {
    /// Log buffers to compare, separated by commas; with `:waiting` behind, decoupled and hybrid
    /// complete in turn [default: baseline,consolidated,decoupled,hybrid].
    #[arg(long, value_delimiter = ',')]
    pub(crate) log_buffer: Vec<LogBufferKind>,
    /// Numbers of threads, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,8,64,512", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) threads: Vec<u32>,
    /// Bytes of the records, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "120,65536", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) bytes: Vec<u32>,
    /// Seconds measured for each point and repetition.
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seconds threads run before each measurement.
    #[arg(long, default_value_t = 0.2, value_parser = seconds)]
    pub(crate) ramp: f64,
    /// Times each point is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Where the results go [default: results/log-insert-TIME].
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Only insert so often with one thread and print nothing: what callgrind watches.
    #[arg(long, hide = true)]
    pub(crate) bare: Option<u64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=86_400.0).contains(&value) => Ok(value),
        _ => Err("say a number of seconds from 0 to 86400, such as 0.5".to_owned()),
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
