//! tpcc, tiny: over every lock manager with 1, 8 and 64 clients all conditions hold; and each of
//! the conditions is seen to fail by one wrong row, which it names.
//!
//! Clients run a fixed number of transactions, so that nothing here depends on time.

use std::{num::NonZeroU8, thread, time::Duration};

use foxton::{
    Database, Index, Indexes, Isolation, LockInheritance, LockManagerKind, Options, Table,
    codec::Key,
};
use foxton_lab::{
    driver::Client,
    measure::outcome::{Ended, Outcome, Tally},
    progress::Audience,
    workload::{
        loading::Loading,
        tpcc::{
            CUSTOMERS, CUSTOMERS_BY_NAME, DISTRICTS, HISTORY, ITEMS, NEW_ORDERS, NumberKey,
            ORDER_LINES, ORDERS, ORDERS_BY_CUSTOMER, STOCK, Scale, WAREHOUSES,
            acknowledged::{Acknowledged, Event, Sums},
            check::{Fault, faults, survived},
            client::{DELIVERY, KINDS, Manner, Mix, TpccClient},
            load::{declare, load},
            row::{
                CUSTOMER_FIRST, CUSTOMER_LAST, Customer, District, Head, Item, Order, OrderLine,
                Payment, Stock, Warehouse, row, text,
            },
        },
    },
};

const SEED: u64 = 3;

fn loaded(scale: Scale, change: impl FnOnce(&mut Options)) -> Database {
    let mut options = Options::tiny();
    declare(&mut options.indexes);
    // The length of a wait depends on the machine.
    options.lock_wait = Duration::from_secs(600);
    change(&mut options);
    let db = Database::in_memory(options).unwrap();
    let progress = Audience::Nobody.count("", 0, "");
    load(&Loading::new(&db, 2, &progress), scale, SEED).unwrap();
    db
}

/// Runs this many clients at once, each with this many transactions.
fn run(db: &Database, scale: Scale, manner: Manner, clients: u32, each: u32) -> (Tally, Sums) {
    let acknowledged = Acknowledged::default();
    let client = |number| {
        let acknowledged = acknowledged.clone();
        let mut client = TpccClient::new(db.clone(), (scale, manner), SEED, number, acknowledged);
        move || -> Vec<Ended> { (0..each).map(|_| client.transaction()).collect() }
    };
    let threads: Vec<_> = (0..clients)
        .map(|number| thread::spawn(client(number)))
        .collect();
    let mut tally = Tally::new(KINDS);
    for thread in threads {
        let ended = thread.join().unwrap();
        ended.into_iter().for_each(|ended| tally.count(ended));
    }
    (tally, acknowledged.sums())
}

fn assert_all_right(db: &Database, scale: Scale, manner: Manner, clients: u32, each: u32) -> Tally {
    let (tally, sums) = run(db, scale, manner, clients, each);
    assert_eq!(tally.failure, None);
    assert_eq!(tally.of(Outcome::Error) + tally.of(Outcome::Timeout), 0);
    assert_eq!(faults(db, scale, SEED, Some(&sums)).unwrap(), []);
    tally
}

#[test]
fn all_conditions_hold_over_every_lock_manager_with_1_8_and_64_clients() {
    let scale = Scale::tiny(2);
    for manager in LockManagerKind::ALL {
        for inherit in [LockInheritance::Off, LockInheritance::Hot] {
            for (clients, each) in [(1, 60), (8, 20), (64, 4)] {
                let db = loaded(scale, |options| {
                    options.lock_manager = manager;
                    options.lock_inheritance = inherit;
                });
                assert_all_right(&db, scale, Manner::usual(Mix::Full), clients, each);
            }
        }
    }
}

#[test]
fn all_conditions_hold_in_every_manner_at_every_scale() {
    let usual = Manner::usual(Mix::Full);
    let manners = [
        Manner::usual(Mix::NewOrderPayment),
        Manner {
            sorted: true,
            ..usual
        },
        Manner {
            delivery_batch: true,
            ..usual
        },
        Manner {
            stock_level: Isolation::Serializable,
            ..usual
        },
    ];
    let one = Scale {
        customers: 1,
        items: 1,
        districts: 1,
        warehouses: 1,
    };
    for (manner, scale) in manners
        .into_iter()
        .flat_map(|manner| [Scale::tiny(1), Scale::tiny(3), one].map(|scale| (manner, scale)))
    {
        let db = loaded(scale, |_| ());
        assert_eq!(
            faults(&db, scale, SEED, Some(&Sums::default())).unwrap(),
            []
        );
        assert_all_right(&db, scale, manner, 4, 50);
    }
}

