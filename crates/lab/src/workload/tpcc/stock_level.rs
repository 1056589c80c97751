//! Stock-Level: how many items of a district's last twenty orders are scarce.

use foxton::{Lock, Transaction};

use super::{
    DISTRICTS, DistrictKey, ORDER_LINES, STOCK,
    access::find,
    row::{District, Head, OrderLine, Stock},
};
use crate::workload::attempt::Failure;

const ORDERS_LOOKED_AT: u32 = 20;

/// Counts them: those of which the warehouse has fewer than `threshold`. Does not commit.
///
/// # Errors
///
/// If the engine refuses an operation, or a row is missing.
pub fn count(tx: &mut Transaction, (w, d): DistrictKey, threshold: i32) -> Result<usize, Failure> {
    let district = find::<_, District>(tx, &DISTRICTS, &(w, d), Lock::Shared)?.head;
    let next = district.next_order;
    let first = next.saturating_sub(ORDERS_LOOKED_AT);
    let mut items = Vec::new();
    tx.range(&ORDER_LINES, (w, d, first, 0)..(w, d, next, 0))
        .for_each_bytes(|_, row| items.extend(OrderLine::read(row).map(|line| line.item)))?;
    items.sort_unstable();
    items.dedup();
    let mut scarce = 0;
    for item in items {
        let quantity = tx.get_with(&STOCK, &(w, item), |row| {
            Stock::read(row).map(|stock| stock.quantity)
        })?;
        let quantity = quantity.flatten().ok_or_else(|| {
            Failure::Wrong(format!("row ({w}, {item}) of {} is gone", STOCK.name()))
        })?;
        scarce += usize::from(quantity < threshold);
    }
    Ok(scarce)
}
