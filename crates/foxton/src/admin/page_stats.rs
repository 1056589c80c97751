//! Pages of paged tables: their state, the work of the buffer pool, and what waits for it.

use crate::engine::page_store::OpenPages;

/// Pages of paged tables, and the work of their buffer pool since the database was opened.
///
/// ```
/// # use foxton::{Database, Options, Table};
/// const STOCK: Table<u64, u64> = Table::new("stock").paged();
/// let db = Database::in_memory(Options::default())?;
/// assert!(db.stats().pages.is_none());
/// db.run(|tx| tx.put(&STOCK, &7, &1))?;
/// let pages = db.stats().pages.expect("a table has pages");
/// assert!(pages.free < pages.frames && pages.dirty <= pages.frames);
/// assert!(pages.hit_rate().is_some_and(|rate| rate <= 1.0));
/// assert!(pages.memory_bytes >= pages.frames * pages.page_bytes);
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageStats {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Number of pages that fit the memory: frames of the buffer pool.
    pub frames: usize,
    /// Number of frames without a page.
    pub free: usize,
    /// Number of pages that have changed since they were written.
    pub dirty: usize,
    /// Number of threads and tasks that wait because too many pages are dirty: of a half of the
    /// frames on, commits that changed pages, and of seven eighths on, changes of further pages.
    pub stalled: usize,
    /// Number of commits that have waited for that reason, or wait.
    pub commit_stalls: u64,
    /// Number of times that a change has waited for that reason, or waits.
    pub change_stalls: u64,
    /// Bytes of memory for frames, what belongs to each, and buffers. The limit is
    /// [`Options::page_memory`](crate::Options::page_memory).
    pub memory_bytes: usize,
    /// Number of pages read from the page file.
    pub reads: u64,
    /// Number of those that were read before any thread missed them.
    pub reads_ahead: u64,
    /// Number of pages written to it.
    pub writes: u64,
    /// Number of pages that left memory.
    pub evictions: u64,
    /// Number of operations on the trees of rows and indexes: reads, steps of scans, changes.
    pub lookups: u64,
    /// Number of times that one of them has waited for pages that were not in memory, or waits.
    /// [`hit_rate`](Self::hit_rate) compares both.
    pub page_waits: u64,
    /// Number of threads and tasks that wait for pages that are not in memory.
    pub waiting_for_pages: u64,
    /// Number of threads that wait for the latch of a page.
    pub waiting_for_latches: u64,
    /// Number of threads that wait for space in the page file or in the log.
    pub waiting_for_space: u64,
    /// Number of pages of the page file, free ones included.
    pub file_pages: u64,
    /// Number of pages of the page file that are free.
    pub free_pages: u64,
}

impl PageStats {
    /// Returns the share of operations that found their pages in memory, from 0 to 1; `None`
    /// before the first one.
    pub fn hit_rate(&self) -> Option<f64> {
        let misses = self.page_waits.min(self.lookups);
        let hits = (self.lookups - misses) as f64;
        (self.lookups > 0).then(|| hits / self.lookups as f64)
    }

    pub(super) fn of(pages: &OpenPages) -> PageStats {
        let pool = pages.pool();
        let stats = pool.stats();
        PageStats {
            page_bytes: pool.page_size().bytes(),
            frames: stats.frames,
            free: stats.free,
            dirty: stats.dirty,
            stalled: stats.stalled,
            commit_stalls: stats.commit_stalls,
            change_stalls: stats.change_stalls,
            memory_bytes: pool.memory_bytes(),
            reads: stats.reads,
            reads_ahead: stats.reads_ahead,
            writes: stats.writes,
            evictions: stats.evictions,
            lookups: stats.lookups,
            page_waits: stats.page_waits,
            waiting_for_pages: stats.waiters.pages + pages.waits.queued() as u64,
            waiting_for_latches: stats.waiters.latches,
            waiting_for_space: stats.waiters.space,
            file_pages: pool.file().header().end,
            free_pages: pool.space().free_count(),
        }
    }
}
