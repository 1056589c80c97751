//! Loading the tables: in parallel, every row drawn from its own seed, so that the checks can draw
//! it again.

use std::{
    num::{NonZeroU8, NonZeroU64},
    ops::RangeInclusive,
};

use foxton::{Indexes, Transaction};

use super::{
    CUSTOMERS, CUSTOMERS_BY_NAME, DISTRICTS, HISTORY, ITEMS, NEW_ORDERS, ORDER_LINES, ORDERS,
    ORDERS_BY_CUSTOMER, PAID_BEFORE, STOCK, Scale, WAREHOUSES, draw, now,
    row::{Customer, District, Item, Order, OrderLine, Payment, Stock, Warehouse, row},
};
use crate::{
    random::Random,
    workload::loading::{Loading, ROWS_A_TRANSACTION, pieces},
};

/// With its lines an order has eleven or twelve rows.
const ORDERS_A_TRANSACTION: u32 = 50;

/// The writer of the load's payments.
pub const NOBODY: u32 = 0;

/// Declares the secondary indexes of the tables.
pub fn declare(indexes: &mut Indexes) {
    indexes.add(&CUSTOMERS_BY_NAME).add(&ORDERS_BY_CUSTOMER);
}

/// A part of the load.
#[derive(Debug, Clone)]
enum Part {
    Items(RangeInclusive<u32>),
    Warehouse(u32),
    Stock(u32, RangeInclusive<u32>),
    District(u32, u8),
    Customers(u32, u8, RangeInclusive<u32>),
    Orders(u32, u8, RangeInclusive<u32>),
}

/// Fills the tables. The secondary indexes must be [declared](declare).
///
/// # Errors
///
/// If the engine refuses an operation.
pub fn load(into: &Loading<'_>, scale: Scale, seed: u64) -> foxton::Result<()> {
    let loader = Loader {
        scale,
        seed,
        now: now(),
    };
    into.pieces(parts(scale), |tx, part| loader.load(tx, part))
}

fn parts(scale: Scale) -> impl Iterator<Item = Part> {
    let items = pieces(scale.items, ROWS_A_TRANSACTION).map(Part::Items);
    let of_warehouse = move |warehouse| {
        let stock = pieces(scale.items, ROWS_A_TRANSACTION);
        let stock = stock.map(move |items| Part::Stock(warehouse, items));
        std::iter::once(Part::Warehouse(warehouse)).chain(stock)
    };
    let of_district = move |(warehouse, district)| {
        let customers = pieces(scale.customers, ROWS_A_TRANSACTION);
        let customers = customers.map(move |some| Part::Customers(warehouse, district, some));
        let orders = pieces(scale.customers, ORDERS_A_TRANSACTION);
        let orders = orders.map(move |some| Part::Orders(warehouse, district, some));
        std::iter::once(Part::District(warehouse, district))
            .chain(customers)
            .chain(orders)
    };
    let warehouses = (1..=scale.warehouses).flat_map(of_warehouse);
    items
        .chain(warehouses)
        .chain(scale.all_districts().flat_map(of_district))
}

/// The quantity in stock at the beginning.
pub fn initial_quantity(seed: u64, warehouse: u32, item: u32) -> i32 {
    first_quantity(&mut of_row(seed, "stock", [warehouse, item, 0]))
}

fn first_quantity(random: &mut Random) -> i32 {
    random.uniform(10, 100) as i32
}

/// The generator of a row.
fn of_row(seed: u64, table: &str, key: [u32; 3]) -> Random {
    let table = table
        .bytes()
        .fold(0, |word, byte| word << 8 | u64::from(byte));
    let [a, b, c] = key.map(u64::from);
    Random::seeded(&[seed, table, a, b, c])
}

#[derive(Debug, Clone, Copy)]
struct Loader {
    scale: Scale,
    seed: u64,
    now: u64,
}

impl Loader {
    /// Loads a part and returns the number of rows.
    fn load(&self, tx: &mut Transaction, part: &Part) -> foxton::Result<u64> {
        match part {
            Part::Items(items) => all(items, |item| self.item(tx, item)),
            Part::Warehouse(warehouse) => self.warehouse(tx, *warehouse),
            Part::Stock(warehouse, items) => all(items, |item| self.stock(tx, *warehouse, item)),
            Part::District(warehouse, district) => self.district(tx, (*warehouse, *district)),
            &Part::Customers(warehouse, district, ref some) => all(some, |number| {
                self.customer(tx, (warehouse, district, number))
            }),
            &Part::Orders(warehouse, district, ref some) => {
                let mut random = of_row(self.seed, "who", [warehouse, u32::from(district), 0]);
                let customers = random.permutation(self.scale.customers);
                all(some, |number| {
                    let customer = customers[number as usize - 1];
                    self.order(tx, (warehouse, district, number), customer)
                })
            }
        }
    }

    fn item(&self, tx: &mut Transaction, item: u32) -> foxton::Result<u64> {
        let random = &mut of_row(self.seed, "item", [item, 0, 0]);
        let head = Item {
            image: random.uniform(1, 10_000) as u32,
            price: random.uniform(100, 10_000) as i64,
        };
        let name = draw::letters_and_digits(random, 14, 24);
        tx.insert(&ITEMS, &item, &row(&head, &[&name, &draw::data(random)]))?;
        Ok(1)
    }

    fn warehouse(&self, tx: &mut Transaction, warehouse: u32) -> foxton::Result<u64> {
        let random = &mut of_row(self.seed, "warehous", [warehouse, 0, 0]);
        let head = Warehouse {
            tax: random.uniform(0, 2_000) as u32,
            ytd: self.scale.warehouse_ytd(),
        };
        let texts = name_and_address(random);
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        tx.insert(&WAREHOUSES, &warehouse, &row(&head, &texts))?;
        Ok(1)
    }

