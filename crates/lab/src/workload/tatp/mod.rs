//! tatp: what a telephone network asks of its register of subscribers.
//!
//! There are seven short transactions on four tables, four fifths of them reads of one row.
//! Subscribers are drawn unevenly, and some requested rows do not exist. A read that finds nothing,
//! as often as the load and the draw predict, is a transaction that ended as planned (a *miss*).
//! Updates by number use a unique secondary index. A deadlock victim is not retried.

/// Rows as bytes.
pub mod row;

/// The loaded contents of the tables.
pub mod initial;

/// Loading the tables.
pub mod load;

/// The transactions.
pub mod transaction;

/// The client that runs one after another.
pub mod client;

/// The share of each transaction that must find its rows.
pub mod chance;

/// Checks of an idle database.
pub mod check;

use std::{fmt, str::FromStr, sync::Arc};

use foxton::{Database, Index, Indexes, Table};
use serde_json::{Value, json};

use super::{
    contract::{About, Loaded, Size, Workload},
    loading::Loading,
};
use crate::{
    driver::Client,
    measure::{curve::Point, outcome::Outcome, outcome::Tally},
    report::number::grouped,
};

/// Subscribers by id, from 1.
pub const SUBSCRIBERS: Table<u32, [u8]> = Table::new("tatp_subscriber");
/// Access data of a subscriber, by (id, type).
pub const ACCESS_INFOS: Table<(u32, u8), [u8]> = Table::new("tatp_access_info");
/// Services of a subscriber, by (id, type).
pub const SPECIAL_FACILITIES: Table<(u32, u8), [u8]> = Table::new("tatp_special_facility");
/// Destinations of forwarded calls, by (id, type of service, start time).
pub const CALL_FORWARDINGS: Table<(u32, u8, u8), [u8]> = Table::new("tatp_call_forwarding");
/// Subscribers by number.
pub const BY_NUMBER: Index<str, u32, [u8]> =
    Index::unique("tatp_subscriber_by_number", &SUBSCRIBERS, |_, row, keys| {
        if let Some(number) = row::number(row) {
            keys.add(number);
        }
    });

/// Types of access infos and of special facilities.
pub const TYPES: [u8; 4] = [1, 2, 3, 4];
/// Hours at which a call forwarding may begin.
pub const START_TIMES: [u8; 3] = [0, 8, 16];

/// Which transactions are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// All seven.
    Full,
    /// The three that only read.
    Read,
    /// These and the two updates.
    ReadUpdate,
    /// One of them alone, by its index among [`client::KINDS`].
    Alone(usize),
}

impl Mix {
    /// The update of a location by number alone, whose critical sections document 002 counts.
    pub const UPDATE_LOCATION: Mix = Mix::Alone(client::UPDATE_LOCATION);

    /// Every mix, and every transaction alone.
    pub fn all() -> impl Iterator<Item = Mix> {
        let alone = (0..client::KINDS.len()).map(Mix::Alone);
        [Mix::Full, Mix::Read, Mix::ReadUpdate]
            .into_iter()
            .chain(alone)
    }

    /// The relative frequency of each transaction, in the order of [`client::KINDS`].
    pub fn weights(self) -> [u32; client::KINDS.len()] {
        match self {
            Mix::Full => [35, 10, 35, 2, 14, 2, 2],
            Mix::Read => [35, 10, 35, 0, 0, 0, 0],
            Mix::ReadUpdate => [35, 10, 35, 2, 14, 0, 0],
            Mix::Alone(kind) => std::array::from_fn(|at| u32::from(at == kind)),
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mix::Full => "full",
            Mix::Read => "read",
            Mix::ReadUpdate => "read-update",
            Mix::Alone(kind) => client::KINDS[*kind],
        })
    }
}

impl FromStr for Mix {
    type Err = String;
    /// By its name; `single` is UpdateLocation.
    fn from_str(text: &str) -> Result<Mix, String> {
        if text == "single" {
            return Ok(Mix::UPDATE_LOCATION);
        }
        let found = Mix::all().find(|mix| mix.to_string() == text);
        found.ok_or_else(|| {
            let names: Vec<String> = Mix::all().map(|mix| mix.to_string()).collect();
            format!(
                "\"{text}\" is not a mix; choose one of {}",
                names.join(", ")
            )
        })
    }
}

/// The variant of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Subscribers (P).
    pub subscribers: u32,
    /// Which transactions are run.
    pub mix: Mix,
    /// Draw every subscriber as often, instead of some more often than others.
    pub uniform: bool,
    /// Rows of 100 and 50 bytes.
    pub pad: bool,
    /// Seed of the load and of the clients.
    pub seed: u64,
}

impl Shape {
    /// The full mix on 100,000 subscribers.
    pub fn usual() -> Shape {
        Shape {
            subscribers: 100_000,
            mix: Mix::Full,
            uniform: false,
            pad: false,
            seed: 1,
        }
    }

    /// The constant A of the uneven draw, one less than a power of two.
    pub fn skew(&self) -> u64 {
        match self.subscribers {
            ..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        }
    }
}

/// The workload.
#[derive(Debug)]
pub struct Tatp {
    shape: Shape,
}

impl Tatp {
    /// This variant of it.
    pub fn new(shape: Shape) -> Tatp {
        Tatp { shape }
    }
}

