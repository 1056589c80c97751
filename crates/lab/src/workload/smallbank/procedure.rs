//! The transactions. Each first finds its customers by name.

use foxton::{Table, Transaction};

use super::{BY_NAME, CHECKING, SAVINGS, Smallbank, customer};
use crate::{
    random::Random,
    workload::{
        attempt::{End, Failure},
        ledger::Ledger,
    },
};

/// The types of transaction, as they are named in results.
pub const KINDS: &[&str] = &[
    "balance",
    "deposit-checking",
    "transact-savings",
    "amalgamate",
    "write-check",
    "send-payment",
];
/// Percentages of the types.
const WEIGHTS: [u32; 6] = [15, 15, 15, 15, 15, 25];

/// Cents paid in to checking.
pub const DEPOSIT: i64 = 130;
/// Cents paid in to savings.
pub const SAVED: i64 = 2_020;
/// Cents of a check.
pub const CHECK: i64 = 500;
/// Cents charged in addition if the check is not covered.
pub const PENALTY: i64 = 100;
/// Cents one customer pays another.
pub const PAYMENT: i64 = 500;

/// A transaction and its customers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Procedure {
    /// Read both balances.
    Balance(u32),
    /// Pay in to checking.
    DepositChecking(u32),
    /// Pay in to savings.
    TransactSavings(u32),
    /// All money of the first to the checking of the second.
    Amalgamate([u32; 2]),
    /// Pay from checking; more, if both accounts together do not cover it.
    WriteCheck(u32),
    /// From the checking of the first to that of the second.
    SendPayment([u32; 2]),
}

impl Procedure {
    /// Draws one.
    pub fn draw(random: &mut Random, bank: &Smallbank) -> Procedure {
        match random.weighted(&WEIGHTS) {
            0 => Procedure::Balance(customer::one(random, bank)),
            1 => Procedure::DepositChecking(customer::one(random, bank)),
            2 => Procedure::TransactSavings(customer::one(random, bank)),
            3 => Procedure::Amalgamate(customer::two(random, bank)),
            4 => Procedure::WriteCheck(customer::one(random, bank)),
            _ => Procedure::SendPayment(customer::two(random, bank)),
        }
    }

    /// Its place among [`KINDS`].
    pub fn kind(self) -> usize {
        match self {
            Procedure::Balance(_) => 0,
            Procedure::DepositChecking(_) => 1,
            Procedure::TransactSavings(_) => 2,
            Procedure::Amalgamate(_) => 3,
            Procedure::WriteCheck(_) => 4,
            Procedure::SendPayment(_) => 5,
        }
    }

