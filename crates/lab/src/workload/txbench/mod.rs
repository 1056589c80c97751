//! txbench: range reads, and updates of a few points in the next table.
//!
//! Three tables of equal rows, keys 1..=R. A *read-only* transaction adds up one column over S
//! consecutive rows of one table. A *read-update* transaction does the same and then updates 0.2·S
//! rows of the next table (1 → 2 → 3 → 1) in key order, setting one string of each to a random one.
//! In key order every deadlock has at least three transactions; in the order drawn (`unordered`)
//! two are enough.
//!
//! The column summed is never written, so the sum of every read is known beforehand, and each is
//! compared while it runs.

/// A row, and its loaded contents.
pub mod row;

/// The writer of a string.
pub mod stamp;

/// The tables and their load.
pub mod load;

/// The transactions.
pub mod client;

/// Checks of an idle database.
pub mod check;

use foxton::{Isolation, Table};

/// The tables.
pub const TABLES: [Table<u32, [u8]>; row::TABLES] = [
    Table::new("txbench_1"),
    Table::new("txbench_2"),
    Table::new("txbench_3"),
];

/// The variant of the workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Rows of each table.
    pub rows: u32,
    /// Rows a transaction reads (S).
    pub size: u32,
    /// Percent of transactions that also update.
    pub updates: u32,
    /// Use the first 5 % of the rows only.
    pub hotspot: bool,
    /// Update in the order drawn.
    pub unordered: bool,
    /// Isolation of transactions, if the database's is serializable. Writes always lock.
    pub isolation: Isolation,
    /// Seed of the load and of the clients.
    pub seed: u64,
}

impl Shape {
    /// Read-only, ten rows, of the tables' usual size.
    pub fn usual() -> Shape {
        Shape {
            rows: 100_000,
            size: 10,
            updates: 0,
            hotspot: false,
            unordered: false,
            isolation: Isolation::Serializable,
            seed: 1,
        }
    }

    /// The keys used are 1..=reach.
    pub fn reach(&self) -> u32 {
        if self.hotspot {
            self.rows / 20
        } else {
            self.rows
        }
    }

    /// Rows an updating transaction writes.
    pub fn written(&self) -> usize {
        self.size as usize / 5
    }

    /// The variant in one word.
    pub fn name(&self) -> String {
        let mut name = match self.updates {
            0 => "read-only".to_owned(),
            percent => format!("updates{percent}"),
        };
        name += &format!("-s{}", self.size);
        for (is, word) in [(self.hotspot, "-hotspot"), (self.unordered, "-unordered")] {
            if is {
                name += word;
            }
        }
        if self.isolation != Isolation::Serializable {
            name += &format!("-{}", self.isolation);
        }
        name
    }

    /// The variant as a title.
    pub fn title(&self) -> String {
        let mut title = match self.updates {
            0 => "read-only".to_owned(),
            percent => format!("{percent} % of the transactions update"),
        };
        title += &format!(", {} rows a read", self.size);
        if self.hotspot {
            title += ", all in 5 % of the rows";
        }
        if self.unordered {
            title += ", rows updated in any order";
        }
        if self.isolation != Isolation::Serializable {
            title += &format!(", {}", self.isolation);
        }
        title
    }
}
