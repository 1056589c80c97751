//! Histories: what each transaction saw and did, replayed one after the other.
//!
//! Transactions of many threads read, scan and write at random and note every answer. Just before it
//! commits, while it holds every lock it took, each draws a number from one counter. If the locks are
//! right, two transactions that conflict hold their locks one after the other, so the numbers order
//! them as the locks did; and running all transactions alone, in the order of the numbers, must give
//! every one of them the answers it got. A plain ordered map does that. A phantom is a scan whose
//! rows differ; a lost update, a dirty or a fuzzy read is a value that differs.
//!
//! The numbers also keep real time: who began after another had committed draws a larger one. So what
//! is shown is strict serializability, of the histories that were produced.

use crate::ledger::mix;
use foxton::{Database, Error, Result, Table, Transaction};
use foxton_sync::shim::{AtomicU64, Ordering};
use std::{collections::BTreeMap, fmt, thread};

const ROWS: Table<u64, u64> = Table::new("rows");

/// One operation and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The value of a key.
    Get(u64, Option<u64>),
    /// The rows between two keys, both included: at most so many, from the end if reversed.
    Scan {
        /// The smallest key.
        from: u64,
        /// The largest key.
        to: u64,
        /// Whether the largest comes first.
        reversed: bool,
        /// Rows read at most.
        limit: u64,
        /// What was there.
        rows: Vec<(u64, u64)>,
    },
    /// A key was given a value.
    Put(u64, u64),
    /// A key was to be given a value if it had none. Whether it was.
    Insert(u64, u64, bool),
    /// A key was taken away. Whether it was there.
    Delete(u64, bool),
}

/// A transaction that committed.
#[derive(Debug, Clone)]
pub struct Committed {
    /// Its place among all.
    pub order: u64,
    /// Who ran it.
    pub client: u32,
    /// What it did, in order.
    pub steps: Vec<Step>,
}

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// What every choice is drawn from.
    pub seed: u64,
    /// Threads.
    pub clients: u32,
    /// Transactions of each that commit.
    pub count: u64,
    /// Keys are below this.
    pub keys: u64,
    /// Operations of a transaction, at most.
    pub steps: u64,
}

/// An answer that the transactions before do not explain.
#[derive(Debug)]
pub struct Anomaly {
    /// Which transaction got it.
    pub transaction: Committed,
    /// Which of its steps.
    pub step: usize,
    /// What it should have been.
    pub right: Step,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Committed {
            order,
            client,
            steps,
        } = &self.transaction;
        writeln!(
            f,
            "transaction {order} of client {client}, step {}:",
            self.step
        )?;
        writeln!(f, "  it was {:?}", steps[self.step])?;
        writeln!(f, "  alone, {:?}", self.right)?;
        write!(f, "  in {steps:?}")
    }
}

/// A client's source of choices.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % bound
    }
}

/// Runs `plan` on `db`, whose rows must be none, and returns what was committed, in order.
///
/// # Errors
///
/// Whatever the database answers, except conflicts: those are run again.
pub fn run(db: &Database, plan: Plan) -> Result<Vec<Committed>> {
    let counter = AtomicU64::new(0);
    let client = |client| {
        let mut random = Random(mix(plan.seed) ^ mix(u64::from(client)));
        (0..plan.count)
            .map(|_| run_one(db, plan, client, &mut random, &counter))
            .collect()
    };
    let histories = thread::scope(|scope| {
        let client = &client;
        let clients: Vec<_> = (0..plan.clients)
            .map(|id| scope.spawn(move || client(id)))
            .collect();
        let histories = clients
            .into_iter()
            .map(|client| client.join().expect("a client panicked"));
        histories.collect::<Result<Vec<Vec<Committed>>>>()
    })?;
    let mut history = histories.concat();
    history.sort_by_key(|transaction| transaction.order);
    Ok(history)
}

/// Runs transactions until one commits.
fn run_one(
    db: &Database,
    plan: Plan,
    client: u32,
    random: &mut Random,
    counter: &AtomicU64,
) -> Result<Committed> {
    loop {
        let mut tx = db.begin()?;
        let count = 1 + random.below(plan.steps);
        let steps: Result<Vec<Step>> = (0..count).map(|_| step(&mut tx, plan, random)).collect();
        match steps {
            // One of ten is rolled back, and nobody may have seen it.
            Ok(_) if random.below(10) == 0 => tx.rollback(),
            Ok(steps) => {
                // Relaxed: of two that conflict the locks, still held, say which comes first.
                let order = counter.fetch_add(1, Ordering::Relaxed);
                tx.commit()?;
                return Ok(Committed {
                    order,
                    client,
                    steps,
                });
            }
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error),
        }
    }
}

fn step(tx: &mut Transaction, plan: Plan, random: &mut Random) -> Result<Step> {
    let key = random.below(plan.keys);
    let value = random.below(u64::MAX);
    Ok(match random.below(12) {
        0 | 1 => Step::Get(key, tx.get(&ROWS, &key)?),
        2 => Step::Get(key, tx.get_for_update(&ROWS, &key)?),
        3..=5 => scan(tx, plan, key, random)?,
        6 | 7 => {
            tx.put(&ROWS, &key, &value)?;
            Step::Put(key, value)
        }
        8 | 9 => match tx.insert(&ROWS, &key, &value) {
            Ok(()) => Step::Insert(key, value, true),
            Err(Error::Request(foxton::error::Request::KeyExists)) => {
                Step::Insert(key, value, false)
            }
            Err(error) => return Err(error),
        },
        _ => Step::Delete(key, tx.delete(&ROWS, &key)?),
    })
}

