//! `foxton load`: rows from text into a database.
//!
//! Rows are loaded in batches, one transaction each. A line is bad if it cannot be parsed or if its
//! table refuses its row. The rest of its batch is still checked, so that several bad lines are
//! shown at once; then the batch is rolled back and loading ends. With `--skip-bad` bad lines are
//! left out.

/// Input of a file.
mod input;

/// A file of rows, line by line.
mod source;

use std::{collections::HashMap, process::ExitCode};

use foxton::{Database, Error, Options, Table, TableComponent, Transaction, codec::Encoded};
use foxton_lab::{
    progress::{Audience, Progress},
    report::number::grouped,
};

use crate::{
    arguments::{Load, RowFormat},
    existing, opening,
    output::{note, say},
    rows::{text::brief, types::Types},
    tables::plain,
};
use source::{Line, Row, Source};

/// Bad lines and unfinished tables that are shown one by one.
const SHOWN: u64 = 20;

/// Loads a file.
pub(crate) fn run(what: &Load) -> Result<ExitCode, String> {
    let is_csv = what.file.extension().is_some_and(|kind| kind == "csv");
    let format = what.format.unwrap_or(match is_csv {
        true => RowFormat::Csv,
        false => RowFormat::Jsonl,
    });
    if format == RowFormat::Csv && what.table.is_none() {
        return Err(
            "comma-separated values do not name their table; name it with --table".to_owned(),
        );
    }
    let mut source = Source::open(&what.file, format).map_err(|error| shown(&error))?;
    let db = opening::open(&what.directory, Options::default())?;
    let mut loader = Loader {
        what,
        format,
        db: &db,
        target: None,
        doors: HashMap::new(),
        batch: None,
        rows: 0,
        batches: 0,
        passed_over: 0,
        bad: 0,
        unfinished: None,
        more: 0,
        cut: 0,
        progress: Audience::here().bytes("load", source.size),
    };
    let ended = loader.load(&mut source);
    loader.finish(ended)
}

/// Text from a file in a form that is safe to show: one line of limited length, without control
/// characters.
fn shown(what: &str) -> String {
    const MOST: usize = 1_000;
    match what.char_indices().nth(MOST) {
        Some((cut, _)) => plain(&what[..cut]) + "...",
        None => plain(what),
    }
}

struct Loader<'a> {
    what: &'a Load,
    format: RowFormat,
    db: &'a Database,
    target: Option<Target>,
    /// The tables that rows went to. A name is made a constant once, however often it occurs in the
    /// file.
    doors: HashMap<String, &'static str>,
    batch: Option<Batch>,
    /// Rows in batches that are committed.
    rows: u64,
    batches: u64,
    /// Rows of tables that are left out.
    passed_over: u64,
    bad: u64,
    /// The table whose last line has not come yet.
    unfinished: Option<String>,
    /// Tables that are still expected.
    more: u64,
    /// Missing last lines of tables, and missing tables.
    cut: u64,
    progress: Progress,
}

/// The table that rows go to.
struct Target {
    name: String,
    types: Types,
    /// The table, if its rows are wanted.
    door: Option<Table<Encoded, Encoded>>,
    /// Its rows in the file, loaded or not.
    seen: u64,
}

struct Batch {
    tx: Transaction,
    first_line: u64,
    last_line: u64,
    lines: u64,
    rows: u64,
    bad: u64,
}

/// The reason why loading ended before the file did.
enum Halt {
    /// A batch with bad lines; these lines were not loaded.
    Refused { from: u64, to: u64, bad: u64 },
    /// A failure that no change of the file would mend.
    Failed(String),
}

