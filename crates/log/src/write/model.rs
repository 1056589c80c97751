//! The waiters, the way out and the buffers, for the model checker alone: `tests/loom_waiters.rs`, `tests/loom_outlet.rs`,
//! `tests/loom_buffers.rs`.

use foxton_sync::latch::Kind;
use foxton_sync::ring::Taker;
use foxton_sync::shim::{AtomicBool, AtomicU64, Mutex, Ordering::Relaxed, lock};
use foxton_sync::worker::Worker;

use crate::buffer::{Buffer, BufferKind, Draft, Placed};
use crate::format::error::LogError;
use crate::format::lsn::Lsn;
use crate::format::record::{FIRST_OWN_KIND, HEADER_BYTES, Seal, framed_bytes, payload_check};
use crate::write::waiters::{Reach, Waiters};
use crate::write::writer_lock::{Outlet, Owner};

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

/// The way out of a buffer that is a number: how far records are complete.
#[derive(Debug)]
pub struct Way {
    outlet: Outlet<()>,
    inner: WayInner,
}

#[derive(Debug)]
struct WayInner {
    waiters: Waiters,
    complete: AtomicU64,
    /// What the flusher was asked for.
    asked: Mutex<Lsn>,
    over: AtomicBool,
}

impl Owner<()> for WayInner {
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn take_out(&self, worker: &Worker, (): &mut ()) -> Result<(), LogError> {
        self.check(worker)?;
        let complete = Lsn::new(self.complete.load(Relaxed)); // Relaxed: stands for the ring, which orders it.
        if complete > self.waiters.far(Reach::Written) {
            self.waiters.advance(Reach::Written, complete);
        }
        Ok(())
    }

    fn write_out(&self, worker: &Worker, inside: &mut (), _upto: Lsn) -> Result<(), LogError> {
        self.take_out(worker, inside)
    }

    fn end(&self, _: &Worker) -> Lsn {
        Lsn::new(self.complete.load(Relaxed)) // Relaxed: see `take_out`.
    }

    fn ask_for(&self, _: &Worker, left: Lsn) {
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

impl Default for Way {
    fn default() -> Self {
        let inner = WayInner {
            waiters: Waiters::new(Kind::Parking, Lsn::ZERO),
            complete: AtomicU64::new(0),
            asked: Mutex::new(Lsn::ZERO),
            over: AtomicBool::new(false),
        };
        Way {
            outlet: Outlet::new(()),
            inner,
        }
    }
}

impl Way {
    /// A record is complete: says where it ends.
    pub fn insert(&self) -> Lsn {
        Lsn::new(self.inner.complete.fetch_add(1, Relaxed) + 1) // Relaxed: see `take_out`.
    }

    /// Sees to it that it is written up to `lsn`; false: it never will be.
    pub fn write_to(&self, worker: &Worker, lsn: Lsn) -> bool {
        let reached = self.outlet.write_to(&self.inner, worker, lsn).is_ok();
        assert!(!reached || self.inner.waiters.far(Reach::Written) >= lsn);
        reached
    }

    /// What a flusher does who is woken now.
    pub fn flush(&self, worker: &Worker) {
        let asked = *lock(&self.inner.asked);
        if asked > self.inner.waiters.far(Reach::Written) {
            let mut turn = self.outlet.take(&self.inner, worker);
            let _ = self.inner.write_out(worker, &mut turn, asked);
        }
    }

    /// Nothing more is written.
    pub fn end(&self, worker: &Worker) {
        self.inner.over.store(true, Relaxed); // Relaxed: see `is_over`.
        self.inner.waiters.failed(worker);
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
