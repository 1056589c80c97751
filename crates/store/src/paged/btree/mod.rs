//! B+tree over the buffer pool: the rows of a table in the order of their keys.
//!
//! # State
//!
//! Leaves have rows, branches have children. Both fences of a page are in the page, and no page
//! has a link to its neighbour: the next leaf is found by the upper fence, the previous one by the
//! lower. When the root is full, its content moves to two new children, and it becomes their
//! parent. So the page that leads to the root changes only if the root is relocated.
//!
//! ```text
//!             root [ "" | k ]                 SMO, one record each
//!                  /       \                  split    parent, left, right, map
//!      ["", k) leaf         leaf [k, ∞)       growth   root, left, right, one or two maps
//!                                             merge    parent, left, right, map
//!                                             move     parent, old, new, one or two maps
//! ```
//!
//! # Use
//!
//! A [`TreeVisit`] is one operation of one thread. Each of its calls is an *attempt*, which never
//! waits for a device, a frame or a lock. It ends with a result or with [`TreeAttempt::Wait`]. The
//! caller then calls [`TreeVisit::wait`], holding nothing, and makes the attempt again. The visit
//! keeps the pages for which it waited, so the next attempt begins at them.
//!
//! # Invariants
//!
//! * I1  Each page of a level admits the keys between its fences. The fences of a child are the
//!   separators in its parent, and each descent checks that. So a page of this table that has the
//!   level and admits the key is *the* page for the key, however it was found.
//! * I2  A reader uses nothing of a page before it has validated the version. It validates the
//!   parent once more after it has read the version of the child (*coupling*). At that moment the
//!   parent had this child with these fences, and the child was not being changed.
//! * I3  An SMO holds the latches of all its pages from before the first changes until the last has
//!   changed. It latches parents before children, left before right, maps last. All but new pages
//!   and maps are only tried, at the version that was read.
//! * I4  A change is checked, then logged under the latches, then applied. So it is in the log
//!   first, and nothing fails in between.
//! * I5  An attempt that waits has no latch. Of frames it has only its reservation.
//! * I6  An attempt names every page that it uses and that must stay: at most five, and one that
//!   is missing. So attempts of any number of threads proceed with sixteen frames. A split that
//!   waits is remembered, and the next attempt begins with it: it needs other pages than the
//!   change that is too large for its leaf.
//! * I7  A new page is claimed before the latches, and becomes used in its map by the same record
//!   that formats it and that makes its parent lead to it.
//! * I8  A leaf has a row or a ghost, unless it is the root. So the next key is in the same leaf or
//!   in the next one, and a walk to it reads two leaves. Otherwise empty leaves would make it
//!   arbitrarily long, and an inserter must keep all of them. The last ghost of a leaf is not
//!   purged: it stays until the leaf is merged with a neighbour.
//!
//! * I9  All trees of a table from one [`TableDirectory`] share the number of its root. It changes
//!   under the latch of the old root, which then is a free page. So it is read like a word of that
//!   page: what follows from it counts once that page was validated.
//!
//! An SMO changes no row and names no gap anew.

use std::fmt;
use std::sync::Arc;

use super::PageId;
use super::page::PageSize;
use super::pool::BufferPool;
use foxton_sync::shim::{AtomicU64, Ordering};

mod error;

mod token;

mod ahead;

mod visit;

mod detached;

mod descend;

mod read;

mod scan_ahead;

mod smo;

mod merge;

mod write;

mod store;

mod bulk;

mod undo;

mod directory;

mod relocate;

mod free;

mod compact;

mod verify;

mod inspect;

mod tests;

mod ahead_tests;
mod bulk_tests;
mod free_tests;
mod inspect_tests;
mod relocate_tests;

pub use ahead::ScanAhead;
pub use bulk::BulkLoad;
pub use compact::Compaction;
pub use detached::DetachedVisit;
pub use directory::TableDirectory;
pub use error::TreeError;
pub use free::FreeStep;
pub use inspect::TreeInspection;
pub use read::{ScanDirection, ScanRange};
pub use relocate::{PagePlace, Relocation};
pub(super) use store::BESIDE_PART;
pub use token::ScanToken;
pub use verify::TreeSummary;
pub use visit::{TreeAttempt, TreeVisit};
pub use write::{FlaggedValue, InsertReply, NextKey, PurgeReply, UpdateReply};

/// A tree of one table. See the [module](self).
///
/// ```
/// use std::sync::Arc;
/// use foxton_log::{Lsn, device::memory::MemoryDevice};
/// use foxton_store::paged::btree::{TreeAttempt, InsertReply, NextKey, TableDirectory};
/// use foxton_store::paged::page::{PageSize, RowFlags};
/// use foxton_store::paged::page_log::Unlogged;
/// use foxton_store::paged::pool::BufferPool;
/// use foxton_store::paged::space::{PageFile, format_file};
/// use foxton_sync::worker::Workers;
///
/// let device = MemoryDevice::new();
/// let file = PageFile::create(&device, "rows", PageSize::default(), [7; 16])?;
/// format_file(&file)?;
/// let log = Arc::new(Unlogged::new(Lsn::ZERO));
/// let pool = Arc::new(BufferPool::new(file, 64, log)?);
/// let worker = Workers::new().worker();
///
/// let tree = TableDirectory::new(pool).create(&worker, 9)?;
/// let mut visit = tree.visit(&worker);
/// let inserted = loop {
///     match visit.insert(b"fox", b"red", 8, NextKey::End)? {
///         TreeAttempt::Done(reply) => break reply,
///         TreeAttempt::Wait => visit.wait()?,
///     }
/// };
/// assert_eq!(inserted, InsertReply::Inserted);
///
/// let mut value = Vec::new();
/// let flags = visit.run(|visit| visit.get(b"fox", &mut value))?;
/// assert_eq!((flags, &value[..]), (Some(RowFlags::NONE), &b"red"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PagedTree {
    pool: Arc<BufferPool>,
    table: u64,
    root: SharedRoot,
}

/// Number of the root of a table, for all trees of the table (I9).
type SharedRoot = Arc<AtomicU64>;

/// Number instead of that of a root, once the tree was [freed](self::free).
const NO_ROOT: PageId = PageId(0);

impl fmt::Debug for PagedTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagedTree")
            .field("table", &self.table)
            .field("root", &self.root())
            .finish_non_exhaustive()
    }
}

impl PagedTree {
    /// Returns the tree of `table` whose root is the page `root`.
    pub(super) fn new(pool: Arc<BufferPool>, table: u64, root: PageId) -> PagedTree {
        PagedTree::sharing(pool, table, Arc::new(AtomicU64::new(root.0)))
    }

    fn sharing(pool: Arc<BufferPool>, table: u64, root: SharedRoot) -> PagedTree {
        PagedTree { pool, table, root }
    }

    fn root(&self) -> PageId {
        // Relaxed: the latch of the page orders it, as it does the words of the page (I9).
        PageId(self.root.load(Ordering::Relaxed))
    }

    /// Sets the root. For the thread that has the latch of the old one.
    fn set_root(&self, root: PageId) {
        // Relaxed: see `root`.
        self.root.store(root.0, Ordering::Relaxed);
    }

    /// Returns the table.
    pub fn table(&self) -> u64 {
        self.table
    }

    /// Returns the pool of its pages.
    pub fn pool(&self) -> &BufferPool {
        &self.pool
    }

    fn size(&self) -> PageSize {
        self.pool.page_size()
    }
}
