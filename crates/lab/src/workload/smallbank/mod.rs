//! smallbank: customers with a savings and a checking account, and six short transactions.
//!
//! If locks are too weak, a customer can be charged for a check that both accounts covered,
//! according to a balance read before. That happens if write-check reads savings before
//! transact-savings pays in, and the balance is read after that. It takes these three transactions,
//! and no two of them: transact-savings reads nothing that write-check writes.

/// Customers, and their initial balances.
pub mod customer;

/// The transactions.
pub mod procedure;

/// The client.
pub mod client;

/// Checks of an idle database.
pub mod check;

use std::sync::{Arc, Mutex};

use foxton::{Database, Index, Indexes, Table};
use serde_json::json;

use super::{
    contract::{About, Loaded, Size, Workload},
    ledger::Ledger,
    loading::Loading,
};
use crate::{driver::Client, measure::outcome::Tally};
use client::SmallbankClient;

/// Names of customers by number, from 1.
pub const ACCOUNTS: Table<u32, str> = Table::new("smallbank_accounts");
/// Customers by name.
pub const BY_NAME: Index<str, u32, str> =
    Index::unique("smallbank_accounts_name", &ACCOUNTS, |_, name, keys| {
        keys.add(name);
    });
/// Cents in savings by number.
pub const SAVINGS: Table<u32, i64> = Table::new("smallbank_savings");
/// Cents in checking by number.
pub const CHECKING: Table<u32, i64> = Table::new("smallbank_checking");

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct Smallbank {
    /// Customers, at least 2.
    pub customers: u32,
    /// Nine of ten customers are chosen among the first hundred.
    pub hotspot: bool,
    /// Seed of the load and of the clients.
    pub seed: u64,
}

impl Workload for Smallbank {
    fn about(&self) -> About {
        let customers = self.customers;
        let spot = if self.hotspot { "-hotspot" } else { "" };
        let chosen = match self.hotspot {
            true => "nine of ten chosen among the first hundred",
            false => "chosen uniformly",
        };
        About {
            name: "smallbank",
            variant: format!("{customers}-customers{spot}"),
            title: format!("smallbank, {customers} customers, {chosen}"),
            description: format!(
                "{customers} customers with savings and checking, {chosen}. A transaction finds one or \
                 two of them by name and reads or moves money."
            ),
            checked: "afterwards every customer is there and is found by name, each balance is the result of its \
                      transactions, and all money adds up to the amounts loaded, paid in and paid out, to \
                      the cent."
                .to_owned(),
            settings: vec![
                ("customers", json!(customers)),
                ("hotspot", json!(self.hotspot)),
                ("isolation", json!("serializable")),
                ("seed", json!(self.seed)),
            ],
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        procedure::KINDS
    }

    fn sound(&self) -> Result<(), String> {
        if self.customers < 2 {
            return Err(
                "one customer has no other to pay to; give 2 or more with --customers".to_owned(),
            );
        }
        match self.hotspot && self.customers <= customer::HOT {
            false => Ok(()),
            true => Err(format!(
                "--hotspot is the first {} customers, and there are no others; give more with --customers, \
                 or leave it out",
                customer::HOT
            )),
        }
    }

    fn size(&self) -> Size {
        Size {
            rows: 3 * u64::from(self.customers),
            // The name is in the index, too, and both balances in the ledger.
            row_bytes: (2 * customer::NAME_BYTES as u64 + 16 + 2 * Ledger::ROW_BYTES) / 3,
        }
    }

    fn indexes(&self, indexes: &mut Indexes) {
        indexes.add(&BY_NAME);
    }

    fn load(&self, into: &Loading<'_>) -> foxton::Result<Box<dyn Loaded>> {
        into.each(self.customers, |tx, customer| {
            let [savings, checking] = customer::initial(self.seed, customer);
            tx.insert(&ACCOUNTS, &customer, &customer::name(customer))?;
            tx.insert(&SAVINGS, &customer, &savings)?;
            tx.insert(&CHECKING, &customer, &checking)?;
            Ok(3)
        })?;
        Ok(Box::new(Bank {
            workload: *self,
            penalised: Arc::default(),
            ledger: procedure::ledger(self),
        }))
    }
}

/// The bank in one database.
#[derive(Debug)]
struct Bank {
    workload: Smallbank,
    /// Checks committed that were charged a penalty.
    penalised: Arc<Mutex<u64>>,
    ledger: Ledger,
}

impl Loaded for Bank {
    fn client(&mut self, db: &Database, number: u32) -> Box<dyn Client> {
        let notes = self.ledger.notes();
        let penalised = self.penalised.clone();
        let client = SmallbankClient::new(db.clone(), self.workload, number, penalised, notes);
        Box::new(client)
    }

    fn check(&mut self, db: &Database, ended: &Tally) -> Result<(), String> {
        let moved = check::Moved::of(ended, &self.penalised);
        check::check(db, &self.workload, &moved, &self.ledger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_spot_is_a_part_of_the_customers_and_payments_have_two() {
        let sound = |customers, hotspot| {
            let bank = Smallbank {
                customers,
                hotspot,
                seed: 1,
            };
            bank.sound()
        };
        assert!(sound(2, false).is_ok() && sound(101, true).is_ok());
        assert!(sound(100, true).unwrap_err().contains("--hotspot"));
        assert!(sound(1, false).unwrap_err().contains("--customers"));
    }
}
