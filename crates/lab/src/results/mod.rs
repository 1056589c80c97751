//! Published numbers: one JSON record each, and the documents rendered from them.
//!
//! A record is a file `docs/results/NAME.json`. `foxton results render` writes `RESULTS.md` beside
//! the records, and the table of the README. No number in a document is typed by hand.
//!
//! ```json
//! {
//!   "id": "txbench-reads",
//!   "title": "Reads of ten rows",
//!   "question": "How much of its peak does each lock manager keep with 512 clients?",
//!   "command": "foxton bench txbench",
//!   "commit": "60d6ea7",
//!   "machine": { "processor": "AMD EPYC", "cores": 2, "memory": null, "os": null },
//!   "date": "2026-11-26",
//!   "unit": "transactions/s",
//!   "values": [
//!     { "row": "`direct`", "series": "1 client",
//!       "value": 1000, "low": 900, "high": 1100, "passes": 3 },
//!     { "row": "`direct`", "series": "512 of the peak", "unit": "ratio",
//!       "value": 0.93, "low": 0.9, "high": 1, "passes": 3 }
//!   ],
//!   "note": null,
//!   "readme": [
//!     { "place": 1, "text": "Reads by one client", "row": "`direct`", "series": "1 client" }
//!   ]
//! }
//! ```
//!
//! | field | meaning |
//! | --- | --- |
//! | `id` | the file's name without `.json`: lower case, digits, hyphens |
//! | `title` | a noun phrase |
//! | `question` | one sentence that ends in a question mark |
//! | `command` | the command that measures it today, one a line; null if no command does |
//! | `commit` | the commit that published the numbers, 7 to 40 hexadecimal digits, or null |
//! | `machine` | `processor`, `cores`, `memory` (such as "8 GiB") and `os`, each null if unknown |
//! | `date` | the day of the measurement, `YYYY-MM-DD`, or null |
//! | `unit` | the unit of all values that name no other |
//! | `values` | the numbers; a row and a series name one cell of the rendered table |
//! | `note` | one sentence on what was expected and where it falls short, or null |
//! | `readme` | values that stand in the README, in the order of `place`; may be absent |
//!
//! Of a value, `value` is the median of the passes, `low` and `high` are their extremes and
//! `passes` is their number. Each may be null; without a median both extremes are needed. Documents
//! show a number with the digits of the record.
//!
//! Only `readme`, and a value's `unit`, may be absent. Every other field must be there, and a
//! record has no other fields.

/// Errors that name the file and the field.
pub mod error;

/// Numbers as they are written.
pub mod number;

/// The fields of a record, and its rules.
pub mod record;

/// All records of a directory.
pub mod collection;

/// Aligned Markdown tables and wrapped paragraphs.
mod markdown;

/// The documents that are made of records.
pub mod render;
