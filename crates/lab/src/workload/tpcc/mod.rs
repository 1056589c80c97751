//! tpcc: TPC-C, a wholesale supplier: warehouses, districts, customers, orders and stock.
//!
//! Five transactions. NewOrder and Payment conflict at the rows of their warehouse and district,
//! NewOrders at popular items. Delivery removes orders at one end of a queue that NewOrder extends
//! at the other.
//!
//! Money is a number of cents and rates are numbers of 1/10,000, never floating point, so that the
//! checks compare exactly.
//!
//! # The order of locks
//!
//! Warehouse, district, customer; then the new order's rows; then stock, in the order in which the
//! lines were drawn. Delivery begins at the queue of new orders and comes to the customer last.
//! A transaction locks a row that it will write exclusively when it reads it, so that it never
//! converts a lock while another transaction waits for it. The remaining deadlocks are those of
//! stock (two orders with two items in opposite order), and a few between Delivery and NewOrder.

/// Rows as bytes: numbers first, texts last.
pub mod row;

/// Random choices of the benchmark.
pub mod draw;

/// The tables and their load.
pub mod load;

/// Inputs of a transaction.
pub mod input;

/// Reading and writing rows in a transaction.
mod access;

/// An order is entered.
pub mod new_order;

/// A customer pays.
pub mod payment;

/// A customer requests the state of the last order.
pub mod order_status;

/// The oldest order of each district is delivered.
pub mod delivery;

/// Number of recently ordered items with low stock.
pub mod stock_level;

/// Acknowledgements to clients.
pub mod acknowledged;

/// The client that runs one transaction after another.
pub mod client;

/// Deliveries that found districts with nothing to deliver.
mod skips;

/// The conditions of consistency.
pub mod check;

use foxton::{Database, Index, Indexes, Table};
use serde_json::{Value, json};

use super::{
    contract::{About, Loaded, Size, Workload},
    loading::Loading,
};
use crate::{
    driver::Client,
    measure::{
        curve::{Curve, Point},
        outcome::{Outcome, Tally},
    },
    report::findings::Block,
};
use acknowledged::Acknowledged;
use client::{Manner, Mix, NEW_ORDER, TpccClient};
use row::{CUSTOMER_FIRST, CUSTOMER_LAST, Customer, Head, Order, text};

/// Key of a district: warehouse, district.
pub type DistrictKey = (u32, u8);
/// Key of a customer or an order: warehouse, district, number.
pub type NumberKey = (u32, u8, u32);

/// Warehouses by number, from 1.
pub const WAREHOUSES: Table<u32, [u8]> = Table::new("tpcc_warehouse");
/// Districts.
pub const DISTRICTS: Table<DistrictKey, [u8]> = Table::new("tpcc_district");
/// Customers.
pub const CUSTOMERS: Table<NumberKey, [u8]> = Table::new("tpcc_customer");
/// Payments, by (writer, sequence number of the writer); 0 is the load.
pub const HISTORY: Table<(u32, u64), [u8]> = Table::new("tpcc_history");
/// Orders.
pub const ORDERS: Table<NumberKey, [u8]> = Table::new("tpcc_order");
/// Orders that were not delivered.
pub const NEW_ORDERS: Table<NumberKey, ()> = Table::new("tpcc_new_order");
/// Lines of orders, numbered from 1.
pub const ORDER_LINES: Table<(u32, u8, u32, u8), [u8]> = Table::new("tpcc_order_line");
/// Items by number, from 1.
pub const ITEMS: Table<u32, [u8]> = Table::new("tpcc_item");
/// Stock of an item in a warehouse.
pub const STOCK: Table<(u32, u32), [u8]> = Table::new("tpcc_stock");

/// Customers by (warehouse, district, last name, first name), then by number.
pub const CUSTOMERS_BY_NAME: Index<(u32, u8, &str, &str), NumberKey, [u8]> = Index::new(
    "tpcc_customer_by_name",
    &CUSTOMERS,
    |&(warehouse, district, _), row, keys| {
        let name = |index| text::<Customer>(row, index).and_then(|name| str::from_utf8(name).ok());
        if let (Some(last), Some(first)) = (name(CUSTOMER_LAST), name(CUSTOMER_FIRST)) {
            keys.add(&(warehouse, district, last, first));
        }
    },
);

