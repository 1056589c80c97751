//! Critical sections of one operation, in memory and in pages, with one client.
//!
//! Reads and updates choose rows evenly; inserts add the next key. All pages are in memory. An
//! insert *with a split* is one after which the page file has more pages in use. The figure of
//! `foxton bench critical-sections` has whole transactions of the literature.

use foxton::{Database, Durability, Table, TableComponent};
use foxton_sync::site::{AccountSummary, COUNTING, Component, Pattern};

use super::Settings;
use crate::{
    bench::{
        critical_sections::NOT_COUNTING,
        error::BenchError,
        measured::Measured,
        rows::{ROWS, Rows, options},
    },
    progress::Audience,
    random::Random,
};

/// Executions of each operation; they fill some hundred leaves.
const EXECUTIONS: u64 = 10_000;
const OPERATIONS: [&str; 3] = ["read", "update", "insert"];
const UNIT: &str = "unbounded sections";
/// A row of the tables.
const ROW: [u8; 100] = [7; 100];

pub(super) fn run(settings: &Settings, audience: Audience) -> Result<Measured, BenchError> {
    if !COUNTING {
        return Err(BenchError::Settings(NOT_COUNTING.to_owned()));
    }
    let mut measured = Measured::new(
        "paged-critical-sections",
        "Critical sections of operations on paged tables",
        "Where can any number of threads meet during an operation on a paged table?",
        &settings.command,
    );
    let steps = u64::from(settings.passes) * (2 * OPERATIONS.len()) as u64;
    let progress = audience.count("counting", steps, "operations");
    for pass in 0..settings.passes {
        for (component, name) in [
            (TableComponent::Resident, "memory"),
            (TableComponent::Paged, "pages"),
        ] {
            let mut counting = SectionCount::new(settings, component, pass)?;
            for operation in OPERATIONS {
                progress.now(&format!("{operation} in {name}"));
                let (all, split) = counting.count(operation)?;
                all.report(&format!("{operation}, {name}"), &mut measured);
                if split.executions > 0 {
                    let row = format!("{operation} with a split, {name}");
                    split.report(&row, &mut measured);
                }
                progress.advance(1);
            }
        }
    }
    measured.notes.push(format!(
        "One client, {EXECUTIONS} executions of each operation, in a transaction of its own each."
    ));
    Ok(measured)
}

/// Unbounded critical sections of executions of one operation, by component.
#[derive(Debug, Default)]
struct UnboundedSections {
    executions: u64,
    passed: [u64; Component::ALL.len()],
}

impl UnboundedSections {
    fn add(&mut self, passed: &AccountSummary) {
        self.executions += 1;
        for (sum, component) in self.passed.iter_mut().zip(Component::ALL) {
            *sum += passed.count(component, Pattern::Unbounded);
        }
    }

    fn report(&self, row: &str, measured: &mut Measured) {
        let each = |count: u64| count as f64 / self.executions.max(1) as f64;
        measured.add(row, "all", UNIT, each(self.passed.iter().sum()));
        for (&sum, component) in self.passed.iter().zip(Component::ALL) {
            measured.add(row, &component.to_string(), UNIT, each(sum));
        }
    }
}

struct SectionCount {
    db: Database,
    rows: Rows,
    random: Random,
    next: u64,
}

impl SectionCount {
    fn new(
        settings: &Settings,
        component: TableComponent,
        pass: u32,
    ) -> Result<SectionCount, BenchError> {
        let mut options = options(256 << 20, Durability::None);
        options.component = component;
        let db = Database::in_memory(options).map_err(BenchError::engine("opening a database"))?;
        let rows = Rows {
            count: 10 * EXECUTIONS,
            row_bytes: ROW.len(),
        };
        let progress = Audience::Nobody.count("", 0, "");
        rows.load(&db, &ROWS, &progress)?;
        let counting = SectionCount {
            db,
            rows,
            random: Random::seeded(&[settings.seed, u64::from(pass)]),
            next: rows.count,
        };
        Ok(counting)
    }

    fn used_pages(&self) -> u64 {
        let pages = self.db.stats().pages;
        pages.map_or(0, |pages| pages.file_pages - pages.free_pages)
    }

    fn run(&mut self, table: &Table<u64, [u8]>, operation: &str) -> foxton::Result<()> {
        let key = match operation {
            "insert" => {
                self.next += 1;
                self.next
            }
            _ => self.random.uniform(0, self.rows.count - 1),
        };
        match operation {
            "read" => self
                .db
                .run(|tx| tx.get_with(table, &key, drop_bytes).map(drop)),
            _ => self.db.run(|tx| tx.put(table, &key, &ROW[..])),
        }
    }

    /// Returns the sections of all executions, and of those after which more pages were in use.
    fn count(
        &mut self,
        operation: &str,
    ) -> Result<(UnboundedSections, UnboundedSections), BenchError> {
        let failed = BenchError::engine(format!("counting the operation {operation}"));
        let (mut all, mut split) = (UnboundedSections::default(), UnboundedSections::default());
        // The first ones meet what is made once.
        for _ in 0..EXECUTIONS / 10 {
            self.run(&ROWS, operation).map_err(&failed)?;
        }
        let mut used = self.used_pages();
        for _ in 0..EXECUTIONS {
            let before = self.db.accounts().0;
            self.run(&ROWS, operation).map_err(&failed)?;
            let passed = self.db.accounts().0.since(&before);
            all.add(&passed);
            let now = self.used_pages();
            if now > used {
                split.add(&passed);
            }
            used = now;
        }
        Ok((all, split))
    }
}

fn drop_bytes(_: &[u8]) {}
