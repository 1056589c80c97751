//! Checks after a crash (condition 20): everything acknowledged at *sync* must be there, complete.
//!
//! Conditions 1 to 19 show that no transaction is there in part.

use foxton::{Database, Isolation, Transaction};

use super::{Fault, Faults, named};
use crate::workload::tpcc::{
    HISTORY, NEW_ORDERS, ORDER_LINES, ORDERS,
    acknowledged::Event,
    row::{Head, Order, Payment},
};

/// Checks that the acknowledged transactions are there.
///
/// # Errors
///
/// If a table cannot be read.
pub fn acknowledged(db: &Database, events: &[Event]) -> foxton::Result<Vec<Fault>> {
    let mut faults = Faults::default();
    let mut tx = db.begin()?;
    tx.set_isolation(Isolation::ReadUncommitted)?;
    for event in events {
        match *event {
            Event::NewOrder {
                order,
                customer,
                lines,
            } => {
                let found = read::<Order>(&tx.get(&ORDERS, &order)?);
                let says = found.map(|found| (found.customer, found.lines));
                faults.expect(20, says == Some((customer, lines)), || {
                    let row = named(&ORDERS, order);
                    format!("{row} of customer {customer} with {lines} lines was acknowledged; there is {found:?}")
                });
                let count = count_lines(&mut tx, order)?;
                faults.expect(20, count == u64::from(lines), || {
                    format!(
                        "{} was acknowledged with {lines} lines; there are {count}",
                        named(&ORDERS, order)
                    )
                });
            }
            Event::Payment {
                number,
                customer,
                amount,
            } => {
                let found = read::<Payment>(&tx.get(&HISTORY, &number)?);
                let says = found.map(|found| {
                    let of = (
                        found.customer_warehouse,
                        found.customer_district,
                        found.customer,
                    );
                    (of, found.amount)
                });
                faults.expect(20, says == Some((customer, amount)), || {
                    let row = named(&HISTORY, number);
                    format!("{row}, {amount} of {customer:?}, was acknowledged; there is {found:?}")
                });
            }
            Event::Delivery { order } => {
                let found = read::<Order>(&tx.get(&ORDERS, &order)?);
                let waits = tx.get(&NEW_ORDERS, &order)?.is_some();
                let delivered = found.is_some_and(|found| found.carrier.is_some()) && !waits;
                faults.expect(20, delivered, || {
                    let row = named(&ORDERS, order);
                    format!("{row} was delivered; it waits: {waits}, and there is {found:?}")
                });
            }
        }
    }
    Ok(faults.0)
}

fn read<H: Head>(row: &Option<Vec<u8>>) -> Option<H> {
    H::read(row.as_deref()?)
}

fn count_lines(tx: &mut Transaction, (w, d, o): (u32, u8, u32)) -> foxton::Result<u64> {
    tx.range(&ORDER_LINES, (w, d, o, 0)..=(w, d, o, u8::MAX))
        .count()
}
