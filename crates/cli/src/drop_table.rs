//! `foxton drop` and `foxton truncate`: a table goes, or all its rows.

use std::process::ExitCode;

use foxton::{Database, Table, codec::Encoded};
use foxton_lab::report::number::grouped;

use crate::{arguments::DropTable, existing, output::say};

/// Drops the table, and prints what has gone.
pub(crate) fn drop(what: &DropTable) -> Result<ExitCode, String> {
    let indexes = |db: &Database| {
        let of_table = db.indexes().into_iter();
        of_table.filter(|index| index.table == what.table).count()
    };
    remove(what, "drop", |db, name| {
        let indexes = match indexes(db) {
            0 => String::new(),
            1 => " and its index".to_owned(),
            more => format!(" and its {more} indexes"),
        };
        db.drop_table(name)?;
        Ok(format!("The table{indexes} is no more."))
    })
}

/// Removes all rows of the table, and prints how many.
pub(crate) fn truncate(what: &DropTable) -> Result<ExitCode, String> {
    remove(what, "truncate", |db, name| {
        db.truncate(&Table::<Encoded, Encoded>::new(name))?;
        Ok("The table stays, with its types and its indexes.".to_owned())
    })
}

/// Counts the rows of the table and, if that was confirmed, removes them.
fn remove(
    what: &DropTable,
    command: &str,
    call: impl FnOnce(&Database, &'static str) -> foxton::Result<String>,
) -> Result<ExitCode, String> {
    let directory = what.directory.display();
    let db = existing::open_to_change(&what.directory)?;
    let Some(table) = existing::table(&db, &what.table) else {
        return Err(format!(
            "{directory} has no table {}; `foxton inspect` lists its tables",
            what.table
        ));
    };
    let name = existing::forever(&table.name);
    let raw: Table<Encoded, Encoded> = Table::new(name);
    let rows = db.run(|tx| tx.range(&raw, ..).count());
    let rows = grouped(rows.map_err(|error| error.to_string())? as f64);
    if !what.yes {
        return Err(format!(
            "table {name} of {directory} has {rows} rows, and they would be gone for good: nothing \
             was changed. `foxton backup` keeps a copy. To go on: foxton {command} {directory} \
             {name} --yes"
        ));
    }
    let words = call(&db, name).map_err(|error| error.to_string())?;
    db.close().map_err(|error| error.to_string())?;
    say!("{name}: {rows} rows are gone. {words}");
    Ok(ExitCode::SUCCESS)
}
