//! Log buffers: memory for records that are not written yet, and the order of the stream.
//!
//! A buffer allocates every record in the stream, encodes the header that depends on its position,
//! and copies the record there. It knows nothing of files: the writing thread takes complete bytes
//! out, in order. All buffers are a [`Ring`]. They differ in how threads allocate, and in what a
//! thread holds while it copies.
//!
//! | buffer         | allocates                       | copies                   | completes |
//! |----------------|---------------------------------|--------------------------|-----------|
//! | `baseline`     | under a latch                   | under the latch          | in turn   |
//! | `consolidated` | under a latch, for a group      | group, under one's latch | delegated |
//! | `decoupled`    | under a latch                   | outside                  | delegated |
//! | `hybrid`       | by one word; contended: a group | outside                  | delegated |
//!
//! The names with `:in-order` complete in turn: each record waits for those before it.
//!
//! # Contract
//!
//! * B1  Records follow each other without gaps, each whole, with a header that names its position.
//!   If one insert began after another returned, its record lies behind the other.
//! * B2  After an insert returns, its thread is not needed: the record is complete, or will be once
//!   those before it are. Nothing behind an incomplete record is taken out.
//! * B3  An insert that finds no space, or is refused, leaves no trace.
//! * B4  Once `refuse` has returned, every insert that begins is refused. Inserts that allocated
//!   before complete.
//! * B5  A bypass delays no insert for longer than the records before it take to complete.
//! * B6  `on_reserved` gets the end of a record once it is reserved and before it is complete. An
//!   insert without space, or one that is refused, does not call it.
//! * B7  The front is where the next reservation begins, and one load reads it. A thread that finds
//!   the front behind the begin of a record sees what its inserter did before the insert. After an
//!   insert has returned, the front is at the end of its record or behind it.
//!
//! `tests/it/buffers.rs` has a test for each clause and runs it on every buffer;
//! `tests/models/buffers.rs` explores B1 to B4 and B7 in every order of two or three threads.
//!
//! # What a descheduled thread delays
//!
//! A thread that has allocated and is descheduled before it completes delays no other insert,
//! unless completion is in turn or the ring is full. But it delays everything behind it from being
//! *written*, and so the threads that wait for durability. That is so for every buffer, because the
//! stream has no holes. The buffers differ in what else is delayed:
//!
//! * in `baseline` and `consolidated` every insert;
//! * in `decoupled` every insert, if the thread holds the latch;
//! * in `hybrid` the inserts in one group with it.
//!
//! # A caller that panics
//!
//! If `on_reserved` panics, its reservation is never filled. That breaks the ring: nothing behind
//! the place is ever complete, and the thread that inserted ends the log.

use std::fmt;

use foxton_sync::latch;
use foxton_sync::park::WAKING;
use foxton_sync::ring::{Bypass, Completion, Drainer, Reservation, Ring};
use foxton_sync::shim::{Arc, AtomicBool, Ordering::Relaxed};
use foxton_sync::worker::Worker;

use crate::format::error::LogError;
use crate::format::lsn::Lsn;
use crate::format::record::{HeaderCodec, RecordHeader, padding};

/// The allocator of the ring behind one latch.
mod latched_allocator;

/// One latch around allocate and copy.
mod baseline;

/// One latch around allocate and copy, for all threads that wait at once.
mod consolidated;

/// One latch around allocate; copied outside.
mod decoupled;

/// How two threads at one word take turns.
mod contention;

/// Allocation by one word, and by groups where it is contended; copied outside.
mod hybrid;

/// Threads that wait for space.
pub(crate) mod space_waiters;

/// Designs of log buffers to choose from.
///
/// ```
/// use foxton_log::BufferKind;
///
/// assert_eq!("hybrid".parse(), Ok(BufferKind::Hybrid));
/// assert_eq!(BufferKind::DecoupledInOrder.to_string(), "decoupled:in-order");
/// assert_eq!("decoupled:waiting".parse(), Ok(BufferKind::DecoupledInOrder), "its old name");
/// assert!("fast".parse::<BufferKind>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BufferKind {
    /// One latch around allocate and copy: the traditional log buffer.
    Baseline,
    /// Threads that wait at the latch allocate together, and copy side by side while one of them
    /// holds the latch.
    Consolidated,
    /// Allocates under the latch and copies outside it.
    Decoupled,
    /// As `decoupled`, but records complete in turn: an early one waits.
    DecoupledInOrder,
    /// Allocates by one word, together where many threads meet at it, and copies outside. The
    /// default, because a descheduled thread delays no other inserter.
    #[default]
    Hybrid,
    /// As `hybrid`, but records complete in turn: an early one waits.
    HybridInOrder,
}

