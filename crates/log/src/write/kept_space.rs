//! Kept space: bytes of the device for records that must not be refused.
//!
//! A transaction that rolls back writes to the log. On a full device it would be refused, and its
//! changes would stay. So it keeps space on the device before it makes a change, and writes its
//! undo there if there is no other. Other records never get that space: they are refused before.
//!
//! ```text
//!   written │ in the buffer │ accepted next │ kept │ closing record │
//!                                           └ bound of the buffer   └ reserved on the device
//! ```
//!
//! # Invariants
//!
//! * I1  The device has space for every record that the buffer accepts, for all bytes that are
//!   kept, and for the closing record ([`SegmentWriter::accepted`]).
//! * I2  The bound of the buffer never falls. Keeping more therefore reserves as much first, and is
//!   refused where the device has no more.
//! * I3  A record that takes kept bytes goes behind the bound, so no other thread takes them first.
//!
//! [`SegmentWriter::accepted`]: super::segment_writer::SegmentWriter::accepted
//!
//! # Orderings
//!
//! None: the number is behind the writer lock.

use foxton_sync::worker::Worker;

use super::group_commit::LogCore;
use crate::buffer::PendingRecord;
use crate::format::error::LogError;
use crate::format::lsn::Lsn;

impl LogCore {
    /// See [`Log::keep_space`](crate::Log::keep_space).
    pub(crate) fn keep_space(&self, worker: &Worker, bytes: u64) -> Result<(), LogError> {
        let mut state = self.writer.acquire(worker);
        self.writer.waiters.check(worker)?;
        let upto = state.segments.accepted().plus(bytes);
        let reserved = state.segments.reserve(upto);
        if reserved.is_ok() {
            state.segments.keep(bytes); // I2: what is accepted is what it was, or more.
        }
        let accepted = state.segments.accepted();
        state.drainer.set_bound(accepted.bytes());
        reserved.map_err(|failure| self.not_reserved(worker, failure))
    }

    /// See [`Log::release_kept_space`](crate::Log::release_kept_space).
    pub(crate) fn release_kept_space(&self, worker: &Worker, bytes: u64) {
        let mut state = self.writer.acquire(worker);
        state.segments.release_kept(bytes);
        let accepted = state.segments.accepted();
        state.drainer.set_bound(accepted.bytes());
        drop(state);
        self.space.wake_some(worker);
    }

    /// Inserts a record out of kept bytes.
    pub(crate) fn insert_kept(
        &self,
        worker: &Worker,
        record: &PendingRecord<'_>,
    ) -> Result<Lsn, LogError> {
        let mut state = self.writer.acquire(worker);
        self.writer.waiters.check(worker)?;
        state.segments.release_kept(record.framed); // I3: the bound is raised behind the record.
        self.write_behind(worker, &mut state, record)
    }
}
