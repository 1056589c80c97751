//! The transactions, each written once.

use super::contract::{Ask, Session, Shape, Step, Stop, Totals};
use crate::{driver::Draw, rows::mix};
use clap::ValueEnum;

/// A workload, small enough that several servers can be loaded in a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Three tables of long rows: the numbers of ten neighbours are added up, and one transaction
    /// in five also gives two rows of the next table a new text.
    Txbench,
    /// A hundred branches: account, teller, branch and history.
    Tpcb,
    /// Eight tables: ten rows, four ranges of a hundred, two updates, a delete and an insert.
    Sysbench,
}

const RANGE: u64 = 10;
const TXBENCH_ROWS: u64 = 10_000;
const TXBENCH_TEXT: usize = 1_776;
const BRANCHES: u64 = 100;
const TELLERS: u64 = 10;
const ACCOUNTS: u64 = 1_000;
const HISTORY: usize = 3;
const SYSBENCH_ROWS: u64 = 10_000;
const SYSBENCH_TABLES: usize = 8;
const SYSBENCH_TEXT: usize = 180;
const LONG_RANGE: u64 = 100;
const BANK_TEXT: usize = 84;
const NOTE_TEXT: usize = 22;

/// Names of tables, as many as any workload has.
const NAMES: [&str; SYSBENCH_TABLES] = ["t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8"];

impl Workload {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::Txbench => "txbench",
            Workload::Tpcb => "tpcb",
            Workload::Sysbench => "sysbench",
        }
    }

    pub(crate) fn about(self) -> String {
        match self {
            Workload::Txbench => format!(
                "3 tables of {TXBENCH_ROWS} rows with {TXBENCH_TEXT} letters; a range of {RANGE}, and 20 % update two rows"
            ),
            Workload::Tpcb => format!(
                "{BRANCHES} branches, {TELLERS} tellers and {ACCOUNTS} accounts each; 15 of 100 accounts are of another branch"
            ),
            Workload::Sysbench => format!(
                "{SYSBENCH_TABLES} tables of {SYSBENCH_ROWS} rows with {SYSBENCH_TEXT} letters, uniform; 18 statements"
            ),
        }
    }

    pub(crate) fn tables(self) -> Vec<Shape> {
        let sizes: &[u64] = match self {
            Workload::Txbench => &[TXBENCH_ROWS; 3],
            Workload::Tpcb => &[BRANCHES, BRANCHES * TELLERS, BRANCHES * ACCOUNTS, 0],
            Workload::Sysbench => &[SYSBENCH_ROWS; SYSBENCH_TABLES],
        };
        let shape = |(&rows, name)| Shape {
            name,
            rows,
            indexed: self == Workload::Sysbench,
        };
        sizes.iter().zip(NAMES).map(shape).collect()
    }

    /// Rows to load.
    pub(crate) fn row(self, table: usize, id: u64) -> (i64, String) {
        let mut draw = Draw::new(id, table);
        match self {
            Workload::Txbench => (number(table, id), letters(&mut draw, TXBENCH_TEXT)),
            Workload::Tpcb => (0, letters(&mut draw, BANK_TEXT)),
            Workload::Sysbench => {
                let number = draw.below(SYSBENCH_ROWS) as i64 + 1;
                (number, letters(&mut draw, SYSBENCH_TEXT))
            }
        }
    }

    /// Runs one transaction, but for its beginning and end. `unique` was never given to another
    /// that committed.
    pub(crate) fn run(self, session: &mut dyn Session, draw: &mut Draw, unique: u64) -> Step {
        match self {
            Workload::Txbench => txbench(session, draw),
            Workload::Tpcb => tpcb(session, draw, unique),
            Workload::Sysbench => sysbench(session, draw),
        }
    }

    /// Whether the tables are what so many transactions leave.
    pub(crate) fn check(self, found: &[Totals], committed: u64) -> Result<(), String> {
        for (table, (shape, found)) in self.tables().iter().zip(found).enumerate() {
            let history = self == Workload::Tpcb && table == HISTORY;
            let text = match self {
                Workload::Txbench => TXBENCH_TEXT,
                Workload::Sysbench => SYSBENCH_TEXT,
                Workload::Tpcb if history => NOTE_TEXT,
                Workload::Tpcb => BANK_TEXT,
            };
            let rows = if history { committed } else { shape.rows };
            let dense = history || (found.least_id, found.greatest_id) == (1, rows);
            if found.rows != rows || found.letters != rows * text as u64 || !dense {
                return Err(format!(
                    "table {} should have {rows} rows of {text} letters: {found:?}",
                    shape.name
                ));
            }
            if self == Workload::Txbench
                && found.sum != (1..=rows).map(|id| number(table, id)).sum::<i64>()
            {
                return Err(format!("numbers of {} changed: {found:?}", shape.name));
            }
        }
        let sums: Vec<i64> = found.iter().map(|totals| totals.sum).collect();
        match self {
            Workload::Tpcb if sums.iter().any(|&sum| sum != sums[0]) => Err(format!(
                "branches, tellers, accounts and history add up to {sums:?}"
            )),
            _ => Ok(()),
        }
    }
}