foxton_sync::named_enum! {
    BufferKind, "log buffer":
    Baseline = "baseline",
    Consolidated = "consolidated",
    Decoupled = "decoupled",
    DecoupledInOrder = "decoupled:in-order" | "decoupled:waiting",
    Hybrid = "hybrid",
    HybridInOrder = "hybrid:in-order" | "hybrid:waiting",
}

impl BufferKind {
    /// The four designs of the literature, in the form without waiting for a turn.
    pub const DELEGATED: [Self; 4] = [
        Self::Baseline,
        Self::Consolidated,
        Self::Decoupled,
        Self::Hybrid,
    ];

    fn completion(self) -> Completion {
        match self {
            Self::Baseline | Self::DecoupledInOrder | Self::HybridInOrder => Completion::InOrder,
            Self::Consolidated | Self::Decoupled | Self::Hybrid => Completion::Delegated,
        }
    }
}

/// A record before it is allocated.
#[derive(Clone, Copy)]
pub(crate) struct PendingRecord<'a> {
    pub(crate) kind: u8,
    pub(crate) parts: &'a [&'a [u8]],
    /// Number of bytes in all parts.
    pub(crate) length: usize,
    /// Their CRC-32C.
    pub(crate) payload: u32,
    /// Number of bytes of stream that the record will take.
    pub(crate) framed: u64,
    /// How far the log was known to be durable.
    pub(crate) durable: Lsn,
    /// Called with the end of the record (B6).
    pub(crate) on_reserved: Option<&'a dyn Fn(Lsn)>,
}

impl PendingRecord<'_> {
    pub(crate) fn header(&self) -> RecordHeader {
        RecordHeader {
            length: u32::try_from(self.length).expect("records are at most MAX_PAYLOAD long"),
            payload: self.payload,
            kind: self.kind,
            durable: self.durable,
        }
    }
}

/// Result of an insert.
#[derive(Debug)]
pub(crate) enum InsertOutcome {
    /// The record is in the buffer.
    Done { begin: Lsn, end: Lsn },
    /// There is no space until bytes are taken out, or more is reserved on the device.
    Full,
    /// The log refuses further records.
    Refused(LogError),
}

/// How threads allocate and copy; see the contract on the page of this module.
trait InsertStrategy: fmt::Debug + Send + Sync {
    /// Allocates the record and copies it into the ring.
    fn insert(
        &self,
        worker: &Worker,
        writer: &RecordWriter,
        record: &PendingRecord<'_>,
    ) -> InsertOutcome;

    /// Allocates `length` bytes in the stream, and none in the ring.
    fn bypass(&self, worker: &Worker, length: u64) -> Result<Bypass, LogError>;

    /// Refuses every later insert with `error`. A failure stays, and replaces an earlier `Closed`.
    fn refuse(&self, worker: &Worker, error: LogError);

    /// Returns the end of the stream, and the number of records inserted.
    fn end(&self, worker: &Worker) -> (Lsn, u64);
}

/// Writes records into the ring.
#[derive(Debug)]
struct RecordWriter {
    ring: Arc<Ring>,
    codec: HeaderCodec,
}

impl RecordWriter {
    /// Announces the end of the record, writes it into its allocation and completes it.
    #[inline]
    fn fill(
        &self,
        worker: &Worker,
        mut reservation: Reservation<'_>,
        record: &PendingRecord<'_>,
    ) -> InsertOutcome {
        let (begin, end) = (Lsn::new(reservation.at()), Lsn::new(reservation.end()));
        if let Some(on_reserved) = record.on_reserved {
            on_reserved(end); // B6
        }
        reservation.write(&self.codec.encode(begin, record.header()));
        for part in record.parts {
            reservation.write(part);
        }
        let zeros = padding(record.length);
        if zeros > 0 {
            reservation.write(&[0; 8][..zeros]);
        }
        if reservation.complete() {
            worker.account().passed(&WAKING);
        }
        InsertOutcome::Done { begin, end }
    }
}

