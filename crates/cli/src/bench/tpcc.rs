//! `foxton bench tpcc`.

use clap::Args;
use foxton::Isolation;
use foxton_lab::workload::tpcc::{
    Scale, Tpcc,
    client::{Manner, Mix},
};

use super::sweep::Sweep;

/// TPC-C: a wholesale supplier with warehouses, districts, customers, orders and stock.
///
/// All five transactions without pauses: of a hundred, 45 NewOrders, 43 Payments, and four each
/// Order-Statuses, Deliveries and Stock-Levels. After each run the twelve conditions of consistency
/// of the benchmark are evaluated and seven stronger ones; a failed one is reported with its row.
#[derive(Debug, Args)]
#[command(after_help = "\
A warehouse has 500,000 rows. Because the data grow, they are loaded again for each measurement; --keep
keeps those of earlier ones. With fewer districts, customers or items than the benchmark has, the same
transactions run on a smaller database, and results say so.

Examples:
  foxton bench tpcc --warehouses 4 --mpl 64 --seconds 60 --reps 1 --locks default
  foxton bench tpcc --mix no-payment --warehouses 10 --mpl 1,16,256 --keep
      NewOrder and Payment alone, equally often
  foxton bench tpcc --locks default --mpl 64 --sorted
      without the deadlocks at stock
  foxton bench tpcc --customers 30 --items 1000 --mpl 1,8,64 --seconds 1
      small enough for a quick look at every lock manager")]
pub(crate) struct Arguments {
    /// Number of warehouses. Clients are assigned to them in turn.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) warehouses: u32,
    /// Transactions: full; no-payment for NewOrder and Payment; or one alone: new-order,
    /// payment, order-status, delivery, stock-level.
    #[arg(long, default_value_t = Mix::Full)]
    pub(crate) mix: Mix,
    /// NewOrders update stock in the order of its keys and not as drawn, so that they do not
    /// deadlock there.
    #[arg(long)]
    pub(crate) sorted: bool,
    /// A Delivery is one transaction for all districts, not one for each.
    #[arg(long)]
    pub(crate) delivery_batch: bool,
    /// Isolation of Stock-Levels without --isolation: read-committed, which is enough,
    /// repeatable-read or serializable.
    #[arg(long, default_value_t = Isolation::ReadCommitted)]
    pub(crate) stock_level: Isolation,
    /// Districts of a warehouse. The benchmark has 10.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=10))]
    pub(crate) districts: u8,
    /// Customers of a district. The benchmark has 3,000.
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) customers: u32,
    /// Items, of which each warehouse has stock. The benchmark has 100,000.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) items: u32,
    #[command(flatten)]
    pub(crate) sweep: Sweep,
}

impl Arguments {
    pub(crate) fn workload(&self) -> Tpcc {
        Tpcc {
            scale: Scale {
                warehouses: self.warehouses,
                districts: self.districts,
                customers: self.customers,
                items: self.items,
            },
            manner: Manner {
                mix: self.mix,
                sorted: self.sorted,
                delivery_batch: self.delivery_batch,
                stock_level: self.stock_level,
            },
            seed: self.sweep.seed,
        }
    }
}
