//! Tables in pages that may be larger than memory.
//!
//! The order of the modules below is the ladder: a module uses only modules listed above it.
//! `foxton-sim` has another owner of pages, on which recovery is tested.

/// Page names.
mod page_id;

// Pages: layout, changes, checksums.
pub mod page;

// Versions of rows, for readers at snapshots.
pub mod row_versions;

// Restart for pages that are larger than memory.
#[cfg(not(loom))]
pub mod recovery;

// Log of page changes: the part that the engine keeps.
#[cfg(not(loom))]
pub mod page_log;

// Frames: memory for one page each.
pub mod frame;

// Replacement: which page gives up its frame.
pub mod replace;

/// Queues of threads that wait until fewer pages are dirty.
#[cfg_attr(
    loom,
    allow(dead_code, unreachable_pub, reason = "the pool is not modelled")
)]
mod dirty_waits;

// Free-frame reserve.
pub mod reserve;

// Space of the page file.
#[cfg(not(loom))]
pub mod space;

#[cfg(not(loom))]
mod stall;

// Buffer pool.
#[cfg(not(loom))]
pub mod pool;

// Trees: the rows of a table in the order of their keys.
#[cfg(not(loom))]
pub mod btree;

// Large values: what a row has instead of one, and where its parts are.
#[cfg(not(loom))]
pub mod values;

// Shrinking: the last pages move down, and the file is cut.
#[cfg(not(loom))]
pub mod shrink;

// The owner of the pages of a pool, for recovery.
#[cfg(not(loom))]
pub mod owner;

// Check of all pages of a database that no process has open.
#[cfg(not(loom))]
pub mod check;

pub use page_id::PageId;
