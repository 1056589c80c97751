//! `foxton dump`: the rows of a database as text.
//!
//! A file gets its name once it is complete and durable, because half a dump looks like a complete
//! one of fewer rows.

use std::{
    fmt::Write as _,
    io::{self, BufWriter, ErrorKind, Write},
    ops::ControlFlow,
    path::Path,
    process::ExitCode,
};

use foxton::{Database, Table, Transaction, codec::Encoded, inspect::TableStats};
use foxton_lab::{
    progress::{Audience, Progress},
    report::number::{bytes, grouped},
};
use tempfile::NamedTempFile;

use crate::{
    arguments::{Dump, RowFormat},
    existing,
    output::{StandardOutput, note},
    rows::{columns, types::Types},
    tables::plain,
};

/// Rows between two updates of the bar.
const STEP: u64 = 256;

/// Writes the tables of the arguments, all of one moment.
pub(crate) fn run(what: &Dump) -> Result<ExitCode, String> {
    let db = existing::open(&what.directory)?;
    let tables = chosen(&db, what)?;
    let (rows, size) = match what.out == Path::new("-") {
        true => write(&db, &tables, what.format, &mut StandardOutput)?,
        false => {
            let mut file = unfinished(what).map_err(|error| unmade(what, &error))?;
            let written = write(&db, &tables, what.format, &mut file)?;
            file.as_file()
                .sync_all()
                .map_err(|error| unwritten(&error))?;
            file.persist_noclobber(&what.out)
                .map_err(|error| unmade(what, &error.error))?;
            written
        }
    };
    let end = db.recovered().log_end;
    note!(
        "{} rows of {}, {}, at log position {end}",
        grouped(rows as f64),
        match tables.len() {
            1 => "1 table".to_owned(),
            count => format!("{count} tables"),
        },
        bytes(size),
    );
    Ok(ExitCode::SUCCESS)
}

/// A temporary file beside the wanted one; it is removed when it is dropped.
fn unfinished(what: &Dump) -> io::Result<NamedTempFile> {
    if what.out.symlink_metadata().is_ok() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let beside = match what.out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(".foxton-dump-")
        .suffix(".unfinished")
        .tempfile_in(beside)
}

/// Writes tables, and returns the number of rows and bytes.
fn write(
    db: &Database,
    tables: &[TableStats],
    format: RowFormat,
    sink: &mut dyn Write,
) -> Result<(u64, u64), String> {
    let mut writing = Writing {
        sink: BufWriter::new(Counted { sink, bytes: 0 }),
        rows: 0,
        progress: Audience::here().count_about(
            "dump",
            tables.iter().map(|table| table.keys).sum(),
            "rows",
        ),
    };
    writing.tables(db, tables, format)?;
    Ok((writing.rows, writing.sink.get_ref().bytes))
}

fn unmade(what: &Dump, error: &io::Error) -> String {
    let path = what.out.display();
    match error.kind() {
        ErrorKind::AlreadyExists => {
            format!("{path} exists; remove it, or name another file with --out")
        }
        _ => format!("{path} cannot be created ({error}); name another file with --out"),
    }
}

/// The tables of the arguments, or all.
fn chosen(db: &Database, what: &Dump) -> Result<Vec<TableStats>, String> {
    let all = db.stats().tables;
    if let Some(missing) = what
        .table
        .iter()
        .find(|&name| all.iter().all(|table| table.name != *name))
    {
        let names: Vec<&str> = all.iter().map(|table| &*table.name).collect();
        return Err(format!(
            "there is no table \"{missing}\"; the tables are: {}",
            plain(&names.join(", "))
        ));
    }
    let chosen: Vec<TableStats> = all
        .into_iter()
        .filter(|table| what.table.is_empty() || what.table.contains(&table.name))
        .collect();
    if what.format == RowFormat::Csv && chosen.len() != 1 {
        return Err(format!(
            "comma-separated values have one table, and these are {}; choose one with --table, or leave \
             --format out",
            chosen.len()
        ));
    }
    Ok(chosen)
}

