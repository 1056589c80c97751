//! `foxton dump`: the rows of a database as text, as of one position of the log.
//!
//! The tables are read at one durable snapshot, and transactions go on.
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

use foxton::{Database, Lsn, Snapshot, SnapshotAt, Table, codec::Encoded, inspect::TableStats};
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
    let written = match what.out == Path::new("-") {
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
    note!(
        "{} rows of {}, {}, at log position {}",
        grouped(written.rows as f64),
        match tables.len() {
            1 => "1 table".to_owned(),
            count => format!("{count} tables"),
        },
        bytes(written.bytes),
        written.lsn,
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

/// Extent of a dump.
struct Written {
    rows: u64,
    bytes: u64,
    lsn: Lsn,
}

/// Writes tables, all of one position of the log.
fn write(
    db: &Database,
    tables: &[TableStats],
    format: RowFormat,
    sink: &mut dyn Write,
) -> Result<Written, String> {
    let mut writing = Writing {
        sink: BufWriter::new(Counted { sink, bytes: 0 }),
        rows: 0,
        progress: Audience::here().count_about(
            "dump",
            tables.iter().map(|table| table.keys).sum(),
            "rows",
        ),
    };
    let lsn = writing.tables(db, tables, format)?;
    Ok(Written {
        rows: writing.rows,
        bytes: writing.sink.get_ref().bytes,
        lsn,
    })
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

fn raw(table: &TableStats) -> Table<Encoded, Encoded> {
    Table::new(existing::forever(&table.name))
}

struct Writing<'w> {
    sink: BufWriter<Counted<'w>>,
    rows: u64,
    progress: Progress,
}

impl Writing<'_> {
    /// Writes all tables, and returns the position of which they are.
    fn tables(
        &mut self,
        db: &Database,
        tables: &[TableStats],
        format: RowFormat,
    ) -> Result<Lsn, String> {
        let snapshot = db.snapshot_at(SnapshotAt::Durable);
        let snapshot = snapshot.map_err(|error| error.to_string())?;
        let lsn = snapshot.lsn();
        for (index, table) in tables.iter().enumerate() {
            self.progress.now(&plain(&table.name));
            let more = tables.len() - 1 - index;
            match format {
                RowFormat::Jsonl => self.lines(&snapshot, table, more)?,
                RowFormat::Csv => self.columns(&snapshot, table)?,
            }
        }
        snapshot.end().map_err(|error| error.to_string())?;
        self.sink.flush().map_err(|error| unwritten(&error))?;
        Ok(lsn)
    }

    fn lines(
        &mut self,
        snapshot: &Snapshot,
        table: &TableStats,
        more: usize,
    ) -> Result<(), String> {
        let types = Types::of(table);
        let mut line = String::new();
        let mut header = types.header(&table.name, table.component);
        header["more"] = more.into();
        self.line(header.to_string().as_bytes())?;
        let rows = self.each(snapshot, table, |writing, key, value| {
            let (key, value) = (types.key.to_json(key), types.value.to_json(value));
            line.clear();
            // No map is built for every row. Writing to a string does not fail.
            let _ = write!(line, "{{\"key\":{key},\"value\":{value}}}");
            writing.line(line.as_bytes())
        })?;
        let end = serde_json::json!({ "end": table.name, "rows": rows });
        self.line(end.to_string().as_bytes())
    }

    fn columns(&mut self, snapshot: &Snapshot, table: &TableStats) -> Result<(), String> {
        let types = Types::of(table);
        let mut names = columns::names(&types.key, "key");
        names.extend(columns::names(&types.value, "value"));
        self.record(&names)?;
        self.each(snapshot, table, |writing, key, value| {
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
        snapshot: &Snapshot,
        table: &TableStats,
        mut write: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), String>,
    ) -> Result<u64, String> {
        let (mut rows, mut failed) = (0, None);
        let raw = raw(table);
        let mut take = |key: &[u8], value: &[u8]| {
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
        };
        let range = snapshot.range(&raw, ..);
        let read = range.and_then(|range| range.try_for_each_bytes(&mut take));
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

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use super::*;

    const CURRENT: Table<u64, i64> = Table::new("current");
    const SAVINGS: Table<u64, i64> = Table::new("savings");
    const RESERVE: Table<u64, i64> = Table::new("reserve").paged();
    const ROWS: u64 = 300;

    /// Moves one unit from table to table and back, until it is to end.
    fn move_around(db: &Database, is_over: &AtomicBool) {
        let tables = [CURRENT, SAVINGS, RESERVE];
        for step in 0.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let (from, to) = (step as usize % 3, (step as usize / 3) % 3);
            let (first, second) = (step * 7 % ROWS, step * 11 % ROWS);
            db.run(|tx| {
                let less = tx.get_for_update(&tables[from], &first)?.unwrap_or(0) - 1;
                tx.put(&tables[from], &first, &less)?;
                let more = tx.get_for_update(&tables[to], &second)?.unwrap_or(0) + 1;
                tx.put(&tables[to], &second, &more)
            })
            .unwrap();
        }
    }

    /// Each dump counts once all that is moved between tables.
    #[test]
    fn a_dump_is_of_one_position_while_transactions_go_on() {
        let db = Database::in_memory(foxton::Options::default()).unwrap();
        db.run(|tx| {
            (0..ROWS).try_for_each(|key| {
                tx.put(&CURRENT, &key, &100)?;
                tx.put(&SAVINGS, &key, &100)?;
                tx.put(&RESERVE, &key, &100)
            })
        })
        .unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|_| scope.spawn(|| move_around(&db, &is_over)))
                .collect();
            let mut last = None;
            for round in 0..20 {
                let mut text = Vec::new();
                let tables = db.stats().tables;
                let written = write(&db, &tables, RowFormat::Jsonl, &mut text).unwrap();
                assert!(last <= Some(written.lsn), "dump {round} is older");
                last = Some(written.lsn);
                let lines = std::str::from_utf8(&text).unwrap().lines();
                let sum: i64 = lines
                    .filter_map(|line| {
                        let line: serde_json::Value = serde_json::from_str(line).unwrap();
                        line.get("value")?.as_i64()
                    })
                    .sum();
                assert_eq!(
                    (written.rows, sum),
                    (3 * ROWS, 300 * ROWS as i64),
                    "dump {round}"
                );
            }
            is_over.store(true, Ordering::Relaxed);
            writers
                .into_iter()
                .for_each(|writer| writer.join().unwrap());
        });
        assert!(db.snapshots().is_empty());
    }
}
