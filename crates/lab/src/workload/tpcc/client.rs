//! The client that runs one transaction after another, and the mix it draws them from.

use std::{fmt, num::NonZeroU8};

use foxton::{Database, Isolation};

use super::{
    Scale,
    acknowledged::{Acknowledged, Event, Sums, Witness},
    delivery, input,
    new_order::{self, Entered},
    order_status, payment, stock_level,
};
use crate::{
    driver::Client,
    measure::outcome::{Ended, Outcome},
    random::Random,
    workload::attempt::{End, level, until_committed, until_read},
};

/// The types of transaction, as they are named in results.
pub const KINDS: &[&str] = &[
    "new-order",
    "payment",
    "order-status",
    "delivery",
    "stock-level",
];
/// The place of NewOrder among them.
pub const NEW_ORDER: usize = 0;
const PAYMENT: usize = 1;
const ORDER_STATUS: usize = 2;
/// The place of Delivery among them.
pub const DELIVERY: usize = 3;
const STOCK_LEVEL: usize = 4;

/// Which transactions, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Of a hundred, 45 NewOrders, 43 Payments and four of each other.
    Full,
    /// NewOrders and Payments, each as likely.
    NewOrderPayment,
    /// NewOrders alone.
    NewOrder,
    /// Payments alone.
    Payment,
    /// Order-Statuses alone.
    OrderStatus,
    /// Deliveries alone; without new orders there is soon nothing left to deliver.
    Delivery,
    /// Stock-Levels alone.
    StockLevel,
}

foxton_sync::named_enum! {
    Mix, "mix":
    Full = "full",
    NewOrderPayment = "no-payment",
    NewOrder = "new-order",
    Payment = "payment",
    OrderStatus = "order-status",
    Delivery = "delivery",
    StockLevel = "stock-level",
}

impl Mix {
    /// Frequency of each kind: percentages, or one kind alone.
    fn weights(self) -> [u32; 5] {
        match self {
            Mix::Full => [45, 43, 4, 4, 4],
            Mix::NewOrderPayment => [50, 50, 0, 0, 0],
            Mix::NewOrder => [1, 0, 0, 0, 0],
            Mix::Payment => [0, 1, 0, 0, 0],
            Mix::OrderStatus => [0, 0, 1, 0, 0],
            Mix::Delivery => [0, 0, 0, 1, 0],
            Mix::StockLevel => [0, 0, 0, 0, 1],
        }
    }
}

/// Settings of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// Which transactions.
    pub mix: Mix,
    /// NewOrders update stock in the order of its keys, not as drawn.
    pub sorted: bool,
    /// A Delivery is one transaction for all districts, not one for each.
    pub delivery_batch: bool,
    /// Isolation of Stock-Levels, unless the database has another level than serializable.
    pub stock_level: Isolation,
}

impl Manner {
    /// The default settings, with this mix.
    pub fn usual(mix: Mix) -> Manner {
        Manner {
            mix,
            sorted: false,
            delivery_batch: false,
            stock_level: Isolation::ReadCommitted,
        }
    }
}

/// A client of tpcc.
pub struct TpccClient {
    db: Database,
    scale: Scale,
    manner: Manner,
    random: Random,
    /// Client 0 books as 1, since 0 is the load.
    booker: u32,
    sequence: u64,
    home: u32,
    /// The warehouse of its Stock-Levels.
    district: u8,
    sums: Sums,
    acknowledged: Acknowledged,
    witness: Option<Witness>,
}

impl fmt::Debug for TpccClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TpccClient")
            .field("booker", &self.booker)
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

impl TpccClient {
    /// Client `number`; no two that ever run on one database may share it. Clients are dealt out
    /// over the warehouses in turn, and those of one warehouse over its districts.
    pub fn new(
        db: Database,
        (scale, manner): (Scale, Manner),
        seed: u64,
        number: u32,
        acknowledged: Acknowledged,
    ) -> TpccClient {
        let workload = u64::from_be_bytes(*b"____tpcc");
        let round = number / scale.warehouses;
        TpccClient {
            db,
            scale,
            manner,
            random: Random::seeded(&[seed, workload, u64::from(number)]),
            booker: number + 1,
            sequence: 0,
            home: number % scale.warehouses + 1,
            district: (round % u32::from(scale.districts)) as u8 + 1,
            sums: Sums::default(),
            acknowledged,
            witness: None,
        }
    }

    /// The same, with `witness` recording all acknowledgements.
    #[must_use]
    pub fn watched(mut self, witness: Witness) -> TpccClient {
        self.witness = Some(witness);
        self
    }

    fn saw(&mut self, event: &Event) {
        self.sums.count(event);
        if let Some(witness) = &self.witness {
            witness(event);
        }
    }