#[test]
fn one_new_order_in_a_hundred_is_rolled_back_and_nothing_else_but_a_delivery_of_nothing() {
    let scale = Scale::tiny(1);
    let db = loaded(scale, |_| ());
    let tally = assert_all_right(&db, scale, Manner::usual(Mix::Full), 1, 4_000);
    for (kind, counts) in tally.by_kind() {
        let of = |outcome| counts[outcome as usize];
        let all = of(Outcome::Ok) + of(Outcome::Miss) + of(Outcome::Rule);
        let rolled_back = of(Outcome::Rule);
        match kind {
            "new-order" => assert!(all > 1_700 && (8..=32).contains(&rolled_back), "{counts:?}"),
            _ => assert!(all > 100 && rolled_back == 0, "{kind}: {counts:?}"),
        }
        assert!(
            kind == "delivery" || of(Outcome::Miss) == 0,
            "{kind}: {counts:?}"
        );
    }
}

/// A database after a run, in which rows can be made wrong.
struct Planted {
    db: Database,
    scale: Scale,
    sums: Sums,
}

impl Planted {
    fn new() -> Planted {
        let scale = Scale::tiny(2);
        let db = loaded(scale, |_| ());
        let (_, sums) = run(&db, scale, Manner::usual(Mix::Full), 2, 150);
        let planted = Planted { db, scale, sums };
        assert_eq!(planted.faults(), []);
        planted
    }

    fn faults(&self) -> Vec<Fault> {
        faults(&self.db, self.scale, SEED, Some(&self.sums)).unwrap()
    }

    /// Makes the row of `key` be `wrong`, or removes it, tests that the condition fails and names
    /// `place`, and restores the row.
    fn expect<K: Key>(
        &self,
        condition: u8,
        place: &str,
        (table, key): (&Table<K, [u8]>, K),
        wrong: impl Fn(Option<Vec<u8>>) -> Option<Vec<u8>>,
    ) {
        let right = self.db.run(|tx| tx.get(table, &key)).unwrap();
        let set = |row: &Option<Vec<u8>>| {
            self.db
                .run(|tx| match row {
                    Some(row) => tx.put(table, &key, row),
                    None => tx.delete(table, &key).map(drop),
                })
                .unwrap();
        };
        set(&wrong(right.clone()));
        let faults = self.faults();
        let named = |fault: &Fault| fault.condition == condition && fault.what.contains(place);
        assert!(
            faults.iter().any(named),
            "condition {condition} does not name {place}: {faults:?}"
        );
        set(&right);
        assert_eq!(self.faults(), []);
    }

    /// The same for the numbers of a row.
    fn expect_head<K: Key, H: Head>(
        &self,
        condition: u8,
        place: &str,
        at: (&Table<K, [u8]>, K),
        change: impl Fn(&mut H),
    ) {
        self.expect(condition, place, at, |row| {
            let mut row = row.expect("it is there");
            let mut head = H::read(&row).expect("it is one");
            change(&mut head);
            head.write(&mut row);
            Some(row)
        });
    }

    /// The first row of a table that is as asked.
    fn find<K: Key<Owned = K>, H: Head>(
        &self,
        table: &Table<K, [u8]>,
        is: impl Fn(&K, &H) -> bool,
    ) -> (K, H) {
        let rows = self.db.run(|tx| tx.range(table, ..).collect()).unwrap();
        let heads = rows
            .into_iter()
            .map(|(key, row)| (key, H::read(&row).unwrap()));
        heads
            .into_iter()
            .find(|(key, head)| is(key, head))
            .expect("there is one")
    }
}

const WAREHOUSE: &str = "row 2 of tpcc_warehouse";
const DISTRICT: &str = "row (2, 1) of tpcc_district";
const CUSTOMER: &str = "row (2, 1, 9) of tpcc_customer";
const CUSTOMER_KEY: NumberKey = (2, 1, 9);

