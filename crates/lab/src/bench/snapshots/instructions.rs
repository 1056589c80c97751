//! Instructions of begin, one read and end, serializable and at a snapshot.
//!
//! callgrind counts two runs of this program, and their difference is divided by the difference of
//! their rounds. There is one thread, one row in memory, and no log.

use std::path::Path;

use foxton::{Database, Isolation, Options, SnapshotMethod, Table};

use super::{Settings, levels::name_of};
use crate::{
    bench::{callgrind, error::BenchError, measured::Measured},
    progress::Audience,
};

const ROWS: Table<u64, u64> = Table::new("rows");
const UNIT: &str = "instructions";

pub(super) fn run(
    settings: &Settings,
    program: &Path,
    audience: Audience,
) -> Result<Measured, BenchError> {
    let mut measured = Measured::new(
        "snapshot-instructions",
        "Instructions of begin, one read and end",
        "How many instructions does a short transaction at a snapshot take?",
        &settings.command,
    );
    let count = |isolation: Isolation, method: SnapshotMethod| {
        audience.say(&format!("counting instructions, {isolation}, {method}"));
        let arguments = |rounds: u64| {
            let words = ["bench", "snapshots", "instructions", "--bare"];
            let values = [
                rounds.to_string(),
                "--isolation".to_owned(),
                isolation.to_string(),
            ];
            let method = ["--snapshots".to_owned(), method.to_string()];
            let words = words.into_iter().map(str::to_owned);
            words.chain(values).chain(method).collect()
        };
        callgrind::a_round(program, arguments, "measure another experiment")
    };
    let row = "begin, one read, end";
    let serializable = count(Isolation::Serializable, SnapshotMethod::Lsn)?;
    measured.add(row, "serializable", UNIT, serializable);
    for &method in &settings.methods {
        let at_snapshot = count(Isolation::Snapshot, method)?;
        let name = name_of(method);
        measured.add(row, &name, UNIT, at_snapshot);
        let series = format!("{name} − serializable");
        measured.add(row, &series, UNIT, at_snapshot - serializable);
    }
    measured
        .notes
        .push("One thread, one row, no log.".to_owned());
    Ok(measured)
}

/// Runs `rounds` transactions that read one row, for callgrind to count.
///
/// # Errors
///
/// If the engine refuses.
pub fn bare(isolation: Isolation, method: SnapshotMethod, rounds: u64) -> foxton::Result<()> {
    let mut options = Options::default();
    options.snapshots = method;
    options.isolation = isolation;
    let db = Database::in_memory(options)?;
    db.run(|tx| tx.put(&ROWS, &1, &1))?;
    (0..rounds).try_for_each(|_| {
        let mut tx = db.begin()?;
        std::hint::black_box(tx.get(&ROWS, &1)?);
        tx.commit()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rounds_that_are_counted_run() {
        for method in SnapshotMethod::ALL {
            bare(Isolation::Snapshot, method, 100).unwrap();
        }
        bare(Isolation::Serializable, SnapshotMethod::Lsn, 100).unwrap();
    }
}