/// Orders by (warehouse, district, customer), then by number.
pub const ORDERS_BY_CUSTOMER: Index<NumberKey, NumberKey, [u8]> = Index::new(
    "tpcc_order_by_customer",
    &ORDERS,
    |&(warehouse, district, _), row, keys| {
        if let Some(order) = Order::read(row) {
            keys.add(&(warehouse, district, order.customer));
        }
    },
);

/// Numbers of rows.
///
/// Only [`warehouses`](Scale::warehouses) is the benchmark's to choose; with fewer of anything else
/// it is the same transactions on a smaller database, for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses: W.
    pub warehouses: u32,
    /// Districts of each, 10 in the benchmark and at most.
    pub districts: u8,
    /// Customers of a district, 3,000 in the benchmark, and as many orders to begin with.
    pub customers: u32,
    /// Items, 100,000 in the benchmark; each warehouse has stock of all.
    pub items: u32,
}

/// Payments of every customer before the start, in cents.
pub const PAID_BEFORE: i64 = 1_000;

impl Scale {
    /// The benchmark's scale.
    pub fn full(warehouses: u32) -> Scale {
        Scale {
            warehouses,
            districts: 10,
            customers: 3_000,
            items: 100_000,
        }
    }

    /// For tests: two districts of 30 customers, and 100 items.
    pub fn tiny(warehouses: u32) -> Scale {
        Scale {
            warehouses,
            districts: 2,
            customers: 30,
            items: 100,
        }
    }

    /// True if everything except the number of warehouses is the benchmark's.
    pub fn is_full(self) -> bool {
        self == Scale::full(self.warehouses)
    }

    /// Number of different last names in a district: a thousand, if there are so many customers.
    pub fn names(self) -> u32 {
        self.customers.min(1_000)
    }

    /// Orders of a district that were delivered before the beginning: 2,100 of 3,000.
    pub fn delivered(self) -> u32 {
        self.customers * 7 / 10
    }

    /// Income of a district before the start, in cents: 30,000.00.
    pub fn district_ytd(self) -> i64 {
        i64::from(self.customers) * PAID_BEFORE
    }

    /// Income of a warehouse before the start, in cents: 300,000.00.
    pub fn warehouse_ytd(self) -> i64 {
        i64::from(self.districts) * self.district_ytd()
    }

    /// Every district.
    pub fn all_districts(self) -> impl Iterator<Item = DistrictKey> {
        let of = move |warehouse| (1..=self.districts).map(move |district| (warehouse, district));
        (1..=self.warehouses).flat_map(of)
    }

    /// Rows to load; orders have ten lines on average.
    pub fn rows(self) -> u64 {
        let customers = u64::from(self.customers);
        let waiting = u64::from(self.customers - self.delivered());
        let district = 1 + 2 * customers + 11 * customers + waiting;
        let warehouse = 1 + u64::from(self.items) + u64::from(self.districts) * district;
        u64::from(self.items) + u64::from(self.warehouses) * warehouse
    }
}

/// The time, in milliseconds since 1970.
pub fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |since| since.as_millis() as u64)
}

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct Tpcc {
    /// Numbers of rows.
    pub scale: Scale,
    /// Settings of the clients.
    pub manner: Manner,
    /// Seed of the load and of the clients.
    pub seed: u64,
}

/// Bytes of a row on average: 77 MB in 600,000 rows of one warehouse and the items.
const ROW_BYTES: u64 = 130;

