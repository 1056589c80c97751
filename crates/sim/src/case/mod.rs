//! Anomalies as scripts: a few transactions, step by step, run in every order.
//!
//! A case is a text: the rows before, the steps of each transaction, and the outcomes that must
//! never happen.
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
//! | `scan A..B`, then any of `desc`, `limit=N`, `update` | reads a range with both ends | rows |
//! | `put K V` | writes | |
//! | `add K N` | writes N more than the transaction read last under K | |
//! | `place B K V` | writes V under the key B + the value that was read last under K | |
//! | `insert K V` | writes if there is nothing | `ok` or `exists` |
//! | `delete K` | deletes | `ok` or `none` |
//! | `bump A..B N` | adds N to every value of a range, read for update | the rows it read |
//! | `cut A..B V` | deletes every row of a range whose value is V | the rows it read |
//! | `by A..B`, then as `scan` | reads rows by value, with the index | rows, by value and key |
//! | `fill A..B V` | writes V under every key of a range | |
//! | `table M` | locks the table: `is`, `ix`, `s`, `six`, `u` or `x` | |
//! | `save`, `back` | sets a savepoint; rolls back to the last one, which stays | |
//! | `sync` | lets the device sync once (`power`) | |
//! | `commit`, `abort` | ends | |
//! | `quit` | ends without commit, even while the step before waits | |
//!
//! A line of its own can say that the table has an `index` on its values, or a `unique index`,
//! which refuses a value that another row has (`exists`). A line `escalation N` says that a
//! transaction locks the whole table above that many keys. A line `level T1 serializable` gives T1
//! that level, whatever the others have. A line `handle T1 T2` says that these only read, at one
//! shared handle of a snapshot, which the first of their steps takes.
//!
//! `T1.2` is the answer of T1's second step. It can be compared (`=`, `!=`) with a value, with rows
//! (`{1=10 2=20}`) or with another answer, or be asked whether it `has` a row. `end` is the rows
//! afterwards. `T1` by itself says that T1 committed. `and` joins conditions; `|` separates
//! alternatives.
//!
//! # Verdicts
//!
//! Only committed transactions are judged, not which transaction waits for which or is rolled back.
//! Reads of a rolled-back transaction count for nothing, so any condition about it is false. At
//! serializable, every outcome must also be that of the committed transactions run one after the
//! other, in some order that agrees with the clock. At `Snapshot` each transaction has a moment
//! before that, at which it reads (`isolated`).
//!
//! An outcome that must `never` happen `from` a level on is forbidden at that level and at stronger
//! ones. At the next weaker level it must be seen in some order of the steps. Otherwise that level
//! is not what it claims to be, or the case does not show what it means to. `Snapshot` forbids it,
//! too. If it is write skew, the line says `never from serializable but snapshot`, and it must be
//! seen at `Snapshot`.

/// Outcome of a case.
mod outcome;

/// Parser of cases.
mod script;

/// The serial model of a case.
mod alone;

/// The model of a case with snapshots.
mod isolated;

/// Orders of steps.
mod order;

/// Runs a case: sessions polled by hand.
mod play;

/// Runs a case on a device whose power may fail.
#[cfg(feature = "hooks")]
mod power;

pub use isolated::is_isolated;
pub use order::{count, each, sample};
pub use outcome::{Answer, Outcome, Played};
pub use play::Stage;
#[cfg(feature = "hooks")]
pub use power::{Acknowledged, play_over_power_cuts};
pub use script::{Case, Never, ParseError};
