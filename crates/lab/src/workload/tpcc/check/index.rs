//! Secondary indexes against their tables (condition 19).
//!
//! The index is compared with the entries computed from the rows by this file, not by the function
//! that the index was declared with. Entries without a row are found by the engine's own check.

use foxton::{Database, Transaction};

use super::{Faults, each};
use crate::workload::tpcc::{
    CUSTOMERS, CUSTOMERS_BY_NAME, DistrictKey, NumberKey, ORDERS, ORDERS_BY_CUSTOMER, Scale,
    row::{CUSTOMER_FIRST, CUSTOMER_LAST, Customer, Order, text},
};

/// No name is greater.
const ABOVE_NAMES: &str = "\x7f";

/// Condition 19.
pub(super) fn check(
    db: &Database,
    tx: &mut Transaction,
    scale: Scale,
    faults: &mut Faults,
) -> Result<(), String> {
    let (mut names, mut customers) = (0, 0);
    for key in scale.all_districts() {
        names += by_name(tx, key, faults)?;
        customers += by_customer(tx, key, faults)?;
    }
    let all = tx.range_by(&CUSTOMERS_BY_NAME, ..).count();
    no_more(CUSTOMERS_BY_NAME.name(), names, all, faults)?;
    let all = tx.range_by(&ORDERS_BY_CUSTOMER, ..).count();
    no_more(ORDERS_BY_CUSTOMER.name(), customers, all, faults)?;
    let findings = db
        .check_indexes()
        .map_err(|error| format!("indexes cannot be read: {error}"))?;
    for finding in findings {
        faults.expect(19, false, || finding.to_string());
    }
    Ok(())
}

/// Checks that the entries of all districts are all entries.
fn no_more(
    index: &str,
    met: usize,
    all: foxton::Result<u64>,
    faults: &mut Faults,
) -> Result<(), String> {
    let all = all.map_err(|error| unreadable(index, &error))?;
    faults.expect(19, all == met as u64, || {
        format!("{index} has {all} entries, {met} of them of districts that exist")
    });
    Ok(())
}

/// Number of entries.
fn by_name(
    tx: &mut Transaction,
    (w, d): DistrictKey,
    faults: &mut Faults,
) -> Result<usize, String> {
    let mut expected = Vec::new();
    each(
        tx,
        &CUSTOMERS,
        (w, d, 0)..=(w, d, u32::MAX),
        |key, _: Customer, row| {
            let name = |index| {
                let bytes = text::<Customer>(row, index).unwrap_or_default();
                String::from_utf8_lossy(bytes).into_owned()
            };
            expected.push((name(CUSTOMER_LAST), name(CUSTOMER_FIRST), key));
        },
    )?;
    expected.sort_unstable();
    let mut found = Vec::new();
    tx.range_by(&CUSTOMERS_BY_NAME, (w, d, "", "")..=(w, d, ABOVE_NAMES, ""))
        .for_each(|(_, _, last, first), key, _| found.push((last, first, key)))
        .map_err(|error| unreadable(CUSTOMERS_BY_NAME.name(), &error))?;
    compare(CUSTOMERS_BY_NAME.name(), (w, d), &expected, &found, faults);
    Ok(found.len())
}

/// Number of entries.
fn by_customer(
    tx: &mut Transaction,
    (w, d): DistrictKey,
    faults: &mut Faults,
) -> Result<usize, String> {
    let mut expected: Vec<(u32, NumberKey)> = Vec::new();
    each(
        tx,
        &ORDERS,
        (w, d, 0)..=(w, d, u32::MAX),
        |key, order: Order, _| {
            expected.push((order.customer, key));
        },
    )?;
    expected.sort_unstable();
    let mut found = Vec::new();
    tx.range_by(&ORDERS_BY_CUSTOMER, (w, d, 0)..=(w, d, u32::MAX))
        .for_each(|(_, _, customer), key, _| found.push((customer, key)))
        .map_err(|error| unreadable(ORDERS_BY_CUSTOMER.name(), &error))?;
    compare(ORDERS_BY_CUSTOMER.name(), (w, d), &expected, &found, faults);
    Ok(found.len())
}

fn unreadable(index: &str, error: &foxton::Error) -> String {
    format!("{index} cannot be read: {error}")
}

/// Names the first entry in which two sorted lists differ.
fn compare<T: Ord + std::fmt::Debug>(
    index: &str,
    district: DistrictKey,
    expected: &[T],
    found: &[T],
    faults: &mut Faults,
) {
    let same = expected
        .iter()
        .zip(found)
        .take_while(|(one, other)| one == other)
        .count();
    let (missing, extra) = (expected.get(same), found.get(same));
    faults.expect(19, missing.is_none() && extra.is_none(), || {
        format!(
            "{index} of district {district:?}: entry {same} is to be {missing:?} and is {extra:?}"
        )
    });
}
