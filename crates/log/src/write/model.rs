//! Models for loom: waiters, writer lock and buffers, each with the least around it.
//!
//! `waiters.rs`, `writer_lock.rs` and `buffers.rs` in `tests/models` are the models.

use foxton_sync::latch::Kind;
use foxton_sync::ring::Drainer;
use foxton_sync::shim::{AtomicU64, Ordering::Relaxed};
use foxton_sync::worker::Worker;

use crate::buffer::{Buffer, BufferKind, InsertOutcome, PendingRecord};
use crate::format::error::LogError;
use crate::format::lsn::Lsn;
use crate::format::record::{
    FIRST_OWN_KIND, HEADER_BYTES, HeaderCodec, framed_bytes, payload_check,
};
use crate::write::waiters::{LogWaiters, Milestone};
use crate::write::writer_lock::WriterLock;

/// The waiters of a log without a device: how far it is durable.
#[derive(Debug)]
pub struct DurableModel(LogWaiters);

impl Default for DurableModel {
    fn default() -> Self {
        DurableModel(LogWaiters::new(Kind::Parking, Lsn::ZERO))
    }
}

impl DurableModel {
    /// Makes the log durable up to `lsn`, as far as its waiters are concerned.
    pub fn complete(&self, worker: &Worker, lsn: Lsn) {
        self.0.advance(Milestone::Durable, lsn);
        let _ = self.0.complete_waits(worker, Milestone::Durable, lsn);
    }

    /// Waits until the log is durable up to `lsn`.
    pub fn wait(&self, worker: &Worker, lsn: Lsn) {
        if self.0.position(Milestone::Durable) >= lsn {
            return;
        }
        let wait = self.0.enqueue(worker, Milestone::Durable, lsn);
        if let Some((parker, ticket)) = wait {
            parker.wait(ticket, None);
        }
    }
}

/// The writer lock over a buffer that is a number: how far records are complete. Writing raises
/// `written` to that number; everything else is the code of the log.
#[derive(Debug)]
pub struct WriterModel {
    writer: WriterLock<()>,
    complete: AtomicU64,
}

impl Default for WriterModel {
    fn default() -> Self {
        WriterModel {
            writer: WriterLock::new(Kind::Parking, Lsn::ZERO, ()),
            complete: AtomicU64::new(0),
        }
    }
}

impl WriterModel {
    /// Completes a record, and returns where it ends.
    pub fn insert(&self) -> Lsn {
        Lsn::new(self.complete.fetch_add(1, Relaxed) + 1) // Relaxed: see `end`.
    }

    /// Writes up to `lsn`, or waits until another thread has; false if that will never be.
    pub fn write_to(&self, worker: &Worker, lsn: Lsn) -> bool {
        let write = |(): &mut (), _| self.write(worker);
        let written = self.writer.write_to(worker, lsn, || self.end(), write);
        let position = self.writer.waiters.position(Milestone::Written);
        assert!(written.is_err() || position >= lsn);
        written.is_ok()
    }

    /// Does what a flusher would do that is woken now.
    pub fn flush(&self, worker: &Worker) {
        let requested = self.writer.requests.requested_write();
        if requested > self.writer.waiters.position(Milestone::Written) {
            let _guard = self.writer.acquire(worker);
            let _ = self.write(worker);
        }
    }

    /// Closes the log: nothing more is written.
    pub fn close(&self, worker: &Worker) {
        self.writer.waiters.close(worker);
    }

    fn write(&self, worker: &Worker) -> Result<(), LogError> {
        let waiters = &self.writer.waiters;
        if waiters.is_over(worker) {
            return Err(LogError::Closed);
        }
        let complete = self.end();
        if complete > waiters.position(Milestone::Written) {
            waiters.advance(Milestone::Written, complete);
        }
        Ok(())
    }

    fn end(&self) -> Lsn {
        Lsn::new(self.complete.load(Relaxed)) // Relaxed: stands for the ring, which orders it.
    }
}

