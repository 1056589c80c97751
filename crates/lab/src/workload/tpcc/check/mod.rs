//! Conditions of consistency of an idle database: the twelve of TPC-C's clause 3.3.2, and eight
//! stronger ones that draw initial values again from the load's seed and know the acknowledged
//! transactions.
//!
//! | | of | must hold |
//! |---|---|---|
//! | 1 | a warehouse | its ytd is the sum of its districts' |
//! | 2 | a district | its next order follows its last one and the last new order, if any |
//! | 3 | a district | its new orders, which wait for delivery, are numbered without holes |
//! | 4 | a district | its lines are as many as its orders have; no line is elsewhere |
//! | 5 | an order | it has no carrier exactly if it waits for delivery; none waits elsewhere |
//! | 6 | an order | it has its number of lines |
//! | 7 | a line | it has no date of delivery exactly if its order has no carrier |
//! | 8 | a warehouse | its ytd is the sum of its payments |
//! | 9 | a district | its ytd is the sum of its payments |
//! | 10 | a customer | the balance is the sum of deliveries less the sum of payments |
//! | 11 | a district | its delivered orders are those of the load and the deliveries since |
//! | 12 | a customer | balance and payments add up to the deliveries |
//! | 13 | a district | orders: numbers without holes, one for each acknowledged; none elsewhere |
//! | 14 | the history | a row for each customer and each payment acknowledged, and their sum |
//! | 15 | stock | quantity ordered, number of lines and of remote ones are those of the lines |
//! | 16 | stock | 10 to 100, and the initial quantity less that ordered, modulo 91 |
//! | 17 | a customer | payments are those of the history, deliveries those acknowledged |
//! | | | lines are numbered from 1; each orderer exists, and there is no other customer |
//! | 18 | a line | its amount is its quantity at the item's price |
//! | | | an order is local if its lines are; all items exist, and no others |
//! | 19 | an index | exactly the entries that follow from its table |
//! | 20 | after a crash | acknowledged transactions are there: [`acknowledged`] |
//!
//! [`acknowledged`]: crate::workload::tpcc::check::survived::acknowledged
//!
//! The checks lock nothing, because the database is idle.

/// The history, warehouses and districts: payments.
mod paid;

/// Stock against the lines that took from it.
mod stock;

/// Orders, lines and customers of one district.
mod district;

/// Rows outside of all districts.
mod elsewhere;

/// Secondary indexes against their tables.
mod index;

/// Checks after a crash.
pub mod survived;

use std::fmt;

use foxton::{
    Database, Isolation, Table, Transaction,
    codec::{Key, Value},
};

use super::{Scale, acknowledged::Sums, row::Head};

/// A condition that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Which, 1 to 20.
    pub condition: u8,
    /// The place, and what is there instead.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "condition {}: {}", self.condition, self.what)
    }
}

/// Number of faults of one condition that are kept; for a damaged table a few are enough.
const KEPT_OF_EACH: usize = 5;
/// Number of faults that are reported.
const SHOWN: usize = 5;

/// The faults so far.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    /// Records a fault of `condition`, unless `holds`. A row has its table's name.
    fn expect(&mut self, condition: u8, holds: bool, what: impl FnOnce() -> String) {
        let known = |faults: &[Fault]| {
            faults
                .iter()
                .filter(|fault| fault.condition == condition)
                .count()
        };
        if !holds && known(&self.0) < KEPT_OF_EACH {
            let what = what();
            self.0.push(Fault { condition, what });
        }
    }
}

/// Evaluates conditions 1 to 19. `seed` is the load's; `sums` are the acknowledged transactions, or
/// `None` after a crash, when they are unknown: 13, 14 and 17 then do without them.
///
/// # Errors
///
/// If a table cannot be read.
pub fn faults(
    db: &Database,
    scale: Scale,
    seed: u64,
    sums: Option<&Sums>,
) -> Result<Vec<Fault>, String> {
    let mut faults = Faults::default();
    let mut tx = db.begin().map_err(|error| error.to_string())?;
    tx.set_isolation(Isolation::ReadUncommitted)
        .map_err(|error| error.to_string())?;
    let paid = paid::Paid::read(&mut tx, scale, sums, &mut faults)?;
    let mut ordered = stock::Ordered::new(&mut tx, scale, &mut faults)?;
    let mut totals = district::Totals::default();
    for key in scale.all_districts() {
        let of = district::Of {
            scale,
            key,
            paid: &paid,
        };
        district::check(&mut tx, of, &mut ordered, &mut totals, &mut faults)?;
    }
    totals.check(sums, &mut faults);
    elsewhere::check(&mut tx, scale, &mut faults)?;
    paid.check(&mut tx, scale, &mut faults)?;
    ordered.check(&mut tx, seed, &mut faults)?;
    index::check(db, &mut tx, scale, &mut faults)?;
    Ok(faults.0)
}

/// Like [`faults`], for a person.
///
/// # Errors
///
/// The first few faults, each with its row.
pub fn check(db: &Database, scale: Scale, seed: u64, sums: Option<&Sums>) -> Result<(), String> {
    let faults = faults(db, scale, seed, sums)?;
    if faults.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = faults.iter().take(SHOWN).map(Fault::to_string).collect();
    let more = match faults.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Err(shown.join("; ") + &more)
}

/// Calls `take` with each key and row of a range, as numbers.
fn each<K, H>(
    tx: &mut Transaction,
    table: &Table<K, [u8]>,
    range: impl std::ops::RangeBounds<K>,
    mut take: impl FnMut(K, H, &[u8]),
) -> Result<(), String>
where
    K: Key<Owned = K> + fmt::Debug,
    H: Head,
{
    let mut wrong = None;
    let read =
        tx.range(table, range)
            .for_each_bytes(|key, row| match (K::decode(key), H::read(row)) {
                (Ok(key), Some(head)) => take(key, head, row),
                (key, _) => {
                    wrong.get_or_insert_with(|| {
                        let key = key.map_or_else(|_| "?".to_owned(), |key| format!("{key:?}"));
                        format!("row {key} of {} cannot be decoded: {row:?}", table.name())
                    });
                }
            });
    read.map_err(|error| format!("{} cannot be read: {error}", table.name()))?;
    wrong.map_or(Ok(()), Err)
}

/// A row as faults name it.
fn named<K: fmt::Debug, V: Value + ?Sized>(table: &Table<K, V>, key: K) -> String {
    format!("row {key:?} of {}", table.name())
}
