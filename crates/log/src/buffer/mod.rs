//! Memory in which records wait to be written, and where the stream gets its order.
//!
//! A buffer gives every record its place in the stream, fills in what depends on the place, and copies
//! it there. It knows nothing of files: whoever writes takes out, in order, what is complete. All
//! buffers lie in a [`Ring`]; what they differ in is how threads come by their places and what a thread
//! holds while it copies.
//!
//! | buffer         | allocates                                 | copies                | completes  |
//! |----------------|-------------------------------------------|-----------------------|------------|
//! | `baseline`     | under a latch                             | under the latch       | in turn    |
//! | `consolidated` | under a latch, for all who wait           | all who waited, under the latch of one | delegated |
//! | `decoupled`    | under a latch                             | outside               | delegated  |
//! | `hybrid`       | by one word; for all who meet there       | outside               | delegated  |
//!
//! The names with `:in-order` complete in turn, each waiting for those before it.
//!
//! # Contract
//!
//! * B1  Records that were inserted have places that follow each other without gaps, each whole, with a
//!   header that names its place. Of two inserts of which one began after the other returned, the later
//!   lies behind the other.
//! * B2  An insert that returns needs its thread no more: the record is complete, or will be once those
//!   before it are. Nothing behind a record that is not complete is taken out.
//! * B3  An insert that finds no room, or is refused, leaves no trace.
//! * B4  Once `refuse` has returned, every insert that begins is refused. Inserts that had their place
//!   before complete.
//! * B5  A gap holds up no insert for longer than what precedes it takes to complete.
//!
//! `tests/buffers.rs` has a test for each clause and runs it on every buffer; `tests/loom_buffers.rs` plays B1 to B4 in every
//! order of two threads.
//!
//! # What a thread that loses its processor holds up
//!
//! Whoever has a place and has not completed it holds up nobody's insert, unless completion is in turn
//! or the ring runs full behind it; but it holds up what is *written*, and so who waits to be durable.
//! That is so for every buffer: the stream has no holes. What differs is what else it holds up: in
//! `baseline` and `consolidated` everybody, in `decoupled` everybody for as long as it is about to
//! allocate, in `hybrid` those who are in one group with it.

use std::fmt;

use foxton_sync::latch;
use foxton_sync::park::WAKING;
use foxton_sync::ring::{Bypass, Completion, Drainer, Reservation, Ring};
use foxton_sync::shim::Arc;
use foxton_sync::worker::Worker;

use crate::format::error::LogError;
use crate::format::lsn::Lsn;
use crate::format::record::{HeaderCodec, RecordHeader, padding};

/// One latch, and what is behind it.
mod latched_allocator;

/// One latch around allocate and copy.
mod baseline;

/// One latch around allocate and copy, for all who wait at once.
mod consolidated;

/// One latch around allocate; copied outside.
mod decoupled;

/// Whether two at one word take allocator.
mod contention;

/// One word, and groups where it is contended; copied outside.
mod hybrid;

/// Who waits for room.
pub(crate) mod space_waiters;

/// The buffers to choose from.
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
    /// Threads that wait at the latch ask for one place together, and copy side by side while one of
    /// them holds the latch.
    Consolidated,
    /// Allocates under the latch and copies outside it.
    Decoupled,
    /// As `decoupled`, but completes in turn: who is early waits.
    DecoupledInOrder,
    /// Allocates by one word, together where many meet at it, and copies outside. The default: whoever loses its processor
    /// in it holds up nobody who inserts.
    #[default]
    Hybrid,
    /// As `hybrid`, but completes in turn: who is early waits.
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
    /// The four of the literature, in the strategy in which they stand here: those that do not wait for
    /// their turn.
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

/// A record before it has a place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingRecord<'a> {
    pub(crate) kind: u8,
    pub(crate) parts: &'a [&'a [u8]],
    /// Bytes in all parts.
    pub(crate) length: usize,
    /// Their CRC-32C.
    pub(crate) payload: u32,
    /// Bytes of stream that the record will take.
    pub(crate) framed: u64,
    /// How far the log was known to be durable.
    pub(crate) durable: Lsn,
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

/// What became of an insert.
#[derive(Debug)]
pub(crate) enum InsertOutcome {
    /// The record is in the buffer.
    Done { begin: Lsn, end: Lsn },
    /// There is no room until somebody takes bytes out.
    Full,
    /// The log takes no more records.
    Refused(LogError),
}

