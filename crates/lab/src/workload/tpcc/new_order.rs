//! NewOrder: enters an order and takes its items from stock.
//!
//! Stock is updated in the order of the lines. Two orders with two popular items in opposite order
//! wait for each other, as the benchmark requires.

use foxton::{Lock, Transaction};

use super::{
    CUSTOMERS, DISTRICTS, ITEMS, NEW_ORDERS, ORDER_LINES, ORDERS, STOCK, WAREHOUSES,
    access::{find, parse, save},
    draw::is_original,
    input::{self, Line},
    now,
    row::{
        Customer, District, ITEM_DATA, Item, Order, OrderLine, STOCK_DATA, Stock, Warehouse, row,
    },
};
use crate::workload::attempt::Failure;

/// Result of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// It is entered.
    Order(Receipt),
    /// Something it orders does not exist: the transaction is to be rolled back.
    Unused,
}

/// The answer to the customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The order's number.
    pub number: u32,
    /// Cents, after discount and with taxes.
    pub total: i64,
    /// Lines whose item and stock are a brand's.
    pub brands: u32,
}

/// Enters an order. Does not commit.
///
/// # Errors
///
/// If the engine refuses an operation, or a row is missing.
pub fn enter(tx: &mut Transaction, order: &input::NewOrder) -> Result<Entered, Failure> {
    let (w, d) = (order.warehouse, order.district);
    let warehouse = find::<_, Warehouse>(tx, &WAREHOUSES, &w, Lock::Shared)?.head;
    let mut district = find::<_, District>(tx, &DISTRICTS, &(w, d), Lock::Exclusive)?;
    let number = district.head.next_order;
    let tax = warehouse.tax + district.head.tax;
    district.head.next_order += 1;
    save(tx, &DISTRICTS, &(w, d), district)?;
    let customer = find::<_, Customer>(tx, &CUSTOMERS, &(w, d, order.customer), Lock::Shared)?.head;
    let head = Order {
        customer: order.customer,
        entered: now(),
        carrier: None,
        lines: order.lines.len() as u8,
        all_local: u8::from(order.is_local()),
    };
    tx.insert(&ORDERS, &(w, d, number), &row(&head, &[]))?;
    tx.insert(&NEW_ORDERS, &(w, d, number), &())?;
    let (mut sum, mut brands) = (0, 0);
    for (line, at) in order.lines.iter().zip(1..) {
        let Some(taken) = take(tx, (w, d), line)? else {
            return Ok(Entered::Unused);
        };
        sum += taken.line.amount;
        brands += u32::from(taken.is_brand);
        tx.insert(
            &ORDER_LINES,
            &(w, d, number, at),
            &row(&taken.line, &[&taken.text]),
        )?;
    }
    Ok(Entered::Order(Receipt {
        number,
        total: total(sum, customer.discount, tax),
        brands,
    }))
}

struct Taken {
    line: OrderLine,
    text: Vec<u8>,
    is_brand: bool,
}

/// Takes a line's items from stock; `None` if there is no such item.
fn take(
    tx: &mut Transaction,
    (warehouse, district): (u32, u8),
    line: &Line,
) -> Result<Option<Taken>, Failure> {
    let Some(item) = tx.get(&ITEMS, &line.item)? else {
        return Ok(None);
    };
    let item = parse::<_, Item>(&ITEMS, &line.item, item)?;
    let key = (line.supply, line.item);
    let mut stock = find::<_, Stock>(tx, &STOCK, &key, Lock::Exclusive)?;
    let text = stock.text(usize::from(district) - 1).to_vec();
    let is_brand =
        is_original(item.last_text(ITEM_DATA)) && is_original(stock.last_text(STOCK_DATA));
    let about = &mut stock.head;
    about.quantity = left(about.quantity, line.quantity);
    about.ytd += i64::from(line.quantity);
    about.orders += 1;
    about.remote += u32::from(line.supply != warehouse);
    save(tx, &STOCK, &key, stock)?;
    Ok(Some(Taken {
        line: OrderLine {
            item: line.item,
            supply: line.supply,
            delivered: None,
            quantity: line.quantity,
            amount: i64::from(line.quantity) * item.head.price,
        },
        text,
        is_brand,
    }))
}

/// The remaining stock; 91 are added if fewer than ten would remain.
fn left(quantity: i32, taken: u8) -> i32 {
    let left = quantity - i32::from(taken);
    if left >= 10 { left } else { left + 91 }
}

/// `sum` × (1 − discount) × (1 + tax) in cents, rounded; rates in 1/10,000.
fn total(sum: i64, discount: u32, tax: u32) -> i64 {
    const ONE: i64 = 10_000;
    let rated = sum * (ONE - i64::from(discount)) * (ONE + i64::from(tax));
    (rated + ONE * ONE / 2) / (ONE * ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stock_never_falls_below_ten_nor_rises_above_a_hundred() {
        for quantity in 10..=100 {
            for taken in 1..=10 {
                let left = left(quantity, taken);
                assert!((10..=100).contains(&left));
                assert_eq!((quantity - i32::from(taken) - left).rem_euclid(91), 0);
            }
        }
    }

    #[test]
    fn a_total_has_its_discount_and_its_taxes() {
        // 100.00 less 5 %, and 12.5 % on top: 106.875, rounded.
        assert_eq!(total(10_000, 500, 1_250), 10_688);
        assert_eq!(total(1, 0, 0), 1);
        // The largest: fifteen lines of ten at 100.00, 20 % and 20 %.
        assert_eq!(total(1_500_000, 0, 4_000), 2_100_000);
    }
}
