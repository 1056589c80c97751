//! Integrity check of a database in use.
//!
//! # Coverage
//!
//! | | |
//! |---|---|
//! | pages | [`check_open_pages`]: the file, every tree, every space map |
//! | tables | at a durable snapshot: order of the rows, each row found by its key |
//! | indexes | as [`Database::check_indexes`] |
//!
//! Transactions go on. The page file is not shrunk meanwhile. A table is left out if it is dropped,
//! truncated or converted while it is read.
//!
//! The files of the checkpoint and the log are not read, because they are replaced while the
//! database is in use. [`check`](super::check::check) reads them offline.

use foxton_store::paged::check::check_open_pages;
use foxton_sync::shim;

use crate::admin::check::{Finding, Report};
use crate::api::database::Database;
use crate::api::table_check;
use crate::catalog::OpenTable;
use crate::catalog::index_catalog::is_index_table;
use crate::engine::page_store;
use crate::error::{Error, Result, Storage};

impl Database {
    /// Checks pages, rows and indexes while transactions go on. Returns the defects; the tables
    /// with their rows; and the number of pages. [`check`](crate::check::check) also checks the
    /// files of the checkpoint and the log, but only of a database that no process has open.
    ///
    /// ```
    /// use foxton::{Database, Options, Table};
    /// const STOCK: Table<str, u32> = Table::new("stock");
    ///
    /// let db = Database::in_memory(Options::default())?;
    /// db.run(|tx| tx.put(&STOCK, "apples", &3))?;
    /// let report = db.check_integrity()?;
    /// assert!(report.findings.is_empty());
    /// assert_eq!(report.tables, [("stock".to_owned(), 1)]);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// A conflict if a lock on a table with an index was not granted; a storage error if the device
    /// or the log has failed. A defect is a finding, not an error.
    pub fn check_integrity(&self) -> Result<Report> {
        self.check_integrity_with(&mut |_, _| {})
    }

    /// As [`check_integrity`](Self::check_integrity). `progress` is called between the steps of the
    /// work, with the number of pages that were looked at and the approximate total.
    ///
    /// # Errors
    /// As for [`check_integrity`](Self::check_integrity).
    pub fn check_integrity_with(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
        self.engine().check_process()?;
        let mut report = Report::default();
        self.check_pages(&mut report, progress)?;
        for table in self.engine().catalog.tables() {
            self.check_table(&table, &mut report)?;
        }
        for finding in self.check_indexes()? {
            report.add(finding);
        }
        Ok(report)
    }

    fn check_pages(&self, report: &mut Report, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let engine = self.share().engine();
        let Some(pages) = engine.pages() else {
            return Ok(());
        };
        pages.check()?;
        let worker = engine.workers.worker();
        // Site: "page waits": it keeps the file from being shrunk.
        let _not_shrunk = shim::lock(&pages.shrinking);
        let pool = pages.pool();
        let end = pool.file().header().end;
        // Each page is read from the file, and those that are used in their places.
        let (mut done, total) = (0, 2 * end - pool.space().free_count());
        let mut advance = |count: u64| {
            done += count;
            progress(done.min(total), total);
        };
        let mut findings = Vec::new();
        let checked = check_open_pages(&pages.directory, &worker, &mut advance, &mut |found| {
            findings.push(found);
        });
        report.pages = checked.map_err(|error| pages.failed(&error))?.pages;
        for found in findings {
            report.add(Finding {
                place: page_store::FILE.to_owned(),
                offset: Some(found.offset),
                what: found.to_string(),
            });
        }
        Ok(())
    }

    fn check_table(&self, table: &std::sync::Arc<OpenTable>, report: &mut Report) -> Result<()> {
        let name = &table.record.name;
        let checked = table_check::check_rows(self, table);
        let what = match checked {
            Ok(None) => return Ok(()),
            Ok(Some(found)) => {
                if !is_index_table(name) {
                    report.tables.push((name.clone(), found.rows));
                }
                found.defect
            }
            Err(Error::Storage(storage)) => match *storage {
                Storage::Damaged { place, what } => Some(format!("{place}: {what}")),
                other => return Err(other.into()),
            },
            Err(error) => return Err(error),
        };
        if let Some(what) = what {
            report.add(Finding {
                place: format!("table {name}"),
                offset: None,
                what,
            });
        }
        Ok(())
    }
}
