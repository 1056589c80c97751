//! `foxton bench`: run an experiment, show its results, write them.

/// Results: shown, written, judged.
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

/// Numbers with spread: shown and written.
mod measured;

/// `foxton bench pages`.
mod pages;

/// `foxton bench snapshots`.
mod snapshots;

/// `foxton bench queue`.
mod queue;

/// `foxton bench peak`.
mod peak;

/// `foxton bench hot-row`.
mod hot_row;

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
use hot_row::HotRow;
use lock_cost::LockCost;
use lock_only::LockOnly;
use log_insert::LogInsert;
use pages::Pages;
use peak::Peak;
use queue::Queue;
use restart::Restart;
use snapshots::Snapshots;
use storm::StormArguments;
use txbench::Txbench;

pub(crate) use results::{command_line, judged, list_written, moment};

/// Workloads that run over a sweep. Each is a module with `Arguments`: its documentation is the
/// help, `sweep` has the points, and `workload()` makes the workload from the rest.
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
    /// A transaction reads SIZE consecutive rows of one of three tables of 100,000 rows and sums a
    /// column. An updating one then changes a string in a fifth as many rows of the next table.
    /// Every sum is compared with the known result, and the tables are checked after each run.
    Txbench(Txbench),
    #[command(flatten)]
    Workload(Workload),
    /// Cost of a commit, and commits for each sync of the device.
    ///
    /// A transaction adds one to a counter in a row of 100 bytes. Either each client has a row of
    /// its own, so that clients share only the log, or all have the same row. Shows commits for
    /// each sync beside throughput and latency.
    Commit(Commit),
    /// Cost of locking: the same work without locks, and nanoseconds for each lock.
    ///
    /// One client and two run the read-only transactions of txbench, with locking off and then with
    /// each lock manager and latch. Then a lock and its release are measured alone, with several
    /// numbers of locks held.
    LockCost(LockCost),
    /// Cost of latches: one alone, warm and cold, and their share of document 003's operations.
    ///
    /// A single thread acquires and releases each latch. Then the scans, fetches and inserts of
    /// `wisconsin` are timed over lock managers with each latch, beside the document's table.
    LatchCost(by_figure::LatchCost),
    /// Number of processors that a latch over a whole table can keep busy: document 003's overlap
    /// model.
    ///
    /// The model first gives the document's own table from the document's times. Then the
    /// operations of `wisconsin` are timed here, and the model computes the effect of one latch
    /// over each table.
    Overlap(by_figure::Overlap),
    /// The lock manager alone, with 1, 2 and 512 threads, beside another lock manager's numbers.
    ///
    /// A transaction takes IS on a table and S on ten random keys of 100,000, and releases all.
    /// There are no waits and no other work. Also shows the memory of a held lock.
    LockOnly(LockOnly),
    /// Time of a restart by the length of the log, with and without a checkpoint.
    ///
    /// A table is updated at random until the log is long enough. The database is opened, a
    /// checkpoint is made, and it is opened again. Then clients update with no checkpoint and with
    /// many, in turn.
    Restart(Restart),
    /// The log buffer alone: records a second and MB/s over threads and sizes, for every buffer.
    ///
    /// Threads insert records of one size and do nothing else. The log is on a device that discards
    /// the data, so that the buffer is measured and no disk. Before that, each buffer takes records
    /// of all sizes from many threads onto a device in memory, and the stream is read back.
    LogInsert(LogInsert),
    /// Paged tables whose data are larger than their memory.
    ///
    /// Rows are loaded, and clients read or update them. Variants take turns within a pass: the
    /// engine and the bare device, with and without a doublewrite buffer or a backup.
    /// Afterwards every row must be as the committed updates left it.
    Pages(Pages),
    /// Reads at snapshots, and what a snapshot that does not end costs others.
    ///
    /// Transactions at the levels serializable and snapshot take turns within a pass, and so do the
    /// methods by which snapshots are taken. Afterwards every row must be as the committed updates
    /// left it, and every snapshot must have read what it has to.
    Snapshots(Snapshots),
    /// A queue of jobs with 64 workers: each takes the first unlocked job, or waits for the first
    /// one.
    ///
    /// In one transaction a worker claims the first row of a table, sleeps for the length of a job,
    /// deletes the row, records it as done and adds a new job at the end. Two ways are measured in
    /// turn: skipping locked rows, and waiting for the first one. Afterwards each job must have
    /// been done once, and none lost.
    Queue(Queue),
    /// A peak of open transactions that is long gone: does it cost anything later?
    ///
    /// In one of two databases, 100,000 transactions are open at once, a few times. Then one thread
    /// updates, and reads, rows of both by turns. The rates of the first are divided by those of
    /// the other. The memory that stays and the time to close are shown, too.
    Peak(Peak),
    /// One hot row: tasks, and threads, that all update the same row.
    ///
    /// A client reads the row for update, writes it, commits, and lets the others go first. So
    /// nearly all wait in one queue. Shows how much of the most each number of clients keeps.
    /// Afterwards the row must have counted every commit.
    HotRow(HotRow),
    /// Storms: every thread wants the same few rows, so that deadlocks are the rule.
    ///
    /// There are readers of one row who then write it, the same reading for update, and
    /// transactions that write a few rows in random order. They run over every lock manager and
    /// victim policy. Each report of a deadlock is compared with the locks that its members held
    /// and requested.
    Storm(StormArguments),
    /// Fairness: readers that never stop, and writers of the same row.
    ///
    /// Counts the readers that are granted before a waiting writer, over every lock manager, and
    /// shows the longest wait. Readers are plain, or other transactions wait for them, which some
    /// managers take into account.
    Fairness(Fairness),
    /// A bank behind latches: transfers and reads of accounts, over every latch, also elided ones.
    ///
    /// Threads move money between random accounts and read some. Afterwards the sum of all accounts
    /// must be the same as at the start.
    Bank(latches::Bank),
    /// Counters behind latches: one, or one for each processor, near each other or apart, over
    /// every latch.
    ///
    /// Threads that stay on one processor each increment, and do nothing else. Afterwards the
    /// counters must add up to the increments.
    Counter(latches::Counter),
    /// A doubly linked list behind one latch, over every latch.
    ///
    /// Threads search for values, insert at the end, and remove the values they inserted.
    /// Afterwards the list must read the same from both ends.
    List(latches::List),
    /// A hash map of chains, with a latch for each bucket or one for all, over every latch.
    ///
    /// Half of the operations search for a value, the others insert and remove. Afterwards each
    /// value must be in its bucket, once.
    #[command(name = "hashmap")]
    HashMap(latches::HashMap),
    /// Critical sections of a transaction, counted, for each design of the engine.
    ///
    /// Each transaction runs a thousand times over each design, from one latch over all locks to
    /// the default. Every latch, shared read-modify-write and queue that it passes is counted. It
    /// needs a program that counts: cargo run --release --features account -- bench
    /// critical-sections.
    CriticalSections(CriticalSections),
}

/// Runs an experiment.
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
        Bench::Pages(arguments) => pages::run(arguments),
        Bench::Snapshots(arguments) => snapshots::run(arguments),
        Bench::Queue(arguments) => queue::run(&arguments),
        Bench::Peak(arguments) => peak::run(&arguments),
        Bench::HotRow(arguments) => hot_row::run(&arguments),
        Bench::Storm(arguments) => storm::run(&arguments),
        Bench::Fairness(arguments) => fairness::run(&arguments),
        Bench::Bank(arguments) => arguments.run(),
        Bench::Counter(arguments) => arguments.run(),
        Bench::List(arguments) => arguments.run(),
        Bench::HashMap(arguments) => arguments.run(),
    }
}
