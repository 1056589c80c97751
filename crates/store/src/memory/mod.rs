//! Tables that live in memory.
//!
//! A `RecordTable` is an ordered map from byte-string keys to `Record`s. A record stays at its address
//! for as long as it is in the table, and carries an anchor, a word for whoever uses the table: `foxton` keeps there up to
//! where the log must be durable before somebody who has read the record may be told that they committed. Its
//! value is a pointer to immutable bytes, exchanged as a whole; a record without a value is a *ghost*.
//! The index over the records is a B+tree whose readers write no shared memory.
//!
//! | file | what is argued there |
//! | --- | --- |
//! | `value`, `record` | why no value is freed while somebody reads it, whatever callers do |
//! | `inline_slot` | nor overwritten, and how none is lost that is wanted back |
//! | `node` | why every pointer found may be followed |
//! | `index/descend` | why the leaf found is the right one |
//! | `index/walk` | what a token proves, and why nothing slips into a locked gap |
//!
//! The order of the modules below is the ladder.

mod search_key;
mod inline_slot;
mod value;
mod record;
mod node;
mod search;
mod index;
mod cursor;
mod verify;
mod table;

pub use cursor::RecordCursor;
pub use index::insert::{InsertRefused, Next};
pub use index::remove::RemoveRefused;
pub use index::walk::{Token, WalkPosition};
pub use record::{NewRecord, Record, VALUE};
pub use table::{Located, NODE_SLOTS, RecordTable};
pub use value::ValueBlock;
