//! Order-Status: the state of a customer's last order.

use foxton::{Lock, Transaction};

use super::{
    ORDER_LINES, ORDERS, ORDERS_BY_CUSTOMER,
    access::{gone, parse},
    input,
    payment::customer,
    row::{Head, Order, OrderLine},
};
use crate::workload::attempt::Failure;

/// The answer to the customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Cents owed.
    pub balance: i64,
    /// The last order's number.
    pub number: u32,
    /// The last order.
    pub order: Order,
    /// Its lines.
    pub lines: Vec<OrderLine>,
}

/// Answers. Does not commit.
///
/// # Errors
///
/// If the engine refuses an operation, or a row is missing.
pub fn ask(tx: &mut Transaction, question: &input::OrderStatus) -> Result<Status, Failure> {
    let (w, d) = question.of;
    let ((_, _, c), customer) = customer(tx, question.of, &question.who, Lock::Shared)?;
    let all = (w, d, c)..=(w, d, c);
    let last = tx.range_by(&ORDERS_BY_CUSTOMER, all).reversed().first()?;
    let (_, key, bytes) = last.ok_or_else(|| {
        Failure::Wrong(format!("customer ({w}, {d}, {c}) never ordered anything"))
    })?;
    let order = parse::<_, Order>(&ORDERS, &key, bytes)?.head;
    let mut lines = Vec::with_capacity(usize::from(order.lines));
    // The lock on the order's row protects its lines, which are written with it. So there is no
    // read past the last line, which would conflict with the next order's insert.
    let range = (w, d, key.2, 1)..=(w, d, key.2, u8::MAX);
    let range = tx.range(&ORDER_LINES, range).limit(u64::from(order.lines));
    range.for_each_bytes(|_, row| lines.extend(OrderLine::read(row)))?;
    if lines.len() != usize::from(order.lines) {
        return Err(gone(&ORDER_LINES, &(w, d, key.2, lines.len() as u8 + 1)));
    }
    Ok(Status {
        balance: customer.head.balance,
        number: key.2,
        order,
        lines,
    })
}
