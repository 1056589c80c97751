//! The waiters, the way out and the buffers, for the model checker alone: `tests/loom_waiters.rs`, `tests/loom_writer_lock.rs`,
//! `tests/loom_buffers.rs`.

use foxton_sync::latch::Kind;
use foxton_sync::ring::Taker;
use foxton_sync::shim::{AtomicBool, AtomicU64, Mutex, Ordering::Relaxed, lock};
use foxton_sync::worker::Worker;

use crate::buffer::{Buffer, BufferKind, InsertOutcome, PendingRecord};
use crate::format::error::LogError;
use crate::format::lsn::Lsn;
use crate::format::record::{
    FIRST_OWN_KIND, HEADER_BYTES, HeaderCodec, framed_bytes, payload_check,
};
use crate::write::waiters::{Milestone, Waiters};
use crate::write::writer_lock::{WriterHost, WriterLock};

/// How far a log without a device is durable.
#[derive(Debug)]
pub struct DurableModel(Waiters);

impl Default for DurableModel {
    fn default() -> Self {
        DurableModel(Waiters::new(Kind::Parking, Lsn::ZERO))
    }
}

impl DurableModel {
    /// Makes the log durable up to `lsn`, as far as its waiters are concerned.
    pub fn complete(&self, worker: &Worker, lsn: Lsn) {
        self.0.advance(Milestone::Durable, lsn);
        let _ = self.0.complete_waits(worker, Milestone::Durable, lsn);
    }

    /// Waits until it is durable up to `lsn`.
    pub fn wait(&self, worker: &Worker, lsn: Lsn) {
        if self.0.position(Milestone::Durable) >= lsn {
            return;
        }
        let wait = self.0.enqueue(worker, Milestone::Durable, lsn, || false);
        if let Some((parker, ticket)) = wait {
            parker.wait(ticket, None);
        }
    }
}

/// The way out of a buffer that is a number: how far records are complete.
#[derive(Debug)]
pub struct WriterModel {
    lock: WriterLock<()>,
    host: WriterModelHost,
}

#[derive(Debug)]
struct WriterModelHost {
    waiters: Waiters,
    complete: AtomicU64,
    /// What the flusher was asked for.
    asked: Mutex<Lsn>,
    over: AtomicBool,
}

impl WriterHost<()> for WriterModelHost {
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn write_ready(&self, worker: &Worker, (): &mut ()) -> Result<(), LogError> {
        self.check(worker)?;
        let complete = Lsn::new(self.complete.load(Relaxed)); // Relaxed: stands for the ring, which orders it.
        if complete > self.waiters.position(Milestone::Written) {
            self.waiters.advance(Milestone::Written, complete);
        }
        Ok(())
    }

    fn write_up_to(&self, worker: &Worker, state: &mut (), _upto: Lsn) -> Result<(), LogError> {
        self.write_ready(worker, state)
    }

    fn end(&self, _: &Worker) -> Lsn {
        Lsn::new(self.complete.load(Relaxed)) // Relaxed: see `write_ready`.
    }

    fn request_write(&self, _: &Worker, left: Lsn) {
        let mut asked = lock(&self.asked);
        *asked = left.max(*asked);
    }

    fn check(&self, worker: &Worker) -> Result<(), LogError> {
        match self.is_over(worker) {
            true => Err(LogError::Closed),
            false => Ok(()),
        }
    }

    fn is_over(&self, _: &Worker) -> bool {
        self.over.load(Relaxed) // Relaxed: the latch of the waiters orders it.
    }
}

impl Default for WriterModel {
    fn default() -> Self {
        let host = WriterModelHost {
            waiters: Waiters::new(Kind::Parking, Lsn::ZERO),
            complete: AtomicU64::new(0),
            asked: Mutex::new(Lsn::ZERO),
            over: AtomicBool::new(false),
        };
        WriterModel {
            lock: WriterLock::new(()),
            host,
        }
    }
}

impl WriterModel {
    /// A record is complete: says where it ends.
    pub fn insert(&self) -> Lsn {
        Lsn::new(self.host.complete.fetch_add(1, Relaxed) + 1) // Relaxed: see `write_ready`.
    }

