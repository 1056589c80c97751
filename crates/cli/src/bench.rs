//! `foxton bench`: run an experiment, show it, write it down.

/// What was found: shown, written, judged.
mod results;

/// The points of a sweep.
mod sweep;

/// `foxton bench txbench`.
mod txbench;

/// `foxton bench tpcb`.
mod tpcb;

/// `foxton bench tatp`.
mod tatp;

/// `foxton bench secondary`.
mod secondary;

/// `foxton bench ycsb`.
mod ycsb;

/// `foxton bench smallbank`.
mod smallbank;

/// `foxton bench transfers`.
mod transfers;

/// `foxton bench sysbench`.
mod sysbench;

/// `foxton bench private-insert`.
mod private_insert;

/// `foxton bench tpcc`.
mod tpcc;

/// `foxton bench wisconsin`.
mod wisconsin;

/// `foxton bench latch-cost` and `overlap`.
mod by_figure;

/// `foxton bench commit`.
mod commit;

/// `foxton bench lock-cost`.
mod lock_cost;

/// `foxton bench lock-only`.
mod lock_only;

/// `foxton bench critical-sections`.
mod critical_sections;

/// `foxton bench restart`.
mod restart;

/// `foxton bench log-insert`.
mod log_insert;

/// `foxton bench queue`.
mod queue;

/// `foxton bench storm`.
mod storm;

/// `foxton bench fairness`.
mod fairness;

/// `foxton bench bank`, `counter`, `list` and `hashmap`.
mod latches;

use std::process::ExitCode;

use clap::Subcommand;
use commit::Commit;
use critical_sections::CriticalSections;
use fairness::Fairness;
use foxton_lab::{bench::workload, progress::Audience, workload::contract::Workload as _};
use lock_cost::LockCost;
use lock_only::LockOnly;
use log_insert::LogInsert;
use queue::Queue;
use restart::Restart;
use storm::StormArguments;
use txbench::Txbench;

pub(crate) use results::{command_line, judged, moment, tell};

/// Workloads that run over a sweep. Each is a module with `Arguments`: its documentation is the
/// help, `sweep` are the points, and `workload()` makes the workload of the rest.
macro_rules! workloads {
    ($($name:ident in $module:ident),* $(,)?) => {
        #[derive(Debug, Subcommand)]
        pub(crate) enum Workload {
            $($name($module::Arguments)),*
        }

        fn run_workload(what: Workload) -> Result<ExitCode, String> {
            match what {
                $(Workload::$name(mut arguments) => {
                    let workload = arguments.workload();
                    let out = arguments.sweep.out.take();
                    let runs = arguments.sweep.runs(false);
                    let findings = workload::run(&workload, &runs, Audience::here());
                    results::finish(workload.about().name, out, findings)
                }),*
            }
        }
    };
}

workloads! {
    Tatp in tatp,
    Secondary in secondary,
    Tpcb in tpcb,
    Ycsb in ycsb,
    Smallbank in smallbank,
    Transfers in transfers,
    Sysbench in sysbench,
    PrivateInsert in private_insert,
    Tpcc in tpcc,
    Wisconsin in wisconsin,
}

