//! Accounts that threads move money between [001 §3.3.1].
//!
//! With a latch for each account a transfer locks one after the other, as in the document. Between
//! the two the money is in no account, so the sum is right only when no transfer is running. With
//! one latch a transfer is atomic, and a reader can sum all accounts meanwhile.

use foxton_sync::{
    latch::{Kind, Latched},
    worker::Worker,
};

use super::{Done, Hand, OneLine, SITE, Structure};

/// The initial balance of each account, in cents.
pub const EACH: i64 = 100_000;
/// The most that is moved at once.
const MOST: u64 = 99_999;

#[derive(Debug)]
enum Accounts {
    Each(Vec<OneLine<Latched<i64>>>),
    All(Latched<Vec<i64>>),
}

/// Accounts with a latch each, or one latch for all.
#[derive(Debug)]
pub struct Bank {
    accounts: Accounts,
    count: usize,
    reads: u32,
}

impl Bank {
    /// `accounts` accounts; `reads` of a hundred operations read one.
    pub fn new(kind: Kind, count: usize, reads: u32, global: bool) -> Bank {
        let one = |_| OneLine(Latched::new(kind, &SITE, EACH));
        Bank {
            accounts: match global {
                true => Accounts::All(Latched::new(kind, &SITE, vec![EACH; count])),
                false => Accounts::Each((0..count).map(one).collect()),
            },
            count,
            reads,
        }
    }
}

impl Structure for Bank {
    fn operate(&self, hand: &mut Hand, count: u64) {
        let last = self.count as u64 - 1;
        let mut balances = 0;
        for _ in 0..count {
            let worker = &hand.worker;
            let read = hand.random.percent(self.reads);
            let mut draw = || hand.random.uniform(0, last) as usize;
            let (from, to) = (draw(), draw());
            let amount = hand.random.uniform(0, MOST) as i64;
            match &self.accounts {
                Accounts::Each(all) if read => {
                    balances += all[from].0.with(worker, |balance| *balance);
                }
                Accounts::Each(all) => {
                    all[from].0.with(worker, |balance| *balance -= amount);
                    all[to].0.with(worker, |balance| *balance += amount);
                }
                Accounts::All(all) if read => balances += all.with(worker, |all| all[from]),
                Accounts::All(all) => all.with(worker, |all| {
                    all[from] -= amount;
                    all[to] += amount;
                }),
            }
        }
        std::hint::black_box(balances);
        hand.done.operations += count;
    }

    fn check(&self, worker: &Worker, _done: Done) -> Result<(), String> {
        let sum: i64 = match &self.accounts {
            Accounts::Each(all) => {
                let balances = all.iter().map(|one| one.0.with(worker, |balance| *balance));
                balances.sum()
            }
            Accounts::All(all) => all.with(worker, |all| all.iter().sum()),
        };
        let due = EACH * self.count as i64;
        match sum == due {
            true => Ok(()),
            false => Err(format!("the accounts have {sum} cents, {due} are due")),
        }
    }
}
