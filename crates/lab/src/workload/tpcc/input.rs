//! Inputs of a transaction: drawn before it begins, and the same at every attempt.

use super::{Scale, draw};
use crate::random::Random;

/// Percentage of lines supplied by another warehouse.
const REMOTE_LINE_PERCENT: u32 = 1;
/// Percentage of NewOrders with an item that does not exist.
const UNUSED_PERCENT: u32 = 1;
/// Percentage of payments of a customer of another warehouse.
const REMOTE_PAYMENT_PERCENT: u32 = 15;
/// Percentage of customers identified by their last name and not by number.
const BY_NAME_PERCENT: u32 = 60;

/// A line of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// The item.
    pub item: u32,
    /// From which warehouse.
    pub supply: u32,
    /// The quantity.
    pub quantity: u8,
}

/// An order to be entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOrder {
    /// The customer's warehouse.
    pub warehouse: u32,
    /// The customer's district.
    pub district: u8,
    /// The customer.
    pub customer: u32,
    /// Five to fifteen lines. The same item may occur twice.
    pub lines: Vec<Line>,
}

impl NewOrder {
    /// Draws one of a client at `warehouse`. With `sorted`, stock is updated in key order.
    pub fn draw(random: &mut Random, scale: Scale, warehouse: u32, sorted: bool) -> NewOrder {
        let district = random.uniform(1, u64::from(scale.districts)) as u8;
        let customer = draw::customer(random, scale.customers);
        let count = random.uniform(5, 15);
        let mut lines: Vec<Line> = (0..count).map(|_| line(random, scale, warehouse)).collect();
        if sorted {
            lines.sort_unstable_by_key(|line| (line.supply, line.item));
        }
        if random.percent(UNUSED_PERCENT)
            && let Some(last) = lines.last_mut()
        {
            last.item = scale.items + 1;
        }
        NewOrder {
            warehouse,
            district,
            customer,
            lines,
        }
    }

    /// True if all items come from the customer's warehouse.
    pub fn is_local(&self) -> bool {
        self.lines.iter().all(|line| line.supply == self.warehouse)
    }
}

fn line(random: &mut Random, scale: Scale, home: u32) -> Line {
    let is_remote = random.percent(REMOTE_LINE_PERCENT);
    Line {
        item: draw::item(random, scale.items),
        supply: match is_remote {
            true => draw::other_warehouse(random, home, scale.warehouses),
            false => home,
        },
        quantity: random.uniform(1, 10) as u8,
    }
}

/// Identification of a customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// By number.
    Number(u32),
    /// By last name, which others of the district may have, too.
    Name(String),
}

impl Who {
    fn draw(random: &mut Random, scale: Scale) -> Who {
        match random.percent(BY_NAME_PERCENT) {
            true => Who::Name(draw::last_name(draw::name(
                random,
                scale.names(),
                draw::C_RUN,
            ))),
            false => Who::Number(draw::customer(random, scale.customers)),
        }
    }
}

/// A payment to be booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// The district of the payment.
    pub warehouse: u32,
    /// The district of the payment.
    pub district: u8,
    /// The customer's warehouse and district.
    pub of: (u32, u8),
    /// The paying customer.
    pub who: Who,
    /// Cents.
    pub amount: i64,
}

impl Payment {
    /// Draws one of a client at `warehouse`.
    pub fn draw(random: &mut Random, scale: Scale, warehouse: u32) -> Payment {
        let district = random.uniform(1, u64::from(scale.districts)) as u8;
        let of = match random.percent(REMOTE_PAYMENT_PERCENT) {
            true => (
                draw::other_warehouse(random, warehouse, scale.warehouses),
                random.uniform(1, u64::from(scale.districts)) as u8,
            ),
            false => (warehouse, district),
        };
        Payment {
            warehouse,
            district,
            of,
            who: Who::draw(random, scale),
            amount: random.uniform(100, 500_000) as i64,
        }
    }
}