#[test]
fn wrong_warehouses_districts_customers_and_payments_are_named() {
    let planted = Planted::new();
    let warehouse = || (&WAREHOUSES, 2);
    let district = || (&DISTRICTS, (2, 1));
    let customer = || (&CUSTOMERS, CUSTOMER_KEY);
    planted.expect_head(1, WAREHOUSE, warehouse(), |row: &mut Warehouse| {
        row.ytd += 1
    });
    planted.expect_head(8, WAREHOUSE, warehouse(), |row: &mut Warehouse| {
        row.ytd -= 1
    });
    let gone = format!("{WAREHOUSE} is gone");
    planted.expect(1, &gone, warehouse(), |_| None);
    planted.expect_head(2, DISTRICT, district(), |row: &mut District| {
        row.next_order += 1
    });
    planted.expect_head(9, DISTRICT, district(), |row: &mut District| row.ytd += 1);
    planted.expect_head(10, CUSTOMER, customer(), |row: &mut Customer| {
        row.balance += 1
    });
    planted.expect_head(11, DISTRICT, customer(), |row: &mut Customer| {
        row.deliveries += 1
    });
    planted.expect_head(12, CUSTOMER, customer(), |row: &mut Customer| {
        row.ytd_payment += 1
    });
    planted.expect_head(17, CUSTOMER, customer(), |row: &mut Customer| {
        row.payments += 1
    });
    let (key, _) = planted.find(&HISTORY, |key, _: &Payment| key.0 == 2);
    planted.expect(14, "tpcc_history has", (&HISTORY, key), |_| None);
    let row = format!("row {key:?} of tpcc_history");
    planted.expect_head(14, &row, (&HISTORY, key), |row: &mut Payment| {
        row.customer = 31
    });
    let nobody = (0, 7);
    planted.expect(14, "tpcc_history has", (&HISTORY, nobody), |_| None);
    // Outside of all districts, and after the last customer of one.
    let some = planted
        .db
        .run(|tx| tx.get(&CUSTOMERS, &CUSTOMER_KEY))
        .unwrap();
    for key in [(0, 1, 1), (1, 3, 1), (3, 1, 1), (2, 1, 31)] {
        let row = format!("row {key:?} of tpcc_customer");
        planted.expect(17, &row, (&CUSTOMERS, key), |_| some.clone());
    }
    planted.expect(
        19,
        "tpcc_customer_by_name has",
        (&CUSTOMERS, (3, 1, 1)),
        |_| some.clone(),
    );
}

#[test]
fn wrong_orders_lines_and_stock_are_named() {
    let planted = Planted::new();
    let loaded = planted.scale.customers;
    let order = |key: NumberKey| format!("row {key:?} of tpcc_order");
    let line = |key: (u32, u8, u32, u8)| format!("row {key:?} of tpcc_order_line");

    let lost = (1, 1, 9_999, 1);
    let (_, some) = planted.find(&ORDER_LINES, |_, _: &OrderLine| true);
    planted.expect(4, &line(lost), (&ORDER_LINES, lost), |_| {
        Some(row(&some, &[]))
    });
    let (key, _) = planted.find(&ORDERS, |key, order: &Order| {
        key.1 == 2 && order.carrier.is_none()
    });
    planted.expect_head(5, &order(key), (&ORDERS, key), |row: &mut Order| {
        row.carrier = NonZeroU8::new(3);
    });
    let (key, _) = planted.find(&ORDER_LINES, |key, _: &OrderLine| key.2 == 4 && key.3 == 5);
    planted.expect(
        6,
        &order((key.0, key.1, key.2)),
        (&ORDER_LINES, key),
        |_| None,
    );
    planted.expect(
        4,
        &format!("row ({}, {}) of tpcc_district", key.0, key.1),
        (&ORDER_LINES, key),
        |_| None,
    );
    planted.expect_head(7, &line(key), (&ORDER_LINES, key), |row: &mut OrderLine| {
        row.delivered = None;
    });
    let first = (key.0, key.1, key.2, 1);
    planted.expect(
        17,
        &line((key.0, key.1, key.2, 2)),
        (&ORDER_LINES, first),
        |_| None,
    );
    planted.expect(13, &order((2, 2, 5)), (&ORDERS, (2, 2, 5)), |_| None);
    // Outside of all districts.
    let (_, some) = planted.find(&ORDERS, |_, _: &Order| true);
    for key in [(0, 1, 1), (1, 3, 1), (3, 1, 1)] {
        planted.expect(13, &order(key), (&ORDERS, key), |_| Some(row(&some, &[])));
        let key = (key.0, key.1, key.2, 1);
        let (_, some) = planted.find(&ORDER_LINES, |_, _: &OrderLine| true);
        planted.expect(4, &line(key), (&ORDER_LINES, key), |_| {
            Some(row(&some, &[]))
        });
    }
    // Of no customer, delivered and not.
    for key in [(1, 1, 2), (1, 1, 29)] {
        for nobody in [0, loaded + 1] {
            planted.expect_head(17, &order(key), (&ORDERS, key), |row: &mut Order| {
                row.customer = nobody;
            });
        }
    }
    planted.expect(18, "row 8 of tpcc_item is gone", (&ITEMS, 8), |_| None);
    let (_, some) = planted.find(&ITEMS, |_, _: &Item| true);
    let one_more = "row 101 of tpcc_item should not";
    planted.expect(18, one_more, (&ITEMS, 101), |_| Some(row(&some, &[])));

    let is_new = |key: &(u32, u8, u32, u8), _: &OrderLine| key.2 > loaded;
    let (key, _) = planted.find(&ORDER_LINES, is_new);
    planted.expect_head(
        18,
        &line(key),
        (&ORDER_LINES, key),
        |row: &mut OrderLine| row.amount += 1,
    );
    let whose = (key.0, key.1, key.2);
    planted.expect_head(18, &order(whose), (&ORDERS, whose), |row: &mut Order| {
        row.all_local ^= 1
    });
    planted.expect_head(
        18,
        &line(key),
        (&ITEMS, some_item(&planted, key)),
        |row: &mut Item| {
            row.price += 1;
        },
    );

    let stock = "row (2, 17) of tpcc_stock";
    let at = || (&STOCK, (2, 17));
    let gone = "row (2, 17) of tpcc_stock is gone";
    planted.expect(15, gone, at(), |_| None);
    // 91 more were ordered and restocked: only the lines show it.
    planted.expect_head(15, stock, at(), |row: &mut Stock| row.ytd += 91);
    planted.expect_head(15, stock, at(), |row: &mut Stock| row.orders += 1);
    planted.expect_head(15, stock, at(), |row: &mut Stock| row.remote += 1);
    planted.expect_head(16, stock, at(), |row: &mut Stock| row.quantity ^= 1);
    planted.expect_head(16, stock, at(), |row: &mut Stock| row.quantity += 91);
}