    /// Runs it, and records its changes in `done`. Does not end the transaction.
    ///
    /// # Errors
    ///
    /// If the engine refuses an operation, or a row is missing.
    pub fn run(self, tx: &mut Transaction, done: &mut Done) -> Result<End, Failure> {
        done.clear();
        match self {
            Procedure::Balance(customer) => {
                let customer = found(tx, customer)?;
                let savings = read(tx, &SAVINGS, customer)?;
                let checking = read(tx, &CHECKING, customer)?;
                std::hint::black_box(savings + checking);
            }
            Procedure::DepositChecking(customer) => {
                let customer = found(tx, customer)?;
                let checking = for_update(tx, &CHECKING, customer)?;
                done.set(tx, &CHECKING, customer, (checking, checking + DEPOSIT))?;
            }
            Procedure::TransactSavings(customer) => {
                let customer = found(tx, customer)?;
                let savings = for_update(tx, &SAVINGS, customer)?;
                if savings + SAVED < 0 {
                    return Ok(End::Ruled);
                }
                done.set(tx, &SAVINGS, customer, (savings, savings + SAVED))?;
            }
            Procedure::Amalgamate([from, to]) => {
                let (from, to) = (found(tx, from)?, found(tx, to)?);
                let savings = for_update(tx, &SAVINGS, from)?;
                let checking = for_update(tx, &CHECKING, from)?;
                done.set(tx, &SAVINGS, from, (savings, 0))?;
                done.set(tx, &CHECKING, from, (checking, 0))?;
                let theirs = for_update(tx, &CHECKING, to)?;
                done.set(tx, &CHECKING, to, (theirs, theirs + savings + checking))?;
            }
            Procedure::WriteCheck(customer) => {
                let customer = found(tx, customer)?;
                let savings = read(tx, &SAVINGS, customer)?;
                let checking = for_update(tx, &CHECKING, customer)?;
                done.penalised = savings + checking < CHECK;
                let charged = if done.penalised {
                    CHECK + PENALTY
                } else {
                    CHECK
                };
                done.set(tx, &CHECKING, customer, (checking, checking - charged))?;
            }
            Procedure::SendPayment([from, to]) => {
                let (from, to) = (found(tx, from)?, found(tx, to)?);
                let mine = for_update(tx, &CHECKING, from)?;
                if mine < PAYMENT {
                    return Ok(End::Ruled);
                }
                done.set(tx, &CHECKING, from, (mine, mine - PAYMENT))?;
                let theirs = for_update(tx, &CHECKING, to)?;
                done.set(tx, &CHECKING, to, (theirs, theirs + PAYMENT))?;
            }
        }
        Ok(End::Done)
    }
}

/// Changes of one attempt; they count if the attempt commits.
#[derive(Debug, Default)]
pub struct Done {
    /// A row, by [`row_of`], and the cents added to it.
    pub changes: Vec<(u64, i64)>,
    /// True if it was a check that was not covered.
    pub penalised: bool,
}

impl Done {
    fn clear(&mut self) {
        self.changes.clear();
        self.penalised = false;
    }

    fn set(
        &mut self,
        tx: &mut Transaction,
        table: &Table<u32, i64>,
        customer: u32,
        (before, after): (i64, i64),
    ) -> Result<(), Failure> {
        tx.put(table, &customer, &after)?;
        self.changes.push((row_of(table, customer), after - before));
        Ok(())
    }
}

/// A ledger with a place for each row of savings and checking.
pub fn ledger(bank: &Smallbank) -> Ledger {
    Ledger::new(row_of(&CHECKING, bank.customers) as usize + 1)
}

/// The number of a row of savings or checking: no two rows have one.
pub fn row_of(table: &Table<u32, i64>, customer: u32) -> u64 {
    2 * u64::from(customer) + u64::from(table.name() == CHECKING.name())
}

/// The number of the customer with this name, who must be this one.
fn found(tx: &mut Transaction, customer: u32) -> Result<u32, Failure> {
    match tx.get_by(&BY_NAME, &customer::name(customer))? {
        Some((found, _)) if found == customer => Ok(found),
        Some((found, _)) => Err(Failure::Wrong(format!(
            "by the name of customer {customer} customer {found} was found"
        ))),
        None => Err(Failure::Wrong(format!(
            "customer {customer} is not found by name"
        ))),
    }
}

fn read(tx: &mut Transaction, table: &Table<u32, i64>, customer: u32) -> Result<i64, Failure> {
    tx.get(table, &customer)?
        .ok_or_else(|| gone(table, customer))
}

fn for_update(
    tx: &mut Transaction,
    table: &Table<u32, i64>,
    customer: u32,
) -> Result<i64, Failure> {
    tx.get_for_update(table, &customer)?
        .ok_or_else(|| gone(table, customer))
}

fn gone(table: &Table<u32, i64>, customer: u32) -> Failure {
    Failure::Wrong(format!("row {customer} of {} is gone", table.name()))
}

#[cfg(test)]
mod tests {
    use foxton::{Database, Options};

    use super::*;

