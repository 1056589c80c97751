//! Delivery: the oldest order of a district that was not delivered is.
//!
//! The client calls this for each district of its warehouse, in a transaction each or in one.

use std::num::{NonZeroU8, NonZeroU64};

use foxton::{Lock, Transaction};

use super::{
    CUSTOMERS, DistrictKey, NEW_ORDERS, ORDER_LINES, ORDERS,
    access::{find, gone, parse, save},
    now,
    row::{Customer, Order, OrderLine},
};
use crate::workload::attempt::Failure;

/// Delivers the oldest order of a district, and returns it; `None` if there is none. Does not
/// commit.
///
/// # Errors
///
/// If the engine refuses an operation, or a row is missing.
pub fn deliver(
    tx: &mut Transaction,
    (w, d): DistrictKey,
    carrier: NonZeroU8,
) -> Result<Option<u32>, Failure> {
    let queue = tx.range(&NEW_ORDERS, (w, d, 0)..=(w, d, u32::MAX));
    let Some((key, ())) = queue.locked(Lock::Exclusive).first()? else {
        return Ok(None);
    };
    tx.delete(&NEW_ORDERS, &key)?;
    let mut order = find::<_, Order>(tx, &ORDERS, &key, Lock::Exclusive)?;
    order.head.carrier = Some(carrier);
    let about = order.head;
    save(tx, &ORDERS, &key, order)?;
    let number = key.2;
    // As many as the order has, and not one more, which would be the next order's.
    let lines = tx.range(&ORDER_LINES, (w, d, number, 1)..=(w, d, number, u8::MAX));
    let lines = lines
        .limit(u64::from(about.lines))
        .locked(Lock::Exclusive)
        .collect()?;
    if lines.len() != usize::from(about.lines) {
        return Err(gone(&ORDER_LINES, &(w, d, number, lines.len() as u8 + 1)));
    }
    let (mut sum, date) = (0, NonZeroU64::new(now()));
    for (key, bytes) in lines {
        let mut line = parse::<_, OrderLine>(&ORDER_LINES, &key, bytes)?;
        line.head.delivered = date;
        sum += line.head.amount;
        save(tx, &ORDER_LINES, &key, line)?;
    }
    let whose = (w, d, about.customer);
    let mut customer = find::<_, Customer>(tx, &CUSTOMERS, &whose, Lock::Exclusive)?;
    customer.head.balance += sum;
    customer.head.deliveries += 1;
    save(tx, &CUSTOMERS, &whose, customer)?;
    Ok(Some(number))
}
