//! `foxton bench tatp`.

use clap::Args;
use foxton_lab::workload::tatp::{Mix, Shape, Tatp};

use super::sweep::Sweep;

/// A telephone network's register: seven short transactions, four fifths of them reads of one row.
///
/// Four tables and a unique index on the number of a subscriber. Of a hundred transactions 35 read
/// a subscriber, 35 its access data, and 10 the destination of its calls. 14 set its location by
/// its number, 2 set two of its fields, 2 insert a call forwarding and 2 delete one. Often a row
/// does not exist; such a transaction counts as done (a miss). A refused insert and a deadlock do
/// not count, and are not retried. Afterwards every row must be as it was loaded or changed, and
/// each transaction must have found its rows as often as the load predicts.
#[derive(Debug, Args)]
#[command(after_help = "\
Mixes: full; read (the three that only read, 35 : 10 : 35); read-update (with the two updates,
35 : 10 : 35 : 2 : 14). Or one transaction alone: GetSubscriberData, GetNewDestination, GetAccessData,
UpdateSubscriberData, UpdateLocation (or single), InsertCallForwarding, DeleteCallForwarding. Inserts
alone, and deletes alone, soon have nothing left to do.

Subscribers are drawn unevenly: 1 % of them take 35 to 39 % of the transactions.

Examples:
  foxton bench tatp
      every lock manager, 1 to 512 clients, all seven transactions, on 100,000 subscribers
  foxton bench tatp --subscribers 640000 --mix read-update --locks default,global
      as document 000 may have run it
  foxton bench tatp --mix UpdateLocation --mpl 1,64 --uniform
      updates through the index alone, spread evenly
  foxton bench tatp --subscribers 10000 --mpl 1,4 --seconds 0.3 --reps 1
      a quick look")]
pub(crate) struct Arguments {
    /// Subscribers. The benchmark's scale factor counts them in 100,000s; a subscriber has 9.75
    /// rows.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=50_000_000))]
    pub(crate) subscribers: u32,
    /// Transactions: full, read, read-update, or the name of one.
    #[arg(long, default_value_t = Mix::Full)]
    pub(crate) mix: Mix,
    /// Draw all subscribers equally often.
    #[arg(long)]
    pub(crate) uniform: bool,
    /// Pad rows to 100 bytes (subscribers) and 50 (all others); they are 57, 15, 13 and 22.
    #[arg(long)]
    pub(crate) pad: bool,
    #[command(flatten)]
    pub(crate) sweep: Sweep,
}

impl Arguments {
    pub(crate) fn workload(&self) -> Tatp {
        Tatp::new(Shape {
            subscribers: self.subscribers,
            mix: self.mix,
            uniform: self.uniform,
            pad: self.pad,
            seed: self.sweep.seed,
        })
    }
}
