//! Orders, lines and customers of one district (conditions 2 to 7, 10 to 13, 17, 18).

use foxton::Transaction;

use super::{Faults, each, named, paid::Paid, stock::Ordered};
use crate::workload::tpcc::{
    CUSTOMERS, DISTRICTS, DistrictKey, NEW_ORDERS, NumberKey, ORDER_LINES, ORDERS, Scale,
    acknowledged::Sums,
    row::{Customer, District, Head, Order, OrderLine},
};

/// The district, and the data known from other tables.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) scale: Scale,
    pub(super) key: DistrictKey,
    pub(super) paid: &'a Paid,
}

/// Sums over all districts.
#[derive(Debug, Default)]
pub(super) struct Totals {
    new_orders: u64,
    deliveries: u64,
}

impl Totals {
    /// Conditions 13 and 17, as far as they are about everything.
    pub(super) fn check(&self, sums: Option<&Sums>, faults: &mut Faults) {
        let Some(sums) = sums else { return };
        faults.expect(13, self.new_orders == sums.new_orders, || {
            let (name, found) = (DISTRICTS.name(), self.new_orders);
            format!(
                "{name} counts {found} new orders, acknowledged were {}",
                sums.new_orders
            )
        });
        faults.expect(17, self.deliveries == sums.deliveries, || {
            let (name, found) = (CUSTOMERS.name(), self.deliveries);
            format!(
                "{name} counts {found} deliveries, acknowledged were {}",
                sums.deliveries
            )
        });
    }
}

/// A line, with its order's number and its own.
type Line = ((u32, u8), OrderLine);

/// Checks one district.
pub(super) fn check(
    tx: &mut Transaction,
    of: Of<'_>,
    ordered: &mut Ordered,
    totals: &mut Totals,
    faults: &mut Faults,
) -> Result<(), String> {
    let (w, d) = of.key;
    let district = read_district(tx, of.key)?;
    let (mut orders, mut lines): (Vec<(u32, Order)>, Vec<Line>) = (Vec::new(), Vec::new());
    each(
        tx,
        &ORDERS,
        (w, d, 0)..=(w, d, u32::MAX),
        |key, order, _| {
            orders.push((key.2, order));
        },
    )?;
    each(
        tx,
        &ORDER_LINES,
        (w, d, 0, 0)..=(w, d, u32::MAX, u8::MAX),
        |key, line, _| {
            lines.push(((key.2, key.3), line));
        },
    )?;
    let mut waiting = Vec::new();
    tx.range(&NEW_ORDERS, (w, d, 0)..=(w, d, u32::MAX))
        .for_each(|key, ()| waiting.push(key.2))
        .map_err(|error| format!("{} cannot be read: {error}", NEW_ORDERS.name()))?;
    numbers(of.key, &district, &orders, &waiting, faults);
    carriers(of.key, &orders, &waiting, faults);
    let mut delivered = vec![0; of.scale.customers as usize];
    let mut sink = OfLines {
        of,
        ordered,
        delivered: &mut delivered,
        faults: &mut *faults,
    };
    sink.all(&orders, &lines);
    let deliveries = customers(tx, of, &delivered, faults)?;
    let begun = i64::from(of.scale.delivered()) + deliveries as i64;
    let gone = orders.len() as i64 - waiting.len() as i64;
    faults.expect(11, gone == begun, || {
        let row = named(&DISTRICTS, of.key);
        format!("{row}: {gone} orders do not wait for delivery, but {begun} were delivered")
    });
    totals.new_orders += u64::from(district.next_order.saturating_sub(of.scale.customers + 1));
    totals.deliveries += deliveries;
    Ok(())
}

fn read_district(tx: &mut Transaction, key: DistrictKey) -> Result<District, String> {
    let row = tx
        .get(&DISTRICTS, &key)
        .map_err(|error| error.to_string())?;
    let district = row.as_deref().and_then(District::read);
    district.ok_or_else(|| format!("{} is gone or cannot be decoded", named(&DISTRICTS, key)))
}

/// Conditions 2, 3 and 13: the numbers of orders and of those that wait.
fn numbers(
    (w, d): DistrictKey,
    district: &District,
    orders: &[(u32, Order)],
    waiting: &[u32],
    faults: &mut Faults,
) {
    let (next, last) = (
        district.next_order,
        orders.last().map_or(0, |order| order.0),
    );
    let last_waiting = waiting.last().copied();
    let follows = next == last + 1 && last_waiting.is_none_or(|number| number == last);
    faults.expect(2, follows, || {
        let row = named(&DISTRICTS, (w, d));
        format!("{row}: next order {next}, last order {last}, last that waits {last_waiting:?}")
    });
    let hole = waiting.windows(2).find(|two| two[1] != two[0] + 1);
    faults.expect(3, hole.is_none(), || {
        let hole = hole.map_or(0, |two| two[0] + 1);
        format!(
            "{} is missing among those that wait",
            named(&NEW_ORDERS, (w, d, hole))
        )
    });
    let hole = (1..next)
        .zip(orders)
        .find(|(number, order)| *number != order.0);
    let ends_early = orders.len() as u64 + 1 < u64::from(next);
    let hole = hole
        .map(|(number, _)| number)
        .or(ends_early.then(|| orders.len() as u32 + 1));
    faults.expect(13, hole.is_none(), || {
        let missing = named(&ORDERS, (w, d, hole.unwrap_or(0)));
        format!("{missing} is missing; the district's next order is {next}")
    });
}