/// The experiments.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Range reads and point updates over a sweep of clients.
    ///
    /// A transaction reads SIZE consecutive rows of one of three tables of 100,000 rows and adds up
    /// a column; an updating one then changes a string in a fifth as many rows of the next table.
    /// Every sum is compared with the one known beforehand, and the tables are checked after each
    /// run.
    Txbench(Txbench),
    #[command(flatten)]
    Workload(Workload),
    /// What a commit costs, and how many share one sync of the device.
    ///
    /// A transaction adds one to a counter in a row of 100 bytes. Each client has a row of its own,
    /// so that they meet at the log alone; or all have one. Shows commits for each sync beside
    /// throughput and latency.
    Commit(Commit),
    /// What locking costs: the same work without locks, and nanoseconds per lock.
    ///
    /// The read-only transactions of txbench by one client and by two, with locking off and then
    /// with each lock manager and latch; and a lock and its release alone, for several numbers of
    /// locks held.
    LockCost(LockCost),
    /// What latches cost: one alone, warm and cold, and their share of document 003's operations.
    ///
    /// Each latch is taken and given back by the only thread there is; then the scans, fetches and
    /// inserts of `wisconsin` are timed over lock managers with each latch, beside the document's
    /// table.
    LatchCost(by_figure::LatchCost),
    /// How many processors a latch over a whole table would leave room for: document 003's overlap
    /// model.
    ///
    /// The model first gives the document's own table from the document's times. Then the
    /// operations of `wisconsin` are timed here, and the model says what one latch over each table
    /// would make of them.
    Overlap(by_figure::Overlap),
    /// The lock manager alone, with 1, 2 and 512 at it, beside another lock manager's numbers.
    ///
    /// A transaction takes IS on a table and S on ten random keys of 100,000, and gives all back.
    /// Nobody waits, nothing else is done. Also says what a held lock takes in memory.
    LockOnly(LockOnly),
    /// How long a restart takes over the length of the log, with and without a checkpoint.
    ///
    /// A table is updated at random until the log is long enough; the database is opened, a
    /// checkpoint is made, and it is opened again. Then clients update with no checkpoint and with
    /// many, in turn.
    Restart(Restart),
    /// The log buffer alone: records a second and MB/s over threads and sizes, for every buffer.
    ///
    /// Threads insert records of one size and nothing else, into a log on a device that forgets
    /// what it is given, so that the buffer is measured and not a disk. Before, each buffer takes
    /// records of all sizes from many threads onto a device in memory, and the stream is read back.
    LogInsert(LogInsert),
    /// A queue of jobs: 64 workers, each taking the first job that nobody else has, or waiting for
    /// it.
    ///
    /// A worker claims the first row of a table, sleeps as long as a job takes, deletes the row,
    /// notes it as done and puts a new job at the end, in one transaction. Measured with locked
    /// rows passed over and with the first one waited for, in turn; afterwards each job must have
    /// been done once, and none lost.
    Queue(Queue),
    /// Storms: every thread wants the same few rows, so that deadlocks are the rule.
    ///
    /// Readers of one row who then write it; the same, reading for update; and transactions that
    /// write every row of a few in random order. Over every lock manager and victim policy. Each
    /// report of a deadlock is compared with what its members held and awaited.
    Storm(StormArguments),
    /// Fairness: readers that never cease, and writers of the same row.
    ///
    /// Counts by whom a writer is passed while it waits, over every lock manager, and shows the
    /// longest wait. Readers are plain, or others wait for them elsewhere, which some managers
    /// regard.
    Fairness(Fairness),
    /// A bank behind latches: transfers and reads of accounts, over every latch, elided ones among
    /// them.
    ///
    /// Threads move money between random accounts and read some. Afterwards all accounts together
    /// must have what they began with.
    Bank(latches::Bank),
    /// Counters behind latches: one, one for each processor, near each other and apart, over every
    /// latch.
    ///
    /// Threads that stay on one processor each increment, and do nothing else. Afterwards the
    /// counters must add up to the increments.
    Counter(latches::Counter),
    /// A doubly linked list behind one latch, over every latch.
    ///
    /// Threads look for values, insert at the end, and remove what they have inserted. Afterwards
    /// the list must read the same from both ends.
    List(latches::List),
    /// A hash map of chains, with a latch for each bucket or one for all, over every latch.
    ///
    /// Half of the operations look for a value, the others insert and remove. Afterwards each value
    /// must be in its bucket, once.
    #[command(name = "hashmap")]
    HashMap(latches::HashMap),
    /// The places where a transaction could meet others, counted, for each design of the engine.
    ///
    /// Each transaction is run a thousand times over each design, from one latch over all locks to
    /// the default, and every latch, shared read-modify-write and queue on its way is counted. It
    /// needs a program that counts: cargo run --release --features account -- bench
    /// critical-sections.
    CriticalSections(CriticalSections),
}

/// Runs the experiment asked for.
pub(crate) fn run(what: Bench) -> Result<ExitCode, String> {
    match what {
        Bench::Txbench(arguments) => txbench::run(arguments),
        Bench::Workload(workload) => run_workload(workload),
        Bench::Commit(arguments) => commit::run(arguments),
        Bench::CriticalSections(arguments) => critical_sections::run(arguments),
        Bench::LockCost(arguments) => lock_cost::run(arguments),
        Bench::LatchCost(arguments) => arguments.run(),
        Bench::Overlap(arguments) => arguments.run(),
        Bench::LockOnly(arguments) => lock_only::run(arguments),
        Bench::Restart(arguments) => restart::run(&arguments),
        Bench::LogInsert(arguments) => log_insert::run(arguments),
        Bench::Queue(arguments) => queue::run(&arguments),
        Bench::Storm(arguments) => storm::run(&arguments),
        Bench::Fairness(arguments) => fairness::run(&arguments),
        Bench::Bank(arguments) => arguments.run(),
        Bench::Counter(arguments) => arguments.run(),
        Bench::List(arguments) => arguments.run(),
        Bench::HashMap(arguments) => arguments.run(),
    }
}
