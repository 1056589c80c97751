//! Rows outside of a database: the format of their files.
//!
//! A file of JSON lines has one table after the other:
//!
//! ```text {"table":"ages","key":"str","value":"u32","more":2}    name and types; two more tables
//! follow {"key":"ada","value":36}                               a row {"end":"ages","rows":1}
//! the end, with the number of rows ```
//!
//! The first and the last line, and `more`, can be missing from a file written by hand. If the name
//! of a type is too long for a database to keep, there are `key_hash` or `value_hash` too.
//!
//! A file of comma-separated values has one table. Its columns are `key` and `value`, or for a
//! tuple `key.1`, `key.2` and so on. Text and numbers are written as they are; nested types are
//! JSON in their cell.

/// Keys and values of any type, as JSON and back.
pub(crate) mod shape;

/// The types of a table's rows.
pub(crate) mod types;

/// JSON from a file that another program may have written.
pub(crate) mod text;

/// Comma-separated values.
pub(crate) mod columns;
