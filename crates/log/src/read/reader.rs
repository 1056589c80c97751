//! Reading a log to wherever it ends, and saying how it ends.
//!
//! Reading begins at the first record, or where a checkpoint says: what lies before that place is
//! not looked at, and may be gone.
//!
//! # A torn end, or damage
//!
//! A log that was not closed ends in whatever the last writes left: nothing, half a record, or
//! sectors of several records in any order. That is a *torn end*: the log simply stops there,
//! and nothing is lost that was acknowledged as durable. A record that had been durable and is
//! bad now is *damage*, and must not be mistaken for a torn end, or acknowledged records behind
//! it would vanish without a word. The two are told apart by what lies behind the bad place `x`:
//!
//! * a good record whose `durable` field is beyond what is bad was written by somebody who knew
//!   that to be durable: damage;
//! * the bad record lies in a segment that has a successor: damage (`segment`, I1);
//! * a checkpoint was made of the log beyond it, and so of durable bytes: damage;
//! * the log was closed beyond it, as the [`clean_shutdown`](crate::format::clean_shutdown) says: damage;
//! * anything else may have been on its way when the power went: a torn end. A good record
//!   behind `x` is not enough for damage, since a device may write a later sector first.
//!
//! A log that was closed ends in a record of kind `CLOSED`, written when everything before it
//! was durable, with its `durable` field saying so. So there, damage to any record is noticed,
//! the last one included; damage to the closing record itself loses nothing, and looks like a
//! crash during `close`. In a log that was *not* closed, damage to what was written since the
//! last sync but one can look like a torn end: no single copy can tell the two apart.
//!
//! How the segments become one stream, and that reading is bounded and changes nothing, is in
//! `stream`.

use std::fmt;

use crate::device::Device;
use crate::format::clean_shutdown;
use crate::format::error::{Damage, Failure, OpenError};
use crate::format::lsn::Lsn;
use crate::format::record::{CLOSED, FIRST_OWN_KIND, Flaw, RecordView, Seal};
use crate::format::segment::Extent;
use crate::read::stream::{Rest, Stream, catalogue, damaged};

/// How a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// It was closed.
    Closed,
    /// It was not closed. Nothing follows its last record.
    Open,
    /// It was not closed. Something that is not a record follows the last one: what was being
    /// written when the program or the machine stopped.
    Torn(Flaw),
}

/// What was found in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Where the last record ends.
    pub end: Lsn,
    /// Records, not counting the log's own.
    pub records: u64,
    /// How the log ends there.
    pub ended: Ended,
    /// Segment files.
    pub segments: usize,
    /// The file that the end lies in; empty if there is none.
    pub file: String,
    /// Where in that file, in bytes.
    pub offset: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary {
            end,
            records,
            segments,
            file,
            offset,
            ..
        } = self;
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let (some, several) = (plural(*records), plural(*segments as u64));
        write!(
            f,
            "{records} record{some} in {segments} segment{several} up to LSN {end}"
        )?;
        match self.ended {
            Ended::Closed => write!(f, ", closed"),
            Ended::Open => write!(f, ", not closed"),
            Ended::Torn(flaw) => {
                write!(f, ", not closed; torn in `{file}` at byte {offset}: {flaw}")
            }
        }
    }
}

/// Where reading begins, and what is known of the log from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Start {
    /// Where the first record that is needed begins. What lies before may be gone.
    pub from: Lsn,
    /// The log was durable up to here, whatever it says itself: it cannot end before.
    pub durable: Lsn,
}

/// Reads the log of the database `identity`, calling `visit` for each record, in order.
///
/// Changes nothing, so it may be used on a directory that can only be read. The log must not be
/// written meanwhile.
pub fn read<E>(
    device: &dyn Device,
    identity: &[u8; 16],
    start: Start,
    visit: &mut dyn FnMut(RecordView<'_>) -> Result<(), E>,
) -> Result<Summary, OpenError<E>> {
    find(device, identity, start, visit).map(|found| found.summary)
}

/// What opening a log for writing must know besides the records.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) summary: Summary,
    /// Where reading began.
    pub(crate) from: Lsn,
    pub(crate) segments: Vec<Extent>,
    /// Files of ours that hold nothing and are in the way.
    pub(crate) leftovers: Vec<String>,
    /// The CRC-32C of the records as they were read, from the beginning of the segment that the log
    /// ends in, or from where reading began in it.
    pub(crate) tail: u32,
    /// Where the last record begins, if it says that the log was closed and nothing follows it.
    pub(crate) closed_at: Option<Lsn>,
}

pub(crate) fn find<E>(
    device: &dyn Device,
    identity: &[u8; 16],
    start: Start,
    visit: &mut dyn FnMut(RecordView<'_>) -> Result<(), E>,
) -> Result<Found, OpenError<E>> {
    let durable = start.durable.max(clean_shutdown::read(device, identity)?);
    let (segments, leftovers) = catalogue(device, identity, start.from)?;
    if segments.is_empty() && durable > start.from {
        return Err(damaged(start.from, Damage::Missing));
    }
    let mut stream = Stream::over(device, segments);
    let seal = Seal::new(identity);
    let (mut at, mut records, mut closed_at) = (start.from, 0, None);
    let mut tail = Tail::default();
    let flaw = loop {
        let record = match stream.record(seal, at)? {
            Ok(record) => record,
            Err(flaw) => break flaw,
        };
        let end = record.end;
        match record.kind {
            CLOSED => closed_at = Some(at),
            kind if kind >= FIRST_OWN_KIND => {
                return Err(stream.corruption(at, Damage::Kind(kind)).into());
            }
            _ => {
                visit(record).map_err(|error| OpenError::Visit { lsn: at, error })?;
                records += 1;
                closed_at = None;
            }
        }
        tail.add(&mut stream, at, end)?;
        at = end;
    };
    let rest = stream.search(seal, at, flaw, durable)?;
    let ended = match (rest, closed_at) {
        (Rest::Damaged, _) => return Err(stream.corruption(at, Damage::Record(flaw)).into()),
        (Rest::Nothing, Some(_)) => Ended::Closed,
        (Rest::Nothing, None) => Ended::Open,
        (Rest::Something, _) => Ended::Torn(flaw),
    };
    let (file, offset) = stream.place(at);
    let summary = Summary {
        end: at,
        records,
        ended,
        segments: stream.segments.len(),
        file,
        offset,
    };
    let closed_at = closed_at.filter(|_| ended == Ended::Closed);
    Ok(Found {
        summary,
        from: start.from,
        segments: stream.segments,
        leftovers,
        tail: tail.check,
        closed_at,
    })
}

/// What was read of the segment that the last record ends in.
#[derive(Debug, Default)]
struct Tail {
    first: Lsn,
    check: u32,
}

impl Tail {
    /// Adds the record from `at` to `end`, which was read just now.
    fn add(&mut self, stream: &mut Stream<'_>, at: Lsn, end: Lsn) -> Result<(), Failure> {
        let first = stream.extent_of(end).map_or(Lsn::ZERO, |home| home.first);
        if first > self.first {
            *self = Tail { first, check: 0 };
        }
        let from = at.max(first);
        let bytes = stream.view(from, end.since(from))?.unwrap_or_default();
        self.check = crc32c::crc32c_append(self.check, bytes);
        Ok(())
    }
}
