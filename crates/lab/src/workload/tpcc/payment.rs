//! Payment: a customer pays at a warehouse, not always their own.

use foxton::{Lock, Transaction};

use super::{
    CUSTOMERS, CUSTOMERS_BY_NAME, DISTRICTS, DistrictKey, HISTORY, NumberKey, WAREHOUSES,
    access::{Found, find, parse, save},
    input::{self, Who},
    now,
    row::{
        BAD_CREDIT, CUSTOMER_CREDIT, CUSTOMER_DATA, CUSTOMER_DATA_BYTES, Customer, District, NAME,
        Payment, Warehouse, row,
    },
};
use crate::workload::attempt::Failure;

/// Records a payment as `number`, and returns the customer. Does not commit.
///
/// # Errors
///
/// If the engine refuses an operation, or a row is missing.
pub fn book(
    tx: &mut Transaction,
    payment: &input::Payment,
    number: (u32, u64),
) -> Result<NumberKey, Failure> {
    let (w, d, amount) = (payment.warehouse, payment.district, payment.amount);
    let mut warehouse = find::<_, Warehouse>(tx, &WAREHOUSES, &w, Lock::Exclusive)?;
    let mut data = warehouse.text(NAME).to_vec();
    warehouse.head.ytd += amount;
    save(tx, &WAREHOUSES, &w, warehouse)?;
    let mut district = find::<_, District>(tx, &DISTRICTS, &(w, d), Lock::Exclusive)?;
    data.extend_from_slice(b"    ");
    data.extend_from_slice(district.text(NAME));
    district.head.ytd += amount;
    save(tx, &DISTRICTS, &(w, d), district)?;
    let (key, mut customer) = customer(tx, payment.of, &payment.who, Lock::Exclusive)?;
    customer.head.balance -= amount;
    customer.head.ytd_payment += amount;
    customer.head.payments += 1;
    if customer.text(CUSTOMER_CREDIT) == BAD_CREDIT {
        note(&mut customer, key, payment);
    }
    save(tx, &CUSTOMERS, &key, customer)?;
    let head = Payment {
        customer: key.2,
        customer_district: key.1,
        customer_warehouse: key.0,
        district: d,
        warehouse: w,
        date: now(),
        amount,
    };
    tx.insert(&HISTORY, &number, &row(&head, &[&data]))?;
    Ok(key)
}

/// Puts a payment in front of the customer's data.
fn note(customer: &mut Found<Customer>, (cw, cd, c): NumberKey, payment: &input::Payment) {
    let (cents, d, w) = (payment.amount, payment.district, payment.warehouse);
    let mut data =
        format!("{c} {cd} {cw} {d} {w} {}.{:02} ", cents / 100, cents % 100).into_bytes();
    data.extend_from_slice(customer.last_text(CUSTOMER_DATA));
    data.truncate(CUSTOMER_DATA_BYTES);
    customer.set_last_text(CUSTOMER_DATA, &data);
}

/// No first name is greater.
const ABOVE_FIRST_NAMES: &str = "\x7f";

/// Reads a customer; of several of one name, the one in the middle by first name.
pub(super) fn customer(
    tx: &mut Transaction,
    (warehouse, district): DistrictKey,
    who: &Who,
    lock: Lock,
) -> Result<(NumberKey, Found<Customer>), Failure> {
    let last = match who {
        Who::Number(number) => {
            let key = (warehouse, district, *number);
            return Ok((key, find(tx, &CUSTOMERS, &key, lock)?));
        }
        Who::Name(last) => last.as_str(),
    };
    let all = (warehouse, district, last, "")..=(warehouse, district, last, ABOVE_FIRST_NAMES);
    // One of them will be written, so all are locked for that while choosing. Two transactions with
    // shared locks would both convert, and deadlock.
    let choosing = match lock {
        Lock::Shared => Lock::Shared,
        _ => Lock::Update,
    };
    let mut found = tx
        .range_by(&CUSTOMERS_BY_NAME, all)
        .locked(choosing)
        .collect()?;
    if found.is_empty() {
        let whose = format!("({warehouse}, {district})");
        return Err(Failure::Wrong(format!(
            "no customer of district {whose} has the name {last}"
        )));
    }
    let (_, key, bytes) = found.swap_remove(found.len().div_ceil(2) - 1);
    let customer = parse(&CUSTOMERS, &key, bytes)?;
    Ok((key, customer))
}