/// A question about a customer's last order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderStatus {
    /// The customer's warehouse and district.
    pub of: (u32, u8),
    /// The customer.
    pub who: Who,
}

impl OrderStatus {
    /// Draws one of a client at `warehouse`.
    pub fn draw(random: &mut Random, scale: Scale, warehouse: u32) -> OrderStatus {
        let district = random.uniform(1, u64::from(scale.districts)) as u8;
        OrderStatus {
            of: (warehouse, district),
            who: Who::draw(random, scale),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 40_000;

    fn percent_of<T>(
        mut draw: impl FnMut(&mut Random) -> T,
        mut is: impl FnMut(&T) -> bool,
    ) -> f64 {
        let mut random = Random::seeded(&[11]);
        let hits = (0..DRAWS).filter(|_| is(&draw(&mut random))).count();
        100.0 * hits as f64 / DRAWS as f64
    }

    fn assert_near(percent: f64, expected: f64, within: f64) {
        assert!(
            (percent - expected).abs() < within,
            "{percent} %, not {expected} %"
        );
    }

    #[test]
    fn one_line_and_one_order_in_a_hundred_are_remote_and_unused() {
        let scale = Scale::full(10);
        let order = |random: &mut Random| NewOrder::draw(random, scale, 3, false);
        // 1 - 0.99^n for n of 5 to 15, on average.
        assert_near(percent_of(order, |order| !order.is_local()), 9.52, 0.6);
        let unused = |order: &NewOrder| order.lines.iter().any(|line| line.item > scale.items);
        assert_near(percent_of(order, unused), 1.0, 0.2);
        let alone = |random: &mut Random| NewOrder::draw(random, Scale::full(1), 1, false);
        assert_near(
            percent_of(alone, |order| !order.is_local()),
            0.0,
            f64::MIN_POSITIVE,
        );
    }

    #[test]
    fn an_order_has_ten_lines_on_average_and_every_number_of_them_is_as_likely() {
        let order = |random: &mut Random| NewOrder::draw(random, Scale::full(2), 1, false);
        for lines in 5..=15 {
            let share = percent_of(order, |order| order.lines.len() == lines);
            assert_near(share, 100.0 / 11.0, 0.6);
        }
        let mut random = Random::seeded(&[12]);
        for _ in 0..2_000 {
            let order = order(&mut random);
            assert!((1..=10).contains(&order.district) && (1..=3_000).contains(&order.customer));
            assert!(
                order
                    .lines
                    .iter()
                    .all(|line| (1..=10).contains(&line.quantity))
            );
        }
    }

    #[test]
    fn in_a_sorted_order_only_what_does_not_exist_stands_out_of_order_and_it_is_last() {
        let mut random = Random::seeded(&[13]);
        let scale = Scale::full(3);
        for _ in 0..5_000 {
            let order = NewOrder::draw(&mut random, scale, 2, true);
            let (last, before) = order.lines.split_last().expect("it has five at least");
            assert!(before.is_sorted_by_key(|line| (line.supply, line.item)));
            assert!(before.iter().all(|line| line.item <= scale.items));
            assert!(last.item <= scale.items + 1);
        }
    }

    #[test]
    fn fifteen_payments_in_a_hundred_come_from_elsewhere_and_sixty_by_name() {
        let scale = Scale::full(10);
        let payment = |random: &mut Random| Payment::draw(random, scale, 3);
        assert_near(percent_of(payment, |payment| payment.of.0 != 3), 15.0, 0.8);
        let by_name = |payment: &Payment| matches!(payment.who, Who::Name(_));
        assert_near(percent_of(payment, by_name), 60.0, 1.0);
        let mut random = Random::seeded(&[14]);
        for _ in 0..2_000 {
            let payment = payment(&mut random);
            assert!((100..=500_000).contains(&payment.amount));
            assert!(payment.of.0 != 3 || payment.of == (3, payment.district));
        }
    }
}