struct Writing<'w> {
    sink: BufWriter<Counted<'w>>,
    rows: u64,
    progress: Progress,
}

impl Writing<'_> {
    /// Writes all tables in one transaction, which locks the rows it reads.
    fn tables(
        &mut self,
        db: &Database,
        tables: &[TableStats],
        format: RowFormat,
    ) -> Result<(), String> {
        let mut tx = db.begin().map_err(|error| error.to_string())?;
        tx.set_label("dump");
        for (index, table) in tables.iter().enumerate() {
            self.progress.now(&plain(&table.name));
            let more = tables.len() - 1 - index;
            match format {
                RowFormat::Jsonl => self.lines(&mut tx, table, more)?,
                RowFormat::Csv => self.columns(&mut tx, table)?,
            }
        }
        tx.commit().map_err(|error| error.to_string())?;
        self.sink.flush().map_err(|error| unwritten(&error))
    }

    fn lines(
        &mut self,
        tx: &mut Transaction,
        table: &TableStats,
        more: usize,
    ) -> Result<(), String> {
        let types = Types::of(table);
        let mut line = String::new();
        let mut header = types.header(&table.name, table.component);
        header["more"] = more.into();
        self.line(header.to_string().as_bytes())?;
        let rows = self.each(tx, table, |writing, key, value| {
            let (key, value) = (types.key.to_json(key), types.value.to_json(value));
            line.clear();
            // No map is built for every row. Writing to a string does not fail.
            let _ = write!(line, "{{\"key\":{key},\"value\":{value}}}");
            writing.line(line.as_bytes())
        })?;
        let end = serde_json::json!({ "end": table.name, "rows": rows });
        self.line(end.to_string().as_bytes())
    }

    fn columns(&mut self, tx: &mut Transaction, table: &TableStats) -> Result<(), String> {
        let types = Types::of(table);
        let mut names = columns::names(&types.key, "key");
        names.extend(columns::names(&types.value, "value"));
        self.record(&names)?;
        self.each(tx, table, |writing, key, value| {
            let cells = |shape, bytes| {
                columns::cells(shape, bytes).ok_or_else(|| {
                    format!(
                        "table \"{}\" has bytes that do not match its types, {}, and cells cannot show \
                         them; leave --format out",
                        table.name,
                        types.words()
                    )
                })
            };
            let mut row = cells(&types.key, key)?;
            row.extend(cells(&types.value, value)?);
            writing.record(&row)
        })?;
        Ok(())
    }

    /// Writes every row of a table; returns their number.
    fn each(
        &mut self,
        tx: &mut Transaction,
        table: &TableStats,
        mut write: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), String>,
    ) -> Result<u64, String> {
        let raw: Table<Encoded, Encoded> = Table::new(existing::forever(&table.name));
        let (mut rows, mut failed) = (0, None);
        let read = tx.range(&raw, ..).try_for_each_bytes(|key, value| {
            rows += 1;
            if rows % STEP == 0 {
                self.progress.advance(STEP);
            }
            match write(self, key, value) {
                Ok(()) => ControlFlow::Continue(()),
                Err(what) => {
                    failed = Some(what);
                    ControlFlow::Break(())
                }
            }
        });
        read.map_err(|error| error.to_string())?;
        self.rows += rows;
        failed.map_or(Ok(rows), Err)
    }

    fn record(&mut self, cells: &[String]) -> Result<(), String> {
        let mut row = csv::Writer::from_writer(Vec::new());
        let written = row.write_record(cells);
        written.map_err(|error| error.to_string())?;
        let row = row.into_inner().map_err(|error| error.to_string())?;
        self.sink.write_all(&row).map_err(|error| unwritten(&error))
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let written = self.sink.write_all(line);
        written
            .and_then(|()| self.sink.write_all(b"\n"))
            .map_err(|error| unwritten(&error))
    }
}

/// A writer that counts its bytes.
struct Counted<'w> {
    sink: &'w mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.sink.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

fn unwritten(error: &io::Error) -> String {
    format!(
        "the dump could not be written ({error}); free some space, or name another file with --out"
    )
}