fn some_item(planted: &Planted, line: (u32, u8, u32, u8)) -> u32 {
    planted
        .find(&ORDER_LINES, |key, _: &OrderLine| *key == line)
        .1
        .item
}

#[test]
fn a_hole_among_the_orders_that_wait_is_named() {
    let planted = Planted::new();
    let waiting = planted
        .db
        .run(|tx| tx.range(&NEW_ORDERS, (2, 2, 0)..).collect())
        .unwrap();
    let (hole, ()) = waiting[1];
    planted.db.run(|tx| tx.delete(&NEW_ORDERS, &hole)).unwrap();
    let faults = planted.faults();
    let place = format!("row {hole:?} of tpcc_new_order");
    let named = |fault: &Fault| fault.condition == 3 && fault.what.contains(&place);
    assert!(faults.iter().any(named), "{faults:?}");
}

#[test]
fn an_order_that_waits_where_no_district_is_is_named() {
    let planted = Planted::new();
    planted
        .db
        .run(|tx| tx.insert(&NEW_ORDERS, &(1, 3, 5), &()))
        .unwrap();
    let faults = planted.faults();
    let place = "row (1, 3, 5) of tpcc_new_order";
    let named = |fault: &Fault| fault.condition == 5 && fault.what.contains(place);
    assert!(faults.iter().any(named), "{faults:?}");
}

#[test]
fn districts_with_nothing_to_deliver_are_counted_one_by_one() {
    let scale = Scale::tiny(1);
    for delivery_batch in [false, true] {
        let db = loaded(scale, |_| ());
        // All that waits in the first district goes; the second has its nine.
        let delivered = |tx: &mut foxton::Transaction| {
            let waiting = tx.range(&NEW_ORDERS, (1, 1, 0)..(1, 2, 0)).collect()?;
            waiting
                .iter()
                .try_for_each(|(key, ())| tx.delete(&NEW_ORDERS, key).map(drop))
        };
        db.run(delivered).unwrap();
        let manner = Manner {
            delivery_batch,
            ..Manner::usual(Mix::Delivery)
        };
        let (tally, sums) = run(&db, scale, manner, 1, 9 + 3);
        let of = |outcome| tally.of_kind(DELIVERY, outcome);
        assert_eq!((of(Outcome::Ok), of(Outcome::Miss)), (9, 3));
        assert_eq!(
            (tally.skips.transactions, tally.skips.parts),
            (12, 9 + 3 * 2)
        );
        assert_eq!(sums.deliveries, 9);
    }
}