impl Workload for Tatp {
    fn about(&self) -> About {
        let shape = &self.shape;
        let subscribers = grouped(f64::from(shape.subscribers));
        let uniform = if shape.uniform { "-uniform" } else { "" };
        let (pad, padded) = match shape.pad {
            true => ("-padded", ", rows padded"),
            false => ("", ""),
        };
        let what = match shape.mix {
            Mix::Alone(_) => shape.mix.to_string(),
            _ => format!("{} mix", shape.mix),
        };
        About {
            name: "tatp",
            variant: format!("{}-{}{uniform}{pad}", shape.mix, shape.subscribers),
            title: format!("tatp, {what}, {subscribers} subscribers{padded}"),
            description: description(shape),
            checked:
                "after each run all rows are those of the load except what transactions change, \
                      call forwardings are as many as were inserted and not deleted, each has its \
                      facility, numbers and subscribers are one to one, and each transaction found \
                      its rows as often as the load and the draw predict."
                    .to_owned(),
            settings: vec![
                ("subscribers", json!(shape.subscribers)),
                ("mix", json!(shape.mix.to_string())),
                ("uniform", json!(shape.uniform)),
                ("pad", json!(shape.pad)),
                ("isolation", json!("serializable")),
                ("seed", json!(shape.seed)),
            ],
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        client::KINDS
    }

    fn size(&self) -> Size {
        // 1 subscriber, 2.5 access infos, 2.5 facilities, 3.75 call forwardings, and an entry of
        // the index.
        Size {
            rows: u64::from(self.shape.subscribers) * 39 / 4,
            row_bytes: if self.shape.pad { 60 } else { 30 },
        }
    }

    fn indexes(&self, indexes: &mut Indexes) {
        indexes.add(&BY_NUMBER);
    }

    fn load(&self, into: &Loading<'_>) -> foxton::Result<Box<dyn Loaded>> {
        load::load(into, &self.shape)?;
        Ok(Box::new(Register {
            shape: Arc::new(self.shape),
            expected: None,
        }))
    }

    fn facts(&self, point: &Point) -> Vec<(&'static str, Value)> {
        let seconds: f64 = point.runs.iter().map(|run| run.window.as_secs_f64()).sum();
        let tally = point.tally();
        let rate = |count: u64| json!((count as f64 / seconds.max(1e-9)).round());
        vec![
            ("mqth", rate(tally.committed())),
            ("ok_per_second", rate(tally.of(Outcome::Ok))),
            ("attempts_per_second", rate(tally.attempts())),
        ]
    }
}

fn description(shape: &Shape) -> String {
    let subscribers = grouped(f64::from(shape.subscribers));
    let drawn = match shape.uniform {
        true => "every one as often",
        false => "some far more often than others",
    };
    let mix = match shape.mix {
        Mix::Full => {
            "Of a hundred transactions 80 read, 16 update, 2 insert and 2 delete".to_owned()
        }
        Mix::Read => "All transactions read".to_owned(),
        Mix::ReadUpdate => "Of six transactions five read and one updates".to_owned(),
        Mix::Alone(kind) => format!("Every transaction is of the type {}", client::KINDS[kind]),
    };
    let bytes = match shape.pad {
        true => "rows of 100 and 50 bytes",
        false => "rows of 57, 15, 13 and 22 bytes",
    };
    format!(
        "A register of {subscribers} telephone subscribers, drawn {drawn}, in four tables of {bytes} with a \
         unique index. {mix}. Transactions per second count those that ended as planned, whether they \
         found something or not (MQTh); an insert that is refused and a deadlock are not counted and \
         not run again."
    )
}

/// The workload in one database.
#[derive(Debug)]
struct Register {
    shape: Arc<Shape>,
    // Computed lazily: needed from the first check on, it takes a second for a million subscribers.
    expected: Option<chance::Expected>,
}

impl Loaded for Register {
    fn client(&mut self, db: &Database, number: u32) -> Box<dyn Client> {
        let client = client::TatpClient::new(db.clone(), self.shape.clone(), number);
        Box::new(client)
    }

    fn check(&mut self, db: &Database, ended: &Tally) -> Result<(), String> {
        check::check(db, &self.shape, ended)?;
        let expected = self
            .expected
            .get_or_insert_with(|| chance::Expected::of(&self.shape));
        expected.compare(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_have_their_shares_and_are_called_by_name() {
        let share = |mix: Mix, kind: usize| {
            let weights = mix.weights();
            f64::from(weights[kind]) / f64::from(weights.iter().sum::<u32>()) * 100.0
        };
        let shares = [
            (Mix::Full, 4, 14.0),
            (Mix::Read, 0, 43.75),
            (Mix::ReadUpdate, 3, 2.083),
            (Mix::UPDATE_LOCATION, 4, 100.0),
            (Mix::Alone(6), 6, 100.0),
        ];
        for (mix, kind, expected) in shares {
            assert!((share(mix, kind) - expected).abs() < 0.001, "{mix}");
        }
        assert_eq!(Mix::all().count(), 3 + client::KINDS.len());
        for mix in Mix::all() {
            assert_eq!(mix.to_string().parse(), Ok(mix));
        }
        assert_eq!("single".parse(), Ok(Mix::UPDATE_LOCATION));
        let refused = "half".parse::<Mix>().unwrap_err();
        assert!(
            refused.contains("read-update, GetSubscriberData"),
            "{refused}"
        );
    }

    #[test]
    fn what_is_measured_says_how_rows_were_padded() {
        let about = |pad| {
            let about = Tatp::new(Shape {
                pad,
                ..Shape::usual()
            })
            .about();
            (about.variant, about.title, about.description)
        };
        let (plain, padded) = (about(false), about(true));
        assert_ne!(plain.0, padded.0);
        assert!(padded.1.contains("padded") && padded.2.contains("100 and 50 bytes"));
        assert!(!plain.1.contains("padded") && plain.2.contains("57, 15, 13 and 22"));
    }
}