impl Workload for Tpcc {
    fn about(&self) -> About {
        let Scale {
            warehouses,
            districts,
            customers,
            items,
        } = self.scale;
        let reduced = match self.scale.is_full() {
            true => String::new(),
            false => format!(
                " Reduced: {districts} districts a warehouse, {customers} customers a district, \
                 {items} items, where TPC-C has 10, 3,000 and 100,000."
            ),
        };
        let of_them = match warehouses {
            1 => "1 warehouse".to_owned(),
            several => format!("{several} warehouses"),
        };
        let what = match self.manner.mix {
            Mix::Full => {
                "of a hundred transactions 45 are NewOrders, 43 Payments, and four each \
                          Order-Statuses, Deliveries and Stock-Levels"
            }
            Mix::NewOrderPayment => "half of the transactions are NewOrders, half Payments",
            Mix::NewOrder => "NewOrders and nothing else",
            Mix::Payment => "Payments and nothing else",
            Mix::OrderStatus => "Order-Statuses and nothing else",
            Mix::Delivery => "Deliveries and nothing else",
            Mix::StockLevel => "Stock-Levels and nothing else",
        };
        About {
            name: "tpcc",
            variant: self.variant(),
            title: format!("tpcc, {of_them}, mix {}", self.manner.mix),
            description: format!(
                "TPC-C with {of_them} and no pauses: {what}. One NewOrder in a \
                 hundred is rolled back because it orders something that does not exist.{reduced}"
            ),
            checked:
                "after each run the twelve conditions of consistency of TPC-C hold, and seven \
                      stronger ones: stock is that of the load less every line, indexes have \
                      exactly the entries that follow from their tables, and acknowledged \
                      transactions are there, to the cent."
                    .to_owned(),
            settings: self.settings(),
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        client::KINDS
    }

    fn size(&self) -> Size {
        Size {
            rows: self.scale.rows(),
            row_bytes: ROW_BYTES,
        }
    }

    fn grows(&self) -> bool {
        true
    }

    fn indexes(&self, indexes: &mut Indexes) {
        load::declare(indexes);
    }

    fn load(&self, into: &Loading<'_>) -> foxton::Result<Box<dyn Loaded>> {
        load::load(into, self.scale, self.seed)?;
        Ok(Box::new(Stocked {
            tpcc: *self,
            acknowledged: Acknowledged::default(),
        }))
    }

    fn facts(&self, point: &Point) -> Vec<(&'static str, Value)> {
        let (tally, minutes) = (point.tally(), minutes(point));
        let [ok, rule] =
            [Outcome::Ok, Outcome::Rule].map(|outcome| tally.of_kind(NEW_ORDER, outcome));
        vec![
            (
                "new_orders_per_minute_unpaced",
                json!((ok + rule) as f64 / minutes),
            ),
            ("new_orders_rolled_back", json!(rule)),
            ("deliveries_with_skips", json!(tally.skips.transactions)),
            ("districts_skipped", json!(tally.skips.parts)),
        ]
    }

    fn blocks(&self, curves: &[Curve]) -> Vec<Block> {
        skips::block(curves).into_iter().collect()
    }
}

/// Length of a point's window.
fn minutes(point: &Point) -> f64 {
    let seconds: f64 = point.runs.iter().map(|run| run.window.as_secs_f64()).sum();
    (seconds / 60.0).max(1e-9)
}

impl Tpcc {
    fn variant(&self) -> String {
        let mut words = vec![format!("{}-warehouses", self.scale.warehouses)];
        words.push(self.manner.mix.to_string());
        words.extend((!self.scale.is_full()).then(|| "reduced".to_owned()));
        words.extend(self.manner.sorted.then(|| "sorted".to_owned()));
        words.extend(
            self.manner
                .delivery_batch
                .then(|| "delivery-batch".to_owned()),
        );
        words.join("-")
    }

    fn settings(&self) -> Vec<(&'static str, Value)> {
        let (scale, manner) = (self.scale, self.manner);
        vec![
            ("warehouses", json!(scale.warehouses)),
            ("districts", json!(scale.districts)),
            ("customers", json!(scale.customers)),
            ("items", json!(scale.items)),
            ("mix", json!(manner.mix.to_string())),
            ("sorted", json!(manner.sorted)),
            ("delivery_batch", json!(manner.delivery_batch)),
            ("isolation", json!("serializable")),
            (
                "stock_level_isolation",
                json!(manner.stock_level.to_string()),
            ),
            ("seed", json!(self.seed)),
        ]
    }
}

/// A database with the tables in it.
#[derive(Debug)]
struct Stocked {
    tpcc: Tpcc,
    acknowledged: Acknowledged,
}

impl Loaded for Stocked {
    fn client(&mut self, db: &Database, number: u32) -> Box<dyn Client> {
        let Tpcc {
            scale,
            manner,
            seed,
        } = self.tpcc;
        let (db, acknowledged) = (db.clone(), self.acknowledged.clone());
        Box::new(TpccClient::new(
            db,
            (scale, manner),
            seed,
            number,
            acknowledged,
        ))
    }

    fn check(&mut self, db: &Database, _ended: &Tally) -> Result<(), String> {
        // Acknowledgements have more than counts: the sums paid.
        let sums = self.acknowledged.sums();
        check::check(db, self.tpcc.scale, self.tpcc.seed, Some(&sums))
    }
}