/// How threads come by their places. See the contract on the page of this module.
trait InsertStrategy: fmt::Debug + Send + Sync {
    /// Gives the record a place and copies it there.
    fn insert(
        &self,
        worker: &Worker,
        writer: &RecordWriter,
        record: &PendingRecord<'_>,
    ) -> InsertOutcome;

    /// Gives `length` bytes a place in the stream and none in the ring.
    fn reserve(&self, worker: &Worker, length: u64) -> Result<Bypass, LogError>;

    /// Refuses every later insert with `error`. A failure stays; being closed yields to it.
    fn refuse(&self, worker: &Worker, error: LogError);

    /// The end of the stream, and the records inserted.
    fn end(&self, worker: &Worker) -> (Lsn, u64);
}

/// What records are written on.
#[derive(Debug)]
struct RecordWriter {
    ring: Arc<Ring>,
    codec: HeaderCodec,
}

impl RecordWriter {
    /// Writes the record into its place and completes it.
    #[inline]
    fn fill(
        &self,
        worker: &Worker,
        mut place: Reservation<'_>,
        record: &PendingRecord<'_>,
    ) -> InsertOutcome {
        let (begin, end) = (Lsn::new(place.at()), Lsn::new(place.end()));
        place.write(&self.codec.encode(begin, record.header()));
        for part in record.parts {
            place.write(part);
        }
        let zeros = padding(record.length);
        if zeros > 0 {
            place.write(&[0; 8][..zeros]);
        }
        if place.complete() {
            worker.account().passed(&WAKING);
        }
        InsertOutcome::Done { begin, end }
    }
}

/// The log buffer.
#[derive(Debug)]
pub(crate) struct Buffer {
    writer: RecordWriter,
    strategy: Box<dyn InsertStrategy>,
}

impl Buffer {
    /// An empty buffer at the end of a log, and the right to take bytes out of it.
    pub(crate) fn new(
        kind: BufferKind,
        latch: latch::Kind,
        codec: HeaderCodec,
        capacity: usize,
        start: Lsn,
    ) -> (Self, Drainer) {
        let (ring, front, taker) = Ring::new(capacity, start.bytes(), kind.completion());
        let strategy: Box<dyn InsertStrategy> = match kind {
            BufferKind::Baseline => Box::new(baseline::Baseline::new(latch, front)),
            BufferKind::Consolidated => {
                Box::new(consolidated::Consolidated::new(latch, front, ring.clone()))
            }
            BufferKind::Decoupled | BufferKind::DecoupledInOrder => {
                Box::new(decoupled::Decoupled::new(latch, front))
            }
            BufferKind::Hybrid | BufferKind::HybridInOrder => {
                Box::new(hybrid::Hybrid::new(front, ring.clone()))
            }
        };
        let writer = RecordWriter { ring, codec };
        (Buffer { writer, strategy }, taker)
    }

    /// Whether a record that takes `framed` bytes goes through the buffer. A larger one would take up
    /// too much of it at once, and is written from where it lies instead.
    pub(crate) fn fits(&self, framed: u64) -> bool {
        framed <= self.part()
    }

    /// Whether a record from `begin` to `end` should make somebody write: each time the stream has
    /// filled another part of the ring.
    pub(crate) fn is_due(&self, begin: Lsn, end: Lsn) -> bool {
        begin.bytes() / self.part() != end.bytes() / self.part()
    }

    /// Bytes to be written at a time, and of the largest record that goes through the buffer.
    pub(crate) fn part(&self) -> u64 {
        self.writer.ring.capacity() / 4
    }

    /// Whether there is room for a record that takes `framed` bytes.
    pub(crate) fn has_space(&self, worker: &Worker, framed: u64) -> bool {
        let ring = &self.writer.ring;
        let end = self.strategy.end(worker).0.plus(framed);
        end.bytes() <= ring.released() + ring.capacity()
    }

    /// See [`InsertStrategy`].
    #[inline]
    pub(crate) fn insert(&self, worker: &Worker, record: &PendingRecord<'_>) -> InsertOutcome {
        self.strategy.insert(worker, &self.writer, record)
    }

    /// See [`InsertStrategy`].
    pub(crate) fn reserve(&self, worker: &Worker, length: u64) -> Result<Bypass, LogError> {
        self.strategy.reserve(worker, length)
    }

    /// See [`InsertStrategy`].
    pub(crate) fn refuse(&self, worker: &Worker, error: LogError) {
        self.strategy.refuse(worker, error);
    }

    /// See [`InsertStrategy`].
    pub(crate) fn end(&self, worker: &Worker) -> (Lsn, u64) {
        self.strategy.end(worker)
    }
}
