//! Input of a file of rows: it counts bytes, and refuses rows that are too long before they fill
//! the memory.
//!
//! A quoted cell continues on the next line, so a missing quote makes one row of the rest of the
//! file. The `csv` library accepts an end of input inside a quote as the end of a row, and does not
//! report it. So this module follows the quotes by the library's rules.

use std::{
    cell::Cell,
    io::{self, Read},
    rc::Rc,
};

use foxton::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use crate::rows::shape::MOST_PARTS;

/// No row is longer. One byte of text can take six, such as `\u0001`, and there is something around
/// the cells.
pub(super) const LONGEST: u64 = 6 * (MAX_KEY_BYTES + MAX_VALUE_BYTES) as u64 + (1 << 20);

/// No row has more cells: a key's and a value's.
const MOST_CELLS: usize = 2 * MOST_PARTS;

/// Position in the input, for its reader.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Bytes read so far.
    pub(super) bytes: Cell<u64>,
    /// True if it has ended in a cell whose quote was not closed.
    pub(super) ended_in_quotes: Cell<bool>,
}

/// The input, with its bytes counted.
pub(super) struct Input {
    bytes: Box<dyn Read>,
    seen: Rc<Seen>,
    /// The current row, if the input has rows of cells.
    row: Option<Row>,
}

impl Input {
    pub(super) fn of_lines(bytes: Box<dyn Read>, seen: Rc<Seen>) -> Input {
        let row = None;
        Input { bytes, seen, row }
    }

    pub(super) fn of_cells(bytes: Box<dyn Read>, seen: Rc<Seen>) -> Input {
        let row = Some(Row::default());
        Input { bytes, seen, row }
    }
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(bytes)?;
        self.seen.bytes.set(self.seen.bytes.get() + count as u64);
        if let Some(row) = &mut self.row {
            bytes[..count].iter().try_for_each(|byte| row.take(*byte))?;
            let ended_in_quotes = count == 0 && row.place == Place::Quoted;
            self.seen.ended_in_quotes.set(ended_in_quotes);
        }
        Ok(count)
    }
}

/// A row of cells, as far as it was read.
#[derive(Debug, Default)]
struct Row {
    place: Place,
    bytes: u64,
    cells: usize,
}

/// State of the next byte in a cell.
#[derive(Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Begin,
    Plain,
    Quoted,
    /// After a quote in quotes: it ends them, or is the first of two that mean one.
    Quote,
}

impl Row {
    fn take(&mut self, byte: u8) -> io::Result<()> {
        self.bytes += 1;
        self.place = match (&self.place, byte) {
            (Place::Quoted, b'"') => Place::Quote,
            (Place::Quoted, _) | (Place::Begin | Place::Quote, b'"') => Place::Quoted,
            (_, b',') => {
                self.cells += 1;
                Place::Begin
            }
            (_, b'\n' | b'\r') => {
                *self = Row::default();
                Place::Begin
            }
            _ => Place::Plain,
        };
        if self.bytes > LONGEST || self.cells > MOST_CELLS {
            let what = match self.place {
                Place::Quoted => "this row is too long; a quote is opened there and not closed",
                _ => "this row is too long; are these comma-separated values?",
            };
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads all of it as cells.
    fn read(bytes: impl Read + 'static) -> (io::Result<u64>, Rc<Seen>) {
        let seen = Rc::new(Seen::default());
        let mut input = Input::of_cells(Box::new(bytes), seen.clone());
        (io::copy(&mut input, &mut io::sink()), seen)
    }

    #[test]
    fn it_ends_in_quotes_where_the_library_continues_the_cell() {
        for text in [
            "",
            "\"",
            "\"\"",
            "\"\"\"",
            "a\"",
            "a\"b\"",
            "\"a\"b",
            "\"a\"b\"",
            "\"a\"\"",
            "a,\"b",
            "a,\"b\n",
            "a,\"b\n\"",
            "a,\"b\"\r\n\"",
            "a,\"b\"\r\n\"\"c",
            "\"a,b",
            "a\n\"\nb\n",
            ",\"",
            ",\"\"\"",
            "\r\"",
        ] {
            // In quotes a comma is part of the cell; outside it separates two.
            let cells = |text: String| {
                let mut rows = csv::ReaderBuilder::new();
                let mut rows = rows
                    .has_headers(false)
                    .flexible(true)
                    .from_reader(text.as_bytes());
                rows.records().map(|row| row.unwrap().len()).sum::<usize>()
            };
            let continues = cells(format!("{text},x")) == cells(format!("{text}x"));
            let (_, seen) = read(io::Cursor::new(text));
            assert_eq!(seen.ended_in_quotes.get(), continues, "{text:?}");
            assert_eq!(seen.bytes.get(), text.len() as u64);
        }
    }

    #[test]
    fn an_endless_row_is_not_read_to_its_end() {
        for (byte, words) in [
            (b',', "comma-separated"),
            (b'x', "comma-separated"),
            (0, "comma-separated"),
        ] {
            let (read, seen) = read(io::repeat(byte));
            let said = read.unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
            assert!(seen.bytes.get() < LONGEST + (1 << 20));
        }
        let (read, _) = read(io::Cursor::new("a,\"b").chain(io::repeat(b'\n')));
        assert!(read.unwrap_err().to_string().contains("not closed"));
    }
}
