//! `foxton inspect`: the contents of a database.

use std::{fs, path::Path, process::ExitCode};

use foxton::{Database, IndexStats, inspect::PageStats};
use foxton_lab::report::{
    number::{bytes, grouped},
    table::Table,
};

use crate::{
    existing,
    output::{say, show},
    row_count::{self, Precision},
    tables::percent,
};

/// Opens the database and prints its contents.
pub(crate) fn run(directory: &Path) -> Result<ExitCode, String> {
    let db = existing::open(directory)?;
    let stats = db.stats();
    say!("{}\n", directory.display());
    match tables_of(&db, Precision::Exact)? {
        tables if tables.is_empty() => say!("  no tables"),
        tables => show(&tables.render()),
    }
    if !stats.indexes.is_empty() {
        say!("\nIndexes:\n");
        show(&indexes_of(stats.indexes).render());
    }
    let recovered = db.recovered();
    if recovered.checkpoint_bytes > 0 {
        say!(
            "\nCheckpoint: {} rows in {}, loaded in {:.3} s",
            grouped(recovered.checkpoint_rows as f64),
            bytes(recovered.checkpoint_bytes),
            recovered.checkpoint_time.as_secs_f64()
        );
    }
    say!("\nLog: {}", recovered.log);
    say!(
        "     {} committed transactions with {} changes, read in {:.3} s",
        grouped(recovered.transactions as f64),
        grouped(recovered.changes as f64),
        recovered.log_time.as_secs_f64()
    );
    let resident = bytes(db.stats().resident.bytes);
    say!("\nRows in memory: {resident}, keys, values and 64 bytes for each");
    // Asked anew: counting the rows has read pages.
    if let Some(pages) = &db.stats().pages {
        say!("\nPages: {}", page_words(pages));
    }
    say!("\nFiles:\n");
    show(&files(directory)?.render());
    Ok(ExitCode::SUCCESS)
}

/// Tables with their types and sizes.
pub(crate) fn tables_of(db: &Database, precision: Precision) -> Result<Table, String> {
    let mut table = Table::new(["table", "component", "key", "value", "rows"]);
    for known in db.stats().tables {
        let rows = row_count::words(db, &known, precision)?;
        let component = known.component.to_string();
        table.row([
            known.name,
            component,
            known.key_type,
            known.value_type,
            rows,
        ]);
    }
    Ok(table)
}

/// The buffer pool in one sentence.
fn page_words(pages: &PageStats) -> String {
    format!(
        "of {}; {} of {} frames have one, {} dirty; {} read, {} written, {} evicted; {}",
        bytes(pages.page_bytes as u64),
        grouped((pages.frames.saturating_sub(pages.free)) as f64),
        grouped(pages.frames as f64),
        grouped(pages.dirty as f64),
        grouped(pages.reads as f64),
        grouped(pages.writes as f64),
        grouped(pages.evictions as f64),
        match pages.hit_rate() {
            Some(rate) => format!(
                "{} of {} lookups hit",
                percent(rate),
                grouped(pages.lookups as f64)
            ),
            None => "no lookups".to_owned(),
        }
    )
}

/// Indexes as they were declared. Only the program that declares an index has its entries.
fn indexes_of(indexes: Vec<IndexStats>) -> Table {
    let mut table = Table::new(["index", "table", "key", "unique", "version"]);
    for known in indexes {
        let is_unique = if known.is_unique { "yes" } else { "no" };
        table.row([
            known.name,
            known.table,
            known.key_type,
            is_unique.to_owned(),
            known.version.to_string(),
        ]);
    }
    table
}

fn files(directory: &Path) -> Result<Table, String> {
    let unread = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(unread)? {
        let entry = entry.map_err(unread)?;
        let size = entry.metadata().map_err(unread)?.len();
        files.push((entry.file_name().to_string_lossy().into_owned(), size));
    }
    files.sort();
    let mut table = Table::new(["file", "size"]);
    let total = files.iter().map(|(_, size)| size).sum();
    files
        .into_iter()
        .for_each(|(name, size)| table.row([name, bytes(size)]));
    table.row(["total".to_owned(), bytes(total)]);
    Ok(table)
}
