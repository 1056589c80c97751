//! secondary: rows found through an index, whose order is or is not that of the table.
//!
//! The tables have the subscribers of tatp, each with an alternative number from a random
//! permutation. A transaction reads SIZE rows that are neighbours in an index. In the *aligned*
//! index, over the subscriber's own number, they are neighbours in the table too; in the
//! *scattered* one, over the alternative number, they are anywhere. Nothing is ever written, so the
//! rows of each scan are known, and each is compared while it runs.

use std::{hint::black_box, ops::Bound, sync::Arc};

use foxton::{Database, Index, Indexes, Table, Transaction};
use serde_json::json;

use super::{
    attempt::{Failure, until_read},
    contract::{About, Loaded, Size, Workload},
    loading::{Loading, ROWS_A_TRANSACTION, pieces},
    tatp::{
        self,
        check::compare,
        initial,
        row::{SUBSCRIBER_BYTES, VLR_LOCATION, number, number_of, text},
    },
};
use crate::{
    driver::Client,
    measure::outcome::{Ended, Tally},
    random::Random,
    report::number::grouped,
};

/// Subscribers by id, from 1: the rows of tatp, followed by the alternative number as a u32.
pub const SUBSCRIBERS: Table<u32, [u8]> = Table::new("secondary_subscriber");
/// Subscribers by their own number.
pub const BY_NUMBER: Index<str, u32, [u8]> =
    Index::unique("secondary_by_number", &SUBSCRIBERS, |_, row, keys| {
        if let Some(number) = number(row) {
            keys.add(number);
        }
    });
/// Subscribers by their alternative number.
pub const BY_ALTERNATIVE: Index<u32, u32, [u8]> =
    Index::unique("secondary_by_alternative", &SUBSCRIBERS, |_, row, keys| {
        if let Some(alternative) = alternative(row) {
            keys.add(&alternative);
        }
    });

const KINDS: &[&str] = &["scan"];
const ROW_BYTES: usize = SUBSCRIBER_BYTES + 4;

fn alternative(row: &[u8]) -> Option<u32> {
    let bytes = row.get(SUBSCRIBER_BYTES..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// The variant of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Subscribers (P).
    pub subscribers: u32,
    /// Rows a scan reads.
    pub size: u32,
    /// Scan the index whose order is unrelated to the table's.
    pub scattered: bool,
    /// Seed of the load and of the clients.
    pub seed: u64,
}

impl Shape {
    fn tatp(self) -> tatp::Shape {
        tatp::Shape {
            subscribers: self.subscribers,
            seed: self.seed,
            ..tatp::Shape::usual()
        }
    }

    fn order(self) -> &'static str {
        match self.scattered {
            true => "scattered",
            false => "aligned",
        }
    }
}

/// The workload.
#[derive(Debug)]
pub struct Secondary {
    plan: Arc<Plan>,
}

/// The rows to read, and the subscriber of each alternative number.
#[derive(Debug)]
struct Plan {
    shape: Shape,
    /// The subscriber of alternative number n is at n − 1.
    of_alternative: Vec<u32>,
}

impl Secondary {
    /// This variant of it.
    pub fn new(shape: Shape) -> Secondary {
        let workload = u64::from_be_bytes(*b"secondry");
        let of_alternative = Random::seeded(&[shape.seed, workload]).permutation(shape.subscribers);
        Secondary {
            plan: Arc::new(Plan {
                shape,
                of_alternative,
            }),
        }
    }
}

impl Plan {
    /// The values of the load, by id.
    fn alternatives(&self) -> Vec<u32> {
        let mut alternatives = vec![0; self.of_alternative.len()];
        for (number, &id) in (1..).zip(&self.of_alternative) {
            alternatives[id as usize - 1] = number;
        }
        alternatives
    }

    fn row(&self, alternatives: &[u32], id: u32) -> Vec<u8> {
        let mut row = initial::subscriber(&self.shape.tatp(), id);
        row.extend_from_slice(&alternatives[id as usize - 1].to_le_bytes());
        row
    }

    /// The subscriber that a place in an index leads to.
    fn leads_to(&self, scattered: bool, place: u32) -> u32 {
        match scattered {
            true => self.of_alternative[place as usize - 1],
            false => place,
        }
    }