/// A log buffer of one of the designs.
#[derive(Debug)]
pub(crate) struct Buffer {
    writer: RecordWriter,
    strategy: Box<dyn InsertStrategy>,
    /// A hint that inserts are refused.
    is_refusing: AtomicBool,
}

impl Buffer {
    /// Returns an empty buffer at the end of a log, and the right to take bytes out of it.
    pub(crate) fn new(
        kind: BufferKind,
        latch: latch::Kind,
        codec: HeaderCodec,
        capacity: usize,
        start: Lsn,
    ) -> (Self, Drainer) {
        let (ring, allocator, drainer) = Ring::new(capacity, start.bytes(), kind.completion());
        let strategy: Box<dyn InsertStrategy> = match kind {
            BufferKind::Baseline => Box::new(baseline::Baseline::new(latch, allocator)),
            BufferKind::Consolidated => Box::new(consolidated::Consolidated::new(
                latch,
                allocator,
                ring.clone(),
            )),
            BufferKind::Decoupled | BufferKind::DecoupledInOrder => {
                Box::new(decoupled::Decoupled::new(latch, allocator))
            }
            BufferKind::Hybrid | BufferKind::HybridInOrder => {
                Box::new(hybrid::Hybrid::new(allocator, ring.clone()))
            }
        };
        let writer = RecordWriter { ring, codec };
        let buffer = Buffer {
            writer,
            strategy,
            is_refusing: AtomicBool::new(false),
        };
        (buffer, drainer)
    }

    /// True if a record that takes `framed` bytes goes through the buffer. A larger one would fill
    /// too much of it at once; it is written from the caller's memory instead.
    pub(crate) fn fits(&self, framed: u64) -> bool {
        framed <= self.part()
    }

    /// Number of bytes that fit into the buffer.
    pub(crate) fn capacity(&self) -> u64 {
        self.writer.ring.capacity()
    }

    /// True if a record from `begin` to `end` should start writing: each time the stream has filled
    /// another part of the ring.
    pub(crate) fn is_due(&self, begin: Lsn, end: Lsn) -> bool {
        begin.bytes() / self.part() != end.bytes() / self.part()
    }

    /// Number of bytes written at a time, and of the largest record that goes through the buffer.
    pub(crate) fn part(&self) -> u64 {
        self.writer.ring.capacity() / 4
    }

    /// True if there is space for a record that takes `framed` bytes. Other threads may insert
    /// meanwhile, so there may be none on return.
    pub(crate) fn has_space(&self, framed: u64) -> bool {
        self.front().plus(framed).bytes() <= self.writer.ring.limit()
    }

    /// Returns where the next reservation begins (B7).
    #[inline]
    pub(crate) fn front(&self) -> Lsn {
        Lsn::new(self.writer.ring.front())
    }

    /// True if inserts are refused. A thread that has learned of it from the log reads true.
    pub(crate) fn is_refusing(&self) -> bool {
        self.is_refusing.load(Relaxed) // Relaxed: a hint; see `refuse`.
    }

    /// See [`InsertStrategy`].
    #[inline]
    pub(crate) fn insert(&self, worker: &Worker, record: &PendingRecord<'_>) -> InsertOutcome {
        self.strategy.insert(worker, &self.writer, record)
    }

    /// See [`InsertStrategy`].
    pub(crate) fn bypass(&self, worker: &Worker, length: u64) -> Result<Bypass, LogError> {
        self.strategy.bypass(worker, length)
    }

    /// See [`InsertStrategy`].
    pub(crate) fn refuse(&self, worker: &Worker, error: LogError) {
        self.strategy.refuse(worker, error);
        // Relaxed: the strategy refuses by itself, and other threads learn of it later.
        self.is_refusing.store(true, Relaxed);
    }

    /// See [`InsertStrategy`].
    pub(crate) fn end(&self, worker: &Worker) -> (Lsn, u64) {
        self.strategy.end(worker)
    }
}
