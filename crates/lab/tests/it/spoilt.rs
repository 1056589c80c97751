//! In each workload one row is damaged after the clients have run, in memory and in pages: the
//! experiment fails, and its output names the row. Tests of each workload's checks are beside the
//! checks.

use std::time::Duration;

use foxton::{Database, Durability, Indexes, Isolation, TableComponent};
use foxton_lab::{
    bench::{runs::Runs, workload},
    driver::Client,
    measure::{
        curve::{Curve, Point},
        outcome::Tally,
    },
    progress::Audience,
    report::{self, data, findings::Block, findings::Findings, html, terminal},
    system::{Locks, System},
    workload::{
        contract::{About, Loaded, Size, Workload},
        loading::Loading,
        private_insert::{self, PrivateInsert},
        secondary::{self, Secondary},
        smallbank::{self, Smallbank},
        sysbench::{self, Sysbench, choice::Choice},
        tatp::{self, Tatp},
        tpcb::{self, Scale, Tpcb},
        tpcc::{
            self, Tpcc,
            client::{Manner, Mix},
        },
        transfers::{self, Transfers},
        wisconsin::{self, Wisconsin},
        ycsb::{self, Ycsb, record},
    },
};
use serde_json::Value;

/// Damage of a database.
type Spoil = fn(&Database);

/// A workload whose database is damaged before each check.
struct Spoilt<'a> {
    whole: &'a dyn Workload,
    spoil: Spoil,
}

impl Workload for Spoilt<'_> {
    fn about(&self) -> About {
        self.whole.about()
    }
    fn kinds(&self) -> &'static [&'static str] {
        self.whole.kinds()
    }
    fn size(&self) -> Size {
        self.whole.size()
    }
    fn grows(&self) -> bool {
        self.whole.grows()
    }
    fn indexes(&self, indexes: &mut Indexes) {
        self.whole.indexes(indexes);
    }
    fn load(&self, into: &Loading<'_>) -> foxton::Result<Box<dyn Loaded>> {
        Ok(Box::new(SpoiltLoad {
            whole: self.whole.load(into)?,
            spoil: self.spoil,
        }))
    }
    fn facts(&self, point: &Point) -> Vec<(&'static str, Value)> {
        self.whole.facts(point)
    }
    fn blocks(&self, curves: &[Curve]) -> Vec<Block> {
        self.whole.blocks(curves)
    }
}

struct SpoiltLoad {
    whole: Box<dyn Loaded>,
    spoil: Spoil,
}

impl Loaded for SpoiltLoad {
    fn client(&mut self, db: &Database, number: u32) -> Box<dyn Client> {
        self.whole.client(db, number)
    }
    fn check(&mut self, db: &Database, ended: &Tally) -> Result<(), String> {
        (self.spoil)(db);
        self.whole.check(db, ended)
    }
}

/// Both components, with memory for some thirty pages.
const BOTH: [TableComponent; 2] = [TableComponent::Resident, TableComponent::Paged];
const PAGE_MEMORY: usize = 512 << 10;

fn run(whole: &dyn Workload, spoil: Spoil) -> Findings {
    let systems = System::all(&[Locks::Default], &[]);
    let runs = Runs {
        systems: System::with_tables(systems, &BOTH, Some(PAGE_MEMORY)),
        mpls: vec![2],
        reps: 1,
        ramp: Duration::ZERO,
        window: Duration::from_millis(5),
        durability: Durability::Buffered,
        directory: None,
        observe: None,
        split: false,
        keep: false,
        command: "foxton bench".to_owned(),
    };
    let spoilt = Spoilt { whole, spoil };
    workload::run(&spoilt, &runs, Audience::Nobody).expect("the settings are sound")
}

