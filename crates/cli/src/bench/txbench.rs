//! `foxton bench txbench`.

use std::process::ExitCode;

use clap::Args;
use foxton::Isolation;
use foxton_lab::{bench::txbench, progress::Audience, workload::txbench::Shape};

use super::{results::finish, sweep::Sweep};

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
      the cost of locking for one client
  foxton bench txbench --size 100 --updates 25 --isolation read-committed --mpl 1,16,64,256
      the document's form, of document 001
  foxton bench txbench --updates 20 --hotspot --isolation serializable,snapshot --locks default
      reads that lock beside reads at snapshots
  foxton bench txbench --tables memory,paged --page-memory 1GiB --locks default --mpl 1,8,512
      tables in memory and in pages that all fit into memory
  foxton bench txbench --tables paged --page-memory 64MiB --locks default --mpl 64,512
      eight times as much data as memory for pages
  foxton bench txbench --stalled --locks bucket
      throughput and memory while one transaction never ends
  foxton bench txbench --mpl 1,4 --seconds 0.3 --reps 1
      a quick look")]
pub(crate) struct Txbench {
    /// Rows that a transaction reads.
    #[arg(long, default_value = "10", value_parser = ["10", "100"])]
    pub(crate) size: String,
    /// Percentage of transactions that also update.
    #[arg(long, default_value = "0", value_parser = ["0", "20", "25"])]
    pub(crate) updates: String,
    /// Use only 5 % of the rows: conflicts are twenty times as likely.
    #[arg(long)]
    pub(crate) hotspot: bool,
    /// Add a transaction that never ends, and sample throughput and memory over time. Changes the
    /// defaults: 200 clients, 100 seconds, one repetition.
    #[arg(long, conflicts_with_all = ["hotspot", "reps"])]
    pub(crate) stalled: bool,
    /// Update rows in the order drawn, not by key: two transactions can then deadlock.
    #[arg(long)]
    pub(crate) unordered: bool,
    /// Write the writer into every string, and check afterwards that no write was lost or dirty.
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

/// Measures.
pub(crate) fn run(mut arguments: Txbench) -> Result<ExitCode, String> {
    let out = arguments.sweep.out.take();
    let findings = txbench::run(&settings(arguments), Audience::here());
    finish("txbench", out, findings)
}

fn settings(mut arguments: Txbench) -> txbench::Settings {
    let stalled = arguments.stalled;
    let isolation = arguments.sweep.take_isolation(Isolation::Serializable);
    txbench::Settings {
        shape: Shape {
            rows: arguments.rows,
            // The parsers accept numbers only.
            size: arguments.size.parse().unwrap_or(10),
            updates: arguments.updates.parse().unwrap_or(0),
            hotspot: arguments.hotspot,
            unordered: arguments.unordered,
            isolation,
            seed: arguments.sweep.seed,
        },
        stalled,
        stamp: arguments.stamp,
        runs: arguments.sweep.runs(stalled),
        plant: arguments.plant,
    }
}