    /// Sees to it that it is written up to `lsn`; false: it never will be.
    pub fn write_to(&self, worker: &Worker, lsn: Lsn) -> bool {
        let reached = self.lock.write_to(&self.host, worker, lsn).is_ok();
        assert!(!reached || self.host.waiters.position(Milestone::Written) >= lsn);
        reached
    }

    /// What a flusher does who is woken now.
    pub fn flush(&self, worker: &Worker) {
        let asked = *lock(&self.host.asked);
        if asked > self.host.waiters.position(Milestone::Written) {
            let mut guard = self.lock.acquire(&self.host, worker);
            let _ = self.host.write_up_to(worker, &mut guard, asked);
        }
    }

    /// Nothing more is written.
    pub fn end(&self, worker: &Worker) {
        self.host.over.store(true, Relaxed); // Relaxed: see `is_over`.
        self.host.waiters.fail_waits(worker);
    }
}

/// Bytes of payload of each record in a [`BufferModel`].
const PAYLOAD_BYTES: usize = 8;

/// A log buffer with nothing behind it but who takes records out.
#[derive(Debug)]
pub struct BufferModel(Buffer);

/// Who takes records out of a [`BufferModel`].
#[derive(Debug)]
pub struct BufferDrain(Taker);

fn codec() -> HeaderCodec {
    HeaderCodec::new(&[7; 16])
}

impl BufferModel {
    /// A buffer with room for `records`, which is a power of two from 2 on.
    pub fn new(kind: BufferKind, records: usize) -> (BufferModel, BufferDrain) {
        let capacity = records * framed_bytes(PAYLOAD_BYTES) as usize;
        let (buffer, taker) = Buffer::new(kind, Kind::Parking, codec(), capacity, Lsn::ZERO);
        (BufferModel(buffer), BufferDrain(taker))
    }

    /// Inserts a record of this mark. Says where it lies; `None`: there is no room, or nothing is taken any more.
    pub fn insert(&self, worker: &Worker, mark: u8) -> Option<u64> {
        assert!((1..FIRST_OWN_KIND).contains(&mark));
        let parts: &[&[u8]] = &[&[mark; PAYLOAD_BYTES]];
        let record = PendingRecord {
            kind: mark,
            parts,
            length: PAYLOAD_BYTES,
            payload: payload_check(parts),
            framed: framed_bytes(PAYLOAD_BYTES),
            durable: Lsn::ZERO,
        };
        match self.0.insert(worker, &record) {
            InsertOutcome::Done { begin, end } => {
                assert_eq!(end.since(begin), record.framed);
                Some(begin.bytes())
            }
            InsertOutcome::Full | InsertOutcome::Refused(_) => None,
        }
    }

    /// Takes no more records.
    pub fn refuse(&self, worker: &Worker) {
        self.0.refuse(worker, LogError::Closed);
    }

    /// Where the stream ends.
    pub fn end(&self, worker: &Worker) -> u64 {
        self.0.end(worker).0.bytes()
    }
}

impl BufferDrain {
    /// Takes out what is complete: the marks of its records, in order.
    ///
    /// # Panics
    ///
    /// If any of it is no record that was inserted there.
    pub fn take(&mut self) -> Vec<u8> {
        let begin = self.0.at();
        let length = self.0.look() - begin;
        let bytes = self.0.bytes(length).concat();
        let records = bytes
            .chunks(framed_bytes(PAYLOAD_BYTES) as usize)
            .enumerate();
        let marks = records.map(|(index, record)| {
            let lsn = Lsn::new(begin + index as u64 * framed_bytes(PAYLOAD_BYTES));
            let (header, payload) = record.split_first_chunk::<HEADER_BYTES>().expect("whole");
            let header = codec().decode(lsn, header).expect("a header of this place");
            assert_eq!(payload, [header.kind; PAYLOAD_BYTES]);
            header.kind
        });
        let marks = marks.collect();
        self.0.release(length);
        marks
    }
}
