//! Where tests can step in; see [`foxton_sync::failpoint`].

use foxton_sync::failpoint::Point;

/// The leaf of a new record was found, and is not yet latched.
pub const INSERT: Point = Point::passing("index/insert");
/// The leaf of a record that goes was found, and is not yet latched.
pub const REMOVE: Point = Point::passing("index/remove");
/// A leaf is full and about to be split.
pub const SPLIT: Point = Point::passing("index/split");
/// A leaf was left empty and is about to be taken out.
pub const SHRINK: Point = Point::passing("index/shrink");

/// All of them.
pub const ALL: [Point; 4] = [INSERT, REMOVE, SPLIT, SHRINK];
