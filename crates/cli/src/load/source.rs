//! A file of rows, line by line.

use std::{
    cell::Cell,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    rc::Rc,
};

use csv::{ReaderBuilder, StringRecord};
use serde_json::Value;

use crate::{
    arguments::RowFormat,
    rows::{columns, types::Types},
};

/// Longer than any line of a dump: the largest value in hexadecimal.
const LONGEST_LINE: u64 = 64 << 20;

/// What a line says.
#[derive(Debug)]
pub(crate) enum Line {
    /// A table begins.
    Header(String, Types),
    /// A table ends, after so many rows.
    End(String, u64),
    Row(Row),
}

/// A row, not looked into yet.
#[derive(Debug)]
pub(crate) enum Row {
    /// Its key and its value.
    Json(Value, Value),
    /// Its cells, those of the key first, and how many those are.
    Cells(StringRecord, usize),
}

impl Row {
    /// Its key and its value as they are stored; or what is wrong.
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

/// Where rows come from.
pub(crate) struct Source {
    form: Form,
    line: u64,
    read: Rc<Cell<u64>>,
    /// Bytes in all; 0 if nobody knows.
    pub(crate) size: u64,
}

enum Form {
    Lines(Box<dyn BufRead>),
    Columns {
        rows: Box<csv::Reader<Box<dyn BufRead>>>,
        /// For each cell of a row: the place of its column in the file, those of the key first.
        order: Vec<usize>,
        keys: usize,
        names: (Vec<String>, Vec<String>),
    },
}

impl Source {
    /// Opens a file, or standard input for `-`.
    pub(crate) fn open(path: &Path, format: RowFormat) -> Result<Source, String> {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let read = Rc::new(Cell::new(0));
        let (input, size): (Box<dyn Read>, u64) = match path == Path::new("-") {
            true => (Box::new(io::stdin().lock()), 0),
            false => {
                let file = File::open(path).map_err(|error| told(&error))?;
                let size = file.metadata().map_err(|error| told(&error))?.len();
                (Box::new(file), size)
            }
        };
        let counted = Counted {
            input,
            read: read.clone(),
        };
        let lines: Box<dyn BufRead> = Box::new(BufReader::with_capacity(1 << 16, counted));
        let form = match format {
            RowFormat::Jsonl => Form::Lines(lines),
            RowFormat::Csv => columns_of(lines).map_err(|what| told(&what))?,
        };
        Ok(Source {
            form,
            line: 0,
            read,
            size,
        })
    }

    /// Bytes read so far.
    pub(crate) fn read(&self) -> u64 {
        self.read.get()
    }

    /// Whether the columns are those of a table with these types; or what they should be.
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
            "its columns are {}, and a table of {} has {}",
            line(names),
            types.words(),
            line(&wanted)
        ))
    }

    /// The next line, with its number, understood or not; `None` at the end. An error: nothing more
    /// can be read.
    #[allow(
        clippy::type_complexity,
        reason = "a number and what it is the number of"
    )]
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Result<Line, String>)>, String> {
        match &mut self.form {
            Form::Lines(lines) => loop {
                let mut bytes = Vec::new();
                let count = lines.take(LONGEST_LINE).read_until(b'\n', &mut bytes);
                let count = count.map_err(|error| error.to_string())?;
                self.line += 1;
                if count == 0 {
                    return Ok(None);
                }
                if count as u64 == LONGEST_LINE {
                    return Err(format!("line {} does not end", self.line));
                }
                if !bytes.trim_ascii().is_empty() {
                    return Ok(Some((self.line, parse(&bytes))));
                }
            },
            Form::Columns {
                rows, order, keys, ..
            } => {
                let mut record = StringRecord::new();
                // What a row begins with is where it is; its cells may go over several lines.
                self.line = rows.position().line();
                match rows.read_record(&mut record) {
                    Ok(false) => Ok(None),
                    Ok(true) => {
                        let line = record.position().map_or(self.line, csv::Position::line);
                        let cells = order.iter().map(|&place| record.get(place).unwrap_or(""));
                        let row = Row::Cells(cells.collect(), *keys);
                        Ok(Some((line, Ok(Line::Row(row)))))
                    }
                    Err(error) if error.is_io_error() => Err(error.to_string()),
                    Err(error) => {
                        let line = error.position().map_or(self.line, csv::Position::line);
                        Ok(Some((line, Err(wrong_row(&error)))))
                    }
                }
            }
        }
    }
}

fn wrong_row(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => {
            format!("it has {len} cells, and there are {expected_len} columns")
        }
        csv::ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
        _ => error.to_string(),
    }
}

fn columns_of(lines: Box<dyn BufRead>) -> Result<Form, String> {
    let mut rows = ReaderBuilder::new().from_reader(lines);
    let headers = rows.headers().map_err(|error| error.to_string())?.clone();
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
            "its first line is \"{}\", and it should name the columns: key and value, or for a tuple \
             key.1,key.2 and so on",
            names.join(",")
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

/// What a line of JSON says.
fn parse(bytes: &[u8]) -> Result<Line, String> {
    let json: Value = serde_json::from_slice(bytes).map_err(|error| {
        // It counts lines for itself; only the column says something here.
        match std::str::from_utf8(bytes) {
            Ok(_) => format!("it is not JSON from column {} on", error.column()),
            Err(_) => "it is not UTF-8".to_owned(),
        }
    })?;
    let Value::Object(mut object) = json else {
        return Err("it is no object, such as {\"key\":1,\"value\":2}".to_owned());
    };
    if object.contains_key("table") {
        let header = Types::from_header(&Value::Object(object));
        let (table, types) = header
            .ok_or("it begins a table, and does not say its name, key and value as strings")?;
        return Ok(Line::Header(table, types));
    }
    if let Some(end) = object.get("end") {
        let told = end.as_str().zip(object.get("rows").and_then(Value::as_u64));
        let (table, rows) = told.ok_or("it ends a table, and does not say which, or its rows")?;
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
            "it has a \"{other}\", and a row is a key and a value"
        )),
    }
}

struct Counted {
    input: Box<dyn Read>,
    read: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(bytes)?;
        self.read.set(self.read.get() + count as u64);
        Ok(count)
    }
}