/// Condition 5.
fn carriers((w, d): DistrictKey, orders: &[(u32, Order)], waiting: &[u32], faults: &mut Faults) {
    for &(number, order) in orders {
        let waits = waiting.binary_search(&number).is_ok();
        faults.expect(5, waits == order.carrier.is_none(), || {
            let row = named(&ORDERS, (w, d, number));
            format!(
                "{row} has carrier {:?}; it waits for delivery: {waits}",
                order.carrier
            )
        });
    }
    for &number in waiting {
        let known = orders
            .binary_search_by_key(&number, |order| order.0)
            .is_ok();
        faults.expect(5, known, || {
            format!("{} has no order", named(&NEW_ORDERS, (w, d, number)))
        });
    }
}

/// Compares lines with their orders.
struct OfLines<'a> {
    of: Of<'a>,
    ordered: &'a mut Ordered,
    /// By customer, the sum of the deliveries.
    delivered: &'a mut [i64],
    faults: &'a mut Faults,
}

impl OfLines<'_> {
    /// Conditions 4, 6, 7, 17 and 18.
    fn all(&mut self, orders: &[(u32, Order)], lines: &[Line]) {
        let mut rest = lines;
        for &(number, ref order) in orders {
            let lost = rest.iter().take_while(|line| line.0.0 < number).count();
            self.without_order(&rest[..lost]);
            rest = &rest[lost..];
            let own = rest.iter().take_while(|line| line.0.0 == number).count();
            self.order(number, order, &rest[..own]);
            rest = &rest[own..];
        }
        self.without_order(rest);
        let said: u64 = orders.iter().map(|(_, order)| u64::from(order.lines)).sum();
        self.faults.expect(4, said == lines.len() as u64, || {
            let row = named(&DISTRICTS, self.of.key);
            format!(
                "{row}: its orders have {said} lines, but there are {}",
                lines.len()
            )
        });
    }

    fn without_order(&mut self, lines: &[Line]) {
        let (w, d) = self.of.key;
        for &((number, at), _) in lines {
            self.faults.expect(4, false, || {
                format!(
                    "{} belongs to no order",
                    named(&ORDER_LINES, (w, d, number, at))
                )
            });
        }
    }

    fn order(&mut self, number: u32, order: &Order, lines: &[Line]) {
        let (w, d) = self.of.key;
        let row = || named(&ORDERS, (w, d, number));
        self.faults
            .expect(6, usize::from(order.lines) == lines.len(), || {
                format!(
                    "{} has {} lines by its number, but there are {}",
                    row(),
                    order.lines,
                    lines.len()
                )
            });
        let customers = self.of.scale.customers;
        self.faults
            .expect(17, (1..=customers).contains(&order.customer), || {
                format!(
                    "{} is of customer {}, who does not exist",
                    row(),
                    order.customer
                )
            });
        let is_new = number > customers;
        let local = lines.iter().all(|(_, line)| line.supply == w);
        self.faults
            .expect(18, !is_new || local == (order.all_local == 1), || {
                format!(
                    "{} has all_local {}; its lines are: {local}",
                    row(),
                    order.all_local
                )
            });
        for (&((_, at), ref line), place) in lines.iter().zip(1..) {
            let key = (w, d, number, at);
            let row = || named(&ORDER_LINES, key);
            self.faults
                .expect(17, at == place, || format!("{} is line {place}", row()));
            self.faults.expect(
                7,
                line.delivered.is_none() == order.carrier.is_none(),
                || {
                    let (date, carrier) = (line.delivered, order.carrier);
                    format!(
                        "{} was delivered {date:?}, its order has carrier {carrier:?}",
                        row()
                    )
                },
            );
            if is_new {
                let price = self.ordered.add(w, line);
                let amount = price.map(|price| price * i64::from(line.quantity));
                self.faults.expect(18, amount == Some(line.amount), || {
                    let (found, quantity) = (line.amount, line.quantity);
                    format!(
                        "{} has amount {found}; {quantity} at {price:?} are {amount:?}",
                        row()
                    )
                });
            }
            if line.delivered.is_some()
                && let Some(sum) = self
                    .delivered
                    .get_mut((order.customer as usize).wrapping_sub(1))
            {
                *sum += line.amount;
            }
        }
    }
}

/// Conditions 10, 12 and 17. Returns how many deliveries the customers count.
fn customers(
    tx: &mut Transaction,
    of: Of<'_>,
    delivered: &[i64],
    faults: &mut Faults,
) -> Result<u64, String> {
    let ((w, d), mut count, mut deliveries) = (of.key, 0, 0);
    let range = (w, d, 0)..=(w, d, u32::MAX);
    each(
        tx,
        &CUSTOMERS,
        range,
        |key: NumberKey, customer: Customer, _| {
            count += 1;
            deliveries += u64::from(customer.deliveries);
            let (row, paid) = (|| named(&CUSTOMERS, key), of.paid.of(key));
            let got = delivered
                .get((key.2 as usize).wrapping_sub(1))
                .copied()
                .unwrap_or(0);
            let (balance, payments) = (customer.balance, customer.ytd_payment);
            faults.expect(10, balance == got - paid.sum, || {
                format!(
                    "{} has balance {balance}; delivered {got} less paid {}",
                    row(),
                    paid.sum
                )
            });
            faults.expect(12, balance + payments == got, || {
                format!(
                    "{} has balance {balance} and paid {payments}; delivered {got}",
                    row()
                )
            });
            faults.expect(17, customer.payments == paid.count, || {
                let (counted, booked) = (customer.payments, paid.count);
                format!("{} counts {counted} payments, the history {booked}", row())
            });
        },
    )?;
    faults.expect(17, count == of.scale.customers, || {
        let row = named(&DISTRICTS, of.key);
        format!(
            "{row}: there are {count} customers, not {}",
            of.scale.customers
        )
    });
    Ok(deliveries)
}
