//! Checks of an idle database: who is there, and where the money is.

use std::sync::{Mutex, PoisonError};

use foxton::{Database, Isolation, Table, codec::Value};

use super::{
    ACCOUNTS, BY_NAME, CHECKING, SAVINGS, Smallbank, customer,
    procedure::{CHECK, DEPOSIT, PENALTY, SAVED, row_of},
};
use crate::{
    measure::outcome::{Outcome, Tally},
    workload::{ledger::Ledger, whole_table::each_numbered},
};

/// Transactions committed that brought money in or took it out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Paid in to checking.
    pub deposits: u64,
    /// Paid in to savings.
    pub saved: u64,
    /// Checks.
    pub checks: u64,
    /// Checks that were not covered.
    pub penalised: u64,
}

impl Moved {
    /// Reports of all clients.
    pub fn of(ended: &Tally, penalised: &Mutex<u64>) -> Moved {
        let count = |kind| ended.of_kind(kind, Outcome::Ok);
        Moved {
            deposits: count(1),
            saved: count(2),
            checks: count(4),
            penalised: *penalised.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Cents by which the sum of all money has grown.
    fn cents(&self) -> i64 {
        let times = |count: u64, cents: i64| count as i64 * cents;
        times(self.deposits, DEPOSIT) + times(self.saved, SAVED)
            - times(self.checks, CHECK)
            - times(self.penalised, PENALTY)
    }
}

/// Compares the customers with the load, each balance with the additions in the ledger, and the sum
/// of all money with the money moved.
///
/// # Errors
///
/// The first thing found wrong, as a sentence that names the row.
pub fn check(
    db: &Database,
    bank: &Smallbank,
    moved: &Moved,
    ledger: &Ledger,
) -> Result<(), String> {
    names(db, bank)?;
    let mut loaded = 0;
    for customer in 1..=bank.customers {
        loaded += customer::initial(bank.seed, customer).iter().sum::<i64>();
    }
    let savings = balances(db, bank, (&SAVINGS, 0), ledger)?;
    let checking = balances(db, bank, (&CHECKING, 1), ledger)?;
    let (all, expected) = (savings + checking, loaded + moved.cents());
    match all == expected {
        true => Ok(()),
        false => Err(format!(
            "savings and checking add up to {all} cents, not {expected}: {loaded} were loaded, and {} \
             deposits, {} payments to savings, {} checks and {} penalties were acknowledged. Each balance is \
             the result of its transactions, so these do not follow the benchmark",
            moved.deposits, moved.saved, moved.checks, moved.penalised
        )),
    }
}

/// Checks that every customer is in the table and found by name, and that there is no other.
fn names(db: &Database, bank: &Smallbank) -> Result<(), String> {
    each_numbered(db, &ACCOUNTS, bank.customers, |customer, name| {
        match name == customer::name(customer).as_bytes() {
            true => Ok(()),
            false => Err(format!(
                "row {customer} of {}: the name is {:?}",
                ACCOUNTS.name(),
                String::from_utf8_lossy(name)
            )),
        }
    })?;
    let unreadable = |error: foxton::Error| format!("{} cannot be read: {error}", BY_NAME.name());
    let mut tx = db.begin().map_err(unreadable)?;
    tx.set_isolation(Isolation::ReadUncommitted)
        .map_err(unreadable)?;
    let (mut next, mut wrong) = (1, None);
    // Names have as many digits each: their order is that of the numbers.
    tx.range_by(&BY_NAME, ..)
        .for_each(|name, customer, _| {
            if customer != next || name != customer::name(customer) {
                wrong.get_or_insert(format!(
                    "{}: {name} leads to row {customer}, where row {next} was next",
                    BY_NAME.name()
                ));
            }
            next += 1;
        })
        .map_err(unreadable)?;
    match wrong {
        Some(what) => Err(what),
        None if next <= bank.customers => Err(format!(
            "{}: nothing leads to row {next} of {}",
            BY_NAME.name(),
            ACCOUNTS.name()
        )),
        None => Ok(()),
    }
}

/// The sum of a table's balances; each must be the one of the ledger.
fn balances(
    db: &Database,
    bank: &Smallbank,
    (table, which): (&Table<u32, i64>, usize),
    ledger: &Ledger,
) -> Result<i64, String> {
    let (name, mut sum) = (table.name(), 0);
    each_numbered(db, table, bank.customers, |customer, row| {
        let balance = <i64 as Value>::decode(row)
            .map_err(|error| format!("row {customer} of {name} is no balance: {error}"))?;
        sum += balance;
        let loaded = customer::initial(bank.seed, customer)[which];
        let added = ledger.of(row_of(table, customer));
        match balance == loaded + added {
            true => Ok(()),
            false => Err(format!(
                "row {customer} of {name}: the balance is {balance}, but {loaded} was loaded and {added} \
                 added by transactions that committed"
            )),
        }
    })?;
    Ok(sum)
}

#[cfg(test)]
mod tests {
    //! Each check finds its fault.

    use foxton::{Index, Options, Transaction};

    use super::*;
    use crate::{
        progress::Audience,
        workload::{contract::Workload, loading::Loading, smallbank::procedure::ledger},
    };

    const BANK: Smallbank = Smallbank {
        customers: 60,
        hotspot: false,
        seed: 5,
    };

    fn database(by_name: &Index<str, u32, str>) -> Database {
        let mut options = Options::tiny();
        options.indexes.add(by_name);
        let db = Database::in_memory(options).unwrap();
        let nobody = Audience::Nobody.count("", 0, "");
        drop(BANK.load(&Loading::new(&db, 2, &nobody)).unwrap());
        db
    }

    fn found_in(db: &Database, ledger: &Ledger) -> Result<(), String> {
        check(db, &BANK, &Moved::default(), ledger)
    }

    fn found(spoil: impl Fn(&mut Transaction) -> foxton::Result<()>) -> String {
        let db = database(&BY_NAME);
        assert_eq!(found_in(&db, &ledger(&BANK)), Ok(()));
        db.run(spoil).unwrap();
        found_in(&db, &ledger(&BANK)).unwrap_err()
    }

    #[test]
    fn a_cent_too_much_is_found_and_its_row_named() {
        let [_, checking] = customer::initial(BANK.seed, 33);
        let db = database(&BY_NAME);
        db.run(|tx| tx.put(&CHECKING, &33, &(checking + 1)))
            .unwrap();
        assert_eq!(
            found_in(&db, &ledger(&BANK)).unwrap_err(),
            format!(
                "row 33 of smallbank_checking: the balance is {}, but {checking} was loaded and 0 added \
                 by transactions that committed",
                checking + 1
            )
        );
        // A known update is right, and an unknown one is an error.
        let ledger = ledger(&BANK);
        ledger.notes().add(row_of(&CHECKING, 33), 1);
        let all = found_in(&db, &ledger).unwrap_err();
        assert!(all.starts_with("savings and checking add up to"), "{all}");
    }

    #[test]
    fn money_is_what_was_loaded_and_moved() {
        let moved = Moved {
            deposits: 3,
            saved: 2,
            checks: 4,
            penalised: 1,
        };
        assert_eq!(moved.cents(), 3 * 130 + 2 * 2_020 - 4 * 500 - 100);
        let db = database(&BY_NAME);
        let [savings, _] = customer::initial(BANK.seed, 1);
        db.run(|tx| tx.put(&SAVINGS, &1, &(savings + moved.cents())))
            .unwrap();
        let ledger = ledger(&BANK);
        ledger.notes().add(row_of(&SAVINGS, 1), moved.cents());
        assert_eq!(check(&db, &BANK, &moved, &ledger), Ok(()));
    }

    #[test]
    fn who_is_missing_or_has_another_name_is_found() {
        assert_eq!(
            found(|tx| tx.delete(&SAVINGS, &7).map(drop)),
            "row 7 of smallbank_savings is gone"
        );
        assert_eq!(
            found(|tx| tx.insert(&CHECKING, &61, &0)),
            "row 61 of smallbank_checking should not be there: its rows are 1 to 60"
        );
        assert_eq!(
            found(|tx| tx.put(&ACCOUNTS, &9, "somebody")),
            "row 9 of smallbank_accounts: the name is \"somebody\""
        );
    }

    #[test]
    fn who_is_not_found_by_name_is_found() {
        const FORGETFUL: Index<str, u32, str> = Index::unique(
            "smallbank_accounts_name",
            &ACCOUNTS,
            |number, name, keys| {
                if *number != 17 {
                    keys.add(name);
                }
            },
        );
        let what = found_in(&database(&FORGETFUL), &ledger(&BANK)).unwrap_err();
        assert!(
            what.contains("leads to row 18, where row 17 was next"),
            "{what}"
        );
        const CUT: Index<str, u32, str> = Index::unique(
            "smallbank_accounts_name",
            &ACCOUNTS,
            |number, name, keys| {
                if *number != BANK.customers {
                    keys.add(name);
                }
            },
        );
        assert_eq!(
            found_in(&database(&CUT), &ledger(&BANK)).unwrap_err(),
            "smallbank_accounts_name: nothing leads to row 60 of smallbank_accounts"
        );
    }
}