/// Every workload, its damage, and the words that name the row.
fn every_workload() -> Vec<(Box<dyn Workload>, Spoil, &'static str)> {
    vec![
        (
            Box::new(Tatp::new(tatp::Shape {
                subscribers: 100,
                ..tatp::Shape::usual()
            })),
            |db| drop(db.run(|tx| tx.delete(&tatp::SUBSCRIBERS, &9))),
            "row 9 of tatp_subscriber is gone",
        ),
        (
            Box::new(Secondary::new(secondary::Shape {
                subscribers: 100,
                size: 10,
                scattered: true,
                seed: 1,
            })),
            |db| drop(db.run(|tx| tx.put(&secondary::SUBSCRIBERS, &9, b"nobody"))),
            "row 9 of secondary_subscriber",
        ),
        (
            Box::new(Tpcb {
                scale: Scale {
                    branches: 1,
                    accounts_a_branch: 20,
                },
                choice: tpcb::Choice::Remote,
                seed: 1,
            }),
            |db| drop(db.run(|tx| tx.delete(&tpcb::ACCOUNTS, &7))),
            "row 7 of tpcb_account is gone",
        ),
        (
            Box::new(Tpcc {
                scale: tpcc::Scale::tiny(1),
                manner: Manner::usual(Mix::Full),
                seed: 1,
            }),
            |db| drop(db.run(|tx| tx.delete(&tpcc::STOCK, &(1, 3)))),
            "row (1, 3) of tpcc_stock is gone",
        ),
        (
            Box::new(Sysbench {
                rows: 100,
                choice: Choice::Uniform,
                isolation: Isolation::Serializable,
                log_k: false,
                seed: 1,
            }),
            |db| drop(db.run(|tx| tx.delete(&sysbench::TABLES[2], &50))),
            "row 50 of sbtest3 is gone",
        ),
        (
            Box::new(PrivateInsert {
                rows: 20,
                batch: 8,
                seed: 1,
            }),
            |db| {
                let table = private_insert::name::table(0).expect("the first one");
                drop(db.run(|tx| tx.put(&table, &3, b"x")));
            },
            "row 3 of private_0 is not what was written",
        ),
        (
            Box::new(Ycsb {
                mix: ycsb::mix::Mix::A,
                records: 100,
                operations: 1,
                seed: 1,
            }),
            |db| drop(db.run(|tx| tx.delete(&ycsb::RECORDS, &record::key(42)))),
            "number 42, is gone",
        ),
        (
            Box::new(Smallbank {
                customers: 100,
                hotspot: false,
                seed: 1,
            }),
            |db| drop(db.run(|tx| tx.put(&smallbank::SAVINGS, &5, &-1))),
            "row 5 of smallbank_savings: the balance is -1",
        ),
        (
            Box::new(Wisconsin {
                rows: 100,
                mix: wisconsin::mix::Mix::EVEN,
                seed: 1,
            }),
            |db| drop(db.run(|tx| tx.put(&wisconsin::TUPLES, &5, &b"x"[..]))),
            "row 5 of wisconsin is not what was written",
        ),
        (
            Box::new(Transfers {
                accounts: 50,
                reads: 50,
                seed: 1,
            }),
            |db| drop(db.run(|tx| tx.put(&transfers::ACCOUNTS, &7, &-1))),
            "row 7 of transfer_accounts: the balance is -1, but 100000 was loaded and",
        ),
    ]
}

#[test]
fn a_row_that_is_wrong_fails_the_experiment_of_every_workload_and_is_named_in_all_it_says() {
    for (whole, spoil, words) in every_workload() {
        let name = whole.about().name;
        assert_eq!(run(&*whole, |_| ()).failure(), None, "{name}");
        let findings = run(&*whole, spoil);
        for curve in &findings.curves {
            let failure = curve.failure().expect(name);
            assert!(failure.contains(words), "{name}: {failure}");
        }
        assert_eq!(findings.curves.len(), BOTH.len(), "{name}");
        let places = [
            ("terminal", terminal::text(&findings)),
            ("page", html::page(&findings)),
            ("csv", data::csv(&findings)),
            ("json", data::json(&findings)),
        ];
        for (where_, text) in places {
            assert!(text.contains(words), "{name}: nothing on {where_}: {text}");
        }
        let records = data::json(&findings);
        assert!(!records.contains("\"checks\": \"ok\""), "{name}");
    }
    assert!(
        report::data::json(&run(&*every_workload().remove(0).0, |_| ()))
            .contains("\"checks\": \"ok\"")
    );
}
