//! Rows outside of all districts, which the checks by district do not reach (conditions 4, 5, 13
//! and 17).

use std::fmt;

use foxton::{
    Table, Transaction,
    codec::{Key, Value},
};

use super::{Faults, named};
use crate::workload::tpcc::{CUSTOMERS, NEW_ORDERS, ORDER_LINES, ORDERS, Scale};

/// Goes through the whole of each table that has rows by district.
pub(super) fn check(tx: &mut Transaction, scale: Scale, faults: &mut Faults) -> Result<(), String> {
    let known =
        |w: u32, d: u8| (1..=scale.warehouses).contains(&w) && (1..=scale.districts).contains(&d);
    strangers(tx, &ORDER_LINES, 4, faults, |key| known(key.0, key.1))?;
    strangers(tx, &NEW_ORDERS, 5, faults, |key| known(key.0, key.1))?;
    strangers(tx, &ORDERS, 13, faults, |key| known(key.0, key.1))?;
    strangers(tx, &CUSTOMERS, 17, faults, |key| {
        known(key.0, key.1) && (1..=scale.customers).contains(&key.2)
    })
}

/// Names the first rows of a table whose keys are not `known`.
fn strangers<K, V>(
    tx: &mut Transaction,
    table: &Table<K, V>,
    condition: u8,
    faults: &mut Faults,
    known: impl Fn(&K) -> bool,
) -> Result<(), String>
where
    K: Key<Owned = K> + fmt::Debug,
    V: Value + ?Sized,
{
    let name = table.name();
    let read = tx.range(table, ..).for_each_bytes(|key, _| {
        let key = K::decode(key).ok();
        let is_known = key.as_ref().is_some_and(&known);
        faults.expect(condition, is_known, || match key {
            Some(key) => format!(
                "{} is of no district or customer that exists",
                named(table, key)
            ),
            None => format!("a key of {name} cannot be decoded"),
        });
    });
    read.map_err(|error| format!("{name} cannot be read: {error}"))
}
