//! Rows outside of a database: how a file of them says what they are.
//!
//! A file of JSON lines, one table after the other:
//!
//! ```text
//! {"table":"ages","key":"str","value":"u32","more":2}    what follows, and the types it was made for; two
//!                                                        tables come behind it
//! {"key":"ada","value":36}                               a row
//! {"end":"ages","rows":1}                                all of them are there
//! ```
//!
//! The first and the last line, and `more`, may be missing from a file that somebody wrote by hand.
//! A type whose name is longer than what a database keeps of it has `key_hash` or `value_hash`,
//! too.
//!
//! A file of comma-separated values holds one table. Its columns are called `key` and `value`, or,
//! for a tuple, `key.1`, `key.2` and so on. Text and numbers stand as they are; whatever else has
//! parts is JSON in its cell.

/// Keys and values of any type, as JSON and back.
pub(crate) mod shape;

/// What the types of a table make of its rows.
pub(crate) mod types;

/// JSON that somebody else wrote.
pub(crate) mod text;

/// Comma-separated values.
pub(crate) mod columns;
