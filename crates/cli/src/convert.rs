//! `foxton convert`: a table's rows in memory, or in pages.

use std::{
    process::ExitCode,
    sync::{Mutex, PoisonError},
};

use foxton::{Table, TableComponent, codec::Encoded, progress::OpenPhase, progress::ProgressCall};
use foxton_lab::{
    progress::{Audience, Progress},
    report::number::{bytes, grouped},
};

use crate::{
    arguments::{Component, Convert},
    existing,
    output::say,
};

/// Converts the table, and prints what was done.
pub(crate) fn run(what: &Convert) -> Result<ExitCode, String> {
    let db = existing::open_to_change(&what.directory)?;
    let Some(table) = existing::table(&db, &what.table) else {
        return Err(format!(
            "{} has no table {}; `foxton inspect` lists its tables",
            what.directory.display(),
            what.table
        ));
    };
    let (to, place) = match what.to {
        Component::Paged => (TableComponent::Paged, "in pages"),
        Component::Memory => (TableComponent::Resident, "in memory"),
    };
    let raw: Table<Encoded, Encoded> = Table::new(existing::forever(&table.name));
    let estimate = table.keys;
    let bar: Mutex<Option<Progress>> = Mutex::new(None);
    let shown = ProgressCall::new(move |progress| {
        if progress.phase == OpenPhase::Convert {
            let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Audience::here().count_about("convert", estimate, "rows");
            bar.get_or_insert_with(new).reach(progress.done);
        }
    });
    let done = db.convert_with(&raw, to, &shown);
    drop(shown);
    let done = done.map_err(|error| error.to_string())?;
    if done.is_converted {
        say!(
            "{}: {} rows of {} are {place} now, after {:.1} s",
            what.table,
            grouped(done.rows as f64),
            bytes(done.bytes),
            done.time.as_secs_f64()
        );
    } else {
        say!("{} is {place} already; nothing was changed", what.table);
    }
    let waiting: Vec<String> = db
        .indexes()
        .into_iter()
        .filter(|index| done.is_converted && index.table == what.table)
        .map(|index| index.name)
        .collect();
    if to == TableComponent::Paged && !waiting.is_empty() {
        say!(
            "Its program makes these indexes anew when it opens the database: {}",
            waiting.join(", ")
        );
    }
    db.close().map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}
