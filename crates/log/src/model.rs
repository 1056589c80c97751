//! The waiters and the buffers, for the model checker alone: `tests/loom_waiters.rs`, `tests/loom_buffers.rs`.

use foxton_sync::latch::Kind;
use foxton_sync::ring::Taker;
use foxton_sync::worker::Worker;

use crate::buffer::{Buffer, BufferKind, Draft, Placed};
use crate::error::LogError;
use crate::lsn::Lsn;
use crate::record::{FIRST_OWN_KIND, HEADER_BYTES, Seal, framed_bytes, payload_check};
use crate::waiters::{Reach, Waiters};

/// How far a log without a device is durable.
#[derive(Debug)]
pub struct Horizon(Waiters);

impl Default for Horizon {
    fn default() -> Self {
        Horizon(Waiters::new(Kind::Parking, Lsn::ZERO))
    }
}

impl Horizon {
    /// Makes the log durable up to `lsn`, as far as its waiters are concerned.
    pub fn reach(&self, worker: &Worker, lsn: Lsn) {
        self.0.advance(Reach::Durable, lsn);
        let _ = self.0.reached(worker, Reach::Durable, lsn);
    }

    /// Waits until it is durable up to `lsn`.
    pub fn wait(&self, worker: &Worker, lsn: Lsn) {
        if self.0.far(Reach::Durable) >= lsn {
            return;
        }
        let wait = self.0.enter(worker, Reach::Durable, lsn, || false);
        if let Some((parker, ticket)) = wait {
            parker.wait(ticket, None);
        }
    }
}

/// Bytes of payload of each record in a [`Stream`].
const PAYLOAD: usize = 8;

/// A log buffer with nothing behind it but who takes records out.
#[derive(Debug)]
pub struct Stream(Buffer);

/// Who takes records out of a [`Stream`].
#[derive(Debug)]
pub struct Out(Taker);

fn seal() -> Seal {
    Seal::new(&[7; 16])
}

impl Stream {
    /// A buffer with room for `records`, which is a power of two from 2 on.
    pub fn new(kind: BufferKind, records: usize) -> (Stream, Out) {
        let capacity = records * framed_bytes(PAYLOAD) as usize;
        let (buffer, taker) = Buffer::new(kind, Kind::Parking, seal(), capacity, Lsn::ZERO);
        (Stream(buffer), Out(taker))
    }

    /// Inserts a record of this mark. Says where it lies; `None`: there is no room, or nothing is taken any more.
    pub fn insert(&self, worker: &Worker, mark: u8) -> Option<u64> {
        assert!((1..FIRST_OWN_KIND).contains(&mark));
        let parts: &[&[u8]] = &[&[mark; PAYLOAD]];
        let draft = Draft {
            kind: mark,
            parts,
            length: PAYLOAD,
            payload: payload_check(parts),
            framed: framed_bytes(PAYLOAD),
            durable: Lsn::ZERO,
        };
        match self.0.insert(worker, &draft) {
            Placed::Done { begin, end } => {
                assert_eq!(end.since(begin), draft.framed);
                Some(begin.bytes())
            }
            Placed::Full | Placed::Refused(_) => None,
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

impl Out {
    /// Takes out what is complete: the marks of its records, in order.
    ///
    /// # Panics
    ///
    /// If any of it is no record that was inserted there.
    pub fn take(&mut self) -> Vec<u8> {
        let begin = self.0.at();
        let length = self.0.look() - begin;
        let bytes = self.0.bytes(length).concat();
        let records = bytes.chunks(framed_bytes(PAYLOAD) as usize).enumerate();
        let marks = records.map(|(index, record)| {
            let lsn = Lsn::new(begin + index as u64 * framed_bytes(PAYLOAD));
            let (header, payload) = record.split_first_chunk::<HEADER_BYTES>().expect("whole");
            let header = seal().decode(lsn, header).expect("a header of this place");
            assert_eq!(payload, [header.kind; PAYLOAD]);
            header.kind
        });
        let marks = marks.collect();
        self.0.release(length);
        marks
    }
}