    /// Reads the rows at places `first` ..= `last` of an index, and checks their subscribers.
    fn scan(
        &self,
        tx: &mut Transaction,
        scattered: bool,
        (first, last): (u32, u32),
    ) -> Result<(), Failure> {
        let (mut place, mut wrong) = (first, None);
        let mut take = |id: u32, row: &[u8]| {
            let expected = (place <= last).then(|| self.leads_to(scattered, place));
            if expected != Some(id) || row.len() != ROW_BYTES {
                let expected = expected.map_or("none".to_owned(), |id| id.to_string());
                wrong.get_or_insert_with(|| {
                    format!("place {place} leads to row {id} of {TABLE}, not to {expected}")
                });
            }
            black_box((id, row.get(VLR_LOCATION)));
            place += 1;
        };
        let index = match scattered {
            true => {
                let rows = tx.range_by(&BY_ALTERNATIVE, first..=last);
                rows.for_each(|_, id, row| take(id, &row))?;
                BY_ALTERNATIVE.name()
            }
            false => {
                let (low, high) = (number_of(first), number_of(last));
                let bounds = (Bound::Included(text(&low)), Bound::Included(text(&high)));
                let rows = tx.range_by(&BY_NUMBER, bounds);
                rows.for_each(|_, id, row| take(id, &row))?;
                BY_NUMBER.name()
            }
        };
        if place != last + 1 {
            wrong.get_or_insert_with(|| format!("place {place} leads nowhere"));
        }
        match wrong {
            Some(what) => Err(Failure::Wrong(format!("{index}: {what}"))),
            None => Ok(()),
        }
    }
}

const TABLE: &str = SUBSCRIBERS.name();

impl Workload for Secondary {
    fn about(&self) -> About {
        let shape = self.plan.shape;
        let (order, size) = (shape.order(), grouped(f64::from(shape.size)));
        let subscribers = grouped(f64::from(shape.subscribers));
        About {
            name: "secondary",
            variant: format!("{order}-{}", shape.size),
            title: format!("secondary, {size} rows a scan, {order} with the table"),
            description: format!(
                "{subscribers} subscribers of 61 bytes with two unique indexes. A transaction reads the \
                 {size} rows that are neighbours in one of them, {}, under serializable locks, and \
                 commits.",
                match shape.scattered {
                    true => "which are anywhere in the table",
                    false => "which are neighbours in the table, too",
                }
            ),
            checked:
                "every scan must find the rows known from the load, while running; after each run \
                      the rows and both indexes are those of the load."
                    .to_owned(),
            settings: vec![
                ("subscribers", json!(shape.subscribers)),
                ("size", json!(shape.size)),
                ("scattered", json!(shape.scattered)),
                ("isolation", json!("serializable")),
                ("seed", json!(shape.seed)),
            ],
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        KINDS
    }

    fn sound(&self) -> Result<(), String> {
        let Shape {
            subscribers, size, ..
        } = self.plan.shape;
        match (1..=subscribers).contains(&size) {
            true => Ok(()),
            false => Err(format!(
                "with {subscribers} subscribers a scan reads 1 to {subscribers} rows, not {size}; change it with --size"
            )),
        }
    }

    fn size(&self) -> Size {
        Size {
            rows: u64::from(self.plan.shape.subscribers),
            // The row and its key, and a record for each of two entries.
            row_bytes: 4 + ROW_BYTES as u64 + 200,
        }
    }

    fn indexes(&self, indexes: &mut Indexes) {
        indexes.add(&BY_NUMBER).add(&BY_ALTERNATIVE);
    }

    fn load(&self, into: &Loading<'_>) -> foxton::Result<Box<dyn Loaded>> {
        let alternatives = self.plan.alternatives();
        into.each(self.plan.shape.subscribers, |tx, id| {
            tx.insert(&SUBSCRIBERS, &id, &self.plan.row(&alternatives, id)[..])?;
            Ok(1)
        })?;
        Ok(Box::new(Numbers {
            plan: self.plan.clone(),
            alternatives,
        }))
    }
}

/// The workload in one database.
struct Numbers {
    plan: Arc<Plan>,
    alternatives: Vec<u32>,
}

impl Loaded for Numbers {
    fn client(&mut self, db: &Database, number: u32) -> Box<dyn Client> {
        let workload = u64::from_be_bytes(*b"sec_scan");
        let seed = [self.plan.shape.seed, workload, u64::from(number)];
        Box::new(Scanner {
            db: db.clone(),
            plan: self.plan.clone(),
            random: Random::seeded(&seed),
        })
    }

