//! A file of rows, line by line.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    rc::Rc,
};

use csv::{ReaderBuilder, StringRecord};
use foxton::TableComponent;
use serde_json::Value;

use super::input::{Input, LONGEST, Seen};
use crate::{
    arguments::RowFormat,
    rows::{columns, text, types::Types},
};

/// Bytes that some programs put before text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line, parsed.
#[derive(Debug)]
pub(crate) enum Line {
    /// A table begins.
    Header(Header),
    /// A table ends, after this number of rows.
    End(String, u64),
    Row(Row),
}

/// The line before the rows of a table.
#[derive(Debug)]
pub(crate) struct Header {
    /// Name of the table.
    pub(crate) table: String,
    pub(crate) types: Types,
    /// The component of the table, if the line gives it.
    pub(crate) component: Option<TableComponent>,
    /// The number of tables after it, if the line gives it.
    pub(crate) more: Option<u64>,
}

/// A row, not decoded yet.
#[derive(Debug)]
pub(crate) enum Row {
    /// Its key and its value.
    Json(Value, Value),
    /// Its cells, those of the key first, and the number of the key's cells.
    Cells(StringRecord, usize),
}

impl Row {
    /// Its key and its value as they are stored; or why it is bad.
    pub(crate) fn encode(&self, types: &Types) -> Result<(Vec<u8>, Vec<u8>), String> {
        let (key, value) = match self {
            Row::Json(key, value) => (types.key.to_bytes(key), types.value.to_bytes(value)),
            Row::Cells(cells, keys) => {
                let cells: Vec<&str> = cells.iter().collect();
                let (key, value) = cells.split_at(*keys);
                let bytes = |shape, cells| {
                    columns::json(shape, cells).and_then(|json| shape.to_bytes(&json))
                };
                (bytes(&types.key, key), bytes(&types.value, value))
            }
        };
        let key = key.map_err(|what| format!("key: {what}"))?;
        Ok((key, value.map_err(|what| format!("value: {what}"))?))
    }
}

/// A file of rows.
pub(crate) struct Source {
    form: Form,
    /// Its name in messages.
    name: String,
    line: u64,
    seen: Rc<Seen>,
    /// Bytes in all; 0 if unknown.
    pub(crate) size: u64,
}

enum Form {
    Lines(BufReader<Input>),
    Columns {
        rows: Box<csv::Reader<BufReader<Input>>>,
        /// For each cell of a row, the index of its column in the file; those of the key first.
        order: Vec<usize>,
        keys: usize,
        names: (Vec<String>, Vec<String>),
    },
}

impl Source {
    /// Opens a file, or standard input for `-`.
    pub(crate) fn open(path: &Path, format: RowFormat) -> Result<Source, String> {
        let is_stdin = path == Path::new("-");
        let name = match is_stdin {
            true => "standard input".to_owned(),
            false => path.display().to_string(),
        };
        let with_name = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let (bytes, size): (Box<dyn Read>, u64) = match is_stdin {
            true => (Box::new(io::stdin().lock()), 0),
            false => {
                let file = File::open(path).map_err(|error| with_name(&error))?;
                let about = file.metadata().map_err(|error| with_name(&error))?;
                if about.is_dir() {
                    return Err(with_name(&"it is a directory; name a file of rows"));
                }
                (Box::new(file), about.len())
            }
        };
        let seen = Rc::new(Seen::default());
        let buffered = |input| BufReader::with_capacity(1 << 16, input);
        let form = match format {
            RowFormat::Jsonl => Form::Lines(buffered(Input::of_lines(bytes, seen.clone()))),
            RowFormat::Csv => {
                let cells = buffered(Input::of_cells(bytes, seen.clone()));
                columns_of(cells, &seen).map_err(|what| with_name(&what))?
            }
        };
        Ok(Source {
            form,
            name,
            line: 0,
            seen,
            size,
        })
    }

    /// Bytes read so far.
    pub(crate) fn read(&self) -> u64 {
        self.seen.bytes.get()
    }

    /// The line that was read last.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Checks that the columns are those of a table with these types; the error names the expected
    /// ones.
    pub(crate) fn suits(&self, types: &Types) -> Result<(), String> {
        let Form::Columns { names, .. } = &self.form else {
            return Ok(());
        };
        let wanted = (
            columns::names(&types.key, "key"),
            columns::names(&types.value, "value"),
        );
        if *names == wanted {
            return Ok(());
        }
        let line = |(keys, values): &(Vec<String>, Vec<String>)| {
            [keys.as_slice(), values].concat().join(",")
        };
        Err(format!(
            "its columns are {}, but a table of {} has {}",
            text::brief(&line(names)),
            types.words(),
            line(&wanted)
        ))
    }

