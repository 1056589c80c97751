//! One latch around allocate and copy: the traditional log buffer.
//!
//! Inserting holds the latch for as long as it takes to copy the record. That is the cost other
//! designs attack; what can be done before (the checksum of the payload) is done before.
//!
//! # State
//!
//! `bytes` is the stream from `start` on that nobody has taken yet. Taking it swaps in an empty
//! vector, so that inserts go on while the taken bytes are being written.
//!
//! # Invariants
//!
//! * I1 `start + bytes.len()` is the end of the log; it never goes back.
//! * I2 `bytes` never grows beyond `capacity`, so no insert allocates.
//! * I3 Whoever takes bytes, or reserves a place behind them, holds the output of the log, and so
//!   writes them before anybody else writes what lies behind them.

use foxton_sync::latch::{Kind, Latched};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::error::LogError;
use crate::lsn::Lsn;
use crate::record::{HEADER_BYTES, Header, Seal};

static SITE: Site = Site::new(Component::Log, Pattern::Unbounded, "log buffer");

/// The log buffer.
#[derive(Debug)]
pub(crate) struct Buffer {
    seal: Seal,
    /// Bytes, never exceeded (I2).
    capacity: usize,
    state: Latched<State>,
}

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    start: Lsn,
    records: u64,
    refusal: Option<LogError>,
}

/// A record before it has a place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draft<'a> {
    pub(crate) kind: u8,
    pub(crate) parts: &'a [&'a [u8]],
    /// Bytes in all parts.
    pub(crate) length: usize,
    /// Their CRC-32C.
    pub(crate) payload: u32,
    /// Bytes of stream that the record will take.
    pub(crate) framed: u64,
}

/// What became of an insert.
#[derive(Debug)]
pub(crate) enum Placed {
    /// The record is in the buffer and ends here.
    Done {
        end: Lsn,
        /// This record made the buffer half full: somebody should begin to write.
        half_full: bool,
    },
    /// There is no room until somebody takes the bytes.
    Full,
    /// The log takes no more records.
    Refused(LogError),
}

/// Bytes taken out of the buffer, to be written at once.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) bytes: Vec<u8>,
    pub(crate) start: Lsn,
}

impl Taken {
    pub(crate) fn end(&self) -> Lsn {
        self.start.plus(self.bytes.len() as u64)
    }
}

impl State {
    fn end(&self) -> Lsn {
        self.start.plus(self.bytes.len() as u64)
    }

    fn take(&mut self, empty: Vec<u8>) -> Taken {
        debug_assert!(empty.is_empty());
        let start = self.start;
        self.start = self.end();
        Taken {
            bytes: std::mem::replace(&mut self.bytes, empty),
            start,
        }
    }
}

impl Buffer {
    /// An empty buffer at the end of a log.
    pub(crate) fn new(kind: Kind, seal: Seal, capacity: usize, start: Lsn) -> Self {
        let bytes = Vec::with_capacity(capacity);
        let state = State {
            bytes,
            start,
            records: 0,
            refusal: None,
        };
        Buffer {
            seal,
            capacity,
            state: Latched::new(kind, &SITE, state),
        }
    }

    /// A vector fit to be swapped in by [`take`](Self::take).
    pub(crate) fn spare(&self) -> Vec<u8> {
        Vec::with_capacity(self.capacity)
    }

    /// Whether a record that takes `framed` bytes goes through the buffer. A larger one would
    /// hold up everybody else while it is copied, and is written from where it lies instead.
    pub(crate) fn fits(&self, framed: u64) -> bool {
        framed <= (self.capacity / 2) as u64
    }

    /// Gives the record a place and copies it there.
    pub(crate) fn insert(&self, worker: &Worker, draft: Draft<'_>, durable: Lsn) -> Placed {
        self.state.with(worker, |state| {
            if let Some(refusal) = &state.refusal {
                return Placed::Refused(refusal.clone());
            }
            let before = state.bytes.len();
            let after = before + draft.framed as usize;
            if after > self.capacity {
                return Placed::Full;
            }
            let header = self.header(state.end(), draft, durable);
            state.bytes.extend_from_slice(&header);
            for part in draft.parts {
                state.bytes.extend_from_slice(part);
            }
            state.bytes.resize(after, 0);
            state.records += 1;
            let half = self.capacity / 2;
            Placed::Done {
                end: state.end(),
                half_full: before < half && after >= half,
            }
        })
    }

    /// Takes everything out. Only for the holder of the output (I3).
    pub(crate) fn take(&self, worker: &Worker, empty: Vec<u8>) -> Taken {
        self.state.with(worker, |state| state.take(empty))
    }

    /// Takes everything out and gives the record the place behind it, without copying it; also
    /// returns its header. Only for the holder of the output (I3).
    pub(crate) fn reserve(
        &self,
        worker: &Worker,
        draft: Draft<'_>,
        durable: Lsn,
        empty: Vec<u8>,
    ) -> Result<(Taken, [u8; HEADER_BYTES]), (LogError, Vec<u8>)> {
        self.state.with(worker, |state| {
            if let Some(refusal) = &state.refusal {
                return Err((refusal.clone(), empty));
            }
            let taken = state.take(empty);
            let header = self.header(taken.end(), draft, durable);
            state.start = state.start.plus(draft.framed);
            state.records += 1;
            Ok((taken, header))
        })
    }

    /// Refuses every later insert with `error`. A failure stays; being closed yields to it.
    pub(crate) fn refuse(&self, worker: &Worker, error: LogError) {
        self.state.with(worker, |state| match state.refusal {
            Some(LogError::Failed(_)) => {}
            _ => state.refusal = Some(error),
        });
    }

    /// The end of the log, and the records inserted since it was opened.
    pub(crate) fn end(&self, worker: &Worker) -> (Lsn, u64) {
        self.state
            .with(worker, |state| (state.end(), state.records))
    }

    fn header(&self, lsn: Lsn, draft: Draft<'_>, durable: Lsn) -> [u8; HEADER_BYTES] {
        let header = Header {
            length: u32::try_from(draft.length).expect("drafts are at most MAX_PAYLOAD long"),
            payload: draft.payload,
            kind: draft.kind,
            durable,
        };
        self.seal.encode(lsn, header)
    }
}
