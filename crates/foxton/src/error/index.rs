//! Errors of secondary indexes: of a declaration, or of a row that an index refuses.

use std::fmt;

use super::{Error, Request};
use crate::types::codec::{Key, Undecodable};
use crate::types::limits::{MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES};

/// An index refuses a row, or differs from its declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexError {
    /// A unique index already has one of the row's keys, for another row.
    KeyTaken(KeyTaken),
    /// One of the row's index keys is longer than an index accepts.
    KeyTooLong {
        /// The index.
        index: String,
        /// The table.
        table: String,
        /// The primary key of the refused row, encoded.
        row: Vec<u8>,
        /// Bytes of the entry: the encoded index key, plus the primary key unless the index is
        /// unique.
        bytes: usize,
    },
    /// The index exists with a different declaration.
    Differs {
        /// The index.
        index: String,
        /// A description of the stored declaration.
        stored: String,
        /// A description of the new declaration.
        declared: String,
    },
    /// The table has a unique index that this program has not declared, so the database cannot
    /// maintain it.
    Undeclared {
        /// The index.
        index: String,
        /// The table.
        table: String,
    },
    /// The index is not declared to this database.
    NotOpen {
        /// The index.
        index: String,
    },
    /// The index was made, or its table was converted, after the snapshot at which it is read.
    Younger {
        /// The index.
        index: String,
    },
    /// An index name is empty or too long.
    Name {
        /// Bytes of the name.
        bytes: usize,
    },
    /// The table's name is reserved for the database.
    ReservedTable,
}

/// A unique index already has one of the row's keys, for another row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyTaken {
    /// The index.
    pub index: String,
    /// The table.
    pub table: String,
    /// The index key that both rows have, encoded.
    pub key: Vec<u8>,
    /// The primary key of the row that is in the index, encoded.
    pub row: Vec<u8>,
    /// The primary key of the refused row, encoded.
    pub refused: Vec<u8>,
}

impl KeyTaken {
    /// Returns the index key that both rows have, decoded, for an index declared with `I`.
    ///
    /// # Errors
    /// If it is no encoding of an `I`.
    pub fn key_as<I: Key + ?Sized>(&self) -> Result<I::Owned, Undecodable> {
        I::decode(&self.key)
    }

    /// Returns the primary key of the row that is in the index, for a table with keys of type `K`.
    ///
    /// # Errors
    /// If it is no encoding of a `K`.
    pub fn row_as<K: Key + ?Sized>(&self) -> Result<K::Owned, Undecodable> {
        K::decode(&self.row)
    }

    /// Returns the primary key of the refused row, for a table with keys of type `K`.
    ///
    /// # Errors
    /// If it is no encoding of a `K`.
    pub fn refused_as<K: Key + ?Sized>(&self) -> Result<K::Owned, Undecodable> {
        K::decode(&self.refused)
    }
}

impl Error {
    /// Returns the index key and both rows, if a unique index refused the row; otherwise `None`.
    ///
    /// ```
    /// use foxton::{Database, Index, Options, Table};
    /// const USERS: Table<u64, str> = Table::new("users");
    /// const BY_NAME: Index<str, u64, str> =
    ///     Index::unique("by_name", &USERS, |_, name, keys| keys.add(name));
    /// let db = Database::in_memory(Options::default())?;
    /// db.create_index(&BY_NAME)?;
    /// let mut tx = db.begin()?;
    /// tx.put(&USERS, &1, "ada")?;
    /// let error = tx.put(&USERS, &2, "ada").unwrap_err();
    /// let taken = error.key_taken().expect("there is an ada");
    /// assert_eq!((&*taken.index, &*taken.key_as::<str>()?), ("by_name", "ada"));
    /// assert_eq!((taken.row_as::<u64>()?, taken.refused_as::<u64>()?), (1, 2));
    /// # Ok::<(), foxton::Error>(())
    /// ```
    pub fn key_taken(&self) -> Option<&KeyTaken> {
        match self {
            Error::Request(Request::Index(error)) => match &**error {
                IndexError::KeyTaken(taken) => Some(taken),
                _ => None,
            },
            _ => None,
        }
    }
}

impl From<IndexError> for Error {
    fn from(error: IndexError) -> Error {
        Request::Index(Box::new(error)).into()
    }
}

impl IndexError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            IndexError::KeyTaken(_) => "index_key_exists",
            IndexError::KeyTooLong { .. } => "index_key_too_long",
            IndexError::Differs { .. } => "index_differs",
            IndexError::Undeclared { .. } => "index_undeclared",
            IndexError::NotOpen { .. } => "index_not_open",
            IndexError::Younger { .. } => "index_younger_than_snapshot",
            IndexError::Name { .. } => "index_name",
            IndexError::ReservedTable => "reserved_table",
        }
    }
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexError::KeyTaken(taken) => write!(
                f,
                "unique index \"{}\" has the key {} already: row {} of table \"{}\" has it, and row \
                 {} would get it; change or delete that row first, or choose another value",
                taken.index,
                PrintableBytes(&taken.key),
                PrintableBytes(&taken.row),
                taken.table,
                PrintableBytes(&taken.refused),
            ),
            IndexError::KeyTooLong {
                index,
                table,
                row,
                bytes,
            } => write!(
                f,
                "row {} of table \"{table}\" takes {bytes} bytes in index \"{index}\", and an index \
                 takes at most {}; change or delete that row, or give the index a shorter key, such \
                 as the beginning or a hash of this one",
                PrintableBytes(row),
                MAX_KEY_BYTES
            ),
            IndexError::Differs {
                index,
                stored,
                declared,
            } => write!(
                f,
                "index \"{index}\" was made {stored} and is declared {declared}; declare it as it \
                 was made, or give the new one another name, or drop the old one with \
                 drop_index(\"{index}\") and create it anew"
            ),
            IndexError::Undeclared { index, table } => write!(
                f,
                "table \"{table}\" has the index \"{index}\", which this program has not \
                 declared, so it cannot be kept up to date: declare it in Options::indexes or with \
                 create_index, or drop it with drop_index(\"{index}\"), before writing to the table"
            ),
            IndexError::NotOpen { index } => write!(
                f,
                "index \"{index}\" was not declared to this database, or was dropped: declare it in \
                 Options::indexes or with create_index before reading by it"
            ),
            IndexError::Younger { index } => write!(
                f,
                "index \"{index}\" was made, or its table converted, after the snapshot; begin \
                 another snapshot"
            ),
            IndexError::Name { bytes } => write!(
                f,
                "an index name takes 1 to {} bytes and this one has {bytes}",
                MAX_TABLE_NAME_BYTES
            ),
            IndexError::ReservedTable => {
                f.write_str("this table name is reserved for the database; use another name")
            }
        }
    }
}

/// Encoded bytes in readable form: text if they are printable, otherwise hexadecimal digits. Of a
/// long key only the beginning.
struct PrintableBytes<'b>(&'b [u8]);

/// Number of bytes that are shown.
const SHOWN_BYTES: usize = 64;

impl fmt::Display for PrintableBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut end = self.0.len().min(SHOWN_BYTES);
        match std::str::from_utf8(self.0) {
            Ok(text) if !text.is_empty() && !text.contains(char::is_control) => {
                end = text.floor_char_boundary(end);
                write!(f, "\"{}\"", &text[..end])?;
            }
            _ => {
                f.write_str("0x")?;
                let mut shown = self.0[..end].iter();
                shown.try_for_each(|byte| write!(f, "{byte:02x}"))?;
            }
        }
        match self.0.len() - end {
            0 => Ok(()),
            more => write!(f, " (and {more} bytes more)"),
        }
    }
}