/// Number of payload bytes of each record in a [`BufferModel`].
pub const PAYLOAD_BYTES: usize = 8;

/// A log buffer with nothing behind it but a [`BufferDrain`].
#[derive(Debug)]
pub struct BufferModel(Buffer);

/// Takes records out of a [`BufferModel`].
#[derive(Debug)]
pub struct BufferDrain(Drainer);

fn codec() -> HeaderCodec {
    HeaderCodec::new(&[7; 16])
}

impl BufferModel {
    /// Returns a buffer with space for `records`, which is a power of two from 2 on.
    pub fn new(kind: BufferKind, records: usize) -> (BufferModel, BufferDrain) {
        let capacity = records * framed_bytes(PAYLOAD_BYTES) as usize;
        let (buffer, drainer) = Buffer::new(kind, Kind::Parking, codec(), capacity, Lsn::ZERO);
        (BufferModel(buffer), BufferDrain(drainer))
    }

    /// Inserts a record of this mark and returns its position; `None` if there is no space, or the
    /// buffer refuses it.
    pub fn insert(&self, worker: &Worker, mark: u8) -> Option<u64> {
        self.insert_with(worker, mark, &|_| {})
    }

    /// As [`insert`](Self::insert), and calls `on_reserved` with the end of the record.
    pub fn insert_with(&self, worker: &Worker, mark: u8, on_reserved: &dyn Fn(u64)) -> Option<u64> {
        assert!((1..FIRST_OWN_KIND).contains(&mark));
        let parts: &[&[u8]] = &[&[mark; PAYLOAD_BYTES]];
        let record = PendingRecord {
            kind: mark,
            parts,
            length: PAYLOAD_BYTES,
            payload: payload_check(parts),
            framed: framed_bytes(PAYLOAD_BYTES),
            durable: Lsn::ZERO,
            on_reserved: Some(&|end: Lsn| on_reserved(end.bytes())),
        };
        match self.0.insert(worker, &record) {
            InsertOutcome::Done { begin, end } => {
                assert_eq!(end.since(begin), record.framed);
                Some(begin.bytes())
            }
            InsertOutcome::Full | InsertOutcome::Refused(_) => None,
        }
    }

    /// Passes a record around the buffer and returns its position; `None` if the buffer refuses it.
    pub fn bypass(&self, worker: &Worker) -> Option<u64> {
        let bypass = self.0.bypass(worker, framed_bytes(PAYLOAD_BYTES)).ok()?;
        Some(bypass.at())
    }

    /// Returns where the next reservation begins.
    pub fn front(&self) -> u64 {
        self.0.front().bytes()
    }

    /// Refuses further records.
    pub fn refuse(&self, worker: &Worker) {
        self.0.refuse(worker, LogError::Closed);
    }

    /// Returns where the stream ends.
    pub fn end(&self, worker: &Worker) -> u64 {
        self.0.end(worker).0.bytes()
    }
}

impl BufferDrain {
    /// Takes out what is complete, and returns the marks of its records, in order.
    ///
    /// # Panics
    ///
    /// If any of it is not a record that was inserted there.
    pub fn take(&mut self) -> Vec<u8> {
        let begin = self.0.at();
        let length = self.0.poll() - begin;
        let bytes = self.0.bytes(length).concat();
        let records = bytes
            .chunks(framed_bytes(PAYLOAD_BYTES) as usize)
            .enumerate();
        let marks = records.map(|(index, record)| {
            let lsn = Lsn::new(begin + index as u64 * framed_bytes(PAYLOAD_BYTES));
            let (header, payload) = record.split_first_chunk::<HEADER_BYTES>().expect("whole");
            let header = codec()
                .decode(lsn, header)
                .expect("a header of this position");
            assert_eq!(payload, [header.kind; PAYLOAD_BYTES]);
            header.kind
        });
        let marks = marks.collect();
        self.0.release(length);
        marks
    }
}