    fn stock(&self, tx: &mut Transaction, warehouse: u32, item: u32) -> foxton::Result<u64> {
        let random = &mut of_row(self.seed, "stock", [warehouse, item, 0]);
        let head = Stock {
            quantity: first_quantity(random),
            ytd: 0,
            orders: 0,
            remote: 0,
        };
        let mut texts: Vec<Vec<u8>> = (0..10)
            .map(|_| draw::letters_and_digits(random, 24, 24))
            .collect();
        texts.push(draw::data(random));
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        tx.insert(&STOCK, &(warehouse, item), &row(&head, &texts))?;
        Ok(1)
    }

    fn district(&self, tx: &mut Transaction, key: (u32, u8)) -> foxton::Result<u64> {
        let random = &mut of_row(self.seed, "district", [key.0, u32::from(key.1), 0]);
        let head = District {
            tax: random.uniform(0, 2_000) as u32,
            ytd: self.scale.district_ytd(),
            next_order: self.scale.customers + 1,
        };
        let texts = name_and_address(random);
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        tx.insert(&DISTRICTS, &key, &row(&head, &texts))?;
        Ok(1)
    }

    fn customer(&self, tx: &mut Transaction, key: (u32, u8, u32)) -> foxton::Result<u64> {
        let (warehouse, district, number) = key;
        let random = &mut of_row(
            self.seed,
            "customer",
            [warehouse, u32::from(district), number],
        );
        let head = Customer {
            since: self.now,
            credit_limit: 5_000_000,
            discount: random.uniform(0, 5_000) as u32,
            balance: -PAID_BEFORE,
            ytd_payment: PAID_BEFORE,
            payments: 1,
            deliveries: 0,
        };
        // Each of the first thousand customers has another name, so that every name occurs.
        let last = match number <= self.scale.names() {
            true => number - 1,
            false => draw::name(random, self.scale.names(), draw::C_LOAD),
        };
        let first = draw::letters_and_digits(random, 8, 16);
        let last = draw::last_name(last).into_bytes();
        let mut texts = vec![first, b"OE".to_vec(), last];
        texts.extend(address(random));
        texts.push(draw::digits(random, 16));
        let credit = if random.percent(10) { b"BC" } else { b"GC" };
        texts.push(credit.to_vec());
        texts.push(draw::letters_and_digits(random, 300, 500));
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        tx.insert(&CUSTOMERS, &key, &row(&head, &texts))?;
        self.history(tx, key, random)?;
        Ok(2)
    }

    fn history(
        &self,
        tx: &mut Transaction,
        (warehouse, district, customer): (u32, u8, u32),
        random: &mut Random,
    ) -> foxton::Result<()> {
        let head = Payment {
            customer,
            customer_district: district,
            customer_warehouse: warehouse,
            district,
            warehouse,
            date: self.now,
            amount: PAID_BEFORE,
        };
        let district =
            u64::from(warehouse - 1) * u64::from(self.scale.districts) + u64::from(district - 1);
        let number = district * u64::from(self.scale.customers) + u64::from(customer);
        let data = draw::letters_and_digits(random, 12, 24);
        tx.insert(&HISTORY, &(NOBODY, number), &row(&head, &[&data]))
    }

    fn order(
        &self,
        tx: &mut Transaction,
        key: (u32, u8, u32),
        customer: u32,
    ) -> foxton::Result<u64> {
        let (warehouse, district, number) = key;
        let random = &mut of_row(self.seed, "order", [warehouse, u32::from(district), number]);
        let is_delivered = number <= self.scale.delivered();
        let carrier = random.uniform(1, 10) as u8;
        let head = Order {
            customer,
            entered: self.now,
            carrier: NonZeroU8::new(carrier).filter(|_| is_delivered),
            lines: random.uniform(5, 15) as u8,
            all_local: 1,
        };
        tx.insert(&ORDERS, &key, &row(&head, &[]))?;
        for line in 1..=head.lines {
            let amount = random.uniform(1, 999_999) as i64;
            let about = OrderLine {
                item: random.uniform(1, u64::from(self.scale.items)) as u32,
                supply: warehouse,
                delivered: NonZeroU64::new(self.now).filter(|_| is_delivered),
                quantity: 5,
                amount: if is_delivered { 0 } else { amount },
            };
            let text = draw::letters_and_digits(random, 24, 24);
            let key = (warehouse, district, number, line);
            tx.insert(&ORDER_LINES, &key, &row(&about, &[&text]))?;
        }
        if !is_delivered {
            tx.insert(&NEW_ORDERS, &key, &())?;
        }
        Ok(1 + u64::from(head.lines) + u64::from(!is_delivered))
    }
}

/// For a warehouse or a district.
fn name_and_address(random: &mut Random) -> Vec<Vec<u8>> {
    let mut texts = vec![draw::letters_and_digits(random, 6, 10)];
    texts.extend(address(random));
    texts
}

/// Streets, city, state and zip.
fn address(random: &mut Random) -> [Vec<u8>; 5] {
    let mut line = || draw::letters_and_digits(random, 10, 20);
    let [street_1, street_2, city] = [line(), line(), line()];
    [
        street_1,
        street_2,
        city,
        draw::state(random),
        draw::zip(random),
    ]
}

fn all(
    numbers: &RangeInclusive<u32>,
    one: impl FnMut(u32) -> foxton::Result<u64>,
) -> foxton::Result<u64> {
    numbers.clone().map(one).sum()
}
