//! Allocation of pages, and growth of the page file ahead of it.

use foxton_sync::worker::Worker;

use super::BufferPool;
use super::error::PoolError;
use super::load::PageRequest;
use crate::paged::PageId;
use crate::paged::space::{MapImage, PageAllocation, PageAllocator, PagePurpose};

impl BufferPool {
    /// Returns the free pages of the file.
    pub fn space(&self) -> &PageAllocator {
        &self.space
    }

    /// Claims a free page near `near`. `None`: there is none for the purpose, and
    /// [`grow_file`](Self::grow_file) is due. Never waits.
    pub fn claim_page(
        &self,
        worker: &Worker,
        near: PageId,
        purpose: PagePurpose,
    ) -> Option<PageAllocation<'_>> {
        let claim = self.space.claim(worker, near, purpose);
        if self.space.is_low() {
            self.cleaner_wakeup.notify();
        }
        claim
    }

    /// Makes a page free whose bit in its space map a thread has just cleared.
    ///
    /// # Panics
    ///
    /// If it is free already.
    pub fn release_page(&self, page: PageId) {
        self.space.release(page);
    }

    /// Grows the page file, unless pages are free for every purpose. Waits for devices; the caller
    /// holds no latch and no fix.
    ///
    /// # Errors
    ///
    /// [`PoolError::NoPages`] if the device is full, and others if it or the log fails.
    pub fn grow_file(&self, worker: &Worker) -> Result<(), PoolError> {
        let durable = || self.durable_log(worker);
        let renew = |maps: &[MapImage]| self.renew_maps(worker, maps);
        self.space.grow(&self.file, durable, renew)
    }

    /// Grows the page file if few pages are free. A failure is left to those that need a page.
    pub(super) fn grow_file_ahead(&self, worker: &Worker) {
        let durable = || self.durable_log(worker);
        let renew = |maps: &[MapImage]| self.renew_maps(worker, maps);
        let grown = self.space.grow_ahead(&self.file, durable, renew);
        drop::<Result<bool, PoolError>>(grown);
    }

    /// Brings maps that are resident since before the file was cut to the state that growth has
    /// written. Otherwise the chain of their changes would begin in a frame that no restart has.
    fn renew_maps(&self, worker: &Worker, maps: &[MapImage]) {
        for (page, image) in maps {
            if let Some(fixed) = self.fix_resident(worker, *page) {
                fixed.lock(worker).renew(image.bytes());
            }
        }
    }

    /// True if a page at or behind page `first` is dirty.
    pub fn is_dirty_from(&self, first: u64) -> bool {
        let mut dirty = self.frames.iter().filter_map(|frame| frame.dirty_page());
        dirty.any(|page| page.number() >= first)
    }

    /// Cuts the file behind page `end`, if all pages from there on are held and none is dirty.
    /// Returns false otherwise. The caller has made sure that a restart begins with none of them.
    ///
    /// # Errors
    ///
    /// If the device or the log fails.
    pub fn cut_file(&self, worker: &Worker, end: u64) -> Result<bool, PoolError> {
        // One that is free, held and clean stays so: no thread has a way to it.
        if self.is_dirty_from(end) {
            return Ok(false);
        }
        // The bits of the pages that moved are in the log, if not in the maps.
        self.durable_log(worker)?;
        self.space.cut(&self.file, end).map_err(PoolError::of_cut)
    }

    /// Finds the free pages anew, by the space maps as they are after a restart. For the thread
    /// that alone uses the pool.
    ///
    /// # Errors
    ///
    /// If a map cannot be read, is damaged, or has a bit of a page that the file does not have.
    pub fn reload_space(&self, worker: &Worker) -> Result<(), PoolError> {
        self.space.reload(&self.file, |map, buffer| {
            let reservation = self.reserve(worker, &[PageRequest::read(map)])?;
            let writer = reservation.pages()[0].lock(worker);
            writer.copy_to(buffer.bytes_mut());
            Ok(())
        })
    }

    /// Waits until the log is durable up to its present end, and returns that.
    fn durable_log(&self, worker: &Worker) -> Result<foxton_log::Lsn, PoolError> {
        let end = self.log.end(worker);
        self.log.wait_durable(worker, end).map_err(PoolError::Log)?;
        Ok(end)
    }
}
