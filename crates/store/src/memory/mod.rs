//! Tables in memory.
//!
//! A `RecordTable` is an ordered map from byte-string keys to `Record`s. A record stays at its
//! address for as long as it is in the table. It carries a commit stamp, a word for the table's
//! user: `foxton` keeps there the log position that must be durable before a reader of the record
//! may report a commit. Its value is a pointer to immutable bytes, exchanged as a whole; a record
//! without a value, or with a tombstone, is a *ghost*. The index over the records is a B+tree whose
//! readers write no shared memory.
//!
//! | file | argument |
//! | --- | --- |
//! | `value`, `record` | no value is freed while a thread reads it, whatever callers do |
//! | `inline_slot` | nor overwritten, and no value is lost that may be restored |
//! | `version` | a reader at a snapshot gives one answer |
//! | `record/chain` | nor is a version freed while it is read, whatever the snapshot |
//! | `node` | every pointer found may be followed |
//! | `record_hint` | nor is the pointer of an earlier search of the same epoch wrong |
//! | `index/descend` | the leaf found is the right one |
//! | `index/walk` | the meaning of a token; no insert slips into a locked gap |
//!
//! The order of the modules below is the ladder.

mod search_key;
mod inline_slot;
mod version;
mod value;
mod record;
mod record_hint;
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
pub use record::{NewRecord, PruneResult, Record, SnapshotRead, VALUE, VersionReader};
pub use record_hint::RecordHint;
pub use table::{Located, NODE_SLOTS, RecordTable};
pub use value::ValueBlock;
pub use version::{Begin, COMMIT_SLOT, CommitSlots, OwnSlot, Promise, VersionWriter, Visibility};
