//! Failpoints of the index; see [`foxton_sync::failpoint`].

use foxton_sync::failpoint::Failpoint;

/// The leaf of a new record was found, and is not yet latched.
pub const INSERT: Failpoint = Failpoint::passing("index/insert");
/// The leaf of a record to be removed was found, and is not yet latched.
pub const REMOVE: Failpoint = Failpoint::passing("index/remove");
/// A leaf is full and about to be split.
pub const SPLIT: Failpoint = Failpoint::passing("index/split");
/// A leaf was left empty and is about to be taken out.
pub const SHRINK: Failpoint = Failpoint::passing("index/shrink");

/// All of them.
pub const ALL: [Failpoint; 4] = [INSERT, REMOVE, SPLIT, SHRINK];