#[test]
fn sums_that_differ_from_what_was_acknowledged_are_noticed() {
    let Planted { db, scale, sums } = Planted::new();
    let conditions = |sums: Sums| -> Vec<u8> {
        let faults = faults(&db, scale, SEED, Some(&sums)).unwrap();
        faults.iter().map(|fault| fault.condition).collect()
    };
    assert_eq!(
        conditions(Sums {
            new_orders: sums.new_orders + 1,
            ..sums
        }),
        [13]
    );
    assert_eq!(
        conditions(Sums {
            payments: sums.payments - 1,
            ..sums
        }),
        [14]
    );
    assert_eq!(
        conditions(Sums {
            paid: sums.paid + 1,
            ..sums
        }),
        [14]
    );
    assert_eq!(
        conditions(Sums {
            deliveries: sums.deliveries + 1,
            ..sums
        }),
        [17]
    );
}

#[test]
fn a_row_that_an_index_leaves_out_is_named() {
    const WRONG_NAMES: Index<(u32, u8, &str, &str), NumberKey, [u8]> = Index::new(
        "tpcc_customer_by_name",
        &CUSTOMERS,
        |&(w, d, c), row, keys| {
            let name = |index| {
                let text = text::<Customer>(row, index).unwrap_or_default();
                std::str::from_utf8(text).unwrap_or_default()
            };
            if c != 9 {
                keys.add(&(w, d, name(CUSTOMER_LAST), name(CUSTOMER_FIRST)));
            }
        },
    );
    const WRONG_CUSTOMERS: Index<NumberKey, NumberKey, [u8]> = Index::new(
        "tpcc_order_by_customer",
        &ORDERS,
        |&(w, d, o), row, keys| {
            let order = Order::read(row).map_or(0, |order| order.customer);
            keys.add(&(w, d, if o == 5 { order + 1 } else { order }));
        },
    );
    let scale = Scale::tiny(1);
    let faults = |change: &dyn Fn(&mut Indexes)| {
        let db = loaded(scale, |options| {
            options.indexes = Indexes::default();
            change(&mut options.indexes);
        });
        faults(&db, scale, SEED, None).unwrap()
    };
    let left_out = faults(&|indexes| {
        indexes.add(&WRONG_NAMES).add(&ORDERS_BY_CUSTOMER);
    });
    assert_eq!(left_out[0].condition, 19);
    assert!(left_out[0].what.contains("(1, 1, 9)"), "{left_out:?}");
    let misplaced = faults(&|indexes| {
        indexes.add(&CUSTOMERS_BY_NAME).add(&WRONG_CUSTOMERS);
    });
    assert_eq!(misplaced[0].condition, 19);
    assert!(misplaced[0].what.contains("(1, 1, 5)"), "{misplaced:?}");
}

#[test]
fn what_was_acknowledged_and_is_not_there_is_named() {
    let Planted { db, .. } = Planted::new();
    let missing = |event: Event| {
        let faults = survived::acknowledged(&db, &[event]).unwrap();
        assert!(faults.iter().all(|fault| fault.condition == 20));
        faults
            .first()
            .map(|fault| fault.what.clone())
            .unwrap_or_default()
    };
    let order = (1, 1, 9_999);
    let what = missing(Event::NewOrder {
        order,
        customer: 1,
        lines: 5,
    });
    assert!(what.contains("row (1, 1, 9999) of tpcc_order"), "{what}");
    let what = missing(Event::Delivery { order });
    assert!(what.contains("row (1, 1, 9999) of tpcc_order"), "{what}");
    let number = (1, 9_999);
    let what = missing(Event::Payment {
        number,
        customer: CUSTOMER_KEY,
        amount: 1,
    });
    assert!(what.contains("row (1, 9999) of tpcc_history"), "{what}");
    // An existing order, with one line too many.
    let first = db.run(|tx| tx.get(&ORDERS, &(1, 1, 1))).unwrap().unwrap();
    let Order {
        customer, lines, ..
    } = Order::read(&first).unwrap();
    let order = (1, 1, 1);
    assert_eq!(
        missing(Event::NewOrder {
            order,
            customer,
            lines
        }),
        ""
    );
    let what = missing(Event::NewOrder {
        order,
        customer,
        lines: lines + 1,
    });
    assert!(what.contains("row (1, 1, 1) of tpcc_order"), "{what}");
}
