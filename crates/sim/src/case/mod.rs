//! Anomalies as scripts: a few transactions, step by step, played in every order.
//!
//! A case is a text: the rows before, what each transaction does, and what must never come of it.
//!
//! ```text
//! # Write skew: each reads what the other writes.
//! start 1=10 2=20
//! T1 get 1; get 2; put 1 11; commit
//! T2 get 1; get 2; put 2 21; commit
//! never from repeatable-read: T1.2 = 20 and T2.1 = 10
//! ```
//!
//! | step | does | answers |
//! |---|---|---|
//! | `get K`, `getu K` | reads, or reads for update | the value, or `none` |
//! | `scan A..B`, then any of `desc`, `limit=N`, `update` | reads a range, both ends included | the rows |
//! | `put K V` | writes | |
//! | `add K N` | writes N more than the transaction read last under K | |
//! | `place B K V` | writes V under the key that is B and the value the transaction read last under K | |
//! | `insert K V` | writes if there is nothing | `ok` or `exists` |
//! | `delete K` | takes away | `ok` or `none` |
//! | `bump A..B N` | adds N to every value of a range, read for update | the rows it read |
//! | `cut A..B V` | takes away every row of a range whose value is V | the rows it read |
//! | `by A..B`, then any of `desc`, `limit=N`, `update` | reads the rows whose values lie in a range, by the index | the rows, by value and then by key |
//! | `fill A..B V` | writes V under every key of a range | |
//! | `table M` | locks the table: `is`, `ix`, `s`, `six`, `u` or `x` | |
//! | `save`, `back` | sets a savepoint; goes back to the last one, which stays | |
//! | `sync` | lets the device sync what it was given, once (`power`) | |
//! | `commit`, `abort` | ends | |
//! | `quit` | ends without commit, also while the step before waits | |
//!
//! A line of its own can say that the table has an `index` on its values, or a `unique index`, which refuses a
//! value that another row has (`exists`); or that a transaction locks the whole of a table above so many keys
//! (`escalation N`).
//!
//! `T1.2` is the answer of T1's second step; it can be compared (`=`, `!=`) with a value, with rows
//! (`{1=10 2=20}`), with another answer, or be asked whether it `has` a row. `end` is the rows afterwards, `T1`
//! by itself says that T1 committed. `and` joins, `|` separates what would each be enough.
//!
//! # Verdicts
//!
//! Who waits for whom and who gives way is not judged: only what committed is. What a transaction that
//! was rolled back saw counts for nothing, so anything said of it is false. At serializable, every outcome must
//! also be that of the committed transactions run one after the other, in some order that keeps to the
//! clock. What is `never` to happen `from` a level on is forbidden there and at stronger ones, and must be
//! seen, in some order of the steps, at the next weaker one: a level that does not let it through is not the
//! level it says it is, or the case does not show what it means to.

/// What came of a play.
mod outcome;

/// From text to steps.
mod script;

/// What the steps do when nobody else is there.
mod alone;

/// In which order they are played.
mod order;

/// Sessions that are played by hand.
mod play;

/// The same on a device whose power may go.
#[cfg(feature = "hooks")]
mod power;

pub use alone::is_serial;
pub use order::{count, each, sample};
pub use outcome::{Answer, Outcome, Played};
pub use play::Stage;
#[cfg(feature = "hooks")]
pub use power::{Acknowledged, play_over_power_cuts};
pub use script::{Case, Never, ParseError};
