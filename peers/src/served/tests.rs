//! Every workload holds on every engine, and what loses something is found.

use super::{
    contract::{Came, Shape, Step, Totals},
    *,
};
use contract::Ask;

const LOAD: Load = Load {
    clients: 4,
    warm: Duration::from_millis(10),
    measured: Duration::from_millis(300),
    seed: 1,
};

fn swept(kind: Kind, workload: Workload) -> Outcome {
    let place = tempfile::tempdir()?;
    let engine = kind.load(place.path(), Durability::None, &Given::default(), workload)?;
    let mut committed = 0;
    sweep(engine.as_ref(), workload, &[LOAD, LOAD], &mut |_, run| {
        committed += run.count.changes;
    })?;
    assert!(committed > 0);
    Ok(())
}

#[test]
fn every_workload_holds_on_ours() {
    for &workload in Workload::value_variants() {
        swept(Kind::Foxton, workload)
            .unwrap_or_else(|error| panic!("{}: {error}", workload.name()));
    }
}

/// Needs the servers.
#[test]
#[ignore = "needs peers/install.sh servers: cargo test --manifest-path peers/Cargo.toml --features servers -- --ignored"]
fn every_workload_holds_on_the_servers() {
    for kind in [Kind::Postgres, Kind::Mariadb] {
        for &workload in Workload::value_variants() {
            swept(kind, workload)
                .unwrap_or_else(|error| panic!("{}, {}: {error}", kind.name(), workload.name()));
        }
    }
}

/// Passes everything on but what is added to the branches.
struct Forgetful<'s>(Box<dyn Session + 's>);

impl Session for Forgetful<'_> {
    fn begin(&mut self) -> Step {
        self.0.begin()
    }
    fn commit(&mut self) -> Step {
        self.0.commit()
    }
    fn undo(&mut self) -> Outcome {
        self.0.undo()
    }
    fn read(&mut self, table: usize, id: u64) -> Step<i64> {
        self.0.read(table, id)
    }
    fn range(&mut self, ask: Ask, table: usize, first: u64, last: u64) -> Step<Came> {
        self.0.range(ask, table, first, last)
    }
    fn add(&mut self, table: usize, id: u64, amount: i64) -> Step {
        match table {
            0 => Ok(()),
            _ => self.0.add(table, id, amount),
        }
    }
    fn set(&mut self, table: usize, id: u64, text: &str) -> Step {
        self.0.set(table, id, text)
    }
    fn delete(&mut self, table: usize, id: u64) -> Step {
        self.0.delete(table, id)
    }
    fn insert(&mut self, table: usize, id: u64, number: i64, text: &str) -> Step {
        self.0.insert(table, id, number, text)
    }
}

struct Forgets(Box<dyn Engine>);

impl Engine for Forgets {
    fn session(&self) -> Outcome<Box<dyn Session + '_>> {
        Ok(Box::new(Forgetful(self.0.session()?)))
    }
    fn totals(&self, table: usize) -> Outcome<Totals> {
        self.0.totals(table)
    }
}

#[test]
fn an_engine_that_loses_an_update_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let engine = Kind::Foxton
        .load(
            place.path(),
            Durability::None,
            &Given::default(),
            Workload::Tpcb,
        )
        .unwrap();
    let swept = sweep(&Forgets(engine), Workload::Tpcb, &[LOAD], &mut |_, _| {});
    assert!(swept.unwrap_err().to_string().contains("add up to"));
}

#[test]
fn a_row_too_few_or_a_letter_too_few_is_found() {
    for &workload in Workload::value_variants() {
        let all = |&Shape { rows, .. }: &Shape| rows;
        let sizes: Vec<u64> = workload.tables().iter().map(all).collect();
        let totals = |table: usize| {
            let ids = 1..=sizes[table];
            let rows = ids.map(|id| workload.row(table, id));
            rows.fold(Totals::default(), |sum, (number, text)| Totals {
                rows: sum.rows + 1,
                least_id: 1,
                greatest_id: sum.rows + 1,
                sum: sum.sum + number,
                letters: sum.letters + text.len() as u64,
            })
        };
        let whole: Vec<Totals> = (0..sizes.len()).map(totals).collect();
        assert_eq!(workload.check(&whole, 0), Ok(()));
        for harm in [
            |totals: &mut Totals| totals.rows -= 1,
            |totals: &mut Totals| totals.letters -= 1,
            |totals: &mut Totals| totals.greatest_id += 1,
        ] {
            let mut harmed = whole.clone();
            harm(&mut harmed[1]);
            assert!(workload.check(&harmed, 0).is_err(), "{}", workload.name());
        }
    }
}
