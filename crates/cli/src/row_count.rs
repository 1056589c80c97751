//! Numbers of rows: counted, or estimated and called so.
//!
//! The engine keeps no count of rows, because every transaction would write it. Its estimate comes
//! from a sample, differs from one opening to the next, and includes deleted rows that are still
//! linked. A person who compares two databases needs the count.

use foxton::{Database, Isolation, Table, TableComponent, codec::Encoded, inspect::TableStats};
use foxton_lab::{
    progress::Audience,
    report::number::{about, grouped},
};

use crate::{existing, tables::plain};

/// Rows up to which counting takes a moment, as an estimate.
const FEW: u64 = 10_000;
/// Rows from which a user could see a bar, as an estimate.
const WORTH_A_BAR: u64 = 1_000_000;
/// Rows between two updates of the bar.
const STEP: u64 = 4_096;

/// Which tables are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    /// Every table.
    Exact,
    /// Those that are counted in a moment. The others are estimated, and paged ones not even that.
    Quick,
}

/// The number of rows as words: `274,000` if they were counted, else `about 270,000`.
pub(crate) fn words(
    db: &Database,
    table: &TableStats,
    precision: Precision,
) -> Result<String, String> {
    match precision {
        Precision::Quick if table.component == TableComponent::Paged => Ok("not counted".into()),
        Precision::Quick if table.keys > FEW => Ok(about(table.keys)),
        _ => Ok(grouped(count(db, table)? as f64)),
    }
}

/// Counts the rows that are there now. It takes no locks, so it counts uncommitted rows too and
/// waits for no transaction.
fn count(db: &Database, table: &TableStats) -> Result<u64, String> {
    let audience = match Audience::here() {
        Audience::Terminal if table.keys >= WORTH_A_BAR => Audience::Terminal,
        _ => Audience::Nobody,
    };
    let what = format!("Counting {}", plain(&table.name));
    let progress = audience.count_about(&what, table.keys, "rows");
    let raw: Table<Encoded, Encoded> = Table::new(existing::forever(&table.name));
    let count = || {
        let mut tx = db.begin()?;
        tx.set_isolation(Isolation::ReadUncommitted)?;
        let mut rows = 0;
        tx.range(&raw, ..).for_each_bytes(|_, _| {
            rows += 1;
            if rows % STEP == 0 {
                progress.advance(STEP);
            }
        })?;
        tx.commit()?;
        Ok(rows)
    };
    count().map_err(|error: foxton::Error| error.to_string())
}