    fn new_order(&mut self) -> Ended {
        let (scale, sorted) = (self.scale, self.manner.sorted);
        let order = input::NewOrder::draw(&mut self.random, scale, self.home, sorted);
        let mut number = 0;
        let ended = until_committed(&self.db, (KINDS, NEW_ORDER), &mut self.random, |tx| {
            Ok(match new_order::enter(tx, &order)? {
                Entered::Order(receipt) => {
                    number = receipt.number;
                    End::Done
                }
                Entered::Unused => End::Ruled,
            })
        });
        if ended.outcome == Outcome::Ok {
            self.saw(&Event::NewOrder {
                order: (order.warehouse, order.district, number),
                customer: order.customer,
                lines: order.lines.len() as u8,
            });
        }
        ended
    }

    fn payment(&mut self) -> Ended {
        let input = input::Payment::draw(&mut self.random, self.scale, self.home);
        self.sequence += 1;
        let number = (self.booker, self.sequence);
        let mut customer = (0, 0, 0);
        let ended = until_committed(&self.db, (KINDS, PAYMENT), &mut self.random, |tx| {
            customer = payment::book(tx, &input, number)?;
            Ok(())
        });
        if ended.outcome == Outcome::Ok {
            self.saw(&Event::Payment {
                number,
                customer,
                amount: input.amount,
            });
        }
        ended
    }

    fn order_status(&mut self) -> Ended {
        let question = input::OrderStatus::draw(&mut self.random, self.scale, self.home);
        until_read(&self.db, (KINDS, ORDER_STATUS), &mut self.random, |tx| {
            order_status::ask(tx, &question).map(drop)
        })
    }

    /// A miss if no district had anything to deliver; otherwise districts without orders are
    /// skipped, and their number is reported (clause 2.7.4.2).
    fn delivery(&mut self) -> Ended {
        let carrier = self.random.uniform(1, 10) as u8;
        let carrier = NonZeroU8::new(carrier).unwrap_or(NonZeroU8::MIN);
        let districts: Vec<u8> = (1..=self.scale.districts).collect();
        let together = match self.manner.delivery_batch {
            true => districts.len(),
            false => 1,
        };
        let mut all = Ended {
            outcome: Outcome::Miss,
            ..Ended::ok(DELIVERY)
        };
        for districts in districts.chunks(together) {
            let (ended, skipped) = self.deliver(districts, carrier);
            all.skipped += skipped;
            all.deadlocks += ended.deadlocks;
            all.timeouts += ended.timeouts;
            all.overwritten += ended.overwritten;
            match ended.outcome {
                Outcome::Ok => all.outcome = Outcome::Ok,
                Outcome::Miss => {}
                _ => {
                    all.outcome = ended.outcome;
                    all.failure = ended.failure;
                    return all;
                }
            }
        }
        all
    }

    /// In one transaction. Also returns the number of districts that had nothing to deliver.
    fn deliver(&mut self, districts: &[u8], carrier: NonZeroU8) -> (Ended, u32) {
        let home = self.home;
        let mut delivered = Vec::with_capacity(districts.len());
        let ended = until_committed(&self.db, (KINDS, DELIVERY), &mut self.random, |tx| {
            delivered.clear();
            for &district in districts {
                let number = delivery::deliver(tx, (home, district), carrier)?;
                delivered.extend(number.map(|number| (home, district, number)));
            }
            Ok(if delivered.is_empty() {
                End::Missed
            } else {
                End::Done
            })
        });
        let skipped = match ended.outcome {
            Outcome::Ok | Outcome::Miss => (districts.len() - delivered.len()) as u32,
            _ => 0,
        };
        if ended.outcome == Outcome::Ok {
            for order in delivered {
                self.saw(&Event::Delivery { order });
            }
        }
        (ended, skipped)
    }

    fn stock_level(&mut self) -> Ended {
        let threshold = self.random.uniform(10, 20) as i32;
        let of = (self.home, self.district);
        let isolation = level(&self.db, self.manner.stock_level);
        until_read(&self.db, (KINDS, STOCK_LEVEL), &mut self.random, |tx| {
            tx.set_isolation(isolation)?;
            stock_level::count(tx, of, threshold).map(drop)
        })
    }
}

impl Client for TpccClient {
    fn transaction(&mut self) -> Ended {
        match self.random.weighted(&self.manner.mix.weights()) {
            NEW_ORDER => self.new_order(),
            PAYMENT => self.payment(),
            ORDER_STATUS => self.order_status(),
            DELIVERY => self.delivery(),
            _ => self.stock_level(),
        }
    }
}

impl Drop for TpccClient {
    fn drop(&mut self) {
        self.acknowledged.add(self.sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_has_its_shares() {
        let mut random = Random::seeded(&[21]);
        for mix in Mix::ALL {
            let mut counts = [0u32; 5];
            (0..100_000).for_each(|_| counts[random.weighted(&mix.weights())] += 1);
            for (count, weight) in counts.into_iter().zip(mix.weights()) {
                let expected = weight * 100_000 / mix.weights().iter().sum::<u32>();
                assert!(
                    count.abs_diff(expected) <= 500 && (weight > 0 || count == 0),
                    "{mix}: {counts:?}"
                );
            }
        }
    }
}
