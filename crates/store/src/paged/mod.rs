//! Tables in pages that may be larger than memory.
//!
//! Only their recovery is here today. Pages, a buffer pool and trees come later; until then
//! `foxton-sim` owns the pages on which recovery is tested.

/// Restart for pages that are larger than memory.
#[cfg(not(loom))]
pub mod recovery;