    /// Returns the next line with its number, parsed or bad; `None` at the end. An error means that
    /// nothing more can be read.
    #[allow(
        clippy::type_complexity,
        reason = "a number, and the line with that number"
    )]
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Result<Line, String>)>, String> {
        match &mut self.form {
            Form::Lines(lines) => loop {
                let mut bytes = Vec::new();
                self.line += 1;
                let count = lines.take(LONGEST).read_until(b'\n', &mut bytes);
                let count = count.map_err(|error| unread(&self.name, &error))?;
                if count == 0 {
                    return Ok(None);
                }
                if count as u64 == LONGEST && !bytes.ends_with(b"\n") {
                    return Err("this row is too long; is this a file of JSON lines?".to_owned());
                }
                let mut line = &bytes[..];
                if self.line == 1 {
                    line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
                }
                if !line.trim_ascii().is_empty() {
                    return Ok(Some((self.line, parse(line))));
                }
            },
            Form::Columns {
                rows, order, keys, ..
            } => {
                let mut record = StringRecord::new();
                // The line of a row is its first one; its cells may continue on the next lines.
                self.line = rows.position().line();
                match rows.read_record(&mut record) {
                    Ok(false) => Ok(None),
                    // The library reports this only if another row follows.
                    Ok(true) if self.seen.ended_in_quotes.get() => {
                        let line = record.position().map_or(self.line, csv::Position::line);
                        Ok(Some((line, Err(UNQUOTED.to_owned()))))
                    }
                    Ok(true) => {
                        let line = record.position().map_or(self.line, csv::Position::line);
                        let cells = order.iter().map(|&place| record.get(place).unwrap_or(""));
                        let row = Row::Cells(cells.collect(), *keys);
                        Ok(Some((line, Ok(Line::Row(row)))))
                    }
                    Err(error) if error.is_io_error() => Err(unread(&self.name, &error)),
                    Err(error) => {
                        let line = error.position().map_or(self.line, csv::Position::line);
                        Ok(Some((line, Err(wrong_row(&error)))))
                    }
                }
            }
        }
    }
}

/// Message for the last row, if a quote in it was opened and not closed.
const UNQUOTED: &str = "a quote is opened there and not closed; the file may have been truncated, or a quote is missing";

fn unread(name: &str, error: &dyn std::fmt::Display) -> String {
    format!("{name} cannot be read any further: {error}")
}

fn wrong_row(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => {
            format!("it has {len} cells, but there are {expected_len} columns")
        }
        csv::ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
        _ => error.to_string(),
    }
}

fn columns_of(cells: BufReader<Input>, seen: &Seen) -> Result<Form, String> {
    let mut rows = ReaderBuilder::new().from_reader(cells);
    let headers = rows.headers().map_err(|error| wrong_row(&error))?.clone();
    if seen.ended_in_quotes.get() {
        return Err(format!("in its first line, {UNQUOTED}"));
    }
    let of = |what: &str| {
        let mut named: Vec<(usize, usize)> = Vec::new();
        for (place, name) in headers.iter().enumerate() {
            let number = match name.strip_prefix(what) {
                Some("") => Some(0),
                Some(rest) => rest
                    .strip_prefix('.')
                    .and_then(|digits| digits.parse().ok()),
                None => None,
            };
            named.extend(number.map(|number| (number, place)));
        }
        named.sort_unstable();
        named
    };
    let (keys, values) = (of("key"), of("value"));
    let known = keys.len() + values.len();
    if keys.is_empty() || values.is_empty() || known != headers.len() {
        let names: Vec<&str> = headers.iter().collect();
        return Err(format!(
            "its first line is \"{}\", but must name the columns: key and value, or for a tuple key.1,key.2 \
             and so on",
            text::brief(&names.join(","))
        ));
    }
    let names = |columns: &[(usize, usize)]| {
        let names = columns.iter().map(|&(_, place)| headers[place].to_owned());
        names.collect::<Vec<String>>()
    };
    Ok(Form::Columns {
        names: (names(&keys), names(&values)),
        order: keys
            .iter()
            .chain(&values)
            .map(|&(_, place)| place)
            .collect(),
        keys: keys.len(),
        rows: Box::new(rows),
    })
}

/// Parses a line of JSON.
fn parse(bytes: &[u8]) -> Result<Line, String> {
    let mut object = text::object(bytes)?;
    if object.contains_key("table") {
        let more = object.get("more").and_then(Value::as_u64);
        let component = object.get("component").map(component).transpose()?;
        let header = Types::from_header(&Value::Object(object));
        let (table, types) = header
            .ok_or("it begins a table, but does not give its name, key and value as strings")?;
        return Ok(Line::Header(Header {
            table,
            types,
            component,
            more,
        }));
    }
    if let Some(end) = object.get("end") {
        let named = end.as_str().zip(object.get("rows").and_then(Value::as_u64));
        let (table, rows) = named.ok_or("it ends a table, but does not say which, or its rows")?;
        return Ok(Line::End(table.to_owned(), rows));
    }
    match (
        object.remove("key"),
        object.remove("value"),
        object.keys().next(),
    ) {
        (Some(key), Some(value), None) => Ok(Line::Row(Row::Json(key, value))),
        (None, ..) => Err("it has no \"key\"".to_owned()),
        (_, None, _) => Err("it has no \"value\"".to_owned()),
        (.., Some(other)) => Err(format!(
            "it has a \"{}\", but a row is a key and a value",
            text::brief(other)
        )),
    }
}

/// The component that the line before a table's rows names.
fn component(named: &Value) -> Result<TableComponent, String> {
    let known = named.as_str().and_then(|name| name.parse().ok());
    known.ok_or_else(|| {
        let named = named.to_string();
        format!(
            "it begins a table in the component {}, but there are only resident and paged",
            text::brief(&named)
        )
    })
}
