//! Records that do not go through the buffer: large ones, and those for which there is only
//! [kept space](super::kept_space).
//!
//! # Invariants
//!
//! * I1  Such a record goes behind the bound of the buffer, and the bound is raised behind it. So
//!   the threads that insert meanwhile neither wait for it nor take its space.

use std::mem;

use foxton_sync::worker::Worker;

use super::group_commit::{LogCore, WriteState, panicked};
use super::insert::PanicGuard;
use crate::buffer::PendingRecord;
use crate::format::error::LogError;
use crate::format::lsn::Lsn;
use crate::format::record::padding;

const NO_PADDING: [u8; 8] = [0; 8];

impl LogCore {
    /// Writes a large record from the caller's memory, behind everything that is in the buffer.
    pub(super) fn insert_large(
        &self,
        worker: &Worker,
        record: &PendingRecord<'_>,
    ) -> Result<Lsn, LogError> {
        let mut guard = self.writer.acquire(worker);
        let state = &mut *guard;
        self.writer.waiters.check(worker)?;
        // Other threads may insert up to the bound meanwhile, and this record goes behind them.
        let upto = state.segments.accepted().plus(record.framed);
        let reserved = state.segments.reserve(upto);
        reserved.map_err(|failure| self.not_reserved(worker, failure))?;
        self.write_behind(worker, state, record)
    }

    /// Writes a record behind everything that is in the buffer and all that it may accept
    /// meanwhile. The device has the space.
    pub(super) fn write_behind(
        &self,
        worker: &Worker,
        state: &mut WriteState,
        record: &PendingRecord<'_>,
    ) -> Result<Lsn, LogError> {
        let bypass = self.buffer.bypass(worker, record.framed)?;
        state.drainer.set_bound(state.segments.accepted().bytes()); // I6
        let (begin, end) = (Lsn::new(bypass.at()), Lsn::new(bypass.end()));
        let header = self.codec.encode(begin, record.header());
        if !state.drainer.wait_for(bypass) {
            return Err(self.fail(worker, panicked()));
        }
        // Threads behind the bypass have their turn by now. If the caller's code panics, the log
        // ends before another thread can get the writer lock.
        let panic_guard = PanicGuard { core: self, worker };
        if let Some(on_reserved) = record.on_reserved {
            on_reserved(end);
        }
        mem::forget(panic_guard);
        self.write_up_to(worker, state, begin)?;
        self.write(worker, &mut state.segments, &[&header])?;
        self.write(worker, &mut state.segments, record.parts)?;
        let zeros = &NO_PADDING[..padding(record.length)];
        self.write(worker, &mut state.segments, &[zeros])?;
        state.drainer.skip();
        self.space.wake_some(worker);
        self.publish_written(end);
        Ok(end)
    }
}
