//! transfers: money moved between accounts by serializable transactions, and an auditor that sums
//! it meanwhile.
//!
//! It is document 001's bank behind latches [001 §3.3.1] as transactions. There the money of a
//! transfer is in no account for a moment, and the sum is right only when no transfer runs. Here it
//! is right whenever a serializable transaction reads, and an *auditor* reads all the time.

/// The auditor.
pub mod auditor;

use foxton::{Database, Table, Transaction};
use serde_json::json;

use self::auditor::Auditor;
use super::{
    attempt::{Failure, until_committed, until_read},
    contract::{About, Loaded, Size, Workload},
    ledger::{Ledger, Notes},
    loading::Loading,
    whole_table::each_numbered,
};
use crate::{
    driver::Client,
    measure::outcome::{Ended, Outcome, Tally},
    random::Random,
};

/// Cents by number, from 1.
pub const ACCOUNTS: Table<u32, i64> = Table::new("transfer_accounts");
/// The initial balance of each account, in cents.
pub const EACH: i64 = 100_000;
/// The most that is moved at once.
const MOST: u64 = 99_999;
/// The types of transaction.
const KINDS: &[&str] = &["transfer", "balance"];

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct Transfers {
    /// Accounts, at least 1.
    pub accounts: u32,
    /// Percentage of transactions that read one balance; the others move money.
    pub reads: u32,
    /// Seed of the clients.
    pub seed: u64,
}

impl Transfers {
    fn sum(&self) -> i64 {
        i64::from(self.accounts) * EACH
    }
}

impl Workload for Transfers {
    fn about(&self) -> About {
        let Transfers {
            accounts, reads, ..
        } = *self;
        About {
            name: "transfers",
            variant: format!("{accounts}-accounts-{reads}-reads"),
            title: format!("transfers between {accounts} accounts, {reads} % reads"),
            description: format!(
                "A transfer reads two of {accounts} accounts for update, in the order they were drawn in, and moves up \
                 to {MOST} cents; {reads} of a hundred transactions read one balance. An auditor adds up all accounts \
                 every {} ms.",
                auditor::EVERY.as_millis()
            ),
            checked: format!(
                "every audit finds {} cents, as loaded, and afterwards each account is the result of its \
                 transfers.",
                self.sum()
            ),
            settings: vec![
                ("accounts", json!(accounts)),
                ("reads", json!(reads)),
                ("isolation", json!("serializable")),
                ("seed", json!(self.seed)),
            ],
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        KINDS
    }

    fn size(&self) -> Size {
        Size {
            rows: u64::from(self.accounts),
            row_bytes: 8 + Ledger::ROW_BYTES,
        }
    }

    fn load(&self, into: &Loading<'_>) -> foxton::Result<Box<dyn Loaded>> {
        into.each(self.accounts, |tx, account| {
            tx.insert(&ACCOUNTS, &account, &EACH).map(|()| 1)
        })?;
        Ok(Box::new(Bank::new(*self)))
    }
}

/// The accounts in one database.
#[derive(Debug)]
struct Bank {
    workload: Transfers,
    /// While there are clients.
    auditor: Option<Auditor>,
    ledger: Ledger,
}

impl Bank {
    fn new(workload: Transfers) -> Bank {
        Bank {
            workload,
            auditor: None,
            ledger: Ledger::new(workload.accounts as usize + 1),
        }
    }
}

impl Loaded for Bank {
    fn client(&mut self, db: &Database, number: u32) -> Box<dyn Client> {
        self.auditor
            .get_or_insert_with(|| Auditor::of(db.clone(), self.workload.sum()));
        let name = u64::from_be_bytes(*b"transfer");
        Box::new(TransfersClient {
            db: db.clone(),
            workload: self.workload,
            random: Random::seeded(&[self.workload.seed, name, u64::from(number), 1]),
            notes: self.ledger.notes(),
        })
    }

    fn check(&mut self, db: &Database, _ended: &Tally) -> Result<(), String> {
        let mut at_rest = 0;
        each_numbered(db, &ACCOUNTS, self.workload.accounts, |account, row| {
            let wrong = |what| Err(format!("row {account} of {}: {what}", ACCOUNTS.name()));
            let balance = match <i64 as foxton::codec::Value>::decode(row) {
                Ok(balance) => balance,
                Err(error) => return wrong(error.to_string()),
            };
            at_rest += balance;
            let moved = self.ledger.of(u64::from(account));
            match balance == EACH + moved {
                true => Ok(()),
                false => wrong(format!(
                    "the balance is {balance}, but {EACH} was loaded and {moved} added by transfers that \
                     committed"
                )),
            }
        })?;
        if at_rest != self.workload.sum() {
            return Err(format!(
                "the accounts add up to {at_rest} cents, not {}",
                self.workload.sum()
            ));
        }
        if let Some(auditor) = self.auditor.take() {
            auditor.ends()?;
        }
        Ok(())
    }
}

/// A client of the bank.
#[derive(Debug)]
struct TransfersClient {
    db: Database,
    workload: Transfers,
    random: Random,
    notes: Notes,
}

impl Client for TransfersClient {
    fn transaction(&mut self) -> Ended {
        let last = u64::from(self.workload.accounts);
        let kind = usize::from(self.random.percent(self.workload.reads));
        let mut draw = || self.random.uniform(1, last) as u32;
        let (from, to) = (draw(), draw());
        let amount = self.random.uniform(0, MOST) as i64;
        let (named, random) = ((KINDS, kind), &mut self.random);
        let ended = match kind {
            0 => until_committed(&self.db, named, random, |tx| transfer(tx, from, to, amount)),
            _ => until_read(&self.db, named, random, |tx| {
                balance(tx.get(&ACCOUNTS, &from)?, from).map(drop)
            }),
        };
        if kind == 0 && ended.outcome == Outcome::Ok {
            self.notes.add(u64::from(from), -amount);
            self.notes.add(u64::from(to), amount);
        }
        ended
    }
}

fn balance(found: Option<i64>, account: u32) -> Result<i64, Failure> {
    found.ok_or_else(|| Failure::Wrong(format!("account {account} is gone")))
}

/// Two reads for update in the order drawn, so two transfers in opposite directions deadlock.
fn transfer(tx: &mut Transaction, from: u32, to: u32, amount: i64) -> Result<(), Failure> {
    let has = balance(tx.get_for_update(&ACCOUNTS, &from)?, from)?;
    let gets = balance(tx.get_for_update(&ACCOUNTS, &to)?, to)?;
    if from != to {
        tx.put(&ACCOUNTS, &from, &(has - amount))?;
        tx.put(&ACCOUNTS, &to, &(gets + amount))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