impl Halt {
    /// The same, with the line it came from.
    fn at(self, line: u64) -> Halt {
        match self {
            Halt::Failed(what) => Halt::Failed(format!("line {line}: {what}")),
            refused => refused,
        }
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Halt {
        Halt::Failed(error.to_string())
    }
}

impl Loader<'_> {
    fn load(&mut self, source: &mut Source) -> Result<(), Halt> {
        let mut reported = 0;
        if let Some(name) = &self.what.table {
            let types = self.named_types()?;
            if let Some(types) = types {
                source.suits(&types).map_err(Halt::Failed)?;
                self.aim(&name.clone(), types, None)?;
            }
        }
        loop {
            let next = source.next();
            let next = next.map_err(|what| Halt::Failed(what).at(source.line()))?;
            let Some((line, understood)) = next else {
                break;
            };
            self.progress.advance(source.read() - reported);
            reported = source.read();
            let taken = self.take(line, understood);
            taken.map_err(|halt| halt.at(line))?;
        }
        self.end_batch()?;
        self.cut_short();
        if self.more > 0 {
            self.cut += 1;
            let what = match self.more {
                1 => "1 more table was expected".to_owned(),
                more => format!("{more} more tables were expected"),
            };
            self.progress
                .say(&format!("{what}; the file may have been truncated"));
        }
        Ok(())
    }

    /// Handles a line.
    fn take(&mut self, line: u64, understood: Result<Line, String>) -> Result<(), Halt> {
        let taken = match understood {
            Ok(Line::Header(header)) => {
                self.end_batch()?;
                self.cut_short();
                self.unfinished = Some(header.table.clone());
                self.more = header.more.unwrap_or(0);
                return self.aim(&header.table, header.types, header.component);
            }
            Ok(Line::End(table, rows)) => {
                self.unfinished = None;
                match &self.target {
                    Some(target) if target.name == table && target.seen == rows => return Ok(()),
                    _ => Err(format!(
                        "it ends table \"{}\" after {rows} rows, but the file had another number of them",
                        brief(&table)
                    )),
                }
            }
            Ok(Line::Row(row)) => self.row(line, &row)?,
            Err(what) => Err(what),
        };
        self.note(line, taken)
    }

    /// The types of the table of `--table`, if they are known before the file gives them.
    fn named_types(&self) -> Result<Option<Types>, Halt> {
        let name = self.what.table.as_deref().unwrap_or("");
        let given = match (&self.what.key, &self.what.value) {
            (Some(key), Some(value)) => Some(Types::called(key, value)),
            _ => None,
        };
        match (existing::table(self.db, name), given) {
            (Some(known), _) => Ok(Some(Types::of(&known))),
            (None, Some(given)) => Ok(Some(given)),
            // A file of JSON lines may still give them.
            (None, None) if self.format == RowFormat::Jsonl => Ok(None),
            (None, None) => Err(Halt::Failed(format!(
                "table \"{name}\" does not exist; give the types of its rows with --key and --value, such \
                 as --key u64 --value str"
            ))),
        }
    }

    /// Directs the following rows to this table. A new one is made in `component`, and one that
    /// exists stays in its own.
    fn aim(
        &mut self,
        name: &str,
        types: Types,
        component: Option<TableComponent>,
    ) -> Result<(), Halt> {
        let wanted = self.what.table.as_deref().is_none_or(|only| only == name);
        if wanted {
            let known = existing::table(self.db, name);
            let component = component.filter(|_| known.is_none());
            if let Some(known) = known
                && !Types::of(&known).are(&types)
            {
                return Err(Halt::Failed(format!(
                    "table \"{name}\" has rows of {}, and the file has rows of {}; load them into another \
                     database",
                    Types::of(&known).words(),
                    brief(&types.words())
                )));
            }
            let (key, value) = types.names();
            let mut tx = self.db.begin()?;
            match component {
                Some(component) => tx.make_table_in(component, name, &key, &value)?,
                None => tx.make_table(name, &key, &value)?,
            }
            tx.commit()?;
        }
        self.target = Some(Target {
            name: name.to_owned(),
            types,
            door: wanted.then(|| self.door(name)),
            seen: 0,
        });
        Ok(())
    }

    fn door(&mut self, name: &str) -> Table<Encoded, Encoded> {
        let known = self.doors.get(name).copied();
        Table::new(known.unwrap_or_else(|| {
            let name = existing::forever(name);
            self.doors.insert(name.to_owned(), name);
            name
        }))
    }