/// The number in a row of txbench, which never changes.
fn number(table: usize, id: u64) -> i64 {
    (mix(id ^ mix(table as u64)) % 1_000) as i64
}

fn letters(draw: &mut Draw, count: usize) -> String {
    let mut text = String::with_capacity(count + 8);
    while text.len() < count {
        let drawn = draw.below(26_u64.pow(8));
        text.extend((0..8).map(|at| char::from(b'a' + (drawn / 26_u64.pow(at) % 26) as u8)));
    }
    text.truncate(count);
    text
}

fn wrong(what: String) -> Stop {
    Stop::Failed(what.into())
}

fn txbench(session: &mut dyn Session, draw: &mut Draw) -> Step {
    let table = draw.below(3) as usize;
    let first = 1 + draw.below(TXBENCH_ROWS - RANGE + 1);
    let last = first + RANGE - 1;
    let came = session.range(Ask::Rows, table, first, last)?;
    let sum: i64 = (first..=last).map(|id| number(table, id)).sum();
    if (came.rows, came.sum) != (RANGE, sum) {
        return Err(wrong(format!("rows {first} to {last} came as {came:?}")));
    }
    if draw.below(100) < 20 {
        // In the order of ids, so that no two that update wait for each other in a circle of two.
        let low = 1 + draw.below(TXBENCH_ROWS - 1);
        let high = low + 1 + draw.below(TXBENCH_ROWS - low);
        for id in [low, high] {
            let text = letters(draw, TXBENCH_TEXT);
            session.set((table + 1) % 3, id, &text)?;
        }
    }
    Ok(())
}

fn tpcb(session: &mut dyn Session, draw: &mut Draw, unique: u64) -> Step {
    let teller = draw.below(BRANCHES * TELLERS);
    let branch = teller / TELLERS;
    let of = match draw.below(100) < 85 {
        true => branch,
        false => (branch + 1 + draw.below(BRANCHES - 1)) % BRANCHES,
    };
    let account = of * ACCOUNTS + draw.below(ACCOUNTS);
    let amount = draw.below(1_999_999) as i64 - 999_999;
    session.add(2, account + 1, amount)?;
    session.read(2, account + 1)?;
    session.insert(HISTORY, unique, amount, &letters(draw, NOTE_TEXT))?;
    session.add(1, teller + 1, amount)?;
    session.add(0, branch + 1, amount)
}

fn sysbench(session: &mut dyn Session, draw: &mut Draw) -> Step {
    let table = |draw: &mut Draw| draw.below(SYSBENCH_TABLES as u64) as usize;
    let id = |draw: &mut Draw| 1 + draw.below(SYSBENCH_ROWS);
    let points = table(draw);
    for _ in 0..10 {
        session.read(points, id(draw))?;
    }
    for ask in [Ask::Rows, Ask::Sum, Ask::Ordered, Ask::Distinct] {
        let (table, first) = (table(draw), id(draw));
        let last = (first + LONG_RANGE - 1).min(SYSBENCH_ROWS);
        let came = session.range(ask, table, first, last)?;
        let all = matches!(ask, Ask::Rows | Ask::Ordered);
        if all && came.rows != last - first + 1 {
            return Err(wrong(format!("rows {first} to {last} came as {came:?}")));
        }
    }
    let (of, row) = (table(draw), id(draw));
    session.add(of, row, 1)?;
    let (of, row) = (table(draw), id(draw));
    session.set(of, row, &letters(draw, SYSBENCH_TEXT))?;
    let (of, row) = (table(draw), id(draw));
    session.delete(of, row)?;
    let number = id(draw) as i64;
    session.insert(of, row, number, &letters(draw, SYSBENCH_TEXT))
}