    fn check(&mut self, db: &Database, _ended: &Tally) -> Result<(), String> {
        let count = self.plan.shape.subscribers;
        for ids in pieces(count, ROWS_A_TRANSACTION) {
            let (first, last) = (*ids.start(), *ids.end());
            let mut tx = db.begin().map_err(|error| error.to_string())?;
            // Rows before the first or after the last should not exist, and are found with the
            // others.
            let low = if first == 1 { 0 } else { first };
            let high = if last == count { u32::MAX } else { last };
            let found = tx.range(&SUBSCRIBERS, low..=high).collect();
            let found = found.map_err(|error| format!("{TABLE} cannot be read: {error}"))?;
            let expected = ids.map(|id| (id, self.plan.row(&self.alternatives, id)));
            compare(TABLE, expected, found, |_| false)?;
            for scattered in [false, true] {
                let scan = self.plan.scan(&mut tx, scattered, (first, last));
                scan.map_err(|failure| match failure {
                    Failure::Wrong(what) => what,
                    Failure::Engine(error) => format!("an index cannot be read: {error}"),
                })?;
            }
            tx.commit().map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// A client of secondary.
struct Scanner {
    db: Database,
    plan: Arc<Plan>,
    random: Random,
}

impl Client for Scanner {
    fn transaction(&mut self) -> Ended {
        let Scanner { db, plan, random } = self;
        let Shape {
            subscribers,
            size,
            scattered,
            ..
        } = plan.shape;
        let first = random.uniform(1, u64::from(subscribers - size + 1)) as u32;
        let range = (first, first + size - 1);
        until_read(db, (KINDS, 0), random, |tx| plan.scan(tx, scattered, range))
    }
}

#[cfg(test)]
mod tests {
    use foxton::Options;

    use super::*;
    use crate::{measure::outcome::Outcome, progress::Audience};

    #[test]
    fn a_scan_that_finds_another_row_says_which_and_so_does_the_check() {
        for scattered in [false, true] {
            let workload = Secondary::new(Shape {
                subscribers: 40,
                size: 40,
                scattered,
                seed: 1,
            });
            let mut options = Options::tiny();
            workload.indexes(&mut options.indexes);
            let db = Database::in_memory(options).unwrap();
            let progress = Audience::Nobody.count("", 0, "");
            let mut loaded = workload.load(&Loading::new(&db, 2, &progress)).unwrap();
            let mut client = loaded.client(&db, 0);
            assert_eq!(client.transaction().outcome, Outcome::Ok);
            let tally = Tally::new(KINDS);
            assert_eq!(loaded.check(&db, &tally), Ok(()));
            // Two subscribers have other numbers than the index has.
            db.run(|tx| {
                let row = tx.get(&SUBSCRIBERS, &7)?.expect("it was loaded");
                let other = tx.get(&SUBSCRIBERS, &8)?.expect("it was loaded");
                tx.delete(&SUBSCRIBERS, &7)?;
                tx.put(&SUBSCRIBERS, &8, &row)?;
                tx.put(&SUBSCRIBERS, &7, &other)
            })
            .unwrap();
            let failure = client.transaction().failure.expect("the rows are others");
            assert!(
                failure.contains("row 7") || failure.contains("row 8"),
                "{failure}"
            );
            let what = loaded.check(&db, &tally).unwrap_err();
            assert!(what.contains("row 7 of secondary_subscriber"), "{what}");
        }
    }

    #[test]
    fn a_scan_of_more_rows_than_there_are_is_refused_before_anything_is_loaded() {
        let sound = |size| {
            let shape = Shape {
                subscribers: 10,
                size,
                scattered: false,
                seed: 1,
            };
            Secondary::new(shape).sound()
        };
        assert!(sound(1).is_ok() && sound(10).is_ok());
        assert!(sound(0).is_err() && sound(11).unwrap_err().contains("--size"));
    }

    #[test]
    fn a_row_that_is_gone_is_a_place_that_leads_nowhere() {
        let workload = Secondary::new(Shape {
            subscribers: 10,
            size: 10,
            scattered: false,
            seed: 1,
        });
        let mut options = Options::tiny();
        workload.indexes(&mut options.indexes);
        let db = Database::in_memory(options).unwrap();
        let progress = Audience::Nobody.count("", 0, "");
        let mut loaded = workload.load(&Loading::new(&db, 1, &progress)).unwrap();
        db.run(|tx| tx.delete(&SUBSCRIBERS, &10)).unwrap();
        let failure = loaded.client(&db, 0).transaction().failure;
        let failure = failure.expect("a row is missing");
        assert!(failure.contains("place 10 leads nowhere"), "{failure}");
    }
}
