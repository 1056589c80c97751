//! Memory limit of the pages of an open database.

use crate::api::database::Database;
use crate::error::{Request, Result};

impl Database {
    /// Sets the [memory for pages](crate::Options::page_memory) of the open database to `bytes`, up
    /// to [`max_page_memory`](crate::Options::max_page_memory). Transactions go on meanwhile.
    ///
    /// More memory can be used at once. Less memory is reached soon after: threads of the database
    /// write and evict the pages that are too many, and give their memory back to the system. A
    /// page that a thread uses just now stays until then. [`Database::stats`] says how much memory
    /// is taken. The next opening begins with [`page_memory`](crate::Options::page_memory) again.
    ///
    /// ```
    /// use foxton::{Database, Options, Table};
    ///
    /// const STOCK: Table<u64, u64> = Table::new("stock").paged();
    ///
    /// let mut options = Options::default();
    /// options.page_memory = 8 << 20;
    /// options.max_page_memory = Some(64 << 20);
    /// let db = Database::in_memory(options)?;
    /// db.run(|tx| tx.put(&STOCK, &7, &12))?;
    ///
    /// let frames = || db.stats().pages.map_or(0, |pages| pages.frames);
    /// let before = frames();
    /// db.set_page_memory(32 << 20)?;
    /// assert!(frames() > 3 * before);
    /// let refused = db.set_page_memory(65 << 20).unwrap_err();
    /// assert_eq!(refused.code(), "option");
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// A request error: `option` if `bytes` are more than was reserved, or fewer than 16 pages and
    /// their buffers need; `opened_read_only` if the database was opened to be read. Then the limit
    /// is as before.
    pub fn set_page_memory(&self, bytes: usize) -> Result<()> {
        let engine = self.engine();
        engine.check_process()?;
        if engine.options.read_only {
            return Err(Request::OpenedReadOnly.into());
        }
        let worker = engine.workers.worker();
        engine
            .page_store
            .set_memory(&worker, &engine.options, bytes)
    }
}