fn scan(tx: &mut Transaction, plan: Plan, from: u64, random: &mut Random) -> Result<Step> {
    let to = from + random.below(1 + plan.keys / 8);
    let reversed = random.below(2) == 0;
    let limit = if random.below(2) == 0 { 3 } else { u64::MAX };
    let range = tx.range(&ROWS, from..=to).limit(limit);
    let rows = if reversed {
        range.reversed().collect()?
    } else {
        range.collect()?
    };
    Ok(Step::Scan {
        from,
        to,
        reversed,
        limit,
        rows,
    })
}

/// Runs `history` alone, one transaction after the other, and returns the rows at its end.
///
/// # Errors
///
/// The first answer that differs.
pub fn replay(history: &[Committed]) -> Result<BTreeMap<u64, u64>, Box<Anomaly>> {
    let mut rows = BTreeMap::new();
    for transaction in history {
        for (index, step) in transaction.steps.iter().enumerate() {
            let right = alone(&mut rows, step);
            if right != *step {
                let transaction = transaction.clone();
                return Err(Box::new(Anomaly {
                    transaction,
                    step: index,
                    right,
                }));
            }
        }
    }
    Ok(rows)
}

/// What `step` does, and answers, when nobody else is there.
fn alone(rows: &mut BTreeMap<u64, u64>, step: &Step) -> Step {
    match *step {
        Step::Get(key, _) => Step::Get(key, rows.get(&key).copied()),
        Step::Scan {
            from,
            to,
            reversed,
            limit,
            ..
        } => {
            let range = rows.range(from..=to).map(|(&key, &value)| (key, value));
            let most = usize::try_from(limit).unwrap_or(usize::MAX);
            let rows = match reversed {
                true => range.rev().take(most).collect(),
                false => range.take(most).collect(),
            };
            Step::Scan {
                from,
                to,
                reversed,
                limit,
                rows,
            }
        }
        Step::Put(key, value) => {
            rows.insert(key, value);
            Step::Put(key, value)
        }
        Step::Insert(key, value, _) => {
            let free = !rows.contains_key(&key);
            rows.entry(key).or_insert(value);
            Step::Insert(key, value, free)
        }
        Step::Delete(key, _) => Step::Delete(key, rows.remove(&key).is_some()),
    }
}

/// The rows of `db`.
///
/// # Errors
///
/// Whatever the database answers.
pub fn rows(db: &Database) -> Result<BTreeMap<u64, u64>> {
    db.run(|tx| Ok(tx.range(&ROWS, ..).collect()?.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    //! The anomalies of the literature, each of which the replay must notice.

    use super::*;

    fn history(transactions: &[&[Step]]) -> Vec<Committed> {
        let numbered = transactions.iter().zip(0..);
        numbered
            .map(|(steps, order)| Committed {
                order,
                client: order as u32,
                steps: steps.to_vec(),
            })
            .collect()
    }

    fn scan(rows: &[(u64, u64)]) -> Step {
        let rows = rows.to_vec();
        Step::Scan {
            from: 0,
            to: 9,
            reversed: false,
            limit: u64::MAX,
            rows,
        }
    }

    #[test]
    fn a_serial_history_replays() {
        let history = history(&[
            &[
                Step::Put(1, 10),
                Step::Insert(2, 20, true),
                scan(&[(1, 10), (2, 20)]),
            ],
            &[
                Step::Get(1, Some(10)),
                Step::Delete(2, true),
                Step::Insert(1, 11, false),
            ],
            &[Step::Get(2, None), scan(&[(1, 10)])],
        ]);
        assert_eq!(replay(&history).unwrap(), BTreeMap::from([(1, 10)]));
    }

    #[test]
    fn each_anomaly_is_noticed_in_either_order() {
        use Step::{Get, Insert, Put};
        let set = || vec![Put(1, 10), Put(2, 20)];
        let anomalies: [(&str, [Vec<Step>; 2]); 5] = [
            (
                "lost update",
                [
                    vec![Get(1, Some(10)), Put(1, 11)],
                    vec![Get(1, Some(10)), Put(1, 12)],
                ],
            ),
            (
                "write skew",
                [
                    vec![Get(2, Some(20)), Put(1, 0)],
                    vec![Get(1, Some(10)), Put(2, 0)],
                ],
            ),
            (
                "read skew",
                [
                    vec![Get(1, Some(10)), Get(2, Some(21))],
                    vec![Put(1, 11), Put(2, 21)],
                ],
            ),
            (
                "phantom",
                [
                    vec![scan(&[(1, 10), (2, 20)]), Insert(3, 1, true)],
                    vec![scan(&[(1, 10), (2, 20)]), Insert(4, 1, true)],
                ],
            ),
            (
                "aborted read",
                [vec![Get(1, Some(99))], vec![Get(1, Some(10))]],
            ),
        ];
        for (name, [one, other]) in &anomalies {
            for order in [[&set(), one, other], [&set(), other, one]] {
                let history = history(&order.map(|steps| &steps[..]));
                assert!(replay(&history).is_err(), "{name} was not noticed");
            }
        }
    }
}
