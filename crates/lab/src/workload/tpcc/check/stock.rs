//! Stock against the lines that took from it (conditions 15, 16), and the prices of items.

use foxton::Transaction;

use super::{Faults, each, named};
use crate::workload::tpcc::{
    ITEMS, STOCK, Scale,
    load::initial_quantity,
    row::{Item, OrderLine, Stock},
};

/// New orders of one item in one warehouse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Taken {
    quantity: i64,
    lines: u32,
    remote: u32,
}

/// Sums of the new orders.
#[derive(Debug)]
pub(super) struct Ordered {
    scale: Scale,
    /// Price in cents, by item; `None` if the item is gone.
    prices: Vec<Option<i64>>,
    taken: Vec<Taken>,
}

impl Ordered {
    /// Nothing yet; prices are read, and all items must be there (condition 18).
    pub(super) fn new(
        tx: &mut Transaction,
        scale: Scale,
        faults: &mut Faults,
    ) -> Result<Ordered, String> {
        let mut prices = vec![None; scale.items as usize];
        each(tx, &ITEMS, .., |key, item: Item, _| {
            let place = prices.get_mut((key as usize).wrapping_sub(1));
            faults.expect(18, place.is_some(), || {
                let row = named(&ITEMS, key);
                format!("{row} should not be there: items are 1 to {}", scale.items)
            });
            if let Some(price) = place {
                *price = Some(item.price);
            }
        })?;
        for (number, price) in (1u32..).zip(&prices) {
            faults.expect(18, price.is_some(), || {
                format!("{} is gone", named(&ITEMS, number))
            });
        }
        Ok(Ordered {
            scale,
            prices,
            taken: vec![Taken::default(); scale.warehouses as usize * scale.items as usize],
        })
    }

    /// Adds a line of a new order of `warehouse`. Its price, or `None` if there is no such item or
    /// warehouse.
    pub(super) fn add(&mut self, warehouse: u32, line: &OrderLine) -> Option<i64> {
        let index = self.index((line.supply, line.item))?;
        let taken = &mut self.taken[index];
        taken.quantity += i64::from(line.quantity);
        taken.lines += 1;
        taken.remote += u32::from(line.supply != warehouse);
        *self.prices.get((line.item as usize).wrapping_sub(1))?
    }

    fn index(&self, (warehouse, item): (u32, u32)) -> Option<usize> {
        let known = (1..=self.scale.warehouses).contains(&warehouse)
            && (1..=self.scale.items).contains(&item);
        known.then(|| (warehouse as usize - 1) * self.scale.items as usize + item as usize - 1)
    }

    /// Conditions 15 and 16.
    pub(super) fn check(
        &self,
        tx: &mut Transaction,
        seed: u64,
        faults: &mut Faults,
    ) -> Result<(), String> {
        let mut found = vec![false; self.taken.len()];
        each(tx, &STOCK, .., |key, stock: Stock, _| {
            if let Some(index) = self.index(key) {
                found[index] = true;
            }
            let says = Taken {
                quantity: stock.ytd,
                lines: stock.orders,
                remote: stock.remote,
            };
            let taken = self.index(key).map(|index| self.taken[index]);
            faults.expect(15, taken == Some(says), || {
                format!(
                    "{} has {says:?}, but the lines have {taken:?}",
                    named(&STOCK, key)
                )
            });
            let initial = initial_quantity(seed, key.0, key.1);
            let left = left(initial, stock.ytd);
            faults.expect(16, left == stock.quantity, || {
                let (row, quantity) = (named(&STOCK, key), stock.quantity);
                format!(
                    "{row} has {quantity}; {initial} less {}, filled up, are {left}",
                    stock.ytd
                )
            });
        })?;
        for (index, found) in found.into_iter().enumerate() {
            faults.expect(15, found, || {
                let items = self.scale.items as usize;
                let key = (index / items + 1, index % items + 1);
                format!("row {key:?} of {} is gone", STOCK.name())
            });
        }
        Ok(())
    }
}

/// The only number in 10..=100 that is `initial` less the ordered quantity, modulo 91.
fn left(initial: i32, ordered: i64) -> i32 {
    10 + (i64::from(initial) - 10 - ordered).rem_euclid(91) as i32
}