    fn bank(balances: [[i64; 2]; 2]) -> Database {
        let mut options = Options::tiny();
        options.indexes.add(&BY_NAME);
        let db = Database::in_memory(options).unwrap();
        db.run(|tx| {
            for (customer, [savings, checking]) in (1..).zip(balances) {
                tx.put(
                    &super::super::ACCOUNTS,
                    &customer,
                    &customer::name(customer),
                )?;
                tx.put(&SAVINGS, &customer, &savings)?;
                tx.put(&CHECKING, &customer, &checking)?;
            }
            Ok(())
        })
        .unwrap();
        db
    }

    /// Runs a procedure on two customers with these balances, and checks its records.
    fn after(before: [[i64; 2]; 2], what: Procedure) -> ([[i64; 2]; 2], End, Done) {
        let db = bank(before);
        let mut done = Done::default();
        let mut tx = db.begin().unwrap();
        let end = what.run(&mut tx, &mut done).unwrap();
        match end {
            End::Done => tx.commit().unwrap(),
            _ => drop(tx),
        }
        let mut tx = db.begin().unwrap();
        let mut of = |table, customer| tx.get(table, &customer).unwrap().unwrap();
        let balances = [1, 2].map(|customer| [of(&SAVINGS, customer), of(&CHECKING, customer)]);
        (balances, end, done)
    }

    #[test]
    fn each_does_what_the_benchmark_says() {
        let before = [[1_000, 2_000], [3_000, 4_000]];
        let cases = [
            (Procedure::Balance(1), before),
            (
                Procedure::DepositChecking(1),
                [[1_000, 2_130], [3_000, 4_000]],
            ),
            (
                Procedure::TransactSavings(2),
                [[1_000, 2_000], [5_020, 4_000]],
            ),
            (Procedure::Amalgamate([2, 1]), [[1_000, 9_000], [0, 0]]),
            (Procedure::WriteCheck(1), [[1_000, 1_500], [3_000, 4_000]]),
            (
                Procedure::SendPayment([1, 2]),
                [[1_000, 1_500], [3_000, 4_500]],
            ),
        ];
        for (procedure, expected) in cases {
            let (balances, end, done) = after(before, procedure);
            assert_eq!((balances, end), (expected, End::Done), "{procedure:?}");
            assert!(!done.penalised);
            // The recorded changes are those of the rows.
            for (customer, (was, is)) in (1..).zip(before.into_iter().zip(balances)) {
                for (table, (was, is)) in [&SAVINGS, &CHECKING]
                    .into_iter()
                    .zip(was.into_iter().zip(is))
                {
                    let row = row_of(table, customer);
                    let noted = done.changes.iter().filter(|(noted, _)| *noted == row);
                    let noted: i64 = noted.map(|(_, change)| change).sum();
                    assert_eq!(noted, is - was, "{procedure:?}");
                }
            }
        }
    }

    #[test]
    fn who_cannot_pay_is_refused_or_charged() {
        let poor = [[-2_100, 499], [0, 0]];
        let (balances, end, _) = after(poor, Procedure::SendPayment([1, 2]));
        assert_eq!((balances, end), (poor, End::Ruled));
        let (balances, end, _) = after(poor, Procedure::TransactSavings(1));
        assert_eq!((balances, end), (poor, End::Ruled));
        let (balances, end, done) = after(poor, Procedure::WriteCheck(1));
        assert_eq!((balances[0], end), ([-2_100, -101], End::Done));
        assert!(done.penalised);
    }

    #[test]
    fn every_type_has_its_share() {
        let bank = Smallbank {
            customers: 10,
            hotspot: false,
            seed: 1,
        };
        let mut random = Random::seeded(&[9]);
        let mut counts = [0u32; 6];
        for _ in 0..20_000 {
            counts[Procedure::draw(&mut random, &bank).kind()] += 1;
        }
        for (count, weight) in counts.into_iter().zip(WEIGHTS) {
            assert!(count.abs_diff(weight * 200) < 250, "{counts:?}");
        }
    }
}
