//! Memory limit: the number of frames in use changes while the pool is open.
//!
//! Address space and headers are there for a maximum of frames. The limit says how many of them are
//! used: those with the smallest indexes. When it is lowered, the frames beyond it are emptied one
//! after the other, and their memory goes back to the system. The frame provider does this, and so
//! does the cleaner, because dirty pages are written first. Nothing waits for it.
//!
//! # Invariants
//!
//! * I1  A thread takes only frames below the limit. A frame beyond it that a thread had taken
//!   before may still get a page, and is emptied later like others.
//! * I2  Memory is given back by a thread that owns the frame: it has no page, and is in no list.
//!   So no thread fills it meanwhile.

use foxton_sync::shim::Ordering;
use foxton_sync::worker::Worker;
use smallvec::smallvec;

use super::evict::EvictOutcome;
use super::{
    BufferPool, MIN_FRAMES, clean, hints, leaf_hints, read_ahead, read_buffers, translation,
};
use crate::paged::frame::Frame;
use crate::paged::page::PageSize;
use crate::paged::replace::Replacement;

/// Bytes that a pool takes for each frame in use: the page, and what replacement knows of it.
fn bytes_of_frame(size: PageSize) -> usize {
    // Entries of the lists of free frames and of the queue: they grow by doubling.
    let lists = 2 * 2 * size_of::<usize>();
    size.bytes() + Replacement::HISTORY_BYTES + lists
}

/// Bytes that a pool takes for each frame of its maximum.
fn bytes_of_header(size: PageSize) -> usize {
    size_of::<Frame>()
        + translation::BYTES_PER_FRAME
        + Replacement::FRAME_BYTES
        + hints::bytes_per_frame(size)
        + leaf_hints::bytes_per_frame(size)
}

/// Bytes of the buffers for reads, for read-ahead and for the cleaner.
fn bytes_of_buffers(size: PageSize, maximum: usize) -> usize {
    let runs = read_ahead::bytes_of_run_buffers(size, maximum);
    (clean::largest_batch(maximum) + read_buffers(maximum)) * size.bytes() + runs
}

impl BufferPool {
    /// Returns the largest number of frames, up to `maximum`, with which a pool with that maximum
    /// takes at most `bytes` of memory: frames, headers, translation table, hints, eviction history
    /// and buffers. It is 16 at least, even if that takes more.
    ///
    /// ```
    /// use foxton_store::paged::{page::PageSize, pool::BufferPool};
    ///
    /// let frames = BufferPool::frames_within(64 << 20, 10_000, PageSize::default());
    /// assert!((7_000..8_192).contains(&frames));
    /// ```
    pub fn frames_within(bytes: usize, maximum: usize, size: PageSize) -> usize {
        let fixed = BufferPool::bytes_of(0, maximum, size);
        let frames = bytes.saturating_sub(fixed) / bytes_of_frame(size);
        frames.min(maximum).max(MIN_FRAMES)
    }

    /// Number of bytes that a pool with that `maximum` takes while it has `frames` frames.
    pub fn bytes_of(frames: usize, maximum: usize, size: PageSize) -> usize {
        let fixed = bytes_of_buffers(size, maximum) + maximum * bytes_of_header(size);
        fixed + frames * bytes_of_frame(size)
    }

    /// Returns the largest maximum with which a pool takes at most `bytes` of memory when all of
    /// its frames are used. It is 16 at least, even if that takes more.
    ///
    /// ```
    /// use foxton_store::paged::{page::PageSize, pool::BufferPool};
    ///
    /// let size = PageSize::default();
    /// let maximum = BufferPool::maximum_within(64 << 20, size);
    /// assert_eq!(BufferPool::frames_within(64 << 20, maximum, size), maximum);
    /// assert!(BufferPool::bytes_of(maximum, maximum, size) <= 64 << 20);
    /// ```
    pub fn maximum_within(bytes: usize, size: PageSize) -> usize {
        let takes = |maximum: usize| BufferPool::bytes_of(maximum, maximum, size);
        let (mut low, mut beyond) = (MIN_FRAMES, (bytes / size.bytes()).max(MIN_FRAMES) + 1);
        // The first number of them fits, or is returned in any case. The second one does not fit.
        while low + 1 < beyond {
            let middle = low.midpoint(beyond);
            match takes(middle) <= bytes {
                true => low = middle,
                false => beyond = middle,
            }
        }
        low
    }

    /// Number of frames that may be used.
    pub fn frame_limit(&self) -> usize {
        // Relaxed: the reserve decides which frames are taken.
        self.limit.load(Ordering::Relaxed)
    }

    /// Number of bytes that the pool takes: for the frames in use and those that are still to be
    /// emptied, and for headers, translation table, hints, eviction history and buffers.
    pub fn memory_bytes(&self) -> usize {
        let frames = self.frames.len() - self.free.unused_count();
        BufferPool::bytes_of(frames, self.frames.len(), self.page_size())
    }

    /// Largest number of frames that the pool may have.
    pub fn frame_maximum(&self) -> usize {
        self.frames.len()
    }

    /// Changes the number of frames that may be used, to at least 16 and at most the maximum.
    /// Returns the new number. Returns at once; the frame provider empties the frames beyond it and
    /// gives back their memory. Their dirty pages are written first.
    pub fn set_frames(&self, worker: &Worker, frames: usize) -> usize {
        let limit = frames.clamp(MIN_FRAMES, self.frames.len());
        // One change at a time, so that all agree.
        self.replacement(worker, |replacement| {
            replacement.set_limit(limit);
            self.limit.store(limit, Ordering::Relaxed);
            self.free.set_limit(limit);
        });
        self.provider_wakeup.notify();
        self.cleaner_wakeup.notify();
        limit
    }

    /// Number of frames beyond the limit that have memory, or have had some just now.
    pub(super) fn surplus_count(&self) -> usize {
        let unused = self.free.unused_count();
        let beyond = self.frames.len() - self.frame_limit();
        beyond.saturating_sub(unused)
    }

    /// True if a frame beyond the limit has a page that must be written.
    pub(super) fn has_dirty_surplus(&self) -> bool {
        let beyond = self.frames.get(self.frame_limit()..).unwrap_or(&[]);
        self.surplus_count() > 0 && beyond.iter().any(Frame::is_dirty)
    }

    /// Empties the frames beyond the limit that are clean and not in use, and gives back the memory
    /// of all that have no page.
    pub(super) fn empty_surplus(&self, worker: &Worker) {
        if self.surplus_count() == 0 {
            return;
        }
        for index in self.frame_limit()..self.frames.len() {
            if self.frames[index].page().is_none() {
                continue;
            }
            if let EvictOutcome::Evicted(page, lsn) = self.try_evict(worker, index) {
                self.replacement(worker, |replacement| replacement.emptied(index, page, lsn));
                // Site: "replacement".
                self.evictions.fetch_add(1, Ordering::Relaxed);
                self.free_frames(worker).give(&mut smallvec![index]);
            }
        }
        while let Some(index) = self.free_frames(worker).take_surplus() {
            self.frames[index].release_memory();
            self.free_frames(worker).end_use(index);
        }
    }
}