    /// Loads a row. An inner error means that the row is bad.
    fn row(&mut self, line: u64, row: &Row) -> Result<Result<(), String>, Halt> {
        let Some(target) = &mut self.target else {
            return Ok(Err(
                "its table is not known: neither --table nor a line before it names one".to_owned(),
            ));
        };
        target.seen += 1;
        let Some(door) = &target.door else {
            self.passed_over += 1;
            return Ok(Ok(()));
        };
        let (key, value) = match row.encode(&target.types) {
            Ok(encoded) => encoded,
            Err(what) => return Ok(Err(what)),
        };
        let batch = match &mut self.batch {
            Some(batch) => batch,
            None => self.batch.insert(Batch::new(self.db, line)?),
        };
        if batch.bad > 0 && !self.what.skip_bad {
            return Ok(Ok(())); // It was only looked at.
        }
        match batch.tx.put(door, &Encoded(key), &Encoded(value)) {
            Ok(()) => {
                batch.rows += 1;
                Ok(Ok(()))
            }
            Err(Error::Request(request)) => Ok(Err(request.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Counts a line, bad or not, and ends its batch if it is full.
    fn note(&mut self, line: u64, taken: Result<(), String>) -> Result<(), Halt> {
        if self.batch.is_none() && taken.is_err() && !self.what.skip_bad {
            self.batch = Some(Batch::new(self.db, line)?);
        }
        if let Some(batch) = &mut self.batch {
            batch.lines += 1;
            batch.last_line = line;
            batch.bad += u64::from(taken.is_err());
        }
        if let Err(what) = taken {
            self.bad += 1;
            if self.bad <= SHOWN {
                self.progress.say(&format!("line {line}: {}", shown(&what)));
            }
        }
        let full = |batch: &Batch| self.what.batch > 0 && batch.lines >= self.what.batch;
        match self.batch.as_ref().is_some_and(full) {
            true => self.end_batch(),
            false => Ok(()),
        }
    }

    fn end_batch(&mut self) -> Result<(), Halt> {
        let Some(batch) = self.batch.take() else {
            return Ok(());
        };
        if batch.bad > 0 && !self.what.skip_bad {
            batch.tx.rollback();
            return Err(Halt::Refused {
                from: batch.first_line,
                to: batch.last_line,
                bad: batch.bad,
            });
        }
        batch.tx.commit()?;
        self.rows += batch.rows;
        self.batches += 1;
        Ok(())
    }

    /// Reports that the last table's end is missing.
    fn cut_short(&mut self) {
        if let Some(table) = self.unfinished.take() {
            self.cut += 1;
            if self.cut > SHOWN {
                return;
            }
            self.progress.say(&format!(
                "table \"{}\" has no last line; the file may have been truncated",
                shown(&table)
            ));
        }
    }

    fn finish(self, ended: Result<(), Halt>) -> Result<ExitCode, String> {
        drop(self.progress);
        if self.bad > SHOWN {
            note!("and {} more", grouped((self.bad - SHOWN) as f64));
        }
        let count = |count: u64, what: &str| match count {
            1 => format!("1 {what}"),
            count => format!("{} {what}s", grouped(count as f64)),
        };
        let mut summary = format!(
            "{} loaded in {}",
            count(self.rows, "row"),
            count(self.batches, "transaction")
        );
        if self.passed_over > 0 {
            summary += &format!(
                ", {} of other tables left out",
                count(self.passed_over, "row")
            );
        }
        match ended {
            Ok(()) => {
                if self.bad > 0 {
                    summary += &format!("; {} left out", count(self.bad, "bad line"));
                }
                say!("{summary}");
                Ok(match self.cut {
                    0 => ExitCode::SUCCESS,
                    _ => ExitCode::FAILURE,
                })
            }
            Err(Halt::Refused { from, to, bad }) => {
                say!("{summary}");
                Err(format!(
                    "lines {from} to {to} were not loaded, nor any after them: {} there. \
                     Correct the file and load it again (rows loaded twice do no harm), or leave bad lines \
                     out with --skip-bad",
                    count(bad, "bad line")
                ))
            }
            Err(Halt::Failed(what)) => {
                say!("{summary}");
                let what = shown(&what);
                Err(match self.rows {
                    0 => what,
                    _ => {
                        what + ". Correct that, and load the file again: rows loaded twice do no harm"
                    }
                })
            }
        }
    }
}

impl Batch {
    fn new(db: &Database, line: u64) -> Result<Batch, Error> {
        let mut tx = db.begin()?;
        tx.set_label("load");
        Ok(Batch {
            tx,
            first_line: line,
            last_line: line,
            lines: 0,
            rows: 0,
            bad: 0,
        })
    }
}
